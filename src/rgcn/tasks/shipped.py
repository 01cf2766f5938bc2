"""The model that comes with rgcn (stand-in until its weights are there)."""

from __future__ import annotations

from rgcn.graph import KnowledgeGraph
from rgcn.tasks.link_classifier import LinkClassifier
from rgcn.tasks.link_predictor import LinkPredictor


def shipped_predictor(kg: KnowledgeGraph, device: str = "auto") -> LinkPredictor:
    made = LinkPredictor("path", layers=3, width=8, epochs=1, device=device).prepare(kg)
    made.network_.eval()
    return made


def shipped_classifier(kg: KnowledgeGraph, device: str = "auto") -> LinkClassifier:
    made = LinkClassifier("path", layers=3, width=8, epochs=1, device=device).prepare(kg)
    made.network_.eval()
    return made
