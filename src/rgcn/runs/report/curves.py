"""The pictures of a training: which curves, in which colors, with which marks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rgcn.runs.report.charts import Mark, Series, line_chart
from rgcn.runs.report.figures import compact, decimal, percent, three_places
from rgcn.runs.report.markup import Html, join, paragraph, tag
from rgcn.runs.report.record import RunRecord


def whole_percent(value: float) -> str:
    return f"{value:.0%}"


@dataclass(frozen=True)
class Panel:
    """One picture: columns of the metrics that belong together, and how to read it."""

    title: str
    columns: tuple[tuple[str, str], ...]
    y_label: str
    words: str
    y_range: tuple[float | None, float | None] = (None, None)
    y_format: Callable[[float], str] = compact
    value_format: Callable[[float], str] = decimal


LOSS_WORDS = "The loss says how wrong the model is; training lowers it."
PANELS = {
    "node-classification": (
        Panel(
            "Accuracy",
            (("train_accuracy", "training"), ("valid_accuracy", "validation")),
            "share classified correctly",
            "Where training rises and validation does not, the model learns by heart what does not carry over.",
            (0.0, 1.0),
            whole_percent,
            percent,
        ),
        Panel("Loss", (("loss", "training"), ("valid_loss", "validation")), "loss (cross-entropy)", LOSS_WORDS),
    ),
    "link-prediction": (
        Panel(
            "Validation MRR",
            (("valid_mrr", "validation"),),
            "MRR on validation triples",
            "MRR is the mean of 1 / rank: 1 would mean that every missing node is the model's first answer.",
            (0.0, None),
            value_format=three_places,
        ),
        Panel("Loss", (("loss", "training"),), "loss (cross-entropy)", LOSS_WORDS),
    ),
}


def curves(run: RunRecord) -> Html:
    """Every picture of a run's training, side by side where there is room."""
    if not run.metrics:
        return paragraph("No epoch has been reported yet.", class_="empty")
    return tag("div", *(tag("div", _picture(run, panel)) for panel in PANELS[run.task]), class_="beside")


def _picture(run: RunRecord, panel: Panel) -> Html:
    series = [Series(name, run.curve(column), color=i) for i, (column, name) in enumerate(panel.columns)]
    chart = line_chart(
        series,
        title=f"{panel.title} over the training of {run.title}",
        x_label="epoch",
        y_label=panel.y_label,
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
    if best is None or best[0] not in dict(panel.columns):
        return []
    _, number, value = best
    return [Mark(f"best validation: {panel.value_format(value)} at epoch {number:,.0f}", number, value)]
