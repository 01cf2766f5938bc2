"""The pictures of a training: which curves, in which colors, with which marks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from rgcn.pages.charts import Mark, Series, line_chart
from rgcn.pages.figures import compact, decimal
from rgcn.pages.markup import Html, join, paragraph, tag
from rgcn.runs.run_record import RunRecord
from rgcn.tasks.task import Metric

LOSS = Metric("loss", "loss", higher=False)


@dataclass(frozen=True)
class Panel:
    """One picture: a figure, and the columns of the reports that hold it, with what each is of."""

    metric: Metric
    columns: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, metric: Metric, reported: Collection[str]) -> Panel:
        """
        >>> Panel.of(LOSS, ["loss", "valid_mrr"]).columns
        (('loss', 'training'),)
        """
        trained = "loss" if metric == LOSS else f"train_{metric.name}"
        both = (trained, "training"), (f"valid_{metric.name}", "validation")
        return cls(metric, tuple(column for column in both if column[0] in reported))

    @property
    def title(self) -> str:
        name = self.metric.title[:1].upper() + self.metric.title[1:]
        return f"Validation {self.metric.title}" if [of for _, of in self.columns] == ["validation"] else name

    @property
    def words(self) -> str:
        if self.metric == LOSS:
            return "The loss says how wrong the model is; training lowers it."
        if len(self.columns) > 1:
            return (
                "Where training improves and validation does not, the model learns by heart what does not carry over."
            )
        return f"{'Higher' if self.metric.higher else 'Lower'} is better."

    @property
    def y_range(self) -> tuple[float | None, float | None]:
        return (0.0, 1.0) if self.metric.share else (0.0 if self.metric.higher else None, None)

    @property
    def y_format(self) -> Callable[[float], str]:
        return (lambda value: f"{value:.0%}") if self.metric.share else compact

    @property
    def value_format(self) -> Callable[[float], str]:
        return self.metric.words if self.metric.share else decimal


def curves(run: RunRecord, panels: Sequence[Panel]) -> Html:
    """Every picture of a run's training, side by side where there is room."""
    if not run.metrics:
        return paragraph("No epoch has been reported yet.", class_="empty")
    return tag("div", *(tag("div", _picture(run, panel)) for panel in panels), class_="beside")


def _picture(run: RunRecord, panel: Panel) -> Html:
    series = [Series(name, run.curve(column), color=i) for i, (column, name) in enumerate(panel.columns)]
    chart = line_chart(
        series,
        title=f"{panel.title} over the training of {run.title}",
        x_label="epoch",
        y_label=panel.metric.title,
        marks=[*_resumes(run), *_best(run, panel)],
        y_range=panel.y_range,
        y_format=panel.y_format,
        value_format=panel.value_format,
    )
    return join([tag("h3", panel.title), paragraph(panel.words, class_="muted"), chart])


def _resumes(run: RunRecord) -> list[Mark]:
    """Where a session took up what another had left."""
    later = [one.get("from_step") for one in run.sessions[1:]]
    return [Mark("resumed", float(step)) for step in dict.fromkeys(later) if step]


def _best(run: RunRecord, panel: Panel) -> list[Mark]:
    best = run.best()
    if best is None or best.metric != panel.metric:
        return []
    return [
        Mark(
            f"best validation: {panel.value_format(best.value)} at epoch {best.epoch:,}", float(best.epoch), best.value
        )
    ]
