"""Reports about node classifiers: confusion matrix, metrics per class, and example predictions."""

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
from rgcn.pages.layout import SPLIT_TITLES, markdown_text, render
from rgcn.pages.reporting import NameMarkup, OnProgress, Reporting, SplitEvaluation, SplitMetrics, markdown_table
from rgcn.system.formatting import format_count

MAX_CLASSES = 40  # in a confusion matrix
MIN_CLASSES_TO_LIST = 12  # with more classes than this, mistakes are listed below the matrix
NUM_CLASSES_SHOWN, NUM_NODES_SHOWN = 20, 10


def evaluate_nodes(model: AnsweringModel, split: str) -> dict[str, Any]:
    """Classify every node of a split, and compare the predictions with the labels.

    Args:
        model: A node classifier.
        split: The split.

    Returns:
        Plain values for JSON, among them "majority" (the most frequent training class, and the accuracy of always
        predicting it), "confusion" ([num_classes][num_classes], rows are true classes), "by_class" (see
        `class_metrics`), and the lists of nodes "most_certain", "least_certain" and "surest_mistakes", each node with
        the predicted class, its score, its probability if the model is calibrated, and the true class.

    Raises:
        DataError: The split has no labels.
    """
    labels = model.graph_.labels
    if labels is None or split not in labels.counts():
        raise DataError(f"the graph has no labels in split {split!r}")
    nodes, truth = labels.of(split)
    logits, calibration = model.logits(nodes.tolist()), model.calibration_
    scores, predicted = logits.max(1).values.tolist(), logits.argmax(1).numpy()
    probabilities = calibration.class_probabilities(logits).max(1).values.tolist()
    confusion = np.zeros((labels.num_classes, labels.num_classes), dtype=np.int64)
    np.add.at(confusion, (truth, predicted), 1)
    order = np.argsort(-np.array(probabilities), kind="stable")

    def examples(positions: NDArray[np.int64]) -> list[dict[str, Any]]:
        return [
            {
                "node": model.graph_.nodes[int(nodes[i])],
                "predicted": labels.names[int(predicted[i])],
                "score": scores[i],
                "probability": probabilities[i] if calibration.fitted else None,
                "truth": labels.names[int(truth[i])],
            }
            for i in positions[:NUM_NODES_SHOWN].tolist()
        ]

    right, names = int((predicted == truth).sum()), list(labels.names)
    found = {"split": split, "accuracy": right / len(nodes), "count": len(nodes), "right": right}
    found["majority"] = dict(zip(("class", "accuracy"), majority(labels, split), strict=True))
    found |= {"classes": names, "confusion": confusion.tolist(), "by_class": class_metrics(names, confusion)}
    found |= {"most_certain": examples(order), "least_certain": examples(order[::-1])}
    return {**found, "surest_mistakes": examples(order[predicted[order] != truth[order]])}


def class_metrics(names: Sequence[str], confusion: NDArray[np.int64]) -> list[dict[str, Any]]:
    """Return precision, recall, and the numbers of nodes and predictions of each class.

    Args:
        names: The classes.
        confusion: The confusion matrix, [num_classes, num_classes]; rows are true classes.

    Returns:
        A dict per class. Precision is None for a class that is never predicted, recall for a class without nodes.
    """
    keys, rows = ("name", "precision", "recall", "nodes", "predicted"), []
    counts = confusion.diagonal().tolist(), confusion.sum(1).tolist(), confusion.sum(0).tolist()
    for name, hits, nodes, predicted in zip(names, *counts, strict=True):
        shares = hits / predicted if predicted else None, hits / nodes if nodes else None
        rows.append(dict(zip(keys, (name, *shares, nodes, predicted), strict=True)))
    return rows


def majority(labels: NodeLabels, split: str) -> tuple[str, float]:
    """Return the most frequent class of the training labels, and the accuracy of always predicting it on a split."""
    most = int(np.bincount(labels.of("train")[1], minlength=labels.num_classes).argmax())
    return labels.names[most], float((labels.of(split)[1] == most).mean())


class NodeReporting(Reporting):
    """Pages and model cards about node classifiers."""

    def measure(self, model: Estimator, split: str, on_progress: OnProgress | None = None) -> SplitEvaluation:
        """Measure a model: metrics, confusion matrix, and example predictions."""
        found, titles = evaluate_nodes(model, split), self.titles_of(model.graph_)
        classes = [titles.class_(number) for number in range(len(found["classes"]))]
        chart = confusion_chart(found["confusion"], classes)
        return self.render_evaluation("node_report.html", model, found, node_cautions(found, titles), confusion=chart)

    def splits(self, graph: KnowledgeGraph) -> dict[str, Mapping[str, int]]:
        """Return the numbers of labels per split."""
        return {"labeled nodes": graph.statistics().labels_per_split}

    def data_parts(self, graph: KnowledgeGraph) -> list[Markup]:
        """Return a chart of the number of labeled nodes per class and split."""
        labels = graph.labels
        if labels is None:
            return []
        splits = list(labels.counts())
        sizes = [np.bincount(labels.of(split)[1], minlength=labels.num_classes).tolist() for split in splits]
        rows = sorted(zip(labels.names, zip(*sizes, strict=True), strict=True), key=lambda one: (-sum(one[1]), one[0]))
        names = NameMarkup(self.titles_of(graph))
        return [render("class_sizes.html", rows=rows, splits=splits, names=names, limit=NUM_CLASSES_SHOWN)]

    def uses(self, graph: KnowledgeGraph | None) -> str:
        """Describe the use of a classifier, and name its classes."""
        text = "To predict the class of a node in its graph."
        if graph is None or graph.labels is None:
            return text
        titles, num_classes = self.titles_of(graph), graph.labels.num_classes
        names = [markdown_text(titles.class_(number)) for number in range(min(NUM_CLASSES_SHOWN, num_classes))]
        more = num_classes - len(names)
        return f"{text}\n\nClasses: {', '.join(names)}{f' and {more} more' if more else ''}."

    def limits(self) -> list[str]:
        """Return what no metric shows."""
        return ["It assigns one of its classes to every node, also to a node that belongs to none of them."]

    def results(self, metrics: SplitMetrics, graph: KnowledgeGraph | None) -> list[str]:
        """Return the metrics next to those of always predicting the most frequent class."""
        head, rows = self.metric_rows(metrics)
        labels = None if graph is None else graph.labels
        if labels is None:
            return [markdown_table(head, rows)]
        sizes, text = labels.counts(), self.task.headline.format
        for row, split in zip(rows, metrics, strict=True):
            row += [text(majority(labels, split)[1]), f"{sizes[split]:,}"] if split in sizes else ["", ""]
        return [markdown_table([*head, "always the most frequent class", "nodes"], rows)]

    def cautions(self, model: Estimator) -> list[str]:
        """Return the cautions about the last held-out split."""
        splits = self.held_out_splits(model)
        return node_cautions(evaluate_nodes(model, splits[0]), self.titles_of(model.graph_)) if splits else []


def node_cautions(found: Mapping[str, Any], titles: Titles) -> list[str]:
    """Return what to know before relying on an accuracy.

    Args:
        found: The result of `evaluate_nodes`.
        titles: The display names of the graph.
    """
    # Half the width of the 95 % interval (Wilson) of the accuracy, from the number of nodes alone.
    n, p, z = found["count"], found["accuracy"], 1.96
    margin = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    cautions = [
        f"{format_count(n, SPLIT_TITLES[found['split']] + ' node')}: one node is {100 / n:.1f} points of accuracy. The "
        f"number of nodes alone makes the accuracy uncertain by about ±{100 * margin:.0f} points (95 % interval): "
        "smaller differences between models mean little.",
    ]
    missing = [one["name"] for one in found["by_class"] if one["nodes"] and not one["predicted"]]
    if missing:
        names = ", ".join(titles.class_(titles.classes[name]) for name in missing[:5])
        cautions.append(f"Never predicted, though nodes here belong to it: {names}{' …' if len(missing) > 5 else '.'}")
    if p <= found["majority"]["accuracy"]:
        cautions.append("The model is no better than always predicting the most frequent class.")
    return cautions


def confusion_chart(confusion: Sequence[Sequence[int]], names: Sequence[str]) -> Markup:
    """Draw a confusion matrix.

    If there are many classes, the smallest ones are summed in one row and column, and all mistakes are listed below.

    Args:
        confusion: The counts, [num_classes][num_classes]; rows are true classes.
        names: The classes.
    """
    counts, shown = np.array(confusion), list(names)
    grouped = counts
    if len(names) > MAX_CLASSES:
        largest = np.sort(np.argsort(-(counts.sum(1) + counts.sum(0)), kind="stable")[:MAX_CLASSES])
        group = np.full(len(names), MAX_CLASSES)
        group[largest] = np.arange(MAX_CLASSES)
        in_group = np.eye(MAX_CLASSES + 1, dtype=np.int64)[group]
        grouped = in_group.T @ counts @ in_group
        shown = [*(names[i] for i in largest.tolist()), "all others"]
    hover = "{count} of {total} “{row}” predicted as “{column}”"
    chart = heat_map(shown, shown, grouped.tolist(), corner="true class", hover=hover)
    wrong = counts * (1 - np.eye(len(names), dtype=np.int64))
    order = np.argsort(-wrong[wrong > 0], kind="stable")
    pairs = np.argwhere(wrong)[order].tolist() if len(names) > MIN_CLASSES_TO_LIST else []
    mistakes = [(names[i], names[j], int(wrong[i, j]), int(counts[i].sum())) for i, j in pairs]
    num_others = len(names) - MAX_CLASSES
    return render("confusion.html", chart=chart, limit=MAX_CLASSES, num_others=num_others, mistakes=mistakes)
