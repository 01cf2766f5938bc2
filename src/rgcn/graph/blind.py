"""The graph that trials see: whatever belongs to the test split is taken out before anything runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rgcn.graph import SPLITS, KnowledgeGraph, NodeLabels
from rgcn.graph.vocabulary import Vocabulary

TEST = SPLITS.index("test")


def without_test_labels(graph: KnowledgeGraph) -> KnowledgeGraph:
    """The graph without its test labels, and without classes that only those have.

    Classes are numbered anew by name, so that not even their order tells of test labels.

    >>> kg = KnowledgeGraph.from_triples([("a", "knows", "b")], labels={"a": "x"}, test_labels={"b": "y"})
    >>> without_test_labels(kg).labels
    NodeLabels(1 nodes, 1 classes; train 1)
    """
    labels = graph.labels
    if labels is None:
        return graph
    kept = labels.splits != TEST
    nodes, classes, splits = labels.nodes[kept], labels.classes[kept], labels.splits[kept]
    order = np.argsort(nodes, kind="stable")
    names = sorted({labels.names[c] for c in np.unique(classes).tolist()})
    number = {name: i for i, name in enumerate(names)}
    renumbered = np.array([number[labels.names[c]] for c in classes[order].tolist()], dtype=np.int64)
    return replace(graph, labels=NodeLabels(nodes[order], renumbered, Vocabulary(names, kind="class"), splits[order]))


def without_test_triples(graph: KnowledgeGraph) -> KnowledgeGraph:
    """The graph without its test triples, and without nodes that only those mention.

    >>> kg = KnowledgeGraph.from_triples([("a", "knows", "b"), ("a", "knows", "c")], triple_splits=np.array([0, 2]))
    >>> without_test_triples(kg)
    KnowledgeGraph(2 nodes, 1 relation, 1 triple)
    """
    if graph.triple_splits is None:
        return graph
    remaining = graph.with_triples(graph.triple_splits != TEST)
    return remaining.subgraph(np.unique(remaining.triples[:, [0, 2]]).tolist())
