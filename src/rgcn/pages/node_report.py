"""What a report shows of models that tell classes: what is taken for what, and which answers to look at."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from rgcn.errors import DataError
from rgcn.graph import KnowledgeGraph, NodeLabels
from rgcn.graph.titles import Titles
from rgcn.links.calibration import AnsweringModel
from rgcn.models.estimator import Estimator
from rgcn.pages.charts import heat_map
from rgcn.pages.layout import SPLIT_WORDS, markdown_text, render
from rgcn.pages.reporting import Figures, Measured, NamesOnPage, OnProgress, Reporting, markdown_table
from rgcn.system.formatting import count

MOST_CLASSES, FEW_CLASSES, SHOWN_CLASSES, SHOWN_NODES = 40, 12, 20, 10


def evaluate_nodes(model: AnsweringModel, split: str) -> dict[str, Any]:
    """Every node of a split classified, and compared with what is true: plain values, ready for JSON.

    majority         the most frequent training class, and the accuracy of always answering it
    confusion        [classes][classes]: rows are true classes, columns predicted ones
    by_class         `class_figures`
    most_certain     nodes whose answer stands out most from the other classes, each with the class `predicted`, its
                     score, its probability where there was enough to calibrate on, and the truth; least_certain,
                     surest_mistakes likewise
    """
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

    right = int((predicted == truth).sum())
    return {
        "split": split,
        "accuracy": right / len(nodes),
        "count": len(nodes),
        "right": right,
        "majority": dict(zip(("class", "accuracy"), majority(labels, split), strict=True)),
        "classes": list(labels.names),
        "confusion": confusion.tolist(),
        "by_class": class_figures(list(labels.names), confusion),
        "most_certain": at(order),
        "least_certain": at(order[::-1]),
        "surest_mistakes": at(order[predicted[order] != truth[order]]),
    }


def class_figures(names: Sequence[str], confusion: NDArray[np.int64]) -> list[dict[str, Any]]:
    """Of each class how many nodes are of it, and how many were said to be.

    precision  of the nodes said to be of this class, the share that is; None where there are none
    recall     of the nodes of this class, the share that is found; likewise
    """
    hits, nodes, predicted = confusion.diagonal(), confusion.sum(1), confusion.sum(0)
    every = zip(names, hits.tolist(), nodes.tolist(), predicted.tolist(), strict=True)
    return [
        {
            "name": name,
            "precision": hit / told if told else None,
            "recall": hit / true if true else None,
            "nodes": true,
            "predicted": told,
        }
        for name, hit, true, told in every
    ]


def majority(labels: NodeLabels, split: str) -> tuple[str, float]:
    """The most frequent class among training labels, and how often always answering it is right in a split."""
    most = int(np.bincount(labels.of("train")[1], minlength=labels.num_classes).argmax())
    return labels.names[most], float((labels.of(split)[1] == most).mean())


class NodeReporting(Reporting):
    """Classes of nodes: what is taken for what."""

    def measure(self, model: Estimator, split: str, on_progress: OnProgress | None = None) -> Measured:
        found, titles = evaluate_nodes(model, split), self.titles_of(model.graph_)
        classes = [titles.class_(number) for number in range(len(found["classes"]))]
        confusion = confusion_chart(found["confusion"], classes)
        return self.laid_out("node_report.html", model, found, node_cautions(found, titles), confusion=confusion)

    def splits(self, graph: KnowledgeGraph) -> dict[str, Mapping[str, int]]:
        return {"labelled nodes": graph.statistics().labels_per_split}

    def data_parts(self, graph: KnowledgeGraph) -> list[Markup]:
        """How many labelled nodes each class has, in training and held out."""
        labels = graph.labels
        if labels is None:
            return []
        splits = list(labels.counts())
        sizes = [np.bincount(labels.of(split)[1], minlength=labels.num_classes).tolist() for split in splits]
        rows = sorted(zip(labels.names, zip(*sizes, strict=True), strict=True), key=lambda one: (-sum(one[1]), one[0]))
        names = NamesOnPage(self.titles_of(graph))
        return [render("class_sizes.html", rows=rows, splits=splits, names=names, most=SHOWN_CLASSES)]

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


def node_cautions(found: Mapping[str, Any], titles: Titles) -> list[str]:
    # Half the width of accuracy's 95 % interval (Wilson), from the number of nodes alone.
    n, p, z = found["count"], found["accuracy"], 1.96
    margin = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    cautions = [
        f"{count(n, SPLIT_WORDS[found['split']] + ' node')}: one node more or less is {100 / n:.1f} points of accuracy."
        f" The number of nodes alone leaves the accuracy uncertain by about ±{100 * margin:.0f} points (95 % interval):"
        " smaller differences between models mean little.",
    ]
    missing = [one["name"] for one in found["by_class"] if one["nodes"] and not one["predicted"]]
    if missing:
        names = ", ".join(titles.class_(titles.classes[name]) for name in missing[:5])
        cautions.append(f"Never predicted, though nodes here belong to it: {names}{' …' if len(missing) > 5 else '.'}")
    if p <= found["majority"]["accuracy"]:
        cautions.append("The model is no better than always answering the most frequent class.")
    return cautions


def confusion_chart(confusion: Sequence[Sequence[int]], names: Sequence[str]) -> Markup:
    """What is taken for what; where there are many classes, those with few nodes are added up as one, and every pair
    that is mixed up is listed."""
    whole, shown = np.array(confusion), list(names)
    counts = whole
    if len(names) > MOST_CLASSES:
        group = np.full(len(names), MOST_CLASSES)
        largest = np.sort(np.argsort(-(whole.sum(1) + whole.sum(0)), kind="stable")[:MOST_CLASSES])
        group[largest] = np.arange(MOST_CLASSES)
        counts = np.zeros((MOST_CLASSES + 1, MOST_CLASSES + 1), dtype=np.int64)
        np.add.at(counts, (group[:, None], group[None, :]), whole)
        shown = [*(names[i] for i in largest.tolist()), "all others"]
    said = "{count} of {total} “{row}” taken for “{column}”"
    chart = heat_map(shown, shown, counts.tolist(), corner="true class", said=said)
    wrong = whole * (1 - np.eye(len(names), dtype=np.int64))
    often = np.argsort(-wrong[wrong > 0], kind="stable")
    pairs = np.argwhere(wrong)[often].tolist() if len(names) > FEW_CLASSES else []
    mixed = [(names[i], names[j], int(wrong[i, j]), int(whole[i].sum())) for i, j in pairs]
    return render("confusion.html", chart=chart, most=MOST_CLASSES, others=len(names) - MOST_CLASSES, mixed=mixed)
