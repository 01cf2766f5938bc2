"""Nodes by a part of their name, fast enough for every key a person presses."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rgcn.graph import KnowledgeGraph
from rgcn.graph.titles import Titles

EDGE = "\x1e"  # where a title or a name begins and ends; folding takes it out of names
LONGEST_QUERY = LONGEST_NAME = 200


@dataclass(frozen=True, eq=False)
class NameSearch:
    """All names in one long text, best connected nodes first, searched by the C library's substring search.

    A title that is the query comes first, then titles that begin so, then words that do, then any part of a title or
    name; within each, better connected nodes first.

    >>> kg = KnowledgeGraph.from_triples([("New Zealand", "near", "Zealandia"), ("Old Zealand", "near", "New Zealand")])
    >>> search = NameSearch.of(kg, Titles(kg))
    >>> [kg.nodes[i] for i in search.find("zea")]
    ['Zealandia', 'New Zealand', 'Old Zealand']
    >>> [kg.nodes[i] for i in search.find("land", limit=1)]
    ['New Zealand']
    """

    text: str
    starts: list[int]
    nodes: NDArray[np.int64]
    degree: NDArray[np.int64]

    @classmethod
    def of(cls, graph: KnowledgeGraph, titles: Titles) -> NameSearch:
        degree = np.bincount(graph.triples[:, [0, 2]].ravel(), minlength=graph.num_nodes)
        # Literals last: who types a part of a name looks for a thing rather than for a text that mentions it.
        order = np.lexsort((np.arange(graph.num_nodes), -degree, graph.is_literal))
        pieces, starts, position = [], [], 0
        for node in order.tolist():
            title, name = titles.of(node), graph.nodes[node][:LONGEST_NAME]  # an abstract is searched by how it begins
            piece = _edged(title) if title == name else _edged(title) + _edged(name)
            pieces.append(piece)
            starts.append(position)
            position += len(piece)
        return cls("".join(pieces), starts, order, degree)

    def find(self, query: str, limit: int = 10) -> list[int]:
        """The nodes that match best, at most `limit` of them."""
        query = query[:LONGEST_QUERY]
        words = folded(query)
        if not words or limit < 1 or words not in self.text:
            return []
        found: dict[int, None] = {}
        for pattern in (_edged(query), EDGE + words, " " + words, words):
            self._collect(pattern, limit, found)
            if len(found) >= limit:
                break
        return list(found)[:limit]

    def _collect(self, pattern: str, limit: int, found: dict[int, None]) -> None:
        at = self.text.find(pattern)
        while at >= 0 and len(found) < limit:
            entry = bisect_right(self.starts, at) - 1
            found[int(self.nodes[entry])] = None
            following = self.starts[entry + 1] if entry + 1 < len(self.starts) else len(self.text)
            at = self.text.find(pattern, following)  # one hit a node is enough


def folded(text: str) -> str:
    return " ".join(text.replace("_", " ").replace(EDGE, " ").casefold().split())


def _edged(name: str) -> str:
    return EDGE + folded(name) + EDGE
