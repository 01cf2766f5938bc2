"""Every run under a folder, in a line each; read from small files, without PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rgcn.errors import DataError
from rgcn.runs.folder import RunFolder
from rgcn.runs.tracking.files import read_metrics
from rgcn.tasks.task import Task, task_of

DEEPEST = 4  # folders below the one that is listed


@dataclass(frozen=True)
class RunLine:
    """What a list of runs tells of one.

    metric  name of the figure, such as "test accuracy"; of a run that is not finished its best validation figure so far
    """

    run: str
    task: str
    dataset: str
    model: str
    seed: int
    metric: str | None
    value: float | None
    epoch: int
    epochs: int
    seconds: float | None
    status: str
    created: str

    def words(self) -> str:
        """The figure for people: "test MRR 0.382"."""
        if self.metric is None or self.value is None:
            return ""
        split, _, name = self.metric.partition(" ")
        task = task_of(self.task)
        metric = next(one for one in (*task.metrics, *task.watched) if one.name == name)
        return f"{split} {metric.title} {metric.words(self.value)}"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def list_runs(root: Path) -> tuple[list[RunLine], list[str]]:
    """(runs, newest last; complaints about folders that look like runs and cannot be read)."""
    found = [_line_or_complaint(RunFolder(path)) for path in _run_folders(root, DEEPEST)]
    lines = [line for line in found if isinstance(line, RunLine)]
    complaints = [line for line in found if isinstance(line, str)]
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


def _line_or_complaint(run: RunFolder) -> RunLine | str:
    try:
        return _line(run)
    except (DataError, OSError, KeyError, TypeError, ValueError) as error:
        return f"{run.path}: {error}"


def _line(run: RunFolder) -> RunLine:
    about, result = run.about(), run.result()
    task = task_of(about["task"])
    if result is not None:
        metric, value = _final(task, result["metrics"])
        epoch, seconds = result["epochs"], result["seconds"]
    else:
        reports = _reports(run.path / "metrics.jsonl")
        metric, value = _best(task, reports)
        # A training may report now and then only; a session that was stopped knows how far it really was.
        stopped_at = [session.get("to_step") or 0 for session in about["sessions"]]
        epoch = max([*stopped_at[-1:], reports[-1]["number"] if reports else 0])
        seconds = training_seconds(reports)
    return RunLine(
        str(run.path),
        about["task"],
        about["dataset"],
        about["model"],
        about["seed"],
        metric,
        value,
        epoch,
        about["epochs"],
        seconds,
        run.status(),
        about["created"],
    )


def _final(task: Task, metrics: Mapping[str, Mapping[str, float]]) -> tuple[str | None, float | None]:
    """The figure the task is judged by, of the last split that has one: test, else validation."""
    name = task.headline.name
    split = next((split for split in ("test", "valid", "train") if name in metrics.get(split, {})), None)
    return (None, None) if split is None else (f"{split} {name}", metrics[split][name])


def _best(task: Task, reports: list[dict[str, Any]]) -> tuple[str | None, float | None]:
    """The best validation figure so far, or the training figure where nothing is validated."""
    columns = [("valid", metric) for metric in (task.headline, *task.watched)]
    for split, metric in [*columns, ("train", task.headline)]:
        values = [row[key] for row in reports if row.get(key := f"{split}_{metric.name}") is not None]
        if values:
            return f"{split} {metric.name}", (max if metric.higher else min)(values)
    return None, None


def training_seconds(reports: list[dict[str, Any]]) -> float | None:
    """Time spent training, which every report tells anew."""
    return reports[-1].get("seconds") or 0.0 if reports else None


def _reports(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a metrics file."""
    if not path.exists():
        return []
    with warnings.catch_warnings():  # a line that is half written is nothing to worry about while a run goes on
        warnings.simplefilter("ignore")
        return read_metrics(path)
