"""`rgcn report`, `rgcn card`, `rgcn compare`: a run as a page, its model in Markdown, and several runs side by side."""

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from rgcn.cli.model_commands import CardCommand, CompareCommand, ReportCommand
from rgcn.cli.output import late_progress, output, print_json
from rgcn.pages import Comparison, compare_runs, comparison_page, make_report, save_page
from rgcn.pages.charts import text_plot
from rgcn.pages.run_report import model_card
from rgcn.runs.folder import RunFolder
from rgcn.system.formatting import setting

COLORS = ("blue", "dark_orange", "green", "magenta", "bright_black", "yellow", "cyan", "red")
WIDEST_PLOT, PLOT_HEIGHT = 100, 12


def report(asked: ReportCommand) -> None:
    split, path = None if asked.split is None else asked.split.value, asked.out or asked.run / "report.html"
    with late_progress("ranking", "questions", asked.bars) as meter:
        made = make_report(asked.run, split, meter, asked.mirror)
    save_page(path, made.html)
    if asked.as_json:
        print_json({"report": str(path), **made.values})
    else:
        typer.echo(f"Written: {path}")


def card(asked: CardCommand) -> None:
    text = model_card(RunFolder(asked.run))
    if asked.out is None:
        typer.echo(text, nl=False)
    else:
        save_page(asked.out, text)
        typer.echo(f"Written: {asked.out}")


def compare(asked: CompareCommand) -> None:
    comparison = compare_runs(asked.runs)
    if asked.out is not None:
        save_page(asked.out, comparison_page(comparison))
    if asked.as_json:
        print_json({**({} if asked.out is None else {"page": str(asked.out)}), **comparison.as_dict()})
        return
    _print(output(), comparison)
    if asked.out is not None:
        typer.echo(f"Written: {asked.out}")


def _print(console: Console, comparison: Comparison) -> None:
    for number, entry in enumerate(comparison.entries):
        about = f"[dim]{escape(entry.first.title)}, {entry.state}[/]"
        console.print(f"[bold {_color(number)}]{entry.letter}[/]  {escape(entry.name)}  {about}")
    different = comparison.settings()
    if different:
        console.print("\n[bold]settings that differ[/]")
        table = _table(comparison)
        for name, values in different.items():
            there = zip(comparison.entries, values, strict=True)
            table.add_row(name, *(escape(setting(value)) if entry.knows(name) else "" for entry, value in there))
        console.print(table)
    else:
        console.print("\nAll settings are the same.")
    rows = comparison.figures()
    if rows:
        console.print("[bold]figures[/]" + (" (* best)" if any(row.best for row in rows) else ""))
        table = _table(comparison, right=True)
        for row in rows:
            cells = [f"[bold]{row.words(i)} *[/]" if i in row.best else row.words(i) for i in range(len(row.spreads))]
            table.add_row(f"{row.split} {row.metric.title}", *cells)
        console.print(table)
    else:
        console.print("\nNo run is finished yet: there are no figures.")
    _print_curves(console, comparison)
    for warning in comparison.warnings():
        console.print(f"[yellow]Note:[/] {escape(warning)}")


def _color(number: int | None) -> str:
    return "dim" if number is None else COLORS[number % len(COLORS)]


def _table(comparison: Comparison, right: bool = False) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("", no_wrap=True)
    for number, entry in enumerate(comparison.entries):
        name = f"[{_color(number)}]{entry.letter}[/]"
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    return table


def _print_curves(console: Console, comparison: Comparison) -> None:
    """One picture for each task: the measurement that matters most of those there are."""
    if not (console.encoding or "").lower().startswith("utf"):
        return  # no Braille where it cannot be written
    for task in comparison.tasks:
        for picture in comparison.pictures(task)[:1]:
            curves, width = list(picture.curves.items()), min(console.width, WIDEST_PLOT)
            console.print(f"[bold]{picture.title}[/] over epochs")
            for row in text_plot(curves, width=width, height=PLOT_HEIGHT, y_format=picture.panel.y_format):
                line = Text(no_wrap=True)
                for cell in row:
                    line.append(cell.text, _color(None if cell.series is None else curves[cell.series][1].color))
                console.print(line)
            console.print()
