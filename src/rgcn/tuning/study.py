"""A study as an Optuna study in a SQLite file, and the trials that it consists of.

Trials run one after another in this process, or several at a time in worker processes. Only this process opens the
study. A worker receives a configuration and trains with it, so a worker that dies leaves nothing half written and does
not disturb other trials.
"""

from __future__ import annotations

import itertools
import json
import math
import sqlite3
import statistics
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rgcn.config import RunConfig, SearchSpace
from rgcn.errors import ConfigError, DataError, RgcnError
from rgcn.graph import KnowledgeGraph
from rgcn.models.task import task_of
from rgcn.runs.assembly import load_run_data, make_model
from rgcn.runs.configuration import SETTINGS_WITHOUT_EFFECT, flat_settings, replace_settings
from rgcn.runs.worker_pool import MAX_DEATHS, TaskFunction, TaskResult, WorkerPool
from rgcn.system.formatting import shorten
from rgcn.system.lazy import import_extra
from rgcn.training.history import Metric, TrainingReport
from rgcn.tuning.spaces import Spaces, describe_space, draw, values_in_spaces

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

STUDY = "rgcn-tune"
FORMAT = 1
DRAWS = "draws"  # attribute of a trial: the number of its random sequence
UNCHANGED = "own"  # attribute of the trial with the unchanged configuration
NUM_RANDOM_TRIALS = 8  # before the sampler uses the results of earlier trials
REPORTS_PER_FOLD = 5  # a report to Optuna, which may stop the trial, takes as long as a small step
MAX_INVALID_DRAWS = 100  # in a row; after so many the spaces do not fit the configuration
Task = tuple[int, RunConfig]  # the number of a trial, and its configuration


class StudyObjective(NamedTuple):
    """What a study optimizes: the mean of a validation metric over `folds` trainings with consecutive seeds."""

    metric: Metric
    folds: int
    seed: int


def check_objective(config: RunConfig, metric: str | None, folds: int | None, seed: int) -> StudyObjective:
    """Return the objective of a study.

    Args:
        config: The configuration.
        metric: The name of a validation metric; None for the first one of the task.
        folds: Number of trainings per trial; None for the default of the task.
        seed: The seed of the first training, and of the sampler.

    Raises:
        ConfigError: The task has no such metric, or the number is not positive.
    """
    task = task_of(config.task)
    metrics = {one.name: one for one in task.validation_metrics}
    if not metrics or (metric is not None and metric not in metrics):
        raise ConfigError(f"--metric of {config.task} must be {' or '.join(metrics) or 'left out'}, not {metric!r}")
    if folds is not None and folds < 1:
        raise ConfigError(f"--folds must be at least 1, not {folds}")
    return StudyObjective(metrics[metric or next(iter(metrics))], folds or task.folds, seed)


@dataclass(frozen=True)
class StudyPlan:
    """The definition of a study.

    Attributes:
        name: The name of its configuration.
        config: The configuration.
        spaces: The search spaces by dotted key.
        objective: What is optimized.
        folder: Where the study is stored.
        mirror: Folder with copies of the data sets.
    """

    name: str
    config: RunConfig
    spaces: Spaces
    objective: StudyObjective
    folder: Path
    mirror: Path | None = None

    def identity(self, fingerprint: str) -> dict[str, Any]:
        """Return what must be equal when a study is continued.

        Args:
            fingerprint: The fingerprint of the graph that trials learn from.
        """
        settings = flat_settings(self.config, exclude=(*SETTINGS_WITHOUT_EFFECT, "training.device"))
        spaces = {f"search {key}": asdict(space) for key, space in self.spaces.items()}
        objective = {**self.objective._asdict(), "metric": self.objective.metric.name}
        identity = {"format": FORMAT, **settings, **objective, **spaces, "data": fingerprint}
        return json.loads(json.dumps(identity))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class TrialResult:
    """How a trial ended: with a value; without value or error, because it was stopped early; or with an error.

    Attributes:
        seconds: Its duration.
        error: Why it failed.
        value: The mean of the metric over the folds, at the epoch where it is best.
        epoch: That epoch.
        folds: The metric of each fold at that epoch.
        deviation: Their standard deviation.
    """

    seconds: float | None = None
    error: str | None = None
    value: float | None = None
    epoch: int | None = None
    folds: list[float] | None = None
    deviation: float | None = None


@dataclass(frozen=True, kw_only=True)
class TrialRecord(TrialResult):
    """A trial that ended; the value of one that was stopped early is its last report.

    Attributes:
        number: Its number in the study.
        state: "finished"; "stopped" early, because others were better; or "failed", with an `error`.
        settings: The values that were drawn.
        is_unchanged: True for the trial with the unchanged configuration.
    """

    number: int
    state: str
    settings: dict[str, Any] = field(default_factory=dict)
    is_unchanged: bool = False


def optuna() -> Any:
    """Import Optuna, or raise a ConfigError that says how to install it."""
    package = import_extra("optuna", "tune")
    package.logging.set_verbosity(package.logging.ERROR)
    return package


def open_study(plan: StudyPlan) -> Study:
    """Open the study in the folder of a plan, or create it."""
    package = optuna()
    file = (plan.folder / "study.db").absolute()
    with closing(sqlite3.connect(file)) as database:
        (answer,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if answer != "ok":
        raise sqlite3.DatabaseError(answer)
    return package.create_study(  # type: ignore[no-any-return]
        study_name=STUDY,
        storage=f"sqlite:///{file}",
        sampler=_sampler(plan.objective.seed),
        pruner=package.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=1, n_min_trials=3),
        direction="maximize" if plan.objective.metric.higher_is_better else "minimize",
        load_if_exists=True,
    )


def begin(study: Study, plan: StudyPlan, fingerprint: str) -> None:
    """Check that the study belongs to the plan, fail interrupted trials, and queue the unchanged configuration.

    Raises:
        ConfigError: The folder holds another study.
    """
    identity = plan.identity(fingerprint)
    known = study.user_attrs.get("identity", identity)
    keys = [key for key in dict.fromkeys([*known, *identity]) if known.get(key) != identity.get(key)]
    if keys:
        lines = [f"  {key}: {_short(known.get(key))} there, {_short(identity.get(key))} here" for key in keys[:8]]
        more = [f"  and {len(keys) - 8} more"] if len(keys) > 8 else []
        raise ConfigError("\n".join([f"{plan.folder} holds another study; choose another --out", *lines, *more]))
    study.set_user_attr("identity", identity)
    fail_running(study)
    if not any(trial.user_attrs.get(UNCHANGED) for trial in _not_failed(study)):
        study.enqueue_trial(values_in_spaces(plan.config, plan.spaces), user_attrs={UNCHANGED: True})


def ask(study: Study) -> Trial:
    """Create a trial with the first random sequence that no other trial has. Failed trials free theirs."""
    taken = {other.user_attrs.get(DRAWS) for other in _not_failed(study)}
    trial = study.ask()
    trial.set_user_attr(DRAWS, next(number for number in itertools.count() if number not in taken))
    return trial


def _not_failed(study: Study) -> list[FrozenTrial]:
    return [trial for trial in study.get_trials(deepcopy=False) if trial.state.name != "FAIL"]


def fail_running(study: Study) -> None:
    """Mark trials as failed that an interrupted process left running. Others replace them."""
    states = optuna().trial.TrialState
    for trial in study.get_trials(deepcopy=False, states=(states.RUNNING,)):
        study.tell(trial.number, state=states.FAIL)


def records(study: Study) -> list[TrialRecord]:
    """Return every trial that ended, in order, without draws of settings that cannot be combined."""
    ended = list[TrialRecord]()
    for trial in study.get_trials(deepcopy=False):
        attributes, reports = trial.user_attrs, trial.intermediate_values
        if trial.state.name not in ("COMPLETE", "PRUNED") or "impossible" in attributes:
            continue
        state, value = "finished", trial.value
        if trial.state.name == "PRUNED":
            state = "failed" if "error" in attributes else "stopped"
            value = reports[max(reports)] if reports and state == "stopped" else None
        known: dict[str, Any] = {each.name: attributes.get(each.name) for each in fields(TrialResult)}
        known |= {"value": value, "settings": trial.params, "is_unchanged": bool(attributes.get(UNCHANGED))}
        ended.append(TrialRecord(number=trial.number, state=state, **known))
    return ended


def _sampler(seed: int) -> Any:
    """Return Optuna's TPE sampler with random numbers that follow from the seed and the trial alone.

    The sampler's own random state would be lost with the process, and a continued study would repeat its first draws.
    """
    package = optuna()
    from optuna.samplers import RandomSampler

    class SeededByTrial(RandomSampler):  # which draws each setting independently, too
        def sample_independent(self, study: Study, trial: FrozenTrial, name: str, distribution: Any) -> Any:
            entropy = [seed, trial.user_attrs[DRAWS], *name.encode()]
            trial_seed = int(np.random.SeedSequence(entropy).generate_state(1)[0])
            with warnings.catch_warnings():  # Optuna 4 calls constant_liar experimental
                warnings.simplefilter("ignore")
                sampler = package.samplers.TPESampler(
                    seed=trial_seed, n_startup_trials=NUM_RANDOM_TRIALS, multivariate=False, constant_liar=True
                )
                return sampler.sample_independent(study, trial, name, distribution)

    return SeededByTrial()


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn errors of Optuna, SQLAlchemy and SQLite into a DataError with the cause in one line."""
    package, database = optuna(), import_extra("sqlalchemy", "tune", "sqlalchemy.exc")
    try:
        yield
    except (package.exceptions.StorageInternalError, database.SQLAlchemyError, sqlite3.Error) as error:
        cause = getattr(error.__cause__, "orig", None) or getattr(error, "orig", None) or error.__cause__ or error
        reason = next(iter(str(cause).splitlines()), type(cause).__name__)
        raise DataError(
            f"{path} is damaged, or cannot be used ({reason}); it is left as it is: move it away to begin a new study"
        ) from error


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return describe_space(SearchSpace(**value))
    return "nothing" if value is None else shorten(str(value), 40)


# -- trials ------------------------------------------------------------------------------------------------


def trial_settings(config: RunConfig) -> RunConfig:
    """Return the configuration for trials: validated often enough, and without trackers."""
    return replace_settings(config, {**task_of(config.task).trial_settings(config), "trackers": []})


def run_trials(
    plan: StudyPlan, study: Study, graph: KnowledgeGraph, *, left: int, jobs: int, minutes: float | None
) -> Generator[int, None, None]:
    """Run trials, and yield the number of each one when it has ended. Closing the generator stops running trials.

    Args:
        plan: The study.
        study: Its Optuna study.
        graph: The data without the test split.
        left: Number of trials to run.
        jobs: Number of trials at a time.
        minutes: Start no more trials after this time, but at least one.
    """
    base, states = trial_settings(plan.config), optuna().trial.TrialState
    running: dict[int, Trial] = {}
    deadline = math.inf if minutes is None else monotonic() + 60 * minutes

    def tasks() -> Iterator[Task]:
        for number in range(left):
            if number and monotonic() >= deadline:
                return
            trial, config = _draw_valid(study, base, plan.spaces)
            running[trial.number] = trial
            yield trial.number, config

    def should_continue(task: Task, report: tuple[int, float]) -> bool:
        step, value = report
        running[task[0]].report(value, step)
        return not running[task[0]].should_prune()

    with WorkerPool[Task](jobs, partial(_start_trials, plan, graph if jobs == 1 else None)) as pool:
        for (number, _), end in pool.run(tasks(), should_continue, MAX_DEATHS):
            result = end.value if isinstance(end, TaskResult) else TrialResult(error=end.reason)
            trial = running.pop(number)
            for key, value in asdict(result).items():
                if key != "value" and value is not None:
                    trial.set_user_attr(key, value)
            # Failed trials are reported as pruned, so that the sampler learns to avoid their settings.
            study.tell(trial, result.value, states.PRUNED if result.value is None else states.COMPLETE)
            yield number


def _draw_valid(study: Study, base: RunConfig, spaces: Spaces) -> tuple[Trial, RunConfig]:
    """Draw settings until they can be combined. Draws before that do not count as trials."""
    reason = ""
    for _ in range(MAX_INVALID_DRAWS):
        trial = ask(study)
        try:
            return trial, draw(trial, base, spaces, unchanged=bool(trial.user_attrs.get(UNCHANGED)))
        except ConfigError as error:
            reason = str(error)
            trial.set_user_attr("impossible", reason)
            study.tell(trial, state=optuna().trial.TrialState.PRUNED)
    problem = f"{MAX_INVALID_DRAWS} draws in a row were settings that cannot be combined"
    raise ConfigError(f"{problem}: fix some with --fix. The problem of the last draw: {reason}")


def _start_trials(plan: StudyPlan, graph: KnowledgeGraph | None) -> TaskFunction[Task]:
    """Return the function that runs a trial. Without a graph, in a worker process, load it first."""
    if graph is None:
        warnings.simplefilter("ignore")  # this process has shown the warnings about the data
        graph = graph_of_trials(plan)
    return lambda task, ask: run_trial(task[1], graph, plan.objective, lambda step, value: ask((step, value)))


def graph_of_trials(plan: StudyPlan) -> KnowledgeGraph:
    """Load the data of a study without the test split."""
    return task_of(plan.config.task).without_test_split(load_run_data(plan.config, plan.mirror))


class _StoppedEarlyError(Exception):
    """Ends a training from its callback."""


def run_trial(
    config: RunConfig, graph: KnowledgeGraph, objective: StudyObjective, should_continue: Callable[[int, float], bool]
) -> TrialResult:
    """Run `evaluate`, and turn errors that the settings cause into a result."""
    start = perf_counter()
    try:
        return evaluate(config, graph, objective, should_continue)
    except _StoppedEarlyError:
        return TrialResult(perf_counter() - start)
    except (RgcnError, ArithmeticError, MemoryError, RuntimeError) as error:
        return TrialResult(perf_counter() - start, f"{type(error).__name__}: {error}"[:500])


def evaluate(
    config: RunConfig, graph: KnowledgeGraph, objective: StudyObjective, report: Callable[[int, float], bool | None]
) -> TrialResult:
    """Train once per fold, and measure on validation data.

    Args:
        config: The configuration of the trial.
        graph: The data without the test split.
        objective: What is optimized.
        report: Called up to five times per fold with a step and the value so far. If it returns False, the trial stops.

    Raises:
        DataError: A metric is missing or not finite.
    """
    start = perf_counter()
    # Among epochs with the same value, the one where the other metrics are best, then the earliest.
    metrics = list(dict.fromkeys([objective.metric, *task_of(config.task).validation_metrics]))
    best = max if objective.metric.higher_is_better else min
    curves, reported = list[dict[int, list[float]]](), 0  # of each fold: the metrics by epoch

    def on_report(measured: TrainingReport) -> None:
        nonlocal reported
        if measured[f"valid_{objective.metric.name}"] is None:
            return
        values = {metric.title: measured[f"valid_{metric.name}"] or 0.0 for metric in metrics}
        for title, value in values.items():
            if not math.isfinite(value):
                raise DataError(f"the validation {title} is not finite in {config.training.unit} {measured.number}")
        curves[-1][measured.number] = [*values.values()]
        step = (len(curves) - 1) * REPORTS_PER_FOLD + measured.number * REPORTS_PER_FOLD // config.training.length
        if step > reported:
            reported = step
            if report(step, statistics.fmean(best(curve.values())[0] for curve in curves)) is False:
                raise _StoppedEarlyError

    for fold in range(objective.folds):
        reported = fold * REPORTS_PER_FOLD
        curves.append({})
        make_model(replace_settings(config, {"seed": objective.seed + fold})).fit(graph, on_report)
        if not curves[-1]:
            raise DataError(f"the training reported no validation {objective.metric.title}")
    epochs = max((list(curve) for curve in curves), key=len)
    # A fold that was stopped by early stopping keeps its last metrics: each array is [num_epochs, num_metrics].
    padded = [np.pad([*curve.values()], ((0, len(epochs) - len(curve)), (0, 0)), mode="edge") for curve in curves]
    signs = [1 if metric.higher_is_better else -1 for metric in metrics]
    # Rounded, so that 0.9 + 0.8 and 0.8 + 0.9 are equal.
    means = (np.mean(padded, axis=0) * signs).round(12).tolist()
    index = means.index(max(means))
    folds = [float(values[index][0]) for values in padded]
    deviation = statistics.stdev(folds) if len(folds) > 1 else 0.0
    return TrialResult(perf_counter() - start, None, statistics.fmean(folds), epochs[index], folds, deviation)
