"""Worker processes that run tasks for this process, and the handling of Ctrl-C and SIGTERM.

A worker process runs one task after another. A new process for every training would load PyTorch and read the graph
each time, which takes longer than a short training.
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
from functools import cache, partial
from itertools import chain
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any, Generic, NamedTuple, TypeVar

from typing_extensions import Self

from rgcn.errors import DataError, StoppedError
from rgcn.plugins import allow, allowed_packages
from rgcn.system.memory import limit_memory, memory_limit
from rgcn.system.threads import limit_threads, prepare_process, threads_per_process

STOP_TIMEOUT_S = 20.0  # a training that receives a stop signal may first save a checkpoint
MAX_DEATHS = 3  # consecutive deaths of workers, after which the tasks are not the likely cause
TASK_RECEIVED = "task received"  # sent by a worker: if it dies before, the task is not the cause and is run again
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)

Task = TypeVar("Task")
TaskFunction = Callable[[Task, Callable[[Any], Any]], Any]


class TaskResult(NamedTuple):
    """The last message about a task that ended: what the task function returned."""

    value: Any


class WorkerDeath(NamedTuple):
    """The last message of a worker process that ended, with the reason."""

    reason: str


@dataclass(frozen=True)
class ProcessSettings:
    """Settings that a worker process takes over from the process that starts it.

    Attributes:
        threads: Number of threads to compute with.
        memory: Limit of its memory in bytes, or None.
        allowed: Packages whose components may be imported.
    """

    threads: int
    memory: int | None = field(default_factory=memory_limit)
    allowed_packages: tuple[str, ...] = field(default_factory=allowed_packages)

    def apply(self) -> None:
        """Apply the settings. Called in the worker process before it loads PyTorch."""
        prepare_process()
        limit_threads(self.threads)
        limit_memory(self.memory)
        allow(*self.allowed_packages)


class WorkerProcess:
    """A process that runs `function(connection, *arguments)`, and our end of the connection to it.

    Args:
        function: A function that can be pickled.
        *arguments: Its arguments after the connection.
        threads: Number of threads that the process may compute with.
    """

    has_task = False  # the worker has confirmed that it received a task

    def __init__(self, function: Callable[..., None], *arguments: Any, threads: int) -> None:
        context = get_context("spawn")  # a forked process would inherit locks of threads that no longer run
        self.connection, worker_end = context.Pipe()
        settings = ProcessSettings(threads)
        self.process: BaseProcess = context.Process(target=_worker_main, args=(settings, worker_end), daemon=True)
        self.process.start()
        worker_end.close()  # so that the connection breaks when the process ends
        self.send((function, arguments))  # unpickling them loads PyTorch, which must happen after the settings apply

    def send(self, message: Any) -> None:
        """Send a message. If the process is already dead, the next `receive` returns a WorkerDeath."""
        with suppress(OSError):
            self.connection.send(message)

    def receive(self) -> Any:
        """Wait for the next message of the process, or for its end."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):  # killed, most often because memory ran out
            self.process.join(STOP_TIMEOUT_S)
            return WorkerDeath(f"its process ended without an error message (exit code {self.process.exitcode})")


class WorkerPool(Generic[Task]):
    """Runs up to `jobs` tasks at a time: one job in this process, several jobs in worker processes.

    Use it in a `with` statement. Processes start when there is a task for them and stop on leaving.

    Args:
        jobs: Number of tasks at a time.
        start: Called once in each process, returns the function that runs a task. That function takes the task, and a
            function that sends a message to this process and returns the answer. `start` must be picklable.
    """

    def __init__(self, jobs: int, start: Callable[[], TaskFunction[Task]]) -> None:
        self.jobs, self._start = jobs, start
        self._idle: list[WorkerProcess] = []
        self._busy: dict[WorkerProcess, Task] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        stop([*self._idle, *self._busy])

    def run(
        self, tasks: Iterator[Task], answer: Callable[[Task, Any], Any], max_deaths: float = math.inf
    ) -> Iterator[tuple[Task, TaskResult | WorkerDeath]]:
        """Run tasks and yield each one with its result, in the order in which they end.

        If a worker dies while it runs a task, only that task is lost.

        Args:
            tasks: The tasks. The next one is requested only when a process is free for it.
            answer: Called with a task and a message from it; returns the answer to the message.
            max_deaths: Consecutive deaths during a task after which the pool gives up. Before a task starts, the limit
                is always MAX_DEATHS.

        Raises:
            DataError: Too many workers died.
        """
        if self.jobs == 1:
            start = cache(self._start)  # only once there is a task
            for task in tasks:
                yield task, TaskResult(start()(task, partial(answer, task)))
            return
        num_deaths, threads = 0, threads_per_process(self.jobs)
        while True:
            while len(self._busy) < self.jobs and (task_or_none := next(tasks, None)) is not None:
                worker = self._idle.pop() if self._idle else WorkerProcess(_run_tasks, self._start, threads=threads)
                worker.send(task_or_none)
                self._busy[worker] = task_or_none
            if not self._busy:
                return
            for worker, message in receive_from(self._busy):
                if message == TASK_RECEIVED:
                    worker.has_task = True
                elif isinstance(message, TaskResult):
                    num_deaths, worker.has_task = 0, False
                    self._idle.append(worker)
                    yield self._busy.pop(worker), message
                elif isinstance(message, WorkerDeath):
                    num_deaths, task = num_deaths + 1, self._busy.pop(worker)
                    stop([worker])
                    if worker.has_task:
                        yield task, message
                    else:
                        tasks = chain([task], tasks)
                    if num_deaths >= (max_deaths if worker.has_task else MAX_DEATHS):
                        raise DataError(f"{num_deaths} processes in a row died, the last with: {message.reason}")
                else:
                    worker.send(answer(self._busy[worker], message))


def _run_tasks(connection: Connection, start: Callable[[], TaskFunction[Any]]) -> None:
    """Run one task after another, in a worker process."""
    run_task = start()

    def ask(message: Any) -> Any:
        connection.send(message)
        return connection.recv()

    while True:
        task = connection.recv()
        connection.send(TASK_RECEIVED)
        connection.send(TaskResult(run_task(task, ask)))


def receive_from(workers: Iterable[WorkerProcess]) -> Iterator[tuple[WorkerProcess, Any]]:
    """Wait until some workers have sent a message, and yield these workers with their messages."""
    by_connection: dict[Any, WorkerProcess] = {worker.connection: worker for worker in workers}
    for ready in wait(list(by_connection)):
        yield by_connection[ready], by_connection[ready].receive()


def stop(workers: Iterable[WorkerProcess]) -> None:
    """Send SIGTERM to processes, and kill those that still run after STOP_TIMEOUT_S."""
    leaving, deadline = list(workers), time.monotonic() + STOP_TIMEOUT_S
    for worker in leaving:
        worker.process.terminate()
        worker.connection.close()  # a worker that waits for an answer gets an EOFError
    for worker in leaving:
        worker.process.join(max(0.0, deadline - time.monotonic()))
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()


def _worker_main(settings: ProcessSettings, connection: Connection) -> None:
    _follow_parent()
    settings.apply()
    try:
        function, arguments = connection.recv()
        function(connection, *arguments)
    except (EOFError, KeyboardInterrupt, StoppedError):  # the parent stopped us, or has ended
        pass
    except Exception as error:
        with suppress(OSError):  # the connection itself may be broken
            connection.send(WorkerDeath(f"{type(error).__name__}: {error}"))


def _follow_parent() -> None:
    """Let only the parent stop this process, and stop when the parent dies.

    Ctrl-C reaches every process in the terminal's process group. A worker leaves the group, so that it is stopped once.
    """
    if hasattr(os, "setpgrp"):
        os.setpgrp()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    assert parent is not None

    def watch() -> None:  # a parent that is killed cannot stop its workers
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(STOP_TIMEOUT_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class InterruptHandler:
    """Context manager that records Ctrl-C and SIGTERM instead of stopping at once.

    The first signal is stored in `received`; a second Ctrl-C raises KeyboardInterrupt. Python delivers signals to the
    main thread only, so in other threads nothing changes.

    Args:
        at_once: Raise KeyboardInterrupt at the first signal.
    """

    def __init__(self, at_once: bool = False) -> None:
        self.received: signal.Signals | None = None
        self.at_once = at_once
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> InterruptHandler:
        if threading.current_thread() is threading.main_thread():
            # A signal that the caller ignores (nohup, a shell's background job) stays ignored.
            handled = [number for number in STOP_SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
            self._previous = {number: signal.signal(number, self._handle) for number in handled}
        return self

    def __exit__(self, *failure: object) -> None:
        for number, handler in self._previous.items():
            # None stands for a handler that was not installed by Python, and that Python cannot restore.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        is_second = self.received is not None and number == signal.SIGINT
        self.received = self.received or signal.Signals(number)
        if is_second or self.at_once:
            raise KeyboardInterrupt

    def error(self, place: str = "", advice: str = "") -> StoppedError:
        """Return the error to raise: which signal stopped the program, where, and how to continue."""
        received = self.received or signal.SIGINT  # without a signal, Python itself raised KeyboardInterrupt
        name = "Ctrl-C" if received == signal.SIGINT else received.name
        return StoppedError(f"stopped by {name}{place}", advice, received)
