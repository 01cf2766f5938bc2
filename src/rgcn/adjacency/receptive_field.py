"""What some layers must compute for some nodes, and nothing else; of a graph in memory, or of one that is stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Self

from rgcn.adjacency.operator import RelationalAdjacency
from rgcn.adjacency.structure import EdgeStructure
from rgcn.graph import KnowledgeGraph
from rgcn.kernels.sparse import computed_once, pointer_from_sorted
from rgcn.placement import LOCAL, Placement, RowExchange

# The operator of the edges into some nodes int64 [n], and the nodes that these read.
Rows = Callable[[Tensor], tuple[RelationalAdjacency, Tensor]]


class HasRows(Protocol):
    """Something of whose rows an operator can be made: the operator of a graph, or the edges of a stored one."""

    @property
    def num_targets(self) -> int: ...

    def edges_into(self, nodes: Tensor) -> Tensor:
        """[n]: how many edges lead into each of these nodes, at most."""
        ...

    def restricted(self, targets: Tensor) -> tuple[RelationalAdjacency, Tensor]: ...


@dataclass(frozen=True, eq=False)
class ReceptiveField:
    """What L layers must compute for some nodes, and nothing else.

    layers   one operator a layer, the first layer's first; each one's targets are the next one's sources
    inputs   int64: the nodes whose input vectors the first layer reads
    outputs  int64: the nodes that the last layer gives
    exchanges  where nodes are divided among processes: one a layer, fetches the rows that it reads; then inputs and
               outputs are local nodes
    """

    layers: tuple[RelationalAdjacency, ...]
    inputs: Tensor
    outputs: Tensor
    exchanges: tuple[RowExchange, ...] = ()

    @classmethod
    def of(cls, adjacency: HasRows, nodes: Tensor, num_layers: int, placement: Placement = LOCAL) -> ReceptiveField:
        """Walk back from the nodes whose outputs are wanted. Exact: every edge that can reach them stays.

        placement  where nodes are divided among processes, the adjacency has the rows of the local nodes, and all
                   processes walk at the same time
        """
        row = (lambda nodes: nodes) if placement.partition is None else placement.partition.row
        return cls.walk(lambda wanted: adjacency.restricted(row(wanted)), nodes, num_layers, placement)

    @classmethod
    def walk(cls, rows: Rows, nodes: Tensor, num_layers: int, placement: Placement = LOCAL) -> ReceptiveField:
        """The same with operators from `rows`, which is called for each layer, the last one first."""
        layers: list[RelationalAdjacency] = []
        exchanges: list[RowExchange] = []
        wanted = nodes
        for _ in range(num_layers):
            operator, sources = rows(wanted)
            if placement.partition is not None:
                operator = replace(operator, structure=replace(operator.structure, names=wanted))
                exchanges.append(placement.exchange(sources))
                sources = exchanges[-1].needed
            layers.append(operator)
            wanted = sources
        return cls(tuple(reversed(layers)), wanted, nodes, tuple(reversed(exchanges)))

    @classmethod
    def within(
        cls, adjacency: HasRows, nodes: Tensor, num_layers: int, most_edges: int | None = None
    ) -> ReceptiveField | None:
        """As `of`, None where it would have more edges than that in all its layers; known before they are made."""
        layers: list[RelationalAdjacency] = []
        wanted, left = nodes, most_edges
        for _ in range(num_layers):
            if left is not None:
                left -= int(adjacency.edges_into(wanted).sum())
                if left < 0:
                    return None
            smaller, wanted = adjacency.restricted(wanted)
            layers.append(smaller)
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
        """What walks of at most L edges from `start` to `ends` must hear; not only_reached: walks from anywhere.

        All layers are over the same nodes, ascending, each with its self-loop: a walk may stay where it is. Other edges
        lead into nodes that such a walk passes after the layer: all into these, but for those of raw weight zero. So no
        weight changes, and degrees are those of the whole graph.

        both  also what walks from `ends` back to `start` must hear
        """
        structure, heard = adjacency.structure, adjacency.raw != 0
        source, target = structure.source[heard].long(), structure.target[heard].long()
        none = torch.zeros(adjacency.num_sources, dtype=torch.bool, device=adjacency.device)
        begins, wanted = none.index_fill(0, ends.new_tensor([start]), True), none.index_fill(0, ends, True)
        passed = [none] * num_layers  # by any of the walks, after each layer
        for first, last in ((begins, wanted), (wanted, begins))[: 1 + both]:
            reached, needed = [first if only_reached else ~none], [last]
            for _ in range(num_layers):
                reached.append(reached[-1].index_fill(0, target[reached[-1][source]], True))
                needed.append(needed[-1].index_fill(0, source[needed[-1][target]], True))
            each = zip(passed, reached[1:], needed[-2::-1], strict=True)
            passed = [before | (after & left) for before, after, left in each]
        chosen = [heard & nodes[structure.target] for nodes in passed]
        used = begins | wanted
        for passing in chosen:
            used[structure.source[passing]] = used[structure.target[passing]] = True
        place, count = torch.cumsum(used, 0) - 1, int(used.sum())
        loops, layers = (structure.direction == 2) & used[structure.target], []
        for passing in chosen:
            edges = torch.nonzero(passing | loops).squeeze(1)
            target, source = place[structure.target[edges]], place[structure.source[edges]]
            sizes, pointer = {"num_targets": count, "num_sources": count}, pointer_from_sorted(target, count)
            layers.append(adjacency.selected(edges, pointer=pointer, source=source, **sizes))
        nodes = torch.nonzero(used).squeeze(1)
        return cls(tuple(layers), nodes, nodes)

    @classmethod
    def whole(cls, adjacency: RelationalAdjacency, num_layers: int, placement: Placement = LOCAL) -> ReceptiveField:
        """Every node, or every local one, in every layer."""
        if placement.partition is None:
            nodes = torch.arange(adjacency.num_sources, device=adjacency.device)
            return cls((adjacency,) * num_layers, nodes, nodes)
        nodes = placement.partition.nodes.to(adjacency.device)
        structure, exchange = _sources_only(adjacency.structure, placement, nodes)
        return cls((replace(adjacency, structure=structure),) * num_layers, nodes, nodes, (exchange,) * num_layers)

    def reading_all(self, num_nodes: int) -> ReceptiveField:
        """The same sums, written as sums over all nodes: the first layer's inputs are not gathered beforehand."""
        first = self.layers[0]
        structure = replace(first.structure, source=self.inputs[first.structure.source], num_sources=num_nodes)
        nodes = torch.arange(num_nodes, device=self.inputs.device)
        return replace(self, layers=(replace(first, structure=structure), *self.layers[1:]), inputs=nodes)

    def to(self, device: torch.device) -> Self:
        layers = tuple(layer.to(device) for layer in self.layers)
        exchanges = tuple(exchange.to(device) for exchange in self.exchanges)
        ends = {"inputs": self.inputs.to(device), "outputs": self.outputs.to(device)}
        return replace(self, layers=layers, exchanges=exchanges, **ends)

    def layer_input(self, number: int, states: Tensor) -> Tensor:
        """The states that a layer reads, by its number, from those of the layer before."""
        return self.exchanges[number](states) if self.exchanges else states

    def masked(self, keep: Tensor) -> ReceptiveField:
        """The same dropped edges in every layer."""
        return replace(self, layers=tuple(layer.masked(keep) for layer in self.layers))


@computed_once
def _sources_only(structure: EdgeStructure, placement: Placement, nodes: Tensor) -> tuple[EdgeStructure, RowExchange]:
    """A structure [local nodes, nodes] over the nodes that it reads alone, and the exchange that fetches their rows."""
    sources, source = torch.unique(structure.source, return_inverse=True)
    smaller = replace(structure, source=source, num_sources=len(sources), names=nodes)
    return smaller, placement.exchange(sources.long(), all_local=True)


class StoredEdges:
    """Rows of the A_r of a graph that stays where it lies, made when somebody asks for them; on the CPU.

    An edge is normalized among the edges of its own target, and the graph's index says which triples touch a node: the
    rows are those of `RelationalAdjacency.from_graph`, whose sorted edges of the whole graph are never made.
    """

    def __init__(self, graph: KnowledgeGraph, **edges: Any) -> None:
        """edges: fields of `EdgeOptions`."""
        self.graph, self.edges = graph, edges

    @property
    def num_targets(self) -> int:
        return self.graph.num_nodes

    def edges_into(self, nodes: Tensor) -> Tensor:
        """[n]: a loop counts twice."""
        return torch.from_numpy(self.graph.num_touching(nodes.numpy()) + int(self.edges.get("self_loops", True)))

    def restricted(self, targets: Tensor) -> tuple[RelationalAdjacency, Tensor]:
        """The operator of the edges into these nodes int64 [t], distinct, and the nodes they read, ascending.

        Made of the operator of a smaller graph, of the triples that touch the targets.
        """
        graph = self.graph
        _, number, ends = graph.touching(targets.numpy())
        number, first = np.unique(number, return_index=True)  # a triple between two of the nodes stands there twice
        subject, relation, object_ = (end[first] for end in ends)
        nodes, place = np.unique(np.concatenate([subject, object_, targets.numpy()]), return_inverse=True)
        subject, object_, rows = np.split(place, [len(number), 2 * len(number)])
        triples = torch.from_numpy(np.stack([subject, relation, object_], axis=1).astype(np.int64, copy=False))
        weights = None if graph.edge_weights is None else torch.from_numpy(graph.edge_weights[number])
        counts = len(nodes), graph.num_relations
        part = RelationalAdjacency.from_triples(triples, *counts, edge_weights=weights, checked=True, **self.edges)
        part, sources = part.restricted(torch.from_numpy(rows))
        origin = torch.from_numpy(np.concatenate([number, len(graph) + nodes]))[part.structure.origin]
        sizes: dict[str, Any] = {"num_triples": len(graph), "num_nodes": graph.num_nodes}
        return replace(part, structure=replace(part.structure, origin=origin, **sizes)), torch.from_numpy(nodes)[
            sources
        ]
