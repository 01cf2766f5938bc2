"""How commands print: JSON, tables, and what they are busy with."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import typer
from rich.box import SIMPLE, Box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rgcn.graph import KnowledgeGraph
from rgcn.system.formatting import count, text_console
from rgcn.system.progress import ProgressMeter, progress

if TYPE_CHECKING:
    from rgcn.predict import OpenModel


def print_json(values: Any, **settings: Any) -> None:
    typer.echo(json.dumps(values, **settings))


def output(width: int = 0, least: int = 0) -> Console:
    """Standard output, at least `width` wide where it is no terminal; `least`: on one too, lest figures be cut off."""
    console = text_console(highlight=False)
    console.width = max(console.width, least, 0 if console.is_terminal else width)
    return console


def table(columns: Iterable[str], numbers: Iterable[str] = (), title: str | None = None, box: Box = SIMPLE) -> Table:
    """An empty table: columns of numbers stand to the right and are never folded, those of words are."""
    made, numbers = Table(title=title, title_justify="left", box=box), set(numbers)
    for name in columns:
        right = name in numbers
        made.add_column(name, justify="right" if right else "left", no_wrap=right, overflow="fold")
    return made


@contextmanager
def busy(words: str, quiet: bool, total: int | None = None) -> Iterator[Callable[[str], None]]:
    """Says what is being done, or has been of `total`: beside a bar on a terminal, in lines elsewhere; on stderr."""
    with progress(words, total, show=False if quiet else None) as meter:
        drawn = sys.stderr.isatty()

        def say(what: str) -> None:
            if not quiet and drawn:
                meter.describe(escape(what))
                meter.advance(0 if total is None else 1)
            elif not quiet:
                typer.echo(what, err=True)

        yield say


@contextmanager
def late_progress(
    words: str, unit: str, show: bool | None, forecast: Callable[[float, int], str] | None = None
) -> Iterator[Callable[..., None]]:
    """A bar that is drawn once `meter(done, total)` is first called: only then it is known how many there are.

    forecast  words, if any, to be said of the seconds that the rest will take, and how many were left at first: asked
              once, when a second has shown how fast it goes. The first part does not count: it may compile something
    """
    with ExitStack() as stack:
        meter: ProgressMeter | None = None
        marks: list[tuple[float, int]] = []

        def advance(done: int, total: int = 0) -> None:
            nonlocal meter, forecast
            if meter is None:
                meter = stack.enter_context(progress(words, total, unit, show=show))
            meter.advance(done - meter.done)
            if len(marks) < 2:
                marks.append((time.monotonic(), done))
            seconds, more = time.monotonic() - marks[-1][0], done - marks[-1][1]
            if forecast is not None and seconds >= 1 and more:
                meter.say(forecast((total - done) * seconds / more, total - marks[0][1]))
                forecast = None

        yield advance


def tell_opened(opened: OpenModel, quiet: bool) -> None:
    """Say on standard error that nobody trained the model that answers, and what was left out of its graph."""
    if opened.untrained is not None:
        report_skipped(opened.untrained)
        dropped = opened.untrained.metadata.get("missing_labels", 0)
        if dropped and opened.data is not None and opened.data.missing_labels == "drop":
            typer.echo(f"skipped {count(dropped, 'label')} of nodes that are not in the graph", err=True)
        if not quiet:
            typer.echo(opened.words, err=True)


def report_skipped(graph: KnowledgeGraph) -> None:
    """Say on standard error how many lines were left out while reading, and which the first ones were."""
    skipped = graph.metadata.get("skipped_lines", 0)
    if skipped:
        typer.echo(f"skipped {count(skipped, 'bad line')}:", err=True)
        for example in graph.metadata.get("skipped_examples", ()):
            typer.echo(f"  {example}", err=True)
