"""Triples of ids, as many as there are: which of them repeat, and which touch a node; in pieces that fit in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rgcn.system.threads import in_order

Array = NDArray[Any]
COMPARED = 1 << 22  # rows that are compared with each other at a time
PIECE = 1 << 23  # ends of rows that are put in order at a time
FEW = 200_000  # rows that are sorted before a loop would be compiled
ROWS_AT_ONCE = 1 << 22


def distinct(rows: Array, splits: Array | None, times: Array | None) -> NDArray[np.bool_]:
    """bool [T]: which triples are the first of their kind, in their split; `times` become the earliest of the kind."""
    import polars as pl

    kept, parts = np.ones(len(rows), dtype=bool), len(rows) // COMPARED + 1
    for part in range(parts):  # equal triples are in one part, whatever nodes have most triples
        blocks = ((first, rows[first : first + ROWS_AT_ONCE]) for first in range(0, len(rows), ROWS_AT_ONCE))
        places = [np.flatnonzero((block[:, 0] + block[:, 2]) % parts == part) + first for first, block in blocks]
        order = np.concatenate([np.empty(0, np.int64), *places])
        columns = {name: rows[order, column] for column, name in enumerate("sro")}
        if splits is not None:
            columns["split"] = splits[order]
        frame = pl.DataFrame(columns)
        kept[order] = frame.select(pl.struct(pl.all()).is_first_distinct()).to_series()
        if times is not None:
            timed = frame.with_columns(time=pl.Series(times[order]))
            times[order] = timed.select(pl.col("time").min().over(*columns)).to_series()
    return kept


def incidence(rows: Array, num_nodes: int) -> tuple[NDArray[np.int64], Iterator[Array]]:
    """Triples touching each node: int64 [N+1] where those of each begin, and which they are, in pieces.

    Those that a node is the subject of come first. They are put in order by counting: no input makes it slow.
    """
    sizes = np.zeros(num_nodes, dtype=np.int64)
    for first in range(0, len(rows), ROWS_AT_ONCE):
        for column in (0, 2):
            sizes += np.bincount(rows[first : first + ROWS_AT_ONCE, column], minlength=num_nodes)
    pointer = np.concatenate([[0], np.cumsum(sizes)])
    return pointer, (order for _, order in in_order(_pieces(pointer), lambda piece: _ordered(rows, pointer, *piece)))


def _ordered(rows: Array, pointer: NDArray[np.int64], low: int, high: int) -> Array:
    """Numbers of the rows that touch nodes of a piece, by node; those that it is the subject of first."""
    if len(rows) <= FEW:
        place = [np.flatnonzero((rows[:, column] >= low) & (rows[:, column] < high)) for column in (0, 2)]
        nodes = np.concatenate([rows[some, column] for some, column in zip(place, (0, 2), strict=True)])
        return np.concatenate(place)[np.argsort(nodes, kind="stable")]
    from rgcn.data.reading_loops import put_in_order

    order = np.empty(pointer[high] - pointer[low], dtype=np.int32 if len(rows) < 1 << 31 else np.int64)
    places = pointer[low:high] - pointer[low]
    for column in (0, 2):
        put_in_order(rows, column, low, places, order)
    return order


def _pieces(pointer: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """(first node, node after the last): as many nodes at a time as have a piece of ends; a hub may have more."""
    low = 0
    while pointer[low] < pointer[-1]:
        high = max(low + 1, int(np.searchsorted(pointer, pointer[low] + PIECE, side="right")) - 1)
        yield low, high
        low = high
