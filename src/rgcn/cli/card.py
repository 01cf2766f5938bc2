"""`rgcn card`: what a run's model is, in Markdown, to pass on with it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rgcn.cli.options import Run


def card(
    run: Run,
    out: Annotated[
        Path | None, typer.Option(help="File to write, such as MODEL_CARD.md; by default it is printed.")
    ] = None,
) -> None:
    """Write a model card: what the model is and cannot do, its data, training and figures, with the limits of both."""
    from rgcn.pages.model_card import model_card
    from rgcn.runs.folder import RunFolder

    text = model_card(RunFolder(run))
    if out is None:
        typer.echo(text, nl=False)
        return
    from rgcn.pages.layout import save_page

    save_page(out, text)
    typer.echo(f"Written: {out}")
