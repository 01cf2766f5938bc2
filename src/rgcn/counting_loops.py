"""Sorting small whole numbers by counting them, in numba: a tenth of what a comparing sort takes.

Loaded where there is much to sort (`rgcn.sparse.ordered`, `distinct`): a small graph does not wait for a compiler.
"""

from __future__ import annotations

import numba
import numpy as np

_jit = numba.njit(cache=True, nogil=True, error_model="numpy")


@_jit
def order_by_counting(ids, pointer, order):  # type: ignore[no-untyped-def]
    """Fill order [n] so that ids[order] ascends, equal ones in their order; pointer [bound + 1]: where each id's run
    begins. The pointer must be zero."""
    for i in ids:
        pointer[i + 1] += 1
    for i in range(1, len(pointer)):
        pointer[i] += pointer[i - 1]
    place = pointer[:-1].copy()
    for k in range(len(ids)):
        i = ids[k]
        order[place[i]] = k
        place[i] += 1


@_jit
def first_met(ids, seen, out):  # type: ignore[no-untyped-def]
    """Write each id once, in the order they are met; how many there are. `seen` [bound] must be zero."""
    count = 0
    for i in ids:
        if seen[i] == 0:
            seen[i] = 1
            out[count] = i
            count += 1
    return count


@_jit
def number_by(ids, some, place, out):  # type: ignore[no-untyped-def]
    """out[k]: where ids[k] stands in `some`; place [bound] is scratch."""
    for k in range(len(some)):
        place[some[k]] = k
    for k in range(len(ids)):
        out[k] = place[ids[k]]


def ordered(ids: np.ndarray, bound: int) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    """(order, pointer) as `order_by_counting` says."""
    order = np.empty(len(ids), dtype=np.int64)
    pointer = np.zeros(bound + 1, dtype=np.int32 if len(ids) < 2**31 else np.int64)
    order_by_counting(ids, pointer, order)
    return order, pointer


def distinct(ids: np.ndarray, bound: int) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    """(the distinct ids, ascending; where each id stands among them)."""
    # Zeros are lent by the system page by page: a large bound costs nothing where few ids are met.
    place, met = np.zeros(bound, dtype=np.int32), np.empty(len(ids), dtype=ids.dtype)
    some = np.sort(met[: first_met(ids, place, met)])
    number_by(ids, some, place, out := np.empty(len(ids), dtype=np.int64))
    return some, out
