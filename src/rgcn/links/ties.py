"""Which of equal scores comes first: by a hash of the names, so that no order of the input's rows decides it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from rgcn.graph import Vocabulary


def settle_ties(
    node: Tensor,
    score: Tensor,
    k: int,
    scores_of: Callable[[int], Tensor],
    candidates: Tensor,
    names: Vocabulary,
    rounding: float,
) -> tuple[Tensor, Tensor, list[int]]:
    """The k best nodes of each row, equal ones by their names' hashes; their scores; and which rows had equal ones.

    Args:
        node, score: [q, k + 1] on the CPU, or fewer columns where there are no more nodes: the best, best first, in
            which one of several equal ones may have been left out. Where there are fewer answers, the rest is -inf.
        k: How many are wanted.
        scores_of: Gives the scores [n] of all candidates of a row, -inf for those that may be no answers.
        candidates: int64 [n]: the nodes that these scores belong to.
        names: Of all nodes.
        rounding: Of two scores that differ by less than this share of them, none is higher (`Scorer.rounding`).
    """
    rows = torch.nonzero((~_falls(score, rounding) & torch.isfinite(score[:, 1:])).any(1)).flatten().tolist()
    node, score = node[:, :k].clone(), score[:, :k].clone()
    for row in rows:
        values, column = torch.sort(scores_of(row), descending=True, stable=True)
        level = torch.cumsum(_falls(values.cpu(), rounding), 0)  # of the second value and all after it
        real, last = int(torch.isfinite(values).sum()), min(k, len(values)) - 1
        count = min(real, 1 + int((level <= (level[last - 1] if last else 0)).sum()))
        some = candidates[column[:count]].cpu()
        levels = np.append(0, level[: count - 1].numpy())
        order = torch.from_numpy(np.lexsort((names.keys(some.numpy()), levels))[:k])
        node[row, : len(order)], score[row, : len(order)] = some[order], values[:count].cpu()[order]
    return node, score, rows


def best_first(node: Tensor, score: Tensor, names: Vocabulary, rounding: float) -> Tensor:
    """int64 [q, n]: the columns of nodes and scores [q, n], on the CPU, best first; arguments as for `settle_ties`.

    A node of -1 stands for none; its score is -inf.
    """
    by_score = torch.argsort(score, dim=1, descending=True, stable=True)
    level = torch.cumsum(_falls(score.gather(1, by_score), rounding), 1)
    sorted_nodes = node.gather(1, by_score).clamp(min=0)
    keys = names.keys(sorted_nodes.flatten().numpy()).reshape(node.shape)
    order = np.lexsort((keys, np.pad(level.numpy(), ((0, 0), (1, 0)))))
    return by_score.gather(1, torch.from_numpy(order))


def _falls(score: Tensor, rounding: float) -> Tensor:
    """bool [..., n - 1]: whether each score but the first is lower than the one before it."""
    before, after = score[..., :-1], score[..., 1:]
    return before - after > rounding * before.abs().clamp(min=1.0)
