"""Receptive fields: what the layers must compute for some nodes, of a graph in memory or on disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Self

from rgcn.adjacency.operator import RelationalAdjacency
from rgcn.adjacency.structure import EdgeStructure
from rgcn.graph import KnowledgeGraph
from rgcn.kernels.sparse import cached_per_object, pointer_from_sorted
from rgcn.placement import LOCAL, Placement, RowExchange

# Returns the operator of the edges into some nodes int64 [n], and the nodes that these edges start from.
Restrict: TypeAlias = Callable[[Tensor], tuple[RelationalAdjacency, Tensor]]


@dataclass(frozen=True, eq=False)
class ReceptiveField:
    """The part of a graph that a number of layers must compute to give the outputs of some nodes.

    Attributes:
        layers: One operator per layer, the first layer's first; its targets are the sources of the next one.
        inputs: The nodes whose input vectors the first layer reads, int64.
        outputs: The nodes that the last layer computes, int64.
        exchanges: If nodes are divided among processes, what fetches the rows that each layer reads from those of the
            layer before; inputs and outputs are then local nodes.
    """

    layers: tuple[RelationalAdjacency, ...]
    inputs: Tensor
    outputs: Tensor
    exchanges: tuple[RowExchange, ...] = ()

    @classmethod
    def of(cls, adjacency: RowSource, nodes: Tensor, num_layers: int, placement: Placement = LOCAL) -> ReceptiveField:
        """Follow edges back from the nodes whose outputs are wanted. Exact: no edge is left out.

        Args:
            adjacency: The whole operator, or its rows of local nodes if the placement divides nodes among processes.
            nodes: int64 [n], distinct.
            num_layers: How many layers the network has.
            placement: All its processes must call this at the same time.
        """
        row = (lambda nodes: nodes) if placement.partition is None else placement.partition.row
        return cls.walk(lambda wanted: adjacency.restrict(row(wanted)), nodes, num_layers, placement)

    @classmethod
    def walk(cls, restrict: Restrict, nodes: Tensor, num_layers: int, placement: Placement = LOCAL) -> ReceptiveField:
        """Do the same with operators from `restrict`, which is called for each layer, the last layer first."""
        layers: list[RelationalAdjacency] = []
        exchanges: list[RowExchange] = []
        wanted = nodes
        for _ in range(num_layers):
            operator, sources = restrict(wanted)
            if placement.partition is not None:
                operator = replace(operator, structure=replace(operator.structure, node_ids=wanted))
                exchanges.append(placement.exchange(sources))
                sources = exchanges[-1].needed
            layers.append(operator)
            wanted = sources
        return cls(tuple(reversed(layers)), wanted, nodes, tuple(reversed(exchanges)))

    @classmethod
    def within(
        cls, adjacency: RowSource, nodes: Tensor, num_layers: int, max_edges: int | None = None
    ) -> ReceptiveField | None:
        """Do the same as `of`, but return None if all layers together would have more than `max_edges` edges."""
        layers: list[RelationalAdjacency] = []
        wanted, left = nodes, max_edges
        for _ in range(num_layers):
            if left is not None:
                left -= int(adjacency.num_edges_into(wanted).sum())
                if left < 0:
                    return None
            operator, wanted = adjacency.restrict(wanted)
            layers.append(operator)
        return cls(tuple(reversed(layers)), wanted, nodes)

    @classmethod
    def of_walks(
        cls,
        adjacency: RelationalAdjacency,
        start: int,
        ends: Tensor,
        num_layers: int,
        only_reached: bool = True,
        both: bool = False,
    ) -> ReceptiveField:
        """Return what the states on all walks of at most num_layers edges between nodes depend on.

        All layers have the same nodes, ascending, each with its self-loop, because a walk may stay at a node. A layer
        has all edges, except those of raw weight zero, into the nodes that such a walk may be at after the layer. So no
        weight changes, and degrees are those of the whole graph.

        Args:
            adjacency: The whole operator.
            start: Where walks start.
            ends: Where walks end, int64 [n].
            num_layers: The maximal length.
            only_reached: False: walks may start at any node.
            both: Also include walks from `ends` to `start`.
        """
        structure, has_weight = adjacency.structure, adjacency.raw != 0
        source, target = structure.source[has_weight].long(), structure.target[has_weight].long()
        none = torch.zeros(adjacency.num_sources, dtype=torch.bool, device=adjacency.device)
        begins, wanted = none.index_fill(0, ends.new_tensor([start]), True), none.index_fill(0, ends, True)
        passed = [none] * num_layers  # the nodes that a walk may be at after each layer
        for first, last in ((begins, wanted), (wanted, begins))[: 1 + both]:
            reached, needed = [first if only_reached else ~none], [last]
            for _ in range(num_layers):
                reached.append(reached[-1].index_fill(0, target[reached[-1][source]], True))
                needed.append(needed[-1].index_fill(0, source[needed[-1][target]], True))
            each = zip(passed, reached[1:], needed[-2::-1], strict=True)
            passed = [before | (after & left) for before, after, left in each]
        chosen = [has_weight & nodes[structure.target] for nodes in passed]
        used = begins | wanted
        for passing in chosen:
            used[structure.source[passing]] = used[structure.target[passing]] = True
        place, count = torch.cumsum(used, 0) - 1, int(used.sum())
        loops, layers = (structure.direction == 2) & used[structure.target], []
        for passing in chosen:
            edges = torch.nonzero(passing | loops).squeeze(1)
            target, source = place[structure.target[edges]], place[structure.source[edges]]
            sizes, pointer = {"num_targets": count, "num_sources": count}, pointer_from_sorted(target, count)
            layers.append(adjacency.select_edges(edges, pointer=pointer, source=source, **sizes))
        nodes = torch.nonzero(used).squeeze(1)
        return cls(tuple(layers), nodes, nodes)

    @classmethod
    def whole(cls, adjacency: RelationalAdjacency, num_layers: int, placement: Placement = LOCAL) -> ReceptiveField:
        """Return the receptive field of all nodes, or all local nodes: the whole operator in every layer."""
        if placement.partition is None:
            nodes = torch.arange(adjacency.num_sources, device=adjacency.device)
            return cls((adjacency,) * num_layers, nodes, nodes)
        nodes = placement.partition.nodes.to(adjacency.device)
        structure, exchange = _sources_only(adjacency.structure, placement, nodes)
        return cls((replace(adjacency, structure=structure),) * num_layers, nodes, nodes, (exchange,) * num_layers)

    def with_all_inputs(self, num_nodes: int) -> ReceptiveField:
        """Number the first layer's sources like the nodes of the graph, so that inputs need not be gathered."""
        first = self.layers[0]
        structure = replace(first.structure, source=self.inputs[first.structure.source], num_sources=num_nodes)
        nodes = torch.arange(num_nodes, device=self.inputs.device)
        return replace(self, layers=(replace(first, structure=structure), *self.layers[1:]), inputs=nodes)

    def to(self, device: torch.device) -> Self:
        """Copy to a device."""
        layers = tuple(layer.to(device) for layer in self.layers)
        exchanges = tuple(exchange.to(device) for exchange in self.exchanges)
        ends = {"inputs": self.inputs.to(device), "outputs": self.outputs.to(device)}
        return replace(self, layers=layers, exchanges=exchanges, **ends)

    def masked(self, keep: Tensor) -> ReceptiveField:
        """Drop the same edges in every layer; see `RelationalAdjacency.masked`."""
        return replace(self, layers=tuple(layer.masked(keep) for layer in self.layers))


@cached_per_object
def _sources_only(structure: EdgeStructure, placement: Placement, nodes: Tensor) -> tuple[EdgeStructure, RowExchange]:
    """Restrict a structure [num_local_nodes, num_nodes] to the sources it reads; return the exchange of their rows."""
    sources, source = torch.unique(structure.source, return_inverse=True)
    restricted = replace(structure, source=source, num_sources=len(sources), node_ids=nodes)
    return restricted, placement.exchange(sources.long(), all_local=True)


class StoredEdges:
    """Rows of the adjacency matrices of a graph on disk, read on request; on the CPU.

    An edge is normalized among the edges of its own target, and the graph's index says which triples touch a node. So
    the rows equal those of `RelationalAdjacency.from_graph` without sorting the edges of the whole graph.
    """

    def __init__(self, graph: KnowledgeGraph, **edges: Any) -> None:
        """Take a graph, and fields of `EdgeOptions`."""
        self.graph, self.edges = graph, edges

    @property
    def num_targets(self) -> int:
        """How many nodes the graph has."""
        return self.graph.num_nodes

    def num_edges_into(self, nodes: Tensor) -> Tensor:
        """Return an upper bound on the number of edges into each node, [n]: a loop counts twice."""
        num_loops = int(self.edges.get("self_loops", True))
        return torch.from_numpy(self.graph.num_incident_triples(nodes.numpy()) + num_loops)

    def restrict(self, targets: Tensor) -> tuple[RelationalAdjacency, Tensor]:
        """See `RelationalAdjacency.restrict`. Builds the operator of the triples that touch the targets, int64 [n]."""
        graph = self.graph
        _, number, ends = graph.incident_triples(targets.numpy())
        number, first = np.unique(number, return_index=True)  # a triple between two targets is listed twice
        subject, relation, object_ = (end[first] for end in ends)
        nodes, local_id = np.unique(np.concatenate([subject, object_, targets.numpy()]), return_inverse=True)
        subject, object_, rows = np.split(local_id, [len(number), 2 * len(number)])
        triples = torch.from_numpy(np.stack([subject, relation, object_], axis=1).astype(np.int64, copy=False))
        weights = None if graph.edge_weights is None else torch.from_numpy(graph.edge_weights[number])
        counts = len(nodes), graph.num_relations
        part = RelationalAdjacency.from_triples(triples, *counts, edge_weights=weights, checked=True, **self.edges)
        part, sources = part.restrict(torch.from_numpy(rows))
        origin = torch.from_numpy(np.concatenate([number, len(graph) + nodes]))[part.structure.origin]
        structure = replace(part.structure, origin=origin, num_triples=len(graph), num_nodes=graph.num_nodes)
        return replace(part, structure=structure), torch.from_numpy(nodes)[sources]


RowSource: TypeAlias = RelationalAdjacency | StoredEdges  # whatever `ReceptiveField.of` can restrict
