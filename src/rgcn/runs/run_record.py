"""Everything a run's folder says about it, read once, for pages and tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from rgcn.config import RunConfig
from rgcn.graph.titles import short_name
from rgcn.runs.folder import RunFolder
from rgcn.runs.listing import training_seconds
from rgcn.tasks.task import Metric, Task, task_of


class Best(NamedTuple):
    """A validation figure where it was best."""

    metric: Metric
    epoch: int
    value: float


@dataclass(frozen=True)
class RunRecord:
    """A run as it stands: unfinished ones have no result, and may have no model yet.

    metrics  a dictionary a report, by `number`; of a number that was reported twice (before an interruption and after
             it) the later one
    """

    folder: Path
    config: RunConfig
    about: dict[str, Any]
    environment: list[dict[str, Any]]
    metrics: list[dict[str, Any]]
    result: dict[str, Any] | None
    status: str
    sessions: list[dict[str, Any]] = field(default_factory=list)

    @property
    def task(self) -> Task:
        return task_of(self.config.task)

    @property
    def title(self) -> str:
        """Model and data in a few words."""
        data = self.config.data
        source = data.dataset or short_name(Path(str(data.path)).name)
        return f"{self.config.model.title} on {source}"

    @property
    def fingerprint(self) -> str | None:
        found = self.about.get("data", {}).get("fingerprint")
        return None if found is None else str(found)

    @property
    def seconds(self) -> float | None:
        """Spent training, in all sessions together."""
        if self.result is not None:
            return float(self.result["seconds"])
        return training_seconds(self.metrics)

    @property
    def epochs(self) -> int:
        """How far the training came."""
        if self.result is not None:
            return int(self.result["epochs"])
        reported = int(self.metrics[-1]["number"]) if self.metrics else 0
        return max([reported, *(int(one.get("to_step") or 0) for one in self.sessions)])

    def curve(self, name: str) -> list[tuple[float, float]]:
        """(number, value) of one column, where it was measured."""
        return [(float(row["number"]), float(row[name])) for row in self.metrics if _is_number(row.get(name))]

    @property
    def reported(self) -> set[str]:
        """The columns its reports have."""
        return {name for row in self.metrics for name in row}

    def best(self) -> Best | None:
        """The best of the validation figure that the training goes by, the earliest of equals.

        This is also how a training chooses which weights to keep.
        """
        metric = self.task.watch(self.config)
        curve = [point for point in self.curve(f"valid_{metric.name}") if math.isfinite(point[1])]
        if not curve:
            return None
        number, value = (max if metric.higher else min)(curve, key=lambda point: point[1])
        return Best(metric, int(number), value)

    @property
    def keeps_best(self) -> bool:
        """Whether the weights of the best validation are kept, rather than the last ones."""
        return bool(getattr(self.config.training, "keeps_best", False))


def read_run(folder: Path) -> RunRecord:
    """Read a run's folder; a DataError says so where it holds no run."""
    run = RunFolder(folder)
    run.check()
    about = run.about()
    return RunRecord(
        folder,
        run.config(),
        about,
        run.environment(),
        in_order(run.metrics()),
        run.result(),
        run.status(),
        list(about.get("sessions", [])),
    )


def in_order(metrics: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Reports by number, the last word for each.

    >>> in_order([{"number": 1, "loss": 3}, {"number": 2, "loss": 2}, {"number": 2, "loss": 1}, {"loss": 0}])
    [{'number': 1, 'loss': 3}, {'number': 2, 'loss': 1}]
    """
    by_number = {row["number"]: row for row in metrics if _is_number(row.get("number"))}
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


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
