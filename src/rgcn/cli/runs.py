"""`rgcn runs`, `rgcn configs` and `rgcn config`: which runs there are, their settings, and where two of them differ."""

import json
from dataclasses import asdict
from typing import Any

import typer
from rich.text import Text

from rgcn.cli.commands import RUNS
from rgcn.cli.model_commands import RunsCommand
from rgcn.cli.output import print_json, table, tell
from rgcn.cli.study_commands import ConfigDiffCommand, ConfigSchemaCommand, ConfigsCommand, ConfigShowCommand
from rgcn.errors import DataError
from rgcn.models.task import task_of
from rgcn.runs import configuration as settings
from rgcn.runs import run_record
from rgcn.system.formatting import duration

COLORS = {"finished": "green", "running": "cyan", "failed": "red", "killed": "yellow"}


def list_runs(asked: RunsCommand) -> None:
    folder = asked.folder
    if not folder.is_dir() and folder != RUNS:
        raise DataError(f"{folder}: there is no such folder")
    lines, complaints = run_record.list_runs(folder)
    for complaint in complaints:
        typer.echo(f"rgcn: {complaint}", err=True)
    if not lines and not asked.as_json:
        typer.echo(f"no runs in {folder}; `rgcn train rgcn/nc-world` makes one", err=True)
        return
    rows = [
        (
            line.run,
            task_of(line.task).noun,
            f"{line.model} on {line.dataset}, {line.seed}",
            line.words(),
            f"{line.epoch:,}" if line.epoch == line.epochs else f"{line.epoch:,} of {line.epochs:,}",
            "" if line.seconds is None else duration(line.seconds),
            Text(line.status, COLORS.get(line.status, "magenta")),
        )
        for line in lines
    ]
    numbers = ("metric", "epochs", "time")
    drawn = table(("run", "task", "model, data, seed", *numbers, "state"), rows, numbers)
    drawn.columns[0].no_wrap = drawn.columns[-1].no_wrap = True
    tell(asked.as_json, [asdict(line) for line in lines], drawn, width=140)


def list_configurations(asked: ConfigsCommand) -> None:
    for name, path in settings.shipped_configurations().items():
        first = path.read_text(encoding="utf-8").split("\n", 1)[0].lstrip("# ")
        typer.echo(f"{name:<22} {first}")


def show(asked: ConfigShowCommand) -> None:
    config = settings.load_configuration(asked.configuration, asked.changes or [])
    if asked.as_json:
        values = config.model_dump(mode="json") if asked.defaults else settings.changed_settings(config)
        print_json(values, ensure_ascii=False)
        return
    typer.echo(settings.dump_configuration(config, only_changed=not asked.defaults, explain=asked.explain), nl=False)


def schema(asked: ConfigSchemaCommand) -> None:
    print_json(settings.run_schema(asked.task), indent=2, ensure_ascii=False)


def diff(asked: ConfigDiffCommand) -> None:
    found = settings.differences(settings.load_configuration(asked.a), settings.load_configuration(asked.b))
    if asked.as_json:
        sides = [
            {"key": side.key, **({"a": side.a} if side.in_a else {}), **({"b": side.b} if side.in_b else {})}
            for side in found
        ]
        print_json({"a": asked.a, "b": asked.b, "differences": sides}, ensure_ascii=False)
        return
    rows = [("", asked.a, asked.b), *((d.key, _shown(d.a, d.in_a), _shown(d.b, d.in_b)) for d in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    for key, left, right in rows if found else []:
        typer.echo(f"{key:<{widths[0]}}  {left:<{widths[1]}}  {right}")
    if not found:
        typer.echo("no difference")


def _shown(value: Any, there: bool) -> str:
    return json.dumps(value, ensure_ascii=False) if there and not isinstance(value, str) else value if there else "-"
