"""Measure how much time checkpoints add to a training on WN18.

    python benchmarks/checkpoint_overhead.py --steps 40 --saves 5                    # two cores: a part of the run
    python benchmarks/checkpoint_overhead.py --device cuda --whole --graphs FOLDER   # a GPU: whole runs

With --steps, a training takes so many steps and saves so many checkpoints; the share is a save's time over that of the
default interval. With --whole, whole runs are made without a folder and with one, in turn.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import _about  # isort: skip  # noqa: F401  before PyTorch

import torch
from _about import write_result

from rgcn.config import RunConfig
from rgcn.graph import KnowledgeGraph
from rgcn.runs import load_configuration, load_data, train
from rgcn.runs.assembly import make_model
from rgcn.runs.checkpoints import Checkpoints
from rgcn.training.fitting import BestWeights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configuration", nargs="?", default="rgcn/lp-wn18")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--saves", type=int, default=5)
    parser.add_argument("--whole", action="store_true", help="whole runs instead")
    parser.add_argument("--rounds", type=int, default=2, help="with --whole: of each kind")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--graphs", type=Path, help="folder of saved graphs")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    config = load_configuration(options.configuration, overrides={"training.device": options.device})
    if options.graphs is None:
        graph = load_data(config.data)
    else:
        from rgcn.data.graph_store import load_graph

        graph = load_graph(options.graphs / str(config.data.dataset))
    results = whole_runs(config, graph, options.rounds) if options.whole else saves(config, graph, options)
    print(json.dumps(results, indent=1))
    if options.write:
        write_result(options.write, results)


def saves(config: RunConfig, graph: KnowledgeGraph, options: argparse.Namespace) -> dict[str, Any]:
    model = make_model(config)
    steps, took = [], []
    with tempfile.TemporaryDirectory() as folder, model.fitting(graph) as fitting:
        checkpoints = Checkpoints(Path(folder), config.checkpoints.keep_last)
        for number in range(options.steps):
            steps.append(timed(fitting.step))
            if number >= options.steps - options.saves:
                # the most expensive case: the best weights change each time
                weights = {name: value.clone() for name, value in fitting.network.state_dict().items()}
                fitting.best = BestWeights(float(number), number, 0, weights)
                took.append(timed(lambda: checkpoints.save(fitting.state())))
        size = sum(path.stat().st_size for path in Path(folder).glob(f"*{fitting.steps_taken:09d}*"))
    assert config.checkpoints.every_minutes is not None
    save, step = statistics.median(took), statistics.median(steps)
    return {
        "configuration": options.configuration,
        "seconds_a_step": step,
        "seconds_a_save": save,
        "every_save": took,
        "bytes_a_checkpoint": size,
        "share_of_the_default_interval": save / (60 * config.checkpoints.every_minutes),
    }


def whole_runs(config: RunConfig, graph: KnowledgeGraph, rounds: int) -> dict[str, Any]:
    train(config.model_copy(update={"training": config.training.model_copy(update={"epochs": 50})}), graph)  # warm up
    took: dict[str, list[float]] = {"without a folder": [], "with a folder": []}
    for _ in range(rounds):
        took["without a folder"].append(timed(lambda: train(config, graph)))
        with tempfile.TemporaryDirectory() as folder:
            took["with a folder"].append(timed(lambda folder=folder: train(config, graph, Path(folder) / "run")))
    without, kept = (min(seconds) for seconds in took.values())
    return {"configuration": config.data.title, "seconds": took, "share_of_the_run": kept / without - 1.0}


def timed(what: Any) -> float:
    start = time.perf_counter()
    what()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
