"""Whether a data set can be had, and if not, why, in a few words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rgcn.data import load
from rgcn.data.sources import NoSourceError
from rgcn.errors import RgcnError

if TYPE_CHECKING:
    from rgcn.graph import KnowledgeGraph


def load_or_reason(name: str, mirror: Path | None) -> KnowledgeGraph | str:
    """The graph, or the reason why there is none."""
    try:
        return load(name, mirror=mirror)
    except RgcnError as error:
        return reason(error)


def reason(error: RgcnError) -> str:
    """An error about data as a note in a table.

    >>> reason(NoSourceError("the data set ..."))
    'the data are neither on this machine nor could they be fetched (`rgcn data get` tells why)'
    """
    if isinstance(error, NoSourceError):
        return "the data are neither on this machine nor could they be fetched (`rgcn data get` tells why)"
    return str(error).splitlines()[0]
