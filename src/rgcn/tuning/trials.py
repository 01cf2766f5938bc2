"""Trials, one after another in this process or several at a time in processes of their own.

Only this process opens the study. The others are sent a configuration and train with it: one that dies leaves nothing
half written, and takes no other trial with it.
"""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic, perf_counter
from typing import TYPE_CHECKING

from rgcn.config import RunConfig
from rgcn.errors import ConfigError, DataError, RgcnError
from rgcn.graph import KnowledgeGraph
from rgcn.models.task import task_of
from rgcn.runs.assembly import load_run_data, make_model
from rgcn.runs.configuration import changed
from rgcn.runs.worker_pool import MOST_DEATHS, Crew, Done, Work
from rgcn.training.history import Epoch, Metric
from rgcn.tuning.spaces import draw, draw_own
from rgcn.tuning.study import StudyObjective, StudyPlan, ask, optuna

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import Trial

POINTS = 5  # how often in a fold a trial may be stopped early; telling the study takes as long as a small step
Curve = dict[int, list[float]]  # of a fold, by epoch: the metric, and what breaks ties behind it
MOST_IMPOSSIBLE = 100  # draws in a row that cannot be: then the spaces do not fit the configuration


@dataclass(frozen=True)
class TrialEnding:
    """How a trial ended: with a figure, stopped as no better than others, or failed; then `error` says why."""

    seconds: float | None = None
    error: str | None = None
    value: float | None = None  # the metric's mean over folds, at the epoch where it is best; None: there is no figure
    epoch: int | None = None
    folds: list[float] = field(default_factory=list)  # the metric of each at that epoch

    @property
    def deviation(self) -> float:
        return statistics.stdev(self.folds) if len(self.folds) > 1 else 0.0


def for_trials(config: RunConfig) -> RunConfig:
    """The configuration as trials run it: measured on validation often enough, and reporting to nobody."""
    return changed(config, {**task_of(config.task).for_trials(config), "trackers": []})


class Trials:
    """The trials still to be made: draws their settings, hears how they stand, and tells the study how they ended."""

    def __init__(self, plan: StudyPlan, study: Study, left: int, minutes: float | None = None) -> None:
        self.plan, self.study, self.left = plan, study, left
        self._base = for_trials(plan.config)
        self._deadline = math.inf if minutes is None else monotonic() + 60 * minutes
        self._under_way: dict[int, Trial] = {}

    def __iter__(self) -> Iterator[tuple[int, RunConfig]]:
        """Numbers and configurations, drawn as they are asked for; however short the time, there is one."""
        for begun in range(self.left):
            if begun and monotonic() >= self._deadline:
                return
            trial, config = self._draw()
            self._under_way[trial.number] = trial
            yield trial.number, config

    def _draw(self) -> tuple[Trial, RunConfig]:
        """Draws of settings that cannot be together are not trials."""
        words = ""
        for _ in range(MOST_IMPOSSIBLE):
            trial = ask(self.study)
            drawing = draw_own if trial.user_attrs.get("own") else draw
            try:
                return trial, drawing(trial, self._base, self.plan.spaces)
            except ConfigError as error:
                words = str(error)
                trial.set_user_attr("impossible", words)
                self.study.tell(trial, state=optuna().trial.TrialState.PRUNED)
        raise ConfigError(
            f"{MOST_IMPOSSIBLE} draws in a row were settings that cannot be together; fix some with --fix. The last: "
            f"{words}"
        )

    def goes_on(self, number: int, point: int, value: float) -> bool:
        """Note how a trial stands; whether it is worth going on."""
        trial = self._under_way[number]
        trial.report(value, point)
        return not trial.should_prune()

    def end(self, number: int, ending: TrialEnding) -> int:
        """Tell the study; the trial's number."""
        trial = self._under_way.pop(number)
        trial.set_user_attr("seconds", ending.seconds)
        if ending.value is not None:
            for key in ("epoch", "folds", "deviation"):
                trial.set_user_attr(key, getattr(ending, key))
            self.study.tell(trial, ending.value)
        else:
            if ending.error is not None:
                trial.set_user_attr("error", ending.error)
            # Failed ones too: the sampler learns from stopped trials that such settings are no good, from failed none.
            self.study.tell(trial, state=optuna().trial.TrialState.PRUNED)
        return number

    def run(self, jobs: int, graph: KnowledgeGraph) -> Generator[int, None, None]:
        """Numbers of trials as they end, on a graph without its test split; on leaving, whatever still runs stops."""

        def answer(task: tuple[int, RunConfig], reached: tuple[int, float]) -> bool:
            return self.goes_on(task[0], *reached)

        with Crew[tuple[int, RunConfig]](jobs, partial(_trainer, self.plan, graph if jobs == 1 else None)) as crew:
            for (number, _), end in crew.run(iter(self), answer, MOST_DEATHS):
                yield self.end(number, end.value if isinstance(end, Done) else TrialEnding(error=end.words))


def _trainer(plan: StudyPlan, graph: KnowledgeGraph | None) -> Work[tuple[int, RunConfig]]:
    """Does trials; without a graph, in a process that reads it by itself."""
    if graph is None:
        warnings.simplefilter("ignore")  # the parent has read the same data and has said what there is to say
        graph = task_of(plan.config.task).blinded(load_run_data(plan.config, plan.mirror))
    return lambda task, ask: attempt(task[1], graph, plan.objective, lambda point, value: ask((point, value)))


class _NotWorthwhileError(Exception):
    """Ends a training from within."""


def attempt(
    config: RunConfig, graph: KnowledgeGraph, objective: StudyObjective, goes_on: Callable[[int, float], bool]
) -> TrialEnding:
    """Train and measure; whatever the settings do to it is an ending, not an error."""
    start = perf_counter()
    try:
        return evaluate(config, graph, objective, goes_on)
    except _NotWorthwhileError:
        return TrialEnding(perf_counter() - start)
    except (RgcnError, ArithmeticError, MemoryError, RuntimeError) as error:
        return TrialEnding(perf_counter() - start, f"{type(error).__name__}: {error}"[:500])


def evaluate(
    config: RunConfig, graph: KnowledgeGraph, objective: StudyObjective, reached: Callable[[int, float], bool | None]
) -> TrialEnding:
    """Train once for each fold, on a graph without its test split.

    reached  called with (point, value so far) up to five times a fold; False stops the trial
    """
    start = perf_counter()
    # Of equally good places the one where the other figures are best, then the earliest.
    order = list(dict.fromkeys([objective.metric, *task_of(config.task).watched]))
    curves: list[Curve] = []
    told = 0  # the point at which the study last heard

    def hear(epoch: Epoch) -> None:
        nonlocal told
        if epoch[f"valid_{objective.metric.name}"] is None:
            return
        curves[-1][epoch.number] = _figures(epoch, order)
        point = (len(curves) - 1) * POINTS + epoch.number * POINTS // config.training.epochs
        if point > told:
            told = point
            best = max if objective.metric.higher else min
            if reached(point, statistics.fmean(best(curve.values())[0] for curve in curves)) is False:
                raise _NotWorthwhileError

    for fold in range(objective.folds):
        told = fold * POINTS
        curves.append({})
        make_model(changed(config, {"seed": objective.seed + fold})).fit(graph, hear)
        if not curves[-1]:
            raise DataError(f"the training reported no validation {objective.metric.title}")
    epochs = max((list(curve) for curve in curves), key=len)
    courses = [list(curve.values()) for curve in curves]
    for course in courses:
        course += course[-1:] * (len(epochs) - len(course))  # a fold that lost patience stays where it was
    index = max(range(len(epochs)), key=lambda index: _goodness([course[index] for course in courses], order))
    folds = [course[index][0] for course in courses]
    return TrialEnding(perf_counter() - start, None, statistics.fmean(folds), epochs[index], folds)


def _figures(epoch: Epoch, order: Sequence[Metric]) -> list[float]:
    figures = [epoch[f"valid_{metric.name}"] for metric in order]
    for metric, value in zip(order, figures, strict=True):
        if value is not None and not math.isfinite(value):
            raise DataError(f"the validation {metric.title} is not finite in epoch {epoch.number}")
    return [0.0 if value is None else value for value in figures]


def _goodness(folds: Sequence[Sequence[float]], order: Sequence[Metric]) -> list[float]:
    """The means over folds, higher is better; rounded, so that 0.9 + 0.8 and 0.8 + 0.9 are the same."""
    means = [statistics.fmean(values) for values in zip(*folds, strict=True)]
    return [round(mean if metric.higher else -mean, 12) for metric, mean in zip(order, means, strict=True)]
