"""Predictions as tables on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rgcn.words import count

if TYPE_CHECKING:
    from rgcn.answers.calibration import Calibration
    from rgcn.predict import OpenModel

MOST_ROWS = 20


def print_classes(opened: OpenModel, rows: list[dict[str, Any]]) -> None:
    """The first nodes with their classes, and what the probabilities mean."""

    titles = {name: opened.titles.class_(number) for number, name in enumerate(opened.model.classes_)}
    sure = ("probability", "score") if opened.calibration.fitted else ("score",)
    table = _table("node", "class", *sure, "known label", numbers=sure)
    for row in rows[:MOST_ROWS]:
        label = "" if row["label"] is None else f"{titles[row['label']]} ({row['label_split']})"
        cells = (_named(row["title"], row["node"]), row["class_title"], *_numbers(row, sure), label)
        table.add_row(*map(escape, cells))
    _show(table, opened.calibration, len(rows), MOST_ROWS, "prediction")


def print_links(rows: list[dict[str, Any]], found: int, calibration: Calibration) -> None:
    """The first of the triples that were found."""
    sure = ("probability", "score") if calibration.fitted else ("score",)
    table = _table("subject", "relation", "object", *sure, "", numbers=sure)
    for row in rows:
        cells = (
            _named(row["subject_title"], row["subject"]),
            row["relation_title"],
            _named(row["object_title"], row["object"]),
            *_numbers(row, sure),
            "known" if row["known"] else "",
        )
        table.add_row(*map(escape, cells))
    _show(table, calibration, found, len(rows), "answer")


def _table(*columns: str, numbers: tuple[str, ...]) -> Table:
    table = Table(box=SIMPLE)
    for name in columns:
        if name in numbers:
            table.add_column(name, justify="right", no_wrap=True)
        else:
            table.add_column(name, overflow="fold")
    return table


def _show(table: Table, calibration: Calibration, found: int, shown: int, what: str) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, 160)  # for a file or a pipe nothing needs to be folded
    if found:
        console.print(table)
    else:
        console.print(f"No {what} is left.")
    if found > shown:
        console.print(f"and {count(found - shown, what).replace(' ', ' more ', 1)}; --out FILE writes them all")
    console.print(escape(f"{calibration.words} {calibration.meaning}"), soft_wrap=True)


def _named(title: str, name: str) -> str:
    """The title, and the name where it says more: not for an IRI that ends in the title."""
    from rgcn.graph.titles import local_name

    return title if title in (name, local_name(name)) or name.startswith('"') else f"{title} ({local_name(name)})"


def _numbers(row: dict[str, Any], names: tuple[str, ...]) -> list[str]:
    """How sure the model is: a score is any number, a probability a share."""
    return [_share(row[name]) if name == "probability" else f"{row[name]:.3g}" for name in names]


def _share(value: float) -> str:
    return f"{value:.2f}" if value >= 0.01 or value == 0 else f"{value:.1g}"
