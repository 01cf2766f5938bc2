"""Sorting of triples by their ids, in numba: by counting, a column after the other, equal ones in their order.

Called by `triple_rows`. Nothing is compared, so no input makes it slow, and a hub of any size is sorted like the rest.
"""

from __future__ import annotations

import numpy as np

from rgcn.data.name_loops import loop


@loop
def count_ends(rows, degrees, subjects):  # type: ignore[no-untyped-def]
    """Add up how often each node is an end of a triple, and how often its subject."""
    for i in range(len(rows)):
        degrees[rows[i, 0]] += 1
        degrees[rows[i, 2]] += 1
        subjects[rows[i, 0]] += 1


@loop
def rows_between(rows, low, high, found):  # type: ignore[no-untyped-def]
    """The rows whose subject is among these, in order; how many."""
    size = 0
    for i in range(len(rows)):
        if low <= rows[i, 0] < high:
            found[size] = i
            size += 1
    return size


@loop
def sort_by(rows, splits, column, low, order, counts, sorted_order):  # type: ignore[no-untyped-def]
    """Sort row numbers by a column, less `low`; relations by their split too, where there are splits."""
    counts[:] = 0
    for i in order:
        key = np.int64(rows[i, column]) - low
        if column == 1 and len(splits):
            key = 3 * key + splits[i]
        counts[key + 1] += 1
    for k in range(len(counts) - 1):
        counts[k + 1] += counts[k]
    for i in order:
        key = np.int64(rows[i, column]) - low
        if column == 1 and len(splits):
            key = 3 * key + splits[i]
        sorted_order[counts[key]] = i
        counts[key] += 1


@loop
def mark_repeated(rows, splits, times, order, kept):  # type: ignore[no-untyped-def]
    """Of equal triples, which follow each other in `order`, the first is kept, with the earliest of their times."""
    first = order[0]
    for k in range(1, len(order)):
        i = order[k]
        same = rows[i, 0] == rows[first, 0] and rows[i, 1] == rows[first, 1] and rows[i, 2] == rows[first, 2]
        if same and (len(splits) == 0 or splits[i] == splits[first]):
            kept[i] = False
            if len(times) and times[i] < times[first]:
                times[first] = times[i]
        else:
            first = i


@loop
def fill_incidence(rows, low, high, places, touching):  # type: ignore[no-untyped-def]
    """The triples that touch some nodes, node by node: first those it is the subject of. `places` move as they fill."""
    for column in (0, 2):
        for i in range(len(rows)):
            node = rows[i, column]
            if low <= node < high:
                touching[places[node - low]] = i
                places[node - low] += 1
