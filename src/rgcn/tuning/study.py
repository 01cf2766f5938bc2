"""The study on disk, a SQLite file that outlives the process that works on it; and the trials that it is made of.

Trials run one after another in this process, or several at a time in processes of their own. Only this process opens
the study. The others are sent a configuration and train with it: one that dies leaves nothing half written, and takes
no other trial with it.
"""

from __future__ import annotations

import itertools
import json
import math
import sqlite3
import statistics
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from rgcn.config import RunConfig, SearchSpace
from rgcn.errors import ConfigError, DataError, RgcnError
from rgcn.graph import KnowledgeGraph
from rgcn.models.task import task_of
from rgcn.runs.assembly import load_run_data, make_model
from rgcn.runs.configuration import WITHOUT_EFFECT, changed, flat_settings
from rgcn.runs.worker_pool import MOST_DEATHS, Crew, Done, Work
from rgcn.system.formatting import shortened
from rgcn.system.lazy import import_extra
from rgcn.training.history import Epoch, Metric
from rgcn.tuning.spaces import Spaces, described, draw, own_values

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

STUDY = "rgcn-tune"
FORMAT = 1
DRAWS = "draws"  # of a trial: which of the seed's sequences of random numbers it has
RANDOM_TRIALS = 8  # before the sampler begins to learn from those before
POINTS = 5  # how often in a fold a trial may be stopped early; telling the study takes as long as a small step
MOST_IMPOSSIBLE = 100  # draws in a row that cannot be: then the spaces do not fit the configuration
Curve = dict[int, list[float]]  # of a fold, by epoch: the metric, and what breaks ties behind it
Task = tuple[int, RunConfig]  # a trial's number, and what to train


@dataclass(frozen=True)
class StudyObjective:
    """What a study optimizes: a validation metric, its mean over folds, trainings with a seed of their own each."""

    metric: Metric
    folds: int
    seed: int


def check_objective(config: RunConfig, metric: str | None, folds: int | None, seed: int) -> StudyObjective:
    task = task_of(config.task)
    known = {one.name: one for one in task.watched}
    if not known or (metric is not None and metric not in known):
        raise ConfigError(f"--metric of {config.task} is {' or '.join(known) or 'nothing'}, not {metric!r}")
    if folds is not None and folds < 1:
        raise ConfigError(f"--folds is at least 1, not {folds}")
    return StudyObjective(known[metric or next(iter(known))], folds or task.folds, seed)


@dataclass(frozen=True)
class StudyPlan:
    """Everything a study is defined by, and where it lives."""

    name: str
    config: RunConfig
    spaces: Spaces
    objective: StudyObjective
    folder: Path
    mirror: Path | None = None

    def identity(self, data: str) -> dict[str, Any]:
        """What must stay the same for a study to go on; `data` is the fingerprint of what trials see."""
        settings = flat_settings(self.config, besides=WITHOUT_EFFECT)
        settings.pop("training.device")
        spaces = {f"search {key}": asdict(space) for key, space in self.spaces.items()}
        objective = {**asdict(self.objective), "metric": self.objective.metric.name}
        whole = {"format": FORMAT, **settings, **objective, **spaces, "data": data}
        return json.loads(json.dumps(whole))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class TrialRecord:
    """A trial as people want to see it."""

    number: int
    state: str  # finished; stopped (early, being no better than others); failed (its settings cannot be trained)
    value: float | None
    epoch: int | None
    deviation: float | None
    seconds: float | None
    values: dict[str, Any] = field(default_factory=dict)  # the settings that were drawn
    error: str | None = None
    own: bool = False

    def figures(self) -> dict[str, Any]:
        return {"value": self.value, "deviation": self.deviation, "epoch": self.epoch}


def optuna() -> Any:
    package = import_extra("optuna", "tune")
    package.logging.set_verbosity(package.logging.ERROR)
    return package


def open_study(plan: StudyPlan) -> Study:
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
        direction="maximize" if plan.objective.metric.higher else "minimize",
        load_if_exists=True,
    )


def begin(study: Study, plan: StudyPlan, data: str) -> None:
    """See that it is this study, give up trials that were cut short, and put the configuration's own trial first."""
    package = optuna()
    identity = plan.identity(data)
    known = study.user_attrs.get("identity", identity)
    if known != identity:
        raise ConfigError(_another_study(plan.folder, known, identity))
    study.set_user_attr("identity", identity)
    give_up_running(study)
    states = package.trial.TrialState
    trials = study.get_trials(deepcopy=False)
    if not any(t.user_attrs.get("own") for t in trials if t.state != states.FAIL):
        study.enqueue_trial(own_values(plan.config, plan.spaces), user_attrs={"own": True})


def ask(study: Study) -> Trial:
    """A new trial, whose draws are the first that no other trial has: those that were cut short give theirs back."""
    fail = optuna().trial.TrialState.FAIL
    taken = {other.user_attrs.get(DRAWS) for other in study.get_trials(deepcopy=False) if other.state != fail}
    trial = study.ask()
    trial.set_user_attr(DRAWS, next(number for number in itertools.count() if number not in taken))
    return trial


def give_up_running(study: Study) -> None:
    """Mark trials as failed that nobody works on any more: they do not count, and others take their place."""
    states = optuna().trial.TrialState
    for trial in study.get_trials(deepcopy=False, states=(states.RUNNING,)):
        study.tell(trial.number, state=states.FAIL)


def records(study: Study) -> list[TrialRecord]:
    """Every trial that came to an end of its own, in order; impossible combinations of settings are left out."""
    return [record for trial in study.get_trials(deepcopy=False) if (record := _record(trial)) is not None]


def _record(trial: FrozenTrial) -> TrialRecord | None:
    said = trial.user_attrs
    state = {"COMPLETE": "finished", "PRUNED": "failed" if "error" in said else "stopped"}.get(trial.state.name)
    if state is None or "impossible" in said:
        return None
    so_far = trial.intermediate_values
    value = trial.value if state == "finished" else so_far[max(so_far)] if so_far and state == "stopped" else None
    kept = {key: said.get(key) for key in ("epoch", "deviation", "seconds", "error")}
    return TrialRecord(trial.number, state, value, values=dict(trial.params), own=bool(said.get("own")), **kept)


def _sampler(seed: int) -> Any:
    """Optuna's tree-structured Parzen estimator, whose random numbers follow from the seed and the trial alone: its own
    state would be lost with the process, and a study that goes on would draw its first trials again."""
    package = optuna()
    from optuna.samplers import RandomSampler

    class SeededByTrial(RandomSampler):  # which, too, draws each setting by itself
        def sample_independent(self, study: Study, trial: FrozenTrial, name: str, distribution: Any) -> Any:
            entropy = [seed, trial.user_attrs[DRAWS], *name.encode()]
            own_seed = int(np.random.SeedSequence(entropy).generate_state(1)[0])
            with warnings.catch_warnings():  # of constant_liar, which Optuna 4 calls experimental
                warnings.simplefilter("ignore")
                sampler = package.samplers.TPESampler(
                    seed=own_seed, n_startup_trials=RANDOM_TRIALS, multivariate=False, constant_liar=True
                )
                return sampler.sample_independent(study, trial, name, distribution)

    return SeededByTrial()


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Words instead of a traceback through three libraries."""
    package, database = optuna(), import_extra("sqlalchemy", "tune", "sqlalchemy.exc")
    try:
        yield
    except (package.exceptions.StorageInternalError, database.SQLAlchemyError, sqlite3.Error) as error:
        cause = getattr(error.__cause__, "orig", None) or getattr(error, "orig", None) or error.__cause__ or error
        words = next(iter(str(cause).splitlines()), type(cause).__name__)
        raise DataError(
            f"{path} is damaged, or cannot be used ({words}); what it holds is kept: move it away to begin a new study"
        ) from error


def _another_study(folder: Path, known: dict[str, Any], now: dict[str, Any]) -> str:
    keys = [key for key in dict.fromkeys([*known, *now]) if known.get(key) != now.get(key)]
    lines = [f"  {key}: {_short(known.get(key))} there, {_short(now.get(key))} here" for key in keys[:8]]
    more = [f"  and {len(keys) - 8} more"] if len(keys) > 8 else []
    return "\n".join([f"{folder} holds another study; choose another --out", *lines, *more])


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return described(SearchSpace(**value))
    return "nothing" if value is None else shortened(str(value), 40)


# -- trials ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrialEnding:
    """How a trial ended: with a figure, stopped as no better than others, or failed; then `error` says why."""

    seconds: float | None = None
    error: str | None = None
    value: float | None = None  # the metric's mean over folds, at the epoch where it is best; None: there is no figure
    epoch: int | None = None
    folds: list[float] | None = None  # the metric of each at that epoch
    deviation: float | None = None  # between them


def for_trials(config: RunConfig) -> RunConfig:
    """The configuration as trials run it: measured on validation often enough, and reporting to nobody."""
    return changed(config, {**task_of(config.task).for_trials(config), "trackers": []})


def run_trials(
    plan: StudyPlan, study: Study, graph: KnowledgeGraph, *, left: int, jobs: int, minutes: float | None
) -> Generator[int, None, None]:
    """Numbers of trials as they end, on a graph without its test split; on leaving, whatever still runs stops.

    left     how many are still to be made; however short the time (`minutes`), there is one
    """
    base = for_trials(plan.config)
    under_way: dict[int, Trial] = {}
    deadline = math.inf if minutes is None else monotonic() + 60 * minutes

    def drawn() -> Iterator[Task]:
        """Drawn as they are asked for."""
        for begun in range(left):
            if begun and monotonic() >= deadline:
                return
            trial, config = _drawn(study, base, plan.spaces)
            under_way[trial.number] = trial
            yield trial.number, config

    def goes_on(task: Task, reached: tuple[int, float]) -> bool:
        """Note how a trial stands; whether it is worth going on."""
        point, value = reached
        under_way[task[0]].report(value, point)
        return not under_way[task[0]].should_prune()

    with Crew[Task](jobs, partial(_trainer, plan, graph if jobs == 1 else None)) as crew:
        for (number, _), end in crew.run(drawn(), goes_on, MOST_DEATHS):
            ending = end.value if isinstance(end, Done) else TrialEnding(error=end.words)
            trial, states = under_way.pop(number), optuna().trial.TrialState
            for key, told in vars(ending).items():
                if key != "value" and told is not None:
                    trial.set_user_attr(key, told)
            # Failed ones, too, count as stopped: the sampler learns from these that such settings are no good.
            study.tell(trial, ending.value, states.PRUNED if ending.value is None else states.COMPLETE)
            yield number


def _drawn(study: Study, base: RunConfig, spaces: Spaces) -> tuple[Trial, RunConfig]:
    """A trial and its configuration; draws of settings that cannot be together are not trials."""
    words = ""
    for _ in range(MOST_IMPOSSIBLE):
        trial = ask(study)
        try:
            return trial, draw(trial, base, spaces, own=bool(trial.user_attrs.get("own")))
        except ConfigError as error:
            words = str(error)
            trial.set_user_attr("impossible", words)
            study.tell(trial, state=optuna().trial.TrialState.PRUNED)
    what = f"{MOST_IMPOSSIBLE} draws in a row were settings that cannot be together; fix some with --fix"
    raise ConfigError(f"{what}. The last: {words}")


def _trainer(plan: StudyPlan, graph: KnowledgeGraph | None) -> Work[Task]:
    """Does trials; without a graph, in a process that reads it by itself."""
    if graph is None:
        warnings.simplefilter("ignore")  # the parent has read the same data and has said what there is to say
        graph = blinded_graph(plan)
    return lambda task, ask: attempt(task[1], graph, plan.objective, lambda point, value: ask((point, value)))


def blinded_graph(plan: StudyPlan) -> KnowledgeGraph:
    """What trials learn from and are measured on: the data without its test split."""
    return task_of(plan.config.task).blinded(load_run_data(plan.config, plan.mirror))


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
    best = max if objective.metric.higher else min
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
            if reached(point, statistics.fmean(best(curve.values())[0] for curve in curves)) is False:
                raise _NotWorthwhileError

    for fold in range(objective.folds):
        told = fold * POINTS
        curves.append({})
        make_model(changed(config, {"seed": objective.seed + fold})).fit(graph, hear)
        if not curves[-1]:
            raise DataError(f"the training reported no validation {objective.metric.title}")
    epochs = max((list(curve) for curve in curves), key=len)
    # A fold that lost patience stays where it was: [folds, epochs, figures].
    courses = [np.pad([*curve.values()], ((0, len(epochs) - len(curve)), (0, 0)), mode="edge") for curve in curves]
    signs = [1 if metric.higher else -1 for metric in order]
    # Rounded, so that 0.9 + 0.8 and 0.8 + 0.9 are the same.
    goodness = (np.mean(courses, axis=0) * signs).round(12).tolist()
    index = goodness.index(max(goodness))
    folds = [float(course[index][0]) for course in courses]
    deviation = statistics.stdev(folds) if len(folds) > 1 else 0.0
    return TrialEnding(perf_counter() - start, None, statistics.fmean(folds), epochs[index], folds, deviation)


def _figures(epoch: Epoch, order: Sequence[Metric]) -> list[float]:
    figures = [epoch[f"valid_{metric.name}"] for metric in order]
    for metric, value in zip(order, figures, strict=True):
        if value is not None and not math.isfinite(value):
            raise DataError(f"the validation {metric.title} is not finite in epoch {epoch.number}")
    return [0.0 if value is None else value for value in figures]
