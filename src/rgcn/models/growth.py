"""New nodes: a trained model over a graph that has grown.

A convolution has no weights of single nodes, so it computes a new node from its neighbors like any other. A new node
lacks only its input. Features are given for it too; a learned embedding is estimated from similar nodes
(`estimated_rows`). A model with one-hot inputs has no row for a new node, and one without message passing (DistMult)
has no way to use its triples: `extended` raises DataError for both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rgcn.adjacency import RelationalAdjacency
from rgcn.errors import DataError
from rgcn.graph import KnowledgeGraph, Vocabulary
from rgcn.nn.link_network import LinkNetwork
from rgcn.nn.row_tables import NodeEmbedding, RowTable
from rgcn.training.objectives import Objective, both_directions

if TYPE_CHECKING:
    from rgcn.models.estimator import Estimator

Model = TypeVar("Model", bound="Estimator")
Integers = NDArray[np.int64]

# Steps and rate of fitting new rows; chosen on the validation triples of the inductive data sets
# (docs/reference/results.md).
NUM_STEPS, LEARNING_RATE = 100, 0.02
TRIPLES_PER_BLOCK = 1 << 16
NODE_PARAMETERS = ("source.rows.", "source.features")  # parts of a network that have a row for each node


def grown_graph(graph: KnowledgeGraph, nodes: Mapping[str, int], triples: Integers, **changes: Any) -> KnowledgeGraph:
    """Return a graph with further nodes, numbered after its own, and further training triples.

    Args:
        graph: The smaller graph.
        nodes: The id of every node by its name, those of `graph` first.
        triples: The further triples, [num_triples, 3].
        changes: Other fields of the larger graph.
    """

    def with_rows(field: str, count: int, value: int = 0) -> NDArray[Any] | None:
        rows = getattr(graph, field)
        return None if rows is None else np.concatenate([rows, np.full((count, *rows.shape[1:]), value, rows.dtype)])

    fields = {field: with_rows(field, len(nodes) - graph.num_nodes) for field in ("node_kinds", "features")}
    fields |= {"triple_splits": with_rows("triple_splits", len(triples)), "triple_times": None}
    fields["edge_weights"] = with_rows("edge_weights", len(triples), 1)
    all_triples = np.concatenate([graph.triples, triples])
    return replace(graph, **{**fields, "triples": all_triples, "nodes": Vocabulary(nodes, kind="node"), **changes})


def extended(model: Model, graph: KnowledgeGraph, *, steps: int = NUM_STEPS) -> Model:
    """Return a trained model over a larger graph. No trained weight changes.

    Args:
        model: The trained model.
        graph: The larger graph: the known nodes and triples first, in their order, then new ones; the same relations.
        steps: How many steps new embeddings are fitted to the new triples.

    Raises:
        DataError: The graph is not an extension of the model's, or the model cannot answer for new nodes.
    """
    known = model.graph_
    same_names = known.relations == graph.relations and graph.nodes[: known.num_nodes] == tuple(known.nodes)
    if not same_names or not np.array_equal(graph.triples[: len(known)], known.triples):
        raise DataError(
            "the larger graph must have the known nodes and triples first, in order, and the same relations"
        )
    if (why_not := model.hooks_.why_not_extensible()) is not None:
        raise DataError(why_not)
    larger = type(model).from_settings(model.settings_)._build_saved(graph)
    state = larger.network_.state_dict()
    for name, value in model.network_.state_dict().items():
        if name.endswith("decoder.node_bias.trained"):
            state[name][: len(value)] = value  # new nodes keep a bias of zero
        elif not any(part in name for part in NODE_PARAMETERS):
            state[name] = value
    larger.network_.load_state_dict(state)
    old, new = (getattr(each.network_, "source", None) for each in (model, larger))
    if isinstance(old, NodeEmbedding) and isinstance(new, NodeEmbedding):
        values = estimated_rows(old.rows.values().detach().cpu(), known, graph)
        is_new = torch.arange(graph.num_nodes) >= known.num_nodes
        new.rows = RowTable(values, is_new).to(next(larger.network_.parameters()).device)
    larger.restore_extra_state(model.extra_state())
    larger._fit_new_nodes(known, steps)
    larger.network_.eval()
    return larger


def estimated_rows(rows: Tensor, known: KnowledgeGraph, larger: KnowledgeGraph) -> Tensor:
    """Estimate the embeddings of new nodes from similar known nodes.

    The embedding of a new node is the mean over its triples of the mean embedding of similar known nodes: those with
    the same triple (the same relation to the same node) or, if there are none, those on the same side of the relation.
    A node without triples gets the mean of all.

        E_v = mean over (v, r, o) of mean { E_u : (u, r, o) known, or else (u, r, ·) known }

    Args:
        rows: The known embeddings, [num_known_nodes, width].
        known: The known graph.
        larger: The larger graph.

    Returns:
        All embeddings, [num_nodes, width]: known ones unchanged, then new ones.
    """
    first_new, size = known.num_nodes, larger.num_nodes
    ends = _roles(larger)
    node, role, other = (part[ends[0] >= first_new] for part in ends)
    known_node, known_role, known_other = _roles(known)
    by_triple, triple = _group_means(rows, known_node, known_role * size + known_other, role * size + other)
    by_role, side = _group_means(rows, known_node, known_role, role)
    group = torch.where(triple >= 0, triple, len(by_triple) + side)
    has_similar = side >= 0  # False for a relation without training triples
    new = torch.from_numpy(node)[has_similar] - first_new
    total = _sum_rows(torch.cat([by_triple, by_role]), group[has_similar], new, size - first_new)
    count = torch.bincount(new, minlength=size - first_new)[:, None]
    estimated = torch.where(count > 0, total / count.clamp(min=1), rows.double().mean(0))
    return torch.cat([rows, estimated.to(rows.dtype)])


def _roles(graph: KnowledgeGraph) -> tuple[Integers, Integers, Integers]:
    """Return (node, role, node at the other end) of both ends of each triple; a role is a relation and a side of it."""
    subject, relation, object_ = graph.split_triples("train").T
    ends, roles = (subject, object_), (relation, relation + graph.num_relations)
    return np.concatenate(ends), np.concatenate(roles), np.concatenate(ends[::-1])


def _group_means(rows: Tensor, node: Integers, key: Integers, wanted: Integers) -> tuple[Tensor, Tensor]:
    """Return the mean rows of nodes with the same key, and for each wanted key its number among these, or -1."""
    is_wanted = np.isin(key, wanted)
    keys = np.unique(key[is_wanted])
    group = torch.from_numpy(np.searchsorted(keys, key[is_wanted]))
    count = torch.bincount(group, minlength=len(keys))[:, None]
    wanted_group = np.where(np.isin(wanted, keys), np.searchsorted(keys, wanted), -1)
    return _sum_rows(rows, torch.from_numpy(node[is_wanted]), group, len(keys)) / count, torch.from_numpy(wanted_group)


def _sum_rows(rows: Tensor, index: Tensor, group: Tensor, num_groups: int) -> Tensor:
    """Sum `rows[index]` by group: float64 [num_groups, width]."""
    sums = torch.zeros(num_groups, rows.shape[1], dtype=torch.float64)
    for begin in range(0, len(group), TRIPLES_PER_BLOCK):  # a vector for every triple at once would fill the memory
        part = slice(begin, begin + TRIPLES_PER_BLOCK)
        sums.index_add_(0, group[part], rows[index[part]].double())
    return sums


def fold_in(
    network: LinkNetwork,
    adjacency: RelationalAdjacency,
    positives: Tensor,
    objective: Objective,
    *,
    edge_dropout: float = 0.0,
    steps: int = NUM_STEPS,
    seed: int = 0,
) -> None:
    """Fit the trainable rows of a network's embedding table, and no other weights, to triples.

    The estimate from similar nodes says what kind of node a new one is, and no more: two new nodes with the same
    relations get the same vector. A few steps on the training's own loss distinguish them. Edges are dropped as in
    training, so that a triple is not only recognized by its own edge.

    Args:
        network: The network.
        adjacency: The operator of the larger graph's training triples.
        positives: The triples to fit, int64 [num_triples, 3].
        objective: The training's objective.
        edge_dropout: Share of edges dropped in each step.
        steps: Number of steps.
        seed: Seed of batches, negatives and dropped edges.
    """
    if network.source is None or not len(positives) or not network.source.rows.trained.numel():
        return
    rows = network.source.rows.trained
    for parameter in network.parameters():
        parameter.requires_grad_(parameter is rows)
    generator = torch.Generator(device=positives.device).manual_seed(seed)
    optimizer = torch.optim.Adam([rows], lr=LEARNING_RATE)
    network.eval()  # the dropout of messages would only blur so few steps
    network.encodes_batch_only = True
    if objective.is_directed:
        positives = both_directions(positives, objective.num_relations)
    all_positives, max_positives = positives, objective.max_positives
    for _ in range(steps):
        if max_positives is not None and len(all_positives) > max_positives:
            order = torch.randperm(len(all_positives), generator=generator, device=all_positives.device)
            positives = all_positives[order[:max_positives]]
        drawn = objective.draw(positives, generator)
        masked = adjacency.masked(adjacency.draw_mask(edge_dropout, generator=generator))
        optimizer.zero_grad(set_to_none=True)
        objective.loss(network, masked, positives, drawn).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    network.encodes_batch_only = False
    for parameter in network.parameters():
        parameter.requires_grad_(True)
