"""Tables of text: TSV, CSV and Parquet, read in blocks; triples are one use of them."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import polars as pl

from rgcn.data.files import (
    SPLIT_NAMES,
    BadLines,
    ByteSource,
    LineBlock,
    PathLike,
    SourceFile,
    decoded_lines,
    existing,
    format_of,
    line_blocks,
    said,
)
from rgcn.data.headers import (
    NAMED_COLUMNS,
    ONE_ROW_PER_THING,
    TRIPLE,
    is_header,
    named_columns,
    names_a_triple,
    refuse_unless_triples,
)
from rgcn.data.line_scanning import FoundTriples, table_triples
from rgcn.data.readers import Reading, TripleReader
from rgcn.errors import DataError, ParseError, UnknownNameError
from rgcn.graph import SPLITS
from rgcn.system.compression import compression_of
from rgcn.system.threads import in_order

Column = str | int
SEPARATORS = {"tsv": "\t", "csv": ","}
SPLIT_NUMBERS = {name: SPLITS.index(split) for name, split in SPLIT_NAMES.items()}
SEPARATORS_INSTEAD = ("\t", ";", ",")
# After a quote that is never closed, reading goes on with the next line. In a block of a few MiB that adds up to this
# only where quotes were set to make it quadratic.
MAX_LINES_READ_AGAIN = 1_000_000
# Parquet writes a repeated row once. Rows that differ take bytes: triples one or more each, sparse features a tenth.
ROWS_ALWAYS_ALLOWED = 1_000_000
MAX_ROWS_PER_BYTE = 20


class TripleColumns(NamedTuple):
    """Where in a table the triples are: columns by name or by position (from 0, negative from the right).

    triple  None: as the header names them, with a weight and a split where it names these too; else the first three
    header  None: there is one if a column is given by name, or if the first row looks so (`headers`)
    """

    triple: tuple[Column, ...] | None = None
    weight: Column | None = None
    header: bool | None = None
    time: Column | None = None

    def has_header(self) -> bool | None:
        by_name = any(isinstance(column, str) for column in (*(self.triple or ()), self.weight, self.time))
        return True if by_name and self.header is None else self.header


class UnknownColumnError(UnknownNameError, DataError):
    """A name that none of a table's columns has."""


class TableFile:
    """A table file that is read in blocks of rows.

    names    the header's column names, or None without a header
    width    number of columns: as many as the header or the first row has; 3 where neither a name nor a user tells
    blocks   the rows, each block once: strings in columns "0", "1", ..., and a row's number in the file in "line"; rows
             with too few or too many columns are reported as malformed
    way_out  what the user can do about rows of another width; part of the error

    A line ends with LF, with any number of carriage returns before it. Within quotes all of these belong to the field.
    NaN and infinity in Parquet are empty cells.
    """

    def __init__(
        self, file: SourceFile, source: ByteSource, bad_lines: BadLines, *, width: int | None = None, least: int = 2
    ) -> None:
        """least: columns that any such table has; a file of fewer may have another separator than its name tells"""
        self.path, self._bad_lines = file.path, bad_lines
        self.names: list[str] | None = None
        self.first_row: list[str] = []
        self.way_out, self._empty = "", "is empty"
        self.blocks: Iterator[pl.DataFrame]
        if file.format == "parquet":
            frame = _parquet_frame(file.path, source)
            self.names, self.width, self._empty = frame.columns, frame.width, "is empty, NaN or infinite"
            frame.columns = [str(position) for position in range(frame.width)]
            self.blocks = iter([frame.with_columns(line=pl.int_range(1, pl.len() + 1))])
            return
        self._separator, self._quotes = SEPARATORS[file.format], file.format == "csv"
        self._lines = line_blocks(source, quoted=self._quotes)
        parts = (part for part in map(self._text_part, self._lines) if len(part))
        first = list(islice(parts, 1))
        self.width = width or 0
        if first:
            self.first_row = self._first_row(first[0], least)
            self.width = width or len(self.first_row)
        self.blocks = map(self._block, chain(first, parts))

    def begin_below(self) -> None:
        """Take the first row for the names of the columns."""
        self.names, self.width = self.first_row, len(self.first_row)
        self.blocks = (block[1:] if number == 0 else block for number, block in enumerate(self.blocks))

    def first_block(self) -> pl.DataFrame:
        """The rows that are read first; they stay to be read."""
        first = next(self.blocks)
        self.blocks = chain([first], self.blocks)
        return first

    def found_or_blocks(self, columns: list[int]) -> Iterator[FoundTriples | pl.DataFrame]:
        """The rows as triples in these columns, found by compiled loops, or as blocks where they are not plain."""
        yield from islice(self.blocks, 1)
        plain = (self._separator.encode(), self._quotes, self.width, columns)
        for lines, found in in_order(self._lines, lambda block: table_triples(block.data, *plain)):
            yield self._block(self._text_part(lines)) if found is None else found

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

    def without(self, block: pl.DataFrame, bad: pl.Series, reason: str, way_out: str = "") -> pl.DataFrame:
        """The block without the rows marked `bad`, which are reported as malformed."""
        if not bad.any():
            return block
        for row in block.filter(bad).iter_rows(named=True):
            text = "\t".join(cell for name, cell in row.items() if name != "line" and isinstance(cell, str))
            self._bad_lines.report(self.path, row["line"], text, reason, way_out)
        return block.filter(~bad)

    def without_empty(self, block: pl.DataFrame, position: int) -> pl.DataFrame:
        """The block without the rows whose field at `position` is empty, which are reported as malformed."""
        field = block[str(position)]
        name = str(position + 1) if self.names is None else repr(self.names[position])
        return self.without(block, field.is_null() | (field == ""), f"column {name} {self._empty}")

    def _first_row(self, part: pl.DataFrame, least: int) -> list[str]:
        cells = self._cells(part)
        if 0 < len(cells) < least:
            lines = [line for line in part["text"].head(4) if line.strip("\r")][:2]
            for other in SEPARATORS_INSTEAD:
                if all(line.count(other) >= least - 1 for line in lines):
                    self._separator = other
                    return self._cells(part)
        return cells

    def _cells(self, part: pl.DataFrame) -> list[str]:
        """The cells of the first row."""
        text, line = part.row(0)
        bare = text.rstrip("\r")
        if self._quotes and ('"' in text or not bare):
            rows = csv.reader((f"{text}\n" for text in part["text"]), delimiter=self._separator)
            try:
                return next(filter(None, rows), [])
            except csv.Error as error:
                if self.width:
                    return []
                # not to be skipped: nothing else tells how many columns there are
                raise ParseError(str(self.path), line, text, _quotes_reason(error)) from None
        return str(bare).split(self._separator)

    def _text_part(self, block: LineBlock) -> pl.DataFrame:
        """The block's lines, their text and number; those that are no UTF-8 text are malformed.

        Blank lines and the carriage returns of line ends are left out, but where there are quotes: in these they belong
        to the field, and csv.reader knows which are.
        """
        data = block.data if block.data.strip(b"\r\n") else b""  # many blank lines are passed over at once
        try:
            lines = [] if b"\0" in data else data.decode().split("\n")
        except UnicodeDecodeError:
            lines = []
        numbers: Sequence[int] = range(block.first_line, block.first_line + len(lines))
        if not lines:
            found = dict(decoded_lines(block, self.path, self._bad_lines))
            lines, numbers = list(found.values()), list(found)
        part = pl.DataFrame({"text": lines, "line": numbers}, schema={"text": pl.String, "line": pl.Int64})
        if self._has_quotes(part):
            return part
        if b"\r" in data:
            part = part.with_columns(pl.col("text").str.strip_chars_end("\r"))
        return part.filter(pl.col("text") != "")

    def _has_quotes(self, part: pl.DataFrame) -> bool:
        return self._quotes and bool(part["text"].str.contains('"', literal=True).any())

    def _block(self, part: pl.DataFrame) -> pl.DataFrame:
        names = [*map(str, range(self.width)), "surplus"]
        if self._has_quotes(part):
            rows, numbers = self._quoted_rows(part["text"].to_list(), part["line"].to_list())
            columns = {name: [row[i] if i < len(row) else None for row in rows] for i, name in enumerate(names)}
            block = pl.DataFrame({**columns, "line": numbers}, {**dict.fromkeys(names, pl.String), "line": pl.Int64})
        else:
            cells = pl.col("text").str.split_exact(self._separator, self.width).struct.rename_fields(names)
            block = part.select(cells, "line").unnest("text")
        short = block[str(self.width - 1)].is_null()
        block = self.without(block, short, f"fewer than {self.width} columns", self.way_out)
        long = block["surplus"].is_not_null()
        return self.without(block, long, f"more than {self.width} columns", self.way_out).drop("surplus")

    def _quoted_rows(self, lines: list[str], line_numbers: list[int]) -> tuple[list[list[str]], list[int]]:
        rows: list[list[str]] = []
        numbers: list[int] = []
        start, read_again = 0, 0
        while start < len(lines):
            begin = start
            rest = (f"{lines[at]}\n" for at in range(begin, len(lines)))
            reader = csv.reader(rest, strict=True, delimiter=self._separator)
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


def _quotes_reason(error: csv.Error) -> str:
    if "field limit" in str(error):
        return f"a quote is not closed within {csv.field_size_limit() >> 10} KiB"
    if "new-line" in str(error):
        return "a carriage return within the line and outside quotes"
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
        frame = pl.read_parquet(data)
        floats = [name for name, kind in frame.schema.items() if kind.is_float()]
        finite = [pl.when(pl.col(name).is_finite()).then(pl.col(name)).alias(name) for name in floats]
        return frame.with_columns(finite).select(pl.all().cast(pl.String))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise ParseError(str(path), None, "", f"not a readable Parquet table ({str(error)[:200]})") from None


def whole_table(path: PathLike, what: str, default_format: str = "") -> tuple[TableFile, pl.DataFrame]:
    """A table and all its rows; a header is one of them, but for Parquet, which knows it as such."""
    place = existing(path, f"{what} file")
    file = SourceFile(place, format_of(place) or default_format)
    if file.format not in ("tsv", "csv", "parquet"):
        raise DataError(f"{what}s are read from TSV, CSV or Parquet, and {place} is named like none of these")
    with ByteSource(place) as source:
        table = TableFile(file, source, BadLines(skip=False))
        blocks = list(table.blocks)
    return table, pl.concat(blocks) if blocks else pl.DataFrame(schema={"line": pl.Int64})


class _TableReader(TripleReader):
    """Where neither a header nor the user tells which columns are what, a table has exactly the three.

    Its rows must then read like triples (`refuse_unless_triples`).
    """

    plural = "tables"

    def read(self, reading: Reading) -> None:
        told = reading.columns or TripleColumns()
        width = 3 if told == TripleColumns() else None
        table = TableFile(reading.file, reading.source, reading.bad_lines, width=width, least=3)
        _take_header(table, told, reading.file.split)
        if not table.width:
            return
        columns = _columns(table, told)
        if reading.file.split is not None:
            columns.pop("split", None)
        positions = {role: table.position(column) for role, column in columns.items()}
        triple = [positions[role] for role in TRIPLE]
        plain = reading.collector.large and reading.file.format != "parquet" and len(positions) == len(set(triple))
        for block in table.found_or_blocks(triple) if plain else table.blocks:
            if isinstance(block, FoundTriples):
                reading.collector.add_found(block, reading.file.split)
                continue
            for position in positions.values():
                block = table.without_empty(block, position)
            for role, (values_of, reason) in VALUES.items():
                if role in positions:
                    values = values_of(block[str(positions[role])])
                    block = table.without(block.with_columns(values.alias(role)), values.is_null(), reason)
            beside = {role: block[role].to_numpy() for role in VALUES if role in positions}
            split, names = beside.get("split", reading.file.split), (block[str(positions[role])] for role in TRIPLE)
            reading.collector.add(*names, split=split, weights=beside.get("weight"), times=beside.get("time"))


def _take_header(table: TableFile, told: TripleColumns, split: str | None) -> None:
    """Begin below the first row where it names the columns; stop where the rows may be no triples."""
    first = table.names or table.first_row
    if not first:
        return
    if names_a_triple(first) and told.triple is None:
        table.width = len(first)
    table.way_out = _way_out(table)
    # The rows of other splits are few, so that little recurs in them: they are read as those of train are.
    if told == TripleColumns() and table.width == 3 and not names_a_triple(first) and split in (None, "train"):
        refuse_unless_triples(table.names, table.first_block(), table.path)
    elif table.names is None and _has_header(table, told):
        table.begin_below()


def _has_header(table: TableFile, told: TripleColumns) -> bool:
    header = told.has_header()
    if header is not None:
        return header
    if len(table.first_row) != table.width or table.width < 3:
        return False
    triple = None if told.triple is None else [table.position(column) for column in told.triple]
    return is_header(table.first_row, table.first_block()[1:], triple, table.path)


def _way_out(table: TableFile) -> str:
    """What to do about a row whose number of columns is not the table's."""
    first = len(table.first_row)
    if first > table.width:
        return f"say which are subject, relation and object, e.g. {NAMED_COLUMNS}; {ONE_ROW_PER_THING}"
    if first < table.width:
        alone = "; where all rows are of one relation, add a column that names it" if first == 2 else ""
        return f"a row has a subject, a relation and an object, with tabs, commas or semicolons between them{alone}"
    return f"mend the row, or leave such rows out: {said('skip_bad_lines', True)}"


def _columns(table: TableFile, told: TripleColumns) -> dict[str, Column]:
    """The column of each role."""
    beside = {"weight": told.weight, "time": told.time}
    weight: dict[str, Column] = {role: column for role, column in beside.items() if column is not None}
    if told.triple is not None:
        return {**dict(zip(TRIPLE, told.triple, strict=True)), **weight}
    named = named_columns(table.names or []) if told.header is not False else {}
    if set(TRIPLE) <= named.keys():
        unclear = [f"{role} ({', '.join(map(str, named[role]))})" for role in TRIPLE if len(named[role]) > 1]
        if not unclear:
            return {**{role: places[0] for role, places in named.items() if len(places) == 1}, **weight}
    elif told != TripleColumns() or table.width == 3:
        return {**dict(zip(TRIPLE, range(3), strict=True)), **weight}
    else:
        unclear = []
    which = f", and several may be the {' and the '.join(unclear)}" if unclear else ""
    wide = "" if unclear else f"; {ONE_ROW_PER_THING}"
    raise DataError(f"{table.path} has {table.width} columns, not 3{which}; name them, e.g. {NAMED_COLUMNS}{wide}")


def _as_weights(cells: pl.Series) -> pl.Series:
    weights = cells.cast(pl.Float32, strict=False)
    return pl.Series(weights.set(~(weights.is_finite() & (weights >= 0)), None))


def _as_splits(cells: pl.Series) -> pl.Series:
    return pl.Series(cells.str.to_lowercase().replace_strict(SPLIT_NUMBERS, default=None, return_dtype=pl.Int8))


def _as_times(cells: pl.Series) -> pl.Series:
    """Numbers as they are, dates as seconds since 1970; null where a cell is neither."""
    numbers = cells.cast(pl.Float64, strict=False)
    dates = cells.str.slice(0, 10).str.to_date("%Y-%m-%d", strict=False).cast(pl.Datetime)
    moments = cells.str.replace(" ", "T").str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", strict=False)
    seconds = moments.fill_null(dates).dt.epoch("ms").cast(pl.Float64) / 1000
    return pl.Series(numbers.fill_nan(None).fill_null(seconds))


# What may stand beside a triple: how a column is read, null where it cannot be, and what is said of such a row.
VALUES: dict[str, tuple[Callable[[pl.Series], pl.Series], str]] = {
    "time": (_as_times, "the time is neither a number nor a date (2026-11-16)"),
    "weight": (_as_weights, "the weight is not a finite number of at least 0"),
    "split": (_as_splits, "the split is none of train, valid (or dev) and test"),
}


class TsvReader(_TableReader):
    endings = ("tsv", "txt")


class CsvReader(_TableReader):
    endings = ("csv",)


class ParquetReader(_TableReader):
    endings = ("parquet", "pq")


def without_formulas(frame: pl.DataFrame) -> pl.DataFrame:
    """Names that a spreadsheet would compute, with a quote before them that makes them text; numbers stay.

    >>> without_formulas(pl.DataFrame({"name": ["=1+1", "@x", "-5", "plain"]}))["name"].to_list()
    ["'=1+1", "'@x", '-5', 'plain']
    """
    text = pl.col(pl.String)
    risky = text.str.contains(r"^[=+\-@\t\r\n]") & ~text.str.contains(r"^[+-]?[0-9]*\.?[0-9]+([eE][+-]?[0-9]+)?$")
    return frame.with_columns(pl.when(risky).then("'" + text).otherwise(text).name.keep())
