"""One training step of node classification, ours beside PyG's layers, in one run on one machine.

    python benchmarks/training_step.py                          # AIFB and MUTAG on the CPU
    python benchmarks/training_step.py --graphs aifb --json results/training-step.json

Each measurement has a process of its own, so that peak memory is its own too; processes take turns, so that both sides
meet the same machine. Seconds are the median of the steps after two to warm up; memory is the process's peak less what
it held before the model was built. Needs torch-geometric for the peers (`pip install 'rgcn[bench]'`); without it only
our own figures are given.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

GRAPHS: dict[str, dict[str, Any]] = {
    "aifb": {"hidden": 16, "bases": None, "l2_penalty": 0.0},
    "mutag": {"hidden": 16, "bases": 30, "l2_penalty": 5e-4},
    "world": {"hidden": 16, "bases": None, "l2_penalty": 0.0},
}
SIDES = ("rgcn", "FastRGCNConv", "RGCNConv")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="+", choices=GRAPHS, default=["aifb", "mutag"])
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=["rgcn", "FastRGCNConv"])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3, help="turns each side takes; the best round counts")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--one", nargs=2, metavar=("GRAPH", "SIDE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(*given.one, steps=given.steps)))
        return
    rows = [row for graph in given.graphs for row in compare(graph, given)]
    print_table(rows)
    if given.json:
        given.json.write_text(
            json.dumps({"machine": machine(), "date": time.strftime("%F"), "rows": rows}, indent=2) + "\n"
        )


def compare(graph: str, given: argparse.Namespace) -> list[dict[str, Any]]:
    """Every side in turn, `rounds` times; the fastest round of each."""
    best: dict[str, dict[str, Any]] = {}
    for _ in range(given.rounds):
        for side in given.sides:
            command = [sys.executable, __file__, "--one", graph, side, "--steps", str(given.steps)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                print(f"{side}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
                continue
            figures = json.loads(done.stdout.splitlines()[-1])
            if side not in best or figures["seconds"] < best[side]["seconds"]:
                best[side] = figures
    ours = best.get("rgcn")
    for figures in best.values():
        if ours is not None:
            figures["times_slower"] = figures["seconds"] / ours["seconds"]
            figures["times_memory"] = figures["peak_bytes"] / max(ours["peak_bytes"], 1)
    return list(best.values())


def measure(graph: str, side: str, steps: int) -> dict[str, Any]:
    """Median seconds of a step, and peak memory over the process at rest."""
    import torch

    import rgcn

    kg = rgcn.load(graph)
    prepare = our_step if side == "rgcn" else peer_step(side)
    at_rest = peak_bytes()
    step = prepare(kg, **GRAPHS[graph])
    seconds = []
    for _ in range(steps + 2):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    return {
        "graph": graph,
        "side": side,
        "seconds": statistics.median(seconds[2:]),
        "peak_bytes": peak_bytes() - at_rest,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def our_step(kg: Any, hidden: int, bases: int | None, l2_penalty: float) -> Callable[[], None]:
    import rgcn

    extra = {} if bases is None else {"decomposition": "basis", "bases": bases}
    classifier = rgcn.NodeClassifier(hidden=hidden, l2_penalty=l2_penalty, seed=0, **extra).prepare(kg)
    return classifier.training_step()


def peer_step(name: str) -> Callable[..., Callable[[], None]]:
    """The same network of two layers from PyG, on the whole graph with inverses, as its users write it."""

    def prepare(kg: Any, hidden: int, bases: int | None, l2_penalty: float) -> Callable[[], None]:
        import torch
        import torch.nn.functional as F

        layer = getattr(torch_geometric.nn, name)
        subject, relation, object_ = torch.tensor(kg.triples).T
        index = torch.stack([torch.cat([subject, object_]), torch.cat([object_, subject])])
        kind = torch.cat([relation, relation + kg.num_relations])
        nodes, classes = (torch.tensor(part) for part in kg.labels.of("train"))
        torch.manual_seed(0)
        first = layer(kg.num_nodes, hidden, 2 * kg.num_relations, num_bases=bases)
        second = layer(hidden, kg.labels.num_classes, 2 * kg.num_relations, num_bases=bases)
        optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.01)

        def step() -> None:
            optimizer.zero_grad()
            logits = second(first(None, index, kind).relu(), index, kind)
            loss = F.cross_entropy(logits[nodes], classes)
            if l2_penalty:
                loss = loss + l2_penalty * first.weight.pow(2).sum()
            loss.backward()
            optimizer.step()

        return step

    import torch_geometric.nn

    return prepare


def machine() -> dict[str, Any]:
    import os

    names = [
        line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    return {
        "cpu": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def print_table(rows: list[dict[str, Any]]) -> None:
    print(f"{'graph':<8}{'side':<14}{'step':>12}{'times ours':>12}{'peak memory':>14}{'times ours':>12}")
    for row in rows:
        print(
            f"{row['graph']:<8}{row['side']:<14}{row['seconds'] * 1e3:>9.2f} ms{row.get('times_slower', 0):>12.1f}"
            f"{row['peak_bytes'] / 2**20:>10.1f} MiB{row.get('times_memory', 0):>12.1f}"
        )


if __name__ == "__main__":
    main()
