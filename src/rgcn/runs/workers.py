"""Trainings one after another in this process, or several at a time in processes of their own.

A process is started once and takes one training after another, so that PyTorch is loaded and a graph is read once in
each, not once for each training.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection, get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from rgcn.errors import RgcnError, StoppedError

if TYPE_CHECKING:
    from rgcn.config import DataConfig, RunConfig
    from rgcn.graph import KnowledgeGraph
    from rgcn.runs.training import OnEpoch

# Libraries read these when they are loaded: they must be set before a process starts.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS")
SECONDS_BETWEEN_REPORTS = 0.2
SECONDS_TO_STOP = 20.0  # a training that is told to stop may first have to save itself


@dataclass(frozen=True)
class Task:
    """One training: what to do, and the folder to keep it in (None: keep nothing).

    goes_on: the folder holds a run that was interrupted.
    """

    config: RunConfig
    folder: Path | None = None
    mirror: Path | None = None
    goes_on: bool = False


@dataclass(frozen=True)
class Outcome:
    """What a task gave: `RunResult.as_dict()`, or what went wrong."""

    task: Task
    result: dict[str, Any] | None = None
    error: str | None = None


OnTaskEpoch = Callable[[Task, Any], None]


class Workers(ABC):
    """Whatever takes tasks and hands back outcomes, in the order they are done."""

    jobs: int

    @abstractmethod
    def run(self, tasks: Sequence[Task], on_epoch: OnTaskEpoch | None = None) -> Iterator[Outcome]:
        """Do all tasks; one that fails does not stop the others."""


@contextmanager
def workers(jobs: int) -> Iterator[Workers]:
    """`jobs` trainings at a time; with one, in this process. On leaving, whatever still runs is stopped."""
    try:
        if jobs == 1:
            yield InThisProcess()
            return
        pool = InProcesses(jobs)
        try:
            with _told_of_termination():
                yield pool
        finally:
            pool.stop()
    except KeyboardInterrupt:
        raise StoppedError("stopped by Ctrl-C", signal.SIGINT) from None


class GraphShelf:
    """The graph that was used last, so that trainings on the same data read it once."""

    def __init__(self) -> None:
        self._key: tuple[str, Path | None] | None = None
        self._graph: KnowledgeGraph | None = None

    def get(self, data: DataConfig, mirror: Path | None) -> KnowledgeGraph:
        from rgcn.runs.assembly import load_data

        key = data.model_dump_json(), mirror
        if self._graph is None or key != self._key:
            self._graph = None  # let go of the old one first: two large graphs may not fit
            self._graph = load_data(data, mirror)
            self._key = key
        return self._graph


def do(task: Task, shelf: GraphShelf, on_epoch: OnEpoch | None = None) -> Outcome:
    """One training, from its beginning or from where it was interrupted."""
    from rgcn.runs.training import resume, train

    try:
        graph = shelf.get(task.config.data, task.mirror)
        if task.goes_on and task.folder is not None:
            result = resume(task.folder, on_epoch=on_epoch, graph=graph)
        else:
            result = train(task.config, graph, task.folder, on_epoch)
        return Outcome(task, result.as_dict())
    except StoppedError:
        raise
    except RgcnError as error:
        return Outcome(task, error=str(error))
    except Exception as error:  # whatever it was, the other trainings go on and this one is named
        return Outcome(task, error=f"{type(error).__name__}: {error}")


class InThisProcess(Workers):
    """One training after another, here."""

    jobs = 1

    def __init__(self) -> None:
        self._shelf = GraphShelf()

    def run(self, tasks: Sequence[Task], on_epoch: OnTaskEpoch | None = None) -> Iterator[Outcome]:
        for task in tasks:
            # Data that cannot be had are no seed's failure: they stop the series at once.
            self._shelf.get(task.config.data, task.mirror)
            yield do(task, self._shelf, None if on_epoch is None else _reporter(task, on_epoch))


class InProcesses(Workers):
    """Up to `jobs` processes, started when there is something for them to do."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self._idle: list[_Worker] = []
        self._busy: dict[Connection, _Worker] = {}

    def run(self, tasks: Sequence[Task], on_epoch: OnTaskEpoch | None = None) -> Iterator[Outcome]:
        waiting = list(reversed(tasks))
        while waiting or self._busy:
            while waiting and len(self._busy) < self.jobs:
                worker = self._idle.pop() if self._idle else _Worker(max(1, available_cores() // self.jobs))
                worker.begin(waiting.pop())
                self._busy[worker.connection] = worker
            for ready in connection.wait(list(self._busy)):
                outcome = self._hear(self._busy[ready], on_epoch)  # type: ignore[index]
                if outcome is not None:
                    yield outcome

    def _hear(self, worker: _Worker, on_epoch: OnTaskEpoch | None) -> Outcome | None:
        task = worker.task
        assert task is not None
        try:
            message = worker.connection.recv()
        except (EOFError, OSError):  # killed, most often for want of memory: nothing more will come from it
            del self._busy[worker.connection]
            worker.process.join(SECONDS_TO_STOP)
            return Outcome(task, error=f"its process ended without a word (exit code {worker.process.exitcode})")
        if isinstance(message, Outcome):
            self._idle.append(self._busy.pop(worker.connection))
            return message
        if on_epoch is not None:
            on_epoch(task, message)
        return None

    def stop(self) -> None:
        """Send idle processes home, stop busy ones, and wait until all are gone."""
        for worker in self._idle:
            worker.connection.close()
        for worker in self._busy.values():
            worker.process.terminate()
        deadline = time.monotonic() + SECONDS_TO_STOP
        for worker in [*self._idle, *self._busy.values()]:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        self._idle, self._busy = [], {}


class _Worker:
    """A process and the line to it."""

    def __init__(self, threads: int) -> None:
        context = get_context("spawn")  # a fork would inherit threads that no longer run
        self.connection, theirs = context.Pipe()
        self.task: Task | None = None
        self.process: BaseProcess = context.Process(target=_work, args=(theirs, threads), daemon=True)
        with environment_variables(dict.fromkeys(THREAD_VARIABLES, str(threads))):
            self.process.start()
        theirs.close()  # so that the line breaks when the process ends

    def begin(self, task: Task) -> None:
        self.task = task
        self.connection.send(task)


def available_cores() -> int:
    """Cores this process may use, which in a container are fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def _told_of_termination() -> Iterator[None]:
    """Within, SIGTERM is an error as Ctrl-C is, so that what was started is stopped before this process ends."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise StoppedError("stopped by SIGTERM", number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def environment_variables(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _reporter(task: Task, on_epoch: OnTaskEpoch) -> OnEpoch:
    return lambda epoch: on_epoch(task, epoch)


# -- in the other process ----------------------------------------------------------------------------------


def _work(line: Connection, threads: int) -> None:
    """Take tasks from the line until it closes."""
    import torch

    torch.set_num_threads(threads)
    leave_stopping_to_the_parent()
    shelf = GraphShelf()
    with suppress(EOFError, OSError, KeyboardInterrupt, StoppedError):  # the parent wants no more, or is no more
        while True:
            line.send(do(line.recv(), shelf, _now_and_then(line)))


def leave_stopping_to_the_parent() -> None:
    """Ctrl-C reaches every process of a terminal's group: out of it, so that we are stopped once, by the parent.

    A parent that is killed cannot stop anyone: a thread waits for its end and then ends this process too.
    """
    if hasattr(os, "setpgrp"):
        os.setpgrp()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is None:
        return

    def watch() -> None:
        connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(SECONDS_TO_STOP)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _now_and_then(line: Connection) -> OnEpoch:
    """Pass epochs on, but not so often that passing them on costs time."""
    last = 0.0

    def pass_on(epoch: Any) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= SECONDS_BETWEEN_REPORTS:
            last = now
            line.send(epoch)

    return pass_on
