"""Nodes that training never saw: a trained model over a graph that has grown.

A convolution has no weights of a node's own, so that it computes a new node from its neighbors like any other. What a
new node lacks is its input: given features are given for it too; a learned embedding is estimated from the company the
node keeps (`estimated_rows`). A model whose first layer is a lookup by node (one-hot) has nothing to look up, and one
without message passing (DistMult) does not listen to neighbors: these refuse.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rgcn.errors import DataError
from rgcn.graph import KnowledgeGraph
from rgcn.nn.inputs import EmbeddingInput
from rgcn.nn.rows import RowTable
from rgcn.tasks.estimator import Estimator
from rgcn.tasks.fold_in import STEPS

Model = TypeVar("Model", bound=Estimator)

BLOCK = 1 << 16
BY_NODE = ("source.rows.", "source.features", "decoder.node_bias")  # what a network holds for each node


def extended(model: Model, graph: KnowledgeGraph, *, steps: int = STEPS) -> Model:
    """The trained model over a larger graph: its own nodes first, in their order, then new ones; the same relations.

    No number that was trained changes. steps: how long what is new in `graph` is fitted, where something is
    (`Estimator.settle`).
    """
    known = model.graph_
    _refuse_other_beginning(known, graph)
    why_not = model.cannot_extend()
    if why_not is not None:
        raise DataError(why_not)
    larger = type(model).from_settings(model.get_params()).restore_saved(graph)
    trained = {name: value for name, value in model.network_.state_dict().items() if not _is_by_node(name)}
    left, _ = larger.network_.load_state_dict(trained, strict=False)
    assert all(map(_is_by_node, left))
    old, new = model.source_, larger.source_
    if isinstance(old, EmbeddingInput) and isinstance(new, EmbeddingInput):
        values = estimated_rows(old.rows.values().detach().cpu(), known, graph)
        is_new = torch.arange(graph.num_nodes) >= known.num_nodes
        new.rows = RowTable(values, is_new).to(next(larger.network_.parameters()).device)
    _keep_biases(model.network_, larger.network_)
    larger.settle(known, steps)
    larger.network_.eval()
    return larger


def _is_by_node(name: str) -> bool:
    return any(part in name for part in BY_NODE)


def _keep_biases(old: nn.Module, new: nn.Module) -> None:
    """A new node's biases stay at zero, where biases begin."""
    before = dict(old.named_parameters())
    with torch.no_grad():
        for name, parameter in new.named_parameters():
            if name.endswith("decoder.node_bias"):
                parameter[: len(before[name])] = before[name]


def _refuse_other_beginning(known: KnowledgeGraph, larger: KnowledgeGraph) -> None:
    same_names = known.relations == larger.relations and larger.nodes[: known.num_nodes] == tuple(known.nodes)
    if not same_names or not np.array_equal(larger.triples[: len(known)], known.triples):
        raise DataError(
            "a larger graph has the known nodes and triples first, in their order, and exactly the known relations"
        )


# -- embeddings of new nodes -------------------------------------------------------------------------------


def estimated_rows(rows: Tensor, known: KnowledgeGraph, larger: KnowledgeGraph) -> Tensor:
    """Embeddings [nodes of the larger graph, width]: the known ones as they are, the new ones estimated.

    A new node's embedding is the mean, over its triples, of its companions' mean embedding: of the known nodes that
    have the very same triple (the same relation to the same node), or where there are none, of those that stand on the
    same side of the relation. A node without triples gets the mean of all.

        E_v = mean over (v, r, o) of mean { E_u : (u, r, o) known, or else (u, r, ·) known }
    """
    first_new = known.num_nodes
    node, role, other = _roles(larger.split_triples("train"), larger.num_relations)
    asked = node >= first_new
    node, role, other = node[asked] - first_new, role[asked], other[asked]
    known_node, known_role, known_other = _roles(known.split_triples("train"), known.num_relations)
    by_role = _Means.of(rows, known_node, known_role, role)
    size = larger.num_nodes
    by_triple = _Means.of(rows, known_node, known_role * size + known_other, role * size + other)
    total = torch.zeros(size - first_new, rows.shape[1], dtype=torch.float64)
    count = torch.zeros(size - first_new, dtype=torch.int64)
    for begin in range(0, len(node), BLOCK):
        part = slice(begin, begin + BLOCK)
        company, found = by_triple.at(part)
        others, found_others = by_role.at(part)
        company = torch.where(found[:, None], company, others)
        counts = found | found_others  # nobody: a relation that the training triples lack
        which = torch.from_numpy(node[part])
        total.index_add_(0, which, company * counts[:, None])
        count.index_add_(0, which, counts.long())
    mean_of_all = rows.double().mean(0)
    estimated = torch.where(count[:, None] > 0, total / count[:, None].clamp(min=1), mean_of_all)
    return torch.cat([rows, estimated.to(rows.dtype)])


def _roles(
    triples: NDArray[np.int64], num_relations: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """(node, role, the node at the other end) of both ends of each triple; a role is a relation and a side of it."""
    subject, relation, object_ = triples.T
    return (
        np.concatenate([subject, object_]),
        np.concatenate([relation, relation + num_relations]),
        np.concatenate([object_, subject]),
    )


@dataclass(frozen=True, eq=False)
class _Means:
    """For each key that is asked for, the mean vector of the known nodes that have it.

    mean [keys, width], count [keys], place [asked]: which key each question is about
    """

    mean: Tensor
    count: Tensor
    place: Tensor

    @classmethod
    def of(cls, rows: Tensor, node: NDArray[np.int64], key: NDArray[np.int64], asked: NDArray[np.int64]) -> _Means:
        keys, back = np.unique(asked, return_inverse=True)
        found = np.searchsorted(keys, key).clip(max=max(len(keys) - 1, 0))
        wanted = np.flatnonzero(keys[found] == key) if len(keys) else np.zeros(0, dtype=np.int64)
        place, which = torch.from_numpy(found[wanted]), torch.from_numpy(node[wanted])
        sums = torch.zeros(len(keys), rows.shape[1], dtype=torch.float64)
        for begin in range(0, len(place), BLOCK):  # a vector for every known triple at once would fill the memory
            part = slice(begin, begin + BLOCK)
            sums.index_add_(0, place[part], rows[which[part]].double())
        count = torch.bincount(place, minlength=len(keys))
        return cls(sums / count[:, None].clamp(min=1), count, torch.from_numpy(back))

    def at(self, asked: slice) -> tuple[Tensor, Tensor]:
        """(means, whether anybody has the key) of some of the questions."""
        place = self.place[asked]
        return self.mean[place], self.count[place] > 0
