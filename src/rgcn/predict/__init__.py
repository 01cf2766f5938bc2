"""Open a trained or pretrained model, query it by names, and write its answers as tables and files."""

from rgcn.predict.answer_tables import predict_classes
from rgcn.predict.opened_model import OpenModel, open_model

__all__ = ["OpenModel", "open_model", "predict_classes"]
