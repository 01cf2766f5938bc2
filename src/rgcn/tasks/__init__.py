"""Modules turned into something a user can fit, evaluate and predict with."""

from rgcn.tasks.link_predictor import LinkPredictor, ScoredTriple
from rgcn.tasks.node_classifier import NodeClassifier, NodePrediction
from rgcn.tasks.storage import load_model

__all__ = ["LinkPredictor", "NodeClassifier", "NodePrediction", "ScoredTriple", "load_model"]
