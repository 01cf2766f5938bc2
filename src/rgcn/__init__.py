"""Learn from a knowledge graph with relational graph convolutional networks.

The names below are the public interface; everything else that is public is in a documented submodule. Names and
submodules are imported on first use, because PyTorch loads slowly: `import rgcn` alone is quick and changes nothing in
the process.

>>> import rgcn
>>> kg = rgcn.load("world")
>>> kg.num_nodes > 1000
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgcn.errors import (
    AmbiguousNameError,
    ConfigError,
    DataError,
    EmptyNameError,
    NotFittedError,
    NothingToHoldOutError,
    ParseError,
    RgcnError,
    StoppedError,
    UnknownNameError,
)
from rgcn.system.lazy import lazy_attributes

if TYPE_CHECKING:
    from rgcn import nn
    from rgcn.adjacency import RelationalAdjacency
    from rgcn.data import load, read
    from rgcn.graph import KnowledgeGraph, NodeLabels
    from rgcn.models import LinkClassifier, LinkPredictor, NodeClassifier, load_model
    from rgcn.plugins import allow
    from rgcn.predict import open_model
    from rgcn.version import __version__
else:
    __getattr__ = lazy_attributes(
        __name__,
        {
            "adjacency": ("RelationalAdjacency",),
            "data": ("load", "read"),
            "graph": ("KnowledgeGraph", "NodeLabels"),
            "models": ("LinkClassifier", "LinkPredictor", "NodeClassifier", "load_model"),
            "plugins": ("allow",),
            "predict": ("open_model",),
            "version": ("__version__",),
        },
    )

__all__ = [
    "AmbiguousNameError",
    "ConfigError",
    "DataError",
    "EmptyNameError",
    "KnowledgeGraph",
    "LinkClassifier",
    "LinkPredictor",
    "NodeClassifier",
    "NodeLabels",
    "NotFittedError",
    "NothingToHoldOutError",
    "ParseError",
    "RelationalAdjacency",
    "RgcnError",
    "StoppedError",
    "UnknownNameError",
    "__version__",
    "allow",
    "load",
    "load_model",
    "nn",
    "open_model",
    "read",
]


def __dir__() -> list[str]:
    return sorted(__all__)
