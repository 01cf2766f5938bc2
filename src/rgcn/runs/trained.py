"""The model of a run, as it is at its end or as far as it has come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rgcn.errors import DataError
from rgcn.graph import SPLITS
from rgcn.runs.assembly import load_data, make_model, refuse_other_data
from rgcn.runs.checkpoints import Checkpoints
from rgcn.runs.folder import RunFolder
from rgcn.runs.result import RunResult
from rgcn.tasks.estimator import Estimator
from rgcn.tasks.storage import load_model


def load_trained(run: RunFolder, mirror: Path | None = None, device: str = "auto") -> Estimator:
    """A run's model: the saved one, or for a run that is not finished the best weights of its newest checkpoint."""
    run.check()
    if run.result() is not None:
        return load_model(run.path / "model", device=device)
    state = Checkpoints(run.path / "checkpoints").newest()
    if state is None:
        raise DataError(f"{run.path} is {run.status()} and has no checkpoint yet: there is no model to look at")
    config = run.config()
    graph = load_data(config.data, mirror)
    refuse_other_data(run, graph)
    training = config.training.model_copy(update={"device": device})
    model = make_model(config.model_copy(update={"training": training})).prepare(graph)
    # Weights only: a run that is under way on a GPU may be looked at on another machine.
    model.network_.load_state_dict(state.part("best") or state.part("network"))
    model.network_.eval()
    return model


def finished_result(run: RunFolder) -> RunResult:
    """What a finished run gave, with its model."""
    result = run.result()
    assert result is not None
    return RunResult(
        run.config(),
        load_trained(run),
        result["epochs"],
        result["parameters"],
        result["seconds"],
        result["metrics"],
    )


def evaluate(run: RunFolder, split: str | None = None, mirror: Path | None = None) -> dict[str, Any]:
    """Metrics of a run's model on one split; as the task has them.

    split: by default the test split, or validation while the run is not finished: the test split is for the end.
    """
    if split is not None and split not in SPLITS:
        raise DataError(f"unknown split {split!r}; there are {', '.join(SPLITS)}")
    if split is None:
        split = "valid" if run.result() is None else "test"
    model = load_trained(run, mirror)
    about = run.about()
    head = {"run": str(run.path), "status": run.status(), **{k: about[k] for k in ("task", "dataset", "model", "seed")}}
    return {**head, "split": split, "metrics": model.evaluate(split=split)}
