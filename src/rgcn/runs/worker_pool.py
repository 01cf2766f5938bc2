"""Processes that work for this one: each is started once and does one task after another, whatever the task.

A process for every training would load PyTorch and read the graph every time, which takes longer than a short training.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from multiprocessing import connection, get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any, Generic, TypeVar

from typing_extensions import Self

from rgcn.errors import DataError, StoppedError
from rgcn.plugins import allow, allowed
from rgcn.system.memory import limit_memory, memory_limit
from rgcn.system.threads import limit_threads, prepare_process, threads_each

SECONDS_TO_STOP = 20.0  # a training that is told to stop may first have to save itself
MOST_DEATHS = 3  # in a row: then it is not the task that ends its process
TAKEN = "taken"  # said by a process that has heard its task: until then whatever ends it is not the task's fault
HEARD = (signal.SIGINT, signal.SIGTERM)

Task = TypeVar("Task")
Work = Callable[[Task, Callable[[Any], Any]], Any]


@dataclass(frozen=True)
class Done:
    """The last that is said of a task: what it gave."""

    value: Any


@dataclass(frozen=True)
class Died:
    """The last that is heard of a process: why no more will come."""

    words: str


@dataclass(frozen=True)
class ProcessSettings:
    """What a worker process takes over from the process that starts it.

    threads: threads to compute on; memory: bytes it may hold; allowed: packages that are trusted
    """

    threads: int
    memory: int | None = field(default_factory=memory_limit)
    allowed: tuple[str, ...] = field(default_factory=allowed)

    def apply(self) -> None:
        """Take them over, in the worker process, before it loads PyTorch."""
        prepare_process()
        limit_threads(self.threads)
        limit_memory(self.memory)
        allow(*self.allowed)


class WorkerProcess:
    """A process that runs `work(line, *arguments)`, importable by name, and our end of the line to it."""

    has_task = False  # it has said that it heard one

    def __init__(self, work: Callable[..., None], *arguments: Any, threads: int) -> None:
        context = get_context("spawn")  # a fork would inherit threads that no longer run
        self.line, theirs = context.Pipe()
        settings = ProcessSettings(threads)
        self.process: BaseProcess = context.Process(target=_enter, args=(settings, theirs), daemon=True)
        self.process.start()
        theirs.close()  # so that the line breaks when the process ends
        self.send((work, arguments))  # to receive them loads PyTorch, which must find the settings applied

    def send(self, message: Any) -> None:
        """Say something; whether the process was still there to hear it shows when it is heard."""
        with suppress(OSError):
            self.line.send(message)

    def hear(self) -> Any:
        """Wait for what the process says next, or for its end."""
        try:
            return self.line.recv()
        except (EOFError, OSError):  # killed, most often for want of memory
            self.process.join(SECONDS_TO_STOP)
            return Died(f"its process ended without a word (exit code {self.process.exitcode})")


class Crew(Generic[Task]):
    """Does tasks, up to `jobs` at a time: with one in this process, else in processes that are started when there is
    something to do, and stopped on leaving.

    start  makes the function that does tasks, where they are done: it takes a task, and `ask`, which sends a message to
           this process and returns the answer. Importable by name
    """

    def __init__(self, jobs: int, start: Callable[[], Work[Task]]) -> None:
        self.jobs, self._start = jobs, start
        self._idle: list[WorkerProcess] = []
        self._busy: dict[WorkerProcess, Task] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        stop([*self._idle, *self._busy])

    def run(
        self, tasks: Iterator[Task], answer: Callable[[Task, Any], Any], most_deaths: float = math.inf
    ) -> Iterator[tuple[Task, Done | Died]]:
        """How each task ended, as soon as it did. A process that dies at work costs its task and no other.

        tasks        asked for the next one only when there is room for it
        answer       hears a task and what is asked on the way
        most_deaths  processes in a row that may die at work; of those that take no task it is always MOST_DEATHS
        """
        if self.jobs == 1:
            do: Work[Task] | None = None
            for task in tasks:
                do = do or self._start()
                yield task, Done(do(task, partial(answer, task)))
            return
        deaths, threads = 0, threads_each(self.jobs)
        while True:
            while len(self._busy) < self.jobs and (todo := next(tasks, None)) is not None:
                process = self._idle.pop() if self._idle else WorkerProcess(_serve, self._start, threads=threads)
                process.send(todo)  # should it be gone already, that is heard as a death
                self._busy[process] = todo
            if not self._busy:
                return
            for process, message in hear_from(self._busy):
                if message == TAKEN:
                    process.has_task = True
                elif isinstance(message, Done):
                    deaths, process.has_task = 0, False
                    self._idle.append(process)
                    yield self._busy.pop(process), message
                elif isinstance(message, Died):
                    deaths, task = deaths + 1, self._busy.pop(process)
                    stop([process])
                    if process.has_task:
                        yield task, message
                    else:
                        tasks = chain([task], tasks)
                    if deaths >= (most_deaths if process.has_task else MOST_DEATHS):
                        raise DataError(f"{deaths} processes in a row died, the last with: {message.words}")
                else:
                    process.send(answer(self._busy[process], message))


def _serve(line: Connection, start: Callable[[], Work[Any]]) -> None:
    """In a worker process: one task after another."""
    do = start()

    def ask(message: Any) -> Any:
        line.send(message)
        return line.recv()

    while True:
        task = line.recv()
        line.send(TAKEN)
        line.send(Done(do(task, ask)))


def hear_from(processes: Iterable[WorkerProcess]) -> Iterator[tuple[WorkerProcess, Any]]:
    """Wait until some process has something to say, and hear all that have."""
    by_line = {process.line: process for process in processes}
    for line in connection.wait(list(by_line)):
        process = by_line[line]  # type: ignore[index]
        yield process, process.hear()


def stop(processes: Iterable[WorkerProcess]) -> None:
    leaving = list(processes)
    for each in leaving:
        each.process.terminate()
        each.line.close()  # no answer comes any more to whoever waits for one
    deadline = time.monotonic() + SECONDS_TO_STOP
    for each in leaving:
        each.process.join(max(0.0, deadline - time.monotonic()))
        if each.process.is_alive():
            each.process.kill()
            each.process.join()


def _enter(settings: ProcessSettings, line: Connection) -> None:
    _leave_stopping_to_the_parent()
    settings.apply()
    try:
        work, arguments = line.recv()
        work(line, *arguments)
    except (EOFError, KeyboardInterrupt, StoppedError):  # the parent wants no more, or is no more
        pass
    except Exception as error:
        with suppress(OSError):  # it may be the line itself that is broken
            line.send(Died(f"{type(error).__name__}: {error}"))


def _leave_stopping_to_the_parent() -> None:
    """Ctrl-C reaches every process of a terminal's group: out of it, so that we are stopped once, by the parent."""
    if hasattr(os, "setpgrp"):
        os.setpgrp()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is None:
        return

    def watch() -> None:  # a parent that is killed cannot stop anyone
        connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(SECONDS_TO_STOP)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class Interruption:
    """Ctrl-C and SIGTERM within `with`, in the main thread, which alone they reach: the first signal is only noted in
    `received`, a second Ctrl-C stops at once. With `at_once`, for what may be cut short, the first one does."""

    def __init__(self, at_once: bool = False) -> None:
        self.received: signal.Signals | None = None
        self.at_once = at_once
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            # What whoever started us wants ignored, `nohup` or a shell's background for instance, stays ignored.
            heard = [number for number in HEARD if signal.getsignal(number) != signal.SIG_IGN]
            self._before = {number: signal.signal(number, self._note) for number in heard}
        return self

    def __exit__(self, *failure: object) -> None:
        for number, handler in self._before.items():
            # None stands for a handler that was not set from Python and cannot be set again from here.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        again = self.received is not None and number == signal.SIGINT
        self.received = self.received or signal.Signals(number)
        if again or self.at_once:
            raise KeyboardInterrupt

    def error(self, where: str = "", advice: str = "") -> StoppedError:
        """What was received in words; where nothing was, it was Python that raised KeyboardInterrupt."""
        received = self.received or signal.SIGINT
        what = "Ctrl-C" if received == signal.SIGINT else received.name
        return StoppedError(f"stopped by {what}{where}", advice, received)
