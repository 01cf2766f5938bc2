"""Equal scores come in an order of their own, that of the names' hashes; but for rounding counts as equal."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rgcn.graph import Vocabulary
from rgcn.links import best_answers
from rgcn.links.best_answers import Marks, best_of

NODES = 40
NAMES = Vocabulary([f"n{i}" for i in range(NODES)])
KEYS = NAMES.keys(np.arange(NODES)).tolist()


def all_may_be_answers(rows):
    """Marks of so many questions of which nothing is known and nothing is forbidden."""
    nothing = torch.zeros(rows, dtype=torch.int64)
    return Marks(torch.empty(0, dtype=torch.int64), nothing, nothing, torch.zeros(rows, NODES, dtype=torch.bool))


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("k", [1, 4, 39, 40])
@pytest.mark.parametrize("seed", range(4))
def test_the_best_are_those_of_the_definition_however_nodes_are_numbered(k, seed, compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr(best_answers, "_compiled", lambda: None)
    rng = np.random.default_rng(seed)
    exact = rng.integers(0, 6, (5, NODES)) - 8.0
    exact[rng.random((5, NODES)) < 0.3] = -np.inf
    exact[4] = rng.permutation(NODES)  # a row without ties
    for noise in (0.0, 1e-6):
        scores = torch.from_numpy(exact + rng.uniform(-noise, noise, exact.shape))
        rounding = 4e-6 if noise else 0.0
        node, score, known = best_of(scores, k, all_may_be_answers(5), False, NAMES, rounding=rounding)
        assert not known.any()
        for row in range(5):
            there = [n for n in range(NODES) if np.isfinite(exact[row, n])]
            wanted = sorted(there, key=lambda n: (-exact[row, n], KEYS[n]))[:k]
            assert node[row].tolist() == [*wanted, *[-1] * (k - len(wanted))]
            assert score[row].tolist() == [*scores[row, wanted].tolist(), *[-np.inf] * (k - len(wanted))]


def test_scores_that_differ_by_more_than_rounding_keep_their_order():
    scores = -torch.arange(NODES, dtype=torch.float32)[None] * 1e-4 - 5.0
    node, _, _ = best_of(scores, 5, all_may_be_answers(1), False, NAMES, rounding=4e-6)
    assert node[0].tolist() == [0, 1, 2, 3, 4]
