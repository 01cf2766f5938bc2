"""Measure mini-batches of labels for node classification: time per epoch and loss of accuracy.

    python benchmarks/node_batches.py time [--quick]        # a million labels on 4 million edges, against PyG
    python benchmarks/node_batches.py accuracy [--quick]    # AIFB and MUTAG: sampled batches less the whole graph
                                      [--json results/node-batches-time.json]

time: a drawn graph, every node of which has features or a learned vector. PyG's FastRGCNConv computes the same two
layers over the same fields, which are sampled before: its time is that of the steps only, ours includes sampling.

accuracy: published settings, with all labels in a step and with a quarter of them and ten edges a relation. Epochs and
learning rate of batches are chosen on labels held out of the training labels; then 20 seeds each, all reported.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import _about  # isort: skip  # noqa: F401  before PyTorch

import numpy as np
import torch
from _about import write_result
from torch import nn

import rgcn
from rgcn.bench.graphs import Shape, random_graph
from rgcn.data.graph_store import load_graph
from rgcn.runs import load_configuration, load_data
from rgcn.runs.assembly import make_model
from rgcn.runs.configuration import replace_settings
from rgcn.system.memory import read_proc_bytes

WIDTH, HIDDEN, CLASSES = 32, 16, 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("time", "accuracy"))
    parser.add_argument("--quick", action="store_true", help="a tenth of the graph, or three seeds")
    parser.add_argument("--batches", type=int, default=20, help="ours that are timed; an epoch is extrapolated")
    parser.add_argument("--peer-batches", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--only", nargs="+", default=["rgcn/nc-aifb", "rgcn/nc-mutag"], help="configurations")
    parser.add_argument("--graphs", type=Path, help="folder of saved graphs, where no reader of data is at hand")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    options = parser.parse_args()
    rows = []
    for row in timed(options) if options.what == "time" else compared(options):
        rows.append(row)
        print(json.dumps(row), flush=True)
        if options.json:  # store each result at once, in case a later measurement fails
            write_result(options.json, {"rows": rows})


# -- an epoch ----------------------------------------------------------------------------------------------------------


def timed(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    part = 10 if options.quick else 1
    size = 1_000_000 // part
    graph = random_graph(Shape(size + size // 5, 50, 4 * size, size, size, CLASSES))
    features = np.random.default_rng(0).normal(size=(graph.num_nodes, WIDTH)).astype(np.float32)
    for name, settings in {
        "features": {"model": "rgcn", "hidden": HIDDEN},
        "features, 10 bases": {"model": "rgcn", "hidden": HIDDEN, "decomposition": "basis", "bases": 10},
        "embeddings": {"model": "e-rgcn", "embedding": WIDTH},
    }.items():
        known = replace(graph, features=features) if name.startswith("features") else graph
        for fan_out in (10, None):
            row = {"input": name, "labels": size, "edges": len(graph), "fan_out": fan_out}
            yield {**row, **one(known, {**settings, "batch_labels": 10_000, "fan_out": fan_out}, options)}


def one(graph: rgcn.KnowledgeGraph, settings: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    start = time.perf_counter()
    model = rgcn.NodeClassifier(seed=0, device="cpu", **settings).prepare(graph)
    trainer, seconds = model.trainer(), []
    prepared = time.perf_counter() - start
    with trainer.running():
        for _ in range(2):
            trainer.step()
        start = time.perf_counter()
        for _ in range(min(options.batches, trainer.steps_per_unit)):
            before = time.perf_counter()
            float(trainer.step())
            seconds.append(time.perf_counter() - before)
        mean = (time.perf_counter() - start) / len(seconds)
    fields = [trainer.batch(number) for number in range(options.peer_batches)]
    edges = statistics.mean(sum(layer.num_edges for layer in field.layers) for field, _ in fields)
    drawing = clocked(lambda: trainer.batch(7))
    evaluating = clocked(lambda: model.embeddings(layer=-1))
    theirs = statistics.median(peer_seconds(graph, fields, model))
    return {
        "steps_an_epoch": trainer.steps_per_unit,
        "edges_a_step": round(edges),
        "ours_s_a_step": mean,
        "ours_median_s_a_step": statistics.median(seconds),
        "drawing_s": drawing,
        "peer_s_a_step": theirs,
        "ours_s_an_epoch": mean * trainer.steps_per_unit,
        "peer_s_an_epoch": theirs * trainer.steps_per_unit,
        "times_as_fast": theirs / mean,
        "prepared_s": prepared,
        "every_node_s": evaluating,
        "peak_gib": (read_proc_bytes(Path("/proc/self/status"), "VmHWM") or 0) / 2**30,
    }


def clocked(work: Any) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def peer_seconds(graph: rgcn.KnowledgeGraph, fields: list[Any], model: rgcn.NodeClassifier) -> list[float]:
    """Time the same two layers in PyG, whose root weight replaces our self-loops."""
    from torch_geometric.nn import FastRGCNConv

    torch.manual_seed(0)
    relations, bases = 2 * graph.num_relations, model.model.bases
    embedded = graph.features is None
    hidden = WIDTH if embedded else HIDDEN
    layers = nn.ModuleList(
        FastRGCNConv(*widths, relations, num_bases=bases) for widths in ((WIDTH, hidden), (hidden, CLASSES))
    )
    table = nn.Embedding(graph.num_nodes, WIDTH) if embedded else None
    features = None if embedded else torch.from_numpy(np.array(graph.features))
    parameters = [*layers.parameters(), *([] if table is None else table.parameters())]
    optimizer, seconds = torch.optim.Adam(parameters, lr=0.01), []
    for field, classes in [fields[0], *fields]:
        operators = [pyg_edges(layer) for layer in field.layers]
        start = time.perf_counter()
        optimizer.zero_grad()
        x = table(field.inputs) if features is None else features[field.inputs]  # type: ignore[misc]
        for number, (layer, (index, kind, own)) in enumerate(zip(layers, operators, strict=True)):
            x = layer((x, x[own]), index, kind)
            x = x.relu() if number == 0 else x
        nn.functional.cross_entropy(x, classes).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    return seconds[1:]


def pyg_edges(layer: rgcn.RelationalAdjacency) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return (edge_index, edge_type, the source that each target is) of an operator."""
    structure = layer.structure
    loop = structure.relation == structure.num_relations - 1
    index = torch.stack([structure.source, structure.target]).long()
    return index[:, ~loop].contiguous(), structure.relation[~loop].long(), structure.source[loop].long()


# -- accuracy ----------------------------------------------------------------------------------------------------------


def compared(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    seeds = 3 if options.quick else options.seeds
    for name in options.only:
        config = load_configuration(name)
        graph = load_graph(options.graphs / str(config.data.dataset)) if options.graphs else load_data(config.data)
        assert graph.labels is not None
        quarter = -(-len(graph.labels.of("train")[0]) // 4)
        batches = replace_settings(config, {"training.batch_labels": quarter, "training.fan_out": 10})
        tried: dict[str, float] = {}
        settings = {}
        for epochs, slower in itertools.product((4, 2, 1), (1, 2, 4)):
            changes = {
                "training.epochs": config.training.epochs // epochs,
                "training.learning_rate": config.training.learning_rate / slower,
            }
            key = ", ".join(f"{name} {value:g}" for name, value in changes.items())
            trial, settings[key] = replace_settings(batches, {**changes, "training.validation": 0.2}), changes
            models = [
                make_model(replace_settings(trial, {"seed": 1000 + seed})).fit(graph) for seed in range(min(5, seeds))
            ]
            tried[key] = statistics.mean(model.history_[-1].metrics["valid_accuracy"] for model in models)
            print(f"{name}: {key}: validation accuracy {tried[key]:.4f}", flush=True)
        best = max(tried, key=lambda key: tried[key])
        batches = replace_settings(batches, settings[best])
        scores: dict[str, list[float]] = {"whole": [], "batches": []}
        for seed in range(seeds):
            for kind, chosen in (("whole", config), ("batches", batches)):
                scores[kind].append(make_model(replace_settings(chosen, {"seed": seed})).fit(graph).score())
        means = {kind: statistics.mean(values) for kind, values in scores.items()}
        less = [ours - whole for ours, whole in zip(scores["batches"], scores["whole"], strict=True)]
        yield {
            "configuration": name,
            "seeds": seeds,
            "batch_labels": quarter,
            "fan_out": 10,
            "batches": best,
            "validation_accuracy": tried,
            "test_accuracy": means,
            "difference_in_points": 100 * (means["batches"] - means["whole"]),
            "standard_error_in_points": 100 * statistics.stdev(less) / len(less) ** 0.5,
            "scores": scores,
        }


if __name__ == "__main__":
    main()
