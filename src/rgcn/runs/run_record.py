"""What folders of runs say, for tables and pages: runs in a line each, one run as a whole, several runs' figures.

All of it is read from small files, without PyTorch.
"""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from rgcn.config import RunConfig
from rgcn.errors import DataError
from rgcn.models.task import Task, task_of
from rgcn.runs.folder import RunFolder
from rgcn.training.history import Metric

DEEPEST = 4  # folders below the one that is listed
NUMBERS = (int, float)  # and not bool, which is a kind of int


@dataclass(frozen=True)
class RunLine:
    """What a list of runs tells of one."""

    run: str
    task: str
    dataset: str
    model: str
    seed: int
    metric: str | None  # "test accuracy", ...; of a run that is not finished its best validation figure so far
    value: float | None
    epoch: int
    epochs: int
    seconds: float | None
    status: str
    created: str

    def words(self) -> str:
        if self.metric is None or self.value is None:
            return ""
        split, _, name = self.metric.partition(" ")
        task = task_of(self.task)
        metric = next(one for one in (*task.metrics, *task.watched) if one.name == name)
        return f"{split} {metric.title} {metric.words(self.value)}"


def list_runs(root: Path) -> tuple[list[RunLine], list[str]]:
    """(runs, newest last; complaints about folders that look like runs and cannot be read)."""
    lines, complaints = list[RunLine](), list[str]()
    for path in _run_folders(root, DEEPEST):
        try:
            lines.append(_line(RunFolder(path)))
        except (DataError, OSError, KeyError, TypeError, ValueError) as error:  # noqa: PERF203
            complaints.append(f"{path}: {error}")
    return sorted(lines, key=lambda line: (line.created, line.run)), complaints


def _run_folders(folder: Path, depth: int) -> Iterator[Path]:
    try:
        if (folder / "run.json").exists():
            yield folder
            return
        inner = [path for path in sorted(folder.iterdir()) if path.is_dir() and not path.is_symlink()] if depth else []
    except OSError:  # a folder we may not look into holds no run of ours
        return
    for path in inner:
        yield from _run_folders(path, depth - 1)


def _line(run: RunFolder) -> RunLine:
    about, result = run.about(), run.result()
    task = task_of(about["task"])
    if result is not None:
        metric, value = _final(task, result["metrics"])
        epoch, seconds = result["epochs"], result["seconds"]
    else:
        with warnings.catch_warnings():  # a line that is half written is nothing to worry about while a run goes on
            warnings.simplefilter("ignore")
            reports = run.metrics()
        metric, value = _best_so_far(task, reports)
        epoch, seconds = _reached(reports, about["sessions"][-1:]), _seconds(reports)
    known = {key: about[key] for key in ("task", "dataset", "model", "seed", "epochs", "created")}
    known |= {"run": str(run.path), "status": run.status()}
    return RunLine(metric=metric, value=value, epoch=epoch, seconds=seconds, **known)


def _final(task: Task, metrics: Mapping[str, Mapping[str, float]]) -> tuple[str | None, float | None]:
    """The figure the task is judged by, of the last split that has one: test, else validation."""
    name = task.headline.name
    found = ((f"{split} {name}", metrics.get(split, {}).get(name)) for split in ("test", "valid", "train"))
    return next((each for each in found if each[1] is not None), (None, None))


def _best_so_far(task: Task, reports: list[dict[str, Any]]) -> tuple[str | None, float | None]:
    """The best validation figure so far, or the training figure where nothing is validated."""
    columns = [("valid", metric) for metric in (task.headline, *task.watched)]
    for split, metric in [*columns, ("train", task.headline)]:
        values = [row[key] for row in reports if row.get(key := f"{split}_{metric.name}") is not None]
        if values:
            return f"{split} {metric.name}", (max if metric.higher else min)(values)
    return None, None


def _reached(reports: Sequence[Mapping[str, Any]], sessions: Sequence[Mapping[str, Any]]) -> int:
    """How far a training came: it may report now and then only, but a session that was stopped knows."""
    return max([*(int(row["number"]) for row in reports[-1:]), *(int(one.get("to_step") or 0) for one in sessions), 0])


def _seconds(reports: Sequence[Mapping[str, Any]]) -> float | None:
    """Time spent training, which every report tells anew."""
    return reports[-1].get("seconds") or 0.0 if reports else None


class BestEpoch(NamedTuple):
    """A validation figure where it was best."""

    metric: Metric
    epoch: int
    value: float


@dataclass(frozen=True)
class RunRecord:
    """A run as it stands: unfinished ones have no result, and may have no model yet."""

    folder: Path
    config: RunConfig
    about: dict[str, Any]
    environment: list[dict[str, Any]]
    metrics: list[dict[str, Any]]  # one a report, by `number`; of one that was made twice, around a stop, the later
    result: dict[str, Any] | None
    status: str

    @property
    def sessions(self) -> list[dict[str, Any]]:
        return list(self.about["sessions"])

    @property
    def task(self) -> Task:
        return task_of(self.config.task)

    @property
    def title(self) -> str:
        return f"{self.config.model.title} on {self.config.data.title}"

    @property
    def fingerprint(self) -> str | None:
        found = self.about.get("data", {}).get("fingerprint")
        return None if found is None else str(found)

    @property
    def seconds(self) -> float | None:
        return _seconds(self.metrics) if self.result is None else float(self.result["seconds"])

    @property
    def epochs(self) -> int:
        return _reached(self.metrics, self.sessions) if self.result is None else int(self.result["epochs"])

    def curve(self, name: str) -> list[tuple[float, float]]:
        """(number, value) of one column, where it was measured."""
        return [(float(row["number"]), float(row[name])) for row in self.metrics if type(row.get(name)) in NUMBERS]

    @property
    def reported(self) -> set[str]:
        return {name for row in self.metrics for name in row}

    def best(self) -> BestEpoch | None:
        """The best of the validation figure that the training keeps weights by, the earliest of equals."""
        metric = self.task.watch(self.config.training)
        curve = [point for point in self.curve(f"valid_{metric.name}") if math.isfinite(point[1])]
        if not curve:
            return None
        number, value = (max if metric.higher else min)(curve, key=lambda point: point[1])
        return BestEpoch(metric, int(number), value)


def read_run(folder: Path) -> RunRecord:
    run = RunFolder(folder)
    run.check()
    metrics = in_order(run.metrics())
    return RunRecord(folder, run.config(), run.about(), run.environment(), metrics, run.result(), run.status())


def in_order(metrics: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Reports by number, the last word for each.

    >>> in_order([{"number": 1, "loss": 3}, {"number": 2, "loss": 2}, {"number": 2, "loss": 1}, {"loss": 0}])
    [{'number': 1, 'loss': 3}, {'number': 2, 'loss': 1}]
    """
    by_number = {row["number"]: row for row in metrics if type(row.get("number")) in NUMBERS}
    return [by_number[number] for number in sorted(by_number)]


def session_seconds(session: Mapping[str, Any]) -> float | None:
    """How long a session was open by the clock; None where it did not live to say so.

    >>> session_seconds({"began": "2026-11-20T12:00:00Z", "ended": "2026-11-20T12:01:30Z"})
    90.0
    """
    try:
        began, ended = (datetime.fromisoformat(str(session[key]).replace("Z", "+00:00")) for key in ("began", "ended"))
    except (KeyError, ValueError):
        return None
    return max(0.0, (ended - began).total_seconds())


@dataclass(frozen=True)
class Spread:
    """A figure over several runs; with one run there is nothing to tell deviation or error from."""

    mean: float
    standard_deviation: float | None
    standard_error: float | None
    runs: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Mean, deviation (n - 1) and error of some values.

        >>> Spread.of([1.0, 2.0, 3.0])
        Spread(mean=2.0, standard_deviation=1.0, standard_error=0.577..., runs=3)
        """
        mean = statistics.fmean(values)
        if len(values) < 2:
            return cls(mean, None, None, len(values))
        deviation = statistics.stdev(values)
        return cls(mean, deviation, deviation / len(values) ** 0.5, len(values))


def summarize(metrics: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Spread]]:
    """{split: {metric: Spread}} over the metrics of several runs; what merely counts queries is left out.

    >>> summarize([{"test": {"mrr": 0.5, "count": 10}}, {"test": {"mrr": 0.7, "count": 10}}])["test"]["mrr"].mean
    0.6
    """
    splits = metrics[0] if metrics else {}
    return {
        split: {name: Spread.of([run[split][name] for run in metrics]) for name in figures if name != "count"}
        for split, figures in splits.items()
    }
