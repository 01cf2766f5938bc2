"""Read knowledge graphs from files, and load data sets by name; only this subpackage uses the network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgcn.data.registry import datasets, get, load
from rgcn.system.lazy import lazy_attributes

if TYPE_CHECKING:
    from rgcn.data.reading import read
else:
    # Import polars only when files are read, because that takes longer than loading a small graph.
    __getattr__ = lazy_attributes(__name__, {"reading": ("read",)})

__all__ = ["datasets", "get", "load", "read"]
