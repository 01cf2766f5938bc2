"""Relations that are alike."""

import numpy as np
import pytest

from rgcn.visualization.relation_similarity import clustered_order, cosines, likest_pairs


def test_a_zero_vector_is_like_nothing():
    assert cosines(np.array([[0, 0], [1, 0]], np.float32)).tolist() == [[0, 0], [0, 1]]


@pytest.mark.parametrize("seed", range(5))
def test_what_is_alike_stands_together(seed):
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.repeat(np.arange(4), 5))
    vectors = (np.eye(4)[group] + 0.1 * rng.normal(size=(20, 4))).astype(np.float32)
    order = clustered_order(cosines(vectors))
    assert sorted(order.tolist()) == list(range(20))
    assert (np.diff(group[order]) != 0).sum() == 3


def test_the_order_of_one_and_of_none():
    assert clustered_order(np.ones((1, 1))).tolist() == [0]
    assert clustered_order(np.ones((0, 0))).tolist() == []


def test_pairs_come_likest_first():
    similarity = cosines(np.array([[1, 0], [1, 0.1], [0, 1]], np.float32))
    pairs = likest_pairs(similarity, 2)
    assert [(one, other) for one, other, _ in pairs] == [(0, 1), (1, 2)]
    assert likest_pairs(np.ones((1, 1)), 5) == []
