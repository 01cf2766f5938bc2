"""Who hears of a training while it goes on: files always, others on request (`rgcn.axis_tables.TRACKERS`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rgcn.axis_tables import TRACKERS
from rgcn.errors import DataError
from rgcn.runs.tracking.base import RunTracker, SurvivingTracker
from rgcn.runs.tracking.files import MetricFiles, read_metrics

__all__ = ["MetricFiles", "RunTracker", "check_trackers", "open_trackers", "read_metrics"]


def check_trackers(names: Sequence[str]) -> None:
    """Raise an error where a tracker cannot be had: worth knowing before the data are read."""
    for name in names:
        _class_of(name).check()


def open_trackers(
    names: Sequence[str], folder: Path, name: str, config: Mapping[str, Any], from_step: int
) -> list[RunTracker]:
    """The trackers of a run, ready for reports; a tracker that cannot start raises a ConfigError.

    folder     the run's folder: TensorBoard's files, and tracking.json with the ids for the next session
    name       what the run is called in MLflow and Weights & Biases
    config     the settings, nested
    from_step  the step of the checkpoint the run goes on from; 0 for a new run
    """
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
