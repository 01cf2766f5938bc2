"""Equal scores come in an order of their own, that of the names' hashes; but for rounding counts as equal."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rgcn.graph import Vocabulary
from rgcn.links.ties import settle_ties

NODES = 40
NAMES = Vocabulary([f"n{i}" for i in range(NODES)])
KEYS = NAMES.keys(np.arange(NODES)).tolist()


@pytest.mark.parametrize("k", [1, 4, 39, 40])
@pytest.mark.parametrize("seed", range(4))
def test_the_best_are_those_of_the_definition_however_nodes_are_numbered(k, seed):
    rng = np.random.default_rng(seed)
    exact = rng.integers(0, 6, (5, NODES)) - 8.0
    exact[rng.random((5, NODES)) < 0.3] = -np.inf
    exact[4] = rng.permutation(NODES)  # a row without ties
    candidates = torch.arange(NODES)
    for noise in (0.0, 1e-6):
        scores = torch.from_numpy(exact + rng.uniform(-noise, noise, exact.shape))
        best = torch.sort(scores, dim=1, descending=True)
        first = best.indices[:, : k + 1], best.values[:, : k + 1]
        node, score, rows = settle_ties(*first, k, scores.__getitem__, candidates, NAMES, 4e-6 if noise else 0.0)
        assert 4 not in rows
        for row in range(5):
            there = [n for n in range(NODES) if np.isfinite(exact[row, n])]
            wanted = sorted(there, key=lambda n: (-exact[row, n], KEYS[n]))[:k]
            found = node[row][torch.isfinite(score[row])].tolist()
            assert found == wanted
            assert score[row, : len(found)].tolist() == scores[row, found].tolist()


def test_scores_that_differ_by_more_than_rounding_keep_their_order():
    scores = -torch.arange(NODES, dtype=torch.float32)[None] * 1e-4 - 5.0
    node, _, rows = settle_ties(
        torch.arange(6)[None], scores[:, :6], 5, scores.__getitem__, torch.arange(NODES), NAMES, 4e-6
    )
    assert (node[0].tolist(), rows) == ([0, 1, 2, 3, 4], [])
