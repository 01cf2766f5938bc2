"""Readable names that a data set's own files do not have."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

from rgcn.errors import DataError
from rgcn.graph import KnowledgeGraph

WORDNET = ("wn18", "wn18rr")


@dataclass(frozen=True, eq=False)
class OutsideNames:
    """Titles and descriptions of nodes, by id."""

    titles: dict[int, str]
    descriptions: dict[int, str]


def names_outside(dataset: str, graph: KnowledgeGraph, mirror: Path | None = None) -> OutsideNames | None:
    """Readable names of a data set's nodes from where it took them; None where there is no such place.

    They are fetched once and kept in the cache. A model answers without them as well, so that a machine without a
    network gets a warning and no error.
    """
    if dataset.lower() not in WORDNET:
        return None
    from rgcn.data.wordnet import load_synsets, synsets_of

    try:
        synsets = load_synsets(mirror)
    except DataError as error:
        warnings.warn(f"nodes keep their numbers, because WordNet could not be had: {error}", stacklevel=2)
        return None
    found = synsets_of(graph, synsets)
    return OutsideNames(
        {node: synset.title for node, synset in found.items()},
        {node: synset.gloss for node, synset in found.items()},
    )
