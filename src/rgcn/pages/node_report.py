"""What a report shows of models that tell classes: what is taken for what, and which answers to look at."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from rgcn.errors import DataError
from rgcn.graph import KnowledgeGraph, NodeLabels
from rgcn.graph.titles import Titles
from rgcn.links.calibration import AnsweringModel
from rgcn.models.estimator import Estimator
from rgcn.pages.charts import Bar, heat_map
from rgcn.pages.layout import SPLIT_WORDS, markdown_text, render
from rgcn.pages.reporting import Figures, Measured, NamesOnPage, OnProgress, Reporting, markdown_table
from rgcn.system.formatting import count

COUNTS = ("nodes", "predicted")
MOST_CLASSES, FEW_CLASSES, SHOWN_CLASSES, SHOWN_NODES = 40, 12, 20, 10


@dataclass(frozen=True, eq=False)
class NodeEvaluation:
    """Classes on one split."""

    split: str
    classes: list[str]
    confusion: NDArray[np.int64]  # [classes, classes]: rows are true classes, columns predicted ones
    majority: str  # the most frequent training class, and the accuracy of always answering it
    majority_accuracy: float
    # Each a node, the class `predicted` with its score and, if there was enough to calibrate on, probability; `truth`.
    most_certain: list[dict[str, Any]]  # whose answer stands out most from the other classes
    least_certain: list[dict[str, Any]]
    surest_mistakes: list[dict[str, Any]]

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

    def by_class(self) -> list[dict[str, Any]]:
        """Of each class how many nodes are of it, and how many were said to be.

        precision  of the nodes said to be of this class, the share that is; None where there are none
        recall     of the nodes of this class, the share that is found; likewise
        """
        sums = self.confusion.sum(1).tolist(), self.confusion.sum(0).tolist()
        every = zip(self.classes, np.diag(self.confusion).tolist(), *sums, strict=True)
        return [
            {
                "name": name,
                "precision": hit / predicted if predicted else None,
                "recall": hit / nodes if nodes else None,
                "nodes": nodes,
                "predicted": predicted,
            }
            for name, hit, nodes, predicted in every
        ]

    def as_dict(self) -> dict[str, Any]:
        return {
            "split": self.split,
            "accuracy": self.accuracy,
            "count": self.count,
            "right": self.right,
            "majority": {"class": self.majority, "accuracy": self.majority_accuracy},
            "classes": self.classes,
            "confusion": self.confusion.tolist(),
            "by_class": self.by_class(),
            **{name: getattr(self, name) for name in ("most_certain", "least_certain", "surest_mistakes")},
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

    def at(positions: NDArray[np.int64]) -> list[dict[str, Any]]:
        return [
            {
                "node": model.graph_.nodes[int(nodes[i])],
                "predicted": labels.names[int(predicted[i])],
                "score": scores[i],
                "probability": shares[i] if calibration.fitted else None,
                "truth": labels.names[int(truth[i])],
            }
            for i in positions[:SHOWN_NODES].tolist()
        ]

    told = at(order), at(order[::-1]), at(wrong)
    return NodeEvaluation(split, list(labels.names), confusion, *majority(labels, split), *told)


def majority(labels: NodeLabels, split: str) -> tuple[str, float]:
    """The most frequent class among training labels, and how often always answering it is right in a split."""
    most = int(np.bincount(labels.of("train")[1], minlength=labels.num_classes).argmax())
    return labels.names[most], float((labels.of(split)[1] == most).mean())


class NodeReporting(Reporting):
    """Classes of nodes: what is taken for what."""

    def measure(self, model: Estimator, split: str, on_progress: OnProgress | None = None) -> Measured:
        found, titles = evaluate_nodes(model, split), self.titles_of(model.graph_)
        names = NamesOnPage(titles)
        bars = [
            Bar(names.class_(one["name"]), [one["precision"], one["recall"]], [f"{one[n]:,}" for n in COUNTS])
            for one in sorted(found.by_class(), key=lambda one: (-one["nodes"], one["name"]))
        ]
        confusion = confusion_chart(found, [titles.class_(number) for number in range(len(found.classes))])
        cautions = node_cautions(found, titles)
        return self.laid_out("node_report.html", model, found, cautions, bars=bars, confusion=confusion)

    def splits(self, graph: KnowledgeGraph) -> dict[str, Mapping[str, int]]:
        return {"labelled nodes": graph.statistics().labels_per_split}

    def data_parts(self, graph: KnowledgeGraph) -> list[Markup]:
        """How many labelled nodes each class has, in training and held out."""
        labels = graph.labels
        if labels is None:
            return []
        splits = list(labels.counts())
        sizes = np.array([np.bincount(labels.of(split)[1], minlength=labels.num_classes) for split in splits])
        order = sorted(range(labels.num_classes), key=lambda c: (-sizes[:, c].sum(), labels.names[c]))
        names = NamesOnPage(self.titles_of(graph))
        bars = [
            Bar(names.class_(labels.names[c]), [float(sizes[:, c].sum())], [f"{size:,}" for size in sizes[:, c]])
            for c in order
        ]
        return [render("class_sizes.html", bars=bars, notes=[SPLIT_WORDS[one] for one in splits], most=SHOWN_CLASSES)]

    def uses(self, graph: KnowledgeGraph | None) -> str:
        words = "To say which class a node of its graph likely belongs to."
        if graph is None or graph.labels is None:
            return words
        titles, classes = self.titles_of(graph), graph.labels.num_classes
        names = [markdown_text(titles.class_(number)) for number in range(min(SHOWN_CLASSES, classes))]
        more = classes - len(names)
        return f"{words}\n\nClasses: {', '.join(names)}{f' and {more} more' if more else ''}."

    def limits(self) -> list[str]:
        return ["It gives each node one of its classes, also a node that belongs to none of them."]

    def results(self, figures: Figures, graph: KnowledgeGraph | None) -> list[str]:
        """Accuracies beside that of always giving the same answer."""
        head, rows = self.figure_rows(figures)
        labels = None if graph is None else graph.labels
        if labels is None:
            return [markdown_table(head, rows)]
        sizes, words = labels.counts(), self.task.headline.words
        for row, split in zip(rows, figures, strict=True):
            row += [words(majority(labels, split)[1]), f"{sizes[split]:,}"] if split in sizes else ["", ""]
        return [markdown_table([*head, "always the most frequent class", "nodes"], rows)]

    def cautions(self, model: Estimator) -> list[str]:
        splits = self.held_out(model)
        return node_cautions(evaluate_nodes(model, splits[0]), self.titles_of(model.graph_)) if splits else []


def node_cautions(found: NodeEvaluation, titles: Titles) -> list[str]:
    cautions = [
        f"{count(found.count, SPLIT_WORDS[found.split] + ' node')}: one node more or less is {100 / found.count:.1f} "
        f"points of accuracy. The number of nodes alone leaves the accuracy uncertain by about "
        f"±{100 * found.margin:.0f} points (95 % interval): smaller differences between models mean little.",
    ]
    missing = [one["name"] for one in found.by_class() if one["nodes"] and not one["predicted"]]
    if missing:
        names = ", ".join(titles.class_(titles.classes[name]) for name in missing[:5])
        cautions.append(f"Never predicted, though nodes here belong to it: {names}{' …' if len(missing) > 5 else '.'}")
    if found.accuracy <= found.majority_accuracy:
        cautions.append("The model is no better than always answering the most frequent class.")
    return cautions


def confusion_chart(found: NodeEvaluation, names: Sequence[str]) -> Markup:
    """What is taken for what; where there are many classes, those with few nodes are added up as one, and every pair
    that is mixed up is listed."""
    counts, shown = found.confusion, list(names)
    if len(names) > MOST_CLASSES:
        group = np.full(len(names), MOST_CLASSES)
        largest = np.sort(np.argsort(-(counts.sum(1) + counts.sum(0)), kind="stable")[:MOST_CLASSES])
        group[largest] = np.arange(MOST_CLASSES)
        counts = np.zeros((MOST_CLASSES + 1, MOST_CLASSES + 1), dtype=np.int64)
        np.add.at(counts, (group[:, None], group[None, :]), found.confusion)
        shown = [*(names[i] for i in largest.tolist()), "all others"]
    said = "{count} of {total} “{row}” taken for “{column}”"
    chart = heat_map(shown, shown, counts.tolist(), corner="true class", said=said)
    wrong = found.confusion * (1 - np.eye(len(names), dtype=np.int64))
    often = np.argsort(-wrong[wrong > 0], kind="stable")
    pairs = np.argwhere(wrong)[often].tolist() if len(names) > FEW_CLASSES else []
    mixed = [(names[i], names[j], int(wrong[i, j]), int(found.confusion[i].sum())) for i, j in pairs]
    return render("confusion.html", chart=chart, most=MOST_CLASSES, others=len(names) - MOST_CLASSES, mixed=mixed)
