"""How far a training has come: a bar on a terminal, a line now and then elsewhere, all of it on standard error."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from rgcn.words import rough_duration

if TYPE_CHECKING:
    from rgcn.tasks.link_fitting import LinkEpoch
    from rgcn.tasks.node_training import Epoch

LINES = 10
LONGEST_SILENCE_S = 60.0
SHORTEST_PAUSE_S = 0.05


class TrainingProgress:
    """What a training reports to: `step` after every step, `epoch` with every report."""

    last_mrr: float | None = None

    def step(self, number: int) -> None:
        """So many steps are done."""

    def epoch(self, epoch: Epoch | LinkEpoch) -> None:
        """Figures there are to show."""


@contextmanager
def training_progress(total: int, quiet: bool) -> Iterator[TrainingProgress]:
    """`total` steps, each an epoch of node classification or a batch of link prediction."""
    from rich.console import Console

    console = Console(stderr=True)
    if quiet:
        yield TrainingProgress()
    elif not console.is_terminal:
        yield _Lines(total)
    else:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        speed = TextColumn("{task.fields[speed]}")
        columns = TextColumn("epoch"), MofNCompleteColumn(), BarColumn(), TextColumn("{task.description}"), speed
        with Progress(*columns, TimeRemainingColumn(), console=console) as bar:
            yield _Bar(bar, total)


class _Bar(TrainingProgress):
    def __init__(self, bar: Any, total: int) -> None:
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

    def epoch(self, epoch: Epoch | LinkEpoch) -> None:
        self.last_mrr = getattr(epoch, "valid_mrr", None) or self.last_mrr
        last = epoch.number == self.bar.tasks[0].total
        if last or time.monotonic() - self.described >= SHORTEST_PAUSE_S:
            self.described = time.monotonic()
            self.bar.update(self.task, completed=epoch.number, description=figures(epoch, self.last_mrr))


class _Lines(TrainingProgress):
    def __init__(self, total: int) -> None:
        self.total = total
        self.first: tuple[float, int] | None = None
        self.said, self.said_at = 0, time.monotonic()
        self.words = ""

    def step(self, number: int) -> None:
        now = time.monotonic()
        if self.first is None:
            self.first, self.said = (now, number), number - number % max(1, self.total // LINES)
        if now - self.said_at >= LONGEST_SILENCE_S:
            self._say(number)

    def epoch(self, epoch: Epoch | LinkEpoch) -> None:
        self.last_mrr = getattr(epoch, "valid_mrr", None) or self.last_mrr
        self.words = figures(epoch, self.last_mrr)
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


def figures(epoch: Epoch | LinkEpoch, last_mrr: float | None = None) -> str:
    """Loss and metric of a report, in short; an MRR is measured now and then, and the last one is shown until then."""
    from rgcn.tasks.node_training import Epoch

    words = f"loss {epoch.loss:.4f}"
    if isinstance(epoch, Epoch):
        words += f"  train {epoch.train_accuracy:6.1%}"
        return words if epoch.valid_accuracy is None else f"{words}  valid {epoch.valid_accuracy:6.1%}"
    mrr = last_mrr if epoch.valid_mrr is None else epoch.valid_mrr
    return words if mrr is None else f"{words}  valid MRR {mrr:.3f}"


def _speed(steps: int, seconds: float) -> str:
    if not steps or seconds <= 0:
        return ""
    return f"{steps / seconds:.1f}/s" if steps > seconds else f"{seconds / steps:.1f} s each"
