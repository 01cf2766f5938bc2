"""The only room that knows file formats, checksums and the network; it hands on a `KnowledgeGraph`."""

from __future__ import annotations

from rgcn.data.reading import read
from rgcn.data.registry import datasets, get, load

__all__ = ["datasets", "get", "load", "read"]
