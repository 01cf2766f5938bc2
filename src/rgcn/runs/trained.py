"""The model of a run, as it is at its end or as far as it has come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rgcn.errors import DataError
from rgcn.graph import SPLITS
from rgcn.runs.assembly import Model, load_data, make_model, refuse_other_data
from rgcn.runs.checkpoints import Checkpoints
from rgcn.runs.folder import RunFolder
from rgcn.runs.result import RunResult
from rgcn.tasks import LinkPredictor, NodeClassifier
from rgcn.tasks.storage import load_as


def load_trained(run: RunFolder, mirror: Path | None = None, device: str = "auto") -> Model:
    """A run's model: the saved one, or for a run that is not finished the best weights of its newest checkpoint."""
    run.check()
    if run.result() is not None:
        if run.about()["task"] == "node-classification":
            return load_as(run.path / "model", NodeClassifier, device)
        return load_as(run.path / "model", LinkPredictor, device)
    state = Checkpoints(run.path / "checkpoints").newest()
    if state is None:
        raise DataError(f"{run.path} is {run.status()} and has no checkpoint yet: there is no model to look at")
    config = run.config()
    graph = load_data(config.data, mirror)
    refuse_other_data(run, graph)
    model = make_model(config).set_params(device=device).prepare(graph)
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
    """Metrics of a run's model on one split; for link prediction also by direction and by relation.

    split: by default the test split, or validation while the run is not finished: the test split is for the end.
    """
    if split is not None and split not in SPLITS:
        raise DataError(f"unknown split {split!r}; there are {', '.join(SPLITS)}")
    if split is None:
        split = "valid" if run.result() is None else "test"
    model = load_trained(run, mirror)
    about = run.about()
    head = {"run": str(run.path), "status": run.status(), **{k: about[k] for k in ("task", "dataset", "model", "seed")}}
    if isinstance(model, NodeClassifier):
        return {**head, "split": split, "metrics": {"accuracy": model.score(split=split), **_count(model, split)}}
    return {**head, "split": split, "metrics": model.evaluate(split=split)}


def _count(model: NodeClassifier, split: str) -> dict[str, int]:
    labels = model.graph_.labels
    assert labels is not None
    return {"count": len(labels.of(split)[0])}
