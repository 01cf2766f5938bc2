"""What a stack of layers must compute for some nodes, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rgcn.adjacency.operator import RelationalAdjacency


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
    def of(cls, adjacency: RelationalAdjacency, nodes: Tensor, num_layers: int) -> ReceptiveField:
        """Walk back from the nodes whose outputs are wanted. Exact: every edge that can reach them stays."""
        layers: list[RelationalAdjacency] = []
        wanted = nodes
        for _ in range(num_layers):
            smaller, wanted = adjacency.restricted(wanted)
            layers.append(smaller)
        return cls(tuple(reversed(layers)), wanted, nodes)

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

    def masked(self, keep: Tensor) -> ReceptiveField:
        """The same dropped edges in every layer."""
        return replace(self, layers=tuple(layer.masked(keep) for layer in self.layers))

    def to(self, target: torch.device | str | torch.dtype) -> ReceptiveField:
        ends = [self.inputs, self.outputs]
        if not isinstance(target, torch.dtype):
            ends = [nodes.to(target) for nodes in ends]
        return ReceptiveField(tuple(layer.to(target) for layer in self.layers), *ends)
