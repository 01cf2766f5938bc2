"""How well true triples rank among all others: filtered, ties decided openly, in bounded memory."""

from rgcn.ranking.metrics import RankingReport, RankMetrics, rank_metrics, summarize
from rgcn.ranking.ranks import RankCounts, Ranks, rank_triples

__all__ = ["RankCounts", "RankMetrics", "RankingReport", "Ranks", "rank_metrics", "rank_triples", "summarize"]
