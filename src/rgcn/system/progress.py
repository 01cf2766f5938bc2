"""One small way to say how far a long task has come."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
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

    from rgcn.system.terminal import text_console

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
