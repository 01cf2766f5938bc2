"""Measure a training step of a path network on a GPU: time, memory, and the bandwidth of its sums.

    python benchmarks/path_step.py [--graphs FOLDER] [--json results/path-step-h200.json]

FB15k-237, 64 questions, width 32, 6 layers, mean, relation vectors that depend on the question. A layer has three sums:
forward, and backward to the states and to the relations' table. Each reads a row of states for every edge (the third
one two), and a row of the table, which stays in the nearest cache; `gathered` counts the rows of states.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import _about  # isort: skip  # noqa: F401  before PyTorch

import torch
from _about import write_result

import rgcn
from rgcn.data.graph_store import load_graph
from rgcn.runs import load_configuration
from rgcn.runs.assembly import make_model
from rgcn.training.link_trainer import LinkTrainer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=Path, help="folder of saved graphs instead of the registry")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--json", type=Path, help="write the results to this file")
    options = parser.parse_args()
    config = load_configuration("path/lp-fb15k-237")
    graph = load_graph(options.graphs / "fb15k-237") if options.graphs else rgcn.load("fb15k-237")
    trainer = make_model(config).prepare(graph).trainer()
    results = {**step(trainer, options.steps), "sums": sums(trainer)}
    print(json.dumps(results, indent=1))
    if options.json:
        write_result(options.json, results)


def step(trainer: LinkTrainer, steps: int) -> dict[str, float]:
    torch.cuda.reset_peak_memory_stats()
    batches = trainer.batches()
    for _ in range(10):
        trainer.step_on(next(batches))
    seconds = []
    for _ in range(steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        trainer.step_on(next(batches))
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return {
        "step_ms": 1000 * statistics.median(seconds),
        "slowest_ms": 1000 * max(seconds),
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30,
    }


def sums(trainer: LinkTrainer) -> dict[str, dict[str, float]]:
    adjacency, questions = trainer.adjacency, trainer.training.batch_edges or 64
    width, edges, device = 32 * questions, adjacency.num_edges, adjacency.device
    states, slopes = (torch.randn(adjacency.num_sources, width, device=device, dtype=torch.bfloat16) for _ in range(2))
    table = torch.randn(adjacency.num_relations, width, device=device, dtype=torch.bfloat16)
    index, weight = adjacency.structure.triple_index, adjacency.weight
    row = 2 * width
    ops, handle = torch.ops.rgcn, index.handle
    ways: dict[str, tuple[Callable[[], object], int]] = {
        "forward": (lambda: ops.scaled_sum(handle, "target", True, False, weight, table, states), row),
        "to states": (lambda: ops.scaled_sum(handle, "source", True, False, weight, table, slopes), row),
        "to table": (lambda: ops.scale_gradient(handle, True, weight, states, slopes, table), 2 * row),
    }
    found = {}
    for name, (run, bytes_an_edge) in ways.items():
        milliseconds = gpu_milliseconds(run)
        gathered = edges * bytes_an_edge
        found[name] = {"ms": milliseconds, "gathered_gb": gathered / 1e9, "tb_a_second": gathered / milliseconds / 1e9}
    return found


def gpu_milliseconds(run: Callable[[], object], rounds: int = 20) -> float:
    run()
    found = []
    for _ in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        found.append(begin.elapsed_time(end))
    return statistics.median(found)


if __name__ == "__main__":
    main()
