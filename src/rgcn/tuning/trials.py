"""Trials, one after another in this process or several at a time in processes of their own.

Only this process opens the study. The others are sent a configuration and train with it: one that dies leaves nothing
half written, and takes no other trial with it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Generator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from time import monotonic, perf_counter
from typing import TYPE_CHECKING

from rgcn.errors import ConfigError, DataError, RgcnError
from rgcn.runs.processes import Died, WorkerProcess, hear_from, stop
from rgcn.tasks.task import task_of
from rgcn.threads import threads_each
from rgcn.tuning.objective import Evaluation, Objective, evaluate, for_trials
from rgcn.tuning.spaces import draw, draw_own
from rgcn.tuning.study import Plan, ask, optuna

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import Trial

    from rgcn.config import RunConfig
    from rgcn.graph import KnowledgeGraph

MOST_DEATHS = 3  # in a row: then it is not the trial's settings that end its process
MOST_IMPOSSIBLE = 100  # draws in a row that cannot be: then the spaces do not fit the configuration

GoesOn = Callable[[int, float], bool]


@dataclass(frozen=True)
class StoppedEarly:
    """A trial that was no better than others at the same point."""

    seconds: float


@dataclass(frozen=True)
class Failed:
    """A trial that gave no figure, and why."""

    error: str
    seconds: float | None = None


Ending = Evaluation | StoppedEarly | Failed


class Trials:
    """The trials still to be made: draws their settings, hears how they stand, and tells the study how they ended."""

    def __init__(self, plan: Plan, study: Study, left: int, minutes: float | None = None) -> None:
        self.plan, self.study, self.left = plan, study, left
        self._base = for_trials(plan.config)
        self._deadline = math.inf if minutes is None else monotonic() + 60 * minutes
        self._begun = 0
        self._returned: list[tuple[Trial, RunConfig]] = []

    @property
    def may_begin(self) -> bool:
        """Whether another may begin; however short the time, one always may."""
        return self.left > 0 and (not self._begun or monotonic() < self._deadline)

    def begin(self) -> tuple[Trial, RunConfig]:
        """A trial and its configuration; draws of settings that cannot be together are not trials."""
        self.left, self._begun = self.left - 1, self._begun + 1
        if self._returned:
            return self._returned.pop()
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

    def take_back(self, trial: Trial, config: RunConfig) -> None:
        """A trial that nobody trained after all: it is the next to begin."""
        self.left, self._begun = self.left + 1, self._begun - 1
        self._returned.append((trial, config))

    def goes_on(self, trial: Trial, point: int, value: float) -> bool:
        """Note how a trial stands; whether it is worth going on."""
        trial.report(value, point)
        return not trial.should_prune()

    def end(self, trial: Trial, ending: Ending) -> int:
        """Tell the study; the trial's number."""
        if isinstance(ending, Evaluation):
            for key in ("epoch", "folds", "deviation", "seconds"):
                trial.set_user_attr(key, getattr(ending, key))
            self.study.tell(trial, ending.value)
        else:
            if isinstance(ending, Failed):
                trial.set_user_attr("error", ending.error)
            trial.set_user_attr("seconds", ending.seconds)
            # Failed ones too: the sampler learns from stopped trials that such settings are no good, from failed none.
            self.study.tell(trial, state=optuna().trial.TrialState.PRUNED)
        return int(trial.number)


def attempt(config: RunConfig, graph: KnowledgeGraph, objective: Objective, goes_on: GoesOn) -> Ending:
    """Train and measure; whatever the settings do to it is an ending, not an error."""
    start = perf_counter()

    def reached(point: int, value: float) -> None:
        if not goes_on(point, value):
            raise _NotWorthwhileError

    try:
        return evaluate(config, graph, objective, reached)
    except _NotWorthwhileError:
        return StoppedEarly(perf_counter() - start)
    except (RgcnError, ArithmeticError, MemoryError, RuntimeError) as error:
        return Failed(f"{type(error).__name__}: {error}"[:500], perf_counter() - start)


class _NotWorthwhileError(Exception):
    """Ends a training from within."""


def run_here(trials: Trials, graph: KnowledgeGraph) -> Generator[int, None, None]:
    """Numbers of trials as they end, one after another in this process, on a graph without its test split."""
    while trials.may_begin:
        trial, config = trials.begin()
        yield trials.end(trial, attempt(config, graph, trials.plan.objective, _asking(trials, trial)))


def _asking(trials: Trials, trial: Trial) -> GoesOn:
    return lambda point, value: trials.goes_on(trial, point, value)


def run_in_processes(trials: Trials, jobs: int) -> Generator[int, None, None]:
    """Numbers of trials as they end, from up to `jobs` processes; on leaving, whatever still runs is stopped."""
    crew: dict[WorkerProcess, Trial | None] = {}
    deaths = 0
    try:
        while trials.may_begin or crew:
            _start_missing(crew, trials, jobs)
            for process, message in hear_from(list(crew)):
                trial = crew[process]
                if isinstance(message, Died):
                    del crew[process]
                    stop([process])
                    deaths += 1
                    if trial is not None:
                        yield trials.end(trial, Failed(message.words))
                    if deaths == MOST_DEATHS:
                        raise DataError(f"{deaths} processes in a row died, the last with: {message.words}")
                elif trial is None:  # ready for one
                    _hand_over(process, crew, trials)
                elif isinstance(message, _Reached):
                    process.send(trials.goes_on(trial, message.point, message.value))
                else:
                    crew[process], deaths = None, 0
                    yield trials.end(trial, message)
    finally:
        stop(crew)


def _start_missing(crew: dict[WorkerProcess, Trial | None], trials: Trials, jobs: int) -> None:
    """As many processes as there is something to do for."""
    without_trial = sum(trial is None for trial in crew.values())
    while trials.may_begin and len(crew) < jobs and without_trial < trials.left:
        crew[WorkerProcess(_work, trials.plan, threads=threads_each(jobs))] = None
        without_trial += 1


def _hand_over(process: WorkerProcess, crew: dict[WorkerProcess, Trial | None], trials: Trials) -> None:
    """A trial for a process that is ready for one; where there is none left, it may go."""
    if not trials.may_begin:
        del crew[process]
        stop([process])
        return
    trial, config = trials.begin()
    if process.send(config):
        crew[process] = trial
    else:
        trials.take_back(trial, config)


# -- in the other process ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Ready:
    """Said before every trial: whatever ends the process until then was no trial's fault."""


@dataclass(frozen=True)
class _Reached:
    """How a trial stands; the answer is whether it goes on."""

    point: int
    value: float


def _work(line: Connection, plan: Plan) -> None:
    """Say when ready, train with the configuration that comes, and say how it ended."""
    from rgcn.runs.assembly import load_data

    def goes_on(point: int, value: float) -> bool:
        line.send(_Reached(point, value))
        return bool(line.recv())

    warnings.simplefilter("ignore")  # the parent has read the same data and has said what there is to say
    graph = task_of(plan.config.task).blinded(load_data(plan.config.data, plan.mirror))
    while True:
        line.send(_Ready())
        line.send(attempt(line.recv(), graph, plan.objective, goes_on))
