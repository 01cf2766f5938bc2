"""Explanations: the triples that an answer depends on, how the answer changes without them, as text and drawing."""

from rgcn.explain.attribution import Attribution
from rgcn.explain.explanation import ExplainedEdge, ExplainedNeighbor, ExplainedPath, Explanation, Fidelity
from rgcn.explain.methods import Explainer, ExplainOptions, available_methods, explain_class, explain_link

__all__ = ["Attribution", "ExplainOptions", "ExplainedEdge", "ExplainedNeighbor", "ExplainedPath", "Explainer"]
__all__ += ["Explanation", "Fidelity", "available_methods", "explain_class", "explain_link"]
