"""NetworkX: a graph as its `MultiDiGraph`, for its algorithms and its pictures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rgcn.extras import import_extra
from rgcn.graph.knowledge_graph import KnowledgeGraph, NodeKind
from rgcn.graph.labels import SPLITS


def to_networkx(graph: KnowledgeGraph) -> Any:
    """A `networkx.MultiDiGraph`: nodes by name, an edge a triple.

    Nodes have the attribute kind ("iri", "literal", "blank") and, where they have such, label, split and features;
    edges have relation and, where the graph has such, weight and split. An edge's key is its relation; a triple that
    stands again (in another split, or with another weight) has the key (relation, 2), (relation, 3) and so on.

    >>> kg = KnowledgeGraph.from_triples([("a", "likes", "b")], labels={"a": "person"})
    >>> multi = to_networkx(kg)
    >>> multi.nodes["a"], list(multi.edges(keys=True))
    ({'kind': 'iri', 'label': 'person', 'split': 'train'}, [('a', 'b', 'likes')])
    """
    multi = import_extra("networkx", "interop").MultiDiGraph(name=graph.name)
    multi.add_nodes_from(_nodes(graph))
    multi.add_edges_from(_edges(graph))
    return multi


def _nodes(graph: KnowledgeGraph) -> Iterator[tuple[str, dict[str, Any]]]:
    labels: dict[int, dict[str, Any]] = {}
    if graph.labels is not None:
        names = graph.labels.names
        rows = (graph.labels.nodes.tolist(), graph.labels.classes.tolist(), graph.labels.splits.tolist())
        labels = {node: {"label": names[c], "split": SPLITS[s]} for node, c, s in zip(*rows, strict=True)}
    kinds = {int(kind): kind.name.lower() for kind in NodeKind}
    each_kind = [int(NodeKind.IRI)] * graph.num_nodes if graph.node_kinds is None else graph.node_kinds.tolist()
    for node, (name, kind) in enumerate(zip(graph.nodes, each_kind, strict=True)):
        attributes = {"kind": kinds[kind], **labels.get(node, {})}
        if graph.features is not None:
            attributes["features"] = graph.features[node].tolist()
        yield name, attributes


def _edges(graph: KnowledgeGraph) -> Iterator[tuple[str, str, Any, dict[str, Any]]]:
    splits = None if graph.triple_splits is None else graph.triple_splits.tolist()
    weights = None if graph.edge_weights is None else graph.edge_weights.tolist()
    met: dict[tuple[str, str, str], int] = {}
    for number, (subject, relation, object_) in enumerate(graph.named()):
        times = met[subject, relation, object_] = met.get((subject, relation, object_), 0) + 1
        attributes: dict[str, Any] = {"relation": relation}
        if weights is not None:
            attributes["weight"] = weights[number]
        if splits is not None:
            attributes["split"] = SPLITS[splits[number]]
        yield subject, object_, relation if times == 1 else (relation, times), attributes
