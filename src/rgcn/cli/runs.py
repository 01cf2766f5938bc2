"""`rgcn runs`: a table of every run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rgcn.cli.options import AsJson
from rgcn.cli.train import DEFAULT_FOLDER

if TYPE_CHECKING:
    from rgcn.runs.run_record import RunLine

COLORS = {"finished": "green", "running": "cyan", "failed": "red", "killed": "yellow"}


def list_runs(
    folder: Annotated[Path, typer.Argument(help="Folder to look in, and in the folders inside it.")] = DEFAULT_FOLDER,
    as_json: AsJson = False,
) -> None:
    """List runs: task, data, model, metric, how far, time, state. What is not finished can be resumed."""
    from rgcn.errors import DataError
    from rgcn.runs.run_record import list_runs as look

    if not folder.is_dir() and folder != DEFAULT_FOLDER:
        raise DataError(f"{folder}: there is no such folder")
    lines, complaints = look(folder)
    for complaint in complaints:
        typer.echo(f"rgcn: {complaint}", err=True)
    if as_json:
        typer.echo(json.dumps([line.as_dict() for line in lines]))
    elif lines:
        _print(lines)
    else:
        typer.echo(f"no runs in {folder}; `rgcn train rgcn/nc-world` makes one", err=True)


def _print(lines: list[RunLine]) -> None:
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from rgcn.tasks.task import task_of
    from rgcn.words import duration

    table = Table(box=SIMPLE)
    table.add_column("run", no_wrap=True)
    table.add_column("task")
    table.add_column("model, data, seed", overflow="fold")
    for name in ("metric", "epochs", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for line in lines:
        epochs = f"{line.epoch:,}" if line.epoch == line.epochs else f"{line.epoch:,} of {line.epochs:,}"
        table.add_row(
            escape(line.run),
            task_of(line.task).noun,
            escape(f"{line.model} on {line.dataset}, {line.seed}"),
            line.words(),
            epochs,
            "" if line.seconds is None else duration(line.seconds),
            f"[{COLORS.get(line.status, 'magenta')}]{line.status}[/]",
        )
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, 140)  # for a file or a pipe nothing needs to be folded
    console.print(table)
