"""`rgcn runs`: a table of every run."""

from __future__ import annotations

from dataclasses import asdict

import typer
from rich.markup import escape

from rgcn.cli.model_commands import RunsCommand
from rgcn.cli.options import RUNS
from rgcn.cli.printing import output, print_json, table
from rgcn.errors import DataError
from rgcn.runs import run_record
from rgcn.tasks.task import task_of
from rgcn.words import duration

COLORS = {"finished": "green", "running": "cyan", "failed": "red", "killed": "yellow"}


def list_runs(asked: RunsCommand) -> None:
    folder = asked.folder
    if not folder.is_dir() and folder != RUNS:
        raise DataError(f"{folder}: there is no such folder")
    lines, complaints = run_record.list_runs(folder)
    for complaint in complaints:
        typer.echo(f"rgcn: {complaint}", err=True)
    if asked.as_json:
        print_json([asdict(line) for line in lines])
    elif lines:
        _print(lines)
    else:
        typer.echo(f"no runs in {folder}; `rgcn train rgcn/nc-world` makes one", err=True)


def _print(lines: list[run_record.RunLine]) -> None:
    figures = ("metric", "epochs", "time")
    drawn = table(("run", "task", "model, data, seed", *figures, "state"), figures)
    for column in (drawn.columns[0], drawn.columns[-1]):
        column.no_wrap = True
    for line in lines:
        drawn.add_row(
            escape(line.run),
            task_of(line.task).noun,
            escape(f"{line.model} on {line.dataset}, {line.seed}"),
            line.words(),
            f"{line.epoch:,}" if line.epoch == line.epochs else f"{line.epoch:,} of {line.epochs:,}",
            "" if line.seconds is None else duration(line.seconds),
            f"[{COLORS.get(line.status, 'magenta')}]{line.status}[/]",
        )
    output(140).print(drawn)
