"""Which relations a model treats alike."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]


class Pair(NamedTuple):
    """Two relations by number, and the cosine of the angle between their vectors."""

    one: int
    other: int
    cosine: float


def cosines(vectors: Floats) -> NDArray[np.float64]:
    """[n, n]: a·b / |a||b|; 0 where a vector is zero.

    >>> cosines(np.array([[1, 0], [2, 0], [0, 3]], np.float32)).round(2).tolist()
    [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    wide = vectors.astype(np.float64)
    size = np.linalg.norm(wide, axis=1, keepdims=True)
    unit = wide / np.where(size > 0, size, 1.0)
    return np.asarray(np.clip(unit @ unit.T, -1.0, 1.0))


def clustered_order(similarity: NDArray[np.float64]) -> Integers:
    """An order in which what is alike stands together: average linkage, each two clusters joined at their likest ends.

    >>> s = np.array([[1.0, 0.1, 0.9], [0.1, 1.0, 0.2], [0.9, 0.2, 1.0]])
    >>> clustered_order(s).tolist()
    [0, 2, 1]
    """
    clusters = [[i] for i in range(len(similarity))]
    between = similarity.astype(np.float64).copy()
    np.fill_diagonal(between, -np.inf)
    while len(clusters) > 1:
        a, b = sorted(divmod(int(between.argmax()), len(clusters)))
        sizes = len(clusters[a]), len(clusters[b])
        joined = (sizes[0] * between[a] + sizes[1] * between[b]) / sum(sizes)
        between[a], between[:, a] = joined, joined
        between[a, a] = -np.inf
        between = np.delete(np.delete(between, b, axis=0), b, axis=1)
        clusters[a] = _joined(clusters[a], clusters.pop(b), similarity)
    return np.array(clusters[0] if clusters else [], dtype=np.int64)


def _joined(left: list[int], right: list[int], similarity: NDArray[np.float64]) -> list[int]:
    """Two rows end to end, either turned around if its other end fits better."""
    ways = [(one, other) for one in (left, left[::-1]) for other in (right, right[::-1])]
    one, other = max(ways, key=lambda way: similarity[way[0][-1], way[1][0]])
    return one + other


def likest_pairs(similarity: NDArray[np.float64], most: int) -> list[Pair]:
    """The pairs with the largest cosines, largest first."""
    one, other = np.triu_indices(len(similarity), k=1)
    value = similarity[one, other]
    best = np.argsort(-value, kind="stable")[:most]
    return [Pair(int(one[i]), int(other[i]), float(value[i])) for i in best.tolist()]
