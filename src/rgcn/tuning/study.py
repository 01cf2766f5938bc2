"""The study on disk: a SQLite file that outlives the process that works on it."""

from __future__ import annotations

import itertools
import json
import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rgcn.config import RunConfig, SearchSpace
from rgcn.errors import ConfigError, DataError
from rgcn.models.task import task_of
from rgcn.runs.configuration import WITHOUT_EFFECT, flat_settings
from rgcn.system.formatting import shortened
from rgcn.system.lazy import import_extra
from rgcn.training.history import Metric
from rgcn.tuning.spaces import Spaces, described, own_values

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

STUDY = "rgcn-tune"
FORMAT = 1
DRAWS = "draws"  # of a trial: which of the seed's sequences of random numbers it has
RANDOM_TRIALS = 8  # before the sampler begins to learn from those before
SECONDS_FOR_A_LOCK = 60


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
        spaces = {f"search {key}": json.loads(json.dumps(asdict(space))) for key, space in self.spaces.items()}
        objective = {**asdict(self.objective), "metric": self.objective.metric.name}
        return {"format": FORMAT, **settings, **objective, **spaces, "data": data}


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
    with closing(sqlite3.connect(file, timeout=SECONDS_FOR_A_LOCK)) as database:
        (answer,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if answer != "ok":
        raise sqlite3.DatabaseError(answer)
    waits = {"connect_args": {"timeout": SECONDS_FOR_A_LOCK}}
    return package.create_study(  # type: ignore[no-any-return]
        study_name=STUDY,
        storage=package.storages.RDBStorage(f"sqlite:///{file}", engine_kwargs=waits),
        sampler=_sampler(plan.objective.seed),
        pruner=package.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=1, n_min_trials=3),
        direction="maximize" if plan.objective.metric.higher else "minimize",
        load_if_exists=True,
    )


def begin(study: Study, plan: StudyPlan, data: str) -> None:
    """See that it is this study, give up trials that were cut short, and put the configuration's own trial first."""
    package = optuna()
    identity = plan.identity(data)
    known = study.user_attrs.get("identity")
    if known is None:
        study.set_user_attr("identity", identity)
    elif known != identity:
        raise ConfigError(_another_study(plan.folder, known, identity))
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
