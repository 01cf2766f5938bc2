"""Names in a file, one a line, and the nodes they stand for."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rgcn.errors import DataError, ParseError, UnknownNameError
from rgcn.words import count

if TYPE_CHECKING:
    from rgcn.predict import OpenModel

STANDARD_INPUT = Path("-")
# First cells of a table that name a column rather than a node.
HEADERS = ("node", "nodes", "name", "id", "iri", "uri", "entity", "subject", "object", "head", "tail", "relation")
SHOWN = 5


class Row(NamedTuple):
    """The cells of a line, and its number from 1 (of a Parquet file: of its row)."""

    line: int
    cells: tuple[str, ...]


@dataclass(frozen=True)
class NameTable:
    """Rows of names, and what the first line calls their columns, where it does."""

    source: str
    header: tuple[str, ...] | None
    rows: list[Row]


def read_table(path: Path) -> NameTable:
    """Rows of names: .csv, .tsv, .parquet, or else plain text, a row a line, tabs between names; "-": standard input.

    Blank lines are skipped. In .csv, .tsv and .parquet the first row may name the columns.
    """
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        return _from_parquet(path)
    source = "standard input" if path == STANDARD_INPUT else str(path)
    text = _text(path, source)
    lines = list(_csv_rows(text, source) if suffix == ".csv" else _plain_rows(text))
    header = None
    if suffix in (".csv", ".tsv") and lines and lines[0].cells[0].casefold() in HEADERS:
        header, lines = tuple(cell.casefold() for cell in lines[0].cells), lines[1:]
    if not lines:
        raise DataError(f"{source}: there are no names in it")
    return NameTable(source, header, lines)


def _text(path: Path, source: str) -> str:
    try:
        data = sys.stdin.buffer.read() if path == STANDARD_INPUT else path.read_bytes()
    except OSError as error:
        raise DataError(f"{source}: cannot be read: {error.strerror or error}") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        begin = data.rfind(b"\n", 0, error.start) + 1
        shown = data[begin : error.start + 20].decode("utf-8", "backslashreplace").split("\n")[0]
        reason = f"not UTF-8: byte {data[error.start]:#04x} begins no character. Save the file as UTF-8"
        raise ParseError(source, line, shown, reason) from None


def _plain_rows(text: str) -> Iterator[Row]:
    # Only these end a line; `splitlines` would also cut at characters that may stand in a name.
    for number, line in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), start=1):
        if line.strip():
            yield Row(number, tuple(cell.strip() for cell in line.split("\t")))


def _csv_rows(text: str, source: str) -> Iterator[Row]:
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield Row(reader.line_num, tuple(cell.strip() for cell in cells))
    except csv.Error as error:
        raise ParseError(source, reader.line_num, "", f"no CSV: {error}") from None


def _from_parquet(path: Path) -> NameTable:
    import polars as pl

    try:
        frame = pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DataError(f"{path}: cannot be read as Parquet: {error}") from None
    rows = [
        Row(number, tuple("" if cell is None else str(cell) for cell in cells))
        for number, cells in enumerate(frame.iter_rows(), start=1)
        if cells and cells[0] is not None
    ]
    if not rows:
        raise DataError(f"{path}: there are no names in it")
    return NameTable(str(path), tuple(name.casefold() for name in frame.columns), rows)


# -- from names to nodes ----------------------------------------------------------------------------------


class Resolved(NamedTuple):
    """ids int64 [n] of the names that are known, their places in the list, and how many were not known."""

    ids: NDArray[np.int64]
    place: NDArray[np.int64]
    skipped: int


def resolve_nodes(
    opened: OpenModel, names: Sequence[tuple[int, str]], source: str, *, skip_unknown: bool = False
) -> Resolved:
    """The nodes that (line, name) pairs stand for.

    All unknown names are counted, and the first few said with their lines and the closest known names; unless they are
    to be skipped, that is an error.
    """
    ids, place, complaints, unknown = [], [], [], 0
    for number, (line, name) in enumerate(names):
        node, complaint = _node(opened, name, explain=unknown < SHOWN)
        if node is not None:
            ids.append(node)
            place.append(number)
            continue
        unknown += 1
        if complaint is not None:
            complaints.append(f"  line {line}: {complaint}")
    if unknown and (not skip_unknown or not ids):
        more = f"\n  and {unknown - len(complaints):,} more" if unknown > len(complaints) else ""
        advice = "" if not ids else "\n--skip-unknown goes on without them."
        unclear = " or the name of several nodes" if any("may be any of" in words for words in complaints) else ""
        raise DataError(
            f"{source}: {unknown:,} of {count(len(names), 'name')} "
            f"{'is' if unknown == 1 else 'are'} not known{unclear}:\n" + "\n".join(complaints) + more + advice
        )
    return Resolved(np.array(ids, dtype=np.int64), np.array(place, dtype=np.int64), unknown)


def _node(opened: OpenModel, name: str, explain: bool) -> tuple[int | None, str | None]:
    """(node, None), or (None, what is wrong with the name where that is to be explained)."""
    meant = opened.names.nodes(name)
    if len(meant) == 1:
        return meant[0], None
    if not explain:
        return None, None
    try:
        return opened.node(name), None
    except (UnknownNameError, DataError) as error:
        return None, str(error)
