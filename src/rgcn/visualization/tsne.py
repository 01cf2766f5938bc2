"""t-SNE: a map on which neighbors stay neighbors (van der Maaten and Hinton, 2008).

Points i and j attract each other as much as they are neighbors among the vectors (p_ij), and all push each other apart
(q_ij). The gradient of KL(P ‖ Q) in the places y is

    4 Σ_j (p_ij − q_ij / Z) q_ij (y_i − y_j),    q_ij = 1 / (1 + |y_i − y_j|²),    Z = Σ_{i≠j} q_ij

to which a weak pull to the middle is added.

A map has some thousands of points, and for these the exact sum over all pairs, vectorized, takes less time than a tree
that approximates it (docs/looking.md has the figures). P is kept for the nearest neighbors only, as everywhere.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numba
import numpy as np
import torch
from numpy.typing import NDArray

from rgcn.visualization.neighborhoods import Floats, nearest

PERPLEXITY = 30.0
# First neighbors pull twelve times as hard: groups find together before they find their places.
EARLY_STEPS, LATE_STEPS, EXAGGERATION = 250, 500, 12.0
EARLY_MOMENTUM, MOMENTUM, LEAST_GAIN = 0.5, 0.8, 0.01
# All are pulled a little to the middle: groups that have no neighbor in common would drift apart as long as there are
# steps, and leave an empty map. Neighborhoods are as good with it as without (docs/looking.md).
GRAVITY = 1e-4
# Steps of the search for a bandwidth: each halves what is left.
HALVINGS = 64
PIECES = 16


class Attraction(NamedTuple):
    """p_ij of neighbors, symmetric, all together 1, as CSR."""

    pointer: NDArray[np.int64]
    column: NDArray[np.int64]
    weight: Floats


def tsne(vectors: Floats, start: Floats, on_step: Callable[[], None] | None = None) -> Floats:
    """Places [n, 2] of vectors [n, width], n ≥ 4, from tiny ones [n, 2]; the same bits on any number of threads."""
    n = len(vectors)
    neighbors = attraction(vectors, min(PERPLEXITY, (n - 1) / 3))
    place, speed, gain = start.T.copy(), np.zeros((2, n), np.float32), np.ones((2, n), np.float32)
    rate = np.float32(max(n / EXAGGERATION, 50.0))
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        for step in range(EARLY_STEPS + LATE_STEPS):
            early = step < EARLY_STEPS
            slope = _gradient(pool, neighbors, place, EXAGGERATION if early else 1.0)
            # A coordinate that goes on in its direction gains speed slowly; one that turned around takes shorter steps.
            onward = (speed > 0) != (slope > 0)
            gain = np.maximum(np.where(onward, gain + np.float32(0.2), gain * np.float32(0.8)), np.float32(LEAST_GAIN))
            speed = np.float32(EARLY_MOMENTUM if early else MOMENTUM) * speed - rate * gain * slope
            place += speed
            place -= place.mean(axis=1, keepdims=True)
            if on_step is not None:
                on_step()
    return np.ascontiguousarray(place.T)


def _gradient(pool: ThreadPoolExecutor, neighbors: Attraction, place: Floats, exaggeration: float) -> Floats:
    n = place.shape[1]
    pushed, pulled, total = np.empty((2, n), np.float32), np.empty((2, n), np.float32), np.empty(n, np.float32)
    cuts = [n * piece // PIECES for piece in range(PIECES + 1)]

    def piece(number: int) -> None:
        own = cuts[number], cuts[number + 1]
        push(*own, place[0], place[1], pushed[0], pushed[1], total)
        pull(*own, *neighbors, place[0], place[1], pulled[0], pulled[1])

    list(pool.map(piece, range(PIECES)))
    z = max(float(total.sum(dtype=np.float64)), 1e-12)
    away = np.float32(exaggeration) * pulled - pushed / np.float32(z)
    return np.asarray(np.float32(4.0) * (away + np.float32(GRAVITY / n) * place))


def attraction(vectors: Floats, perplexity: float) -> Attraction:
    """How much neighbors attract each other: p_ij = (p_j|i + p_i|j) / 2n, each point's p_j|i of the same perplexity."""
    n = len(vectors)
    near = nearest(vectors, int(3 * perplexity) + 1)
    conditional = _conditional(near.squared, perplexity)
    one, other = np.repeat(np.arange(n), near.numbers.shape[1]), near.numbers.ravel()
    # Both directions of each pair under one number, so that equal pairs meet.
    pair, where = np.unique(np.concatenate([one * n + other, other * n + one]), return_inverse=True)
    weight = np.bincount(where, np.tile(conditional.ravel(), 2)) / (2 * n)
    pointer = np.searchsorted(pair, np.arange(n + 1) * n)
    return Attraction(pointer.astype(np.int64), pair % n, weight.astype(np.float32))


def _conditional(squared: NDArray[np.float64], perplexity: float) -> NDArray[np.float64]:
    """p_j|i ∝ exp(−β_i |x_i − x_j|²) [n, k], β_i such that their entropy is log(perplexity)."""
    scale = float(squared.mean())
    away = (squared - squared[:, :1]) / (scale if scale > 0 else 1.0)
    low, high, beta = np.zeros(len(away)), np.full(len(away), np.inf), np.ones(len(away))
    for _ in range(HALVINGS):
        weight = np.exp(-away * beta[:, None])
        total = weight.sum(axis=1)
        entropy = np.log(total) + beta * (away * weight).sum(axis=1) / total
        too_flat = entropy > np.log(perplexity)
        low, high = np.where(too_flat, beta, low), np.where(too_flat, high, beta)
        beta = np.where(np.isinf(high), beta * 2, (low + high) / 2)
    weight = np.exp(-away * beta[:, None])
    return np.asarray(weight / weight.sum(axis=1, keepdims=True))


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
