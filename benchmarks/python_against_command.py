"""Compare a training step in Python with one of `rgcn train` on cores that other processes use too.

    python benchmarks/python_against_command.py [--configuration rgcn/nc-aifb] [--epochs 1000] [--rounds 5] [--busy 2]
                                                [--json results/python-against-command.json]

`--busy` processes compute meanwhile. In each round the same training runs by the command, in Python with
`rgcn.system.threads.wait_passively()` called before PyTorch is imported, and in Python without that call if
`--without` is given. The times of a step are compared by their medians; a step is timed between the first and the last
report, so loading and compiling do not count.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from _about import write_result

IN_PYTHON = """
import sys
if sys.argv[1] == "before":
    import rgcn.system.threads
    rgcn.system.threads.wait_passively()
import torch
from pathlib import Path
from rgcn.runs import load_configuration, load_data
from rgcn.runs.training import train
config = load_configuration(sys.argv[2], [f"training.epochs={sys.argv[3]}"])
train(config, load_data(config.data), Path(sys.argv[4]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configuration", default="rgcn/nc-aifb")
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--busy", type=int, default=2)
    parser.add_argument("--without", action="store_true", help="also without the call, which can take minutes")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    options = parser.parse_args()
    ways = ["command", "before", *(["without"] if options.without else [])]
    found: dict[str, list[float]] = {way: [] for way in ways}
    busy = [multiprocessing.Process(target=compute_without_end, daemon=True) for _ in range(options.busy)]
    for process in busy:
        process.start()
    for _ in range(options.rounds):
        for way in ways:
            found[way].append(step_milliseconds(way, options))
            print(way, round(found[way][-1], 3), flush=True)
    for process in busy:
        process.terminate()
    medians = {way: round(statistics.median(times), 3) for way, times in found.items()}
    result = {
        "configuration": options.configuration,
        "busy_processes": options.busy,
        "step_ms": medians,
        "python_over_command": round(medians["before"] / medians["command"], 3),
        "rounds": {way: [round(each, 3) for each in times] for way, times in found.items()},
    }
    print(json.dumps(result))
    if options.json:
        write_result(options.json, result)


def compute_without_end() -> None:
    while True:
        sum(range(10_000))


def step_milliseconds(way: str, options: argparse.Namespace) -> float:
    """Run one training and return the time of a step."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        if way == "command":
            command = ["-m", "rgcn", "train", options.configuration, "--epochs", options.epochs, "--out", run, "-q"]
        else:
            command = ["-c", IN_PYTHON, way, options.configuration, options.epochs, run]
        subprocess.run([sys.executable, *map(str, command)], check=True, capture_output=True)
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return 1000 * (rows[-1]["seconds"] - rows[0]["seconds"]) / (rows[-1]["number"] - rows[0]["number"])  # type: ignore[no-any-return]


if __name__ == "__main__":
    main()
