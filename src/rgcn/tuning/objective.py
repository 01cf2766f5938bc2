"""How good a configuration is, told by validation alone."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rgcn.config import RunConfig
from rgcn.errors import ConfigError, DataError
from rgcn.graph import KnowledgeGraph
from rgcn.runs.assembly import make_model
from rgcn.tasks.task import Epoch, Metric, task_of
from rgcn.tuning.spaces import changed

POINTS = 5  # how often in a fold a trial may be stopped early; telling the study takes as long as a small step

Reached = Callable[[int, float], None]


@dataclass(frozen=True)
class StudyObjective:
    """What a study optimizes: a validation metric, its mean over folds.

    A fold is a training with a seed of its own: it starts from other weights and, where the data has no validation
    split of its own, holds out other training labels.
    """

    metric: Metric
    folds: int
    seed: int


@dataclass(frozen=True)
class Evaluation:
    """What a trial gave.

    value   the metric's mean over folds, at the epoch where it is best
    epoch   that epoch
    folds   the metric of each fold at that epoch
    """

    value: float
    epoch: int
    folds: list[float]
    seconds: float

    @property
    def deviation(self) -> float:
        return statistics.stdev(self.folds) if len(self.folds) > 1 else 0.0


def for_trials(config: RunConfig) -> RunConfig:
    """The configuration as trials run it: measured on validation often enough, and reporting to nobody."""
    return changed(config, {**task_of(config.task).for_trials(config), "trackers": []})


def check_objective(config: RunConfig, metric: str | None, folds: int | None, seed: int) -> StudyObjective:
    """The objective a user asked for, or the usual one."""
    task = task_of(config.task)
    known = {one.name: one for one in task.watched}
    if not known or (metric is not None and metric not in known):
        raise ConfigError(f"--metric of {config.task} is {' or '.join(known) or 'nothing'}, not {metric!r}")
    if folds is not None and folds < 1:
        raise ConfigError(f"--folds is at least 1, not {folds}")
    return StudyObjective(known[metric or next(iter(known))], folds or task.folds, seed)


def evaluate(config: RunConfig, graph: KnowledgeGraph, objective: StudyObjective, reached: Reached) -> Evaluation:
    """Train once for each fold, on a graph without its test split.

    reached  called with (point, value so far) up to five times a fold; may raise to stop the trial
    """
    start = time.perf_counter()
    # Of equally good places the one where the other figures are best, then the earliest.
    order = list(dict.fromkeys([objective.metric, *task_of(config.task).watched]))
    curves: list[_Curve] = []

    def hear(epoch: Epoch) -> None:
        if epoch[f"valid_{objective.metric.name}"] is None:
            return
        curves[-1].add(epoch, order)
        point = epoch.number * POINTS // config.training.epochs
        if point > curves[-1].point:
            curves[-1].point = point
            best = max if objective.metric.higher else min
            so_far = statistics.fmean(best(figures[0] for figures in curve.figures) for curve in curves)
            reached((len(curves) - 1) * POINTS + point, so_far)

    for fold in range(objective.folds):
        curves.append(_Curve())
        make_model(changed(config, {"seed": objective.seed + fold})).fit(graph, hear)
        if not curves[-1].epochs:
            raise DataError(f"the training reported no validation {objective.metric.title}")
    longest = max(curves, key=lambda curve: len(curve.epochs))
    index = max(range(len(longest.epochs)), key=lambda index: _goodness(curves, order, index))
    folds = [curve.at(index)[0] for curve in curves]
    return Evaluation(statistics.fmean(folds), longest.epochs[index], folds, time.perf_counter() - start)


@dataclass
class _Curve:
    """A fold's course: the epochs measured, and at each the metric with what breaks ties behind it."""

    epochs: list[int] = field(default_factory=list)
    figures: list[list[float]] = field(default_factory=list)
    point: int = 0  # at which the study was last told

    def add(self, epoch: Epoch, order: Sequence[Metric]) -> None:
        figures = [epoch[f"valid_{metric.name}"] for metric in order]
        for metric, value in zip(order, figures, strict=True):
            if value is not None and not math.isfinite(value):
                raise DataError(f"the validation {metric.title} is not finite in epoch {epoch.number}")
        self.epochs.append(epoch.number)
        self.figures.append([0.0 if value is None else value for value in figures])

    def at(self, index: int) -> list[float]:
        return self.figures[min(index, len(self.figures) - 1)]  # a fold that lost patience stays where it was


def _goodness(curves: Sequence[_Curve], order: Sequence[Metric], index: int) -> list[float]:
    """The means over folds, higher is better; rounded, so that 0.9 + 0.8 and 0.8 + 0.9 are the same."""
    means = [statistics.fmean(values) for values in zip(*(curve.at(index) for curve in curves), strict=True)]
    return [round(mean if metric.higher else -mean, 12) for metric, mean in zip(order, means, strict=True)]
