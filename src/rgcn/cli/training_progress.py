"""How far a training has come: a bar on a terminal, a line now and then elsewhere, all of it on standard error."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from rgcn.words import rough_duration

if TYPE_CHECKING:
    from rgcn.tasks.task import Epoch, Metric

LINES = 10
LONGEST_SILENCE_S = 60.0
SHORTEST_PAUSE_S = 0.05


class TrainingProgress:
    """What a training reports to: `step` after every step, `epoch` with every report."""

    def step(self, number: int) -> None:
        """So many steps are done."""

    def epoch(self, epoch: Epoch) -> None:
        """Figures there are to show."""


@contextmanager
def training_progress(total: int, quiet: bool, metric: Metric) -> Iterator[TrainingProgress]:
    """`total` steps, each an epoch or a batch; what is shown of them is the loss and this figure."""
    from rich.console import Console

    console = Console(stderr=True)
    if quiet:
        yield TrainingProgress()
    elif not console.is_terminal:
        yield _Lines(total, Figures(metric))
    else:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        speed = TextColumn("{task.fields[speed]}")
        columns = TextColumn("epoch"), MofNCompleteColumn(), BarColumn(), TextColumn("{task.description}"), speed
        with Progress(*columns, TimeRemainingColumn(), console=console) as bar:
            yield _Bar(bar, total, Figures(metric))


class Figures:
    """Loss and metric of a training, in short; what is measured now and then is shown until it is measured again."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.last: dict[str, float] = {}

    def words(self, epoch: Epoch) -> str:
        self.last |= epoch.figures
        words = f"loss {epoch.loss:.4f}"
        for split in ("train", "valid"):
            value = self.last.get(f"{split}_{self.metric.name}")
            words += "" if value is None else f"  {split} {self.metric.title} {self.metric.words(value)}"
        return words


class _Bar(TrainingProgress):
    def __init__(self, bar: Any, total: int, figures: Figures) -> None:
        self.figures = figures
        self.bar, self.task = bar, bar.add_task("", total=total, speed="")
        self.first: tuple[float, int] | None = None
        self.shown = self.described = 0.0

    def step(self, number: int) -> None:
        now = time.monotonic()
        if self.first is None:
            self.first = now, number
            # Without this the steps of earlier sessions would count as done in an instant, and no time be left.
            self.bar.update(self.task, completed=number)
            self.bar.reset(self.task, completed=number, total=self.bar.tasks[0].total)
        if now - self.shown < SHORTEST_PAUSE_S:  # drawing more often than anyone can see would cost more than a step
            return
        self.shown = now
        self.bar.update(self.task, completed=number, speed=_speed(number - self.first[1], now - self.first[0]))

    def epoch(self, epoch: Epoch) -> None:
        words = self.figures.words(epoch)
        last = epoch.number == self.bar.tasks[0].total
        if last or time.monotonic() - self.described >= SHORTEST_PAUSE_S:
            self.described = time.monotonic()
            self.bar.update(self.task, completed=epoch.number, description=words)


class _Lines(TrainingProgress):
    def __init__(self, total: int, figures: Figures) -> None:
        self.total, self.figures = total, figures
        self.first: tuple[float, int] | None = None
        self.said, self.said_at = 0, time.monotonic()
        self.words = ""

    def step(self, number: int) -> None:
        now = time.monotonic()
        if self.first is None:
            self.first, self.said = (now, number), number - number % max(1, self.total // LINES)
        if now - self.said_at >= LONGEST_SILENCE_S:
            self._say(number)

    def epoch(self, epoch: Epoch) -> None:
        self.words = self.figures.words(epoch)
        if epoch.number - self.said >= self.total / LINES or epoch.number == self.total:
            self._say(epoch.number)

    def _say(self, number: int) -> None:
        now = time.monotonic()
        self.said, self.said_at = number, now
        done, seconds = (0, 0.0) if self.first is None else (number - self.first[1], now - self.first[0])
        left = (
            f"  {rough_duration((self.total - number) * seconds / done)} left" if done and number < self.total else ""
        )
        typer.echo(f"epoch {number}/{self.total}  {self.words}  {_speed(done, seconds)}{left}".rstrip(), err=True)


def _speed(steps: int, seconds: float) -> str:
    if not steps or seconds <= 0:
        return ""
    return f"{steps / seconds:.1f}/s" if steps > seconds else f"{seconds / steps:.1f} s each"
