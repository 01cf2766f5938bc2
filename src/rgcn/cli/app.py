"""The commands and their order in `rgcn --help`."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from rgcn.cli import (
    bench,
    card,
    compare,
    complete,
    config,
    data,
    embed,
    explain,
    export,
    predict,
    report,
    reproduce,
    resume,
    runs,
    serve,
    train,
    tune,
)
from rgcn.cli.options import Allow
from rgcn.version import __version__


class _Commands(TyperGroup):
    """Commands that share `--allow`: whoever is told to add it adds it at the end of the line."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        allowed: list[str] = []
        rest: list[str] = []
        words = iter(args)
        for word in words:
            if word == "--":  # what follows are no options
                rest += [word, *words]
            elif word == "--allow":
                allowed += [word, *islice(words, 1)]
            else:
                (allowed if word.startswith("--allow=") else rest).append(word)
        return super().parse_args(ctx, [*allowed, *rest])


app = typer.Typer(
    name="rgcn",
    cls=_Commands,
    help="Learn from a knowledge graph with relational graph convolutional networks.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rgcn {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
    allow: Allow = None,
) -> None:
    """Learn from a knowledge graph with relational graph convolutional networks."""
    if allow:
        from rgcn import axes

        axes.allow(*allow)


app.command("train")(train.train)
app.command("resume")(resume.resume)
app.command("evaluate")(resume.evaluate)
app.command("runs")(runs.list_runs)
app.command("report")(report.report)
app.command("compare")(compare.compare)
app.command("predict")(predict.predict)
app.command("complete")(complete.complete)
app.command("explain")(explain.explain)
app.command("embed")(embed.embed)
app.command("serve")(serve.serve)
app.command("card")(card.card)
app.command("export")(export.export)
app.command("tune")(tune.tune)
app.command("configs")(train.list_configurations)
app.add_typer(config.app, name="config")
app.command("bench")(bench.bench)
app.add_typer(reproduce.app, name="reproduce")
app.add_typer(data.app, name="data")
