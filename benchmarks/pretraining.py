"""Pretrain the shipped weights on a machine without a reader of data: graphs come from a folder of saved ones.

    python benchmarks/link_comparison.py fb15k-237 wn18rr codex-s world --save-graphs graphs
    python benchmarks/pretraining.py universal/pretraining --graphs graphs --minutes 8 --out $OUT/universal

The same as `rgcn pretrain`, but that the number of steps follows from the minutes there are: some steps on each graph
are timed for it. What was chosen stands in the run's configuration, so that the command there would make the same.
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
from rgcn.training.history import Epoch

LATE = 20  # seconds more than planned before a training is ended where it is


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configuration")
    parser.add_argument("--graphs", type=Path, required=True)
    parser.add_argument("--minutes", type=float, required=True, help="for all of it")
    parser.add_argument("--timed", type=int, default=40, help="steps on each graph that are timed first")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="changes")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    began = time.perf_counter()
    kept = {}

    def read(name: str) -> rgcn.KnowledgeGraph:
        if name not in kept:
            kept[name] = load_graph(given.graphs / name)
        return kept[name]

    Pretrainer.read = staticmethod(read)
    config = load_configuration(given.configuration, given.changes)
    graph = read(config.data.dataset).without_test_triples()  # a test split is read once, when all is chosen
    each = seconds_a_step(config, graph, given.timed)
    left = 60 * given.minutes - (time.perf_counter() - began)
    steps = max(1, int(left / each))
    print(f"{1000 * each:.2f} ms a step, {steps:,} steps in {left:.0f} s", flush=True)
    config = load_configuration(given.configuration, [*given.changes, f"training.epochs={steps}"])

    def report(epoch: Epoch) -> bool:
        print(epoch.number, round(epoch.loss, 4), dict(epoch.figures), round(epoch.seconds, 1), flush=True)
        return time.perf_counter() - began < 60 * given.minutes + LATE

    result = train(config, graph, given.out, report)
    print(json.dumps(result.metrics), flush=True)


def seconds_a_step(config: rgcn.config.RunConfig, graph: rgcn.KnowledgeGraph, steps: int) -> float:
    """Expected, with the time that other views take to be made: by what views of each graph took, as often as drawn."""
    trainer = Pretrainer.from_settings(config.settings()).prepare(graph).trainer()
    training, each, making = config.training, [], []
    for timed in (False, True):  # kernels are compiled the first time
        for name, share in zip(trainer.names, trainer.share, strict=True):
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
