"""Tables of text: TSV, CSV and Parquet, read in blocks; triples are one use of them."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import polars as pl

from rgcn.compression import compression_of
from rgcn.data.files import (
    BadLines,
    ByteSource,
    LineBlock,
    PathLike,
    SourceFile,
    decoded_lines,
    existing,
    format_of,
    line_blocks,
)
from rgcn.data.readers import Reading, TripleReader
from rgcn.errors import DataError, ParseError, UnknownNameError

Column = str | int
SEPARATORS = {"tsv": "\t", "csv": ","}
# After a quote that is never closed, reading goes on with the next line. In a block of a few MiB that adds up to this
# only where quotes were set to make it quadratic.
MAX_LINES_READ_AGAIN = 1_000_000
# Parquet writes a repeated row once. Rows that differ take bytes: triples one or more each, sparse features a tenth.
ROWS_ALWAYS_ALLOWED = 1_000_000
MAX_ROWS_PER_BYTE = 20


class TripleColumns(NamedTuple):
    """Where in a table the triples are: columns by name or by position (from 0, negative from the right).

    header   None: there is one exactly if a column is given by name
    """

    triple: tuple[Column, ...] = (0, 1, 2)
    weight: Column | None = None
    header: bool | None = None


class UnknownColumnError(UnknownNameError, DataError):
    """A name that none of a table's columns has."""


class TableFile:
    """A table file that is read in blocks of rows.

    names   the header's column names, or None without a header
    width   number of columns: `width` if given, else as many as the header or the first row has
    blocks  the rows, each block once: strings in columns "0", "1", ..., and a row's number in the file in "line"; rows
            with too few or too many columns are reported as malformed
    """

    def __init__(
        self, file: SourceFile, source: ByteSource, bad_lines: BadLines, *, header: bool, width: int | None = None
    ) -> None:
        self.path, self._bad_lines = file.path, bad_lines
        self.names: list[str] | None = None
        self.blocks: Iterator[pl.DataFrame]
        if file.format == "parquet":
            frame = _parquet_frame(file.path, source)
            self.names, self.width = frame.columns, frame.width
            frame.columns = [str(position) for position in range(frame.width)]
            self.blocks = iter([frame.with_columns(line=pl.int_range(1, pl.len() + 1))])
            return
        self._separator = SEPARATORS[file.format]
        blocks = line_blocks(source, quoted=self._separator == ",")
        parts = (part for part in map(self._text_part, blocks) if len(part))
        first = next(parts, None)
        first_row = [] if first is None or (width and not header) else self._first_row(first)
        self.width = width or len(first_row)
        self.blocks = map(self._block, parts if first is None else chain([first], parts))
        if header:
            self.names, self.width = first_row, len(first_row)
            self.blocks = (block[1:] if number == 0 else block for number, block in enumerate(self.blocks))

    def position(self, column: Column) -> int:
        """The position of a column given by name or by position."""
        if isinstance(column, str):
            if self.names is None:
                raise DataError(f"{self.path}: column {column!r} is given by name, but the file has no header")
            if column not in self.names:
                raise UnknownColumnError(f"column of {self.path}", column, self.names)
            if self.names.count(column) > 1:
                raise DataError(f"{self.path}: two columns named {column!r}")
            return self.names.index(column)
        if not -self.width <= column < self.width:
            raise DataError(f"{self.path}: there is no column {column}: the file has {self.width}, counted from 0")
        return column % self.width

    def without(self, block: pl.DataFrame, bad: pl.Series, reason: str) -> pl.DataFrame:
        """The block without the rows marked `bad`, which are reported as malformed."""
        if not bad.any():
            return block
        for row in block.filter(bad).iter_rows(named=True):
            text = "\t".join(cell for name, cell in row.items() if name != "line" and cell is not None)
            self._bad_lines.report(self.path, row["line"], text, reason)
        return block.filter(~bad)

    def without_empty(self, block: pl.DataFrame, position: int) -> pl.DataFrame:
        """The block without the rows whose field at `position` is empty, which are reported as malformed."""
        field = block[str(position)]
        name = str(position + 1) if self.names is None else repr(self.names[position])
        return self.without(block, field.is_null() | (field == ""), f"column {name} is empty")

    def _first_row(self, part: pl.DataFrame) -> list[str]:
        text, line = part.row(0)
        if self._separator == "," and '"' in text:
            try:
                return next(csv.reader(f"{text}\n" for text in part["text"]))
            except csv.Error as error:  # not to be skipped: nothing else tells how many columns there are
                raise ParseError(str(self.path), line, text, _quotes_reason(error)) from None
        return str(text).split(self._separator)

    def _text_part(self, block: LineBlock) -> pl.DataFrame:
        """The block's lines, their text and number, without blank ones; those that are no UTF-8 text are malformed."""
        if not block.data.strip(b"\r\n"):
            return _text_lines([], [])
        try:
            lines = block.data.decode().replace("\r\n", "\n").removesuffix("\r").split("\n")
        except UnicodeDecodeError:
            lines = None
        if lines is None or b"\0" in block.data:
            found = dict(decoded_lines(block, self.path, self._bad_lines))
            part = _text_lines(list(found.values()), list(found))
        else:
            if not lines[-1]:
                lines.pop()
            part = _text_lines(lines, range(block.first_line, block.first_line + len(lines)))
            if self._separator == "," and b'"' in block.data:
                return part  # in quotes a blank line belongs to the field; csv.reader knows which are
        return part.filter(pl.col("text") != "")

    def _block(self, part: pl.DataFrame) -> pl.DataFrame:
        names = [*map(str, range(self.width)), "surplus"]
        if self._separator == "," and part["text"].str.contains('"', literal=True).any():
            rows, numbers = self._quoted_rows(part["text"].to_list(), part["line"].to_list())
            columns = {name: [row[i] if i < len(row) else None for row in rows] for i, name in enumerate(names)}
            block = pl.DataFrame({**columns, "line": numbers}, {**dict.fromkeys(names, pl.String), "line": pl.Int64})
        else:
            cells = pl.col("text").str.split_exact(self._separator, self.width).struct.rename_fields(names)
            block = part.select(cells, "line").unnest("text")
        block = self.without(block, block[str(self.width - 1)].is_null(), f"fewer than {self.width} columns")
        return self.without(block, block["surplus"].is_not_null(), f"more than {self.width} columns").drop("surplus")

    def _quoted_rows(self, lines: list[str], line_numbers: list[int]) -> tuple[list[list[str]], list[int]]:
        rows: list[list[str]] = []
        numbers: list[int] = []
        start, read_again = 0, 0
        while start < len(lines):
            begin = start
            reader = csv.reader((f"{lines[at]}\n" for at in range(begin, len(lines))), strict=True)
            try:
                for row in reader:
                    if row:
                        rows.append(row)
                        numbers.append(line_numbers[start])
                    start = begin + reader.line_num
            except csv.Error as error:
                self._bad_lines.report(self.path, line_numbers[start], lines[start], _quotes_reason(error))
                read_again += begin + reader.line_num - start
                if read_again > MAX_LINES_READ_AGAIN:
                    reason = "so many quotes are never closed that rows cannot be told apart"
                    raise ParseError(str(self.path), line_numbers[start], lines[start], reason) from None
                start += 1
        return rows, numbers


def _text_lines(lines: list[str], numbers: Sequence[int]) -> pl.DataFrame:
    return pl.DataFrame({"text": lines, "line": numbers}, schema={"text": pl.String, "line": pl.Int64})


def _quotes_reason(error: csv.Error) -> str:
    if "field limit" in str(error):
        return f"a quote is not closed within {csv.field_size_limit() >> 10} KiB"
    return f"malformed quotes ({error})"


def _parquet_frame(path: Path, source: ByteSource) -> pl.DataFrame:
    data: Path | bytes = path
    if compression_of(path):
        data = b"".join(iter(lambda: source.read(1 << 22), b""))
    try:
        rows = pl.scan_parquet(data).select(pl.len()).collect().item()
        size = len(data) if isinstance(data, bytes) else path.stat().st_size
        if rows > ROWS_ALWAYS_ALLOWED and rows > MAX_ROWS_PER_BYTE * size:
            words = f"{path} says it has {rows:,} rows in {size:,} bytes"
            raise DataError(f"{words}: this looks like a bomb of repeated rows")
        return pl.read_parquet(data).select(pl.all().cast(pl.String))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise ParseError(str(path), None, "", f"not a readable Parquet table ({str(error)[:200]})") from None


def whole_table(path: PathLike, what: str, default_format: str = "") -> tuple[TableFile, pl.DataFrame]:
    """A table and all its rows; a header is one of them, but for Parquet, which knows it as such."""
    place = existing(path, f"{what} file")
    file = SourceFile(place, format_of(place) or default_format)
    if file.format not in ("tsv", "csv", "parquet"):
        raise DataError(f"{what}s are read from TSV, CSV or Parquet, and {place} is named like none of these")
    with ByteSource(place) as source:
        table = TableFile(file, source, BadLines(skip=False), header=False)
        blocks = list(table.blocks)
    return table, pl.concat(blocks) if blocks else pl.DataFrame(schema={"line": pl.Int64})


class _TableReader(TripleReader):
    """Without `columns` a table has exactly the three, and no header."""

    plural = "tables"

    def read(self, reading: Reading) -> None:
        places, width = reading.columns or TripleColumns(), 3 if reading.columns is None else None
        columns = places.triple if places.weight is None else (*places.triple, places.weight)
        header = any(isinstance(column, str) for column in columns) if places.header is None else places.header
        table = TableFile(reading.file, reading.source, reading.bad_lines, header=header, width=width)
        if width and table.width != 3:
            raise DataError(f"{table.path} has {table.width} columns, not 3; name them, e.g. columns=(0, 1, 2)")
        if not table.width:
            return
        positions = [table.position(column) for column in columns]
        for block in table.blocks:
            for position in positions:
                block = table.without_empty(block, position)
            weights = None
            if places.weight is not None:
                given = block[str(positions[3])].cast(pl.Float32, strict=False)
                bad = ~(given.is_finite() & (given >= 0)).fill_null(False)
                block = table.without(block, bad, "the weight is not a finite number of at least 0")
                weights = given.filter(~bad).to_numpy()
            subject, relation, object_ = (block[str(position)] for position in positions[:3])
            reading.collector.add(subject, relation, object_, split=reading.file.split, weights=weights)


class TsvReader(_TableReader):
    endings = ("tsv", "txt")


class CsvReader(_TableReader):
    endings = ("csv",)


class ParquetReader(_TableReader):
    endings = ("parquet", "pq")
