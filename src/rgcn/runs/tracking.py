"""Who hears of a training while it goes on: files always, others on request (`rgcn.plugins.TRACKERS`)."""

import csv
import errno
import io
import json
import math
import shutil
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, cast

from rgcn.errors import ConfigError, DataError
from rgcn.plugins import TRACKERS
from rgcn.system.atomic_files import write_atomically
from rgcn.system.lazy import import_extra

Value = float | int | None
STEP = "number"


class RunTracker(ABC):
    """Hears of a training while it goes on: any number of reports, the final metrics if it gets there, then the end.

    One of your own is a subclass, chosen as `--track package.module:Class` or by `trackers` in a configuration, or by a
    name once a package registers it under the entry points `rgcn.trackers`. It is made when a training starts and again
    when one goes on. What it raises then stops the run; what it raises later leaves it behind with a warning.

    folder     the run's folder, to keep files in; `remember_id` keeps what a service calls the run for the next session
    name       what the run is called
    config     the settings, nested
    from_step  the step of the checkpoint the run goes on from; 0 for a new run. Later ones, if heard before, come again
    """

    extra: ClassVar[str | None] = None  # the package it needs, where an extra of the same name brings it

    def __init__(self, folder: Path, name: str, config: Mapping[str, Any], from_step: int) -> None:
        self.folder, self.name, self.config, self.from_step = folder, name, config, from_step

    @classmethod
    def check(cls) -> None:
        """Raise a ConfigError where something is missing, such as a package: asked before the data are read."""
        if cls.extra is not None:
            import_extra(cls.extra, cls.extra)

    @abstractmethod
    def report(self, step: int, values: Mapping[str, Value]) -> None:
        """What training did up to a step; None stands for a value that was not measured."""

    def finish(self, metrics: Mapping[str, Mapping[str, float]]) -> None:  # noqa: B027
        """Final metrics by split, {"test": {"accuracy": 0.95}}; `close` follows."""

    def close(self, outcome: str) -> None:  # noqa: B027
        """The end, always called last: "finished", "interrupted" or "failed"."""


def check_trackers(names: Sequence[str]) -> None:
    """Raise an error where a tracker cannot be had: worth knowing before the data are read."""
    for name in names:
        _class_of(name).check()


def open_tracker(tracker: str, folder: Path, name: str, config: Mapping[str, Any], from_step: int) -> RunTracker:
    """A tracker of a run, ready for reports (see `RunTracker`); one that cannot start raises a ConfigError."""
    return SurvivingTracker(tracker, _class_of(tracker)(folder, name, config, from_step))


def _class_of(name: str) -> type[RunTracker]:
    try:
        return TRACKERS.find(name)
    except DataError as error:  # a run's folder names a package that is not here, or that nobody has allowed
        without = "go on without it: `rgcn resume --no-track`, or leave it out of `trackers`"
        raise DataError(f"{error}; or {without}") from error


class SurvivingTracker(RunTracker):
    """A tracker that may fail without taking the training with it: a server that is gone after nine hours is no reason
    to lose the tenth. One warning, then silence."""

    def __init__(self, name: str, tracker: RunTracker) -> None:
        self.name = name
        self._tracker: RunTracker | None = tracker

    def report(self, step: int, values: Mapping[str, Value]) -> None:
        self._tell("report", step, values)

    def finish(self, metrics: Mapping[str, Mapping[str, float]]) -> None:
        self._tell("finish", metrics)

    def close(self, outcome: str) -> None:
        self._tell("close", outcome)
        self._tracker = None

    def _tell(self, method: str, *arguments: Any) -> None:
        if self._tracker is None:
            return
        try:
            getattr(self._tracker, method)(*arguments)
        except Exception as error:
            self._tracker = None
            warnings.warn(
                f"{self.name} stopped taking reports ({_first_line(error)}); the training goes on without it, and "
                "metrics.jsonl keeps every report",
                stacklevel=4,
            )


class MetricFiles(RunTracker):
    """Each report as a line of metrics.jsonl and a row of metrics.csv, on disk before the next step begins.

    A line is handed to the system in one write: a killed process leaves at most its last line incomplete. There is no
    fsync for each line, which would cost more than a small step of training; what a power cut takes is made again.

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
            _rewrite(table, _csv(self._columns) + b"".join(map(self._csv_line, kept)))
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
            for file, line in zip(self._files, (_json_line(row), self._csv_line(row)), strict=True):
                if file.write(line) != len(line):  # a full disk takes a part, and complains the next time only
                    raise OSError(errno.ENOSPC, "No space left on device")
        except OSError as error:
            for file, size in zip(self._files, sizes, strict=True):
                file.truncate(size)  # half a line would be worse than none; giving space back works on a full disk
            raise _cannot_write(self._folder / "metrics.jsonl", error) from error

    def close(self, outcome: str) -> None:
        for file in self._files:
            file.close()

    def _csv_line(self, row: Mapping[str, Any]) -> bytes:
        return _csv([_plain(row.get(column)) for column in self._columns])


def _csv(cells: Sequence[Any]) -> bytes:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue().encode()


def read_metrics(path: Path, keep_damage: bool = False) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl, in order, none of one that is not there; what cannot be read is left out.

    keep_damage: then the file as it was is put aside, for whoever is about to write it anew.
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


def cannot_start(tracker: str, error: Exception, advice: str) -> ConfigError:
    """A tracker that fails before the training starts stops it: the user is still there to hear it."""
    return ConfigError(f"{tracker} cannot start ({_first_line(error)}): {advice}, or leave {tracker} out of `trackers`")


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')[:300]}"


def remembered_id(folder: Path, tracker: str) -> str | None:
    """The id a tracker gave this run in an earlier session; tracking.json holds nothing else, no address, no key."""
    found = _ids(folder).get(tracker)
    return found if isinstance(found, str) else None


def remember_id(folder: Path, tracker: str, run_id: str) -> None:
    ids = _ids(folder)
    if ids.get(tracker) != run_id:
        write_atomically(folder / "tracking.json", json.dumps({**ids, tracker: run_id}, indent=2) + "\n")


def _ids(folder: Path) -> dict[str, Any]:
    path = folder / "tracking.json"
    try:
        ids = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (OSError, ValueError) as error:
        warnings.warn(f"{path} cannot be read ({error}): services start new runs of their own", stacklevel=3)
        ids = {}
    return ids if isinstance(ids, dict) else {}


def by_split(metrics: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Final metrics under one name each.

    >>> by_split({"test": {"accuracy": 0.95}})
    {'test/accuracy': 0.95}
    """
    return {f"{split}/{name}": value for split, values in metrics.items() for name, value in values.items()}
