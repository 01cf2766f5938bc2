"""What every tracker does, and what those that report to somebody else's service share."""

from __future__ import annotations

import json
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rgcn.atomic import write_atomically
from rgcn.errors import ConfigError

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

    def __init__(self, folder: Path, name: str, config: Mapping[str, Any], from_step: int) -> None:
        self.folder, self.name, self.config, self.from_step = folder, name, config, from_step

    @classmethod  # noqa: B027
    def check(cls) -> None:
        """Raise a ConfigError where something is missing, a package say: asked before the data are read."""

    @abstractmethod
    def report(self, step: int, values: Mapping[str, Value]) -> None:
        """What training did up to a step; None stands for a value that was not measured."""

    def finish(self, metrics: Mapping[str, Mapping[str, float]]) -> None:  # noqa: B027
        """Final metrics by split, {"test": {"accuracy": 0.95}}; `close` follows."""

    def close(self, outcome: str) -> None:  # noqa: B027
        """The end, always called last: "finished", "interrupted" or "failed"."""


class SurvivingTracker(RunTracker):
    """A tracker that may fail without taking the training with it: one warning, then silence.

    A server that is gone after nine hours is no reason to lose the tenth; metrics.jsonl has everything in any case.
    """

    def __init__(self, name: str, tracker: RunTracker) -> None:
        self.name = name
        self._tracker: RunTracker | None = tracker

    def report(self, step: int, values: Mapping[str, Value]) -> None:
        if self._tracker is not None:
            try:
                self._tracker.report(step, values)
            except Exception as error:
                self._give_up(error)

    def finish(self, metrics: Mapping[str, Mapping[str, float]]) -> None:
        if self._tracker is not None:
            try:
                self._tracker.finish(metrics)
            except Exception as error:
                self._give_up(error)

    def close(self, outcome: str) -> None:
        if self._tracker is not None:
            try:
                self._tracker.close(outcome)
            except Exception as error:
                self._give_up(error)
        self._tracker = None

    def _give_up(self, error: Exception) -> None:
        self._tracker = None
        warnings.warn(
            f"{self.name} stopped taking reports ({type(error).__name__}: {_first_line(error)}); the training goes on "
            "without it, and metrics.jsonl keeps every report",
            stacklevel=3,
        )


def cannot_start(tracker: str, error: Exception, advice: str) -> ConfigError:
    """A tracker that fails before the training starts stops it: the user is still there to hear it."""
    return ConfigError(
        f"{tracker} cannot start ({type(error).__name__}: {_first_line(error)}): {advice}, or leave {tracker} out of "
        "`trackers`"
    )


def remembered_id(folder: Path, tracker: str) -> str | None:
    """The id a tracker gave this run in an earlier session; tracking.json holds nothing else, no address, no key."""
    try:
        ids = json.loads((folder / "tracking.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        warnings.warn(
            f"{folder / 'tracking.json'} cannot be read ({error}): {tracker} starts a new run instead of going on with "
            "the earlier one",
            stacklevel=2,
        )
        return None
    found = ids.get(tracker) if isinstance(ids, dict) else None
    return found if isinstance(found, str) else None


def remember_id(folder: Path, tracker: str, run_id: str) -> None:
    """Keep a run's id for the next session."""
    path = folder / "tracking.json"
    try:
        ids = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        ids = {}
    ids = ids if isinstance(ids, dict) else {}
    if ids.get(tracker) != run_id:
        write_atomically(path, json.dumps({**ids, tracker: run_id}, indent=2) + "\n")


def by_split(metrics: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Final metrics under one name each.

    >>> by_split({"test": {"accuracy": 0.95}})
    {'test/accuracy': 0.95}
    """
    return {f"{split}/{name}": value for split, values in metrics.items() for name, value in values.items()}


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")[:300]
