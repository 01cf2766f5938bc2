"""How far a map can be believed, against the definitions written out."""

import numpy as np
import pytest

from rgcn.visualization import neighborhoods
from rgcn.visualization.neighborhoods import same_class_share, trustworthiness


def ranks(points):
    """[n, n]: the place of j among the others of i."""
    wide = points.astype(np.float64)
    distance = ((wide[:, None] - wide[None]) ** 2).sum(axis=2)
    np.fill_diagonal(distance, -1)
    return np.argsort(np.argsort(distance, axis=1, kind="stable"), axis=1, kind="stable")


@pytest.mark.parametrize("rows_at_once", [7, 512])
def test_trustworthiness_is_its_definition(monkeypatch, rows_at_once):
    monkeypatch.setattr(neighborhoods, "ROWS_AT_ONCE", rows_at_once)
    rng = np.random.default_rng(0)
    vectors, k = rng.normal(size=(50, 5)).astype(np.float32), 6
    places = np.ascontiguousarray(vectors[:, :2])
    n, high, low = 50, ranks(vectors), ranks(places)
    lost = sum(max(0, high[i, j] - k) for i in range(n) for j in range(n) if 1 <= low[i, j] <= k)
    expected = 1 - 2 * lost / (n * k * (2 * n - 3 * k - 1))
    assert trustworthiness(vectors, places, k) == pytest.approx(expected, abs=1e-12)
    assert 0.5 < expected < 1


def test_what_is_not_changed_is_trusted_and_what_is_shuffled_is_not():
    vectors = np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32)
    assert trustworthiness(vectors, 3 * vectors + 1) == 1.0
    assert trustworthiness(vectors, np.random.default_rng(1).permutation(vectors)) == pytest.approx(0.5, abs=0.05)
    assert trustworthiness(vectors[:1], vectors[:1]) == 1.0


def test_the_share_of_the_same_class():
    points = np.array([[0.0], [1.0], [1.5], [9.0]], np.float32)
    # nearest: 0 → 1, 1 → 2, 2 → 1, 3 → 2
    assert same_class_share(points, np.array([0, 0, 1, 1]), k=1) == 0.5
