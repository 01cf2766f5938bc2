"""`rgcn export`: a trained encoder for programs that do not have rgcn."""

from __future__ import annotations

import typer

from rgcn.cli.model_commands import ExportCommand
from rgcn.cli.printing import print_json, writing
from rgcn.errors import DataError
from rgcn.predict import open_model
from rgcn.tasks.export import save_encoder
from rgcn.words import memory


def export(asked: ExportCommand) -> None:
    out = asked.out
    if out.is_dir():
        raise DataError(f"{out} is a folder; --out takes the name of a file")
    opened = open_model(asked.run, mirror=asked.mirror, device="cpu", accept_changed_data=asked.accept_changed_data)
    with writing(out):
        about = save_encoder(opened.model, out)
    if asked.as_json:
        print_json({"encoder": str(out), **about})
    else:
        typer.echo(f"Written: {out} ({memory(out.stat().st_size)})")
        typer.echo(
            f"{about['nodes']:,} nodes; {about['output']}. Names are in its extra files: nodes.jsonl and others."
        )
