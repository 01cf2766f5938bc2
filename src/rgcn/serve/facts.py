"""The graph as the server looks things up in it: a node's facts by the page."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rgcn.graph import SPLITS, KnowledgeGraph


@dataclass(frozen=True, eq=False)
class Facts:
    """Every node's triples, outgoing ones first, then by relation: a page is a slice.

    pointer  int64 [N + 1]
    triple   int64 [F]      row in the graph's triples
    outgoing bool [F]
    degree   int64 [N]      triples a node takes part in; one with itself counts once
    """

    graph: KnowledgeGraph
    pointer: NDArray[np.int64]
    triple: NDArray[np.int64]
    outgoing: NDArray[np.bool_]
    degree: NDArray[np.int64]

    @classmethod
    def of(cls, graph: KnowledgeGraph) -> Facts:
        subject, relation, object_ = graph.triples.T
        number = np.arange(len(graph))
        node = np.concatenate([subject, object_])
        inward = np.repeat([False, True], len(graph))
        order = np.lexsort((np.concatenate([number, number]), np.concatenate([relation, relation]), inward, node))
        counts = np.bincount(node, minlength=graph.num_nodes)
        loops = np.bincount(subject[subject == object_], minlength=graph.num_nodes)
        return cls(
            graph,
            np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            np.concatenate([number, number])[order],
            ~inward[order],
            counts - loops,
        )

    def total(self, node: int) -> int:
        return int(self.pointer[node + 1] - self.pointer[node])

    def page(self, node: int, limit: int, offset: int) -> list[tuple[int, int, bool, str | None]]:
        """Some of a node's facts: (relation, the other end, outgoing, split) each."""
        begin = min(int(self.pointer[node]) + offset, int(self.pointer[node + 1]))
        end = min(begin + limit, int(self.pointer[node + 1]))
        rows = self.triple[begin:end]
        splits = self.graph.triple_splits
        used = [None] * len(rows) if splits is None else [SPLITS[i] for i in splits[rows].tolist()]
        return [
            (r, o if out else s, out, split)
            for (s, r, o), out, split in zip(
                self.graph.triples[rows].tolist(), self.outgoing[begin:end].tolist(), used, strict=True
            )
        ]
