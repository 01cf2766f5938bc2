"""How far trainings with several seeds are: bars on a terminal, a line for each run elsewhere; on standard error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from rgcn.runs.series import SeriesListener, SeriesRow
from rgcn.tasks.task import task_of
from rgcn.words import duration

if TYPE_CHECKING:
    from rich.progress import Progress


@contextmanager
def series_progress(quiet: bool) -> Iterator[SeriesListener]:
    """What hears of the runs: after `begin`, give it to `run_series`."""
    from rich.console import Console

    console = Console(stderr=True)
    if quiet:
        yield SeriesListener()
    elif not console.is_terminal:
        yield _Lines()
    else:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[runs]}")
        with Progress(*columns, TimeElapsedColumn(), console=console) as bar:
            yield _Bars(bar)


class _Lines(SeriesListener):
    def begin(self, name: str, runs: int, epochs: int) -> None:
        self.name, self.runs, self.done = name, runs, 0

    def ran(self, row: SeriesRow) -> None:
        self.done += 1
        typer.echo(f"{self.name} {self.done}/{self.runs}  {words(row)}", err=True)

    def absent(self, name: str, why: str) -> None:
        typer.echo(f"{name}: {why}", err=True)


class _Bars(SeriesListener):
    """A bar for each configuration; what is under way counts by its epochs."""

    def __init__(self, bar: Progress) -> None:
        self.bar = bar

    def begin(self, name: str, runs: int, epochs: int) -> None:
        self.name, self.runs, self.epochs, self.done = name, runs, epochs, 0
        self.under_way: dict[int, float] = {}
        self.task = self.bar.add_task(name, total=runs, runs=f"0/{runs}")

    def epoch(self, seed: int, epoch: Any) -> None:
        self.under_way[seed] = epoch.number / self.epochs
        self._show()

    def ran(self, row: SeriesRow) -> None:
        self.under_way.pop(row.seed, None)
        self.done += 1
        if row.outcome in ("failed", "reused"):
            self._say(f"{self.name}  {words(row)}")
        self._show()

    def absent(self, name: str, why: str) -> None:
        self._say(f"{name}: {why}")

    def _say(self, text: str) -> None:
        self.bar.console.print(text, markup=False, highlight=False)

    def _show(self) -> None:
        completed = self.done + sum(self.under_way.values())
        self.bar.update(self.task, completed=completed, runs=f"{self.done}/{self.runs}")


def words(row: SeriesRow) -> str:
    """A seed and how it went, in a line.

    >>> from rgcn.runs.configuration import DEFAULT_TASK
    >>> result = {"task": DEFAULT_TASK, "metrics": {"test": {"accuracy": 0.9444}}, "seconds": 0.52}
    >>> words(SeriesRow(3, "reused", result))
    'seed 3: test accuracy 94.4 %, 520 ms (was there, not run again)'
    """
    if row.result is None:
        return f"seed {row.seed} failed: {row.error}"
    metric = task_of(row.result["task"]).headline
    found = {split: figures.get(metric.name) for split, figures in row.result["metrics"].items()}
    parts = [f"{split} {metric.title} {metric.words(one)}" for split, one in found.items() if one is not None]
    notes = {"reused": " (was there, not run again)", "continued": " (went on where it was cut off)"}
    parts.append(duration(row.result["seconds"]))
    return f"seed {row.seed}: {', '.join(parts)}{notes.get(row.outcome, '')}"
