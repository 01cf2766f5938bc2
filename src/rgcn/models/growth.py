"""Nodes that training never saw: a trained model over a graph that has grown.

A convolution has no weights of a node's own, so that it computes a new node from its neighbors like any other. What a
new node lacks is its input: given features are given for it too; a learned embedding is estimated from the company the
node keeps (`estimated_rows`). A model whose first layer is a lookup by node (one-hot) has nothing to look up, and one
without message passing (DistMult) does not listen to neighbors: these refuse.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rgcn.adjacency import RelationalAdjacency
from rgcn.errors import DataError
from rgcn.graph import KnowledgeGraph, Vocabulary
from rgcn.models.estimator import Estimator
from rgcn.nn.link_network import LinkNetwork
from rgcn.nn.row_tables import EmbeddingInput, RowTable
from rgcn.training.objectives import Objective

Model = TypeVar("Model", bound=Estimator)
Integers = NDArray[np.int64]

# Of fitting new rows; chosen on the validation triples of the inductive sets: docs/results.md.
STEPS, LEARNING_RATE = 100, 0.02
BLOCK = 1 << 16
BY_NODE = ("source.rows.", "source.features")  # what a network holds for each node


def grown_graph(graph: KnowledgeGraph, nodes: Mapping[str, int], triples: Integers, **changes: Any) -> KnowledgeGraph:
    """A graph with further nodes, numbered after its own, and further triples [n, 3], which may be learned from.

    nodes    the number of every node by its name, those of the graph first
    changes  other fields of the larger graph
    """

    def with_rows(field: str, by: int, value: int = 0) -> NDArray[Any] | None:
        rows = getattr(graph, field)
        return None if rows is None else np.concatenate([rows, np.full((by, *rows.shape[1:]), value, rows.dtype)])

    fields = {field: with_rows(field, len(nodes) - graph.num_nodes) for field in ("node_kinds", "features")}
    fields |= {"triple_splits": with_rows("triple_splits", len(triples)), "triple_times": None}
    fields["edge_weights"] = with_rows("edge_weights", len(triples), 1)
    every = np.concatenate([graph.triples, triples])
    return replace(graph, **{**fields, "triples": every, "nodes": Vocabulary(nodes, kind="node"), **changes})


def extended(model: Model, graph: KnowledgeGraph, *, steps: int = STEPS) -> Model:
    """The trained model over a larger graph: its own nodes first, in their order, then new ones; the same relations.

    No number that was trained changes. steps: how long what is new in `graph` is fitted (`Estimator.settle`).
    """
    known = model.graph_
    same_names = known.relations == graph.relations and graph.nodes[: known.num_nodes] == tuple(known.nodes)
    if not same_names or not np.array_equal(graph.triples[: len(known)], known.triples):
        raise DataError(
            "a larger graph has the known nodes and triples first, in their order, and exactly the known relations"
        )
    why_not = model.cannot_extend()
    if why_not is not None:
        raise DataError(why_not)
    larger = type(model).from_settings(model.get_params()).restore_saved(graph)
    state = larger.network_.state_dict()
    for name, value in model.network_.state_dict().items():
        if name.endswith("decoder.node_bias.trained"):
            state[name][: len(value)] = value  # a new node's biases stay at zero, where biases begin
        elif not any(part in name for part in BY_NODE):
            state[name] = value
    larger.network_.load_state_dict(state)
    old, new = (getattr(each.network_, "source", None) for each in (model, larger))
    if isinstance(old, EmbeddingInput) and isinstance(new, EmbeddingInput):
        values = estimated_rows(old.rows.values().detach().cpu(), known, graph)
        is_new = torch.arange(graph.num_nodes) >= known.num_nodes
        new.rows = RowTable(values, is_new).to(next(larger.network_.parameters()).device)
    larger.restore_beside(model.beside())
    larger.settle(known, steps)
    larger.network_.eval()
    return larger


def estimated_rows(rows: Tensor, known: KnowledgeGraph, larger: KnowledgeGraph) -> Tensor:
    """Embeddings [nodes of the larger graph, width]: the known ones as they are, the new ones estimated.

    A new node's embedding is the mean, over its triples, of its companions' mean embedding: of the known nodes that
    have the very same triple (the same relation to the same node), or where there are none, of those that stand on the
    same side of the relation. A node without triples gets the mean of all.

        E_v = mean over (v, r, o) of mean { E_u : (u, r, o) known, or else (u, r, ·) known }
    """
    first_new, size = known.num_nodes, larger.num_nodes
    ends = _roles(larger)
    node, role, other = (part[ends[0] >= first_new] for part in ends)
    known_node, known_role, known_other = _roles(known)
    by_triple, triple = _means(rows, known_node, known_role * size + known_other, role * size + other)
    by_role, side = _means(rows, known_node, known_role, role)
    place = torch.where(triple >= 0, triple, len(by_triple) + side)
    heard = side >= 0  # not where a relation is one that the training triples lack
    new = torch.from_numpy(node)[heard] - first_new
    total = _sums(torch.cat([by_triple, by_role]), place[heard], new, size - first_new)
    count = torch.bincount(new, minlength=size - first_new)[:, None]
    estimated = torch.where(count > 0, total / count.clamp(min=1), rows.double().mean(0))
    return torch.cat([rows, estimated.to(rows.dtype)])


def _roles(graph: KnowledgeGraph) -> tuple[Integers, Integers, Integers]:
    """(node, role, the node at the other end) of both ends of each triple; a role is a relation and a side of it."""
    subject, relation, object_ = graph.split_triples("train").T
    ends, roles = (subject, object_), (relation, relation + graph.num_relations)
    return np.concatenate(ends), np.concatenate(roles), np.concatenate(ends[::-1])


def _means(rows: Tensor, node: Integers, key: Integers, asked: Integers) -> tuple[Tensor, Tensor]:
    """Mean vectors [keys, width] of the nodes that have a key, and for each key asked for its place among these, or -1
    where no node has it.
    """
    has = np.isin(key, asked)
    keys = np.unique(key[has])
    place = torch.from_numpy(np.searchsorted(keys, key[has]))
    count = torch.bincount(place, minlength=len(keys))[:, None]
    asked_place = np.where(np.isin(asked, keys), np.searchsorted(keys, asked), -1)
    return _sums(rows, torch.from_numpy(node[has]), place, len(keys)) / count, torch.from_numpy(asked_place)


def _sums(rows: Tensor, picked: Tensor, place: Tensor, size: int) -> Tensor:
    """float64 [size, width]: each of the picked rows added at its place."""
    sums = torch.zeros(size, rows.shape[1], dtype=torch.float64)
    for begin in range(0, len(place), BLOCK):  # a vector for every triple at once would fill the memory
        part = slice(begin, begin + BLOCK)
        sums.index_add_(0, place[part], rows[picked[part]].double())
    return sums


def fold_in(
    network: LinkNetwork,
    adjacency: RelationalAdjacency,
    positives: Tensor,
    objective: Objective,
    *,
    edge_dropout: float = 0.0,
    steps: int = STEPS,
    seed: int = 0,
) -> None:
    """Fit the rows that the network's embedding table holds as trained, and nothing else, to positives int64 [n, 3].

    An estimate from a new node's company knows what kind of node it is, and no more: two new nodes with the same
    relations get the same vector. A few steps of the training's own loss over the new triples tell them apart. Edges
    are dropped as in training, so that a triple is not only recognized by its own edge.
    """
    if network.source is None or not len(positives) or not network.source.rows.trained.numel():
        return
    rows = network.source.rows.trained
    for parameter in network.parameters():
        parameter.requires_grad_(parameter is rows)
    generator = torch.Generator(device=positives.device).manual_seed(seed)
    optimizer = torch.optim.Adam([rows], lr=LEARNING_RATE)
    network.eval()  # the messages' own dropout would only blur so few steps
    network.only_asked = True
    every, most = positives, objective.most_positives
    for _ in range(steps):
        if most is not None and len(every) > most:
            positives = every[torch.randperm(len(every), generator=generator, device=every.device)[:most]]
        drawn = objective.draw(positives, generator)
        dropped = adjacency.masked(adjacency.draw_mask(edge_dropout, generator=generator))
        optimizer.zero_grad(set_to_none=True)
        objective.loss(network, dropped, positives, drawn).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    network.only_asked = False
    for parameter in network.parameters():
        parameter.requires_grad_(True)
