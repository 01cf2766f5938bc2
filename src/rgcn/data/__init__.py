"""The only room that knows file formats, checksums and the network; it hands on a `KnowledgeGraph`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rgcn.data.registry import datasets, get, load

if TYPE_CHECKING:
    from rgcn.data.reading import read

__all__ = ["datasets", "get", "load", "read"]


def __getattr__(name: str) -> Any:
    if name != "read":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rgcn.data.reading import read  # only who reads waits for polars, which loads longer than a small graph

    return read
