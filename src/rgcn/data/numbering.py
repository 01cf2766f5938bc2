"""Names become integers, in the order in which the files first mention them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rgcn.graph import SPLITS, Vocabulary


class TripleCollector:
    """Takes triples of names block by block, numbers them, and in the end gives the arrays of a graph.

    Ids follow the first appearance, subject before object, and never a hash.

    >>> import polars as pl
    >>> collector = TripleCollector()
    >>> collector.add(pl.Series(["b", "a"]), pl.Series(["r", "r"]), pl.Series(["c", "b"]))
    >>> list(collector.nodes), collector.triples.tolist()
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

    @property
    def nodes(self) -> Vocabulary:
        self._number_waiting()
        return Vocabulary(self._node_ids, kind="node")

    @property
    def relations(self) -> Vocabulary:
        self._number_waiting()
        return Vocabulary(self._relation_ids, kind="relation")

    @property
    def triples(self) -> NDArray[np.int64]:
        """int64 [T, 3]"""
        self._number_waiting()
        return np.concatenate(self._triples)

    @property
    def splits(self) -> NDArray[np.int8]:
        """int8 [T]: index into ("train", "valid", "test")"""
        return np.concatenate(self._splits)

    @property
    def weights(self) -> NDArray[np.float32] | None:
        """float32 [T], or None where no file had weights."""
        return np.concatenate(self._weights) if self._weights else None

    def first_of_each(self) -> NDArray[np.bool_]:
        """bool [T]: False for a triple that stands earlier in the same split."""
        triples = self.triples
        table = pl.DataFrame({"s": triples[:, 0], "r": triples[:, 1], "o": triples[:, 2], "split": self.splits})
        return np.asarray(table.select(pl.struct(pl.all()).is_first_distinct()).to_series().to_numpy())


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
