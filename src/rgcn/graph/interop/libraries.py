"""A graph in the forms that NetworkX, PyKEEN, polars and pandas expect: methods of `KnowledgeGraph`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rgcn.graph.vocabulary import SPLITS, NodeKind
from rgcn.system.lazy import import_extra

if TYPE_CHECKING:
    import polars as pl

    from rgcn.graph.knowledge_graph import KnowledgeGraph


def to_networkx(graph: KnowledgeGraph) -> Any:
    """A `networkx.MultiDiGraph`: nodes by name, an edge a triple.

    Nodes have the attribute kind ("iri", "literal", "blank") and, where they have such, label, split and features;
    edges have relation and, where the graph has such, weight and split. An edge's key is its relation; a triple
    that stands again (in another split, or with another weight) has the key (relation, 2), (relation, 3) and so on.

    >>> from rgcn.graph import KnowledgeGraph
    >>> multi = KnowledgeGraph.from_triples([("a", "likes", "b")], labels={"a": "person"}).to_networkx()
    >>> multi.nodes["a"], list(multi.edges(keys=True))
    ({'kind': 'iri', 'label': 'person', 'split': 'train'}, [('a', 'b', 'likes')])
    """
    multi = import_extra("networkx", "interop").MultiDiGraph(name=graph.name)
    multi.add_nodes_from(_nodes(graph))
    multi.add_edges_from(_edges(graph))
    return multi


def to_pykeen(graph: KnowledgeGraph) -> dict[str, Any]:
    """{"train": TriplesFactory, "valid": ..., "test": ...}: the splits that have triples; without splits "train".

    Entity and relation ids are ours in every split, so that scores and ranks can be compared one to one:

        splits = kg.to_pykeen()
        pipeline(training=splits["train"], validation=splits["valid"], testing=splits["test"], model="RGCN")
    """
    import torch

    factory = import_extra("pykeen", "pykeen", "pykeen.triples").TriplesFactory
    entities = {name: number for number, name in enumerate(graph.nodes)}
    relations = {name: number for number, name in enumerate(graph.relations)}
    return {
        split: factory(
            mapped_triples=torch.from_numpy(np.array(triples)),
            entity_to_id=entities,
            relation_to_id=relations,
            metadata={"name": graph.name, "split": split},
        )
        for split in (SPLITS if graph.triple_splits is not None else ("train",))
        if len(triples := graph.split_triples(split))
    }


def to_polars(graph: KnowledgeGraph) -> pl.DataFrame:
    """A `polars.DataFrame`, a row a triple: subject, relation, object, and split and weight where there are such.

    >>> from rgcn.graph import KnowledgeGraph
    >>> KnowledgeGraph.from_triples([("a", "likes", "b")]).to_polars().rows()
    [('a', 'likes', 'b')]
    """
    import polars as pl

    columns = {name: pl.Series(name, names, dtype=pl.String).gather(ids) for name, names, ids in _coded(graph)}
    if graph.edge_weights is not None:
        columns["weight"] = pl.Series("weight", graph.edge_weights)
    return pl.DataFrame(columns)


def to_pandas(graph: KnowledgeGraph) -> Any:
    """A `pandas.DataFrame` with the same rows as that of polars."""
    columns: dict[str, Any] = {name: np.array(names, dtype=object)[ids] for name, names, ids in _coded(graph)}
    if graph.edge_weights is not None:
        columns["weight"] = graph.edge_weights
    return import_extra("pandas", "interop").DataFrame(columns)


def _nodes(graph: KnowledgeGraph) -> Iterator[tuple[str, dict[str, Any]]]:
    labels: dict[int, dict[str, Any]] = {}
    if graph.labels is not None:
        names = graph.labels.names
        rows = (graph.labels.nodes.tolist(), graph.labels.classes.tolist(), graph.labels.splits.tolist())
        labels = {node: {"label": names[c], "split": SPLITS[s]} for node, c, s in zip(*rows, strict=True)}
    kinds = [kind.name.lower() for kind in NodeKind]
    each_kind = [0] * graph.num_nodes if graph.node_kinds is None else graph.node_kinds.tolist()
    for node, (name, kind) in enumerate(zip(graph.nodes, each_kind, strict=True)):
        attributes = {"kind": kinds[kind], **labels.get(node, {})}
        if graph.features is not None:
            attributes["features"] = graph.features[node].tolist()
        yield name, attributes


def _edges(graph: KnowledgeGraph) -> Iterator[tuple[str, str, Any, dict[str, Any]]]:
    met = Counter[tuple[str, str, str]]()
    for row in to_polars(graph).iter_rows(named=True):
        subject, object_, relation = row.pop("subject"), row.pop("object"), row["relation"]
        met[subject, relation, object_] += 1
        again = met[subject, relation, object_]
        yield subject, object_, relation if again == 1 else (relation, again), row


def _coded(graph: KnowledgeGraph) -> Iterator[tuple[str, list[str], NDArray[np.integer[Any]]]]:
    """Every column of names: what it is called, the names there are, and which of them each row has."""
    yield "subject", list(graph.nodes), graph.triples[:, 0]
    yield "relation", list(graph.relations), graph.triples[:, 1]
    yield "object", list(graph.nodes), graph.triples[:, 2]
    if graph.triple_splits is not None:
        yield "split", list(SPLITS), graph.triple_splits
