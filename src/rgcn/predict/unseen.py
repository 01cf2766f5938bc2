"""Questions about nodes that training never saw, given their triples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from rgcn.data import read
from rgcn.data.feature_files import with_feature_file
from rgcn.errors import DataError, UnknownNameError
from rgcn.graph import KnowledgeGraph, NodeKind, Vocabulary
from rgcn.graph.interop.rdf import BASE
from rgcn.predict.opened import OpenModel
from rgcn.tasks.extending import cannot_extend, extended

Number = TypeVar("Number", bound=np.generic)
MOST_NAMED = 5


def with_new_triples(opened: OpenModel, path: str | Path, features: str | Path | None = None) -> OpenModel:
    """The same model over its graph and the triples of a file, whose unknown nodes it computes from their neighbors.

    path      triples of new nodes, among each other and with known ones, in any format `rgcn.read` reads; their
              relations must be known
    features  a table of the new nodes' features, for a model that reads features

    What was calibrated stays so. Where the model cannot answer for new nodes, it says why.
    """
    why_not = cannot_extend(opened.model)
    if why_not is not None:
        raise DataError(f"{opened.path} cannot answer for new nodes: {why_not}")
    graph = joined(opened.graph, read(path), str(path))
    if graph.features is not None:
        graph = _with_features(graph, opened.graph.num_nodes, features)
    larger = replace(
        opened,
        model=extended(opened.model, graph),
        titles=opened.titles.over(graph),
        new_nodes=tuple(range(opened.graph.num_nodes, graph.num_nodes)),
    )
    larger.__dict__["calibration"] = opened.calibration  # of the trained numbers, which are the same
    return larger


def joined(known: KnowledgeGraph, new: KnowledgeGraph, source: str) -> KnowledgeGraph:
    """A known graph and new triples, which are added to what is trained on; new nodes are numbered after the known.

    >>> known = KnowledgeGraph.from_triples([("a", "r", "b")])
    >>> joined(known, KnowledgeGraph.from_triples([("c", "r", "a")]), "new.tsv").named()
    [('a', 'r', 'b'), ('c', 'r', 'a')]
    """
    if not len(new):
        raise DataError(f"{source}: no triples in it")
    nodes = dict(zip(known.nodes, range(known.num_nodes), strict=True))
    node_ids = np.array([_node_id(new, i, nodes) for i in range(new.num_nodes)])
    relation_ids = _relation_ids(known.relations, new.relations, source)
    triples = np.stack(
        [node_ids[new.triples[:, 0]], relation_ids[new.triples[:, 1]], node_ids[new.triples[:, 2]]], axis=1
    )
    grown = len(nodes) - known.num_nodes
    return replace(
        known,
        triples=np.concatenate([known.triples, triples]),
        nodes=Vocabulary(nodes, kind="node"),
        node_kinds=_kinds(known, new, node_ids, grown),
        triple_splits=_grown(known.triple_splits, len(triples), 0),
        edge_weights=_grown(known.edge_weights, len(triples), 1),
        features=None if known.features is None else np.pad(known.features, ((0, grown), (0, 0))),
    )


def _node_id(new: KnowledgeGraph, node: int, nodes: dict[str, int]) -> int:
    """A known node's id, or the next one. A blank node is never one of another file's."""
    name = _plain(new.nodes[node], "node")
    if new.kind(node) is NodeKind.BLANK:
        while name in nodes:
            name += "'"
    return nodes.setdefault(name, len(nodes))


def _plain(name: str, kind: str) -> str:
    """The plain name behind an IRI of our own making (`kg.to_rdf`), so that what was written can be read back."""
    prefix = f"{BASE}{kind}:"
    return unquote(name[len(prefix) :]) if name.startswith(prefix) else name


def _relation_ids(known: Vocabulary, new: Vocabulary, source: str) -> NDArray[np.int64]:
    found = [known.get(_plain(name, "relation")) for name in new]
    unknown = [name for name, number in zip(new, found, strict=True) if number is None]
    if unknown:
        first = UnknownNameError("relation", unknown[0], known)
        more = f" ({len(unknown)} relations are unknown)" if len(unknown) > 1 else ""
        raise DataError(
            f"{source}: {first}{more} A model has weights for the relations it was trained with: take the other "
            "triples out, or train anew with them"
        )
    return np.array(found, dtype=np.int64)


def _kinds(
    known: KnowledgeGraph, new: KnowledgeGraph, node_ids: NDArray[np.int64], grown: int
) -> NDArray[np.uint8] | None:
    if known.node_kinds is None and new.node_kinds is None:
        return None
    kinds = np.zeros(known.num_nodes + grown, dtype=np.uint8)
    if new.node_kinds is not None:
        kinds[node_ids] = new.node_kinds
    if known.node_kinds is not None:
        kinds[: known.num_nodes] = known.node_kinds
    return kinds


def _grown(array: NDArray[Number] | None, by: int, value: int) -> NDArray[Number] | None:
    return None if array is None else np.concatenate([array, np.full(by, value, dtype=array.dtype)])


def _with_features(graph: KnowledgeGraph, first_new: int, path: str | Path | None) -> KnowledgeGraph:
    """Known features as they are, new ones from the table."""
    new = graph.nodes[first_new:]
    if path is None:
        raise DataError(
            f"the model reads features, and {_some(new)} {'have' if len(new) > 1 else 'has'} none: give a table of "
            "them (name, then numbers)"
        )
    given = with_feature_file(replace(graph, features=None), path)
    assert graph.features is not None
    assert given.features is not None
    if given.features.shape[1] != graph.features.shape[1]:
        raise DataError(
            f"{path}: {given.features.shape[1]} features a node, where the model reads {graph.features.shape[1]}"
        )
    return replace(graph, features=np.concatenate([graph.features[:first_new], given.features[first_new:]]))


def _some(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return ", ".join(map(repr, names[:MOST_NAMED])) + more
