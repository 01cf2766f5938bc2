"""What a report shows of node classification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rgcn.answers.calibration import Calibration
from rgcn.graph import KnowledgeGraph
from rgcn.graph.titles import Titles
from rgcn.pages import markdown
from rgcn.pages.charts import Bar, bar_chart, heat_map
from rgcn.pages.figures import SPLIT_WORDS, decimal, percent
from rgcn.pages.markup import Html, details, join, named, paragraph, short_name, table, tag
from rgcn.pages.node_evaluation import ClassifiedNode, NodeEvaluation, evaluate_nodes, majority
from rgcn.pages.page import Section, Tile
from rgcn.pages.reporting import Figures, Measured, OnProgress, Reporting
from rgcn.tasks.estimator import Estimator
from rgcn.words import count

MOST_CLASSES, SHOWN_CLASSES = 40, 20


class NodeReporting(Reporting):
    """Classes of nodes: what is taken for what."""

    def measure(self, model: Estimator, split: str, on_progress: OnProgress | None = None) -> Measured:
        measured = evaluate_nodes(model, split)
        sections = node_sections(measured, model.calibration_)
        return Measured(split, measured.as_dict(), node_tiles(measured), sections, node_cautions(measured))

    def splits(self, graph: KnowledgeGraph) -> dict[str, Mapping[str, int]]:
        return {"labelled nodes": graph.statistics().labels_per_split}

    def data_parts(self, graph: KnowledgeGraph) -> list[Html]:
        return _distribution(graph)

    def uses(self, graph: KnowledgeGraph | None) -> str:
        words = "To say which class a node of its graph likely belongs to."
        if graph is None or graph.labels is None:
            return words
        titles, classes = Titles(graph), graph.labels.num_classes
        names = [markdown.text(titles.class_(number)) for number in range(min(SHOWN_CLASSES, classes))]
        more = classes - len(names)
        return f"{words}\n\nClasses: {', '.join(names)}{f' and {more} more' if more else ''}."

    def limits(self) -> list[str]:
        return ["It gives each node one of its classes, also a node that belongs to none of them."]

    def results(self, figures: Figures, graph: KnowledgeGraph | None) -> list[str]:
        """Accuracies beside that of always giving the same answer."""
        head, rows = self.figure_rows(figures)
        labels = None if graph is None else graph.labels
        if labels is None:
            return [markdown.table(head, rows)]
        sizes, words = labels.counts(), self.task.headline.words
        for row, split in zip(rows, figures, strict=True):
            row += [words(majority(labels, split)[1]), f"{sizes[split]:,}"] if split in sizes else ["", ""]
        return [markdown.table([*head, "always the most frequent class", "nodes"], rows)]

    def cautions(self, model: Estimator) -> list[str]:
        splits = self.held_out(model)
        return node_cautions(evaluate_nodes(model, splits[0])) if splits else []


def node_tiles(measured: NodeEvaluation) -> list[Tile]:
    split = SPLIT_WORDS[measured.split]
    return [
        Tile(
            f"{split} accuracy",
            percent(measured.accuracy),
            f"{measured.right:,} of {count(measured.count, 'node')} right",
        ),
        Tile(
            "without learning",
            percent(measured.majority_accuracy),
            join(["always answering ", named(measured.majority)]),
        ),
    ]


def node_cautions(measured: NodeEvaluation) -> list[str]:
    one = 100 / measured.count
    cautions = [
        f"{count(measured.count, SPLIT_WORDS[measured.split] + ' node')}: one node more or less is {one:.1f} points of "
        f"accuracy. The number of nodes alone leaves the accuracy uncertain by about ±{100 * measured.margin:.0f} "
        "points (95 % interval): smaller differences between models mean little.",
    ]
    missing = [figures for figures in measured.by_class() if figures.nodes and not figures.predicted]
    if missing:
        names = ", ".join(short_name(figures.name) for figures in missing[:5])
        cautions.append(f"Never predicted, though nodes here belong to it: {names}{' …' if len(missing) > 5 else '.'}")
    if measured.accuracy <= measured.majority_accuracy:
        cautions.append("The model is no better than always answering the most frequent class.")
    return cautions


def node_sections(measured: NodeEvaluation, calibration: Calibration) -> list[Section]:
    split = SPLIT_WORDS[measured.split]
    return [
        Section(
            "What is taken for what",
            f"Each row holds the {split} nodes of one true class, each column what the model said. Outlined fields on "
            "the diagonal are right answers. The stronger the color, the larger the share of the row.",
            _confusion(measured),
        ),
        Section(
            "Class by class",
            "Precision: of the nodes the model puts in a class, how many belong there. Recall: of the nodes that "
            "belong there, how many it finds.",
            _classes(measured),
        ),
        Section(
            "Predictions by name",
            f"{calibration.words} A good model is wrong where it is unsure.",
            _predictions(measured),
        ),
    ]


def _confusion(measured: NodeEvaluation) -> Html:
    names, counts = measured.classes, measured.confusion
    note = Html("")
    if len(names) > MOST_CLASSES:
        names, counts = _largest(names, counts)
        note = paragraph(
            f"The {MOST_CLASSES} classes with the most nodes; the other {len(measured.classes) - MOST_CLASSES} are "
            "added up in the last row and column.",
            class_="muted",
        )
    picture = heat_map(
        names, names, counts.tolist(), corner="true class", said="{count} of {total} “{row}” taken for “{column}”"
    )
    return join([note, picture])


def _largest(names: Sequence[str], counts: NDArray[np.int64]) -> tuple[list[str], NDArray[np.int64]]:
    """The largest classes, and all others as one."""
    size = counts.sum(1) + counts.sum(0)
    group = np.full(len(names), MOST_CLASSES)
    largest = np.sort(np.argsort(-size, kind="stable")[:MOST_CLASSES])
    group[largest] = np.arange(MOST_CLASSES)
    grouped = np.zeros((MOST_CLASSES + 1, MOST_CLASSES + 1), dtype=np.int64)
    np.add.at(grouped, (group[:, None], group[None, :]), counts)
    return [names[i] for i in largest.tolist()] + ["all others"], grouped


def _classes(measured: NodeEvaluation) -> Html:
    figures = sorted(measured.by_class(), key=lambda one: (-one.nodes, one.name))
    bars = [
        Bar(named(one.name), [one.precision, one.recall], [f"{one.nodes:,}", f"{one.predicted:,}"]) for one in figures
    ]
    return bar_chart(
        bars,
        ["precision", "recall"],
        label="class",
        notes=["nodes", "predicted"],
        maximum=1.0,
        value_format=percent,
        sortable=True,
    )


def _predictions(measured: NodeEvaluation) -> Html:
    lists = [("Least certain", measured.least_certain), ("Most certain", measured.most_certain)]
    if measured.surest_mistakes:
        lists.insert(0, ("Wrong, and most certain of it", measured.surest_mistakes))
    parts: list[Html] = []
    for heading, nodes in lists:
        parts += [tag("h3", heading), _nodes(nodes)]
    if not measured.surest_mistakes:
        parts.insert(0, paragraph("There is no wrong answer in this split."))
    return join(parts)


def _nodes(nodes: Sequence[ClassifiedNode]) -> Html:
    calibrated = any(one.probability is not None for one in nodes)
    rows = [
        [
            tag("td", named(one.node), class_="name"),
            tag("td", named(one.predicted), class_="name"),
            decimal(one.score),
            *([] if one.probability is None else [percent(one.probability)]),
            tag("span", "right", class_="right") if one.right else tag("span", "wrong", class_="wrong"),
            tag("td", "" if one.right else named(one.truth), class_="name"),
        ]
        for one in nodes
    ]
    numbers = ["score", "probability"] if calibrated else ["score"]
    head = ["node", "the model says", *numbers, "", "true class, if another"]
    return table(head, rows, numeric=range(2, 2 + len(numbers)))


def _distribution(graph: KnowledgeGraph) -> list[Html]:
    """How many labelled nodes each class has, in training and held out."""
    labels = graph.labels
    if labels is None:
        return []
    splits = list(labels.counts())
    sizes = {split: [0] * labels.num_classes for split in splits}
    for split in splits:
        for class_id in labels.of(split)[1].tolist():
            sizes[split][class_id] += 1
    order = sorted(range(labels.num_classes), key=lambda c: (-sum(sizes[s][c] for s in splits), labels.names[c]))
    bars = [
        Bar(named(labels.names[c]), [float(sum(sizes[s][c] for s in splits))], [f"{sizes[s][c]:,}" for s in splits])
        for c in order
    ]
    notes = [SPLIT_WORDS[split] for split in splits]

    def chart(some: list[Bar]) -> Html:
        return bar_chart(some, ["labelled nodes"], label="class", notes=notes, value_format=lambda v: f"{v:,.0f}")

    parts = [tag("h3", "Classes"), chart(bars[:SHOWN_CLASSES])]
    if len(bars) > SHOWN_CLASSES:
        parts.append(details(f"All {len(bars)} classes", chart(bars)))
    return parts
