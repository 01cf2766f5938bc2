"""Long tasks: how far one has come, and how much one may cost.

What a task may cost is decided from counts wherever it can be, with a clock for what counts do not tell.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class ProgressMeter:
    """What a running task reports to; without a bar behind it, it only counts.

    >>> meter = ProgressMeter()
    >>> meter.advance(3)
    >>> meter.done
    3.0
    """

    def __init__(self, bar: Progress | None = None, task: TaskID | None = None) -> None:
        self._bar, self._task = bar, task
        self.done = 0.0

    def advance(self, amount: float = 1.0) -> None:
        self.done += amount
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task, amount)

    def say(self, words: str) -> None:
        """A line of its own on stderr, above the bar where there is one; nothing without words."""
        if words and self._bar is not None:
            self._bar.console.print(words, markup=False, highlight=False, soft_wrap=True)
        elif words:
            print(words, file=sys.stderr)

    def describe(self, description: str) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=description)


@contextmanager
def progress(
    description: str, total: float | None = None, unit: str = "", *, show: bool | None = None
) -> Iterator[ProgressMeter]:
    """A progress bar on stderr; `show=None` draws it only where stderr is a terminal.

    `total=None` means the end is not known. The unit "bytes" is written as MB and MB/s.

    >>> with progress("counting", total=3, unit="steps", show=False) as meter:
    ...     for _ in range(3):
    ...         meter.advance(1)
    >>> meter.done
    3.0
    """
    if show is None:
        show = sys.stderr is not None and sys.stderr.isatty()
    if not show:
        yield ProgressMeter()
        return
    from rich import progress as rich_progress

    from rgcn.system.formatting import text_console

    amount: list[rich_progress.ProgressColumn] = [rich_progress.MofNCompleteColumn(), rich_progress.TextColumn(unit)]
    if unit == "bytes":
        amount = [rich_progress.DownloadColumn(), rich_progress.TransferSpeedColumn()]
    columns = (
        rich_progress.TextColumn("[progress.description]{task.description}", markup=True),
        rich_progress.BarColumn(),
        *amount,
        rich_progress.TimeRemainingColumn(),
    )
    with rich_progress.Progress(*columns, console=text_console(stderr=True), transient=True) as bar:
        yield ProgressMeter(bar, bar.add_task(description, total=total))


@dataclass(frozen=True)
class Budget:
    """What may be spent on something that can be done a few times or many.

    work     multiply-adds. Two ordinary cores do some 3e10 a second. How often something is done follows from this
             alone, so that the same data give the same answer on every machine that is fast enough
    seconds  the upper bound for machines that are slower or busy
    clock    seconds from any beginning
    bars     whether to draw a progress bar; None: where standard error is a terminal

    >>> Budget(work=1e9, seconds=10.0).times(3e8, at_most=20)
    3
    """

    work: float = math.inf
    seconds: float = math.inf
    clock: Callable[[], float] = time.monotonic
    bars: bool | None = False

    def times(self, work_each: float, at_most: int) -> int:
        """How often something may be done that costs so much each time."""
        return at_most if work_each * at_most <= self.work else int(self.work / work_each)

    def started(self) -> Timer:
        """A timer that runs from now on."""
        return Timer(self, self.clock())


@dataclass(frozen=True)
class Timer:
    """The seconds of a budget since they began to count."""

    budget: Budget
    begin: float

    @property
    def elapsed(self) -> float:
        return self.budget.clock() - self.begin

    def is_over(self, needed: float = 0.0) -> bool:
        """Whether time is up, or would be if so many seconds more were needed."""
        return self.elapsed + needed > self.budget.seconds
