"""Modules turned into something a user can fit, evaluate and predict with."""

from rgcn.tasks.node_classifier import NodeClassifier, NodePrediction

__all__ = ["NodeClassifier", "NodePrediction"]
