"""tune.html: the course of a study, what mattered in it, and the best ten trials."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from rgcn.pages.charts import Bar, Mark, Series, bar_chart, line_chart
from rgcn.pages.figures import percent
from rgcn.pages.markup import Html, definitions, join, paragraph, table, tag
from rgcn.pages.page import Section, Tile, page
from rgcn.tuning.result import TuneResult, summary
from rgcn.tuning.spaces import described
from rgcn.tuning.study import TrialRecord
from rgcn.version import __version__
from rgcn.words import duration

SHOWN = 10


def tune_page(result: TuneResult) -> str:
    """The whole page, in one file."""

    plan = result.plan
    best = result.best
    introduction = paragraph(
        "Every figure here is of validation data: the test split was not read. The best of many trials looks better "
        "than it is; what it is worth shows when it is trained anew, with several seeds, and measured on test data."
    )
    command = paragraph("To train with the best settings: ", tag("code", f"rgcn train {plan.folder / 'best.yaml'}"))
    return page(
        f"Tuning {plan.name}",
        [_history(result), _importance(result), _best_ten(result), _searched(result), *_failures(result)],
        introduction=join([introduction, command]) if best is not None else introduction,
        tiles=_tiles(result),
        footer=f"rgcn {__version__}, {time.strftime('%Y-%m-%d %H:%M')}",
    )


def _tiles(result: TuneResult) -> list[Tile]:
    best, own, seconds = result.best, result.own, [t.seconds for t in result.trials if t.seconds is not None]
    tiles = []
    if best is not None:
        tiles.append(Tile(f"best {result.metric}", f"{best.value:.4f}", _place(best)))
    if own is not None:
        tiles.append(Tile("the configuration as it was", f"{own.value:.4f}", _place(own)))
    tiles.append(Tile("trials", str(len(result.trials)), summary(result).partition(": ")[2]))
    tiles.append(Tile("time in trials", duration(sum(seconds)), _trainings(result)))
    return tiles


def _place(trial: TrialRecord) -> str:
    spread = f"± {trial.deviation:.4f}, " if trial.deviation else ""
    return f"{spread}trial {trial.number}, epoch {trial.epoch}"


def _trainings(result: TuneResult) -> str:
    folds = result.plan.objective.folds
    return f"{folds} trainings a trial" if folds > 1 else "one training a trial"


def _history(result: TuneResult) -> Section:
    """Every trial a dot, the best so far a line, the configuration's own ringed."""
    metric, own = result.plan.objective.metric, result.own
    values = {state: _values(result.trials, state) for state in ("finished", "stopped")}
    stairs: list[tuple[float, float]] = []
    for number, value in values["finished"]:
        if not stairs or metric.better(value, stairs[-1][1]):
            stairs += [(number, stairs[-1][1] if stairs else value), (number, value)]
    stairs += [(trial.number, stairs[-1][1]) for trial in result.trials[-1:] if stairs]
    series = [
        Series("finished", values["finished"], color=0, joined=False),
        Series("best so far", stairs, color=1),
        *([Series("stopped early, so far", values["stopped"], color=2, joined=False)] if values["stopped"] else []),
    ]
    marks = [] if own is None else [Mark("the configuration as it was", own.number, own.value)]
    every = [value for some in values.values() for _, value in some] or [0.0]
    chart = line_chart(
        series,
        title=f"{result.metric} of each trial",
        x_label="trial",
        y_label=result.metric,
        marks=marks,
        y_range=(min(every), max(every)),
    )
    better = "higher" if metric.higher else "lower"
    return Section("History", f"Each trial in the order it began; {better} is better.", chart)


def _values(trials: Sequence[TrialRecord], state: str) -> list[tuple[float, float]]:
    return [(trial.number, trial.value) for trial in trials if trial.state == state and trial.value is not None]


def _importance(result: TuneResult) -> Section:
    if not result.importance:
        text = paragraph("Too few trials have finished to tell the settings apart.", class_="empty")
        return Section("What mattered", "", text)
    finished = result.count("finished")
    bars = [Bar(tag("code", key), [share]) for key, share in result.importance.items()]
    explanation = (
        f"How far the values of good trials differ from those of all (PED-ANOVA), as shares, over {finished} finished "
        "trials. With few trials this is a hint, not a measurement."
    )
    chart = bar_chart(bars, ["importance"], label="setting", value_format=percent)
    return Section("What mattered", explanation, chart)


def _best_ten(result: TuneResult) -> Section:
    finished = result.ranking
    keys = [key for key in result.plan.spaces if any(key in trial.values for trial in finished)]
    short = {key: key.rpartition(".")[2] for key in keys}
    rows = [_row(trial, keys) for trial in finished[:SHOWN]]
    head = ["trial", result.metric, "±", "epoch", *(tag("span", short[key], title=key) for key in keys)]
    body = table(head, rows, numeric=range(len(head))) if rows else paragraph("No trial has finished.", class_="empty")
    heading = "The best ten" if len(finished) > SHOWN else "Finished trials"
    return Section(heading, "Best first; a gap is a setting that was not drawn. All trials are in trials.csv.", body)


def _row(trial: TrialRecord, keys: list[str]) -> list[Html | str]:
    name = f"{trial.number} (as it was)" if trial.own else str(trial.number)
    spread = "" if trial.deviation is None else f"{trial.deviation:.4f}"
    return [name, f"{trial.value:.4f}", spread, str(trial.epoch), *(_value(trial.values.get(key)) for key in keys)]


def _searched(result: TuneResult) -> Section:
    pairs: list[tuple[object, object]] = [
        (tag("code", key), described(space)) for key, space in result.plan.spaces.items()
    ]
    objective = result.plan.objective
    folds = f"{objective.folds} trainings with seeds {objective.seed} to {objective.seed + objective.folds - 1}"
    explanation = (
        f"What was drawn from. Each trial is the mean of {folds}." if objective.folds > 1 else "What was drawn from."
    )
    return Section("Searched", explanation, definitions(pairs))


def _failures(result: TuneResult) -> list[Section]:
    failed = [trial for trial in result.trials if trial.state == "failed"]
    if not failed:
        return []
    rows = [[str(trial.number), trial.error or "", _settings(trial)] for trial in failed]
    return [Section("Failed", "Settings that could not be trained.", table(["trial", "why", "settings"], rows))]


def _settings(trial: TrialRecord) -> str:
    return ", ".join(f"{key} = {_value(value)}" for key, value in trial.values.items())


def _value(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.3g}" if isinstance(value, float) else str(value)
