"""The network of node classification: a stack of relational convolutions, and a head that turns states into classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.errors import ConfigError
from rgcn.nn.heads import ConvolutionHead, Head
from rgcn.nn.relational_graph_conv import RelationalGraphConv

if TYPE_CHECKING:
    from rgcn.config import NodeModelConfig
    from rgcn.graph import KnowledgeGraph


@dataclass(frozen=True)
class NodePlan:
    """What a network of node classification is built for.

    model      its settings
    graph      with labels; its classes are what the network tells apart
    adjacency  the operator of the graph
    training   what the loss can reach. Rows outside it are kept out of the parameters; None where something decays
               them, so that all must be parameters
    generator  where initial weights come from
    """

    model: NodeModelConfig
    graph: KnowledgeGraph
    adjacency: RelationalAdjacency
    training: ReceptiveField | None
    generator: torch.Generator

    @property
    def num_classes(self) -> int:
        assert self.graph.labels is not None
        return self.graph.labels.num_classes


class RelationalEncoder(nn.Module):
    """input → conv → ReLU → … → conv → head.

    The last convolution is not activated where it speaks for the classes itself; before any other head it is.

    forward(field) → [nodes of the field, classes], or without a head the width of the last convolution
    """

    def __init__(
        self, source: nn.Module, layers: Sequence[RelationalGraphConv], dropout: float = 0.0, head: Head | None = None
    ) -> None:
        super().__init__()
        if not layers:
            raise ConfigError("an encoder needs at least one layer")
        self.source = source
        self.layers = nn.ModuleList(layers)
        self.dropout = nn.Dropout(dropout)
        self.head = ConvolutionHead() if head is None else head

    def forward(self, field: ReceptiveField) -> Tensor:
        return self.head(self.states(field)[-1])  # type: ignore[no-any-return]

    def states(self, field: ReceptiveField, depth: int | None = None) -> list[Tensor]:
        """The output of each layer, activated but for what a head wants as it is; only the first `depth` layers, if
        given."""
        wanted = len(self.layers) if depth is None else depth
        if len(field.layers) != wanted:
            raise ConfigError(f"a receptive field of {len(field.layers)} layers for {wanted} layers of the encoder")
        states: list[Tensor] = []
        x = self.source(field.inputs)
        for number, adjacency in enumerate(field.layers):
            x = self.layers[number](x, adjacency, field.inputs if number == 0 else None)
            if number + 1 < len(self.layers) or self.head.activated:
                x = self.dropout(torch.relu(x))
            states.append(x)
        return states
