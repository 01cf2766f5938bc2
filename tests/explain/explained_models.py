"""Small graphs and models whose answers have a known explanation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

import rgcn
from rgcn.adjacency import ReceptiveField
from rgcn.explain.question import ClassQuestion, ComputationGraph, LinkQuestion, frozen_copy
from rgcn.graph import KnowledgeGraph
from rgcn.graph.titles import Titles
from rgcn.links.calibration import Calibration
from rgcn.links.top_k import DirectionScores
from rgcn.predict import OpenModel

# A calibration for tests that only use scores.
NOTHING, ZERO = torch.zeros(2, 1), torch.zeros(2, 1, dtype=torch.int64)
STANDING = DirectionScores(NOTHING, NOTHING, ZERO, ZERO.bool(), ZERO, torch.tensor([False]))


def readers(count=24, seed=0):
    """Return a graph of people whose class is the book they read; acquaintances and towns are random."""
    rng = np.random.default_rng(seed)
    triples = []
    for person in range(count):
        triples.append((f"p{person}", "reads", f"book{person % 2}"))
        triples += [(f"p{person}", "knows", f"p{other}") for other in rng.integers(0, count, 3) if other != person]
        triples.append((f"p{person}", "lives in", f"town{rng.integers(0, 4)}"))
    triples = list(dict.fromkeys(triples))
    labels = {f"p{person}": f"reader{person % 2}" for person in range(count)}
    return KnowledgeGraph.from_triples(triples, labels=labels)


def classifier(model="e-rgcn", graph=None, **settings):
    chosen = {"epochs": 60, "learning_rate": 0.05, "device": "cpu", "seed": 0, **settings}
    if model == "e-rgcn":
        chosen = {"embedding": 8, "hidden": 8, **chosen}
    return rgcn.NodeClassifier(model=model, **chosen).fit(graph or readers())


def neighbors_graph(count=14):
    """Return a ring with shortcuts, of which two hops reach a large part."""
    ring = [(f"n{i}", "next", f"n{(i + 1) % count}") for i in range(count)]
    jumps = [(f"n{i}", "jump", f"n{(i * 3 + 2) % count}") for i in range(count)]
    return KnowledgeGraph.from_triples(ring + jumps)


def predictor(model="rgcn", graph=None, **settings):
    chosen = {"embedding": 6, "epochs": 5, "device": "cpu", "seed": 0, **settings}
    if model == "c-rgcn":
        chosen = {"bottleneck": 4, **chosen}
    return rgcn.LinkPredictor(model=model, **chosen).fit(graph or neighbors_graph())


def opened(model, folder):
    """Return the model as `open_model` returns it, without the files of a folder."""
    return OpenModel(Path(folder), "small", model, Titles(model.graph_))


def class_question(model, node, class_=0, dtype=torch.float64):
    network = frozen_copy(model.network_).to(dtype)
    subgraph = ComputationGraph.of_nodes(model._adjacency.to(dtype), model.graph_.triples, [node], len(network.layers))
    return ClassQuestion(subgraph, Calibration("classes", True, ""), model, network, node, class_)


def link_question(model, subject, relation, object_, dtype=torch.float64):
    network = frozen_copy(model.network_).to(dtype)
    triples = model.graph_.split_triples("train")
    subgraph = ComputationGraph.of_nodes(model._adjacency.to(dtype), triples, [subject, object_], model.model.layers)
    return LinkQuestion(subgraph, Calibration("links", True, ""), network, subject, relation, object_, STANDING)


def only_these(graph, numbers):
    """Return the graph built from some of its triples, with the same names."""
    splits = None if graph.triple_splits is None else graph.triple_splits[numbers]
    return KnowledgeGraph(
        graph.triples[numbers], graph.nodes, graph.relations, labels=graph.labels, triple_splits=splits
    )


def field_of(adjacency, nodes, layers):
    return ReceptiveField.of(adjacency, torch.tensor(nodes), layers)
