"""How well true triples rank among all others: filtered, ties decided openly, in bounded memory."""

from rgcn.ranking.metrics import Metrics, RankingReport, rank_metrics, summarize
from rgcn.ranking.ranks import Counts, Ranks, rank_triples

__all__ = [
    "Counts",
    "Metrics",
    "RankingReport",
    "Ranks",
    "rank_metrics",
    "rank_triples",
    "summarize",
]
