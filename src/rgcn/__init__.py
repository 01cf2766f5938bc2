"""rgcn: learn from a knowledge graph with relational graph convolutional networks.

>>> import rgcn
>>> kg = rgcn.load("world")
>>> kg.num_nodes > 1000
True
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from rgcn.version import __version__

# Importing PyTorch takes longer than most people wait for a prompt, so each public name brings in its own room
# only when it is first used; so does each room, as in `rgcn.nn`.
_NAMES = {
    "adjacency": ("RelationalAdjacency",),
    "axes": ("allow",),
    "data": ("load", "read"),
    "environment": ("wait_passively",),
    "errors": ("RgcnError",),
    "graph": ("KnowledgeGraph", "NodeLabels"),
    "predict": ("open_model",),
    "tasks": ("LinkClassifier", "LinkPredictor", "NodeClassifier", "load_model"),
}
_ROOMS = {name: room for room, names in _NAMES.items() for name in names}

if TYPE_CHECKING:
    from rgcn import nn
    from rgcn.adjacency import RelationalAdjacency
    from rgcn.axes import allow
    from rgcn.data import load, read
    from rgcn.environment import wait_passively
    from rgcn.errors import RgcnError
    from rgcn.graph import KnowledgeGraph, NodeLabels
    from rgcn.predict import open_model
    from rgcn.tasks import LinkClassifier, LinkPredictor, NodeClassifier, load_model

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


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        value = getattr(import_module(f"rgcn.{_ROOMS[name]}"), name)
    elif not name.startswith("_") and find_spec(f"rgcn.{name}"):
        value = import_module(f"rgcn.{name}")
    else:
        raise AttributeError(f"module 'rgcn' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
