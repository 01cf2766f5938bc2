"""Record the reports of a training: in files, and on request with TensorBoard, MLflow, wandb or a class of your own."""

import csv
import errno
import io
import itertools
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
FLUSH_SECONDS = 10  # for TensorBoard
EXIT_CODE = {"finished": 0, "interrupted": 255, "failed": 1}  # wandb shows 255 as killed
STATUS = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}
LOCAL_STORE = "sqlite:///mlflow.db"  # the default of `mlflow ui`; MLflow 3 refuses its old store of plain files
SEND_INTERVAL_S = 5.0
MAX_METRICS, MAX_PARAMETERS, MAX_VALUE_LENGTH = 1000, 100, 500  # per request, set by MLflow


class RunTracker(ABC):
    """Receives the reports of a training: any number of `report` calls, then `finish`, then `close`.

    To write a tracker, subclass this class. Choose it with `--track package.module:Class`, with `trackers` in a
    configuration, or by a name that a package registers under the entry points `rgcn.trackers`. A tracker is created
    when a training starts and again when it is resumed. An error raised by its constructor stops the run. An error
    raised later disables the tracker with a warning, and the training continues.

    Args:
        folder: The folder of the run. `store_run_id` keeps the id that a service gave the run for later sessions.
        name: The name of the run.
        config: The settings, nested by section.
        from_step: The step of the checkpoint that the run resumes from; 0 for a new run. Later steps are reported
            again, even if an earlier session reported them.
    """

    extra: ClassVar[str | None] = None  # the package it needs, where an extra of the same name brings it

    def __init__(self, folder: Path, name: str, config: Mapping[str, Any], from_step: int) -> None:
        self.folder, self.name, self.config, self.from_step = folder, name, config, from_step

    @classmethod
    def check(cls) -> None:
        """Raise a ConfigError if something is missing, such as a package. Called before the data are loaded."""
        if cls.extra is not None:
            import_extra(cls.extra, cls.extra)

    @abstractmethod
    def report(self, step: int, values: Mapping[str, Value]) -> None:
        """Record the values of a step; None stands for a value that was not measured."""

    def finish(self, metrics: Mapping[str, Mapping[str, float]]) -> None:  # noqa: B027
        """Record the final metrics, `{"test": {"accuracy": 0.95}}`. `close` follows."""

    def close(self, outcome: str) -> None:  # noqa: B027
        """End the session. Always called last, with "finished", "interrupted" or "failed"."""


def check_trackers(names: Sequence[str]) -> None:
    """Raise an error if a tracker cannot be used. Called before the data are loaded."""
    for name in names:
        _class_of(name).check()


def open_tracker(tracker: str, folder: Path, name: str, config: Mapping[str, Any], from_step: int) -> RunTracker:
    """Start a tracker. Errors while it starts stop the run; later ones only disable it.

    Args:
        tracker: Its name.
        folder: See `RunTracker`.
        name: See `RunTracker`.
        config: See `RunTracker`.
        from_step: See `RunTracker`.

    Raises:
        ConfigError: The tracker cannot start.
    """
    kind = _class_of(tracker)
    kind.check()
    return SurvivingTracker(tracker, kind(folder, name, config, from_step))


def _class_of(name: str) -> type[RunTracker]:
    try:
        return TRACKERS.resolve(name)
    except DataError as error:  # a run folder names a package that is not installed, or not allowed
        advice = "continue without it: `rgcn resume --no-track`, or remove it from `trackers`"
        raise DataError(f"{error}; or {advice}") from error


class SurvivingTracker(RunTracker):
    """Wraps a tracker, so that its errors do not stop the training: the first one gives a warning and disables it."""

    def __init__(self, name: str, tracker: RunTracker) -> None:
        self.name = name
        self._tracker: RunTracker | None = tracker

    def report(self, step: int, values: Mapping[str, Value]) -> None:
        """Pass the values on."""
        self._call("report", step, values)

    def finish(self, metrics: Mapping[str, Mapping[str, float]]) -> None:
        """Pass the metrics on."""
        self._call("finish", metrics)

    def close(self, outcome: str) -> None:
        """Close the tracker."""
        self._call("close", outcome)

    def _call(self, method: str, *arguments: Any) -> None:
        if self._tracker is None:
            return
        try:
            getattr(self._tracker, method)(*arguments)
        except Exception as error:
            self._tracker = None
            effect = "the training continues without it, and metrics.jsonl has every report"
            warnings.warn(f"{self.name} stopped taking reports ({_first_line(error)}); {effect}", stacklevel=4)


class MetricFiles(RunTracker):
    """Writes each report as a line of metrics.jsonl and a row of metrics.csv, before the next step begins.

    Each line is one write to the operating system, so a killed process leaves at most its last line incomplete. There
    is no fsync per line, because it takes longer than a small step; a resumed run repeats what a power cut removes.

    Args:
        folder: The folder of the run.
        columns: Names of the values, in the order of metrics.csv. The step comes first, as "number".
        from_step: The step of the checkpoint that the run resumes from. Later lines are removed, since those steps are
            repeated.
    """

    def __init__(self, folder: Path, columns: Sequence[str], from_step: int = 0) -> None:
        self._columns = [STEP, *(column for column in columns if column != STEP)]
        self._paths = jsonl, table = folder / "metrics.jsonl", folder / "metrics.csv"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            rows = [row for row in read_metrics(jsonl, back_up=True) if row[STEP] <= from_step]
            _back_up_longer_table(table, rows, from_step)
            lines = [(b"", _csv(self._columns)), *map(self._lines, rows)]
            for path, content in zip(self._paths, map(b"".join, zip(*lines, strict=True)), strict=True):
                write_atomically(path, content)
            self._files = [cast(BinaryIO, path.open("ab", buffering=0)) for path in self._paths]
        except OSError as error:
            raise _cannot_write(jsonl, error) from error

    def report(self, step: int, values: Mapping[str, Value]) -> None:
        """Append a line to each file."""
        if unknown := set(values).difference(self._columns):
            raise ValueError(f"unknown columns {sorted(unknown)}; reports have {self._columns}")
        lines = self._lines({column: values.get(column) for column in self._columns} | {STEP: step})
        sizes = [file.seek(0, io.SEEK_END) for file in self._files]
        try:
            for file, line in zip(self._files, lines, strict=True):
                if file.write(line) != len(line):  # a full disk accepts a part, and fails at the next write
                    raise OSError(errno.ENOSPC, "No space left on device")
        except OSError as error:
            for file, size in zip(self._files, sizes, strict=True):
                file.truncate(size)  # removing the half line works on a full disk, too
            raise _cannot_write(self._paths[0], error) from error

    def close(self, outcome: str) -> None:
        """Close the files."""
        for file in self._files:
            file.close()

    def _lines(self, row: Mapping[str, Any]) -> tuple[bytes, bytes]:
        """Return a report as a line of each file. JSON has no NaN and no infinity: they become null."""
        plain = {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in row.items()}
        return json.dumps(plain).encode() + b"\n", _csv([plain.get(column) for column in self._columns])


def _csv(cells: Sequence[Any]) -> bytes:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue().encode()


def read_metrics(path: Path, back_up: bool = False) -> list[dict[str, Any]]:
    """Read the reports in a metrics.jsonl. A missing file has none; unreadable lines give a warning and are skipped.

    Args:
        path: The file.
        back_up: Copy a damaged file before it is rewritten.

    Raises:
        DataError: The file cannot be read.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    rows = {number: _row(line) for number, line in enumerate(lines, start=1) if line.strip()}
    if damaged := [str(number) for number, row in rows.items() if row is None]:
        shown = ", ".join(damaged[:5]) + (" and more" if len(damaged) > 5 else "")
        message = f"{path}: line{'s' if len(damaged) > 1 else ''} {shown} cannot be read, and is skipped"
        if back_up:
            message += f" (probably cut off by a kill); a copy of the file is {_back_up(path)}"
        warnings.warn(message, stacklevel=2)
    return [row for row in rows.values() if row is not None]


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:  # neither JSON nor text
        return None
    return row if isinstance(row, dict) and type(row.get(STEP)) is int else None


def _back_up_longer_table(table: Path, rows: Sequence[Mapping[str, Any]], from_step: int) -> None:
    """Copy metrics.csv if it has reports that metrics.jsonl lost; it is rewritten from metrics.jsonl."""
    if not table.is_file():
        return
    first_cells = [line.split(b",", 1)[0] for line in table.read_bytes().splitlines()]
    steps = {int(cell) for cell in first_cells if cell.isdigit() and int(cell) <= from_step}
    if not steps <= {row[STEP] for row in rows}:
        message = f"{table} has reports that metrics.jsonl lacks, and is rewritten from it; a copy is {_back_up(table)}"
        warnings.warn(message, stacklevel=4)


def _back_up(path: Path) -> str:
    """Copy a file to a free name, and return the name."""
    copies = (path.with_name(f"{path.stem}.damaged-{number}{path.suffix}") for number in itertools.count(1))
    return str(shutil.copyfile(path, next(copy for copy in copies if not copy.exists())).name)


def _cannot_write(path: Path, error: OSError) -> DataError:
    full = "the disk is full; earlier reports are intact: free some space, then resume the run"
    other = f"cannot be written: {error.strerror or error}"
    return DataError(f"{path}: {full if error.errno == errno.ENOSPC else other}")


class TensorBoardTracker(RunTracker):
    """Writes event files to FOLDER/tensorboard, one curve per value. `tensorboard --logdir runs` shows all runs."""

    extra = "tensorboard"

    def __init__(self, folder: Path, name: str, config: Mapping[str, Any], from_step: int) -> None:
        writer = import_extra("tensorboard", "tensorboard", "torch.utils.tensorboard").SummaryWriter
        target = folder / "tensorboard"
        # A resumed run writes the steps after its checkpoint again: hide the earlier ones.
        purge = from_step + 1 if target.is_dir() and any(target.iterdir()) else None
        self._writer = writer(str(target), purge_step=purge, flush_secs=FLUSH_SECONDS, max_queue=1000)
        self._step = from_step
        text = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)
        indented = "".join(f"    {line}\n" for line in text.splitlines())  # a code block, in Markdown
        self._writer.add_text("configuration", indented, from_step)

    def report(self, step: int, values: Mapping[str, Value]) -> None:
        """Write a scalar for each value."""
        self._step = step
        for key, value in values.items():
            if value is not None and key != "number":
                self._writer.add_scalar(key, value, step)

    def finish(self, metrics: Mapping[str, Mapping[str, float]]) -> None:
        """Write the final metrics as scalars."""
        for key, value in flat_metrics(metrics).items():
            self._writer.add_scalar(key, value, self._step)

    def close(self, outcome: str) -> None:
        """Write how the session ended."""
        self._writer.add_text("outcome", outcome, self._step)
        self._writer.close()


class WandbTracker(RunTracker):
    """Writes to the project "rgcn" (or WANDB_PROJECT). A resumed training continues the same wandb run.

    With WANDB_MODE=offline, reports stay in the run's folder until `wandb sync`.
    """

    extra = "wandb"

    def __init__(self, folder: Path, name: str, config: Mapping[str, Any], from_step: int) -> None:
        wandb = import_extra("wandb", "wandb")
        run_id = stored_run_id(folder, "wandb") or uuid.uuid4().hex[:12]
        names = {"project": os.environ.get("WANDB_PROJECT") or "rgcn", "name": name, "id": run_id, "dir": str(folder)}
        try:
            # No output of its own: --json must print one document and nothing else.
            settings = wandb.Settings(silent=True, console="off")
            self._run = wandb.init(**names, resume="allow", config=dict(config), settings=settings)
        except Exception as error:
            raise start_error("wandb", error, "run `wandb login`, or set WANDB_MODE=offline") from error
        store_run_id(folder, "wandb", run_id)

    def report(self, step: int, values: Mapping[str, Value]) -> None:
        """Log the values."""
        self._run.log({key: value for key, value in values.items() if value is not None}, step=step)

    def finish(self, metrics: Mapping[str, Mapping[str, float]]) -> None:
        """Write the final metrics to the summary."""
        self._run.summary.update(flat_metrics(metrics))

    def close(self, outcome: str) -> None:
        """Finish the wandb run with an exit code."""
        self._run.finish(exit_code=EXIT_CODE.get(outcome, 1))


class MlflowTracker(RunTracker):
    """Writes to the experiment "rgcn" (or MLFLOW_EXPERIMENT_NAME). A resumed training continues the same MLflow run.

    Settings become parameters. Each value is sent once with its step, because MLflow cannot delete values. The server
    is MLFLOW_TRACKING_URI; without one, a SQLite file in the working folder is used.
    """

    extra = "mlflow"

    def __init__(self, folder: Path, name: str, config: Mapping[str, Any], from_step: int) -> None:
        tracking = import_extra("mlflow", "mlflow", "mlflow.tracking")
        self._entities = import_extra("mlflow", "mlflow", "mlflow.entities")
        address = os.environ.get("MLFLOW_TRACKING_URI") or LOCAL_STORE
        for package in ("sqlalchemy", "alembic") if address.startswith("sqlite:") else ():  # mlflow-skinny lacks them
            import_extra(package, "mlflow")
        for logger in ("mlflow", "alembic"):  # a new store logs each of its fifty migrations
            logging.getLogger(logger).setLevel(logging.WARNING)
        try:
            self._client = tracking.MlflowClient(tracking_uri=address)
            self._run_id, self._sent_to = self._resume(folder) or (self._create(name), 0)
            store_run_id(folder, "mlflow", self._run_id)
            self._log_settings(config)
        except Exception as error:
            raise start_error("mlflow", error, "check MLFLOW_TRACKING_URI") from error
        self._step = from_step
        self._waiting: list[Any] = []
        self._last_sent = time.monotonic()
        for row in read_metrics(folder / "metrics.jsonl"):  # values that a killed session did not send
            if row["number"] <= from_step:
                self._add(row["number"], row)

    def report(self, step: int, values: Mapping[str, Value]) -> None:
        """Queue the values, and send them every few seconds."""
        self._step = step
        self._add(step, values)
        if time.monotonic() - self._last_sent >= SEND_INTERVAL_S:
            self._send()

    def finish(self, metrics: Mapping[str, Mapping[str, float]]) -> None:
        """Send the final metrics."""
        self._sent_to = 0  # final metrics are always sent
        self._add(self._step, flat_metrics(metrics))
        self._send()

    def close(self, outcome: str) -> None:
        """Send what is queued, and set the status of the MLflow run."""
        self._send()
        self._client.set_terminated(self._run_id, STATUS.get(outcome, "FAILED"))

    def _create(self, name: str) -> str:
        title, find = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "rgcn", self._client.get_experiment_by_name
        try:
            if find(title) is None:
                self._client.create_experiment(title)
        except Exception:  # another run may have created it meanwhile
            if find(title) is None:
                raise
        return str(self._client.create_run(find(title).experiment_id, run_name=name).info.run_id)

    def _resume(self, folder: Path) -> tuple[str, int] | None:
        """Return id and last sent step of an earlier session's MLflow run, or None if it does not exist."""
        run_id = stored_run_id(folder, "mlflow")
        if run_id is None:
            return None
        try:
            run = self._client.get_run(run_id)
        except import_extra("mlflow", "mlflow", "mlflow.exceptions").MlflowException as error:
            if getattr(error, "error_code", "") != "RESOURCE_DOES_NOT_EXIST":
                raise
            run = None
        if run is None or run.info.lifecycle_stage != "active":
            warnings.warn(f"MLflow no longer has the run {run_id}: a new one is started", stacklevel=4)
            return None
        self._client.update_run(run_id, status="RUNNING")
        history = [self._client.get_metric_history(run_id, key) for key in run.data.metrics if "/" not in key]
        return run_id, max((metric.step for metrics in history for metric in metrics), default=0)

    def _log_settings(self, config: Mapping[str, Any]) -> None:
        known = self._client.get_run(self._run_id).data.params  # MLflow refuses to change a parameter
        settings = {_allowed(key): str(value)[:MAX_VALUE_LENGTH] for key, value in flat_settings(config).items()}
        new = [self._entities.Param(key, value) for key, value in settings.items() if key not in known]
        for start in range(0, len(new), MAX_PARAMETERS):
            self._client.log_batch(self._run_id, params=new[start : start + MAX_PARAMETERS])

    def _add(self, step: int, values: Mapping[str, Value]) -> None:
        """Queue values, unless an earlier session sent them."""
        if step > self._sent_to:
            now, metric = int(time.time() * 1000), self._entities.Metric
            measured = {key: value for key, value in values.items() if value is not None and key != "number"}
            self._waiting += [metric(_allowed(key), float(value), now, step) for key, value in measured.items()]

    def _send(self) -> None:
        for start in range(0, len(self._waiting), MAX_METRICS):
            self._client.log_batch(self._run_id, metrics=self._waiting[start : start + MAX_METRICS])
        self._waiting.clear()
        self._last_sent = time.monotonic()


def _allowed(name: str) -> str:
    """Return a name that MLflow accepts: hits@10 becomes hits_at_10."""
    return re.sub(r"[^\w\-. :/]", "_", name.replace("@", "_at_"))


def start_error(tracker: str, error: Exception, advice: str) -> ConfigError:
    """Return the error for a tracker that cannot start."""
    return ConfigError(f"{tracker} cannot start ({_first_line(error)}): {advice}, or remove {tracker} from `trackers`")


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')[:300]}"


def stored_run_id(folder: Path, tracker: str) -> str | None:
    """Return the id that a service gave this run in an earlier session."""
    run_id = _run_ids(folder).get(tracker)
    return run_id if isinstance(run_id, str) else None


def store_run_id(folder: Path, tracker: str, run_id: str) -> None:
    """Store the id that a service gave this run in tracking.json, which holds neither addresses nor keys."""
    ids = _run_ids(folder)
    if ids.get(tracker) != run_id:
        write_atomically(folder / "tracking.json", json.dumps({**ids, tracker: run_id}, indent=2) + "\n")


def _run_ids(folder: Path) -> dict[str, Any]:
    path = folder / "tracking.json"
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}
    except (OSError, ValueError, TypeError) as error:
        warnings.warn(f"{path} cannot be read ({error}): trackers start new runs", stacklevel=3)
        return {}


def flat_metrics(metrics: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return final metrics by one name each.

    Examples:
        >>> flat_metrics({"test": {"accuracy": 0.95}})
        {'test/accuracy': 0.95}
    """
    return {f"{split}/{name}": value for split, values in metrics.items() for name, value in values.items()}
