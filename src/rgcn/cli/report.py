"""`rgcn report` and `rgcn card`: a run as one page that opens anywhere, its model in Markdown to pass on with it."""

from __future__ import annotations

from contextlib import ExitStack

import typer

from rgcn.cli.model_commands import CardCommand, ReportCommand
from rgcn.cli.printing import print_json
from rgcn.pages import save_page, write_report
from rgcn.pages.model_card import model_card
from rgcn.progress import ProgressMeter, progress
from rgcn.runs.folder import RunFolder


def report(asked: ReportCommand) -> None:
    with ExitStack() as stack:
        meter: ProgressMeter | None = None

        def advance(done: int, total: int) -> None:
            nonlocal meter
            if meter is None:  # how many there are is known once the model is loaded
                bars = False if asked.quiet else None
                meter = stack.enter_context(progress("ranking", total, "questions", show=bars))
            meter.advance(done - meter.done)

        split = None if asked.split is None else asked.split.value
        path, made = write_report(asked.run, asked.out, split, advance, asked.mirror)
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
