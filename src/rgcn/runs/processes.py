"""Processes that work for this one, each at the other end of a line.

A process is started once and does one thing after another, so that PyTorch is loaded and a graph is read once in each.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection, get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from rgcn.errors import StoppedError
from rgcn.threads import thread_limits

SECONDS_TO_STOP = 20.0  # a training that is told to stop may first have to save itself


@dataclass(frozen=True)
class Died:
    """The last that is heard of a process: why no more will come."""

    words: str


class WorkerProcess:
    """A process that runs `work(line, *arguments)`, and our end of the line to it.

    What is said on the line is up to `work`, which must be importable by name. An error that it raises is heard as
    `Died`, and so is an end it cannot speak of.
    """

    def __init__(self, work: Callable[..., None], *arguments: Any, threads: int) -> None:
        context = get_context("spawn")  # a fork would inherit threads that no longer run
        self.line, theirs = context.Pipe()
        self.died = False
        self.process: BaseProcess = context.Process(target=_enter, args=(work, theirs, arguments), daemon=True)
        with _environment_variables(thread_limits(threads)):  # libraries read them when they are loaded
            self.process.start()
        theirs.close()  # so that the line breaks when the process ends

    def send(self, message: Any) -> bool:
        """Say something; whether the process is still there to hear it."""
        try:
            self.line.send(message)
        except OSError:
            return False
        return True

    def hear(self) -> Any:
        """Wait for what the process says next, or for its end."""
        try:
            message = self.line.recv()
        except (EOFError, OSError):  # killed, most often for want of memory
            self.process.join(SECONDS_TO_STOP)
            message = Died(f"its process ended without a word (exit code {self.process.exitcode})")
        self.died = isinstance(message, Died)
        return message


def hear_from(processes: Iterable[WorkerProcess]) -> Iterator[tuple[WorkerProcess, Any]]:
    """Wait until some process has something to say, and hear all that have; one that died says so once."""
    by_line = {process.line: process for process in processes if not process.died}
    for line in connection.wait(list(by_line)):
        process = by_line[line]  # type: ignore[index]
        yield process, process.hear()


def stop(processes: Iterable[WorkerProcess]) -> None:
    """Tell processes to stop, and wait until all are gone."""
    leaving = list(processes)
    for each in leaving:
        each.process.terminate()
    deadline = time.monotonic() + SECONDS_TO_STOP
    for each in leaving:
        each.process.join(max(0.0, deadline - time.monotonic()))
        if each.process.is_alive():
            each.process.kill()
            each.process.join()
        each.line.close()


@contextmanager
def _environment_variables(values: dict[str, str]) -> Iterator[None]:
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


# -- in the other process ----------------------------------------------------------------------------------


def _enter(work: Callable[..., None], line: Connection, arguments: tuple[Any, ...]) -> None:
    _leave_stopping_to_the_parent()
    try:
        work(line, *arguments)
    except (EOFError, KeyboardInterrupt, StoppedError):  # the parent wants no more, or is no more
        pass
    except Exception as error:
        with suppress(OSError):  # it may be the line itself that is broken
            line.send(Died(f"{type(error).__name__}: {error}"))


def _leave_stopping_to_the_parent() -> None:
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
