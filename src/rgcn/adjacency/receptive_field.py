"""What some layers must compute for some nodes, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor
from typing_extensions import Self

from rgcn.adjacency.operator import RelationalAdjacency
from rgcn.sparse import pointer_from_sorted


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
    """

    layers: tuple[RelationalAdjacency, ...]
    inputs: Tensor
    outputs: Tensor

    @classmethod
    def of(cls, adjacency: HasRows, nodes: Tensor, num_layers: int) -> ReceptiveField:
        """Walk back from the nodes whose outputs are wanted. Exact: every edge that can reach them stays."""
        field = cls.within(adjacency, nodes, num_layers)
        assert field is not None
        return field

    @classmethod
    def within(
        cls, adjacency: HasRows, nodes: Tensor, num_layers: int, most_edges: int | None = None
    ) -> ReceptiveField | None:
        """The same, None where it would have more edges than that in all its layers; known before they are made."""
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
        cls, adjacency: RelationalAdjacency, start: int, ends: Tensor, num_layers: int, only_reached: bool = True
    ) -> ReceptiveField:
        """What walks of at most L edges from `start` to `ends` must hear; not only_reached: walks from anywhere.

        All layers are over the same nodes, ascending, each with its self-loop: a walk may stay where it is. Other edges
        lead into nodes that such a walk passes after the layer: all into these, but for those of raw weight zero. So no
        weight changes, and degrees are those of the whole graph.
        """
        structure, heard = adjacency.structure, adjacency.raw != 0
        source, target = structure.source[heard].long(), structure.target[heard].long()
        none = torch.zeros(adjacency.num_sources, dtype=torch.bool, device=adjacency.device)
        begins, wanted = none.index_fill(0, ends.new_tensor([start]), True), none.index_fill(0, ends, True)
        reached, needed = [begins if only_reached else ~none], [wanted]
        for _ in range(num_layers):
            reached.append(reached[-1].index_fill(0, target[reached[-1][source]], True))
            needed.append(needed[-1].index_fill(0, source[needed[-1][target]], True))
        passed = [after & left for after, left in zip(reached[1:], needed[-2::-1], strict=True)]
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
    def whole(cls, adjacency: RelationalAdjacency, num_layers: int) -> ReceptiveField:
        """Every node, in every layer."""
        nodes = torch.arange(adjacency.num_sources, device=adjacency.device)
        return cls((adjacency,) * num_layers, nodes, nodes)

    def reading_all(self, num_nodes: int) -> ReceptiveField:
        """The same sums, written as sums over all nodes: the first layer's inputs are not gathered beforehand."""
        first = self.layers[0]
        structure = replace(first.structure, source=self.inputs[first.structure.source], num_sources=num_nodes)
        nodes = torch.arange(num_nodes, device=self.inputs.device)
        return replace(self, layers=(replace(first, structure=structure), *self.layers[1:]), inputs=nodes)

    def to(self, device: torch.device) -> Self:
        layers = tuple(layer.to(device) for layer in self.layers)
        return replace(self, layers=layers, inputs=self.inputs.to(device), outputs=self.outputs.to(device))

    def handed(self, number: int, states: Tensor) -> Tensor:
        """What goes into a layer, by its number, from the states before it: the same, unless others have a part."""
        return states

    def masked(self, keep: Tensor) -> ReceptiveField:
        """The same dropped edges in every layer."""
        return replace(self, layers=tuple(layer.masked(keep) for layer in self.layers))
