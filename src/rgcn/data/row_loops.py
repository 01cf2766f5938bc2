"""The loops that sort rows of ids, in numba: see `triple_rows`."""

from __future__ import annotations

from rgcn.graph.hash_loops import loop


@loop
def sort_by_counting(keys, places, order):  # type: ignore[no-untyped-def]
    """Write the order of the keys, equal ones as they come; `places` is zero, and one longer than there are keys."""
    for key in keys:
        places[key + 1] += 1
    for k in range(len(places) - 1):
        places[k + 1] += places[k]
    for i in range(len(keys)):
        order[places[keys[i]]] = i
        places[keys[i]] += 1
