"""What a task contributes to pages about its runs: measurements, charts and text about its models.

A task need not bring a `Reporting` of its own: by default, its metrics and their curves are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from rgcn.graph import KnowledgeGraph
from rgcn.graph.titles import Titles
from rgcn.models.estimator import Estimator
from rgcn.models.task import Task
from rgcn.pages.charts import Mark, Series, line_chart
from rgcn.pages.layout import SPLIT_TITLES, PageSection, Tile, compact, decimal, name_markup, parts
from rgcn.training.history import Metric

OnProgress = Callable[[int, int], None]
SplitMetrics = Mapping[str, Mapping[str, Any]]

LOSS = Metric("loss", "loss", higher_is_better=False)


class Panel(NamedTuple):
    """A chart of one metric during a training.

    Attributes:
        metric: The metric.
        columns: (column of the reports, its title) for each curve.
        unit: What the reports are numbered by: "epoch" or "step".
    """

    metric: Metric
    columns: tuple[tuple[str, str], ...]
    unit: str

    @property
    def title(self) -> str:
        """The title of the chart."""
        name = self.metric.title[:1].upper() + self.metric.title[1:]
        return f"Validation {self.metric.title}" if [title for _, title in self.columns] == ["validation"] else name

    @property
    def y_format(self) -> Callable[[float], str]:
        """Formats the numbers on the y axis."""
        return "{:.0%}".format if self.metric.is_share else compact

    @property
    def value_format(self) -> Callable[[float], str]:
        """Formats values of the metric."""
        return self.metric.format if self.metric.is_share else decimal

    def chart(self, title: str, series: Sequence[Series], marks: Sequence[Mark] = ()) -> Markup:
        """Draw the chart."""
        y_range = (0.0, 1.0) if self.metric.is_share else (0.0 if self.metric.higher_is_better else None, None)
        labels = {"title": title, "x_label": self.unit, "y_label": self.metric.title}
        formats = {"y_format": self.y_format, "value_format": self.value_format}
        return line_chart(series, marks=marks, y_range=y_range, **labels, **formats)  # type: ignore[arg-type]


class SplitEvaluation(NamedTuple):
    """A model measured on one split, for people and programs.

    Attributes:
        split: The split.
        values: Plain values for JSON, among them the metrics of the task by name.
        tiles: The most important numbers.
        sections: Further sections of the page.
        cautions: What to know before relying on the numbers, a sentence or two each.
    """

    split: str
    values: Mapping[str, Any]
    tiles: Sequence[Tile]
    sections: Sequence[PageSection] = ()
    cautions: Sequence[str] = ()


class NameMarkup(NamedTuple):
    """The display names of nodes, relations and classes as markup, with the full names on hovering."""

    titles: Titles

    def node(self, name: str) -> Markup:
        """Return the markup of a node."""
        return name_markup(name, self.titles.of(self.titles.graph.nodes[name]))

    def relation(self, name: str) -> Markup:
        """Return the markup of a relation."""
        return name_markup(name, self.titles.relation(self.titles.graph.relations[name]))

    def class_(self, name: str) -> Markup:
        """Return the markup of a class."""
        return name_markup(name, self.titles.class_(self.titles.classes[name]))


class Reporting:
    """What pages and model cards say about the runs of a task. Subclasses override what their task needs.

    Attributes:
        task: The task.
        titles: The display names of the model's graph, if its data set has some; None for those of the graph.
    """

    titles: Titles | None = None

    def __init__(self, task: Task) -> None:
        self.task = task

    def titles_of(self, graph: KnowledgeGraph) -> Titles:
        """Return the display names of a graph."""
        return self.titles or Titles(graph)

    # -- a page ------------------------------------------------------------------------------------------

    def held_out_splits(self, model: Estimator) -> list[str]:
        """Return the splits that were held out and have something to measure, test first."""
        measured = model.measured_splits()
        return [split for split in ("test", "valid") if split in measured]

    def measure(self, model: Estimator, split: str, on_progress: OnProgress | None = None) -> SplitEvaluation:
        """Measure a model on a held-out split.

        Args:
            model: The model.
            split: The split.
            on_progress: Called with (done, total) if the measurement takes long.
        """
        values = model.evaluate(split=split)
        metrics = [metric for metric in self.task.metrics if metric.name in values]
        tiles = [Tile(f"{SPLIT_TITLES[split]} {each.title}", each.format(values[each.name])) for each in metrics]
        return SplitEvaluation(split, {"split": split, **values}, tiles)

    def render_evaluation(
        self, template: str, model: Estimator, found: Mapping[str, Any], cautions: Sequence[str], **values: Any
    ) -> SplitEvaluation:
        """Render a template with the results of a measurement, `found`."""
        graph, names = model.graph_, NameMarkup(self.titles_of(model.graph_))
        content = parts(template, found=found, graph=graph, names=names, calibration=model.calibration_, **values)
        return SplitEvaluation(found["split"], found, content.tiles, content.sections, cautions)

    def panels(self, reported: Collection[str], watch: Metric, unit: str) -> list[Panel]:
        """Return the charts of a training.

        Args:
            reported: The columns of its reports.
            watch: The validation metric that selects the weights.
            unit: What the reports are numbered by: "epoch" or "step".
        """
        panels = []
        for metric in dict.fromkeys([self.task.headline, watch, LOSS]):
            trained = "loss" if metric == LOSS else f"train_{metric.name}"
            columns = (trained, "training"), (f"valid_{metric.name}", "validation")
            panels.append(Panel(metric, tuple(column for column in columns if column[0] in reported), unit))
        return [panel for panel in panels if panel.columns]

    # -- the data ----------------------------------------------------------------------------------------

    def splits(self, graph: KnowledgeGraph) -> dict[str, Mapping[str, int]]:
        """Return `{what is split: {split: size}}`."""
        statistics = graph.statistics()
        sizes = {"triples": statistics.triples_per_split, "labeled nodes": statistics.labels_per_split}
        return {what: size for what, size in sizes.items() if size}

    def data_parts(self, graph: KnowledgeGraph) -> list[Markup]:
        """Return what a page shows about the data besides counts and relations."""
        return []

    # -- a model card, in Markdown -----------------------------------------------------------------------

    def uses(self, graph: KnowledgeGraph | None) -> str:
        """Describe what a model can be used for."""
        return self.task.description

    def limits(self) -> list[str]:
        """Return limits of a model that no metric shows, a sentence each."""
        return []

    def results(self, metrics: SplitMetrics, graph: KnowledgeGraph | None) -> list[str]:
        """Return the metrics of a run, `{split: {metric: value}}`, as paragraphs."""
        return [markdown_table(*self.metric_rows(metrics))]

    def metric_rows(self, metrics: SplitMetrics) -> tuple[list[str], list[list[str]]]:
        """Return the head and the rows of a table of metrics, one row per split."""
        known = [metric for metric in self.task.metrics if any(metric.name in values for values in metrics.values())]
        rows = [
            [SPLIT_TITLES[split], *(each.format(values[each.name]) if each.name in values else "" for each in known)]
            for split, values in metrics.items()
        ]
        return ["split", *(metric.title for metric in known)], rows

    def cautions(self, model: Estimator) -> list[str]:
        """Return what to know before relying on the metrics, without measurements that take long."""
        return []

    def commands(self) -> list[str]:
        """Return the commands that use a model; RUN stands for its folder."""
        return [command for kind in self.task.kinds for command in kind.commands]


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table. The first column is aligned to the left, the others to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
