"""Why a model answers as it does: the triples that decided, how sure that is, in words and as a picture."""

from rgcn.explain.explaining import METHODS, explain_class, explain_link, methods_of
from rgcn.explain.explanation import ExplainedEdge, ExplainedNeighbor, ExplainedPath, Explanation
from rgcn.explain.fidelity import Fidelity

__all__ = [
    "METHODS",
    "ExplainedEdge",
    "ExplainedNeighbor",
    "ExplainedPath",
    "Explanation",
    "Fidelity",
    "explain_class",
    "explain_link",
    "methods_of",
]
