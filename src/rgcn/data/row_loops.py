"""The loops that put rows of ids in order, in numba: see `triple_rows`."""

from __future__ import annotations

from rgcn.graph.hash_loops import loop


@loop
def put_in_order(rows, column, low, places, order):  # type: ignore[no-untyped-def]
    """Write the numbers of the rows whose column is `low` or one of the next where `places` says, which move on."""
    for i in range(len(rows)):
        key = rows[i, column] - low
        if 0 <= key < len(places):
            order[places[key]] = i
            places[key] += 1


@loop
def find_repeats(rows, splits, times, order, ends, kept, many, keys):  # type: ignore[no-untyped-def]
    """Mark rows that repeat another of their subject; how many are of subjects with too many rows, written to `many`.

    order, ends  rows by subject, and where those of each end
    splits       int8 [T], or none; times  float64 [T], or none: become the earliest of those that repeat
    keys         int64 [k, 3], zero: room for the rows of a subject that has no more
    """
    first = left = 0
    for end in ends:
        if end - first > len(keys):
            for i in range(first, end):
                many[left] = order[i]
                left += 1
        elif end - first > 1:
            for i in range(end - first):
                row = order[first + i]
                keys[i, 0], keys[i, 1] = rows[row, 2], rows[row, 1]
                if len(splits):
                    keys[i, 2] = splits[row]
                for j in range(i):
                    if keys[i, 0] == keys[j, 0] and keys[i, 1] == keys[j, 1] and keys[i, 2] == keys[j, 2]:
                        kept[row] = False
                        if len(times):
                            times[order[first + j]] = min(times[order[first + j]], times[row])
                        break
        first = end
    return left
