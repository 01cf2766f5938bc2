"""Names become integers, in the order in which the files first mention them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rgcn.graph import SPLITS, KnowledgeGraph, Vocabulary


class TripleCollector:
    """Takes triples of names block by block, numbers them, and in the end gives a graph.

    Ids follow the first appearance, subject before object, and never a hash.

    >>> collector = TripleCollector()
    >>> collector.add(pl.Series(["b", "a"]), pl.Series(["r", "r"]), pl.Series(["c", "b"]))
    >>> graph, _ = collector.graph()
    >>> list(graph.nodes), graph.triples.tolist()
    (['b', 'c', 'a'], [[0, 0, 1], [2, 0, 0]])
    """

    # Python sees each distinct name once in a batch, so large batches are fast; they are bounded for memory's sake.
    BATCH = 1_000_000

    def __init__(self) -> None:
        self._node_ids, self._relation_ids = dict[str, int](), dict[str, int]()
        self._triples = [np.empty((0, 3), dtype=np.int64)]
        self._splits = [np.empty(0, dtype=np.int8)]
        self._weights: list[NDArray[np.float32]] = []
        self._waiting: list[pl.DataFrame] = []
        self._name_of: Callable[[str], str] | None = None
        self.count = 0

    def add(
        self,
        subjects: pl.Series,
        relations: pl.Series,
        objects: pl.Series,
        *,
        split: str | None = None,
        weights: NDArray[np.float32] | None = None,
        name_of: Callable[[str], str] | None = None,
    ) -> None:
        """Add T triples, each column a string series of length T; `name_of` turns what the file says into a name."""
        if not len(subjects):
            return
        if name_of is not self._name_of or sum(map(len, self._waiting)) + len(subjects) > self.BATCH:
            self._number_waiting()
        self._name_of = name_of
        self._waiting.append(pl.DataFrame({"subject": subjects, "relation": relations, "object": objects}))
        self._splits.append(np.full(len(subjects), SPLITS.index(split or "train"), dtype=np.int8))
        if weights is not None:
            self._weights.append(weights)
        self.count += len(subjects)

    def _number_waiting(self) -> None:
        if not self._waiting:
            return
        batch = pl.concat(self._waiting)
        self._waiting = []
        in_file_order = np.arange(2 * len(batch)).reshape(2, -1).T.ravel()
        ends = pl.concat([batch["subject"].rename("name"), batch["object"].rename("name")]).gather(in_file_order)
        end_ids = _number(ends, self._node_ids, self._name_of).reshape(-1, 2)
        relation_ids = _number(batch["relation"], self._relation_ids, self._name_of)
        self._triples.append(np.stack([end_ids[:, 0], relation_ids, end_ids[:, 1]], axis=1))

    def graph(self) -> tuple[KnowledgeGraph, int]:
        """The graph of all triples, and how many were left out because they stand in the same split already."""
        self._number_waiting()
        triples, splits = np.concatenate(self._triples), np.concatenate(self._splits)
        weights = np.concatenate(self._weights) if self._weights else None
        duplicates = 0
        if weights is None:  # with weights, a triple that stands twice is two edges
            table = pl.DataFrame({"s": triples[:, 0], "r": triples[:, 1], "o": triples[:, 2], "split": splits})
            first = table.select(pl.struct(pl.all()).is_first_distinct()).to_series().to_numpy()
            duplicates = int((~first).sum())
            triples, splits = triples[first], splits[first]
        nodes, relations = Vocabulary(self._node_ids, kind="node"), Vocabulary(self._relation_ids, kind="relation")
        return KnowledgeGraph(triples, nodes, relations, triple_splits=splits, edge_weights=weights), duplicates


def _number(names: pl.Series, ids: dict[str, int], name_of: Callable[[str], str] | None) -> NDArray[np.int64]:
    """Ids of the names, int64 [len(names)], extending `ids`; Python sees each distinct name once only."""
    positions = names.rename("name").to_frame().with_row_index("position")
    first = positions.select(pl.col("position").min().over("name")).to_series().to_numpy()
    is_first = first == np.arange(len(names))
    distinct = names.filter(pl.Series(is_first)).to_list()
    if name_of is not None:
        distinct = [name_of(name) for name in distinct]
    numbers = np.fromiter((ids.setdefault(name, len(ids)) for name in distinct), dtype=np.int64, count=len(distinct))
    return np.asarray(numbers[(np.cumsum(is_first) - 1)[first]])
