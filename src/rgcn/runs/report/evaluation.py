"""What is measured for a report: from a saved model and its graph, on one split, exactly."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rgcn.errors import DataError
from rgcn.graph import KnowledgeGraph, NodeLabels
from rgcn.known import repeated_across_splits, splits_up_to
from rgcn.ranking import RankingReport, summarize
from rgcn.tasks import LinkPredictor, NodeClassifier
from rgcn.tasks.link_predictor import ScoredTriple

SHOWN = 10
# Upper ends of the bins of ranks: fine where it matters, then by orders of magnitude.
RANK_BINS = (1, 3, 10, 100, 1_000, 10_000, 100_000)
OnProgress = Callable[[int, int], None]


class ClassifiedNode(NamedTuple):
    """A held-out node, what the model says and how sure it is, and what is true."""

    node: str
    predicted: str
    probability: float
    truth: str

    @property
    def right(self) -> bool:
        return self.predicted == self.truth


class ClassFigures(NamedTuple):
    """How one class fares; None where nothing is divided by nothing.

    precision  of the nodes said to be of this class, the share that is
    recall     of the nodes of this class, the share that is found
    """

    name: str
    precision: float | None
    recall: float | None
    nodes: int
    predicted: int


@dataclass(frozen=True, eq=False)
class NodeEvaluation:
    """A classifier on one split. confusion int64 [classes, classes]: rows are true classes, columns predicted ones."""

    split: str
    classes: list[str]
    confusion: NDArray[np.int64]
    majority: str
    majority_accuracy: float
    most_certain: list[ClassifiedNode]
    least_certain: list[ClassifiedNode]
    surest_mistakes: list[ClassifiedNode]

    @property
    def count(self) -> int:
        return int(self.confusion.sum())

    @property
    def right(self) -> int:
        return int(np.trace(self.confusion))

    @property
    def accuracy(self) -> float:
        return self.right / self.count

    @property
    def margin(self) -> float:
        """Half the width of accuracy's 95 % interval (Wilson), from the number of nodes alone."""
        n, p, z = self.count, self.accuracy, 1.96
        return z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)

    def by_class(self) -> list[ClassFigures]:
        rows, columns, hits = self.confusion.sum(1), self.confusion.sum(0), np.diag(self.confusion)
        return [
            ClassFigures(
                name,
                float(hits[i] / columns[i]) if columns[i] else None,
                float(hits[i] / rows[i]) if rows[i] else None,
                int(rows[i]),
                int(columns[i]),
            )
            for i, name in enumerate(self.classes)
        ]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "split": self.split,
            "accuracy": self.accuracy,
            "count": self.count,
            "right": self.right,
            "majority": {"class": self.majority, "accuracy": self.majority_accuracy},
            "classes": self.classes,
            "confusion": self.confusion.tolist(),
            "by_class": [figures._asdict() for figures in self.by_class()],
            "most_certain": [node._asdict() for node in self.most_certain],
            "least_certain": [node._asdict() for node in self.least_certain],
            "surest_mistakes": [node._asdict() for node in self.surest_mistakes],
        }


class RankedTriple(NamedTuple):
    """A held-out triple, its score as a probability, and its place among all objects and all subjects."""

    subject: str
    relation: str
    object: str
    probability: float
    object_rank: float
    subject_rank: float


@dataclass(frozen=True, eq=False)
class LinkEvaluation:
    """A link predictor on one split.

    known      splits whose other triples were left out of the ranks
    bins       [(label, ranks of objects in it, ranks of subjects in it)]
    reversed   share of the triples whose two nodes a training triple links the other way around
    repeated   how many triples of the graph stand in more than one split
    """

    split: str
    known: tuple[str, ...]
    report: RankingReport
    relations: list[str]
    candidates: int
    bins: list[tuple[str, int, int]]
    reversed: float
    repeated: int
    most_certain: list[RankedTriple]
    least_certain: list[RankedTriple]

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
            "most_certain": [triple._asdict() for triple in self.most_certain],
            "least_certain": [triple._asdict() for triple in self.least_certain],
        }


def held_out_splits(graph: KnowledgeGraph, task: str) -> list[str]:
    """Splits that were kept from training and have something to measure, test first."""
    if task == "link-prediction":
        splits = () if graph.triple_splits is None else ("test", "valid")
        return [split for split in splits if len(graph.split_triples(split))]
    return [split for split in ("test", "valid") if graph.labels is not None and split in graph.labels.counts()]


def evaluate(
    model: NodeClassifier | LinkPredictor,
    split: str,
    on_progress: OnProgress | None = None,
) -> NodeEvaluation | LinkEvaluation:
    """Measure a model on a held-out split.

    on_progress  called with (done, total) while questions about triples are answered
    """
    if isinstance(model, NodeClassifier):
        return evaluate_nodes(model, split)
    return evaluate_links(model, split, on_progress)


def evaluate_nodes(classifier: NodeClassifier, split: str) -> NodeEvaluation:
    """Every held-out node classified, and compared with what is true."""
    labels = classifier.graph_.labels
    if labels is None or split not in labels.counts():
        raise DataError(f"the graph has no labels in split {split!r}")
    nodes, truth = labels.of(split)
    probabilities = classifier.predict_proba(nodes.tolist())
    predicted, certainty = probabilities.argmax(1), probabilities.max(1)
    confusion = np.zeros((labels.num_classes, labels.num_classes), dtype=np.int64)
    np.add.at(confusion, (truth, predicted), 1)
    most = int(np.bincount(labels.of("train")[1], minlength=labels.num_classes).argmax())
    order = np.argsort(-certainty, kind="stable")
    wrong = order[predicted[order] != truth[order]]

    def at(positions: NDArray[np.int64]) -> list[ClassifiedNode]:
        names = classifier.graph_.nodes
        return [
            ClassifiedNode(
                names[int(nodes[i])], labels.names[int(predicted[i])], float(certainty[i]), labels.names[int(truth[i])]
            )
            for i in positions.tolist()
        ]

    return NodeEvaluation(
        split,
        list(labels.names),
        confusion,
        labels.names[most],
        _share(labels, split, most),
        at(order[:SHOWN]),
        at(order[::-1][:SHOWN]),
        at(wrong[:SHOWN]),
    )


def _share(labels: NodeLabels, split: str, class_id: int) -> float:
    return float((labels.of(split)[1] == class_id).mean())


def evaluate_links(predictor: LinkPredictor, split: str, on_progress: OnProgress | None = None) -> LinkEvaluation:
    """Every held-out triple ranked among all nodes, both ways, filtered; ties count as their mean place."""
    graph = predictor.graph_
    if split not in held_out_splits(graph, "link-prediction"):
        raise DataError(f"the graph has no {split} triples to rank")
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
    names = triple.subject, triple.relation, triple.object
    return RankedTriple(*names, triple.probability, object_rank, subject_rank)


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
