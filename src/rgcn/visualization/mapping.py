"""Many numbers a node become two, so that it has a place on a map."""

from collections.abc import Callable
from typing import Any

import numpy as np

from rgcn.errors import ConfigError, DataError
from rgcn.system.lazy import import_extra
from rgcn.visualization.neighborhoods import Floats
from rgcn.visualization.tsne import EARLY_STEPS, LATE_STEPS, tsne

METHOD_NAMES = {"tsne": "t\u2011SNE", "umap": "UMAP", "pca": "PCA"}
UMAP_NEIGHBORS = 15
# With fewer points there are no neighborhoods to keep: their main directions say all.
FEWEST = 8
STEPS = {"tsne": EARLY_STEPS + LATE_STEPS}


def two_dimensional(
    vectors: Floats, method: str = "tsne", seed: int = 0, on_step: Callable[[], None] | None = None
) -> Floats:
    """Places [n, 2] of vectors [n, width] on a map; the same seed gives the same bits on the same machine.

    tsne  neighbors stay neighbors as far as the plane allows; `on_step` is called `STEPS["tsne"]` times
    umap  likewise, by another loss; needs umap-learn
    pca   the two directions in which the vectors differ most: a shadow, true to large distances

    >>> places = two_dimensional(np.array([[0, 0, 0], [2, 0, 0], [4, 0, 0]], np.float32), "pca")
    >>> places[:, 0].tolist()
    [-2.0, 0.0, 2.0]
    """
    check_method(method)
    vectors = np.asarray(vectors, np.float32)
    if not np.isfinite(vectors).all():
        raise DataError("the model gives nodes vectors that are not finite: its training went wrong, train it again")
    if method == "pca" or len(vectors) < FEWEST:
        return _pca(vectors)
    if method == "tsne":
        return tsne(vectors, starting_places(vectors, 1e-4, seed), on_step)
    return _umap(vectors, seed)


def check_method(method: str) -> None:
    """Refuse, before anything is computed, a map that cannot be made here."""
    if method not in METHOD_NAMES:
        raise ConfigError(f"unknown map {method!r}; there are {', '.join(METHOD_NAMES)}")
    if method == "umap":
        _umap_package()


def _umap_package() -> Any:
    try:
        return import_extra("umap-learn", "look", "umap")
    except ConfigError as error:
        raise ConfigError(f"--map umap: {error}; --map tsne and --map pca need nothing") from error


def _pca(vectors: Floats) -> Floats:
    """X − mean = U S Vᵀ; places = (X − mean) V, the first two columns."""
    centered = vectors.astype(np.float64)
    centered -= centered.mean(axis=0)
    # Of V alone, from the small matrix XᵀX: the larger U is not needed.
    _, directions = np.linalg.eigh(centered.T @ centered)
    directions = directions[:, ::-1][:, :2]
    # A direction's sign is free, and would depend on the library: its largest number is made positive.
    largest = np.abs(directions).argmax(axis=0)
    signs = np.where(directions[largest, np.arange(directions.shape[1])] < 0, -1.0, 1.0)
    places = centered @ (directions * signs)
    return np.pad(places, ((0, 0), (0, 2 - places.shape[1]))).astype(np.float32)


def _umap(vectors: Floats, seed: int) -> Floats:
    made = _umap_package().UMAP(
        n_neighbors=min(UMAP_NEIGHBORS, len(vectors) - 1),
        init=starting_places(vectors, 10.0, seed),
        random_state=seed,
        n_jobs=1,
    )
    return np.ascontiguousarray(made.fit_transform(vectors), dtype=np.float32)


def starting_places(vectors: Floats, spread: float, seed: int) -> Floats:
    """The PCA as first places, so that large distances begin right and maps of two seeds look alike.

    A little noise: points that begin in one place would stay together for ever.
    """
    places = _pca(vectors)
    size = float(places.std(axis=0).max())
    noise = np.random.default_rng(seed).normal(scale=0.01, size=places.shape)
    return np.asarray(spread * (places / (size or 1.0) + noise), dtype=np.float32)
