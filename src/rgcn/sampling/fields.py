"""Receptive fields of batches of nodes, whole or with a bounded number of edges into each node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.adjacency.structure import rows_of
from rgcn.sampling.edges import Seed, seed_word


class FieldSampler:
    """Draws what L layers compute for a batch of nodes.

    fan_out  at most so many edges of each target and relation in each layer, drawn anew for each; None: all of them.
             All sets of so many are equally likely, and the weight of an edge is multiplied by degree / kept, so that
             the expected message is that of all edges. Self-loops are one an edge and always stay
    dropout  share of triples, and of self-loops, left out beforehand; the rest is normalized again. The same ones in
             every layer of a field, as `RelationalAdjacency.masked` does it

    A field follows from the nodes and the seed alone, and costs as much as its own edges, whatever the size of the
    graph. With dropout all edges into the targets are looked at, without it only those that are drawn.

    >>> import rgcn
    >>> kg = rgcn.KnowledgeGraph.from_triples([("a", "r", "b"), ("c", "r", "b"), ("d", "r", "b")])
    >>> adjacency = rgcn.RelationalAdjacency.from_graph(kg, self_loops=False)
    >>> field = FieldSampler(adjacency, num_layers=1, fan_out=2).field(torch.tensor([1]), seed=0)
    >>> field.layers[0].weight  # each stood for a third, and now for a half
    tensor([0.5000, 0.5000])
    """

    def __init__(
        self,
        adjacency: RelationalAdjacency,
        num_layers: int,
        fan_out: int | None = None,
        dropout: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        self.adjacency = adjacency.to("cpu") if adjacency.device.type != "cpu" else adjacency
        self.num_layers, self.fan_out, self.dropout = num_layers, fan_out, dropout

    def field(self, nodes: Tensor, seed: Seed) -> ReceptiveField:
        """nodes int64 [n], distinct, on the CPU."""
        state = seed_word(seed)
        key, layers, wanted = state[0], list[RelationalAdjacency](), nodes
        for _ in range(self.num_layers):
            if any(self.dropout):
                whole, sources = self.adjacency.restricted(wanted)
                rest = self._dropped(whole, key)
                layer, read = self._drawn(rest, torch.arange(len(wanted)), state)
                wanted = sources[read]
            else:
                layer, wanted = self._drawn(self.adjacency, wanted, state)
            layers.append(layer)
        return ReceptiveField(tuple(reversed(layers)), wanted, nodes)

    def _dropped(self, adjacency: RelationalAdjacency, key: Any) -> RelationalAdjacency:
        from rgcn.sampling import _walk

        structure, keep = adjacency.structure, np.empty(adjacency.num_edges, dtype=np.float32)
        _walk.kept(key, structure.origin.numpy(), structure.num_triples, *self.dropout, keep)
        there = torch.from_numpy(keep)
        return adjacency.reweighted(adjacency.raw * there).selected(torch.nonzero(there).squeeze(1))

    def _drawn(
        self, adjacency: RelationalAdjacency, targets: Tensor, state: np.ndarray[Any, Any]
    ) -> tuple[RelationalAdjacency, Tensor]:
        """The rows of these targets, with the edges that are drawn for them, and the sources they read."""
        pointer, most = adjacency.structure.pointer, self.fan_out
        if most is None:
            return adjacency.rows_chosen(*rows_of(pointer, targets), batch=True)
        from rgcn.sampling import _walk

        # Room for what there may be at most; the system lends it when it is written to.
        degree = pointer[targets + 1] - pointer[targets]
        room = int(degree.long().clamp(max=min(most * adjacency.num_relations, 2**40)).sum())
        edges, factor = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.float32)
        ends = np.zeros(len(targets) + 1, dtype=np.int64)
        relation = adjacency.structure.relation
        count = _walk.fan_out(state, pointer.numpy(), relation.numpy(), targets.numpy(), most, edges, factor, ends[1:])
        chosen = torch.from_numpy(edges[:count].copy())
        layer, sources = adjacency.rows_chosen(chosen, torch.from_numpy(ends), batch=True)
        stands_for = torch.from_numpy(factor[:count].copy()).to(layer.weight.dtype)
        return replace(layer, weight=layer.weight * stands_for), sources
