"""A trained model opened for questions, and the answers: classes, links, all missing triples, probabilities."""

from rgcn.predict.classes import predict_classes
from rgcn.predict.completion import complete
from rgcn.predict.links import predict_links
from rgcn.predict.opened import OpenModel, open_model

__all__ = ["OpenModel", "complete", "open_model", "predict_classes", "predict_links"]
