"""`rgcn configs` and `rgcn config`: what a run's settings are, what they may be, and where two runs differ."""

import json
from typing import Any

import typer

from rgcn.cli.output import print_json
from rgcn.cli.study_commands import ConfigDiffCommand, ConfigSchemaCommand, ConfigsCommand, ConfigShowCommand
from rgcn.runs import configuration as settings


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
    if not found:
        typer.echo("no difference")
        return
    rows = [("", asked.a, asked.b), *((d.key, _shown(d.a, d.in_a), _shown(d.b, d.in_b)) for d in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    for key, left, right in rows:
        typer.echo(f"{key:<{widths[0]}}  {left:<{widths[1]}}  {right}")


def _shown(value: Any, there: bool) -> str:
    return json.dumps(value, ensure_ascii=False) if there and not isinstance(value, str) else value if there else "-"
