"""Conversion to and from NetworkX, PyKEEN, polars, pandas and PyTorch Geometric: methods of `KnowledgeGraph`."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rgcn.errors import DataError
from rgcn.graph.vocabulary import SPLITS, NodeLabels, Vocabulary
from rgcn.system.lazy import import_extra

if TYPE_CHECKING:
    import polars as pl
    import torch

    from rgcn.graph.knowledge_graph import KnowledgeGraph


def to_networkx(graph: KnowledgeGraph) -> Any:
    """Convert to a `networkx.MultiDiGraph` with a node for each name and an edge for each triple.

    Nodes have the attribute kind ("iri", "literal", "blank") and, if they have them, label, split and features. Edges
    have relation and, if the graph has them, weight and split. The key of an edge is its relation; a repeated triple
    (in another split, or with another weight) has the key (relation, 2), (relation, 3) and so on.

    >>> from rgcn.graph import KnowledgeGraph
    >>> multi = KnowledgeGraph.from_triples([("a", "likes", "b")], labels={"a": "person"}).to_networkx()
    >>> multi.nodes["a"], list(multi.edges(keys=True))
    ({'kind': 'iri', 'label': 'person', 'split': 'train'}, [('a', 'b', 'likes')])
    """
    multi, counts = import_extra("networkx", "interop").MultiDiGraph(name=graph.name), Counter[tuple[str, str, str]]()
    multi.add_nodes_from(_nodes(graph))
    for row in to_polars(graph).iter_rows(named=True):
        subject, object_, relation = row.pop("subject"), row.pop("object"), row["relation"]
        counts[subject, relation, object_] += 1
        count = counts[subject, relation, object_]
        multi.add_edge(subject, object_, relation if count == 1 else (relation, count), **row)
    return multi


def to_pykeen(graph: KnowledgeGraph) -> dict[str, Any]:
    """Convert to {"train": TriplesFactory, "valid": ..., "test": ...}, without empty splits; without splits "train".

    Entity and relation ids are those of the graph in every split, so that scores and ranks can be compared:

        splits = kg.to_pykeen()
        pipeline(training=splits["train"], validation=splits["valid"], testing=splits["test"], model="RGCN")
    """
    import torch

    factory = import_extra("pykeen", "pykeen", "pykeen.triples").TriplesFactory
    ids = {
        "entity_to_id": {name: number for number, name in enumerate(graph.nodes)},
        "relation_to_id": {name: number for number, name in enumerate(graph.relations)},
    }
    return {
        split: factory(torch.from_numpy(np.array(triples)), **ids, metadata={"name": graph.name, "split": split})
        for split in (SPLITS if graph.triple_splits is not None else ("train",))
        if len(triples := graph.split_triples(split))
    }


def to_polars(graph: KnowledgeGraph) -> pl.DataFrame:
    """Convert to a `polars.DataFrame`: a row for each triple with subject, relation, object, and split and weight.

    >>> from rgcn.graph import KnowledgeGraph
    >>> KnowledgeGraph.from_triples([("a", "likes", "b")]).to_polars().rows()
    [('a', 'likes', 'b')]
    """
    import polars as pl

    nodes, relations = (pl.Series(list(names), dtype=pl.String) for names in (graph.nodes, graph.relations))
    subject, relation, object_ = graph.triples.T
    columns = {
        "subject": nodes.gather(subject),
        "relation": relations.gather(relation),
        "object": nodes.gather(object_),
    }
    if graph.triple_splits is not None:
        columns["split"] = pl.Series(SPLITS, dtype=pl.String).gather(graph.triple_splits)
    if graph.edge_weights is not None:
        columns["weight"] = pl.Series(graph.edge_weights)
    return pl.DataFrame(columns)


def to_pandas(graph: KnowledgeGraph) -> Any:
    """Convert to a `pandas.DataFrame` with the same rows and columns as `to_polars`."""
    table = to_polars(graph)
    return import_extra("pandas", "interop").DataFrame({column.name: column.to_numpy() for column in table})


def _nodes(graph: KnowledgeGraph) -> Iterator[tuple[str, dict[str, Any]]]:
    labels: dict[int, dict[str, Any]] = {}
    if graph.labels is not None:
        names = graph.labels.names
        rows = (graph.labels.nodes.tolist(), graph.labels.classes.tolist(), graph.labels.splits.tolist())
        labels = {node: {"label": names[c], "split": SPLITS[s]} for node, c, s in zip(*rows, strict=True)}
    for node, name in enumerate(graph.nodes):
        attributes = {"kind": graph.kind(node).name.lower(), **labels.get(node, {})}
        if graph.features is not None:
            attributes["features"] = graph.features[node].tolist()
        yield name, attributes


# -- PyTorch Geometric ------------------------------------------------------------------------------------

PYG_SPLITS = ("train", "val", "test")  # in the order of SPLITS


def to_pyg(graph: KnowledgeGraph, inverse: bool = False) -> Any:
    """Convert to a `torch_geometric.data.Data`.

        data = kg.to_pyg(inverse=True)
        RGCNConv(data.num_nodes, 16, data.num_relations)(None, data.edge_index, data.edge_type)

    Args:
        graph: The graph.
        inverse: True to append the inverse of each triple, with the type relation + num_relations, as the paper does.
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
    """Convert from a `torch_geometric` `Data` or `HeteroData`. It is the inverse of `to_pyg`.

    Without edge_type there is one relation. Without masks all labels are for training; masks of the length of the edges
    split the triples.

    Args:
        data: The data.
        nodes: The names of nodes; by default those in the data, else "node 0", ..., or "type/0" for a `HeteroData`.
        relations: The names of relations; by default those in the data, else "relation 0", ...
        classes: The names of classes; by default those in the data, else "class 0", ...
        name: The name of the graph.

    Raises:
        DataError: The data have no edges, or names or masks do not fit.
    """
    from rgcn.graph.knowledge_graph import KnowledgeGraph

    is_hetero = hasattr(data, "node_types") and hasattr(data, "edge_types")
    values = _from_hetero(data) if is_hetero else {**data.to_dict(), "num_nodes": data.num_nodes}
    values = {key: _array(value) for key, value in values.items()}
    if values.get("edge_index") is None:
        raise DataError("the data have no edge_index: a graph needs edges")
    num_nodes = int(values["num_nodes"] or 0)
    edge_type = values.get("edge_type", np.zeros(values["edge_index"].shape[1], dtype=np.int64)).reshape(-1)
    num_relations = len(values["relation_names"]) if values.get("has_inverse") else int(edge_type.max(initial=-1)) + 1
    keep = edge_type < num_relations  # without inverse edges
    edge_splits = values.get("edge_split", _edge_masks(values, len(keep), num_nodes))
    weights = values.get("edge_weight")
    labeled: tuple[dict[str, Any], int, int] = values.get("labeled", (values, num_nodes, 0))
    return KnowledgeGraph(
        np.stack([values["edge_index"][0], edge_type, values["edge_index"][1]], axis=1)[keep],
        _names(nodes, values.get("node_names"), num_nodes, "node"),
        _names(relations, values.get("relation_names"), num_relations, "relation"),
        node_kinds=values.get("node_kind"),
        labels=_labels(*labeled, classes),
        triple_splits=None if edge_splits is None else edge_splits[keep],
        features=values.get("x"),
        edge_weights=None if weights is None else weights.reshape(-1)[keep],
        name=values.get("graph_name", "") if name is None else name,
        metadata=values.get("graph_metadata", {}),
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
    """Convert a tensor to an array; return anything else as it is."""
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value


def _names(names: Sequence[str] | None, default: Sequence[str] | None, count: int, kind: str) -> Vocabulary:
    names = default if names is None else names
    if names is None:
        names = [f"{kind} {number}" for number in range(count)]
    if len(names) < count or (kind == "node" and len(names) != count):
        raise DataError(f"the data have {count} {kind} numbers, but there are {len(names)} names for them")
    return Vocabulary(names, kind=kind)


def _edge_masks(values: Mapping[str, Any], num_edges: int, num_nodes: int) -> NDArray[np.int8] | None:
    """Return the splits of edges, int8 [num_edges], if masks have this length, as in PyG's WordNet18."""
    masks = [values.get(f"{split}_mask") for split in PYG_SPLITS]
    if masks[0] is None or masks[0].shape != (num_edges,) or num_edges == num_nodes:
        return None
    splits = np.zeros(num_edges, dtype=np.int8)
    for number, mask in enumerate(masks):
        if mask is not None:
            splits[mask] = number
    return splits


def _labels(values: Mapping[str, Any], num_nodes: int, first: int, names: Sequence[str] | None) -> NodeLabels | None:
    """Return the labels of `num_nodes` nodes, of which the first has the id `first`."""
    y = values.get("y")
    if y is not None:
        y = y.reshape(-1) if y.shape == (num_nodes, 1) else y
        if y.shape != (num_nodes,) or not np.issubdtype(y.dtype, np.integer):
            message = f"y of shape {list(y.shape)} and type {y.dtype} does not contain a class for each node: ignored"
            warnings.warn(message, stacklevel=3)
            y = None
    members: list[tuple[NDArray[Any], NDArray[Any], int]] = []  # for each split its nodes, their classes, its number
    for number, split in enumerate(PYG_SPLITS):
        mask, indices = values.get(f"{split}_mask"), values.get(f"{split}_idx")
        if y is not None and mask is not None:
            if mask.shape != (num_nodes,):
                raise DataError(f"{split}_mask has shape {list(mask.shape)}, and must be [{num_nodes}]")
            members.append((np.flatnonzero(mask & (y >= 0)), y[mask & (y >= 0)], number))
        elif y is None and indices is not None:
            members.append((indices, values[f"{split}_y"], number))
    if not members and y is not None:  # without masks all labels are for training
        members = [(np.flatnonzero(y >= 0), y[y >= 0], 0)]
    if not members:
        return None
    nodes, classes = (np.concatenate([member[at] for member in members]).astype(np.int64) for at in (0, 1))
    splits = np.concatenate([np.full(len(its_nodes), number, np.int8) for its_nodes, _, number in members])
    order = values.get("label_order")
    if order is not None and np.array_equal(np.sort(order), np.sort(nodes)):
        back = np.argsort(nodes)[np.searchsorted(np.sort(order), order)]
        nodes, classes, splits = nodes[back], classes[back], splits[back]
    elif len(np.unique(nodes)) != len(nodes):
        raise DataError("a node is in two of train_mask, val_mask and test_mask")
    class_names = _names(names, values.get("class_names"), int(classes.max(initial=-1)) + 1, "class")
    return NodeLabels(first + nodes, classes, class_names, splits)


def _from_hetero(data: Any) -> dict[str, Any]:
    """Convert the attributes of a `HeteroData` to those of a `Data`, one type after the other."""
    sizes = {kind: int(data[kind].num_nodes or 0) for kind in data.node_types}
    starts = dict(zip(sizes, np.cumsum([0, *sizes.values()]).tolist(), strict=False))
    edges = {kind: _array(data[kind].edge_index) for kind in data.edge_types if "edge_index" in data[kind]}
    counts = [index.shape[1] for index in edges.values()]
    shifted = [index + np.array([[starts[kind[0]]], [starts[kind[2]]]]) for kind, index in edges.items()]
    plain = [relation for _, relation, _ in edges]
    values: dict[str, Any] = {
        "num_nodes": sum(sizes.values()),
        "edge_index": np.concatenate([np.empty((2, 0), dtype=np.int64), *shifted], axis=1),
        "edge_type": np.repeat(np.arange(len(edges)), counts),
        "node_names": [f"{kind}/{number}" for kind, size in sizes.items() for number in range(size)],
        "relation_names": [kind[1] if plain.count(kind[1]) == 1 else "/".join(kind) for kind in edges],
    }
    weights = [_array(data[kind].get("edge_weight")) for kind in edges]
    if any(each is not None for each in weights):
        ones = (np.ones(count) if each is None else each for each, count in zip(weights, counts, strict=True))
        values["edge_weight"] = np.concatenate(list(ones))
    features = [_array(data[kind].get("x")) for kind in sizes]
    if all(each is not None and each.ndim == 2 and each.shape[1] == features[0].shape[1] for each in features):
        values["x"] = np.concatenate(features)
    elif any(each is not None for each in features):
        warnings.warn("features of some node types only, or of several widths: ignored", stacklevel=3)
    labeled = [kind for kind in sizes if "y" in data[kind] or "train_y" in data[kind]]
    if len(labeled) > 1:
        raise DataError(f"nodes of several types have labels: {', '.join(labeled)}; keep y of only one of them")
    for kind in labeled:
        values["labeled"] = {key: _array(value) for key, value in data[kind].items()}, sizes[kind], starts[kind]
    return values
