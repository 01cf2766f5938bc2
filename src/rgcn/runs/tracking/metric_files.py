"""metrics.jsonl and metrics.csv: the record that every run keeps, whatever else it reports to."""

from __future__ import annotations

import csv
import errno
import io
import json
import math
import shutil
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

from rgcn.atomic import write_atomically
from rgcn.errors import DataError
from rgcn.runs.tracking import RunTracker, Value

STEP = "number"


class MetricFiles(RunTracker):
    """Each report as a line of metrics.jsonl and a row of metrics.csv, on disk before the next step begins.

    A line is handed to the system in one write: a killed process leaves at most its last line incomplete. There is no
    fsync for each line, which would cost more than a small step of training; after a power cut the last lines may be
    missing, and the checkpoint from which the run goes on makes them again.

    columns    names of the values, in the order of metrics.csv; the step comes first, as "number"
    from_step  the step of the checkpoint a run goes on from: later lines go, since they will be made again
    """

    def __init__(self, folder: Path, columns: Sequence[str], from_step: int = 0) -> None:
        self._columns = [STEP, *(column for column in columns if column != STEP)]
        jsonl, table = folder / "metrics.jsonl", folder / "metrics.csv"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            kept = [row for row in read_metrics(jsonl, keep_damage=True) if row[STEP] <= from_step]
            _put_aside_what_only_the_table_has(table, kept, from_step)
            _rewrite(jsonl, b"".join(map(_json_line, kept)))
            _rewrite(table, self._csv_line(self._columns) + b"".join(map(self._csv_row, kept)))
            self._files = [cast(BinaryIO, path.open("ab", buffering=0)) for path in (jsonl, table)]
        except OSError as error:
            raise _cannot_write(jsonl, error) from error
        self._folder = folder

    def report(self, step: int, values: Mapping[str, Value]) -> None:
        unknown = set(values).difference(self._columns)
        if unknown:
            raise ValueError(f"reports have the columns {self._columns}, not {sorted(unknown)}")
        row = {column: values.get(column) for column in self._columns} | {STEP: step}
        sizes = [file.seek(0, io.SEEK_END) for file in self._files]
        try:
            for file, line in zip(self._files, (_json_line(row), self._csv_row(row)), strict=True):
                if file.write(line) != len(line):  # a full disk takes a part, and complains the next time only
                    raise OSError(errno.ENOSPC, "No space left on device")
        except OSError as error:
            for file, size in zip(self._files, sizes, strict=True):
                file.truncate(size)  # half a line would be worse than none; giving space back works on a full disk
            raise _cannot_write(self._folder / "metrics.jsonl", error) from error

    def close(self, outcome: str) -> None:
        for file in self._files:
            file.close()

    def _csv_row(self, row: Mapping[str, Any]) -> bytes:
        return self._csv_line(["" if (value := _plain(row.get(c))) is None else value for c in self._columns])

    @staticmethod
    def _csv_line(cells: Sequence[Any]) -> bytes:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(cells)
        return text.getvalue().encode()


def read_metrics(path: Path, keep_damage: bool = False) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl, in order; one that cannot be read is left out with a warning, the rest stays.

    A missing file is an empty one: a run that has not reported yet. keep_damage: where something cannot be read, the
    file as it was is put aside, for whoever is about to write it anew.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    rows = {number: _row(line) for number, line in enumerate(lines, start=1) if line.strip()}
    damaged = [str(number) for number, row in rows.items() if row is None]
    if damaged:
        shown = ", ".join(damaged[:5]) + (" and more" if len(damaged) > 5 else "")
        words = f"{path}: line{'s' if len(damaged) > 1 else ''} {shown} cannot be read, so left out"
        if keep_damage:
            words += f" (cut off by a kill, probably); the file as it was is kept as {_put_aside(path)}"
        warnings.warn(words, stacklevel=2)
    return [row for row in rows.values() if row is not None]


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:  # not JSON, or not even text
        return None
    return row if isinstance(row, dict) and type(row.get(STEP)) is int else None


def _put_aside_what_only_the_table_has(table: Path, kept: Sequence[Mapping[str, Any]], from_step: int) -> None:
    """metrics.csv is written anew from metrics.jsonl; where that has lost lines, the table is worth keeping."""
    if not table.is_file():
        return
    firsts = [line.split(b",", 1)[0] for line in table.read_bytes().splitlines()]
    told = {int(first) for first in firsts if first.isdigit() and int(first) <= from_step}
    if told <= {row[STEP] for row in kept}:
        return
    warnings.warn(
        f"{table} has reports that metrics.jsonl has not, and is made from it: as it was it is kept as "
        f"{_put_aside(table)}",
        stacklevel=4,
    )


def _put_aside(path: Path) -> str:
    """Copy a file to a name that is free; that name."""
    number = 1
    while (aside := path.with_name(f"{path.stem}.damaged-{number}{path.suffix}")).exists():
        number += 1
    shutil.copyfile(path, aside)
    return aside.name


def _rewrite(path: Path, content: bytes) -> None:
    if not path.is_file() or path.read_bytes() != content:
        write_atomically(path, content)


def _json_line(row: Mapping[str, Any]) -> bytes:
    return json.dumps({key: _plain(value) for key, value in row.items()}, allow_nan=False).encode() + b"\n"


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity: what is not a number is null."""
    if value is None or isinstance(value, bool | int | str):
        return value
    number = float(value)
    return number if math.isfinite(number) else None


def _cannot_write(path: Path, error: OSError) -> DataError:
    if error.errno == errno.ENOSPC:
        return DataError(f"{path}: the disk is full; what was written before is intact: make room, then resume the run")
    return DataError(f"{path}: cannot be written: {error.strerror or error}")
