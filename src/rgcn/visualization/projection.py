"""Project vectors to two dimensions (PCA, t-SNE, UMAP), and measure how well the projection preserves neighborhoods.

t-SNE is that of van der Maaten and Hinton (2008). Points i and j attract each other as much as they are neighbors among
the vectors (p_ij), and all points repel each other (q_ij). The gradient of KL(P ‖ Q) in the positions y is

    4 Σ_j (p_ij − q_ij / Z) q_ij (y_i − y_j),    q_ij = 1 / (1 + |y_i − y_j|²),    Z = Σ_{i≠j} q_ij

plus a weak attraction to the center. A map has some thousands of points. For these the exact, vectorized sum over all
pairs takes less time than an approximation by a tree (measured in docs/reference/embeddings.md). P is stored for the
nearest neighbors only, as in other implementations.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numba
import numpy as np
import torch
from numpy.typing import NDArray

from rgcn.errors import ConfigError, DataError
from rgcn.system.lazy import import_extra

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]

METHOD_NAMES = {"tsne": "t\u2011SNE", "umap": "UMAP", "pca": "PCA"}
UMAP_NEIGHBORS = 15
MIN_POINTS = 8  # fewer points have no neighborhoods to preserve: PCA is used
PERPLEXITY = 30.0
# At first attraction is twelve times as strong, so that clusters form before they find their positions.
EARLY_STEPS, LATE_STEPS, EXAGGERATION = 250, 500, 12.0
EARLY_MOMENTUM, MOMENTUM, MIN_GAIN = 0.5, 0.8, 0.01
STEPS = {"tsne": EARLY_STEPS + LATE_STEPS}
# A weak attraction to the center: groups without common neighbors would drift apart with every step. Neighborhoods are
# as good with it as without (docs/reference/embeddings.md).
GRAVITY = 1e-4
BISECTIONS = 64  # steps of the search for a bandwidth
NUM_PIECES = 16  # of the points, for threads
BLOCK_ROWS = 512


def project_to_plane(
    vectors: Floats, method: str = "tsne", seed: int = 0, on_step: Callable[[], None] | None = None
) -> Floats:
    """Project vectors to two dimensions. The same seed gives the same bits on the same machine.

    Args:
        vectors: [n, width].
        method: "tsne" preserves neighborhoods. "umap" does so too, with another loss; it needs umap-learn. "pca"
            shows the two directions of the largest variance and preserves large distances.
        seed: Seed of the initial positions.
        on_step: Called `STEPS[method]` times.

    Returns:
        Positions [n, 2].

    Raises:
        ConfigError: If the method is unknown, or its package is missing.
        DataError: If a vector is not finite.

    >>> places = project_to_plane(np.array([[0, 0, 0], [2, 0, 0], [4, 0, 0]], np.float32), "pca")
    >>> places[:, 0].tolist()
    [-2.0, 0.0, 2.0]
    """
    package = check_method(method)
    vectors = np.asarray(vectors, np.float32)
    if not np.isfinite(vectors).all():
        raise DataError("the vectors of the nodes are not finite: the training has diverged, train the model again")
    if method == "pca" or len(vectors) < MIN_POINTS:
        return _pca(vectors)
    if method == "tsne":
        return _tsne(vectors, initial_places(vectors, 1e-4, seed), on_step)
    start, near = initial_places(vectors, 10.0, seed), min(UMAP_NEIGHBORS, len(vectors) - 1)
    reducer = package.UMAP(n_neighbors=near, init=start, random_state=seed, n_jobs=1)
    return np.ascontiguousarray(reducer.fit_transform(vectors), dtype=np.float32)


def check_method(method: str) -> Any:
    """Return the package that a method needs, or None; call it before anything is computed.

    Raises:
        ConfigError: If the method is unknown, or its package is missing.
    """
    if method not in METHOD_NAMES:
        raise ConfigError(f"unknown map {method!r}; choose one of {', '.join(METHOD_NAMES)}")
    if method != "umap":
        return None
    try:
        return import_extra("umap-learn", "look", "umap")
    except ConfigError as error:
        raise ConfigError(f"--map umap: {error}; --map tsne and --map pca need nothing") from error


def initial_places(vectors: Floats, spread: float, seed: int) -> Floats:
    """Return initial positions [n, 2]: the PCA, so that large distances are right and maps of two seeds look alike.

    Noise is added, because points with the same position would stay together forever.

    Args:
        vectors: [n, width].
        spread: Standard deviation of the positions.
        seed: Seed of the noise.
    """
    places = _pca(vectors)
    size = float(places.std(axis=0).max())
    noise = np.random.default_rng(seed).normal(scale=0.01, size=places.shape)
    return np.asarray(spread * (places / (size or 1.0) + noise), dtype=np.float32)


def _pca(vectors: Floats) -> Floats:
    """Return the first two columns of (X − mean) V, with X − mean = U S Vᵀ."""
    centered = vectors.astype(np.float64)
    centered -= centered.mean(axis=0)
    # V follows from the small matrix XᵀX, without the larger U.
    directions = np.linalg.eigh(centered.T @ centered)[1][:, ::-1][:, :2]
    # The sign of a direction is arbitrary and depends on the library: its largest entry is made positive.
    largest = np.abs(directions).argmax(axis=0)
    signs = np.where(directions[largest, np.arange(directions.shape[1])] < 0, -1.0, 1.0)
    places = centered @ (directions * signs)
    return np.pad(places, ((0, 0), (0, 2 - places.shape[1]))).astype(np.float32)


# -- t-SNE -------------------------------------------------------------------------------------------------


class Attraction(NamedTuple):
    """The symmetric p_ij of neighbors as CSR; they sum to 1."""

    pointer: NDArray[np.int64]
    column: NDArray[np.int64]
    weight: Floats


def _tsne(vectors: Floats, start: Floats, on_step: Callable[[], None] | None) -> Floats:
    """Run t-SNE for vectors [n, width], n ≥ 4, from small positions [n, 2]; the same bits on any number of threads."""
    n = len(vectors)
    neighbors = attraction(vectors, min(PERPLEXITY, (n - 1) / 3))
    place, speed, gain = start.T.copy(), np.zeros((2, n), np.float32), np.ones((2, n), np.float32)
    rate = np.float32(max(n / EXAGGERATION, 50.0))
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        for step in range(EARLY_STEPS + LATE_STEPS):
            early = step < EARLY_STEPS
            slope = _gradient(pool, neighbors, place, EXAGGERATION if early else 1.0)
            # The gain of a coordinate grows while it keeps its direction, and shrinks when it turns around.
            keeps_direction = (speed > 0) != (slope > 0)
            gain = np.where(keeps_direction, gain + np.float32(0.2), gain * np.float32(0.8))
            gain = np.maximum(gain, np.float32(MIN_GAIN))
            speed = np.float32(EARLY_MOMENTUM if early else MOMENTUM) * speed - rate * gain * slope
            place += speed
            place -= place.mean(axis=1, keepdims=True)
            if on_step is not None:
                on_step()
    return np.ascontiguousarray(place.T)


def _gradient(pool: ThreadPoolExecutor, neighbors: Attraction, place: Floats, exaggeration: float) -> Floats:
    n = place.shape[1]
    pushed, pulled, total = np.empty_like(place), np.empty_like(place), np.empty(n, np.float32)

    def piece(number: int) -> None:
        first, last = n * number // NUM_PIECES, n * (number + 1) // NUM_PIECES
        forces(first, last, *neighbors, *place, *pushed, *pulled, total)

    list(pool.map(piece, range(NUM_PIECES)))
    z = max(float(total.sum(dtype=np.float64)), 1e-12)
    away = np.float32(exaggeration) * pulled - pushed / np.float32(z)
    return np.asarray(np.float32(4.0) * (away + np.float32(GRAVITY / n) * place))


def attraction(vectors: Floats, perplexity: float) -> Attraction:
    """Return p_ij = (p_j|i + p_i|j) / 2n of neighbors, where each point's p_j|i has the same perplexity."""
    n = len(vectors)
    near = nearest(vectors, int(3 * perplexity) + 1)
    conditional = _conditional(near.squared, perplexity)
    one, other = np.repeat(np.arange(n), near.numbers.shape[1]), near.numbers.ravel()
    # One number for each pair, so that both directions are added.
    pair, where = np.unique(np.concatenate([one * n + other, other * n + one]), return_inverse=True)
    weight = np.bincount(where, np.tile(conditional.ravel(), 2)) / (2 * n)
    pointer = np.searchsorted(pair, np.arange(n + 1) * n)
    return Attraction(pointer.astype(np.int64), pair % n, weight.astype(np.float32))


def _conditional(squared: NDArray[np.float64], perplexity: float) -> NDArray[np.float64]:
    """Return p_j|i ∝ exp(−β_i |x_i − x_j|²) [n, k], with β_i such that the entropy is log(perplexity)."""
    scale = float(squared.mean())
    away = (squared - squared[:, :1]) / (scale if scale > 0 else 1.0)
    low, high, beta = np.zeros(len(away)), np.full(len(away), np.inf), np.ones(len(away))
    for _ in range(BISECTIONS):
        weight = np.exp(-away * beta[:, None])
        total = weight.sum(axis=1)
        entropy = np.log(total) + beta * (away * weight).sum(axis=1) / total
        too_flat = entropy > np.log(perplexity)
        low, high = np.where(too_flat, beta, low), np.where(too_flat, high, beta)
        beta = np.where(np.isinf(high), beta * 2, (low + high) / 2)
    weight = np.exp(-away * beta[:, None])
    return np.asarray(weight / weight.sum(axis=1, keepdims=True))


# Sums may be reordered, for vector instructions. The order is the same in every call on one machine.
_jit: Any = numba.njit(
    cache=True, nogil=True, error_model="numpy", fastmath={"arcp", "contract", "nsz", "reassoc"}, boundscheck=False
)


@_jit  # type: ignore[untyped-decorator, unused-ignore]
def forces(first, last, pointer, column, weight, x, y, push_x, push_y, pull_x, pull_y, total):  # type: ignore[no-untyped-def]
    """Compute the forces on the points first .. last, with q_ij = 1 / (1 + |y_i − y_j|²).

    push = Σ_j q_ij² (y_i − y_j) over all points j, total = Σ_{j≠i} q_ij, and pull = Σ_j p_ij q_ij (y_i − y_j) over the
    neighbors j of i, which are given as CSR.
    """
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
        push_x[i], push_y[i], total[i] = sum_x, sum_y, sum_q - one  # the point itself contributed q = 1 and no force
        sum_x, sum_y = np.float32(0), np.float32(0)
        for e in range(pointer[i], pointer[i + 1]):
            dx, dy = at_x - x[column[e]], at_y - y[column[e]]
            w = weight[e] / (one + dx * dx + dy * dy)
            sum_x += w * dx
            sum_y += w * dy
        pull_x[i], pull_y[i] = sum_x, sum_y


# -- neighborhoods -----------------------------------------------------------------------------------------


class Nearest(NamedTuple):
    """The k nearest other points of each point, nearest first: indices [n, k] and squared distances [n, k]."""

    numbers: Integers
    squared: NDArray[np.float64]


def nearest(points: Floats, k: int) -> Nearest:
    """Return the exact k nearest other points of each point.

    >>> nearest(np.array([[0.0], [1.0], [3.0]], np.float32), 1).numbers.ravel().tolist()
    [1, 0, 1]
    """
    k = max(0, min(k, len(points) - 1))
    result = Nearest(np.empty((len(points), k), np.int64), np.empty((len(points), k)))
    for rows, distance in squared_distances(points):
        some = np.argpartition(distance, max(0, k - 1), axis=1)[:, :k]
        of_some = np.take_along_axis(distance, some, axis=1)
        order = np.lexsort((some, of_some), axis=1)
        result.numbers[rows] = np.take_along_axis(some, order, axis=1)
        result.squared[rows] = np.take_along_axis(of_some, order, axis=1)
    return result


def squared_distances(points: Floats) -> Iterator[tuple[Integers, NDArray[np.float64]]]:
    """Yield (rows [m], squared distances [m, n]) in blocks; the distance of a point to itself is infinite."""
    wide = points.astype(np.float64)
    wide -= wide.mean(axis=0)  # against cancellation in the subtraction below
    norms = np.einsum("nd,nd->n", wide, wide)
    for first in range(0, len(points), BLOCK_ROWS):
        rows = np.arange(first, min(first + BLOCK_ROWS, len(points)))
        # |a − b|² = |a|² + |b|² − 2 a·b
        distance = np.maximum(norms[rows, None] + norms[None, :] - 2.0 * (wide[rows] @ wide.T), 0.0)
        distance[np.arange(len(rows)), rows] = np.inf
        yield rows, distance


def trustworthiness(vectors: Floats, places: Floats, k: int = 15) -> float:
    """Return to what extent neighbors on the map are neighbors among the vectors: 1 is perfect, 0.5 about chance.

        T = 1 − 2 / (n k (2n − 3k − 1)) · Σ_i Σ_{j ∈ the k nearest of i on the map} max(0, rank_i(j) − k)

    where rank_i(j) is the rank of j among all others by distance of the vectors (Venna and Kaski, 2001).

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
        of_near = np.take_along_axis(distance, on_map[rows], axis=1)
        ranks = np.stack([(distance < of_near[:, [i]]).sum(axis=1) for i in range(k)], axis=1) + 1
        too_far += int(np.maximum(0, ranks - k).sum())
    return 1.0 - 2.0 * too_far / (n * k * (2 * n - 3 * k - 1))


def same_class_share(points: Floats, classes: Integers, k: int = 10) -> float:
    """Return the mean share of the k nearest points that have the class of the point.

    >>> same_class_share(np.array([[0.0], [1.0], [8.0], [9.0]], np.float32), np.array([0, 0, 1, 1]), k=1)
    1.0
    """
    near = nearest(points, k).numbers
    return float((classes[near] == classes[:, None]).mean()) if near.size else 1.0
