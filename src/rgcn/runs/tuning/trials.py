"""Trials, one after another in this process or several at a time in processes of their own."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Generator
from contextlib import suppress
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from rgcn.errors import ConfigError, DataError, RgcnError
from rgcn.runs.tuning.objective import blinded, evaluate, for_trials
from rgcn.runs.tuning.spaces import draw, draw_own
from rgcn.runs.tuning.study import Plan, give_up_running, open_study, optuna
from rgcn.runs.workers import (
    SECONDS_TO_STOP,
    THREAD_VARIABLES,
    available_cores,
    environment_variables,
    leave_stopping_to_the_parent,
)

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from optuna.study import Study
    from optuna.trial import Trial

    from rgcn.config import RunConfig
    from rgcn.graph import KnowledgeGraph

MOST_DEATHS = 3  # in a row: then it is not the trial's settings that end its process
MOST_IMPOSSIBLE = 100  # draws in a row that cannot be: then the spaces do not fit the configuration

Began = Callable[[int], None]


class TrialRunner:
    """Draws settings, trains with them, and tells the study."""

    def __init__(self, plan: Plan, study: Study, graph: KnowledgeGraph) -> None:
        self.plan, self.study, self.graph = plan, study, blinded(plan.config, graph)
        self.base = for_trials(plan.config)

    def run_one(self, began: Began) -> int:
        """One trial from beginning to end; draws of settings that cannot be together are not trials."""
        states = optuna().trial.TrialState
        words = ""
        for _ in range(MOST_IMPOSSIBLE):
            trial = self.study.ask()
            began(trial.number)
            drawing = draw_own if trial.user_attrs.get("own") else draw
            try:
                config = drawing(trial, self.base, self.plan.spaces)
            except ConfigError as error:
                words = str(error)
                trial.set_user_attr("impossible", words)
                self.study.tell(trial, state=states.PRUNED)
                continue
            self._evaluate(trial, config)
            return int(trial.number)
        raise ConfigError(
            f"{MOST_IMPOSSIBLE} draws in a row were settings that cannot be together; fix some with --fix. The last: "
            f"{words}"
        )

    def _evaluate(self, trial: Trial, config: RunConfig) -> None:
        package = optuna()
        pruned, states = package.TrialPruned, package.trial.TrialState

        def reached(point: int, value: float) -> None:
            trial.report(value, point)
            if trial.should_prune():
                raise pruned

        start = time.perf_counter()
        try:
            found = evaluate(config, self.graph, self.plan.objective, reached)
        except pruned:
            trial.set_user_attr("seconds", time.perf_counter() - start)
            self.study.tell(trial, state=states.PRUNED)
        except (RgcnError, ArithmeticError, MemoryError, RuntimeError) as error:
            # Told as stopped, not as failed: the sampler learns from those that such settings are no good.
            trial.set_user_attr("error", f"{type(error).__name__}: {error}"[:500])
            trial.set_user_attr("seconds", time.perf_counter() - start)
            self.study.tell(trial, state=states.PRUNED)
        else:
            for key in ("epoch", "folds", "deviation", "seconds"):
                trial.set_user_attr(key, getattr(found, key))
            self.study.tell(trial, found.value)


def run_here(plan: Plan, study: Study, graph: KnowledgeGraph, trials: int) -> Generator[int, None, None]:
    """Numbers of `trials` trials as they end, one after another in this process."""
    runner = TrialRunner(plan, study, graph)
    for _ in range(trials):
        yield runner.run_one(lambda number: None)


def run_in_processes(plan: Plan, study: Study, jobs: int, trials: int) -> Generator[int, None, None]:
    """Numbers of `trials` trials as they end, from `jobs` processes; on leaving, whatever still runs is stopped."""
    left, deaths = trials, 0
    busy: dict[Connection, _Worker] = {}
    try:
        for _ in range(min(jobs, trials)):
            worker = _Worker(plan, max(1, available_cores() // jobs))
            busy[worker.line] = worker
            worker.begin()
            left -= 1
        while busy:
            for line in connection.wait(list(busy)):
                worker = busy[line]  # type: ignore[index]
                ended = worker.hear()
                if ended is None:
                    continue
                if worker.dead:
                    del busy[worker.line]
                    deaths += 1
                    if deaths >= MOST_DEATHS:
                        raise DataError(f"{deaths} processes in a row ended without a word: {worker.last_words}")
                    give_up_running(study, worker.trial, worker.last_words)
                    worker = _Worker(plan, max(1, available_cores() // jobs))
                    busy[worker.line] = worker
                else:
                    deaths = 0
                yield ended
                if left:
                    worker.begin()
                    left -= 1
                else:
                    del busy[worker.line]
                    worker.line.close()
    finally:
        _stop(list(busy.values()))


class _Worker:
    """A process that runs trials, and the line to it."""

    def __init__(self, plan: Plan, threads: int) -> None:
        context = get_context("spawn")  # a fork would inherit threads that no longer run
        self.line, theirs = context.Pipe()
        self.trial: int | None = None
        self.dead, self.last_words = False, ""
        self.process: BaseProcess = context.Process(target=_work, args=(theirs, plan, threads), daemon=True)
        with environment_variables(dict.fromkeys(THREAD_VARIABLES, str(threads))):
            self.process.start()
        theirs.close()  # so that the line breaks when the process ends

    def begin(self) -> None:
        with suppress(OSError):  # a process that is gone is noticed when it is listened to
            self.line.send("another")

    def hear(self) -> int | None:
        """The number of the trial that ended, or None where something else was said; -1: the process died first."""
        try:
            message, content = self.line.recv()
        except (EOFError, OSError):
            self.process.join(SECONDS_TO_STOP)
            self.dead = True
            self.last_words = f"its process ended without a word (exit code {self.process.exitcode})"
            return -1 if self.trial is None else self.trial
        if message == "broken":
            raise content
        self.trial = content
        return self.trial if message == "ended" else None


def _stop(workers: list[_Worker]) -> None:
    for worker in workers:
        worker.process.terminate()
    deadline = time.monotonic() + SECONDS_TO_STOP
    for worker in workers:
        worker.process.join(max(0.0, deadline - time.monotonic()))
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()


def _work(line: Connection, plan: Plan, threads: int) -> None:
    """In the other process: a trial whenever one is asked for, until the line closes."""
    import torch

    from rgcn.runs.assembly import load_data

    torch.set_num_threads(threads)
    leave_stopping_to_the_parent()
    warnings.simplefilter("ignore")  # the parent has read the same data and has said what there is to say
    with suppress(EOFError, OSError, KeyboardInterrupt):
        try:
            runner = TrialRunner(plan, open_study(plan), load_data(plan.config.data, plan.mirror))
            while line.recv():
                line.send(("ended", runner.run_one(lambda number: line.send(("began", number)))))
        except RgcnError as error:
            line.send(("broken", DataError(str(error))))
