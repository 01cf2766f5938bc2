"""Which of equal scores comes first: by a hash of the names, so that no order of the input's rows decides it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from rgcn.graph import Vocabulary


def settle_ties(
    node: Tensor, score: Tensor, k: int, scores_of: Callable[[int], Tensor], candidates: Tensor, names: Vocabulary
) -> tuple[Tensor, Tensor, list[int]]:
    """The k best nodes of each row, best first and equal ones by their keys; their scores; the rows that had ties.

    Args:
        node, score: [q, k + 1] on the CPU, or fewer columns where there are no more nodes: the best, best first, in
            which one of several equal ones may have been left out. Where there are fewer answers, the rest is -inf.
        k: How many are wanted.
        scores_of: Gives the scores [n] of all candidates of a row, -inf for those that may be no answers.
        candidates: int64 [n]: the nodes that these scores belong to.
        names: Of all nodes.
    """
    tied = ((score[:, 1:] == score[:, :-1]) & torch.isfinite(score[:, 1:])).any(1)
    rows = torch.nonzero(tied).flatten().tolist()
    kept, values = node[:, :k].clone(), score[:, :k]
    for row in rows:
        if score.shape[1] > k and (last := score[row, k - 1]) == score[row, k] and torch.isfinite(last):
            better = int((values[row] > last).sum())
            equal = candidates[scores_of(row) == last.to(candidates.device)].cpu()
            kept[row, better:] = equal[_by_key(names, equal)[: k - better]]
        count = int(torch.isfinite(values[row]).sum())
        by_key = _by_key(names, kept[row, :count])
        kept[row, :count] = kept[row, by_key][torch.argsort(values[row, by_key], descending=True, stable=True)]
    return kept, values, rows


def _by_key(names: Vocabulary, node: Tensor) -> Tensor:
    """The order of nodes int64 [n] by the hashes of their names."""
    return torch.from_numpy(np.argsort(names.keys(node.numpy()), kind="stable"))
