"""How good a configuration is, told by validation alone."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rgcn.config import LinkPredictionRun, RunConfig
from rgcn.errors import ConfigError, DataError
from rgcn.graph import KnowledgeGraph
from rgcn.runs.assembly import make_model
from rgcn.runs.tuning.blind import without_test_labels, without_test_triples
from rgcn.runs.tuning.spaces import changed
from rgcn.tasks.link_fitting import LinkEpoch
from rgcn.tasks.node_training import Epoch

HELD_OUT = 0.2  # of the training labels, where the data has no validation split and the configuration does not say
POINTS = 5  # how often in a fold a trial may be stopped early; telling the study takes as long as a small step
MEASUREMENTS = 10  # of validation MRR in a training, where the configuration does not say
METRICS = {"node-classification": ("accuracy", "loss"), "link-prediction": ("mrr",)}
FOLDS = {"node-classification": 3, "link-prediction": 1}

Reached = Callable[[int, float], None]


@dataclass(frozen=True)
class Objective:
    """What a study optimizes: a validation metric, its mean over folds.

    A fold is a training with a seed of its own: it starts from other weights and, where the data has no validation
    split of its own, holds out other training labels. AIFB has 140 training labels, of which 28 are held out: one fold
    tells accuracies apart in steps of 3.6 %, which is more than most settings matter.
    """

    metric: str
    folds: int
    seed: int

    @property
    def maximizes(self) -> bool:
        return self.metric != "loss"

    def better(self, values: Sequence[float]) -> float:
        return max(values) if self.maximizes else min(values)


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


@dataclass
class _Curve:
    """A fold's course: the epochs measured, the metric, and what breaks ties (higher is better)."""

    epochs: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    ties: list[float] = field(default_factory=list)

    def at(self, index: int) -> tuple[float, float]:
        last = min(index, len(self.values) - 1)  # a fold that lost patience stays where it was
        return self.values[last], self.ties[last]


def blinded(config: RunConfig, graph: KnowledgeGraph) -> KnowledgeGraph:
    """The graph without its test split, checked to have something to validate on."""
    if isinstance(config, LinkPredictionRun):
        graph = without_test_triples(graph)
        if graph.triple_splits is None or not len(graph.split_triples("valid")):
            raise DataError("tuning needs validation triples, and the graph has none: read it with a valid split")
        return graph
    graph = without_test_labels(graph)
    if graph.labels is None or not len(graph.labels):
        raise DataError("tuning needs labels, and the graph has none outside its test split")
    return graph


def for_trials(config: RunConfig) -> RunConfig:
    """The configuration as trials run it: measured on validation often enough, and reporting to nobody."""
    training = config.training
    changes: dict[str, object] = {"trackers": []}
    if isinstance(config, LinkPredictionRun):
        every = config.training.evaluate_every
        changes["training.evaluate_every"] = every or max(1, training.epochs // MEASUREMENTS)
    else:
        changes["training.validation"] = config.training.validation or HELD_OUT
    return changed(config, changes)


def check_objective(config: RunConfig, metric: str | None, folds: int | None, seed: int) -> Objective:
    """The objective a user asked for, or the usual one."""
    known = METRICS[config.task]
    if metric is not None and metric not in known:
        raise ConfigError(f"--metric of {config.task} is {' or '.join(known)}, not {metric!r}")
    if folds is not None and folds < 1:
        raise ConfigError(f"--folds is at least 1, not {folds}")
    return Objective(metric or known[0], folds or FOLDS[config.task], seed)


def evaluate(config: RunConfig, graph: KnowledgeGraph, objective: Objective, reached: Reached) -> Evaluation:
    """Train once for each fold, on a graph without its test split.

    reached  called with (point, value so far) up to five times a fold; may raise to stop the trial
    """
    start = time.perf_counter()
    curves: list[_Curve] = []
    for fold in range(objective.folds):
        model = make_model(changed(config, {"seed": objective.seed + fold}))
        curves.append(_Curve())
        model.fit(graph, _Watcher(config.training.epochs, objective, curves, reached))
    index = _best_index(curves, objective)
    folds = [curve.at(index)[0] for curve in curves]
    longest = max(curves, key=lambda curve: len(curve.epochs))
    return Evaluation(statistics.fmean(folds), longest.epochs[index], folds, time.perf_counter() - start)


class _Watcher:
    """Hears every epoch of a fold, keeps its curve, and says how the trial stands now and then."""

    def __init__(self, epochs: int, objective: Objective, curves: list[_Curve], reached: Reached) -> None:
        self.epochs, self.objective, self.curves, self.reached = epochs, objective, curves, reached
        self.point = 0

    def __call__(self, epoch: Epoch | LinkEpoch) -> None:
        if isinstance(epoch, LinkEpoch):
            if epoch.valid_mrr is None:
                return
            value, tie = epoch.valid_mrr, 0.0
        else:
            assert epoch.valid_loss is not None
            assert epoch.valid_accuracy is not None
            value = epoch.valid_loss if self.objective.metric == "loss" else epoch.valid_accuracy
            tie = -epoch.valid_loss
        if not math.isfinite(value) or not math.isfinite(tie):
            what = "loss" if math.isfinite(value) else self.objective.metric
            raise DataError(f"the validation {what} is not finite in epoch {epoch.number}")
        curve = self.curves[-1]
        curve.epochs.append(epoch.number)
        curve.values.append(value)
        curve.ties.append(tie)
        point = epoch.number * POINTS // self.epochs
        if point > self.point:
            self.point = point
            so_far = statistics.fmean(self.objective.better(one.values) for one in self.curves)
            self.reached((len(self.curves) - 1) * POINTS + point, so_far)


def _best_index(curves: Sequence[_Curve], objective: Objective) -> int:
    """Where the mean over folds is best; of equally good places the one with the lowest loss, then the earliest."""
    sign = 1 if objective.maximizes else -1

    def goodness(index: int) -> tuple[float, float]:
        places = [curve.at(index) for curve in curves]
        # Rounded, so that 0.9 + 0.8 and 0.8 + 0.9 are the same.
        return round(sign * statistics.fmean(v for v, _ in places), 12), statistics.fmean(t for _, t in places)

    return max(range(max(len(curve.values) for curve in curves)), key=goodness)
