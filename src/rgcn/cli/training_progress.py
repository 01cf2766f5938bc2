"""How far a training, or several with different seeds, has come: bars on a terminal, lines elsewhere; on stderr."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich import progress as bars

from rgcn.models.task import task_of
from rgcn.runs.series import SeriesListener, SeriesRow
from rgcn.system.formatting import duration, rough_duration, text_console
from rgcn.training.history import Epoch, Metric

LINES = 10
LONGEST_SILENCE_S = 60.0
TIMED, WORTH_TELLING_S = 3, 60.0  # steps after the first by which the time is planned; what takes less is not
SHORTEST_PAUSE_S = 0.05  # drawing more often than anyone can see would cost more than a step


class TrainingProgress:
    """What a training of `total` steps reports to: `step` after every step, `epoch` with figures there are to show.

    Each step is an epoch or a part of one; what is shown of them is the loss and this metric.
    """

    def __init__(self, total: int, metric: Metric, bar: bars.Progress | None = None, quiet: bool = False) -> None:
        self.total, self.metric, self.bar, self.quiet = total, metric, bar, quiet
        self.last: dict[str, float] = {}
        self.first: tuple[float, float] | None = None  # when this session began, and with which step
        self.said, self.said_at, self.words, self.steps = 0.0, 0.0, "", 0
        if bar is not None:
            self.task = bar.add_task("", total=total, speed="")

    def step(self, number: float) -> None:
        now = time.monotonic()
        if self.first is None:
            self.first, self.said_at = (now, number), now
            self.said = number - number % max(1, self.total // LINES)
            if self.bar is not None:
                # Without this the steps of earlier sessions would count as done in an instant, and no time be left.
                self.bar.update(self.task, completed=number)
                self.bar.reset(self.task, completed=int(number), total=self.total)
        self.steps += 1
        if self.steps == 1 + TIMED and not self.quiet:
            seconds = (now - self.first[0]) / (number - self.first[1]) * (self.total - self.first[1])
            if seconds > WORTH_TELLING_S:
                self._tell(f"Planned: {rough_duration(seconds)}, by the first steps")
        if now - self.said_at >= (LONGEST_SILENCE_S if self.bar is None else SHORTEST_PAUSE_S):
            self._say(number)

    def _tell(self, words: str) -> None:
        if self.bar is None:
            typer.echo(words, err=True)
        else:
            self.bar.console.print(words)

    def epoch(self, epoch: Epoch) -> None:
        """Figures there are to show; what is measured now and then is shown until it is measured again."""
        self.last |= epoch.figures
        self.words = f"loss {epoch.loss:.4f}"
        for split in ("train", "valid"):
            value = self.last.get(f"{split}_{self.metric.name}")
            self.words += "" if value is None else f"  {split} {self.metric.title} {self.metric.words(value)}"
        a_tenth = epoch.number - self.said >= self.total / LINES
        due = a_tenth if self.bar is None else time.monotonic() - self.said_at >= SHORTEST_PAUSE_S
        if due or epoch.number == self.total:
            self._say(epoch.number)

    def _say(self, number: float) -> None:
        self.said, self.said_at = number, time.monotonic()
        began, first = self.first or (self.said_at, number)
        steps, seconds = number - first, self.said_at - began
        speed = left = ""
        if steps and seconds > 0:
            speed = f"{steps / seconds:.1f}/s" if steps > seconds else f"{seconds / steps:.1f} s each"
            left = f"  {rough_duration((self.total - number) * seconds / steps)} left" if number < self.total else ""
        if self.bar is not None:
            self.bar.update(self.task, completed=number, description=self.words, speed=speed)
        elif not self.quiet:
            typer.echo(f"epoch {round(number, 2)}/{self.total}  {self.words}  {speed}{left}".rstrip(), err=True)


@contextmanager
def _drawn(quiet: bool, *columns: bars.ProgressColumn) -> Iterator[bars.Progress | None]:
    """Bars, where somebody sees them."""
    console = text_console(stderr=True)
    if quiet or not console.is_terminal:
        yield None
    else:
        with bars.Progress(*columns, console=console) as bar:
            yield bar


@contextmanager
def training_progress(total: int, quiet: bool, metric: Metric) -> Iterator[TrainingProgress]:
    words = (bars.TextColumn("{task.description}"), bars.TextColumn("{task.fields[speed]}"))
    columns = (bars.TextColumn("epoch"), bars.MofNCompleteColumn(), bars.BarColumn(), *words)
    with _drawn(quiet, *columns, bars.TimeRemainingColumn()) as bar:
        yield TrainingProgress(total, metric, bar, quiet)


class _Series(SeriesListener):
    """A line for each run, or a bar for each configuration, where what is under way counts by its epochs."""

    def __init__(self, bar: bars.Progress | None = None) -> None:
        self.bar = bar

    def begin(self, name: str, runs: int, epochs: int) -> None:
        self.name, self.runs, self.epochs, self.done = name, runs, epochs, 0
        self.under_way: dict[int, float] = {}
        if self.bar is not None:
            self.task = self.bar.add_task(name, total=runs, runs=f"0/{runs}")

    def epoch(self, seed: int, epoch: Any) -> None:
        self.under_way[seed] = epoch.number / self.epochs
        self._show()

    def ran(self, row: SeriesRow) -> None:
        self.under_way.pop(row.seed, None)
        self.done += 1
        if self.bar is None or row.outcome in ("failed", "reused"):
            self._say(f"{self.name} {self.done}/{self.runs}  {row_words(row)}")
        self._show()

    def absent(self, name: str, why: str) -> None:
        self._say(f"{name}: {why}")

    def _say(self, words: str) -> None:
        if self.bar is None:
            typer.echo(words, err=True)
        else:
            self.bar.console.print(words, markup=False, highlight=False)

    def _show(self) -> None:
        if self.bar is not None:
            completed = self.done + sum(self.under_way.values())
            self.bar.update(self.task, completed=completed, runs=f"{self.done}/{self.runs}")


@contextmanager
def series_progress(quiet: bool) -> Iterator[SeriesListener]:
    name, runs = bars.TextColumn("{task.description}", markup=False), bars.TextColumn("{task.fields[runs]}")
    with _drawn(quiet, name, bars.BarColumn(), runs, bars.TimeElapsedColumn()) as bar:
        yield SeriesListener() if quiet else _Series(bar)


def row_words(row: SeriesRow) -> str:
    """A seed and how it went, in a line.

    >>> from rgcn.runs.configuration import DEFAULT_TASK
    >>> result = {"task": DEFAULT_TASK, "metrics": {"test": {"accuracy": 0.9444}}, "seconds": 0.52}
    >>> row_words(SeriesRow(3, "reused", result))
    'seed 3: test accuracy 94.4 %, 520 ms (was there, not run again)'
    """
    if row.result is None:
        return f"seed {row.seed} failed: {row.error}"
    metric = task_of(row.result["task"]).headline
    found = {split: figures.get(metric.name) for split, figures in row.result["metrics"].items()}
    parts = [f"{split} {metric.title} {metric.words(one)}" for split, one in found.items() if one is not None]
    notes = {"reused": " (was there, not run again)", "continued": " (went on where it was cut off)"}
    return f"seed {row.seed}: {', '.join([*parts, duration(row.result['seconds'])])}{notes.get(row.outcome, '')}"
