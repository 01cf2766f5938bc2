"""`rgcn report`: a run as one page that opens anywhere."""

from __future__ import annotations

import json
from contextlib import ExitStack
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from rgcn.cli.options import Quiet


class HeldOut(str, Enum):
    """Splits a model may be measured on."""

    test = "test"
    valid = "valid"


def report(
    run: Annotated[Path, typer.Argument(help="Folder of a run, finished or not.")],
    out: Annotated[Path | None, typer.Option(help="File to write; by default RUN/report.html.")] = None,
    split: Annotated[
        HeldOut | None,
        typer.Option(help="What to measure on; by default test where there is one. An unfinished run: valid."),
    ] = None,
    mirror: Annotated[
        Path | None, typer.Option(help="Folder to take the data set of an unfinished run from (else RGCN_MIRROR).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was measured as one JSON object.")] = False,
    quiet: Quiet = False,
) -> None:
    """Write a report of a run: curves, mistakes, predictions by name, settings. One HTML file, nothing loaded."""
    from rgcn.pages import write_report
    from rgcn.progress import progress

    with ExitStack() as stack:
        meter, done = None, 0

        def advance(now: int, total: int) -> None:
            nonlocal meter, done
            if meter is None:  # how many there are is known once the model is loaded
                meter = stack.enter_context(progress("ranking", total, "questions", show=False if quiet else None))
            meter.advance(now - done)
            done = now

        path, made = write_report(run, out, None if split is None else split.value, advance, mirror)
    if as_json:
        typer.echo(json.dumps({"report": str(path), **made.values}))
    else:
        typer.echo(f"Written: {path}")
