"""What a task brings to pages about runs: what is measured, drawn and said of its models.

Nothing has to be brought: a task without a `Reporting` of its own has the figures and curves of its metrics.
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
from rgcn.pages.layout import SPLIT_WORDS, PageSection, Tile, compact, decimal, named, parts
from rgcn.training.history import Metric

OnProgress = Callable[[int, int], None]
Figures = Mapping[str, Mapping[str, Any]]

LOSS = Metric("loss", "loss", higher=False)


class Panel(NamedTuple):
    """One picture of a training: a figure, and the columns of the reports that hold it, with what each is of."""

    metric: Metric
    columns: tuple[tuple[str, str], ...]

    @property
    def title(self) -> str:
        name = self.metric.title[:1].upper() + self.metric.title[1:]
        return f"Validation {self.metric.title}" if [of for _, of in self.columns] == ["validation"] else name

    @property
    def y_format(self) -> Callable[[float], str]:
        return "{:.0%}".format if self.metric.share else compact

    @property
    def value_format(self) -> Callable[[float], str]:
        return self.metric.words if self.metric.share else decimal

    def chart(self, title: str, series: Sequence[Series], marks: Sequence[Mark] = ()) -> Markup:
        return line_chart(
            series,
            title=title,
            x_label="epoch",
            y_label=self.metric.title,
            marks=marks,
            y_range=(0.0, 1.0) if self.metric.share else (0.0 if self.metric.higher else None, None),
            y_format=self.y_format,
            value_format=self.value_format,
        )


class Measured(NamedTuple):
    """A model on one split, for people and programs."""

    split: str
    values: Mapping[str, Any]  # plain ones, ready for JSON; the task's metrics by name among them
    tiles: Sequence[Tile]  # what to read first
    sections: Sequence[PageSection] = ()  # what else there is to see
    cautions: Sequence[str] = ()  # what to know before believing it, a sentence or two each


class NamesOnPage(NamedTuple):
    """What people call the nodes, relations and classes of a graph, as markup; their names on hovering."""

    titles: Titles

    def node(self, name: str) -> Markup:
        return named(name, self.titles.of(self.titles.graph.nodes[name]))

    def relation(self, name: str) -> Markup:
        return named(name, self.titles.relation(self.titles.graph.relations[name]))

    def class_(self, name: str) -> Markup:
        return named(name, self.titles.class_(self.titles.classes[name]))


class Reporting:
    """What pages and cards say of a task's runs."""

    titles: Titles | None = None  # of the model's graph, where its data set has some; None: as the graph has them

    def __init__(self, task: Task) -> None:
        self.task = task

    def titles_of(self, graph: KnowledgeGraph) -> Titles:
        return self.titles or Titles(graph)

    # -- a page ------------------------------------------------------------------------------------------

    def held_out(self, model: Estimator) -> list[str]:
        """Splits that were kept from training and have something to measure, test first."""
        there = model.measured_splits()
        return [split for split in ("test", "valid") if split in there]

    def measure(self, model: Estimator, split: str, on_progress: OnProgress | None = None) -> Measured:
        """A model on one of its held-out splits; on_progress is called with (done, total) where that takes long."""
        figures = model.evaluate(split=split)
        there = [metric for metric in self.task.metrics if metric.name in figures]
        tiles = [Tile(f"{SPLIT_WORDS[split]} {metric.title}", metric.words(figures[metric.name])) for metric in there]
        return Measured(split, {"split": split, **figures}, tiles)

    def laid_out(
        self, template: str, model: Estimator, found: Mapping[str, Any], cautions: Sequence[str], **shown: Any
    ) -> Measured:
        """What a template makes of what was measured."""
        graph, names = model.graph_, NamesOnPage(self.titles_of(model.graph_))
        content = parts(template, found=found, graph=graph, names=names, calibration=model.calibration_, **shown)
        return Measured(found["split"], found, content.tiles, content.sections, cautions)

    def panels(self, reported: Collection[str], watch: Metric) -> list[Panel]:
        """The pictures of a training whose reports have these columns, and which goes by this validation figure."""
        found = []
        for metric in dict.fromkeys([self.task.headline, watch, LOSS]):
            trained = "loss" if metric == LOSS else f"train_{metric.name}"
            both = (trained, "training"), (f"valid_{metric.name}", "validation")
            found.append(Panel(metric, tuple(column for column in both if column[0] in reported)))
        return [panel for panel in found if panel.columns]

    # -- the data ----------------------------------------------------------------------------------------

    def splits(self, graph: KnowledgeGraph) -> dict[str, Mapping[str, int]]:
        """{what is split: {split: how many}}"""
        statistics = graph.statistics()
        every = {"triples": statistics.triples_per_split, "labelled nodes": statistics.labels_per_split}
        return {what: sizes for what, sizes in every.items() if sizes}

    def data_parts(self, graph: KnowledgeGraph) -> list[Markup]:
        """What a page shows of the data beside counts and relations."""
        return []

    # -- a model card, in Markdown -----------------------------------------------------------------------

    def uses(self, graph: KnowledgeGraph | None) -> str:
        """What a model is good for."""
        return self.task.about

    def limits(self) -> list[str]:
        """What no figure shows, a sentence each."""
        return []

    def results(self, figures: Figures, graph: KnowledgeGraph | None) -> list[str]:
        """The figures a run wrote down, {split: {metric: value}}, as paragraphs."""
        return [markdown_table(*self.figure_rows(figures))]

    def figure_rows(self, figures: Figures) -> tuple[list[str], list[list[str]]]:
        """The same as a head and rows, a split each."""
        there = [metric for metric in self.task.metrics if any(metric.name in one for one in figures.values())]
        rows = [
            [SPLIT_WORDS[split], *(metric.words(one[metric.name]) if metric.name in one else "" for metric in there)]
            for split, one in figures.items()
        ]
        return ["split", *(metric.title for metric in there)], rows

    def cautions(self, model: Estimator) -> list[str]:
        """What to know before believing the figures, without measuring what takes long."""
        return []

    def commands(self) -> list[str]:
        """How a model is asked; RUN is its folder."""
        return [command for kind in self.task.kinds for command in kind.commands]


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column holds words, and the others figures."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
