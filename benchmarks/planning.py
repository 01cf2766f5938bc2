"""Compare the resource estimate of a training, memory and time, with measurements.

    python benchmarks/planning.py [--edges 1e6 3e6] [--out results/planning.json]

Each training has a process of its own: a drawn graph (four edges a node, fifty relations) is saved, opened and planned
(`rgcn.runs.assembly`), then some steps are taken. Memory is the peak of resident memory of the whole process; seconds
are those of the steps after the first ones, by which the time is planned.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _about import write_result  # before PyTorch

STEPS = 10
TRAININGS: dict[str, tuple[str, list[str]]] = {
    "e-rgcn": ("e-rgcn/nc-world", []),
    "rgcn, one-hot": ("rgcn/nc-world", []),
    "rgcn, 10 bases": ("rgcn/nc-world", ["model.decomposition=basis", "model.bases=10"]),
    "e-rgcn, batches": ("e-rgcn/nc-world", ["training.batch_labels=200", "training.fan_out=5"]),
    "DistMult, Adam": ("distmult/lp-world", ["model.embedding=100", "training.optimizer=adam"]),
    "DistMult, Adagrad": ("distmult/lp-world", ["model.embedding=100", "training.optimizer=row-adagrad"]),
    "RGCN, links": ("rgcn/lp-world", ["model.embedding=32"]),
    "c-RGCN, links": ("c-rgcn/lp-world", ["model.embedding=64"]),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", nargs="+", type=float, default=[1e6, 3e6])
    parser.add_argument("--only", nargs="+", choices=TRAININGS, default=list(TRAININGS))
    parser.add_argument("--out", type=Path, default=Path("results/planning.json"))
    parser.add_argument("--one", nargs=2, metavar=("NAME", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(one(*options.one)))
        return
    rows = []
    for edges in options.edges:
        with tempfile.TemporaryDirectory() as folder:
            save(int(edges), Path(folder))
            for name in options.only:
                command = [sys.executable, __file__, "--one", name, folder]
                done = subprocess.run(command, capture_output=True, text=True)
                row = (
                    json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {"failed": done.stderr[-500:]}
                )
                rows.append({"training": name, "edges": int(edges), **row})
                print(rows[-1], flush=True)
    write_result(options.out, {"steps": STEPS, "trainings": rows})


def save(edges: int, folder: Path) -> None:
    from rgcn.bench.graphs import random_graph, random_shape
    from rgcn.data.graph_store import save_graph

    save_graph(random_graph(random_shape(edges)), folder)


def one(name: str, folder: str) -> dict[str, Any]:
    from rgcn.data.graph_store import load_graph
    from rgcn.runs import load_configuration
    from rgcn.runs.assembly import make_model, plan_run
    from rgcn.system.memory import read_proc_bytes

    configuration, changes = TRAININGS[name]
    graph = load_graph(Path(folder))
    if "lp-" in configuration:
        length = ["training.steps=1000", "training.patience=null", "training.evaluate_every=0"]
    else:
        length = ["training.epochs=1000", "training.patience=null"]
    config = load_configuration(configuration, [*changes, *length])
    plan = plan_run(config, graph)
    estimate, marks = plan.resources, []
    with make_model(plan.config).fitting(plan.training) as fitting:
        for _ in range(STEPS):
            float(fitting.trainer.step())
            marks.append(time.perf_counter())
    measured = read_proc_bytes(Path("/proc/self/status"), "VmHWM") or 0
    first, rest = (marks[3] - marks[0]) / 3, (marks[-1] - marks[3]) / (STEPS - 4)
    return {
        "planned_bytes": estimate.total,
        "measured_bytes": measured,
        "planned_of_measured": round(estimate.total / measured, 3),
        "parts": estimate.parts,
        "seconds_a_step_by_the_first": round(first, 4),
        "seconds_a_step": round(rest, 4),
    }


if __name__ == "__main__":
    main()
