"""The graph as the server looks things up in it: a node's facts by the page, and which triples are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rgcn.graph import SPLITS, KnowledgeGraph

NO_SPLIT = -1
SPLIT_NAMES = (*SPLITS, None)  # so that -1 is None


class Fact(NamedTuple):
    """A triple seen from one of its ends."""

    relation: int
    node: int
    outgoing: bool
    split: str | None


@dataclass(frozen=True, eq=False)
class Facts:
    """Every node's triples, outgoing ones first, then by relation: a page is a slice.

    pointer  int64 [N + 1]
    triple   int64 [F]      row in the graph's triples
    outgoing bool [F]
    degree   int64 [N]      triples a node takes part in; one with itself counts once
    keys     int64 [D]      sorted, distinct: (subject · relations + relation) · nodes + object of every triple
    split    int8 [D]       of each, the first where it stands in several; -1 without splits
    """

    graph: KnowledgeGraph
    pointer: NDArray[np.int64]
    triple: NDArray[np.int64]
    outgoing: NDArray[np.bool_]
    degree: NDArray[np.int64]
    keys: NDArray[np.int64]
    split: NDArray[np.int8]

    @classmethod
    def of(cls, graph: KnowledgeGraph) -> Facts:
        subject, relation, object_ = graph.triples.T
        number = np.arange(len(graph))
        node = np.concatenate([subject, object_])
        inward = np.repeat([False, True], len(graph))
        order = np.lexsort((np.concatenate([number, number]), np.concatenate([relation, relation]), inward, node))
        counts = np.bincount(node, minlength=graph.num_nodes)
        loops = np.bincount(subject[subject == object_], minlength=graph.num_nodes)
        key = (subject * graph.num_relations + relation) * graph.num_nodes + object_
        splits = np.full(len(graph), NO_SPLIT, np.int8) if graph.triple_splits is None else graph.triple_splits
        by_key = np.lexsort((splits, key))
        keys, first = np.unique(key[by_key], return_index=True)
        return cls(
            graph,
            np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            np.concatenate([number, number])[order],
            ~inward[order],
            counts - loops,
            keys,
            np.asarray(splits[by_key][first], dtype=np.int8),
        )

    def total(self, node: int) -> int:
        return int(self.pointer[node + 1] - self.pointer[node])

    def page(self, node: int, limit: int, offset: int) -> list[Fact]:
        """Some of a node's facts."""
        begin = min(int(self.pointer[node]) + offset, int(self.pointer[node + 1]))
        end = min(begin + limit, int(self.pointer[node + 1]))
        rows = self.triple[begin:end]
        splits = self.graph.triple_splits
        used = [None] * len(rows) if splits is None else [SPLITS[i] for i in splits[rows].tolist()]
        return [
            Fact(r, o if out else s, out, split)
            for (s, r, o), out, split in zip(
                self.graph.triples[rows].tolist(), self.outgoing[begin:end].tolist(), used, strict=True
            )
        ]

    def known(
        self, subject: NDArray[np.int64], relation: NDArray[np.int64], object: NDArray[np.int64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int8]]:
        """Whether the graph has triples, of any shape, and in which split (-1: none, or without splits)."""
        key = (subject * self.graph.num_relations + relation) * self.graph.num_nodes + object
        if not len(self.keys):
            return np.zeros(key.shape, bool), np.full(key.shape, NO_SPLIT, np.int8)
        place = np.minimum(np.searchsorted(self.keys, key), len(self.keys) - 1)
        there = self.keys[place] == key
        return there, np.where(there, self.split[place], NO_SPLIT).astype(np.int8)
