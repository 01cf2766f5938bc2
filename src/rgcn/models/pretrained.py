"""The model that comes with rgcn, over a graph: nothing is trained."""

from typing import TypeVar

from rgcn.graph import KnowledgeGraph
from rgcn.models.link_classifier import LinkClassifier
from rgcn.models.link_predictor import LinkPredictor
from rgcn.nn.pretrained_weights import shipped_card

Model = TypeVar("Model", LinkPredictor, LinkClassifier)


def shipped_predictor(kg: KnowledgeGraph, device: str = "auto") -> LinkPredictor:
    """Missing links of any graph; its training triples are what is heard.

    >>> import rgcn
    >>> model = shipped_predictor(rgcn.load("world"))
    >>> [found.object for found in model.predict(subject="Albania", relation="borders", k=1, known="drop")]
    ['North Macedonia']
    """
    return _untrained(LinkPredictor("universal", **shipped_card()["settings"], device=device, epochs=0), kg)


def shipped_classifier(kg: KnowledgeGraph, device: str = "auto") -> LinkClassifier:
    """Classes of any graph's nodes: training labels are heard as edges, a class is the answer among the classes."""
    return _untrained(LinkClassifier("universal", **shipped_card()["settings"], device=device, epochs=0), kg)


def _untrained(model: Model, kg: KnowledgeGraph) -> Model:
    """As `fit` without steps leaves it; an optimizer that nobody needs would load PyTorch's compiler, two seconds."""
    model.prepare(kg).network_.eval()
    return model
