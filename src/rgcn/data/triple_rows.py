"""Triples of ids, as many as there are: which of them repeat, and which touch a node; in pieces that fit in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rgcn.graph.stored_names import MOST_NAMES

Array = NDArray[Any]
PIECE = 1 << 24  # rows, or ends of rows, that are sorted at a time
FEW = 200_000  # rows that are sorted before a loop would be compiled


class Degrees(NamedTuple):
    """int64 [N]: how many ends of triples each node is, and how many subjects."""

    ends: NDArray[np.int64]
    subjects: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Array, num_nodes: int) -> Degrees:
        found = cls(np.zeros(num_nodes, dtype=np.int64), np.zeros(num_nodes, dtype=np.int64))
        if len(rows) <= FEW:
            found.subjects[:] = np.bincount(rows[:, 0], minlength=num_nodes)
            found.ends[:] = found.subjects + np.bincount(rows[:, 2], minlength=num_nodes)
        else:
            from rgcn.data import row_loops

            row_loops.count_ends(rows, *found)
        return found


def distinct(
    rows: Array, splits: Array | None, times: Array | None, num_nodes: int, num_relations: int
) -> NDArray[np.bool_]:
    """bool [T]: which triples are the first of their kind, in their split; `times` become the earliest of the kind."""
    kept = np.ones(len(rows), dtype=bool)
    if len(rows) <= FEW:
        keys = [rows[:, 2], rows[:, 1], rows[:, 0]] if splits is None else [splits, rows[:, 2], rows[:, 1], rows[:, 0]]
        order = np.lexsort(keys)
        same = np.all([key[order[1:]] == key[order[:-1]] for key in keys], axis=0)
        kept[order[1:][same]] = False
        if times is not None and same.any():
            group = np.cumsum(np.concatenate([[True], ~same])) - 1
            earliest = np.full(group[-1] + 1, np.inf)
            np.minimum.at(earliest, group, times[order])
            times[order] = earliest[group]
        return kept
    from rgcn.data import row_loops

    subjects = Degrees.of(rows, num_nodes).subjects
    of_each = np.zeros(0, dtype=np.int8) if splits is None else splits
    when = np.zeros(0) if times is None else times
    numbers = np.int32 if len(rows) <= MOST_NAMES else np.int64
    for low, high, size in _pieces(subjects):
        order, other = np.empty((2, size), dtype=numbers)
        row_loops.rows_between(rows, low, high, order)
        for column, start, keys in ((2, 0, num_nodes), (1, 0, 3 * num_relations), (0, low, high - low)):
            row_loops.sort_by(rows, of_each, column, start, order, np.empty(keys + 1, dtype=np.int64), other)
            order, other = other, order
        row_loops.mark_repeated(rows, of_each, when, order, kept)
    return kept


def incidence(rows: Array, num_nodes: int) -> tuple[NDArray[np.int64], Iterator[Array]]:
    """Triples touching each node: int64 [N+1] where those of each begin, and int32 [2T] which they are, in pieces."""
    ends = Degrees.of(rows, num_nodes).ends
    pointer = np.zeros(num_nodes + 1, dtype=np.int64)
    np.cumsum(ends, out=pointer[1:])
    return pointer, _touching(rows, pointer)


def _touching(rows: Array, pointer: NDArray[np.int64]) -> Iterator[Array]:
    numbers = np.int32 if len(rows) <= MOST_NAMES else np.int64
    if len(rows) <= FEW:
        order = np.argsort(np.concatenate([rows[:, 0], rows[:, 2]]), kind="stable")
        yield (order % max(len(rows), 1)).astype(numbers)
        return
    from rgcn.data import row_loops

    for low, high, size in _pieces(np.diff(pointer)):
        touching = np.empty(size, dtype=numbers)
        row_loops.fill_incidence(rows, low, high, pointer[low:high] - pointer[low], touching)
        yield touching


def _pieces(sizes: NDArray[np.int64]) -> Iterator[tuple[int, int, int]]:
    """(first node, node after the last, rows): as many nodes at a time as have a piece of rows; a hub may have more."""
    ends = np.cumsum(sizes)
    low, done = 0, 0
    while low < len(sizes) and done < ends[-1]:
        high = max(low + 1, int(np.searchsorted(ends, done + PIECE, side="right")))
        size = int(ends[high - 1]) - done
        if size:
            yield low, high, size
        low, done = high, int(ends[high - 1])
