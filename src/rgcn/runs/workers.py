"""Trainings one after another in this process, or several at a time in processes of their own."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from rgcn.errors import RgcnError, StoppedError
from rgcn.runs.processes import Died, WorkerProcess, hear_from, stop
from rgcn.threads import threads_each

if TYPE_CHECKING:
    from rgcn.config import DataConfig, RunConfig
    from rgcn.graph import KnowledgeGraph
    from rgcn.tasks.estimator import OnEpoch

SECONDS_BETWEEN_REPORTS = 0.2


@dataclass(frozen=True)
class Job:
    """One training: what to do, and the folder to keep it in (None: keep nothing).

    goes_on: the folder holds a run that was interrupted.
    """

    config: RunConfig
    folder: Path | None = None
    mirror: Path | None = None
    goes_on: bool = False


@dataclass(frozen=True)
class Outcome:
    """What a job gave: `RunResult.as_dict()`, or what went wrong."""

    job: Job
    result: dict[str, Any] | None = None
    error: str | None = None


OnJobEpoch = Callable[[Job, Any], None]


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


def do(job: Job, shelf: GraphShelf, on_epoch: OnEpoch | None = None) -> Outcome:
    """One training, from its beginning or from where it was interrupted."""
    from rgcn.runs.training import resume, train

    try:
        graph = shelf.get(job.config.data, job.mirror)
        if job.goes_on and job.folder is not None:
            result = resume(job.folder, on_epoch=on_epoch, graph=graph)
        else:
            result = train(job.config, graph, job.folder, on_epoch)
        return Outcome(job, result.as_dict())
    except StoppedError:
        raise
    except RgcnError as error:
        return Outcome(job, error=str(error))
    except Exception as error:  # whatever it was, the other trainings go on and this one is named
        return Outcome(job, error=f"{type(error).__name__}: {error}")


class Workers:
    """Takes trainings, `jobs` at a time: with one, in this process, else in processes started when they are needed.

    Use `workers`, which stops them.
    """

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self._shelf = GraphShelf()
        self._idle: list[WorkerProcess] = []
        self._busy: dict[WorkerProcess, Job] = {}

    def run(self, trainings: Sequence[Job], on_epoch: OnJobEpoch | None = None) -> Iterator[Outcome]:
        """Outcomes of all trainings in the order they are done; one that fails does not stop the others."""
        return (self._run_here if self.jobs == 1 else self._run_in_processes)(trainings, on_epoch)

    def stop(self) -> None:
        """Stop every process and wait until all are gone."""
        stop([*self._idle, *self._busy])
        self._idle, self._busy = [], {}

    def _run_here(self, trainings: Sequence[Job], on_epoch: OnJobEpoch | None) -> Iterator[Outcome]:
        for job in trainings:
            # Data that cannot be had are no seed's failure: they stop the series at once.
            self._shelf.get(job.config.data, job.mirror)
            yield do(job, self._shelf, None if on_epoch is None else _reporter(job, on_epoch))

    def _run_in_processes(self, trainings: Sequence[Job], on_epoch: OnJobEpoch | None) -> Iterator[Outcome]:
        waiting = list(reversed(trainings))
        while waiting or self._busy:
            while waiting and len(self._busy) < self.jobs:
                self._begin(waiting.pop())
            for process, message in hear_from(self._busy):
                if isinstance(message, Outcome):
                    del self._busy[process]
                    self._idle.append(process)
                    yield message
                elif isinstance(message, Died):
                    stop([process])
                    yield Outcome(self._busy.pop(process), error=message.words)
                elif on_epoch is not None:
                    on_epoch(self._busy[process], message)

    def _begin(self, job: Job) -> None:
        """Hand a job to an idle process, or to a new one where there is none or they died meanwhile."""
        while self._idle:
            process = self._idle.pop()
            if process.send(job):
                self._busy[process] = job
                return
            stop([process])
        process = WorkerProcess(_work, threads=threads_each(self.jobs))
        process.send(job)  # should it be gone already, that is heard as a death
        self._busy[process] = job


@contextmanager
def workers(jobs: int) -> Iterator[Workers]:
    """`jobs` trainings at a time; with one, in this process. On leaving, whatever still runs is stopped."""
    try:
        pool = Workers(jobs)
        try:
            with _told_of_termination() if jobs > 1 else nullcontext():
                yield pool
        finally:
            pool.stop()
    except KeyboardInterrupt:
        raise StoppedError("stopped by Ctrl-C", "", signal.SIGINT) from None


@contextmanager
def _told_of_termination() -> Iterator[None]:
    """Within, SIGTERM is an error as Ctrl-C is, so that what was started is stopped before this process ends."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise StoppedError("stopped by SIGTERM", "", number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _reporter(job: Job, on_epoch: OnJobEpoch) -> OnEpoch:
    return lambda epoch: on_epoch(job, epoch)


# -- in the other process ----------------------------------------------------------------------------------


def _work(line: Connection) -> None:
    """Do one job after another."""
    shelf = GraphShelf()
    while True:
        line.send(do(line.recv(), shelf, _now_and_then(line)))


def _now_and_then(line: Connection) -> OnEpoch:
    """Pass epochs on, but not so often that passing them on costs time."""
    last = 0.0

    def pass_on(epoch: Any) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= SECONDS_BETWEEN_REPORTS:
            last = now
            with suppress(OSError):  # a parent that is gone: its end is what stops us, in an orderly way
                line.send(epoch)

    return pass_on
