"""Two graphs that name the same things: which relation of the one is which of the other."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from rgcn.errors import DataError, UnknownNameError
from rgcn.graph.knowledge_graph import KnowledgeGraph
from rgcn.graph.vocabulary import Vocabulary

MOST_NAMED = 5


def plain_name(name: str, kind: str) -> str:
    """The plain name behind an IRI of our own making (`kg.to_rdf`), so that what was written can be read back."""
    from rgcn.graph.interop.rdf_terms import BASE  # brings a reader of RDF, which plain names have no need of

    prefix = f"{BASE}{kind}:"
    return unquote(name[len(prefix) :]) if name.startswith(prefix) else name


def relation_ids(known: Vocabulary, new: Vocabulary, used: NDArray[np.int64], source: str) -> NDArray[np.int64]:
    """The known id of each relation that is used; -1 for the others. `source`: where they are from, for words."""
    found, unknown = np.full(len(new), -1, dtype=np.int64), []
    for number in used.tolist():
        name = new[number] if new[number] in known else plain_name(new[number], "relation")
        if name in known:
            found[number] = known[name]
        else:
            unknown.append(new[number])
    if unknown:
        first = UnknownNameError("relation", unknown[0], known)
        more = f" ({len(unknown)} relations are unknown: {some_names(unknown)})" if len(unknown) > 1 else ""
        raise DataError(
            f"{source}: {first}{more} A model has weights for the relations it was trained with: take the other "
            "triples out, or train anew with them"
        )
    return found


def with_relations(graph: KnowledgeGraph, known: Vocabulary) -> KnowledgeGraph:
    """The same graph with its relations numbered as they are known; DataError where it uses others.

    >>> graph = KnowledgeGraph.from_triples([("a", "likes", "b"), ("b", "knows", "c")])
    >>> with_relations(graph, Vocabulary(["knows", "likes", "sees"])).triples.tolist()
    [[0, 1, 1], [1, 0, 2]]
    """
    number = relation_ids(known, graph.relations, np.unique(graph.triples[:, 1]), graph.name or "the graph")
    triples = graph.triples.copy()
    triples[:, 1] = number[triples[:, 1]]
    return replace(graph, triples=triples, relations=known)


def some_names(names: list[str] | tuple[str, ...]) -> str:
    """The first of them."""
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return ", ".join(map(repr, names[:MOST_NAMED])) + more
