"""Triples of ids, as many as there are: which of them repeat, and which touch a node; in pieces that fit in memory.

They are put in order by counting; those of one subject are compared with each other, or sorted where they are many. No
input makes it slow, and a hub may have any size.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rgcn.system.threads import in_order

Array = NDArray[Any]
PIECE = 1 << 23  # rows, or ends of rows, that are put in order at a time
FEW = 200_000  # rows that are sorted before a loop would be compiled
COUNTED_AT_ONCE = 1 << 22
MOST_COMPARED = 64  # rows of one subject, each with each; more are sorted


def distinct(rows: Array, splits: Array | None, times: Array | None, num_nodes: int) -> NDArray[np.bool_]:
    """bool [T]: which triples are the first of their kind, in their split; `times` become the earliest of the kind."""
    kept, sizes = np.ones(len(rows), dtype=bool), _counts(rows, 0, num_nodes)

    def mark(piece: tuple[int, int]) -> None:
        order, ends = _ordered(rows, [0], sizes, piece)
        if len(rows) > FEW:
            from rgcn.data.reading_loops import find_repeats

            none, many, keys = np.empty(0), np.empty_like(order), np.zeros((MOST_COMPARED, 3), np.int64)
            given = none.astype(np.int8) if splits is None else splits, none if times is None else times
            order = many[: find_repeats(rows, *given, order, ends, kept, many, keys)]
        order = np.sort(order)
        columns = [rows[order, column] for column in (2, 1, 0)]
        if splits is not None:
            columns.insert(0, splits[order])
        place = np.lexsort(columns)
        same = np.all([column[place[1:]] == column[place[:-1]] for column in columns], axis=0)
        place = order[place]
        kept[place[1:][same]] = False
        if times is not None and same.any():
            first = np.flatnonzero(np.concatenate([[True], ~same]))
            times[place[first]] = np.minimum.reduceat(times[place], first)

    for _ in in_order(_pieces(sizes), mark):
        pass
    return kept


def incidence(rows: Array, num_nodes: int) -> tuple[NDArray[np.int64], Iterator[Array]]:
    """Triples touching each node: int64 [N+1] where those of each begin, and which they are, in pieces.

    Those that a node is the subject of come first.
    """
    sizes = _counts(rows, 0, num_nodes) + _counts(rows, 2, num_nodes)
    found = in_order(_pieces(sizes), lambda piece: _ordered(rows, [0, 2], sizes, piece)[0])
    return np.concatenate([[0], np.cumsum(sizes)]), (order for _, order in found)


def _ordered(rows: Array, columns: list[int], sizes: Array, piece: tuple[int, int]) -> tuple[Array, Array]:
    """Numbers of the rows that have nodes of a piece in a column, by node and column; and where those of each end."""
    low, high = piece
    ends = np.cumsum(sizes[low:high])
    if len(rows) <= FEW:
        place = [np.flatnonzero((rows[:, column] >= low) & (rows[:, column] < high)) for column in columns]
        nodes = np.concatenate([rows[some, column] for some, column in zip(place, columns, strict=True)])
        return np.concatenate(place)[np.argsort(nodes, kind="stable")], ends
    from rgcn.data.reading_loops import put_in_order

    order = np.empty(ends[-1], dtype=np.int32 if len(rows) < 1 << 31 else np.int64)
    places = ends - sizes[low:high]
    for column in columns:
        put_in_order(rows, column, low, places, order)
    return order, ends


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
