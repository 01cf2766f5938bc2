"""Who hears of a training while it goes on: files always, TensorBoard, MLflow and Weights & Biases on request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rgcn.errors import UnknownNameError
from rgcn.extras import import_extra
from rgcn.runs.tracking.base import RunTracker, SurvivingTracker
from rgcn.runs.tracking.files import MetricFiles, read_metrics
from rgcn.runs.tracking.mlflow import MlflowTracker
from rgcn.runs.tracking.tensorboard import TensorBoardTracker
from rgcn.runs.tracking.wandb import WandbTracker

__all__ = ["MetricFiles", "RunTracker", "check_trackers", "open_trackers", "read_metrics"]

TRACKERS: dict[str, Callable[[Path, str, Mapping[str, Any], int], RunTracker]] = {
    "tensorboard": TensorBoardTracker,
    "mlflow": MlflowTracker,
    "wandb": WandbTracker,
}


def check_trackers(names: Sequence[str]) -> None:
    """Raise a ConfigError where a tracker's package is missing: worth knowing before the data are read."""
    for name in names:
        if name not in TRACKERS:
            raise UnknownNameError("tracker", name, TRACKERS)
        import_extra(name, name)


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
            if tracker not in TRACKERS:
                raise UnknownNameError("tracker", tracker, TRACKERS)
            opened.append(SurvivingTracker(tracker, TRACKERS[tracker](folder, name, config, from_step)))
    except BaseException:
        for begun in opened:
            begun.close("failed")
        raise
    return opened
