"""Read tables of text (TSV, CSV and Parquet) in blocks, and the triples in them."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import polars as pl

from rgcn.data import files, headers
from rgcn.data.files import SPLIT_NAMES, BadLines, ByteSource, LineBlock, PathLike, SourceFile, option_hint
from rgcn.data.headers import COLUMNS_HINT, RECORDS_HINT, TRIPLE, columns_by_role, names_triple
from rgcn.data.line_scanning import TripleSpans, table_triples
from rgcn.data.readers import Reading, TripleReader
from rgcn.errors import DataError, ParseError, UnknownNameError
from rgcn.graph import SPLITS
from rgcn.system.compression import compression_from_name
from rgcn.system.threads import map_in_threads

Column = str | int
SEPARATORS = {"tsv": "\t", "csv": ","}
SPLIT_IDS = {name: SPLITS.index(split) for name, split in SPLIT_NAMES.items()}
ALTERNATIVE_SEPARATORS = ("\t", ";", ",")
# After a quote that is never closed, reading continues with the next line. In a block of a few MiB, so many lines are
# read again only if quotes were placed to make reading quadratic.
MAX_REREAD_LINES = 1_000_000
# Parquet stores a repeated row once. Different rows take space: triples a byte or more each, sparse features a tenth.
ROWS_ALWAYS_ALLOWED = 1_000_000
MAX_ROWS_PER_BYTE = 20


class TripleColumns(NamedTuple):
    """The columns of a table that hold triples, by name or by position (from 0; negative ones count from the right).

    Attributes:
        triple: Subject, relation and object. None: as the header names them, with a weight and a split if it names
            these too, else the first three.
        weight: The weights of edges.
        header: Whether the first row names the columns. None: if a column is given by name, or the row looks so.
        time: The times of triples.
    """

    triple: tuple[Column, ...] | None = None
    weight: Column | None = None
    header: bool | None = None
    time: Column | None = None


class UnknownColumnError(UnknownNameError, DataError):
    """None of a table's columns has this name."""


class TableFile:
    """A table that is read in blocks of rows.

    A line ends with LF, with any number of carriage returns before it. Within quotes all of these belong to the field.
    NaN and infinity in Parquet are empty cells.

    Args:
        file: The file.
        source: Its bytes.
        bad_lines: Takes rows with too few or too many columns.
        width: Number of columns; by default that of the header or the first row.
        min_width: Number of columns that any such table has. In a file with fewer, other separators are tried.

    Attributes:
        names: Names of the columns, or None without a header.
        width: Number of columns.
        blocks: The rows, each block once: strings in columns "0", "1", ..., and in "line" the number of the row.
        advice: What the user can do about rows of another width; the end of the error message.
    """

    names: list[str] | None = None
    first_row: Sequence[str] = ()
    blocks: Iterator[pl.DataFrame]
    advice, _empty_reason = "", "is empty"

    def __init__(
        self, file: SourceFile, source: ByteSource, bad_lines: BadLines, *, width: int | None = None, min_width: int = 2
    ) -> None:
        self.path, self._bad_lines = file.path, bad_lines
        if file.format == "parquet":
            frame = _parquet_frame(file.path, source)
            self.names, self.width, self._empty_reason = frame.columns, frame.width, "is empty, NaN or infinite"
            frame.columns = [str(position) for position in range(frame.width)]
            self.blocks = iter([frame.with_columns(line=pl.int_range(1, pl.len() + 1))])
            return
        self._separator, self._is_csv = SEPARATORS[file.format], file.format == "csv"
        self._lines = files.line_blocks(source, quoted=self._is_csv)
        parts = (part for part in map(self._text_part, self._lines) if len(part))
        first, self.width = list(islice(parts, 1)), width or 0
        if first:
            self.first_row = self._first_row(first[0], min_width)
            self.width = width or len(self.first_row)
        self.blocks = map(self._block, chain(first, parts))

    def use_first_row_as_header(self) -> None:
        """Take the names of the columns from the first row, which then is in no block."""
        self.names, self.width = list(self.first_row), len(self.first_row)
        self.blocks = (block[1:] if number == 0 else block for number, block in enumerate(self.blocks))

    def peek_block(self) -> pl.DataFrame:
        """Return the first block, and leave it in `blocks`."""
        first = next(self.blocks)
        self.blocks = chain([first], self.blocks)
        return first

    def triples_or_blocks(self, columns: list[int]) -> Iterator[TripleSpans | pl.DataFrame]:
        """Yield the triples in these columns, found by compiled loops, or a block if its rows need a parser."""
        yield from islice(self.blocks, 1)
        options = (self._separator.encode(), self._is_csv, self.width, columns)
        for lines, triples in map_in_threads(self._lines, lambda block: table_triples(block.data, *options)):
            yield self._block(self._text_part(lines)) if triples is None else triples

    def position(self, column: Column) -> int:
        """Return the position, from 0, of a column given by name or position; DataError if there is no such column."""
        if isinstance(column, str):
            if self.names is None:
                raise DataError(f"{self.path}: column {column!r} is given by name, but the file has no header")
            if column not in self.names:
                raise UnknownColumnError(f"column of {self.path}", column, self.names)
            if self.names.count(column) > 1:
                raise DataError(f"{self.path}: two columns named {column!r}")
            return self.names.index(column)
        if not -self.width <= column < self.width:
            raise DataError(f"{self.path}: there is no column {column}: the file has {self.width}, numbered from 0")
        return column % self.width

    def drop_bad_rows(self, block: pl.DataFrame, bad: pl.Series, reason: str, advice: str = "") -> pl.DataFrame:
        """Return the block without the rows where `bad` is true, which are reported as malformed."""
        if not bad.any():
            return block
        for row in block.filter(bad).iter_rows(named=True):
            text = "\t".join(cell for name, cell in row.items() if name != "line" and isinstance(cell, str))
            self._bad_lines.report(self.path, row["line"], text, reason, advice)
        return block.filter(~bad)

    def drop_empty(self, block: pl.DataFrame, position: int) -> pl.DataFrame:
        """Return the block without the rows whose cell at `position` is empty, which are reported as malformed."""
        cells = block[str(position)]
        name = str(position + 1) if self.names is None else repr(self.names[position])
        return self.drop_bad_rows(block, cells.is_null() | (cells == ""), f"column {name} {self._empty_reason}")

    def _first_row(self, part: pl.DataFrame, min_width: int) -> list[str]:
        cells = self._cells(part)
        if 0 < len(cells) < min_width:
            lines = [line for line in part["text"].head(4) if line.strip("\r")][:2]
            fitting = (s for s in ALTERNATIVE_SEPARATORS if all(line.count(s) >= min_width - 1 for line in lines))
            if separator := next(fitting, None):
                self._separator = separator
                return self._cells(part)
        return cells

    def _cells(self, part: pl.DataFrame) -> list[str]:
        """Return the cells of the first row."""
        text, line = part.row(0)
        if self._is_csv and ('"' in text or not text.rstrip("\r")):
            rows = csv.reader((f"{text}\n" for text in part["text"]), delimiter=self._separator)
            try:
                return next(filter(None, rows), [])
            except csv.Error as error:
                if self.width:
                    return []
                # Raise even if bad lines are skipped, because only this row tells the number of columns.
                raise ParseError(str(self.path), line, text, _quotes_reason(error)) from None
        return str(text).rstrip("\r").split(self._separator)

    def _text_part(self, block: LineBlock) -> pl.DataFrame:
        """Return the lines of a block and their numbers, without those that are not UTF-8.

        Blank lines and the carriage returns of line ends are removed, unless there are quotes. Within these they belong
        to the field, and only csv.reader knows which are.
        """
        data = block.data if block.data.strip(b"\r\n") else b""  # skip many blank lines at once
        lines, numbers = list[str](), list[int]()
        with suppress(UnicodeDecodeError):
            lines = [] if b"\0" in data else data.decode().split("\n")
            numbers = list(range(block.first_line, block.first_line + len(lines)))
        if not lines:
            by_number = dict(files.decoded_lines(block, self.path, self._bad_lines))
            lines, numbers = list(by_number.values()), list(by_number)
        part = pl.DataFrame({"text": lines, "line": numbers}, schema={"text": pl.String, "line": pl.Int64})
        if self._has_quotes(part):
            return part
        if b"\r" in data:
            part = part.with_columns(pl.col("text").str.strip_chars_end("\r"))
        return part.filter(pl.col("text") != "")

    def _has_quotes(self, part: pl.DataFrame) -> bool:
        return self._is_csv and bool(part["text"].str.contains('"', literal=True).any())

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
        block = self.drop_bad_rows(block, short, f"fewer than {self.width} columns", self.advice)
        long = block["surplus"].is_not_null()
        return self.drop_bad_rows(block, long, f"more than {self.width} columns", self.advice).drop("surplus")

    def _quoted_rows(self, lines: list[str], line_numbers: list[int]) -> tuple[list[list[str]], list[int]]:
        rows, numbers = list[list[str]](), list[int]()
        start = num_reread = 0
        while start < len(lines):
            begin, remaining = start, (f"{line}\n" for line in islice(lines, start, None))
            reader = csv.reader(remaining, strict=True, delimiter=self._separator)
            try:
                for row in reader:
                    if row:
                        rows.append(row)
                        numbers.append(line_numbers[start])
                    start = begin + reader.line_num
            except csv.Error as error:
                self._bad_lines.report(self.path, line_numbers[start], lines[start], _quotes_reason(error))
                num_reread += begin + reader.line_num - start
                if num_reread > MAX_REREAD_LINES:
                    reason = "too many quotes are never closed, so rows cannot be separated"
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
    if compression_from_name(path):
        data = b"".join(iter(lambda: source.read(1 << 22), b""))
    try:
        rows = pl.scan_parquet(data).select(pl.len()).collect().item()
        size = len(data) if isinstance(data, bytes) else path.stat().st_size
        if rows > ROWS_ALWAYS_ALLOWED and rows > MAX_ROWS_PER_BYTE * size:
            raise DataError(f"{path} claims {rows:,} rows in {size:,} bytes: this looks like a bomb of repeated rows")
        frame = pl.read_parquet(data)
        floats = [name for name, kind in frame.schema.items() if kind.is_float()]
        finite = [pl.when(pl.col(name).is_finite()).then(pl.col(name)).alias(name) for name in floats]
        return frame.with_columns(finite).select(pl.all().cast(pl.String))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise ParseError(str(path), None, "", f"not a readable Parquet table ({str(error)[:200]})") from None


def read_table(path: PathLike, kind: str, default_format: str = "") -> tuple[TableFile, pl.DataFrame]:
    """Read a whole table.

    Args:
        path: The file.
        kind: What the table holds, for errors: "label" or "feature".
        default_format: The format of a file whose name tells none.

    Returns:
        The table and all its rows. A header is one of them, except for Parquet, which stores it apart.

    Raises:
        DataError: The file does not exist, or is not a table.
    """
    path = files.existing_path(path, f"{kind} file")
    file = SourceFile(path, files.format_from_name(path) or default_format)
    if file.format not in ("tsv", "csv", "parquet"):
        raise DataError(f"{kind}s are read from TSV, CSV or Parquet, but {path} has none of their suffixes")
    with ByteSource(path) as source:
        table = TableFile(file, source, BadLines(skip=False))
        blocks = list(table.blocks)
    return table, pl.concat(blocks) if blocks else pl.DataFrame(schema={"line": pl.Int64})


class _TableReader(TripleReader):
    """Reads triples from tables.

    If neither a header nor the user tells which columns hold the triples, a table must have exactly three, and its rows
    must read like triples (`headers.refuse_unless_triples`).
    """

    plural = "tables"

    def read(self, reading: Reading) -> None:
        options = reading.columns or TripleColumns()
        width = 3 if options == TripleColumns() else None
        table = TableFile(reading.file, reading.source, reading.bad_lines, width=width, min_width=3)
        _take_header(table, options, reading.file.split)
        if not table.width:
            return
        columns = _columns(table, options)
        if reading.file.split is not None:
            columns.pop("split", None)
        positions = {role: table.position(column) for role, column in columns.items()}
        triple = [positions[role] for role in TRIPLE]
        is_plain = reading.collector.large and reading.file.format != "parquet" and len(positions) == len(set(triple))
        for block in table.triples_or_blocks(triple) if is_plain else table.blocks:
            if isinstance(block, TripleSpans):
                reading.collector.add_spans(block, reading.file.split)
                continue
            for position in positions.values():
                block = table.drop_empty(block, position)
            for role, (parse, reason) in VALUES.items():
                if role in positions:
                    values = parse(block[str(positions[role])])
                    block = table.drop_bad_rows(block.with_columns(values.alias(role)), values.is_null(), reason)
            values_of = {role: block[role].to_numpy() for role in VALUES if role in positions}
            split, names = values_of.get("split", reading.file.split), (block[str(positions[role])] for role in TRIPLE)
            weights, times = values_of.get("weight"), values_of.get("time")
            reading.collector.add(*names, split=split, weights=weights, times=times)


def _take_header(table: TableFile, options: TripleColumns, split: str | None) -> None:
    """Take the header from the first row if it is one; raise an error if the rows may not be triples."""
    first = table.names or table.first_row
    if not first:
        return
    is_named = names_triple(first)
    if is_named and options.triple is None:
        table.width = len(first)
    table.advice = _width_advice(table)
    # Files of other splits have few rows, in which little recurs: they are read like the file of train.
    if options == TripleColumns() and table.width == 3 and not is_named and split in (None, "train"):
        headers.refuse_unless_triples(table.names, table.peek_block(), table.path)
    elif table.names is None and _has_header(table, options):
        table.use_first_row_as_header()


def _has_header(table: TableFile, options: TripleColumns) -> bool:
    if options.header is not None:
        return options.header
    if any(isinstance(column, str) for column in (*(options.triple or ()), options.weight, options.time)):
        return True
    if len(table.first_row) != table.width or table.width < 3:
        return False
    triple = None if options.triple is None else [table.position(column) for column in options.triple]
    return headers.is_header(table.first_row, table.peek_block()[1:], triple, table.path)


def _width_advice(table: TableFile) -> str:
    """Return what to do about a row with another number of columns than the table."""
    width = len(table.first_row)
    if width > table.width:
        return f"say which are subject, relation and object, e.g. {COLUMNS_HINT}; {RECORDS_HINT}"
    if width < table.width:
        hint = "; if all rows are of one relation, add a column that names it" if width == 2 else ""
        return f"a row has a subject, a relation and an object, with tabs, commas or semicolons between them{hint}"
    return f"correct the row, or skip such rows: {option_hint('skip_bad_lines', True)}"


def _columns(table: TableFile, options: TripleColumns) -> dict[str, Column]:
    """Return the column of each role."""
    others = {"weight": options.weight, "time": options.time}
    chosen: dict[str, Column] = {role: column for role, column in others.items() if column is not None}
    if options.triple is not None:
        return {**dict(zip(TRIPLE, options.triple, strict=True)), **chosen}
    by_role = columns_by_role(table.names or []) if options.header is not False else {}
    is_named = set(TRIPLE) <= by_role.keys()
    ambiguous = [role for role in TRIPLE if is_named and len(by_role[role]) > 1]
    if is_named and not ambiguous:
        return {**{role: places[0] for role, places in by_role.items() if len(places) == 1}, **chosen}
    if not is_named and (options != TripleColumns() or table.width == 3):
        return {**dict(zip(TRIPLE, range(3), strict=True)), **chosen}
    roles = " and the ".join(f"{role} ({', '.join(map(str, by_role[role]))})" for role in ambiguous)
    problem, hint = (f", and several may be the {roles}", "") if ambiguous else ("", f"; {RECORDS_HINT}")
    raise DataError(f"{table.path} has {table.width} columns, not 3{problem}; name them, e.g. {COLUMNS_HINT}{hint}")


def _parse_weights(cells: pl.Series) -> pl.Series:
    weights = cells.cast(pl.Float32, strict=False)
    return pl.Series(weights.set(~(weights.is_finite() & (weights >= 0)), None))


def _parse_splits(cells: pl.Series) -> pl.Series:
    return pl.Series(cells.str.to_lowercase().replace_strict(SPLIT_IDS, default=None, return_dtype=pl.Int8))


def _parse_times(cells: pl.Series) -> pl.Series:
    """Parse numbers, and dates as seconds since 1970; null for other cells."""
    numbers = cells.cast(pl.Float64, strict=False)
    dates = cells.str.slice(0, 10).str.to_date("%Y-%m-%d", strict=False).cast(pl.Datetime)
    moments = cells.str.replace(" ", "T").str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", strict=False)
    seconds = moments.fill_null(dates).dt.epoch("ms").cast(pl.Float64) / 1000
    return pl.Series(numbers.fill_nan(None).fill_null(seconds))


# Further columns of a triple: how their cells are parsed, and the reason to reject a row whose value is null then.
VALUES: dict[str, tuple[Callable[[pl.Series], pl.Series], str]] = {
    "time": (_parse_times, "the time is neither a number nor a date (2026-11-16)"),
    "weight": (_parse_weights, "the weight is not a finite number of at least 0"),
    "split": (_parse_splits, "the split is none of train, valid (or dev) and test"),
}


class TsvReader(_TableReader):
    """Reads tables separated by tabs."""

    suffixes = ("tsv", "txt")


class CsvReader(_TableReader):
    """Reads tables separated by commas, with optional quotes."""

    suffixes = ("csv",)


class ParquetReader(_TableReader):
    """Reads Parquet tables."""

    suffixes = ("parquet", "pq")


def escape_formulas(frame: pl.DataFrame) -> pl.DataFrame:
    """Put a quote before names that a spreadsheet would compute as formulas, so that they are text; numbers stay.

    >>> escape_formulas(pl.DataFrame({"name": ["=1+1", "@x", "-5", "plain"]}))["name"].to_list()
    ["'=1+1", "'@x", '-5', 'plain']
    """
    text = pl.col(pl.String)
    risky = text.str.contains(r"^[=+\-@\t\r\n]") & ~text.str.contains(r"^[+-]?[0-9]*\.?[0-9]+([eE][+-]?[0-9]+)?$")
    return frame.with_columns(pl.when(risky).then("'" + text).otherwise(text).name.keep())
