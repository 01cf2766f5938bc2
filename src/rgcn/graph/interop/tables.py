"""Tables of triples: subject, relation, object by name, with split and weight where the graph has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rgcn.extras import import_extra
from rgcn.graph.knowledge_graph import KnowledgeGraph
from rgcn.graph.labels import SPLITS

if TYPE_CHECKING:
    import polars as pl


def to_polars(graph: KnowledgeGraph) -> pl.DataFrame:
    """A `polars.DataFrame`, a row a triple.

    >>> to_polars(KnowledgeGraph.from_triples([("a", "likes", "b")])).rows()
    [('a', 'likes', 'b')]
    """
    import polars as pl

    columns = {
        name: pl.Series(name, names, dtype=pl.String).gather(ids) for name, (names, ids) in _coded(graph).items()
    }
    if graph.edge_weights is not None:
        columns["weight"] = pl.Series("weight", graph.edge_weights)
    return pl.DataFrame(columns)


def to_pandas(graph: KnowledgeGraph) -> Any:
    """A `pandas.DataFrame`, a row a triple."""
    pandas = import_extra("pandas", "interop")
    columns: dict[str, Any] = {name: np.array(names, dtype=object)[ids] for name, (names, ids) in _coded(graph).items()}
    if graph.edge_weights is not None:
        columns["weight"] = graph.edge_weights
    return pandas.DataFrame(columns)


def _coded(graph: KnowledgeGraph) -> dict[str, tuple[list[str], NDArray[np.integer[Any]]]]:
    """Every column of names: the names there are, and which of them each row has."""
    nodes, relations = list(graph.nodes), list(graph.relations)
    subject, relation, object_ = graph.triples.T
    coded: dict[str, tuple[list[str], NDArray[np.integer[Any]]]] = {
        "subject": (nodes, subject),
        "relation": (relations, relation),
        "object": (nodes, object_),
    }
    if graph.triple_splits is not None:
        coded["split"] = (list(SPLITS), graph.triple_splits)
    return coded
