"""A link predictor on one split: every rank, exactly."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from rgcn.answers.calibration import AnsweringModel
from rgcn.graph import KnowledgeGraph
from rgcn.known import repeated_across_splits, splits_up_to
from rgcn.pages.reporting import OnProgress
from rgcn.ranking import RankingReport, Ranks, summarize
from rgcn.tasks.link_predictor import ScoredTriple

SHOWN = 10
# Upper ends of the bins of ranks: fine where it matters, then by orders of magnitude.
RANK_BINS = (1, 3, 10, 100, 1_000, 10_000, 100_000)


class RankingModel(AnsweringModel, Protocol):
    """A model that ranks the triples of a split, and scores given ones."""

    def ranks(self, *, split: str, on_progress: Callable[[int], None] | None = None) -> Ranks: ...

    def score(self, triples: Iterable[tuple[int, int, int]]) -> list[ScoredTriple]: ...


class RankedTriple(NamedTuple):
    """A held-out triple, its score, and its place among all objects and all subjects.

    probability  calibrated on validation triples; None where there were too few
    """

    subject: str
    relation: str
    object: str
    score: float
    probability: float | None
    object_rank: float
    subject_rank: float


@dataclass(frozen=True, eq=False)
class LinkEvaluation:
    """A link predictor on one split.

    known      splits whose other triples were left out of the ranks
    bins       [(label, ranks of objects in it, ranks of subjects in it)]
    reversed   share of the triples whose two nodes a training triple links the other way around
    repeated   how many triples of the graph stand in more than one split
    highest    triples with the highest scores, best first; lowest: likewise
    """

    split: str
    known: tuple[str, ...]
    report: RankingReport
    relations: list[str]
    candidates: int
    bins: list[tuple[str, int, int]]
    reversed: float
    repeated: int
    highest: list[RankedTriple]
    lowest: list[RankedTriple]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "split": self.split,
            "known": list(self.known),
            **self.report.both.as_dict(),
            "by_direction": {"object": self.report.object.as_dict(), "subject": self.report.subject.as_dict()},
            "by_relation": {self.relations[r]: figures.as_dict() for r, figures in self.report.by_relation.items()},
            "candidates": self.candidates,
            "ranks": [{"ranks": label, "object": o, "subject": s} for label, o, s in self.bins],
            "reversed_in_training": self.reversed,
            "repeated_across_splits": self.repeated,
            "highest": [triple._asdict() for triple in self.highest],
            "lowest": [triple._asdict() for triple in self.lowest],
        }


def evaluate_links(predictor: RankingModel, split: str, on_progress: OnProgress | None = None) -> LinkEvaluation:
    """Every held-out triple ranked among all nodes, both ways, filtered; ties count as their mean place."""
    graph = predictor.graph_
    triples = graph.split_triples(split)
    tell = None if on_progress is None else lambda done: on_progress(done, 2 * len(triples))
    ranks = predictor.ranks(split=split, on_progress=tell)
    by_object, by_subject = ranks.rank("object").numpy(), ranks.rank("subject").numpy()
    scored = predictor.score(map(tuple, triples.tolist()))
    order = np.argsort(-np.array([triple.score for triple in scored]), kind="stable")

    def at(positions: NDArray[np.int64]) -> list[RankedTriple]:
        return [_with_ranks(scored[i], float(by_object[i]), float(by_subject[i])) for i in positions.tolist()]

    return LinkEvaluation(
        split,
        splits_up_to(split),
        summarize(ranks),
        list(graph.relations),
        graph.num_nodes,
        _binned(by_object, by_subject),
        reversed_share(graph, triples),
        repeated_across_splits(graph),
        at(order[:SHOWN]),
        at(order[::-1][:SHOWN]),
    )


def _with_ranks(triple: ScoredTriple, object_rank: float, subject_rank: float) -> RankedTriple:
    return RankedTriple(*triple[:5], object_rank, subject_rank)


def _binned(by_object: NDArray[np.float64], by_subject: NDArray[np.float64]) -> list[tuple[str, int, int]]:
    """Counts of ranks in bins 1, 2-3, 4-10, 11-100, ...; ranks between whole numbers (ties) belong to the bin above."""
    worst = max(by_object.max(), by_subject.max())
    bins, low = [], 0
    for high in (*RANK_BINS, math.inf):
        first, last = low + 1, "" if high == math.inf else f"{_brief(int(high))}"
        label = last if first == high else f"{_brief(first)}–{last}" if last else f"over {_brief(low)}"
        inside = [int(((ranks > low) & (ranks <= high)).sum()) for ranks in (by_object, by_subject)]
        bins.append((label, inside[0], inside[1]))
        if worst <= high:
            break
        low = int(high)
    return bins


def _brief(number: int) -> str:
    return f"{number // 1000}k" if number >= 10_000 and number % 1000 == 0 else f"{number:,}"


def reversed_share(graph: KnowledgeGraph, triples: NDArray[np.int64]) -> float:
    """Of the triples [t, 3], how many link two nodes that a training triple links the other way around."""
    train = graph.split_triples("train")
    backwards = train[:, 2] * graph.num_nodes + train[:, 0]
    return float(np.isin(triples[:, 0] * graph.num_nodes + triples[:, 2], backwards).mean())
