"""Which nodes a map shows, where there are more than a reader can look at."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rgcn.graph import KnowledgeGraph

Integers = NDArray[np.int64]


def nodes_shown(graph: KnowledgeGraph, candidates: Integers, most: int) -> Integers:
    """Of the candidates, those with a label, then those in the most triples; `most`, or all that are labelled.

    >>> kg = KnowledgeGraph.from_triples([("a", "knows", "b"), ("b", "knows", "c"), ("b", "likes", "d")])
    >>> [kg.nodes[i] for i in nodes_shown(kg, np.arange(4), 2)]
    ['b', 'a']
    """
    labelled = np.zeros(graph.num_nodes, dtype=bool)
    if graph.labels is not None:
        labelled[graph.labels.nodes] = True
    mine = labelled[candidates]
    order = np.lexsort((candidates, -degrees(graph)[candidates], ~mine))
    return np.asarray(candidates[order][: max(most, int(mine.sum()))])


def degrees(graph: KnowledgeGraph) -> Integers:
    """[N]: training triples each node takes part in."""
    return np.bincount(graph.split_triples("train")[:, [0, 2]].ravel(), minlength=graph.num_nodes)
