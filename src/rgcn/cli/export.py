"""`rgcn export`: a trained encoder for programs that do not have rgcn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from rgcn.cli.options import AcceptChangedData, AsJson, Mirror, Run


def export(
    run: Run,
    out: Annotated[Path, typer.Option(help="File to write; its name ends in .pt2.")],
    mirror: Mirror = None,
    accept_changed_data: AcceptChangedData = False,
    as_json: AsJson = False,
) -> None:
    """Write the trained encoder as one file that PyTorch alone runs: node numbers in, logits or node vectors out."""
    from rgcn.errors import DataError
    from rgcn.predict import open_model
    from rgcn.tasks.export import save_encoder
    from rgcn.words import memory

    if out.is_dir():
        raise DataError(f"{out} is a folder; --out takes the name of a file")
    opened = open_model(run, mirror=mirror, device="cpu", accept_changed_data=accept_changed_data)
    try:
        about = save_encoder(opened.model, out)
    except OSError as error:
        raise DataError(f"cannot write {out}: {error.strerror or error}; choose another place with --out") from error
    if as_json:
        typer.echo(json.dumps({"encoder": str(out), **about}))
    else:
        typer.echo(f"Written: {out} ({memory(out.stat().st_size)})")
        typer.echo(
            f"{about['nodes']:,} nodes; {about['output']}. Names are in its extra files: nodes.jsonl and others."
        )
