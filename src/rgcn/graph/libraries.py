"""A graph in the forms that NetworkX, PyKEEN, polars and pandas expect: methods of `KnowledgeGraph`."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rgcn.errors import DataError
from rgcn.graph.vocabulary import SPLITS, NodeKind, NodeLabels, Vocabulary
from rgcn.system.lazy import import_extra

if TYPE_CHECKING:
    import polars as pl
    import torch

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


# -- PyTorch Geometric ------------------------------------------------------------------------------------

PYG_SPLITS = ("train", "val", "test")  # in the order of SPLITS


def to_pyg(graph: KnowledgeGraph, inverse: bool = False) -> Any:
    """A `torch_geometric.data.Data`; `inverse` adds every triple's inverse behind them all, its type r + R.

    data = kg.to_pyg(inverse=True)      # as the paper does; PyG's own example then trains on it
    RGCNConv(data.num_nodes, 16, data.num_relations)(None, data.edge_index, data.edge_type)
    """
    subject, relation, object_ = graph.triples.T
    if inverse:
        subject, object_ = np.concatenate([subject, object_]), np.concatenate([object_, subject])
        relation = np.concatenate([relation, relation + graph.num_relations])
    attributes: dict[str, Any] = {
        "edge_index": _tensor(np.stack([subject, object_])),
        "edge_type": _tensor(relation),
        "num_nodes": graph.num_nodes,
        "num_relations": graph.num_relations * (2 if inverse else 1),
        "node_names": list(graph.nodes),
        "relation_names": list(graph.relations),
        "has_inverse": inverse,
        "graph_name": graph.name,
        "graph_metadata": dict(graph.metadata),
    }
    doubled = {"edge_weight": graph.edge_weights, "edge_split": graph.triple_splits}
    of_nodes: dict[str, Any] = {"x": graph.features, "node_kind": graph.node_kinds}
    for name, values in (of_nodes | doubled).items():
        if values is not None:
            attributes[name] = _tensor(np.concatenate([values, values]) if inverse and name in doubled else values)
    if graph.labels is not None:
        attributes |= _label_attributes(graph.labels, graph.num_nodes)
    return import_extra("torch-geometric", "interop", "torch_geometric.data").Data(**attributes)


def from_pyg(
    data: Any,
    *,
    nodes: Sequence[str] | None = None,
    relations: Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
    name: str | None = None,
) -> KnowledgeGraph:
    """A graph from a `Data` or `HeteroData`.

    What `to_pyg` made comes back as it was. Names that the data lack are those given, or "node 0", "relation 0",
    "class 0"; nodes of a `HeteroData` are called "type/number". Without edge_type there is one relation, without masks
    all labels are for training; masks as long as the edges split the triples.
    """
    from rgcn.graph.knowledge_graph import KnowledgeGraph

    is_hetero = hasattr(data, "node_types") and hasattr(data, "edge_types")
    found = _of_hetero(data) if is_hetero else {**data.to_dict(), "num_nodes": data.num_nodes}
    found = {key: _array(value) for key, value in found.items()}
    if found.get("edge_index") is None:
        raise DataError("the data has no edge_index: a graph is made of edges")
    num_nodes = int(found["num_nodes"] or 0)
    edge_type = found.get("edge_type", np.zeros(found["edge_index"].shape[1], dtype=np.int64)).reshape(-1)
    own = len(found["relation_names"]) if found.get("has_inverse") else int(edge_type.max(initial=-1)) + 1
    keep = edge_type < own
    edge_splits = found.get("edge_split", _edge_masks(found, len(keep), num_nodes))
    weights = found.get("edge_weight")
    labelled: tuple[dict[str, Any], int, int] = found.get("labelled", (found, num_nodes, 0))
    return KnowledgeGraph(
        np.stack([found["edge_index"][0], edge_type, found["edge_index"][1]], axis=1)[keep],
        _names(nodes, found.get("node_names"), num_nodes, "node"),
        _names(relations, found.get("relation_names"), own, "relation"),
        node_kinds=found.get("node_kind"),
        labels=_labels(*labelled, classes),
        triple_splits=None if edge_splits is None else edge_splits[keep],
        features=found.get("x"),
        edge_weights=None if weights is None else weights.reshape(-1)[keep],
        name=found.get("graph_name", "") if name is None else name,
        metadata=found.get("graph_metadata", {}),
    )


def _label_attributes(labels: NodeLabels, num_nodes: int) -> dict[str, Any]:
    classes = np.full(num_nodes, -1, dtype=np.int64)
    classes[labels.nodes] = labels.classes
    attributes: dict[str, Any] = {
        "y": _tensor(classes),
        "num_classes": labels.num_classes,
        "class_names": list(labels.names),
        "label_order": _tensor(labels.nodes),
    }
    for split, word in zip(SPLITS, PYG_SPLITS, strict=True):
        nodes, its_classes = labels.of(split)
        mask = np.zeros(num_nodes, dtype=bool)
        mask[nodes] = True
        attributes[f"{word}_mask"] = _tensor(mask)
        attributes[f"{word}_idx"], attributes[f"{word}_y"] = _tensor(nodes), _tensor(its_classes)
    return attributes


def _tensor(values: NDArray[Any]) -> torch.Tensor:
    import torch

    return torch.from_numpy(np.array(values))  # a copy: a graph's arrays cannot be written, a tensor's can


def _array(value: Any) -> Any:
    """Tensors as arrays, anything else as it is."""
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value


def _names(given: Sequence[str] | None, found: Sequence[str] | None, count: int, kind: str) -> Vocabulary:
    names = given if given is not None else found
    if names is None:
        names = [f"{kind} {number}" for number in range(count)]
    if len(names) < count or (kind == "node" and len(names) != count):
        raise DataError(f"the data has {count} {kind} numbers, but there are {len(names)} names for them")
    return Vocabulary(names, kind=kind)


def _edge_masks(found: Mapping[str, Any], num_edges: int, num_nodes: int) -> NDArray[np.int8] | None:
    """Splits of edges, as PyG's WordNet18 has them: masks that are as long as the edges."""
    masks = [found.get(f"{word}_mask") for word in PYG_SPLITS]
    if masks[0] is None or masks[0].shape != (num_edges,) or num_edges == num_nodes:
        return None
    splits = np.zeros(num_edges, dtype=np.int8)
    for number, mask in enumerate(masks):
        if mask is not None:
            splits[mask] = number
    return splits


def _labels(found: Mapping[str, Any], num_nodes: int, first: int, given: Sequence[str] | None) -> NodeLabels | None:
    """The labels that attributes of some nodes tell, of which the first has this number."""
    y = found.get("y")
    if y is not None:
        y = y.reshape(-1) if y.shape == (num_nodes, 1) else y
        if y.shape != (num_nodes,) or not np.issubdtype(y.dtype, np.integer):
            warnings.warn(f"y of shape {list(y.shape)} and type {y.dtype} is no class a node: left out", stacklevel=3)
            y = None
    members = list(_members(found, y, num_nodes))
    if not members and y is not None:  # no mask: all are for training
        members = [(np.flatnonzero(y >= 0), y[y >= 0], 0)]
    if not members:
        return None
    nodes = np.concatenate([nodes for nodes, _, _ in members]).astype(np.int64)
    classes = np.concatenate([classes for _, classes, _ in members]).astype(np.int64)
    splits = np.repeat([split for _, _, split in members], [len(nodes) for nodes, _, _ in members]).astype(np.int8)
    order = found.get("label_order")
    if order is not None and np.array_equal(np.sort(order), np.sort(nodes)):
        back = np.argsort(nodes)[np.searchsorted(np.sort(order), order)]
        nodes, classes, splits = nodes[back], classes[back], splits[back]
    elif len(np.unique(nodes)) != len(nodes):
        raise DataError("a node stands in two of train_mask, val_mask and test_mask")
    names = _names(given, found.get("class_names"), int(classes.max(initial=-1)) + 1, "class")
    return NodeLabels(first + nodes, classes, names, splits)


def _members(
    found: Mapping[str, Any], y: NDArray[Any] | None, num_nodes: int
) -> Iterator[tuple[NDArray[Any], NDArray[Any], int]]:
    """(nodes, their classes, number) of each split that the data tell."""
    for number, word in enumerate(PYG_SPLITS):
        mask, nodes = found.get(f"{word}_mask"), found.get(f"{word}_idx")
        if y is not None and mask is not None:
            if mask.shape != (num_nodes,):
                raise DataError(f"{word}_mask has shape {list(mask.shape)}, and must be [{num_nodes}]")
            nodes = np.flatnonzero(mask & (y >= 0))
            yield nodes, y[nodes], number
        elif y is None and nodes is not None:
            yield nodes, found[f"{word}_y"], number


def _of_hetero(data: Any) -> dict[str, Any]:
    """The attributes of a `HeteroData` as those of a `Data`: types one after the other."""
    sizes = {kind: int(data[kind].num_nodes or 0) for kind in data.node_types}
    starts = dict(zip(sizes, np.cumsum([0, *sizes.values()]).tolist(), strict=False))
    edges = {kind: _array(data[kind].edge_index) for kind in data.edge_types if "edge_index" in data[kind]}
    counts = [index.shape[1] for index in edges.values()]
    shifted = [index + np.array([[starts[kind[0]]], [starts[kind[2]]]]) for kind, index in edges.items()]
    plain = [relation for _, relation, _ in edges]
    found: dict[str, Any] = {
        "num_nodes": sum(sizes.values()),
        "edge_index": np.concatenate([np.empty((2, 0), dtype=np.int64), *shifted], axis=1),
        "edge_type": np.repeat(np.arange(len(edges)), counts),
        "node_names": [f"{kind}/{number}" for kind, size in sizes.items() for number in range(size)],
        "relation_names": [kind[1] if plain.count(kind[1]) == 1 else "/".join(kind) for kind in edges],
    }
    weights = [_array(data[kind].get("edge_weight")) for kind in edges]
    if any(each is not None for each in weights):
        ones = (np.ones(count) if each is None else each for each, count in zip(weights, counts, strict=True))
        found["edge_weight"] = np.concatenate(list(ones))
    features = [_array(data[kind].get("x")) for kind in sizes]
    if all(each is not None and each.ndim == 2 and each.shape[1] == features[0].shape[1] for each in features):
        found["x"] = np.concatenate(features)
    elif any(each is not None for each in features):
        warnings.warn("features of some node types only, or of several widths: left out", stacklevel=3)
    labelled = [kind for kind in sizes if "y" in data[kind] or "train_y" in data[kind]]
    if len(labelled) > 1:
        raise DataError(
            f"nodes of the types {', '.join(labelled)} have labels: classes of which one? Keep y of one type only"
        )
    for kind in labelled:
        found["labelled"] = {key: _array(value) for key, value in data[kind].items()}, sizes[kind], starts[kind]
    return found
