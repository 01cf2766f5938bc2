"""Run the workers of a pool as threads, because starting processes that load PyTorch would make tests slow."""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from typing import Any

import pytest

from rgcn.runs.worker_pool import TASK_RECEIVED, WorkerProcess

Behavior = Callable[..., None]


class ThreadWorkers:
    """Replaces the processes of a worker pool by threads.

    Attributes:
        behaviors: How the next workers run their function; later workers just run it.
        started: All workers that were started.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, behaviors: Iterable[Behavior] = ()) -> None:
        self.behaviors, self.started = list(behaviors), list[ThreadWorker]()
        monkeypatch.setattr("rgcn.runs.worker_pool.WorkerProcess", self._start)

    def _start(self, function: Callable[..., None], *arguments: Any, threads: int) -> ThreadWorker:
        behavior = self.behaviors.pop(0) if self.behaviors else stays_alive
        self.started.append(ThreadWorker(behavior, function, arguments))
        return self.started[-1]


class ThreadWorker(WorkerProcess):
    """A worker of the pool that is a thread."""

    def __init__(self, behavior: Behavior, function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self.connection, worker_end = multiprocessing.Pipe()
        self.process: Any = _Thread(self.connection, worker_end, behavior, function, arguments)


class _Thread:
    """A thread with those methods of a process that the pool uses."""

    exitcode = -9

    def __init__(
        self, parent_end: Connection, worker_end: Connection, behavior: Behavior, function: Any, arguments: Any
    ) -> None:
        self.parent_end = parent_end

        def run() -> None:
            with contextlib.suppress(EOFError, OSError):
                behavior(function, worker_end, *arguments)
            worker_end.close()

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()

    def terminate(self) -> None:
        self.parent_end.close()

    def join(self, seconds: float | None = None) -> None:
        self.thread.join(seconds)

    def is_alive(self) -> bool:
        return self.thread.is_alive()

    def kill(self) -> None:
        raise AssertionError("a thread did not end after terminate()")


def stays_alive(function: Callable[..., None], connection: Connection, *arguments: Any) -> None:
    """Behavior: run the worker's function to its end."""
    function(connection, *arguments)


def dies_at_once(function: Callable[..., None], connection: Connection, *arguments: Any) -> None:
    """Behavior: die before the worker's function starts."""


def dies_after_receiving(function: Callable[..., None], connection: Connection, *arguments: Any) -> None:
    """Behavior: die after receiving the first message."""
    function(_DyingConnection(connection), *arguments)


def dies_at_work(function: Callable[..., None], connection: Connection, *arguments: Any) -> None:
    """Behavior: die after confirming that a task was received."""
    function(_DyingConnection(connection, lambda message: message == TASK_RECEIVED), *arguments)


def dies_after_sending(kind: type) -> Behavior:
    """Return a behavior: die after sending a message of this type."""
    return lambda function, connection, *arguments: function(
        _DyingConnection(connection, lambda message: isinstance(message, kind)), *arguments
    )


class _DyingConnection:
    """A connection whose worker dies after sending a last message, or after the first message it receives."""

    def __init__(self, connection: Connection, is_last: Callable[[Any], bool] | None = None) -> None:
        self.connection, self.is_last = connection, is_last

    def send(self, message: Any) -> None:
        self.connection.send(message)
        if self.is_last is not None and self.is_last(message):
            raise EOFError

    def recv(self) -> Any:
        message = self.connection.recv()
        if self.is_last is None:
            raise EOFError
        return message
