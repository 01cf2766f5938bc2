"""Time whole commands, from start to exit.

    RGCN_MIRROR=... python benchmarks/commands.py --write results/commands.json

The commands are `rgcn reproduce` of AIFB and MUTAG, `rgcn runs` on 200 runs, and `rgcn tune` of AIFB.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _about import write_result

REPRODUCE = ["reproduce", "node-classification", "--datasets", "aifb", "mutag", "--runs", "10", "--quiet"]
TUNE = ["tune", "rgcn/nc-aifb", "--trials", "20", "--quiet"]
RUNS = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        rows = [time_command(REPRODUCE, here)]
        copy_runs(here / "runs", here / "many")
        rows += [time_command(["runs", "many"], here) for _ in range(3)]
        rows.append(time_command(TUNE, here))
    if options.write:
        write_result(options.write, {"rows": rows})


def time_command(command: list[str], folder: Path) -> dict[str, Any]:
    whole = [sys.executable, "-c", "from rgcn.cli import main; main()", *command]
    start = time.perf_counter()
    subprocess.run(whole, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    row = {"command": f"rgcn {' '.join(command)}", "seconds": round(time.perf_counter() - start, 2)}
    print(json.dumps(row), flush=True)
    return row


def copy_runs(source: Path, target: Path) -> None:
    """Make 200 runs by copying the existing ones repeatedly."""
    existing = sorted(path.parent for path in source.rglob("run.json"))
    for number in range(RUNS):
        shutil.copytree(existing[number % len(existing)], target / str(number), ignore=shutil.ignore_patterns("model"))


if __name__ == "__main__":
    main()
