"""Who hears of a training while it goes on: files always; services and trackers from outside on request."""

import csv
import errno
import io
import json
import logging
import math
import os
import re
import shutil
import time
import uuid
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, cast

import yaml

from rgcn.errors import ConfigError, DataError
from rgcn.plugins import TRACKERS
from rgcn.runs.configuration import flat_settings
from rgcn.system.atomic_files import write_atomically
from rgcn.system.lazy import import_extra

Value = float | int | None
STEP = "number"
FLUSH_SECONDS = 10  # of TensorBoard
EXIT_CODE = {"finished": 0, "interrupted": 255, "failed": 1}  # wandb shows 255 as killed
STATUS = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}
LOCAL_STORE = "sqlite:///mlflow.db"  # what `mlflow ui` opens by itself; MLflow 3 refuses its old store of plain files
SEND_SECONDS = 5.0
LARGEST_BATCH, MOST_PARAMETERS, LONGEST_VALUE = 1000, 100, 500  # MLflow's own limits


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
    kind = _class_of(tracker)
    kind.check()
    return SurvivingTracker(tracker, kind(folder, name, config, from_step))


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
        self._paths = jsonl, table = folder / "metrics.jsonl", folder / "metrics.csv"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            kept = [row for row in read_metrics(jsonl, keep_damage=True) if row[STEP] <= from_step]
            _put_aside_what_only_the_table_has(table, kept, from_step)
            lines = [(b"", _csv(self._columns)), *map(self._lines, kept)]
            for path, content in zip(self._paths, map(b"".join, zip(*lines, strict=True)), strict=True):
                write_atomically(path, content)
            self._files = [cast(BinaryIO, path.open("ab", buffering=0)) for path in self._paths]
        except OSError as error:
            raise _cannot_write(jsonl, error) from error

    def report(self, step: int, values: Mapping[str, Value]) -> None:
        if unknown := set(values).difference(self._columns):
            raise ValueError(f"reports have the columns {self._columns}, not {sorted(unknown)}")
        lines = self._lines({column: values.get(column) for column in self._columns} | {STEP: step})
        sizes = [file.seek(0, io.SEEK_END) for file in self._files]
        try:
            for file, line in zip(self._files, lines, strict=True):
                if file.write(line) != len(line):  # a full disk takes a part, and complains the next time only
                    raise OSError(errno.ENOSPC, "No space left on device")
        except OSError as error:
            for file, size in zip(self._files, sizes, strict=True):
                file.truncate(size)  # half a line would be worse than none; giving space back works on a full disk
            raise _cannot_write(self._paths[0], error) from error

    def close(self, outcome: str) -> None:
        for file in self._files:
            file.close()

    def _lines(self, row: Mapping[str, Any]) -> tuple[bytes, bytes]:
        """A report as a line of each file. JSON has no NaN and no infinity: what is not a number is null."""
        plain = {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in row.items()}
        return json.dumps(plain).encode() + b"\n", _csv([plain.get(column) for column in self._columns])


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


def _cannot_write(path: Path, error: OSError) -> DataError:
    if error.errno == errno.ENOSPC:
        return DataError(f"{path}: the disk is full; what was written before is intact: make room, then resume the run")
    return DataError(f"{path}: cannot be written: {error.strerror or error}")


class TensorBoardTracker(RunTracker):
    """Event files in FOLDER/tensorboard, a curve for each value: `tensorboard --logdir runs` shows every run there."""

    extra = "tensorboard"

    def __init__(self, folder: Path, name: str, config: Mapping[str, Any], from_step: int) -> None:
        writer = import_extra("tensorboard", "tensorboard", "torch.utils.tensorboard").SummaryWriter
        target = folder / "tensorboard"
        # A run that goes on writes the steps after its checkpoint again: the first ones must not be shown twice.
        purge = from_step + 1 if target.is_dir() and any(target.iterdir()) else None
        self._writer = writer(str(target), purge_step=purge, flush_secs=FLUSH_SECONDS, max_queue=1000)
        self._step = from_step
        text = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)
        indented = "".join(f"    {line}\n" for line in text.splitlines())  # a code block, in Markdown
        self._writer.add_text("configuration", indented, from_step)

    def report(self, step: int, values: Mapping[str, Value]) -> None:
        self._step = step
        for key, value in values.items():
            if value is not None and key != "number":
                self._writer.add_scalar(key, value, step)

    def finish(self, metrics: Mapping[str, Mapping[str, float]]) -> None:
        for key, value in by_split(metrics).items():
            self._writer.add_scalar(key, value, self._step)

    def close(self, outcome: str) -> None:
        self._writer.add_text("outcome", outcome, self._step)
        self._writer.close()


class WandbTracker(RunTracker):
    """A run of the project "rgcn" (or WANDB_PROJECT), which a resumed training goes on with.

    With WANDB_MODE=offline reports stay in the run's folder until `wandb sync`.
    """

    extra = "wandb"

    def __init__(self, folder: Path, name: str, config: Mapping[str, Any], from_step: int) -> None:
        wandb = import_extra("wandb", "wandb")
        run_id = remembered_id(folder, "wandb") or uuid.uuid4().hex[:12]
        try:
            self._run = wandb.init(
                project=os.environ.get("WANDB_PROJECT") or "rgcn",
                name=name,
                id=run_id,
                resume="allow",
                dir=str(folder),
                config=dict(config),
                # Silent, and hands off our output: --json prints one document and nothing else.
                settings=wandb.Settings(silent=True, console="off"),
            )
        except Exception as error:
            raise cannot_start("wandb", error, "run `wandb login`, or set WANDB_MODE=offline") from error
        remember_id(folder, "wandb", run_id)

    def report(self, step: int, values: Mapping[str, Value]) -> None:
        self._run.log({key: value for key, value in values.items() if value is not None}, step=step)

    def finish(self, metrics: Mapping[str, Mapping[str, float]]) -> None:
        self._run.summary.update(by_split(metrics))

    def close(self, outcome: str) -> None:
        self._run.finish(exit_code=EXIT_CODE.get(outcome, 1))


class MlflowTracker(RunTracker):
    """A run of the experiment "rgcn" (or MLFLOW_EXPERIMENT_NAME), which a resumed training goes on with: settings as
    parameters, every value with its step, once, since MLflow cannot take one back.

    It is on a server where MLFLOW_TRACKING_URI names one, else in a SQLite file in the working folder.
    """

    extra = "mlflow"

    def __init__(self, folder: Path, name: str, config: Mapping[str, Any], from_step: int) -> None:
        tracking = import_extra("mlflow", "mlflow", "mlflow.tracking")
        self._entities = import_extra("mlflow", "mlflow", "mlflow.entities")
        address = os.environ.get("MLFLOW_TRACKING_URI") or LOCAL_STORE
        for package in ("sqlalchemy", "alembic") if address.startswith("sqlite:") else ():  # mlflow-skinny has none
            import_extra(package, "mlflow")
        for chatty in ("mlflow", "alembic"):  # a new store tells of each of its fifty migrations
            logging.getLogger(chatty).setLevel(logging.WARNING)
        try:
            self._client = tracking.MlflowClient(tracking_uri=address)
            self._run_id, self._sent_to = self._go_on(folder) or (self._begin(name), 0)
            remember_id(folder, "mlflow", self._run_id)
            self._log_settings(config)
        except Exception as error:
            raise cannot_start("mlflow", error, "check MLFLOW_TRACKING_URI") from error
        self._step = from_step
        self._waiting: list[Any] = []
        self._last_sent = time.monotonic()
        for row in read_metrics(folder / "metrics.jsonl"):  # a killed session takes what it had not sent yet with it
            if row["number"] <= from_step:
                self._add(row["number"], row)

    def report(self, step: int, values: Mapping[str, Value]) -> None:
        self._step = step
        self._add(step, values)
        if time.monotonic() - self._last_sent >= SEND_SECONDS:
            self._send()

    def finish(self, metrics: Mapping[str, Mapping[str, float]]) -> None:
        self._sent_to = 0  # final figures are sent anew by whoever finishes, whatever step that was
        self._add(self._step, by_split(metrics))
        self._send()

    def close(self, outcome: str) -> None:
        self._send()
        self._client.set_terminated(self._run_id, STATUS.get(outcome, "FAILED"))

    def _begin(self, name: str) -> str:
        experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "rgcn"
        found = self._client.get_experiment_by_name(experiment)
        try:
            number = self._client.create_experiment(experiment) if found is None else found.experiment_id
        except Exception:  # another run may have made it in the meantime
            found = self._client.get_experiment_by_name(experiment)
            if found is None:
                raise
            number = found.experiment_id
        return str(self._client.create_run(str(number), run_name=name).info.run_id)

    def _go_on(self, folder: Path) -> tuple[str, int] | None:
        """(id, last step sent) of the run of an earlier session, or None where there is none any more."""
        run_id = remembered_id(folder, "mlflow")
        if run_id is None:
            return None
        try:
            run = self._client.get_run(run_id)
        except import_extra("mlflow", "mlflow", "mlflow.exceptions").MlflowException as error:
            if getattr(error, "error_code", "") != "RESOURCE_DOES_NOT_EXIST":
                raise
            run = None
        if run is None or run.info.lifecycle_stage != "active":
            warnings.warn(f"MLflow no longer has the run {run_id}: reports go on in a new one", stacklevel=4)
            return None
        self._client.update_run(run_id, status="RUNNING")
        reported = [key for key in run.data.metrics if "/" not in key]
        steps = [metric.step for key in reported for metric in self._client.get_metric_history(run_id, key)]
        return run_id, max(steps, default=0)

    def _log_settings(self, config: Mapping[str, Any]) -> None:
        known = self._client.get_run(self._run_id).data.params  # MLflow refuses to change one
        settings = {_allowed(key): str(value)[:LONGEST_VALUE] for key, value in flat_settings(config).items()}
        new = [self._entities.Param(key, value) for key, value in settings.items() if key not in known]
        for start in range(0, len(new), MOST_PARAMETERS):
            self._client.log_batch(self._run_id, params=new[start : start + MOST_PARAMETERS])

    def _add(self, step: int, values: Mapping[str, Value]) -> None:
        """Put values in line to be sent, unless an earlier session sent them."""
        now = int(time.time() * 1000)
        told = {key: value for key, value in values.items() if value is not None and key != "number"}
        if step > self._sent_to:
            self._waiting += [self._entities.Metric(_allowed(k), float(v), now, step) for k, v in told.items()]

    def _send(self) -> None:
        for start in range(0, len(self._waiting), LARGEST_BATCH):
            self._client.log_batch(self._run_id, metrics=self._waiting[start : start + LARGEST_BATCH])
        self._waiting.clear()
        self._last_sent = time.monotonic()


def _allowed(name: str) -> str:
    """MLflow's names have no @: hits@10 becomes hits_at_10."""
    return re.sub(r"[^\w\-. :/]", "_", name.replace("@", "_at_"))


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
