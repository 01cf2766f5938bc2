"""How far a map can be believed: figures that compare it with the vectors it was made of."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rgcn.look.nearest import nearest, squared_distances


def trustworthiness(vectors: NDArray[np.float32], places: NDArray[np.float32], k: int = 15) -> float:
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


def same_class_share(points: NDArray[np.float32], classes: NDArray[np.int64], k: int = 10) -> float:
    """Of a point's k nearest, the mean share that is of its own class.

    >>> same_class_share(np.array([[0.0], [1.0], [8.0], [9.0]], np.float32), np.array([0, 0, 1, 1]), k=1)
    1.0
    """
    near = nearest(points, k).numbers
    return float((classes[near] == classes[:, None]).mean()) if near.size else 1.0
