"""Estimators that users fit, evaluate and predict with; tasks; saved models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgcn.system.lazy import lazy_attributes

if TYPE_CHECKING:
    from rgcn.models.estimator import Estimator as Estimator
    from rgcn.models.link_classifier import LinkClassifier as LinkClassifier
    from rgcn.models.link_predictor import LinkPredictor as LinkPredictor
    from rgcn.models.node_classifier import NodeClassifier as NodeClassifier
    from rgcn.models.storage import load_model as load_model
    from rgcn.models.task import Task as Task
    from rgcn.models.task import task_of as task_of
else:
    # Imported on first use: a list of runs needs the names of tasks, and not PyTorch.
    _NAMES = {
        "estimator": ("Estimator",),
        "link_classifier": ("LinkClassifier",),
        "link_predictor": ("LinkPredictor",),
        "node_classifier": ("NodeClassifier",),
        "storage": ("load_model",),
        "task": ("Task", "task_of"),
    }
    __getattr__ = lazy_attributes(__name__, _NAMES)
