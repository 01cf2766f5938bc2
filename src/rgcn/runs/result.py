"""What a run gave, and the figures it is judged by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rgcn.config import RunConfig
from rgcn.graph import SPLITS
from rgcn.runs.assembly import Model
from rgcn.tasks import NodeClassifier


@dataclass(frozen=True)
class RunResult:
    """What a run gave; `as_dict` is what `--json` prints.

    parameters         as the paper counts them: a row for every relation and node in a one-hot layer
    stored_parameters  what is really held and trained
    seconds            spent training, in all sessions together
    """

    config: RunConfig
    model: Model
    epochs: int
    parameters: int
    seconds: float
    metrics: dict[str, dict[str, Any]]

    def as_dict(self) -> dict[str, Any]:
        return {
            "task": self.config.task,
            "dataset": self.config.data.title,
            "model": self.config.model.name,
            "seed": self.config.seed,
            "epochs": self.epochs,
            "parameters": self.parameters,
            "stored_parameters": self.model.num_parameters_,
            "seconds": round(self.seconds, 3),
            "metrics": self.metrics,
        }


def measure(model: Model) -> dict[str, dict[str, Any]]:
    """Metrics on every split that has something to measure; link prediction leaves training triples out."""
    if isinstance(model, NodeClassifier):
        assert model.graph_.labels is not None
        return {split: {"accuracy": model.score(split=split)} for split in model.graph_.labels.counts()}
    graph = model.graph_
    if graph.triple_splits is None:
        return {}
    splits = [split for split in SPLITS[1:] if len(graph.split_triples(split))]
    return {split: model.rank(split=split).both.as_dict() for split in splits}
