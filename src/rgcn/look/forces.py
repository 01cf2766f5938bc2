"""What points of a map do to each other, in numba: all push, neighbors pull."""

from __future__ import annotations

import numba
import numpy as np

# Sums may be taken in any order, so that they are vectors; the order is then the same in every call of one machine.
_jit = numba.njit(
    cache=True, nogil=True, error_model="numpy", fastmath={"arcp", "contract", "nsz", "reassoc"}, boundscheck=False
)


@_jit  # type: ignore[untyped-decorator, unused-ignore]
def push(first, last, x, y, out_x, out_y, total):  # type: ignore[no-untyped-def]
    """Of the points first..last: out = Σ_j q_ij² (y_i − y_j), total = Σ_{j≠i} q_ij; q_ij = 1 / (1 + |y_i − y_j|²)."""
    one = np.float32(1)
    for i in range(first, last):
        at_x, at_y = x[i], y[i]
        sum_x, sum_y, sum_q = np.float32(0), np.float32(0), np.float32(0)
        for j in range(len(x)):
            dx, dy = at_x - x[j], at_y - y[j]
            q = one / (one + dx * dx + dy * dy)
            sum_q += q
            q *= q
            sum_x += q * dx
            sum_y += q * dy
        out_x[i], out_y[i], total[i] = sum_x, sum_y, sum_q - one  # the point itself counted 1, and pushed nowhere


@_jit  # type: ignore[untyped-decorator, unused-ignore]
def pull(first, last, pointer, column, weight, x, y, out_x, out_y):  # type: ignore[no-untyped-def]
    """Of the points first..last: out = Σ_j p_ij q_ij (y_i − y_j) over the neighbors j of i (CSR)."""
    one = np.float32(1)
    for i in range(first, last):
        at_x, at_y = x[i], y[i]
        sum_x, sum_y = np.float32(0), np.float32(0)
        for e in range(pointer[i], pointer[i + 1]):
            j = column[e]
            dx, dy = at_x - x[j], at_y - y[j]
            w = weight[e] / (one + dx * dx + dy * dy)
            sum_x += w * dx
            sum_y += w * dy
        out_x[i], out_y[i] = sum_x, sum_y
