"""Samples that do not depend on the order of the input's rows: drawn by a hash of names, never by positions or ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rgcn.graph.stored_names import FACTOR, SEED

if TYPE_CHECKING:
    from rgcn.graph.knowledge_graph import KnowledgeGraph

Keys = NDArray[np.uint64]


def combined_keys(*parts: Keys) -> Keys:
    """uint64 [n]: one hash of several, which depends on their order.

    >>> one, other = np.array([1, 2], dtype=np.uint64), np.array([2, 1], dtype=np.uint64)
    >>> combined_keys(one, other)[0] == combined_keys(other, one)[1]
    np.True_
    >>> combined_keys(one, other)[0] == combined_keys(other, one)[0]
    np.False_
    """
    state = np.full(len(parts[0]), SEED, dtype=np.uint64)
    for part in parts:
        state = (state ^ part) * np.uint64(FACTOR)
        state ^= state >> np.uint64(32)
    return state


def triple_keys(graph: KnowledgeGraph, triples: NDArray[np.int64]) -> Keys:
    """uint64 [n]: a hash of the three names of each triple int64 [n, 3]."""
    subject, relation, object_ = triples.T
    return combined_keys(graph.nodes.keys(subject), graph.relations.keys(relation), graph.nodes.keys(object_))


def label_keys(graph: KnowledgeGraph, nodes: NDArray[np.int64], classes: NDArray[np.int64]) -> Keys:
    """uint64 [n]: a hash of each labelled node's name and its class's."""
    assert graph.labels is not None
    return combined_keys(graph.nodes.keys(nodes), graph.labels.names.keys(classes))


def drawn(keys: Keys, at_most: int) -> NDArray[np.int64]:
    """The positions of the smallest keys, smallest first. Who draws fewer draws the first ones of these.

    >>> drawn(np.array([30, 10, 20], dtype=np.uint64), 2)
    array([1, 2])
    """
    return np.argsort(keys, kind="stable")[:at_most].astype(np.int64)
