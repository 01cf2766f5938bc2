"""A trained model opened for questions, and the answers: classes, links, all missing triples, probabilities."""

from rgcn.answers.completion import complete
from rgcn.answers.links import predict_links
from rgcn.predict.classes import predict_classes
from rgcn.predict.opened import OpenModel, open_model

__all__ = ["OpenModel", "complete", "open_model", "predict_classes", "predict_links"]
