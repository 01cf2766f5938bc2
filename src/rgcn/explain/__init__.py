"""Why a model answers as it does: the triples that decided, how sure that is, in words and as a picture."""

from rgcn.explain.attribution import Attribution as Attribution
from rgcn.explain.explanation import ExplainedEdge as ExplainedEdge
from rgcn.explain.explanation import ExplainedNeighbor as ExplainedNeighbor
from rgcn.explain.explanation import ExplainedPath as ExplainedPath
from rgcn.explain.explanation import Explanation as Explanation
from rgcn.explain.explanation import Fidelity as Fidelity
from rgcn.explain.methods import Explainer as Explainer
from rgcn.explain.methods import explain_class as explain_class
from rgcn.explain.methods import explain_link as explain_link
from rgcn.explain.methods import methods_of as methods_of
