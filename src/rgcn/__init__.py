"""rgcn: learn from a knowledge graph with relational graph convolutional networks.

>>> import rgcn
>>> kg = rgcn.load("world")
>>> kg.num_nodes > 1000
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgcn.system.lazy import lazy_names
from rgcn.version import __version__

# Importing PyTorch takes longer than most people wait for a prompt, so each public name brings in its own room
# only when it is first used; so does each room, as in `rgcn.nn`.
_NAMES = {
    "adjacency": ("RelationalAdjacency",),
    "plugins": ("allow",),
    "data": ("load", "read"),
    "system.threads": ("wait_passively",),
    "errors": ("RgcnError",),
    "graph": ("KnowledgeGraph", "NodeLabels"),
    "predict": ("open_model",),
    "models": ("LinkClassifier", "LinkPredictor", "NodeClassifier", "load_model"),
}

if TYPE_CHECKING:
    from rgcn import nn
    from rgcn.adjacency import RelationalAdjacency
    from rgcn.data import load, read
    from rgcn.errors import RgcnError
    from rgcn.graph import KnowledgeGraph, NodeLabels
    from rgcn.models import LinkClassifier, LinkPredictor, NodeClassifier, load_model
    from rgcn.plugins import allow
    from rgcn.predict import open_model
    from rgcn.system.threads import wait_passively
else:
    __getattr__ = lazy_names(__name__, _NAMES)

__all__ = [
    "KnowledgeGraph",
    "LinkClassifier",
    "LinkPredictor",
    "NodeClassifier",
    "NodeLabels",
    "RelationalAdjacency",
    "RgcnError",
    "__version__",
    "allow",
    "load",
    "load_model",
    "nn",
    "open_model",
    "read",
    "wait_passively",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
