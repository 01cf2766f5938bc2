"""What commands that ask a model share: opening its run, and its answers in a file or in tables on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import typer
from rich.markup import escape
from rich.table import Table

from rgcn.answers.calibration import Calibration
from rgcn.answers.links import ScoredTriples
from rgcn.cli.model_commands import AskingOptions
from rgcn.cli.printing import output, table
from rgcn.errors import ConfigError
from rgcn.graph.titles import local_name
from rgcn.predict import OpenModel, open_model
from rgcn.predict.answer_tables import format_of, link_frames, link_triples, write_lines, write_table
from rgcn.predict.unseen import with_new_triples
from rgcn.words import count

MOST_ROWS = 20


def opened_run(run: Path, asked: AskingOptions, quiet: bool = True) -> OpenModel:
    """The run's model, over its own graph or, with new triples, over that and what they say of nodes it never saw."""
    if asked.new_features is not None and asked.new_triples is None:
        raise ConfigError("--with-features goes with --with FILE, the new nodes' triples")
    opened = open_model(run, **asked.opening())
    if asked.new_triples is None:
        return opened
    larger = with_new_triples(opened, asked.new_triples, asked.new_features)
    if not quiet:  # a known node with a slip in its name is a new node: the number shows it
        names = ", ".join(larger.titles.of(node) for node in larger.new_nodes[:5])
        more = ", ..." if len(larger.new_nodes) > 5 else ""
        typer.echo(f"{count(len(larger.new_nodes), 'new node')}: {names}{more}", err=True)
    return larger


def write_links(opened: OpenModel, found: Iterable[ScoredTriples], out: Path) -> int:
    """How many triples were written."""
    if format_of(out) == "nt":
        return write_lines(out, (line for rows in found for line in link_triples(opened, rows)))
    return write_table(out, (frame for rows in found for frame in link_frames(opened, rows)))


def link_rows(opened: OpenModel, found: Iterable[ScoredTriples]) -> list[dict[str, Any]]:
    """The triples as they are printed and told in JSON."""
    return [row for rows in found for frame in link_frames(opened, rows) for row in frame.to_dicts()]


def print_classes(opened: OpenModel, rows: list[dict[str, Any]]) -> None:
    """The first nodes with their classes, and what the probabilities mean."""
    titles = {name: opened.titles.class_(number) for number, name in enumerate(opened.model.classes_)}
    sure = _sure(opened.calibration)
    drawn = table(("node", "class", *sure, "known label"), sure)
    for row in rows[:MOST_ROWS]:
        label = "" if row["label"] is None else f"{titles[row['label']]} ({row['label_split']})"
        cells = (_named(row["title"], row["node"]), row["class_title"], *_numbers(row, sure), label)
        drawn.add_row(*map(escape, cells))
    _show(drawn, opened.calibration, len(rows), MOST_ROWS, "prediction")


def print_links(rows: list[dict[str, Any]], found: int, calibration: Calibration) -> None:
    """The first of the triples that were found."""
    sure = _sure(calibration)
    drawn = table(("subject", "relation", "object", *sure, ""), sure)
    for row in rows:
        subject, object_ = (_named(row[f"{end}_title"], row[end]) for end in ("subject", "object"))
        known = "known" if row["known"] else ""
        drawn.add_row(*map(escape, (subject, row["relation_title"], object_, *_numbers(row, sure), known)))
    _show(drawn, calibration, found, len(rows), "answer")


def _show(drawn: Table, calibration: Calibration, found: int, shown: int, what: str) -> None:
    console = output(160)
    console.print(drawn if found else f"No {what} is left.")
    if found > shown:
        console.print(f"and {count(found - shown, what).replace(' ', ' more ', 1)}; --out FILE writes them all")
    console.print(escape(f"{calibration.words} {calibration.meaning}"), soft_wrap=True)


def _named(title: str, name: str) -> str:
    """The title, and the name where it says more: not for an IRI that ends in the title."""
    return title if title in (name, local_name(name)) or name.startswith('"') else f"{title} ({local_name(name)})"


def _sure(calibration: Calibration) -> tuple[str, ...]:
    return ("probability", "score") if calibration.fitted else ("score",)


def _numbers(row: dict[str, Any], names: tuple[str, ...]) -> Iterator[str]:
    """How sure the model is: a score is any number, a probability a share."""
    for name in names:
        value = row[name]
        plain = name == "probability" and (value >= 0.01 or value == 0)
        yield f"{value:.2f}" if plain else f"{value:.1g}" if name == "probability" else f"{value:.3g}"
