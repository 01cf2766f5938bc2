"""Opening a run for questions, the same way in every command that asks some."""

from __future__ import annotations

from pathlib import Path

import typer

from rgcn.cli.options import NewNodeOptions, OpeningOptions
from rgcn.errors import ConfigError
from rgcn.predict import OpenModel, open_model
from rgcn.predict.unseen import with_new_triples
from rgcn.words import count


def opened_run(run: Path, opening: OpeningOptions, new: NewNodeOptions | None = None, quiet: bool = True) -> OpenModel:
    """The run's model, over its own graph or, with new triples, over that and what they say of nodes it never saw."""
    triples, features = (None, None) if new is None else (new.new_triples, new.new_features)
    if features is not None and triples is None:
        raise ConfigError("--with-features goes with --with FILE, the new nodes' triples")
    opened = open_model(
        run,
        mirror=opening.mirror,
        device=opening.device or "auto",
        accept_changed_data=opening.accept_changed_data,
    )
    if triples is None:
        return opened
    larger = with_new_triples(opened, triples, features)
    if not quiet:  # a known node with a slip in its name is a new node: the number shows it
        names = ", ".join(larger.titles.of(node) for node in larger.new_nodes[:5])
        more = ", ..." if len(larger.new_nodes) > 5 else ""
        typer.echo(f"{count(len(larger.new_nodes), 'new node')}: {names}{more}", err=True)
    return larger
