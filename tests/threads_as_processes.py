"""Workers that are threads: a process loads PyTorch for longer than all that these tests ask of it."""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from typing import Any

import pytest

from rgcn.runs.worker_pool import TAKEN, WorkerProcess

Life = Callable[..., None]


class Workshop:
    """Stands where a crew starts its processes.

    lives    what the next ones do with their work; those after them just do it
    started  all that were started
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, lives: Iterable[Life] = ()) -> None:
        self.lives, self.started = list(lives), list[ThreadWorker]()
        monkeypatch.setattr("rgcn.runs.worker_pool.WorkerProcess", self._start)

    def _start(self, work: Callable[..., None], *arguments: Any, threads: int) -> ThreadWorker:
        life = self.lives.pop(0) if self.lives else lives_on
        self.started.append(ThreadWorker(life, work, arguments))
        return self.started[-1]


class ThreadWorker(WorkerProcess):
    def __init__(self, life: Life, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self.line, theirs = multiprocessing.Pipe()
        self.process: Any = _Thread(self.line, theirs, life, work, arguments)


class _Thread:
    """As much of a process as is used."""

    exitcode = -9

    def __init__(self, ours: Connection, theirs: Connection, life: Life, work: Any, arguments: Any) -> None:
        self.ours = ours

        def live() -> None:
            with contextlib.suppress(EOFError, OSError):
                life(work, theirs, *arguments)
            theirs.close()

        self.thread = threading.Thread(target=live, daemon=True)
        self.thread.start()

    def terminate(self) -> None:
        self.ours.close()

    def join(self, seconds: float | None = None) -> None:
        self.thread.join(seconds)

    def is_alive(self) -> bool:
        return self.thread.is_alive()

    def kill(self) -> None:
        raise AssertionError("a thread did not end when told to")


def lives_on(work: Callable[..., None], line: Connection, *arguments: Any) -> None:
    work(line, *arguments)


def dies_at_once(work: Callable[..., None], line: Connection, *arguments: Any) -> None:
    pass


def dies_after_hearing_something(work: Callable[..., None], line: Connection, *arguments: Any) -> None:
    work(_Mortal(line), *arguments)


def dies_at_work(work: Callable[..., None], line: Connection, *arguments: Any) -> None:
    work(_Mortal(line, lambda message: message == TAKEN), *arguments)


def dies_after_saying(kind: type) -> Life:
    return lambda work, line, *arguments: work(_Mortal(line, lambda said: isinstance(said, kind)), *arguments)


class _Mortal:
    """A line whose owner dies after saying some last words, or after the first thing heard."""

    def __init__(self, line: Connection, last_words: Callable[[Any], bool] | None = None) -> None:
        self.line, self.last_words = line, last_words

    def send(self, message: Any) -> None:
        self.line.send(message)
        if self.last_words is not None and self.last_words(message):
            raise EOFError

    def recv(self) -> Any:
        message = self.line.recv()
        if self.last_words is None:
            raise EOFError
        return message
