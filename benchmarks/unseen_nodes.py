"""Measure the answers for nodes that were not in the training graph.

    python benchmarks/unseen_nodes.py --split valid     # what choices were made on
    python benchmarks/unseen_nodes.py --seeds 5         # the test split, once
    python benchmarks/unseen_nodes.py --seeds 100 --sets world    # one set alone, into unseen-nodes-world.json

Links: a model is trained on the graph of an inductive data set (inductive/fb237_v1, inductive/WN18RR_v1 in the
mirror) and asked about another graph, `_ind`, that shares its relations and none of its nodes. It is given that graph's
training triples as `rgcn predict --with` would take them, and its test triples are ranked among that graph's nodes:
filtered, both directions, ties at the middle; and, as GraIL's authors measure, Hits@10 among 50 random nodes.

Classes: the countries of one split of `world` are taken out of the graph with all their triples, a model is trained on
the rest, and they are added again. For comparison: the accuracy on the same countries if they were in the training
graph.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import _about  # isort: skip  # noqa: F401  before PyTorch

import numpy as np
import torch
from _about import write_result

import rgcn
from rgcn.data.registry import mirror_folder
from rgcn.graph import KnowledgeGraph
from rgcn.links.ranking import rank_triples, summarize
from rgcn.models.growth import extended
from rgcn.nn.scorer import VectorScorer
from rgcn.predict.opened_model import merge_new_triples
from rgcn.runs import load_configuration
from rgcn.runs.assembly import make_model
from rgcn.sampling.known_triples import KnownTriples, splits_up_to

INDUCTIVE = ("fb237_v1", "WN18RR_v1")
# Chosen on the validation triples of the `_ind` graphs, among a handful (docs/reference/results.md).
LINK_SETTINGS = {
    "model": "c-rgcn",
    "embedding": 64,
    "bottleneck": 16,
    "epochs": 500,
    "learning_rate": 0.01,
    "schedule": "cosine",
}
STEPS = (0, 100)  # estimated embeddings alone, and fitted to the new triples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--split", choices=("valid", "test"), default="test")
    parser.add_argument("--seeds", type=int, default=1, help="seeds 0 .. SEEDS - 1")
    parser.add_argument("--sets", nargs="*", default=[*INDUCTIVE, "world"])
    parser.add_argument("--out", type=Path, default=Path("results"))
    options = parser.parse_args()
    rows = []
    for name in options.sets:
        for seed in range(options.seeds):
            measured = classes(options.split, seed) if name == "world" else links(name, options.split, seed)
            rows.append({"data": name, "seed": seed, **measured})
            print(rows[-1], flush=True)
    some = [] if options.sets == [*INDUCTIVE, "world"] else options.sets
    suffix = "".join(f"-{part}" for part in (*some, *(["valid"] if options.split == "valid" else [])))
    write_result(
        options.out / f"unseen-nodes{suffix}.json",
        {"split": options.split, "link_settings": LINK_SETTINGS, "runs": rows, "means": means(rows)},
    )


def links(name: str, split: str, seed: int) -> dict[str, Any]:
    folder = mirror_folder() or Path(os.environ["RGCN_MIRROR"])
    known = rgcn.read(folder / "inductive" / name)
    unseen = rgcn.read(folder / "inductive" / f"{name}_ind")
    began = time.perf_counter()
    model = rgcn.LinkPredictor(seed=seed, **LINK_SETTINGS).fit(known)
    trained = time.perf_counter() - began
    out: dict[str, Any] = {"seconds_training": trained, "known_mrr": model.evaluate(split=split)["mrr"]}
    context = replace(unseen, triples=unseen.split_triples("train"), triple_splits=None)
    graph = merge_new_triples(known, context, name)
    for steps in STEPS:
        began = time.perf_counter()
        larger = extended(model, graph, steps=steps)
        seconds = time.perf_counter() - began
        out[f"steps_{steps}"] = {**ranked(larger, unseen, split), "seconds": seconds}
    return out


def ranked(model: rgcn.LinkPredictor, unseen: KnowledgeGraph, split: str) -> dict[str, float]:
    """Rank triples among the nodes of the unseen graph only."""
    graph, decoder = model.graph_, model.network_.decoder
    relation = graph.relations.ids(unseen.relations)
    nodes = model.scorer().nodes[torch.from_numpy(graph.nodes.ids(unseen.nodes))]

    def triples(of: str) -> torch.Tensor:
        rows = np.array(unseen.split_triples(of))
        rows[:, 1] = relation[rows[:, 1]]
        return torch.from_numpy(rows)

    size, queried = len(nodes), triples(split)
    index = KnownTriples.of(*map(triples, splits_up_to(split)), num_nodes=size, num_relations=graph.num_relations)
    ranks = rank_triples(VectorScorer(decoder, nodes), queried, index)
    report = summarize(ranks).both.as_dict()
    subject, kind, object_ = queried.unbind(1)
    drawn = torch.randint(size, (2 * len(queried), 50), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        scores = torch.cat(
            [decoder.score_objects(nodes[subject], kind, nodes), decoder.score_subjects(kind, nodes[object_], nodes)]
        )
    own = scores.gather(1, torch.cat([object_, subject]).unsqueeze(1))
    others = scores.gather(1, drawn)
    place = (others > own).sum(1) + 0.5 * (others == own).sum(1)
    among = float((place < 10).float().mean())
    return {"mrr": report["mrr"], "hits@10": report["hits@10"], "hits@10_of_50": among, "count": report["count"]}


def classes(split: str, seed: int) -> dict[str, Any]:
    config = load_configuration("e-rgcn/nc-world", [f"seed={seed}"])
    world = rgcn.load("world")
    assert world.labels is not None
    held_out, truth = world.labels.of(split)
    names = [world.nodes[node] for node in held_out]
    rest = world.subgraph(np.setdiff1d(np.arange(world.num_nodes), held_out).tolist())
    about_them = np.isin(world.triples[:, [0, 2]], held_out).any(axis=1)
    context = KnowledgeGraph.from_triples(
        triple for triple in world.named(world.triples[about_them]) if triple[1] in rest.relations
    )
    larger = extended(make_model(config).fit(rest), merge_new_triples(rest, context, "world"))
    labels = [prediction.label for prediction in larger.predict(names)]
    expected = [world.labels.names[c] for c in truth]
    return {
        "accuracy": float(np.mean([a == b for a, b in zip(labels, expected, strict=True)])),
        "accuracy_in_graph": make_model(config).fit(world).score(world, split=split),
        "count": len(expected),
    }


def means(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean and standard error over seeds, for each data set and metric."""
    out: dict[str, Any] = {}
    for name in dict.fromkeys(row["data"] for row in rows):
        flat = [_flat(row) for row in rows if row["data"] == name]
        out[name] = {
            key: {
                "mean": statistics.fmean(values),
                "standard_error": statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else None,
            }
            for key in flat[0]
            if (values := [one[key] for one in flat])
        }
    return out


def _flat(row: dict[str, Any], prefix: str = "") -> dict[str, float]:
    out = {}
    for key, value in row.items():
        if isinstance(value, dict):
            out.update(_flat(value, f"{prefix}{key}."))
        elif isinstance(value, (int, float)) and key != "seed":
            out[prefix + key] = value
    return out


if __name__ == "__main__":
    main()
