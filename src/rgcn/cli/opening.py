"""Opening a run for questions, the same way in every command that asks some."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rgcn.predict import OpenModel


def opened_run(
    run: Path,
    mirror: Path | None,
    device: str | None,
    accept_changed_data: bool,
    new_triples: Path | None = None,
    new_features: Path | None = None,
    quiet: bool = True,
) -> OpenModel:
    """The run's model, over its own graph or, with new triples, over that and what they say of nodes it never saw."""
    from rgcn.errors import ConfigError
    from rgcn.predict import open_model

    if new_features is not None and new_triples is None:
        raise ConfigError("--with-features goes with --with FILE, the new nodes' triples")
    opened = open_model(run, mirror=mirror, device=device or "auto", accept_changed_data=accept_changed_data)
    if new_triples is None:
        return opened
    from rgcn.predict.unseen import with_new_triples
    from rgcn.words import count

    larger = with_new_triples(opened, new_triples, new_features)
    if not quiet:  # a known node with a slip in its name is a new node: the number shows it
        names = ", ".join(larger.titles.of(node) for node in larger.new_nodes[:5])
        more = ", ..." if len(larger.new_nodes) > 5 else ""
        typer.echo(f"{count(len(larger.new_nodes), 'new node')}: {names}{more}", err=True)
    return larger
