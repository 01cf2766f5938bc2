"""Predictions as files: CSV, TSV, Parquet, JSON Lines, N-Triples. A file appears when it is whole, or not at all."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rgcn.data.atomic import replace_atomically
from rgcn.errors import ConfigError, DataError

if TYPE_CHECKING:
    import polars as pl

Format = Literal["csv", "tsv", "parquet", "jsonl", "nt"]

SUFFIXES: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".nt": "nt",
    ".nt.gz": "nt",
}


def format_of(path: Path) -> Format:
    """The format that a file's name asks for; asked before anything is computed.

    >>> format_of(Path("new.nt.gz"))
    'nt'
    """
    name = path.name.lower()
    for suffix, format in SUFFIXES.items():
        if name.endswith(suffix) and name != suffix:
            if path.is_dir():
                raise DataError(f"{path} is a folder; name a file to write")
            return format
    raise ConfigError(f"{path}: the name says what to write, and must end in {', '.join(SUFFIXES)}")


def write_table(path: Path, frames: Iterable[pl.DataFrame]) -> int:
    """Write frames of the same columns one after the other, and say how many rows they had.

    Frames are written as they come; only Parquet needs all of them at once.
    """
    format, rows = format_of(path), 0

    def write(temporary: Path) -> None:
        nonlocal rows
        if format == "parquet":
            import polars as pl

            table = pl.concat(list(frames), how="vertical_relaxed")
            rows = table.height
            table.write_parquet(temporary)
            return
        with temporary.open("wb") as file:
            for number, frame in enumerate(frames):
                if format == "jsonl":
                    frame.write_ndjson(file)
                else:
                    frame.write_csv(file, separator="," if format == "csv" else "\t", include_header=number == 0)
                rows += frame.height

    _replace(path, write)
    return rows


def write_lines(path: Path, lines: Iterable[str]) -> int:
    """Write lines of text, compressed where the name ends in .gz, and say how many there were."""
    count = 0

    def write(temporary: Path) -> None:
        nonlocal count
        with temporary.open("wb") as raw:
            # No name and no time inside: the same lines give the same bytes.
            file: Any = gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if path.name.lower().endswith(".gz") else raw
            with io.TextIOWrapper(file, encoding="utf-8", newline="\n") as text:
                for line in lines:
                    text.write(line + "\n")
                    count += 1

    _replace(path, write)
    return count


def _replace(path: Path, write: Callable[[Path], None]) -> None:
    try:
        replace_atomically(path, write)
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror or error}") from None
