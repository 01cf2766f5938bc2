"""Pretrain the model on saved graphs, for as many steps as fit into the given minutes.

    python benchmarks/link_comparison.py fb15k-237 wn18rr codex-s world --save-graphs graphs
    python benchmarks/pretraining.py universal/pretraining --graphs graphs --minutes 8 --out $OUT/universal

This is `rgcn pretrain` for a machine without the data sets. It times some steps on each graph to choose the number of
steps, and writes that number to the run's configuration, so that `rgcn pretrain` with it repeats the training.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import _about  # isort: skip  # noqa: F401  before PyTorch

import rgcn
from rgcn.data.graph_store import load_graph
from rgcn.models.pretrainer import Pretrainer
from rgcn.runs import load_configuration
from rgcn.runs.training import train
from rgcn.training.fitting import WARM_UP
from rgcn.training.history import TrainingReport

LATE = 20  # stop a training that takes this many seconds longer than planned


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configuration")
    parser.add_argument("--graphs", type=Path, required=True)
    parser.add_argument("--minutes", type=float, required=True, help="for all of it")
    parser.add_argument("--timed", type=int, default=40, help="steps on each graph that are timed first")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="changes")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    began = time.perf_counter()
    graphs = {}

    def read(name: str) -> rgcn.KnowledgeGraph:
        if name not in graphs:
            graphs[name] = load_graph(options.graphs / name)
        return graphs[name]

    Pretrainer._read_graph = staticmethod(read)
    config = load_configuration(options.configuration, options.changes)
    graph = read(config.data.dataset).without_test_triples()  # pretraining must not see test triples
    each = seconds_a_step(config, graph, options.timed)
    left = 60 * options.minutes - (time.perf_counter() - began)
    steps = max(1, int(left / each))
    print(f"{1000 * each:.2f} ms a step, {steps:,} steps in {left:.0f} s", flush=True)
    config = load_configuration(options.configuration, [*options.changes, f"training.steps={steps}"])

    def on_report(report: TrainingReport) -> bool:
        print(report.number, round(report.loss, 4), dict(report.metrics), round(report.seconds, 1), flush=True)
        return time.perf_counter() - began < 60 * options.minutes + LATE

    result = train(config, graph, options.out, on_report)
    print(json.dumps(result.metrics), flush=True)


def seconds_a_step(config: rgcn.config.RunConfig, graph: rgcn.KnowledgeGraph, steps: int) -> float:
    """Return the expected seconds per step: the mean over graphs and views, including the time to build new views."""
    trainer = Pretrainer.from_settings(config.settings()).prepare(graph).trainer()
    training, each, making = config.training, [], []
    for timed in (False, True):  # kernels are compiled the first time
        for name, share in zip(trainer.names, trainer.shares, strict=True):
            for altered in (False, True):
                began = time.perf_counter()
                view = trainer.view_of(name, 7 + altered, altered, altered)
                with view.running():
                    marks = [time.perf_counter() for _ in range(steps) if float(view.step()) > 0]  # waits for each
                made = marks[WARM_UP + 1]
                if timed:
                    likely = training.altered if altered else 1 - training.altered
                    making.append(share * likely * (made - began))
                    each.append(share * likely * (marks[-1] - made) / (len(marks) - WARM_UP - 2))
                    print(
                        f"{name}: made in {made - began:.2f} s, {1000 * each[-1] / share / likely:.1f} ms", flush=True
                    )
    return sum(each) + sum(making) * training.round_views / training.round_steps


if __name__ == "__main__":
    main()
