"""Triples of ids, as many as there are: which of them repeat, and which touch a node; in pieces that fit in memory.

They are sorted by counting, a column after the other, equal ones in their order. Nothing is compared, so no input makes
it slow, and a hub of any size is sorted like the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
PIECE = 1 << 22  # rows, or ends of rows, that are sorted at a time
FEW = 200_000  # rows that are sorted before a loop would be compiled
COUNTED_AT_ONCE = 1 << 22


def distinct(
    rows: Array, splits: Array | None, times: Array | None, num_nodes: int, num_relations: int
) -> NDArray[np.bool_]:
    """bool [T]: which triples are the first of their kind, in their split; `times` become the earliest of the kind."""
    kept = np.ones(len(rows), dtype=bool)
    for low, high in _pieces(_counts(rows, 0, num_nodes)):
        place = np.flatnonzero((rows[:, 0] >= low) & (rows[:, 0] < high))
        subject, relation, object_ = rows[place].T.copy()
        if splits is not None:
            relation = relation * 3 + splits[place]
        order = _sorted(object_, num_nodes)
        order = order[_sorted(relation[order], 3 * num_relations)]
        order = order[_sorted(subject[order] - low, high - low)]
        sorted_columns = [column[order] for column in (subject, relation, object_)]
        same = np.all([column[1:] == column[:-1] for column in sorted_columns], axis=0)
        place = place[order]
        kept[place[1:][same]] = False
        if times is not None and same.any():
            first = np.flatnonzero(np.concatenate([[True], ~same]))
            times[place[first]] = np.minimum.reduceat(times[place], first)
    return kept


def incidence(rows: Array, num_nodes: int) -> tuple[NDArray[np.int64], Iterator[Array]]:
    """Triples touching each node: int64 [N+1] where those of each begin, and which they are, in pieces.

    Those that a node is the subject of come first.
    """
    sizes = _counts(rows, 0, num_nodes) + _counts(rows, 2, num_nodes)
    return np.concatenate([[0], np.cumsum(sizes)]), _touching(rows, sizes)


def _touching(rows: Array, sizes: NDArray[np.int64]) -> Iterator[Array]:
    for low, high in _pieces(sizes):
        place = [np.flatnonzero((rows[:, column] >= low) & (rows[:, column] < high)) for column in (0, 2)]
        ends = np.concatenate([rows[place[0], 0], rows[place[1], 2]])
        yield np.concatenate(place)[_sorted(ends - low, high - low)]


def _counts(rows: Array, column: int, num_nodes: int) -> NDArray[np.int64]:
    """int64 [N]: how often each node stands in a column."""
    counts = np.zeros(num_nodes, dtype=np.int64)
    for first in range(0, len(rows), COUNTED_AT_ONCE):
        counts += np.bincount(rows[first : first + COUNTED_AT_ONCE, column], minlength=num_nodes)
    return counts


def _pieces(sizes: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """(first node, node after the last): as many nodes at a time as have a piece of rows; a hub may have more."""
    ends = np.cumsum(sizes)
    low, done = 0, 0
    while low < len(sizes) and done < ends[-1]:
        high = max(low + 1, int(np.searchsorted(ends, done + PIECE, side="right")))
        yield low, high
        low, done = high, int(ends[high - 1])


def _sorted(keys: Array, size: int) -> Array:
    """The order in which keys below `size` are sorted, equal ones as they come."""
    if len(keys) <= FEW:
        return np.argsort(keys, kind="stable")
    from rgcn.data.row_loops import sort_by_counting

    order = np.empty(len(keys), dtype=np.int32 if len(keys) < 1 << 31 else np.int64)
    sort_by_counting(keys, np.zeros(size + 1, dtype=np.int64), order)
    return order
