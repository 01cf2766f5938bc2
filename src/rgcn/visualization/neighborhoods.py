"""The nearest of each point among all others, exactly, a few rows at a time; and how far a map keeps them."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

ROWS_AT_ONCE = 512

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]


class Nearest(NamedTuple):
    """The k nearest others of each point, nearest first: their numbers [n, k] and squared distances [n, k]."""

    numbers: Integers
    squared: NDArray[np.float64]


def nearest(points: Floats, k: int) -> Nearest:
    """
    >>> nearest(np.array([[0.0], [1.0], [3.0]], np.float32), 1).numbers.ravel().tolist()
    [1, 0, 1]
    """
    k = max(0, min(k, len(points) - 1))
    index = np.empty((len(points), k), dtype=np.int64)
    squared = np.empty((len(points), k))
    for rows, distance in squared_distances(points):
        distance[np.arange(len(rows)), rows] = np.inf
        some = np.argpartition(distance, k - 1, axis=1)[:, :k] if k else np.empty((len(rows), 0), dtype=np.int64)
        of_some = np.take_along_axis(distance, some, axis=1)
        order = np.lexsort((some, of_some), axis=1)
        index[rows] = np.take_along_axis(some, order, axis=1)
        squared[rows] = np.take_along_axis(of_some, order, axis=1)
    return Nearest(index, squared)


def squared_distances(points: Floats) -> Iterator[tuple[Integers, NDArray[np.float64]]]:
    """(rows [m], squared distances [m, n]), until all rows have come."""
    wide = points.astype(np.float64)
    wide -= wide.mean(axis=0)  # what is far from the origin would lose its small distances in the subtraction below
    norms = np.einsum("nd,nd->n", wide, wide)
    for first in range(0, len(points), ROWS_AT_ONCE):
        rows = np.arange(first, min(first + ROWS_AT_ONCE, len(points)))
        # |a − b|² = |a|² + |b|² − 2 a·b
        distance = norms[rows, None] + norms[None, :] - 2.0 * (wide[rows] @ wide.T)
        yield rows, np.maximum(distance, 0.0)


def trustworthiness(vectors: Floats, places: Floats, k: int = 15) -> float:
    """Whether those who are neighbors on the map are neighbors among the vectors: 1 always, 0.5 about by chance.

        T = 1 − 2 / (n k (2n − 3k − 1)) · Σ_i Σ_{j ∈ the k nearest of i on the map} max(0, rank_i(j) − k)

    where rank_i(j) is the place of j among all others by distance of the vectors (Venna and Kaski, 2001).

    >>> line = np.arange(40, dtype=np.float32)[:, None]
    >>> trustworthiness(line, np.hstack([line, 0 * line]), k=5)
    1.0
    """
    n = len(vectors)
    k = min(k, (n - 1) // 2)
    if k < 1:
        return 1.0
    on_map = nearest(places, k).numbers
    too_far = 0
    for rows, distance in squared_distances(vectors):
        distance[np.arange(len(rows)), rows] = np.inf
        of_near = np.take_along_axis(distance, on_map[rows], axis=1)
        ranks = np.stack([(distance < of_near[:, [i]]).sum(axis=1) for i in range(k)], axis=1) + 1
        too_far += int(np.maximum(0, ranks - k).sum())
    return 1.0 - 2.0 * too_far / (n * k * (2 * n - 3 * k - 1))


def same_class_share(points: Floats, classes: Integers, k: int = 10) -> float:
    """Of a point's k nearest, the mean share that is of its own class.

    >>> same_class_share(np.array([[0.0], [1.0], [8.0], [9.0]], np.float32), np.array([0, 0, 1, 1]), k=1)
    1.0
    """
    near = nearest(points, k).numbers
    return float((classes[near] == classes[:, None]).mean()) if near.size else 1.0
