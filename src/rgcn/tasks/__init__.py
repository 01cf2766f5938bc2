"""Modules turned into something a user can fit, evaluate and predict with."""

from rgcn.tasks.link_predictor import LinkPredictor, ScoredTriple
from rgcn.tasks.node_classifier import NodeClassifier, NodePrediction

__all__ = ["LinkPredictor", "NodeClassifier", "NodePrediction", "ScoredTriple"]
