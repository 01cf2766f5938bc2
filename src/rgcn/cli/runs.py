"""`rgcn runs`, `rgcn configs` and `rgcn config`: lists of runs, and configurations."""

import json
from dataclasses import asdict
from typing import Any

import typer
from rich.text import Text

from rgcn.cli.commands import RUNS
from rgcn.cli.options import ConfigsOptions, DiffOptions, RunsOptions, SchemaOptions, ShowOptions
from rgcn.cli.output import print_json, print_result, table
from rgcn.errors import DataError
from rgcn.models.task import task_of
from rgcn.runs import configuration as settings
from rgcn.runs import run_record
from rgcn.system.formatting import format_count, format_duration

STATUS_COLORS = {"finished": "green", "running": "cyan", "failed": "red", "killed": "yellow"}


def print_runs(options: RunsOptions) -> None:
    """Print the runs in a folder."""
    folder = options.folder
    if not folder.is_dir() and folder != RUNS:
        raise DataError(f"{folder}: there is no such folder")
    summaries, problems = run_record.list_runs(folder)
    for problem in problems:
        typer.echo(f"rgcn: {problem}", err=True)
    if not summaries and not options.as_json:
        typer.echo(f"no runs in {folder}; `rgcn train rgcn/nc-world` makes one", err=True)
        return
    rows = [
        (
            run.run,
            task_of(run.task).noun,
            f"{run.model} on {run.dataset}, {run.seed}",
            run.metric_text(),
            ("" if run.reached == run.length else f"{run.reached:,} of ") + format_count(run.length, run.unit),
            "" if run.seconds is None else format_duration(run.seconds),
            Text(run.status, STATUS_COLORS.get(run.status, "magenta")),
        )
        for run in summaries
    ]
    numbers = ("metric", "length", "time")
    result = table(("run", "task", "model, data, seed", *numbers, "state"), rows, numbers)
    result.columns[0].no_wrap = result.columns[-1].no_wrap = True
    print_result(options.as_json, list(map(asdict, summaries)), result, width=140)


def print_configurations(options: ConfigsOptions) -> None:
    """Print the built-in configurations with their first comments."""
    for name, path in settings.builtin_configurations().items():
        first_line = path.read_text(encoding="utf-8").split("\n", 1)[0].lstrip("# ")
        typer.echo(f"{name:<22} {first_line}")


def print_configuration(options: ShowOptions) -> None:
    """Print a configuration as YAML or JSON."""
    config, has_all = settings.load_configuration(options.configuration, options.changes or []), options.defaults
    if options.as_json:
        values = config.model_dump(mode="json") if has_all else settings.non_default_settings(config)
        print_json(values, ensure_ascii=False)
    else:
        typer.echo(settings.dump_configuration(config, only_changed=not has_all, explain=options.explain), nl=False)


def print_schema(options: SchemaOptions) -> None:
    """Print the JSON Schema of configurations."""
    print_json(settings.run_schema(options.task), indent=2, ensure_ascii=False)


def print_differences(options: DiffOptions) -> None:
    """Print the different settings of two configurations side by side."""
    a, b = options.a, options.b
    differences = settings.differences(settings.load_configuration(a), settings.load_configuration(b))
    if options.as_json:
        rows = [
            {"key": d.key, **({"a": d.a} if d.is_in_a else {}), **({"b": d.b} if d.is_in_b else {})}
            for d in differences
        ]
        print_json({"a": a, "b": b, "differences": rows}, ensure_ascii=False)
        return
    lines = [("", a, b), *((d.key, _format_value(d.a, d.is_in_a), _format_value(d.b, d.is_in_b)) for d in differences)]
    widths = [max(len(line[column]) for line in lines) for column in range(2)]
    for key, left, right in lines if differences else []:
        typer.echo(f"{key:<{widths[0]}}  {left:<{widths[1]}}  {right}")
    if not differences:
        typer.echo("no difference")


def _format_value(value: Any, exists: bool) -> str:
    if not exists:
        return "-"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
