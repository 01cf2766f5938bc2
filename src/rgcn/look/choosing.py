"""Which nodes a map shows, where there are more than a reader can look at."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rgcn.graph import SPLITS, KnowledgeGraph

Integers = NDArray[np.int64]


def nodes_shown(graph: KnowledgeGraph, candidates: Integers, most: int, seed: int = 0) -> Integers:
    """At most `most` of the candidates: those with a label, then those in the most triples.

    Where the labelled ones alone are too many, as many are drawn of each class, or all it has; `seed` decides which.

    >>> kg = KnowledgeGraph.from_triples([("a", "knows", "b"), ("b", "knows", "c"), ("b", "likes", "d")])
    >>> [kg.nodes[i] for i in nodes_shown(kg, np.arange(4), 2)]
    ['b', 'a']
    """
    mine = is_labelled(graph)[candidates]
    if mine.sum() > most:
        candidates, mine = _drawn(graph, candidates[mine], most, seed), np.ones(most, dtype=bool)
    order = np.lexsort((candidates, -degrees(graph)[candidates], ~mine))
    return np.asarray(candidates[order][:most])


def is_labelled(graph: KnowledgeGraph) -> NDArray[np.bool_]:
    """[N]"""
    labelled = np.zeros(graph.num_nodes, dtype=bool)
    if graph.labels is not None:
        labelled[graph.labels.nodes] = True
    return labelled


def degrees(graph: KnowledgeGraph) -> Integers:
    """[N]: training triples each node takes part in."""
    return np.bincount(graph.split_triples("train")[:, [0, 2]].ravel(), minlength=graph.num_nodes)


def _drawn(graph: KnowledgeGraph, labelled: Integers, most: int, seed: int) -> Integers:
    """The classes take turns, each giving one of its nodes at random, until there are `most`."""
    labels = graph.labels
    assert labels is not None
    # Test nodes are a class of their own: theirs are kept from sight, and from every choice.
    group = np.full(graph.num_nodes, -1, dtype=np.int64)
    group[labels.nodes] = np.where(labels.splits == SPLITS.index("test"), labels.num_classes, labels.classes)
    shuffled = np.random.default_rng(seed).permutation(np.sort(labelled))
    by_group = np.argsort(group[shuffled], kind="stable")
    _, first, size = np.unique(group[shuffled][by_group], return_index=True, return_counts=True)
    turn = np.arange(len(shuffled)) - np.repeat(first, size)
    return shuffled[by_group][np.argsort(turn, kind="stable")[:most]]
