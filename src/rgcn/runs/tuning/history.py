"""The course of a study as a picture: every trial a dot, the best so far a line."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from rgcn.runs.report.charts import Scale, nice_ticks
from rgcn.runs.report.figures import compact
from rgcn.runs.report.markup import Html, paragraph, tag
from rgcn.runs.tuning.study import TrialRecord
from rgcn.tasks.task import Metric

BEST, FINISHED, STOPPED = "var(--series-2)", "var(--series-1)", "var(--muted)"


def history_chart(trials: Sequence[TrialRecord], metric: Metric, height: int = 260) -> Html:
    """Trials from left to right: finished ones filled, stopped ones hollow, the configuration's own ringed."""
    shown = [(trial, trial.value) for trial in trials if trial.value is not None]
    if not shown:
        return paragraph("No trial has been measured yet.", class_="empty")
    values, name = [value for _, value in shown], f"validation {metric.title}"
    ticks = nice_ticks(min(values), max(values), 4)
    numbers = [trial.number for trial, _ in shown]
    across, up = Scale(min(numbers) - 0.5, max(numbers) + 0.5), Scale(ticks[0], ticks[-1])
    drawing = tag(
        "svg",
        tag("title", f"{name} of each trial"),
        *_grid(across, up, ticks, numbers),
        *_best_so_far(shown, across, up, metric),
        *(_dot(trial, value, across, up, name) for trial, value in shown),
        role="img",
        aria_label=f"{name} of {len(shown)} trials, from {min(values):.4f} to {max(values):.4f}",
        width="100%",
        height=height,
        style="overflow:visible",
    )
    return tag(
        "figure",
        _legend(trials),
        tag("div", name, class_="axis"),
        tag("div", drawing, class_="plot"),
        tag("div", "trial", class_="axis across"),
        class_="chart",
    )


def _grid(across: Scale, up: Scale, ticks: Sequence[float], numbers: Sequence[int]) -> list[Html]:
    lines = []
    for tick in ticks:
        y = f"{100 - up.place(tick)}%"
        lines += [
            tag("line", x1="0", x2="100%", y1=y, y2=y, class_="grid"),
            tag("text", compact(tick), x="-8", y=y, dy="0.32em", text_anchor="end"),
        ]
    for tick in nice_ticks(min(numbers), max(numbers), 5) if len(numbers) > 1 else numbers:
        if float(tick).is_integer() and across.low <= tick <= across.high:
            lines.append(
                tag("text", compact(tick), x=f"{across.place(tick)}%", y="100%", dy="1.5em", text_anchor="middle")
            )
    return lines


def _best_so_far(shown: Sequence[tuple[TrialRecord, float]], across: Scale, up: Scale, metric: Metric) -> list[Html]:
    """A stair: level until a better trial, then up."""
    stairs: list[tuple[float, float]] = []
    for trial, value in shown:
        if trial.state == "finished" and (not stairs or metric.better(value, stairs[-1][1])):
            stairs.append((trial.number, value))
    ends = [*(x for x, _ in stairs[1:]), across.high]
    style = {"stroke": BEST, "stroke_width": "2"}
    lines = []
    for (x, y), end in zip(stairs, ends, strict=True):
        at = f"{100 - up.place(y)}%"
        lines.append(tag("line", x1=f"{across.place(x)}%", x2=f"{across.place(end)}%", y1=at, y2=at, **style))
    for (_, below), (x, above) in pairwise(stairs):
        at = f"{across.place(x)}%"
        lines.append(tag("line", x1=at, x2=at, y1=f"{100 - up.place(below)}%", y2=f"{100 - up.place(above)}%", **style))
    return lines


def _dot(trial: TrialRecord, value: float, across: Scale, up: Scale, name: str) -> Html:
    settings = "\n".join(f"{key} = {_plain(drawn)}" for key, drawn in trial.values.items())
    said = tag("title", f"trial {trial.number}, {trial.state}: {name} {value:.4f}\n{settings}")
    place = {"cx": f"{across.place(trial.number)}%", "cy": f"{100 - up.place(value)}%"}
    look = _look(trial)
    ring = [tag("circle", r="7", class_="ring", **place)] if trial.own else []
    return tag("g", *ring, tag("circle", said, r="3.5", **look, **place))


def _look(trial: TrialRecord) -> dict[str, str]:
    if trial.state == "finished":
        return {"style": f"fill:{FINISHED}"}
    return {"style": f"fill:none;stroke:{STOPPED};stroke-width:1.5"}


def _legend(trials: Sequence[TrialRecord]) -> Html:
    def small(*shapes: Html) -> Html:
        return tag("svg", *shapes, width="16", height="16")

    place = {"cx": "8", "cy": "8"}
    items = [
        tag("li", small(tag("circle", r="3.5", style=f"fill:{FINISHED}", **place)), "finished"),
        tag("li", small(tag("line", x1="0", x2="16", y1="8", y2="8", stroke=BEST, stroke_width="2")), "best so far"),
    ]
    if any(trial.state == "stopped" for trial in trials):
        hollow = f"fill:none;stroke:{STOPPED};stroke-width:1.5"
        items.insert(1, tag("li", small(tag("circle", r="3.5", style=hollow, **place)), "stopped early, so far"))
    if any(trial.own for trial in trials):
        items.append(tag("li", small(tag("circle", r="6", class_="ring", **place)), "the configuration as it was"))
    return tag("ul", *items, class_="legend")


def _plain(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
