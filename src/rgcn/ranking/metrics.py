"""What is reported of ranks: mean reciprocal rank, hits at k, mean rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rgcn.errors import ConfigError, DataError
from rgcn.ranking.ranks import Ranks, Ties

HITS_AT = (1, 3, 10)


@dataclass(frozen=True)
class RankMetrics:
    """Means over `count` ranked queries.

    mrr        mean of 1 / rank
    hits       {k: share of ranks ≤ k}
    mean_rank  mean of rank
    """

    count: int
    mrr: float
    hits: dict[int, float]
    mean_rank: float

    def as_dict(self) -> dict[str, float]:
        """Flat, ready for JSON: mrr, hits@1, ..., mean_rank, count."""
        hits = {f"hits@{k}": value for k, value in self.hits.items()}
        return {"mrr": self.mrr, **hits, "mean_rank": self.mean_rank, "count": self.count}


@dataclass(frozen=True)
class RankingReport:
    """Metrics over both directions together, each direction alone, and each relation that occurs (both directions)."""

    both: RankMetrics
    object: RankMetrics
    subject: RankMetrics
    by_relation: dict[int, RankMetrics]
    ties: Ties
    filtered: bool

    def as_dict(self) -> dict[str, Any]:
        """Nested plain values, ready for JSON."""
        return {
            "ties": self.ties,
            "filtered": self.filtered,
            **{name: getattr(self, name).as_dict() for name in ("both", "object", "subject")},
            "by_relation": {relation: metrics.as_dict() for relation, metrics in self.by_relation.items()},
        }


def rank_metrics(ranks: Tensor, hits_at: Sequence[int] = HITS_AT) -> RankMetrics:
    """Metrics of ranks [n], n ≥ 1. A k larger than the graph is harmless: every rank is a hit.

    >>> rank_metrics(torch.tensor([1.0, 2.0, 4.0, 4.0]), hits_at=(1, 3))
    RankMetrics(count=4, mrr=0.5, hits={1: 0.25, 3: 0.5}, mean_rank=2.75)
    """
    if ranks.numel() == 0:
        raise DataError("there are no ranks to take the mean of")
    return _by_group(ranks, torch.zeros_like(ranks, dtype=torch.int64), hits_at)[0]


def summarize(
    ranks: Ranks, *, ties: Ties = "realistic", filtered: bool = True, hits_at: Sequence[int] = HITS_AT
) -> RankingReport:
    """The metrics of ranks under one treatment of ties, raw or filtered."""
    by_object, by_subject = ranks.rank("object", ties, filtered), ranks.rank("subject", ties, filtered)
    every = torch.cat([by_object, by_subject])
    relation = ranks.triples[:, 1].cpu()
    return RankingReport(
        both=rank_metrics(every, hits_at),
        object=rank_metrics(by_object, hits_at),
        subject=rank_metrics(by_subject, hits_at),
        by_relation=_by_group(every, torch.cat([relation, relation]), hits_at),
        ties=ties,
        filtered=filtered,
    )


def _by_group(ranks: Tensor, group: Tensor, hits_at: Sequence[int]) -> dict[int, RankMetrics]:
    """Metrics of the ranks of each group that occurs, by group number."""
    if any(k < 1 for k in hits_at):
        raise ConfigError(f"hits at k need k of at least 1, not {list(hits_at)}")
    ranks = ranks.double()
    groups, place, sizes = torch.unique(group, return_inverse=True, return_counts=True)
    columns = [1.0 / ranks, ranks, *[(ranks <= k).double() for k in hits_at]]
    sums = torch.zeros(len(groups), len(columns), dtype=torch.float64).index_add_(0, place, torch.stack(columns, dim=1))
    means = (sums / sizes[:, None]).tolist()
    return {
        number: RankMetrics(size, mrr, dict(zip(hits_at, hits, strict=True)), mean_rank)
        for number, size, (mrr, mean_rank, *hits) in zip(groups.tolist(), sizes.tolist(), means, strict=True)
    }
