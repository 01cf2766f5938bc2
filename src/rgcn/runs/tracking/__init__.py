"""Who hears of a training while it goes on: files always, others on request (`rgcn.axis_tables.TRACKERS`)."""

from __future__ import annotations

import json
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from rgcn.atomic import write_atomically
from rgcn.axis_tables import TRACKERS
from rgcn.errors import ConfigError, DataError
from rgcn.extras import import_extra

Value = float | int | None


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


def open_trackers(
    names: Sequence[str], folder: Path, name: str, config: Mapping[str, Any], from_step: int
) -> list[RunTracker]:
    """The trackers of a run, ready for reports (see `RunTracker`); one that cannot start raises a ConfigError."""
    opened: list[RunTracker] = []
    try:
        for tracker in dict.fromkeys(names):
            begin = _class_of(tracker)
            opened.append(SurvivingTracker(tracker, begin(folder, name, config, from_step)))
    except BaseException:
        for begun in opened:
            begun.close("failed")
        raise
    return opened


def _class_of(name: str) -> type[RunTracker]:
    try:
        return TRACKERS.find(name)
    except DataError as error:  # a run's folder names a package that is not here, or that nobody has allowed
        raise DataError(
            f"{error}; or go on without it: `rgcn resume --no-track`, or leave it out of `trackers`"
        ) from error


class SurvivingTracker(RunTracker):
    """A tracker that may fail without taking the training with it: one warning, then silence.

    A server that is gone after nine hours is no reason to lose the tenth; metrics.jsonl has everything in any case.
    """

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


# -- for those that report to somebody else's service --------------------------------------------------------


def cannot_start(tracker: str, error: Exception, advice: str) -> ConfigError:
    """A tracker that fails before the training starts stops it: the user is still there to hear it."""
    return ConfigError(f"{tracker} cannot start ({_first_line(error)}): {advice}, or leave {tracker} out of `trackers`")


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')[:300]}"


def remembered_id(folder: Path, tracker: str) -> str | None:
    """The id a tracker gave this run in an earlier session; tracking.json holds nothing else, no address, no key."""
    try:
        found = _ids(folder).get(tracker)
    except (OSError, ValueError) as error:
        warnings.warn(
            f"{folder / 'tracking.json'} cannot be read ({error}): {tracker} starts a new run instead of going on with "
            "the earlier one",
            stacklevel=2,
        )
        return None
    return found if isinstance(found, str) else None


def remember_id(folder: Path, tracker: str, run_id: str) -> None:
    """Keep a run's id for the next session."""
    try:
        ids = _ids(folder)
    except (OSError, ValueError):
        ids = {}
    if ids.get(tracker) != run_id:
        write_atomically(folder / "tracking.json", json.dumps({**ids, tracker: run_id}, indent=2) + "\n")


def _ids(folder: Path) -> dict[str, Any]:
    path = folder / "tracking.json"
    ids = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return ids if isinstance(ids, dict) else {}


def by_split(metrics: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Final metrics under one name each.

    >>> by_split({"test": {"accuracy": 0.95}})
    {'test/accuracy': 0.95}
    """
    return {f"{split}/{name}": value for split, values in metrics.items() for name, value in values.items()}
