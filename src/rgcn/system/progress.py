"""Progress bars for long tasks, and budgets that limit how much a task may cost."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


@dataclass
class ProgressMeter:
    """What a running task reports its progress to; without a bar it only counts.

    >>> meter = ProgressMeter()
    >>> meter.advance(3)
    >>> meter.done
    3.0
    """

    _bar: Progress | None = None
    _task: TaskID | None = None
    done: float = field(default=0.0, init=False)

    def advance(self, amount: float = 1.0) -> None:
        """Add to the amount of work that is done."""
        self.done += amount
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task, amount)

    def print_line(self, text: str) -> None:
        """Print a line on stderr, above the bar if there is one. An empty text prints nothing."""
        if text and self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
        elif text:
            print(text, file=sys.stderr)

    def set_description(self, description: str) -> None:
        """Change the text before the bar."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=description)


@contextmanager
def progress(
    description: str, total: float | None = None, unit: str = "", *, show: bool | None = None
) -> Iterator[ProgressMeter]:
    """Show a progress bar on stderr.

    Args:
        description: The text before the bar.
        total: The amount of work; None if it is not known.
        unit: What is counted; "bytes" are written as MB and MB/s.
        show: Whether to draw the bar; None draws it if stderr is a terminal.

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
    text, bar_column, _, time_left = rich_progress.Progress.get_default_columns()
    columns = (text, bar_column, *amount, time_left)
    with rich_progress.Progress(*columns, console=text_console(stderr=True), transient=True) as bar:
        yield ProgressMeter(bar, bar.add_task(description, total=total))


@dataclass(frozen=True)
class Budget:
    """Limits for work that can be repeated a few times or many.

    The number of repetitions follows from `work` alone, so that the same data give the same answer on every machine
    that is fast enough. `seconds` only stops machines that are slower or busy.

    Attributes:
        work: Multiply-adds. Two ordinary cores do about 3e10 a second.
        seconds: Upper bound for the time.
        clock: Returns the time in seconds.
        show_progress: Whether to draw a progress bar; None draws it if stderr is a terminal.

    >>> Budget(work=1e9, seconds=10.0).max_repetitions(3e8, at_most=20)
    3
    """

    work: float = math.inf
    seconds: float = math.inf
    clock: Callable[[], float] = time.monotonic
    show_progress: bool | None = False

    def max_repetitions(self, work_each: float, at_most: int) -> int:
        """Return how often something that costs `work_each` may be done."""
        return at_most if work_each * at_most <= self.work else int(self.work / work_each)

    def start_timer(self) -> Timer:
        """Return a timer that starts now."""
        return Timer(self, self.clock())


@dataclass(frozen=True)
class Timer:
    """Measures the seconds of a budget that have passed since `start`."""

    budget: Budget
    start: float

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return self.budget.clock() - self.start

    def is_over(self, needed: float = 0.0) -> bool:
        """Return whether the time is up, or would be after `needed` more seconds."""
        return self.elapsed + needed > self.budget.seconds
