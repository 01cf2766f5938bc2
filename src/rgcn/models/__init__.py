"""Modules turned into something a user can fit, evaluate and predict with; and what a task is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgcn.system.lazy import lazy_names

if TYPE_CHECKING:
    from rgcn.models.estimator import Estimator as Estimator
    from rgcn.models.link_classifier import LinkClassifier as LinkClassifier
    from rgcn.models.link_predictor import LinkPredictor as LinkPredictor
    from rgcn.models.link_predictor import ScoredTriple as ScoredTriple
    from rgcn.models.node_classifier import NodeClassifier as NodeClassifier
    from rgcn.models.node_classifier import NodePrediction as NodePrediction
    from rgcn.models.storage import load_model as load_model
    from rgcn.models.task import Task as Task
    from rgcn.models.task import task_of as task_of
else:
    # Imported when asked for: a list of runs needs to know what a task is called, and not PyTorch.
    __getattr__ = lazy_names(
        __name__,
        {
            "estimator": ("Estimator",),
            "link_classifier": ("LinkClassifier",),
            "link_predictor": ("LinkPredictor", "ScoredTriple"),
            "node_classifier": ("NodeClassifier", "NodePrediction"),
            "storage": ("load_model",),
            "task": ("Task", "task_of"),
        },
    )
