"""Find duplicates among rows of ids, and the triples that touch each node, in pieces that fit in memory.

Rows are sorted by counting. Rows of the same subject are compared with each other, or sorted if they are many. No input
makes this slow, and a node may have any number of triples.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rgcn.system.threads import map_in_threads

Array = NDArray[Any]
PIECE_ROWS = 1 << 23  # rows, or ends of rows, that are sorted at a time
MIN_LOOP_ROWS = 200_000  # fewer rows are sorted sooner than loops are compiled
COUNT_BLOCK_ROWS = 1 << 22
MAX_COMPARED_ROWS = 64  # rows of a subject that are compared with each other; more are sorted


def distinct(rows: Array, splits: Array | None, times: Array | None, num_nodes: int) -> NDArray[np.bool_]:
    """Find the rows that are not duplicates of an earlier row in the same split.

    Args:
        rows: Ids of subject, relation and object, [num_rows, 3].
        splits: Split of each row, [num_rows].
        times: Time of each row, [num_rows]; changed in place to the earliest time of the row's duplicates.
        num_nodes: Number of nodes.

    Returns:
        bool [num_rows].
    """
    is_first, sizes = np.ones(len(rows), dtype=bool), _counts(rows, 0, num_nodes)

    def mark(piece: tuple[int, int]) -> None:
        order, ends = _sort_by_node(rows, [0], sizes, piece)
        if len(rows) > MIN_LOOP_ROWS:
            from rgcn.data.reading_loops import find_duplicates

            none, remaining, keys = np.empty(0), np.empty_like(order), np.zeros((MAX_COMPARED_ROWS, 3), np.int64)
            columns = none.astype(np.int8) if splits is None else splits, none if times is None else times
            order = remaining[: find_duplicates(rows, *columns, order, ends, is_first, remaining, keys)]
        order = np.sort(order)
        sort_keys = [rows[order, column] for column in (2, 1, 0)]
        if splits is not None:
            sort_keys.insert(0, splits[order])
        place = np.lexsort(sort_keys)
        same = np.all([key[place[1:]] == key[place[:-1]] for key in sort_keys], axis=0)
        place = order[place]
        is_first[place[1:][same]] = False
        if times is not None and same.any():
            first = np.flatnonzero(np.concatenate([[True], ~same]))
            times[place[first]] = np.minimum.reduceat(times[place], first)

    deque(map_in_threads(_pieces(sizes), mark), maxlen=0)
    return is_first


def incidence(rows: Array, num_nodes: int) -> tuple[NDArray[np.int64], Iterator[Array]]:
    """Find the triples that touch each node.

    Args:
        rows: Ids of subject, relation and object, [num_rows, 3].
        num_nodes: Number of nodes.

    Returns:
        Where the rows of each node begin, int64 [num_nodes + 1]; and the numbers of these rows, in pieces. For each
        node, the rows of which it is the subject come first.
    """
    sizes = _counts(rows, 0, num_nodes) + _counts(rows, 2, num_nodes)
    pieces = map_in_threads(_pieces(sizes), lambda piece: _sort_by_node(rows, [0, 2], sizes, piece)[0])
    return np.concatenate([[0], np.cumsum(sizes)]), (order for _, order in pieces)


def _sort_by_node(rows: Array, columns: list[int], sizes: Array, piece: tuple[int, int]) -> tuple[Array, Array]:
    """Return the numbers of the rows with nodes of a piece, by node and column, and where those of each node end."""
    low, high = piece
    ends = np.cumsum(sizes[low:high])
    if len(rows) <= MIN_LOOP_ROWS:
        place = [np.flatnonzero((rows[:, column] >= low) & (rows[:, column] < high)) for column in columns]
        nodes = np.concatenate([rows[found, column] for found, column in zip(place, columns, strict=True)])
        return np.concatenate(place)[np.argsort(nodes, kind="stable")], ends
    from rgcn.data.reading_loops import sort_by_counting

    order = np.empty(ends[-1], dtype=np.int32 if len(rows) < 1 << 31 else np.int64)
    places = ends - sizes[low:high]
    for column in columns:
        sort_by_counting(rows, column, low, places, order)
    return order, ends


def _counts(rows: Array, column: int, num_nodes: int) -> NDArray[np.int64]:
    """Count how often each node occurs in a column, int64 [num_nodes]."""
    counts = np.zeros(num_nodes, dtype=np.int64)
    for first in range(0, len(rows), COUNT_BLOCK_ROWS):
        counts += np.bincount(rows[first : first + COUNT_BLOCK_ROWS, column], minlength=num_nodes)
    return counts


def _pieces(sizes: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return (first node, node after the last) of pieces: nodes with `PIECE_ROWS` rows together, or one with more."""
    ends, pieces, low, done = np.cumsum(sizes), [], 0, 0
    while low < len(sizes) and done < ends[-1]:
        high = max(low + 1, int(np.searchsorted(ends, done + PIECE_ROWS, side="right")))
        pieces.append((low, high))
        low, done = high, int(ends[high - 1])
    return pieces
