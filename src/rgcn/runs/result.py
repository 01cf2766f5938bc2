"""What a run gave, and the figures it is judged by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rgcn.config import RunConfig
from rgcn.tasks.estimator import Estimator


@dataclass(frozen=True)
class RunResult:
    """What a run gave; `as_dict` is what `--json` prints.

    parameters         as the paper counts them: a row for every relation and node in a one-hot layer
    stored_parameters  what is really held and trained
    seconds            spent training, in all sessions together
    """

    config: RunConfig
    model: Estimator
    epochs: int
    parameters: int
    seconds: float
    metrics: dict[str, dict[str, Any]]

    def as_dict(self) -> dict[str, Any]:
        return {
            "task": self.config.task,
            "dataset": self.config.data.title,
            "model": self.config.model.title,
            "seed": self.config.seed,
            "epochs": self.epochs,
            "parameters": self.parameters,
            "stored_parameters": self.model.num_parameters_,
            "seconds": round(self.seconds, 3),
            "metrics": self.metrics,
        }
