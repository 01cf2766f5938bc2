"""Compare PCA with the singular value decomposition and t-SNE with its formulas; test trustworthiness."""

import importlib.util
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from rgcn.errors import ConfigError, DataError
from rgcn.visualization import projection
from rgcn.visualization.projection import nearest, project_to_plane, same_class_share, trustworthiness


def blobs(each=30, width=6, seed=0):
    """Return three well-separated groups."""
    rng = np.random.default_rng(seed)
    centers = 8 * rng.normal(size=(3, width))
    classes = np.repeat(np.arange(3), each)
    return (centers[classes] + rng.normal(size=(3 * each, width))).astype(np.float32), classes


def all_distances(points):
    wide = points.astype(np.float64)
    return ((wide[:, None] - wide[None]) ** 2).sum(axis=2)


@pytest.mark.parametrize("k", [1, 5, 40])
def test_nearest_are_those_of_the_whole_matrix(k):
    points, _ = blobs()
    distance = all_distances(points)
    np.fill_diagonal(distance, np.inf)
    found = nearest(points, k)
    np.testing.assert_allclose(found.squared, np.sort(distance, axis=1)[:, :k], rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(found.numbers, np.argsort(distance, axis=1)[:, :k])


def test_nearest_among_few():
    assert nearest(np.zeros((1, 3), np.float32), 4).numbers.shape == (1, 0)
    assert nearest(np.zeros((3, 3), np.float32), 4).numbers.tolist() == [[1, 2], [0, 2], [0, 1]]


def test_pca_projects_onto_the_first_singular_vectors():
    vectors, _ = blobs()
    centered = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    left, size, _ = np.linalg.svd(centered, full_matrices=False)
    np.testing.assert_allclose(
        np.abs(project_to_plane(vectors, "pca")), np.abs(left * size)[:, :2], rtol=1e-4, atol=1e-4
    )


def test_pca_of_vectors_of_a_single_number():
    places = project_to_plane(np.array([[1.0], [3.0]], np.float32), "pca")
    assert places.tolist() == [[-1.0, 0.0], [1.0, 0.0]]


def test_attraction_is_symmetric_and_each_point_has_the_perplexity_asked_for():
    vectors, _ = blobs()
    found = projection.attraction(vectors, 10.0)
    dense = np.zeros((len(vectors), len(vectors)))
    for row in range(len(vectors)):
        columns = slice(found.pointer[row], found.pointer[row + 1])
        dense[row, found.column[columns]] = found.weight[columns]
    np.testing.assert_allclose(dense.sum(), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(dense, dense.T)
    conditional = projection._conditional(nearest(vectors, 31).squared, 10.0)
    entropy = -(conditional * np.log(np.maximum(conditional, 1e-300))).sum(axis=1)
    np.testing.assert_allclose(np.exp(entropy), 10.0, rtol=1e-6)


def test_the_gradient_is_the_formula_over_all_pairs():
    vectors, _ = blobs(each=20)
    n = len(vectors)
    neighbors = projection.attraction(vectors, 8.0)
    place = np.random.default_rng(1).normal(scale=3.0, size=(2, n)).astype(np.float32)
    p = np.zeros((n, n))
    for row in range(n):
        columns = slice(neighbors.pointer[row], neighbors.pointer[row + 1])
        p[row, neighbors.column[columns]] = neighbors.weight[columns]
    y = place.T.astype(np.float64)
    q = 1 / (1 + all_distances(place.T))
    np.fill_diagonal(q, 0)
    apart = y[:, None] - y[None]
    expected = 4 * ((((12.0 * p - q / q.sum()) * q)[:, :, None] * apart).sum(axis=1) + projection.GRAVITY / n * y)
    with ThreadPoolExecutor(2) as pool:
        found = projection._gradient(pool, neighbors, place, 12.0)
    np.testing.assert_allclose(found.T, expected, rtol=2e-4, atol=1e-6 * np.abs(expected).max())


def test_tsne_keeps_groups_together():
    vectors, classes = blobs()
    assert same_class_share(project_to_plane(vectors, "tsne"), classes) == 1.0


def test_the_same_seed_gives_the_same_bits_on_any_number_of_threads(restore_threads):
    vectors, _ = blobs()
    maps = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        maps.append(project_to_plane(vectors, "tsne", seed=4).tobytes())
    assert maps[0] == maps[1]
    assert project_to_plane(vectors, "tsne", seed=5).tobytes() != maps[0]


def test_equal_vectors_do_not_stop_a_map():
    vectors, _ = blobs(each=10)
    vectors[:20] = vectors[0]
    for given in (vectors, np.ones((12, 3), np.float32)):
        places = project_to_plane(given, "tsne")
        assert np.isfinite(places).all()
        assert len(np.unique(places, axis=0)) == len(places)


@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_few_points_can_be_projected(n):
    places = project_to_plane(np.random.default_rng(0).normal(size=(n, 4)).astype(np.float32), "tsne")
    assert places.shape == (n, 2)
    assert np.isfinite(places).all()


def test_steps_are_reported():
    steps = []
    project_to_plane(blobs(each=5)[0], "tsne", on_step=lambda: steps.append(1))
    assert len(steps) == projection.STEPS["tsne"]


def test_an_unknown_map_and_broken_vectors_are_refused():
    with pytest.raises(ConfigError, match="tsne, umap, pca"):
        project_to_plane(blobs()[0], "isomap")
    with pytest.raises(DataError, match="not finite"):
        project_to_plane(np.full((9, 2), np.nan, np.float32))


def test_umap_without_its_package_says_what_to_do(monkeypatch):
    def missing(package, extra, module=None):
        raise ConfigError(f"{extra} needs the package {package}: pip install 'rgcn[{extra}]'")

    monkeypatch.setattr(projection, "import_extra", missing)
    with pytest.raises(ConfigError, match=r"rgcn\[look\].*--map tsne and --map pca need nothing"):
        projection.check_method("umap")


@pytest.mark.skipif(importlib.util.find_spec("umap") is None, reason="umap-learn is not installed: rgcn[look]")
def test_umap_keeps_groups_together():
    vectors, classes = blobs()
    one, two = (project_to_plane(vectors, "umap", seed=3) for _ in range(2))
    assert same_class_share(one, classes) > 0.95
    np.testing.assert_array_equal(one, two)


# -- how far a map can be believed, against the definitions written out -------------------------------------


def ranks(points):
    """Return [n, n]: the rank of j among the neighbors of i."""
    wide = points.astype(np.float64)
    distance = ((wide[:, None] - wide[None]) ** 2).sum(axis=2)
    np.fill_diagonal(distance, -1)
    return np.argsort(np.argsort(distance, axis=1, kind="stable"), axis=1, kind="stable")


@pytest.mark.parametrize("rows_at_once", [7, 512])
def test_trustworthiness_is_its_definition(monkeypatch, rows_at_once):
    monkeypatch.setattr(projection, "BLOCK_ROWS", rows_at_once)
    rng = np.random.default_rng(0)
    vectors, k = rng.normal(size=(50, 5)).astype(np.float32), 6
    places = np.ascontiguousarray(vectors[:, :2])
    n, high, low = 50, ranks(vectors), ranks(places)
    lost = sum(max(0, high[i, j] - k) for i in range(n) for j in range(n) if 1 <= low[i, j] <= k)
    expected = 1 - 2 * lost / (n * k * (2 * n - 3 * k - 1))
    assert trustworthiness(vectors, places, k) == pytest.approx(expected, abs=1e-12)
    assert 0.5 < expected < 1


def test_trustworthiness_is_high_for_unchanged_and_low_for_shuffled_points():
    vectors = np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32)
    assert trustworthiness(vectors, 3 * vectors + 1) == 1.0
    assert trustworthiness(vectors, np.random.default_rng(1).permutation(vectors)) == pytest.approx(0.5, abs=0.05)
    assert trustworthiness(vectors[:1], vectors[:1]) == 1.0


def test_the_share_of_the_same_class():
    points = np.array([[0.0], [1.0], [1.5], [9.0]], np.float32)
    # nearest: 0 → 1, 1 → 2, 2 → 1, 3 → 2
    assert same_class_share(points, np.array([0, 0, 1, 1]), k=1) == 0.5
