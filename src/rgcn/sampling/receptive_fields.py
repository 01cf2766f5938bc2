"""Receptive fields of batches of nodes, whole or with a bounded number of edges into each node."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.adjacency.structure import rows_of
from rgcn.placement import LOCAL, Placement
from rgcn.sampling.edges import Seed, seed_words


class FieldSampler:
    """Draws what L layers compute for a batch of nodes.

    fan_out  at most so many edges of each target and relation in each layer, drawn anew for each; None: all of them.
             All sets are equally likely, and weights are multiplied by degree / kept: the expected message is that of
             all edges
    dropout  share of triples, and of self-loops, left out beforehand, the same in every layer, as `masked` does it

    A field follows from the nodes and the seed alone, and costs as much as its own edges, whatever the size of the
    graph; with dropout, as all edges into its targets.

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
        placement: Placement = LOCAL,
    ) -> None:
        """placement: where nodes are divided among processes, each draws from the edges into its local nodes."""
        self.adjacency = adjacency.to("cpu") if adjacency.device.type != "cpu" else adjacency
        self.num_layers, self.fan_out, self.dropout, self.placement = num_layers, fan_out, dropout, placement

    def field(self, nodes: Tensor, seed: Seed) -> ReceptiveField:
        """nodes int64 [n], distinct, on the CPU."""
        whole, *keys = seed_words(seed, 1 + self.num_layers)  # of what is dropped in all layers; of each layer's draws
        drawn = iter(keys)

        def rows(targets: Tensor) -> tuple[RelationalAdjacency, Tensor]:
            return self._rows(targets, whole, next(drawn))

        return ReceptiveField.walk(rows, nodes, self.num_layers, self.placement)

    def _rows(self, nodes: Tensor, whole: np.uint64, key: np.uint64) -> tuple[RelationalAdjacency, Tensor]:
        """The operator of a layer into these nodes, and the nodes it reads."""
        partition = self.placement.partition
        places = nodes if partition is None else partition.row(nodes)
        if not any(self.dropout):
            return self._drawn(self.adjacency, places, nodes, key)
        from rgcn.sampling import walk_loops as _walk

        every, sources = self.adjacency.restricted(places)
        there = torch.ones(every.num_edges)
        origins = every.structure.origin.numpy(), every.structure.num_triples
        _walk.kept(whole, *origins, *self.dropout, there.numpy())
        rest = every.reweighted(every.raw * there).selected(torch.nonzero(there).squeeze(1))
        layer, read = self._drawn(rest, torch.arange(len(nodes)), nodes, key)
        return layer, sources[read]

    def _drawn(
        self, adjacency: RelationalAdjacency, targets: Tensor, names: Tensor, key: np.uint64
    ) -> tuple[RelationalAdjacency, Tensor]:
        """The rows of these targets, with the edges that are drawn for them, and the sources they read."""
        pointer, most = adjacency.structure.pointer, self.fan_out
        if most is None:
            return adjacency.rows_chosen(*rows_of(pointer, targets), batch=True)
        from rgcn.sampling import walk_loops as _walk

        # Room for what there may be at most; the system lends it when it is written to.
        degree = pointer[targets + 1] - pointer[targets]
        room = int(degree.long().clamp(max=min(most * adjacency.num_relations, 2**40)).sum())
        edges, factor = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.float32)
        ends = np.zeros(len(targets) + 1, dtype=np.int64)
        places = pointer.numpy(), adjacency.structure.relation.numpy(), targets.numpy(), names.numpy()
        count = _walk.fan_out(key, *places, most, edges, factor, ends[1:])
        chosen, stands_for = torch.from_numpy(edges[:count]), torch.from_numpy(factor[:count])
        layer, sources = adjacency.rows_chosen(chosen, torch.from_numpy(ends), batch=True)
        return replace(layer, weight=layer.weight * stands_for.to(layer.weight.dtype)), sources
