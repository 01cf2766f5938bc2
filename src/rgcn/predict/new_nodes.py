"""Questions about nodes that training never saw, given their triples."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from rgcn.data import read
from rgcn.data.attributes import with_features
from rgcn.errors import DataError
from rgcn.graph import KnowledgeGraph, NodeKind
from rgcn.graph.vocabulary import plain_name, relation_ids, some_names
from rgcn.models.growth import extended, grown_graph
from rgcn.predict.opened_model import OpenModel
from rgcn.sampling.known_triples import KnownTriples


def with_new_triples(opened: OpenModel, path: str | Path, features: str | Path | None = None) -> OpenModel:
    """The same model over its graph and the triples of a file, whose unknown nodes it computes from their neighbors.

    path      triples of new nodes, among each other and with known ones, in any format `rgcn.read` reads; their
              relations must be known. Of data with splits the training triples are taken
    features  a table of the new nodes' features, for a model that reads features

    The calibration is that of the known nodes; nothing was calibrated on the new ones. Where the model cannot answer
    for new nodes, it says why.
    """
    why_not = opened.model.cannot_extend()
    if why_not is not None:
        raise DataError(f"{opened.path} cannot answer for new nodes: {why_not}")
    graph = _with_features(joined(opened.graph, read(path), str(path)), opened.graph.num_nodes, features)
    larger = replace(
        opened,
        model=extended(opened.model, graph),
        titles=opened.titles.over(graph),
        new_nodes=tuple(range(opened.graph.num_nodes, graph.num_nodes)),
    )
    larger.__dict__["calibration"] = larger.model.calibration_ = opened.calibration  # of the same trained numbers
    return larger


def joined(known: KnowledgeGraph, new: KnowledgeGraph, source: str) -> KnowledgeGraph:
    """A known graph and new triples, which are added to what is trained on; new nodes are numbered after the known.

    Of data with splits only the training triples are told: the others are for asking. What is known already is not told
    a second time.

    >>> known = KnowledgeGraph.from_triples([("a", "r", "b")])
    >>> joined(known, KnowledgeGraph.from_triples([("c", "r", "a"), ("a", "r", "b")]), "new.tsv").named()
    [('a', 'r', 'b'), ('c', 'r', 'a')]
    """
    told = new.split_triples("train")
    if not len(told):
        raise DataError(f"{source}: no triples in it")
    nodes = dict(zip(known.nodes, range(known.num_nodes), strict=True))
    node_ids = np.full(new.num_nodes, -1, dtype=np.int64)
    for node in dict.fromkeys(told[:, [0, 2]].ravel().tolist()):
        node_ids[node] = _node_id(new, node, nodes)
    relations = relation_ids(known.relations, new.relations, np.unique(told[:, 1]), source)
    triples = np.stack([node_ids[told[:, 0]], relations[told[:, 1]], node_ids[told[:, 2]]], axis=1)
    triples = triples[np.sort(np.unique(triples, axis=0, return_index=True)[1])]  # each once, in their order
    sizes = {"num_nodes": len(nodes), "num_relations": known.num_relations}
    index = KnownTriples.of(torch.tensor(known.split_triples("train")), **sizes)
    triples = triples[~index.contains(torch.from_numpy(triples)).numpy()]
    if not len(triples):
        raise DataError(f"{source}: nothing new in it; the model knows all of its triples")
    kinds = None
    if known.node_kinds is not None or new.node_kinds is not None:
        kinds = np.zeros(len(nodes), dtype=np.uint8)
        if new.node_kinds is not None:
            kinds[node_ids[node_ids >= 0]] = new.node_kinds[node_ids >= 0]
        kinds[: known.num_nodes] = 0 if known.node_kinds is None else known.node_kinds
    return grown_graph(known, nodes, triples, node_kinds=kinds)


def _node_id(new: KnowledgeGraph, node: int, nodes: dict[str, int]) -> int:
    """A known node's id, or the next one. A blank node is never one of another file's."""
    name = new.nodes[node]
    if new.kind(node) is NodeKind.BLANK:
        while name in nodes:
            name += "'"
    elif name not in nodes:
        name = plain_name(name, "node")
    return nodes.setdefault(name, len(nodes))


def _with_features(graph: KnowledgeGraph, first_new: int, path: str | Path | None) -> KnowledgeGraph:
    """Known features as they are, new ones from the table."""
    new, features = graph.nodes[first_new:], graph.features
    if not new or features is None:
        return graph
    if path is None:
        raise DataError(
            f"the model reads features, and {some_names(new)} {'have' if len(new) > 1 else 'has'} none: give a table "
            "of them with --with-features (name, then numbers)"
        )
    given = with_features(replace(graph, features=None), path).features
    assert given is not None
    without = [name for node, name in enumerate(new, first_new) if not given[node].any()]
    if without:
        warnings.warn(f"{path}: no features, or only zeros, for {some_names(without)}", stacklevel=2)
    if given.shape[1] != features.shape[1]:
        raise DataError(f"{path}: {given.shape[1]} features a node, where the model reads {features.shape[1]}")
    return replace(graph, features=np.concatenate([features[:first_new], given[first_new:]]))
