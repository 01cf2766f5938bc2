"""`rgcn config`: what a run's settings are, what they may be, and where two runs differ."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

app = typer.Typer(name="config", help="Look at configurations: show, compare, schema.", no_args_is_help=True)

NAME = "A shipped configuration (see `rgcn configs`), a YAML file, or the folder of a run."


@app.command("show")
def show(
    configuration: Annotated[str, typer.Argument(metavar="NAME", help=NAME)],
    changes: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting: training.epochs=100. May be repeated.")
    ] = None,
    defaults: Annotated[
        bool, typer.Option("--defaults/--changed", help="Every setting, or only what differs from its default.")
    ] = True,
    explain: Annotated[bool, typer.Option("--explain", help="Say above each setting what it is.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of YAML.")] = False,
) -> None:
    """Show a configuration as a run would use it: YAML that loads again. Every problem in it is said at once."""
    from rgcn.runs.configuration import changed_settings, dump_configuration, load_configuration

    config = load_configuration(configuration, changes or [])
    if as_json:
        values = config.model_dump(mode="json") if defaults else changed_settings(config)
        typer.echo(json.dumps(values, ensure_ascii=False))
        return
    typer.echo(dump_configuration(config, only_changed=not defaults, explain=explain), nl=False)


@app.command("schema")
def schema(
    task: Annotated[
        str | None, typer.Option(help="node-classification or link-prediction; without it, both, told apart by `task`.")
    ] = None,
) -> None:
    """Print the JSON Schema of a run, for editors that check and complete YAML while it is written.

    Keep it in a file: rgcn config schema > rgcn.schema.json

    Then begin configurations with: # yaml-language-server: $schema=rgcn.schema.json
    """
    from rgcn.runs.configuration import run_schema

    typer.echo(json.dumps(run_schema(task), indent=2, ensure_ascii=False))


@app.command("diff")
def diff(
    a: Annotated[str, typer.Argument(metavar="A", help=NAME)],
    b: Annotated[str, typer.Argument(metavar="B", help="The one to compare it with.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show the settings in which two configurations differ, side by side."""
    from rgcn.runs.configuration import differences, load_configuration

    found = differences(load_configuration(a), load_configuration(b))
    if as_json:
        sides = [
            {"key": side.key, **({"a": side.a} if side.in_a else {}), **({"b": side.b} if side.in_b else {})}
            for side in found
        ]
        typer.echo(json.dumps({"a": a, "b": b, "differences": sides}, ensure_ascii=False))
        return
    if not found:
        typer.echo("no difference")
        return
    rows = [("", a, b), *((d.key, _shown(d.a, d.in_a), _shown(d.b, d.in_b)) for d in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    for key, left, right in rows:
        typer.echo(f"{key:<{widths[0]}}  {left:<{widths[1]}}  {right}")


def _shown(value: Any, there: bool) -> str:
    return json.dumps(value, ensure_ascii=False) if there and not isinstance(value, str) else value if there else "-"
