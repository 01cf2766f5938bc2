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

from rgcn import errors as _errors
from rgcn.system.lazy import lazy_attributes

if TYPE_CHECKING:
    from rgcn import nn as nn
    from rgcn.adjacency import RelationalAdjacency as RelationalAdjacency
    from rgcn.data import load as load
    from rgcn.data import read as read
    from rgcn.errors import AmbiguousNameError as AmbiguousNameError
    from rgcn.errors import ConfigError as ConfigError
    from rgcn.errors import DataError as DataError
    from rgcn.errors import EmptyNameError as EmptyNameError
    from rgcn.errors import NotFittedError as NotFittedError
    from rgcn.errors import NothingToHoldOutError as NothingToHoldOutError
    from rgcn.errors import ParseError as ParseError
    from rgcn.errors import RgcnError as RgcnError
    from rgcn.errors import StoppedError as StoppedError
    from rgcn.errors import UnknownNameError as UnknownNameError
    from rgcn.graph import KnowledgeGraph as KnowledgeGraph
    from rgcn.graph import NodeLabels as NodeLabels
    from rgcn.models import LinkClassifier as LinkClassifier
    from rgcn.models import LinkPredictor as LinkPredictor
    from rgcn.models import NodeClassifier as NodeClassifier
    from rgcn.models import load_model as load_model
    from rgcn.plugins import allow as allow
    from rgcn.predict import open_model as open_model
    from rgcn.version import __version__ as __version__

# The public names of each module. Every exception is public.
_NAMES = {
    "adjacency": ("RelationalAdjacency",),
    "data": ("load", "read"),
    "errors": tuple(name for name in vars(_errors) if name.endswith("Error")),
    "graph": ("KnowledgeGraph", "NodeLabels"),
    "models": ("LinkClassifier", "LinkPredictor", "NodeClassifier", "load_model"),
    "plugins": ("allow",),
    "predict": ("open_model",),
    "version": ("__version__",),
}
__all__ = sorted(["nn", *(name for names in _NAMES.values() for name in names)])
if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__, _NAMES)


def __dir__() -> list[str]:
    return __all__
