"""Kill trainings with SIGKILL at random moments, resume them, and compare the result with an undisturbed run.

    python benchmarks/kill_stress.py --kills 30 --write results/kill-stress.json
    python benchmarks/kill_stress.py --device cuda --graphs FOLDER --kills 12     # graphs saved by published_runs.py

Each configuration is trained once without interruption. Then it is trained again, killed after a random time (while
PyTorch is loaded, while a step is taken, while a checkpoint is half written), resumed, killed again, and so on, until
it finishes. The sha256 of the final weights must be that of the undisturbed run, and every report of the training must
be there once, with the same loss. Exit code 1 where anything differs.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _about import write_result

# Everything that draws random numbers, in trainings of some ten seconds that are saved every few steps.
CASES: dict[str, list[str]] = {
    "link prediction, sampled neighborhoods": [
        "rgcn/lp-world",
        *("model.embedding=32", "training.batch_edges=6000", "training.steps=150", "training.evaluate_every=40"),
        "checkpoints.every_steps=3",
    ],
    "node classification, dropout of every kind": [
        "rgcn/nc-world",
        *("model.decomposition=basis", "model.bases=8", "model.dropout=0.3", "training.edge_dropout=0.2"),
        *("training.epochs=400", "training.validation=0.2", "training.patience=400", "checkpoints.every_steps=7"),
    ],
    "link prediction, whole graph": [
        "c-rgcn/lp-world",
        *("training.steps=120", "training.evaluate_every=30", "checkpoints.every_steps=2"),
    ],
}
GPU_CASES: dict[str, list[str]] = {
    "WN18, sampled neighborhoods": [
        "rgcn/lp-wn18",
        *("training.steps=1500", "training.evaluate_every=500", "checkpoints.every_steps=100"),
    ],
    "WN18, whole graph": [
        "c-rgcn/lp-wn18",
        *("training.steps=3000", "training.evaluate_every=1000", "checkpoints.every_steps=100"),
    ],
    "FB-Toy, blocks": ["rgcn/lp-fb-toy", "training.steps=5000", "checkpoints.every_steps=200"],
    "AIFB, dropout of every kind": [
        "rgcn/nc-aifb",
        *("model.dropout=0.3", "training.edge_dropout=0.2", "training.validation=0.2", "training.patience=4000"),
        *("training.epochs=4000", "checkpoints.every_steps=200"),
    ],
    "MUTAG, bases": ["rgcn/nc-mutag", "training.epochs=4000", "checkpoints.every_steps=500"],
    "MUTAG, e-RGCN": ["e-rgcn/nc-mutag", "training.epochs=4000", "checkpoints.every_steps=500"],
}
LONGEST_LIFE_S = 9.0


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30, help="in all, spread over the cases")
    parser.add_argument("--cases", type=int, default=99, help="how many of the cases, at most")
    parser.add_argument("--device", default="cpu", help="cuda: deterministic mode, and cases for a GPU")
    parser.add_argument("--graphs", type=Path, help="folder of saved graphs, where data sets cannot be read")
    parser.add_argument("--seed", type=int, default=0, help="of the moments at which is killed")
    parser.add_argument("--longest-life", type=float, default=LONGEST_LIFE_S, help="seconds until a kill at the latest")
    parser.add_argument("--write", type=Path, help="write the results to this file")
    given = parser.parse_args(arguments)
    cases = dict(list((CASES if given.device == "cpu" else GPU_CASES).items())[: given.cases])
    moments = random.Random(given.seed)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for number, name in enumerate(cases):
            kills = given.kills * (number + 1) // len(cases) - given.kills * number // len(cases)
            rows.append(stress(name, cases[name], Path(folder) / str(number), kills, moments, given))
            print(json.dumps(rows[-1]), flush=True)
    survived = sum(row["kills"] for row in rows if row["identical"])
    print(f"{survived} of {given.kills} kills survived with identical final weights and reports")
    if given.write:
        write_result(given.write, {"survived": survived, "cases": rows})
    sys.exit(0 if survived == given.kills else 1)


def stress(
    name: str, case: list[str], folder: Path, kills: int, moments: random.Random, given: argparse.Namespace
) -> dict[str, Any]:
    where = [f"training.device={given.device}", *(["training.deterministic=true"] if given.device != "cpu" else [])]
    options = [part for change in (*case[1:], *where) for part in ("--set", change)]
    train = ["train", case[0], *options, "--quiet"]
    rgcn = Starter(given.graphs)
    calm, wild = folder / "calm", folder / "wild"
    rgcn.run(train, calm)
    lives, ended, done = [], [], 0
    while done < kills:
        command = ["resume", str(wild), "--quiet"] if (wild / "run.json").exists() else [*train, "--out", str(wild)]
        process = rgcn.start(command)
        life = moments.uniform(0.0, given.longest_life)
        deadline = time.monotonic() + life
        while time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.001)
        if process.poll() is not None:
            if process.returncode:
                sys.exit(f"{' '.join(command)} failed: {process.communicate()[1]}")
            print(f"{name}: finished before kill {done + 1}; it starts again", file=sys.stderr)
            ended.append(wild)
            wild = wild.with_name(wild.name + "-again")
            continue
        process.kill()
        process.communicate()
        done += 1
        lives.append(round(life, 2))
    if not (wild / "result.json").exists():
        rgcn.run(["resume", str(wild), "--quiet"] if (wild / "run.json").exists() else train, wild)
    ended.append(wild)
    identical = all(weights(calm) == weights(end) and reports(calm) == reports(end) for end in ended)
    sessions = json.loads((wild / "run.json").read_text())["sessions"]
    return {
        "case": name,
        "configuration": case,
        "kills": kills,
        "identical": identical,
        "sha256": weights(wild),
        "undisturbed_sha256": weights(calm),
        "lived_seconds": lives,
        "resumed_at_steps": [session["from_step"] for session in sessions],
    }


class Starter:
    """Start `rgcn` in its own process; with saved graphs, call its Python functions, which need no readers."""

    def __init__(self, graphs: Path | None) -> None:
        self.graphs = graphs

    def start(self, command: list[str]) -> subprocess.Popen[str]:
        code = ["-c", "from rgcn.cli import main; main()"]
        if self.graphs is not None:
            code = [__file__, "--child", str(self.graphs)]
        whole = [sys.executable, "-W", "ignore", *code, *command]
        return subprocess.Popen(whole, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def run(self, command: list[str], folder: Path) -> None:
        out = [] if command[0] == "resume" else ["--out", str(folder)]
        process = self.start([*command, *out])
        words = process.communicate()[1]
        if process.returncode:
            sys.exit(f"{' '.join(command)} failed: {words}")


def child(graphs: str, verb: str, name: str, *options: str) -> None:
    """Run `rgcn train` or `rgcn resume` with a saved graph."""
    from rgcn.data.graph_store import load_graph
    from rgcn.runs import RunFolder, load_configuration, resume, train

    if verb == "resume":
        config = RunFolder(Path(name)).config()
        resume(Path(name), graph=load_graph(Path(graphs) / str(config.data.dataset)))
        return
    changes = [value for flag, value in itertools.pairwise(options) if flag == "--set"]
    config = load_configuration(name, changes)
    train(config, load_graph(Path(graphs) / str(config.data.dataset)), Path(options[options.index("--out") + 1]))


def weights(folder: Path) -> str:
    return hashlib.sha256((folder / "model" / "weights.safetensors").read_bytes()).hexdigest()


def reports(folder: Path) -> list[dict[str, Any]]:
    """Return every report of the training without its time."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    else:
        main(sys.argv[1:])
