"""`rgcn compare`: runs side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rgcn.cli.options import AsJson

if TYPE_CHECKING:
    from rich.console import Console

    from rgcn.pages.run_comparison import Comparison

COLORS = ("blue", "dark_orange", "green", "magenta", "bright_black", "yellow", "cyan", "red")
WIDEST_PLOT, PLOT_HEIGHT = 100, 12


def compare(
    runs: Annotated[
        list[Path], typer.Argument(help="Folders of runs, or of series (FOLDER/seed-0/, FOLDER/seed-1/, ...).")
    ],
    out: Annotated[Path | None, typer.Option(help="Also write the comparison as one HTML file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare runs: settings that differ, figures side by side, curves. A series counts as mean ± standard error."""
    from rgcn.pages.layout import save_page
    from rgcn.pages.run_comparison import compare_runs, comparison_page

    comparison = compare_runs(runs)
    if out is not None:
        save_page(out, comparison_page(comparison))
    if as_json:
        values = comparison.as_dict()
        typer.echo(json.dumps(values if out is None else {"page": str(out), **values}))
        return
    _print(comparison)
    if out is not None:
        typer.echo(f"Written: {out}")


def _print(comparison: Comparison) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False)
    for number, entry in enumerate(comparison.entries):
        color = COLORS[number % len(COLORS)]
        console.print(
            f"[bold {color}]{entry.letter}[/]  {escape(entry.name)}  [dim]{escape(entry.first.title)}, {entry.state}[/]"
        )
    _print_settings(console, comparison)
    _print_figures(console, comparison)
    _print_curves(console, comparison)
    for warning in comparison.warnings():
        console.print(f"[yellow]Note:[/] {escape(warning)}")


def _print_settings(console: Console, comparison: Comparison) -> None:
    from rich.markup import escape

    from rgcn.words import setting

    different = comparison.settings()
    if not different:
        console.print("\nAll settings are the same.")
        return
    console.print("\n[bold]settings that differ[/]")
    table = _table(comparison)
    for name, values in different.items():
        there = [entry.knows(name) for entry in comparison.entries]
        table.add_row(name, *(escape(setting(v)) if known else "" for known, v in zip(there, values, strict=True)))
    console.print(table)


def _print_figures(console: Console, comparison: Comparison) -> None:
    rows = comparison.figures()
    if not rows:
        console.print("\nNo run is finished yet: there are no figures.")
        return
    console.print("[bold]figures[/]" + (" (* best)" if any(row.best for row in rows) else ""))
    table = _table(comparison, justify="right")
    for row in rows:
        cells = [f"[bold]{row.words(i)} *[/]" if i in row.best else row.words(i) for i in range(len(row.spreads))]
        table.add_row(f"{row.split} {row.metric.title}", *cells)
    console.print(table)


def _table(comparison: Comparison, justify: Any = "left") -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", no_wrap=True)
    for number, entry in enumerate(comparison.entries):
        color = COLORS[number % len(COLORS)]
        table.add_column(f"[{color}]{entry.letter}[/]", justify=justify, overflow="fold")
    return table


def _print_curves(console: Console, comparison: Comparison) -> None:
    """One picture for each task: the measurement that matters most of those there are."""
    from rich.text import Text

    from rgcn.pages.text_plot import text_plot

    if not (console.encoding or "").lower().startswith("utf"):
        return  # no Braille where it cannot be written
    for task in comparison.tasks:
        for picture in comparison.pictures(task)[:1]:
            curves = list(picture.curves.items())
            rows = text_plot(
                curves,
                width=min(console.width, WIDEST_PLOT),
                height=PLOT_HEIGHT,
                y_format=picture.panel.y_format,
            )
            console.print(f"[bold]{picture.title}[/] over epochs")
            for row in rows:
                line = Text(no_wrap=True)
                for cell in row:
                    color = None if cell.series is None else curves[cell.series][1].color
                    line.append(cell.text, "dim" if color is None else COLORS[color % len(COLORS)])
                console.print(line)
            console.print()
