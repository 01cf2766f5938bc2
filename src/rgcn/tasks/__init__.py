"""Modules turned into something a user can fit, evaluate and predict with; and what a task is."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rgcn.tasks.epoch import Epoch
    from rgcn.tasks.estimator import Estimator
    from rgcn.tasks.link_classifier import LinkClassifier
    from rgcn.tasks.link_predictor import LinkPredictor, ScoredTriple
    from rgcn.tasks.node_classifier import NodeClassifier, NodePrediction
    from rgcn.tasks.storage import load_model
    from rgcn.tasks.task import Metric, Task, task_of

# A list of runs needs to know what a task is called, and not PyTorch.
_FILES = {
    "Epoch": "epoch",
    "Estimator": "estimator",
    "LinkClassifier": "link_classifier",
    "LinkPredictor": "link_predictor",
    "Metric": "task",
    "NodeClassifier": "node_classifier",
    "NodePrediction": "node_classifier",
    "ScoredTriple": "link_predictor",
    "Task": "task",
    "load_model": "storage",
    "task_of": "task",
}

__all__ = [
    "Epoch",
    "Estimator",
    "LinkClassifier",
    "LinkPredictor",
    "Metric",
    "NodeClassifier",
    "NodePrediction",
    "ScoredTriple",
    "Task",
    "load_model",
    "task_of",
]


def __getattr__(name: str) -> Any:
    if name not in _FILES:
        raise AttributeError(f"module 'rgcn.tasks' has no attribute {name!r}")
    value = getattr(import_module(f"rgcn.tasks.{_FILES[name]}"), name)
    globals()[name] = value
    return value
