"""The only room that knows file formats, checksums and the network; it hands on a `KnowledgeGraph`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgcn.data.registry import datasets, get, load
from rgcn.system.lazy import lazy_names

if TYPE_CHECKING:
    from rgcn.data.reading import read
else:
    # Only who reads waits for polars, which takes longer to load than a small graph.
    __getattr__ = lazy_names(__name__, {"reading": ("read",)})

__all__ = ["datasets", "get", "load", "read"]
