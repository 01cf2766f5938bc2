"""A model that tells classes, on one split: what is taken for what, and which answers to look at."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rgcn.answers.calibration import AnsweringModel
from rgcn.errors import DataError
from rgcn.graph import NodeLabels

SHOWN = 10


class ClassifiedNode(NamedTuple):
    """A held-out node, the class the model gives it with its score, and the true one.

    probability  calibrated on validation nodes; None where there were too few
    """

    node: str
    predicted: str
    score: float
    probability: float | None
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
    """Classes on one split.

    confusion     int64 [classes, classes]: rows are true classes, columns predicted ones
    majority      the most frequent training class, and the accuracy of always answering it
    most_certain  nodes whose answer stands out most from the other classes; least_certain, surest_mistakes: likewise
    """

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


def evaluate_nodes(model: AnsweringModel, split: str) -> NodeEvaluation:
    """Every node of a split classified, and compared with what is true."""
    labels = model.graph_.labels
    if labels is None or split not in labels.counts():
        raise DataError(f"the graph has no labels in split {split!r}")
    nodes, truth = labels.of(split)
    logits, calibration = model.logits(nodes.tolist()), model.calibration_
    scores, predicted = logits.max(1).values.tolist(), logits.argmax(1).numpy()
    shares = calibration.class_probabilities(logits).max(1).values.tolist()
    confusion = np.zeros((labels.num_classes, labels.num_classes), dtype=np.int64)
    np.add.at(confusion, (truth, predicted), 1)
    order = np.argsort(-np.array(shares), kind="stable")
    wrong = order[predicted[order] != truth[order]]

    def at(positions: NDArray[np.int64]) -> list[ClassifiedNode]:
        return [
            ClassifiedNode(
                model.graph_.nodes[int(nodes[i])],
                labels.names[int(predicted[i])],
                scores[i],
                shares[i] if calibration.fitted else None,
                labels.names[int(truth[i])],
            )
            for i in positions.tolist()
        ]

    return NodeEvaluation(
        split,
        list(labels.names),
        confusion,
        *majority(labels, split),
        at(order[:SHOWN]),
        at(order[::-1][:SHOWN]),
        at(wrong[:SHOWN]),
    )


def majority(labels: NodeLabels, split: str) -> tuple[str, float]:
    """The most frequent class among training labels, and how often always answering it is right in a split."""
    most = int(np.bincount(labels.of("train")[1], minlength=labels.num_classes).argmax())
    return labels.names[most], float((labels.of(split)[1] == most).mean())
