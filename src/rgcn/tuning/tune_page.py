"""tune.html: the course of a study, what mattered in it, and the best ten trials."""

from __future__ import annotations

import time
from typing import Any

from markupsafe import Markup

from rgcn.pages.charts import Bar, Mark, Point, Series, line_chart
from rgcn.pages.layout import page, parts
from rgcn.tuning.result import TuneResult, summary
from rgcn.tuning.spaces import described
from rgcn.version import __version__

SHOWN = 10


def tune_page(result: TuneResult) -> str:
    """The whole page, in one file."""
    plan, finished = result.plan, result.ranking
    content = parts(
        "tuning.html",
        result=result,
        summary=summary(result).partition(": ")[2],
        file=plan.folder / "best.yaml",
        history=_history(result),
        importance=[Bar(Markup("<code>{}</code>").format(key), [share]) for key, share in result.importance.items()],
        finished=finished,
        most=SHOWN,
        keys=[key for key in plan.spaces if any(key in trial.values for trial in finished)],
        value_words=_value,
        spaces={key: described(space) for key, space in plan.spaces.items()},
        failed=[trial for trial in result.trials if trial.state == "failed"],
    )
    return page(f"Tuning {plan.name}", content, footer=f"rgcn {__version__}, {time.strftime('%Y-%m-%d %H:%M')}")


def _history(result: TuneResult) -> Markup:
    """Every trial a dot, the best so far a line, the configuration's own ringed."""
    metric, own = result.plan.objective.metric, result.own
    values: dict[str, list[Point]] = {"finished": [], "stopped": []}
    for trial in result.trials:
        if trial.state in values and trial.value is not None:
            values[trial.state].append((trial.number, trial.value))
    stairs: list[Point] = []
    for number, value in values["finished"]:
        if not stairs or metric.better(value, stairs[-1][1]):
            stairs += [(number, stairs[-1][1] if stairs else value), (number, value)]
    stairs += [(trial.number, stairs[-1][1]) for trial in result.trials[-1:] if stairs]
    series = [
        Series("finished", values["finished"], color=0, joined=False),
        Series("best so far", stairs, color=1),
        Series("stopped early, so far", values["stopped"], color=2, joined=False),
    ]
    every = [value for some in values.values() for _, value in some] or [0.0]
    return line_chart(
        series,
        title=f"{result.metric} of each trial",
        x_label="trial",
        y_label=result.metric,
        marks=[] if own is None else [Mark("the configuration as it was", own.number, own.value)],
        y_range=(min(every), max(every)),
    )


def _value(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.3g}" if isinstance(value, float) else str(value)
