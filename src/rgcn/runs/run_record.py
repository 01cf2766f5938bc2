"""Read run folders: one run as a record, a list of runs, and mean and deviation of the metrics of several runs.

Only small files are read, and PyTorch is not loaded.
"""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from rgcn.config import RunConfig
from rgcn.errors import DataError
from rgcn.graph import SPLITS
from rgcn.models.task import Task, task_of
from rgcn.runs.folder import RunFolder, length_in
from rgcn.training.history import Metric

MAX_DEPTH = 4  # of folders below the listed one
NUMBERS = (int, float)  # compared with type(), because bool is a subclass of int


class BestReport(NamedTuple):
    """The best validation metric of a training, and the epoch or step where it was measured."""

    metric: Metric
    number: int
    value: float


@dataclass(frozen=True)
class RunRecord:
    """A run as it is on disk. An unfinished run has no result, and may have no model yet.

    Attributes:
        folder: The folder of the run.
        about: The content of run.json.
        result: The content of result.json, or None.
        status: See `RunFolder.status`.
    """

    folder: Path
    about: dict[str, Any]
    result: dict[str, Any] | None
    status: str

    @cached_property
    def config(self) -> RunConfig:
        """The configuration of the run."""
        return RunFolder(self.folder).config()

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """One report per `number`, in order. Of reports made twice, around a stop, only the later one."""
        return in_order(RunFolder(self.folder).metrics())

    @cached_property
    def environment(self) -> list[dict[str, Any]]:
        """What each session ran on, oldest first."""
        return RunFolder(self.folder).environment()

    @property
    def sessions(self) -> list[dict[str, Any]]:
        """The sessions that worked on the run, oldest first."""
        return list(self.about["sessions"])

    @property
    def task(self) -> Task:
        """The task of the run."""
        return task_of(self.about["task"])

    @property
    def title(self) -> str:
        """Model and data, as "rgcn on aifb"."""
        return f"{self.config.model.title} on {self.config.data.title}"

    @property
    def fingerprint(self) -> str | None:
        """The fingerprint of the data."""
        return self.about.get("data", {}).get("fingerprint")  # type: ignore[no-any-return]

    @property
    def seconds(self) -> float | None:
        """Time spent training, in all sessions."""
        if self.result is not None:
            return float(self.result["seconds"])
        return self.metrics[-1].get("seconds") or 0.0 if self.metrics else None

    @property
    def length(self) -> int:
        """The number of epochs (node classification) or steps (link prediction) that were taken.

        Reports may be rare, but a session that was stopped recorded its last step.
        """
        if self.result is not None:
            return length_in(self.result)
        steps = (int(session.get("to_step") or 0) for session in self.sessions)
        return max([*(int(row["number"]) for row in self.metrics[-1:]), *steps, 0])

    @property
    def unit(self) -> str:
        """What the length and the numbers of reports count: "epoch" or "step"."""
        training: Any = self.task.run_config.sections()["training"]
        return str(training.unit)

    @property
    def reported(self) -> set[str]:
        """The columns of the reports."""
        return {name for row in self.metrics for name in row}

    def curve(self, name: str) -> list[tuple[float, float]]:
        """Return (number, value) of one column, where it was measured."""
        return [(float(row["number"]), float(row[name])) for row in self.metrics if type(row.get(name)) in NUMBERS]

    def best(self) -> BestReport | None:
        """Return the best value of the validation metric that selects the weights; the earliest of equal ones."""
        metric = self.task.watch(self.config.training)
        curve = [point for point in self.curve(f"valid_{metric.name}") if math.isfinite(point[1])]
        if not curve:
            return None
        number, value = (max if metric.higher_is_better else min)(curve, key=lambda point: point[1])
        return BestReport(metric, int(number), value)

    def headline(self) -> tuple[str | None, float | None]:
        """Return name and value of the metric to show in a list, ("test accuracy", 0.9).

        Of a finished run, it is the metric on the last split that has one; else the best value so far on validation
        data, or on training data if nothing is validated.
        """
        main = self.task.headline
        if self.result is not None:
            values = [(split, self.result["metrics"].get(split, {}).get(main.name)) for split in reversed(SPLITS)]
            return next(((f"{split} {main.name}", value) for split, value in values if value is not None), (None, None))
        columns = [("valid", metric) for metric in (main, *self.task.validation_metrics)]
        for split, metric in [*columns, ("train", main)]:
            if curve := self.curve(f"{split}_{metric.name}"):
                return f"{split} {metric.name}", (max if metric.higher_is_better else min)(value for _, value in curve)
        return None, None


def read_run(folder: Path) -> RunRecord:
    """Read a run.

    Raises:
        DataError: The folder is not a run, or is damaged.
    """
    run = RunFolder(folder)
    run.check()
    return RunRecord(folder, run.about(), run.result(), run.status())


def in_order(metrics: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the reports sorted by number, the last one for each number.

    Examples:
        >>> in_order([{"number": 1, "loss": 3}, {"number": 2, "loss": 2}, {"number": 2, "loss": 1}, {"loss": 0}])
        [{'number': 1, 'loss': 3}, {'number': 2, 'loss': 1}]
    """
    by_number = {row["number"]: row for row in metrics if type(row.get("number")) in NUMBERS}
    return [row for _, row in sorted(by_number.items())]


@dataclass(frozen=True)
class RunSummary:
    """One run in a list of runs. `metric` and `value` are those of `RunRecord.headline`.

    `unit` ("epoch" or "step") is what `reached`, the length so far, and `length`, the planned one, count.
    """

    run: str
    task: str
    dataset: str
    model: str
    seed: int
    metric: str | None
    value: float | None
    unit: str  # what the two numbers below count: "epoch" or "step"
    reached: int
    length: int
    seconds: float | None
    status: str
    created: str

    def metric_text(self) -> str:
        """Return the metric as text, "test accuracy 95.0 %"; empty if there is none."""
        if self.metric is None or self.value is None:
            return ""
        (split, _, name), task = self.metric.partition(" "), task_of(self.task)
        metric = next(one for one in (*task.metrics, *task.validation_metrics) if one.name == name)
        return f"{split} {metric.title} {metric.format(self.value)}"


def list_runs(root: Path) -> tuple[list[RunSummary], list[str]]:
    """List the runs below a folder.

    Returns:
        The runs, newest last, and messages about folders that look like runs and cannot be read.
    """
    summaries, problems = list[RunSummary](), list[str]()
    for path in _run_folders(root, MAX_DEPTH):
        try:
            with warnings.catch_warnings():  # of a running training, the last line may be half written
                warnings.simplefilter("ignore")
                run = read_run(path)
                headline = run.headline()
            cells: list[Any] = [run.about[key] for key in ("task", "dataset", "model", "seed")]
            cells += [*headline, run.unit, run.length, length_in(run.about), run.seconds, run.status]
            cells.append(run.about["created"])
            summaries.append(RunSummary(str(path), *cells))
        except (DataError, OSError, KeyError, TypeError, ValueError) as error:  # noqa: PERF203
            problems.append(f"{path}: {error}")
    return sorted(summaries, key=lambda summary: (summary.created, summary.run)), problems


def _run_folders(folder: Path, depth: int) -> Iterator[Path]:
    try:
        if (folder / "run.json").exists():
            yield folder
            return
        inner = [path for path in sorted(folder.iterdir()) if path.is_dir() and not path.is_symlink()] if depth else []
    except OSError:  # not readable for this user
        return
    for path in inner:
        yield from _run_folders(path, depth - 1)


def session_seconds(session: Mapping[str, Any]) -> float | None:
    """Return how long a session lasted; None if it was killed.

    Examples:
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
    """Mean and spread of a metric over several runs. With a single run, deviation and error are None."""

    mean: float
    standard_deviation: float | None
    standard_error: float | None
    runs: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return mean, standard deviation (with n - 1) and standard error of the mean.

        Examples:
            >>> Spread.of([1.0, 2.0, 3.0])
            Spread(mean=2.0, standard_deviation=1.0, standard_error=0.577..., runs=3)
        """
        count = len(values)
        deviation = statistics.stdev(values) if count > 1 else None
        return cls(statistics.fmean(values), deviation, None if deviation is None else deviation / count**0.5, count)


def summarize(metrics: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Spread]]:
    """Return `{split: {metric: Spread}}` over the metrics of several runs, without the numbers of queries ("count").

    Examples:
        >>> summarize([{"test": {"mrr": 0.5, "count": 10}}, {"test": {"mrr": 0.7, "count": 10}}])["test"]["mrr"].mean
        0.6
    """
    splits = metrics[0] if metrics else {}
    return {
        split: {name: Spread.of([run[split][name] for run in metrics]) for name in names if name != "count"}
        for split, names in splits.items()
    }
