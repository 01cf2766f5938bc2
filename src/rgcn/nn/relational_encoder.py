"""The one stack of relational convolutions: the body of every network, whatever its task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.errors import ConfigError
from rgcn.nn.inputs import EmbeddingInput, FeatureInput
from rgcn.nn.relational_graph_conv import RelationalGraphConv

Over: TypeAlias = "ReceptiveField | RelationalAdjacency | None"


class RelationalEncoder(nn.Module):
    """what nodes bring → conv → ReLU → … → conv

    source     what nodes bring; None for one-hot nodes, whose first layer looks rows up
    dropout    share of an activated output that is dropped while training
    activated  whether the last convolution's output is activated too

    Over a receptive field it gives the nodes of the field, over the operator of a whole graph every node in order:
    [nodes, width]. Without layers nodes keep what they bring, and None does for a graph.
    """

    def __init__(
        self,
        source: EmbeddingInput | FeatureInput | None,
        layers: Sequence[RelationalGraphConv],
        dropout: float = 0.0,
        activated: bool = False,
    ) -> None:
        super().__init__()
        if source is None and not layers:
            raise ConfigError("one-hot nodes need at least one layer, which looks their rows up")
        self.source = source
        self.layers = nn.ModuleList(layers)
        self.dropout, self.activated = nn.Dropout(dropout), activated
        self.num_layers, self.one_hot = len(layers), source is None
        self.width = layers[-1].out_features if layers else 0 if source is None else source.width

    def forward(self, over: Over) -> Tensor:
        return self.states(over)[-1] if self.layers else self._brought(over)  # type: ignore[return-value]

    def states(self, over: Over, depth: int | None = None) -> list[Tensor]:
        """The output of each layer, activated but for a last one that is not; only the first `depth`, if given."""
        return self.convolved(self._brought(over), over, depth)

    def _brought(self, over: Over) -> Tensor | None:
        nodes = over.inputs if isinstance(over, ReceptiveField) else None
        return None if self.source is None else self.source(nodes)

    def convolved(self, x: Tensor | None, over: Over, depth: int | None = None) -> list[Tensor]:
        """The output of each layer, where x goes in."""
        wanted = len(self.layers) if depth is None else depth
        operators, nodes = (over.layers, over.inputs) if isinstance(over, ReceptiveField) else ((over,) * wanted, None)
        if len(operators) != wanted:
            raise ConfigError(f"a receptive field of {len(operators)} layers for {wanted} layers of the encoder")
        states: list[Tensor] = []
        for number, adjacency in enumerate(operators):
            x = self.layers[number](x, adjacency, nodes if number == 0 else None)
            if number + 1 < len(self.layers) or self.activated:
                x = self.dropout(torch.relu(x))
            states.append(x)
        return states

    def without_own(self, vectors: Tensor, nodes: Tensor) -> Tensor:
        """Vectors [n, width] computed without any message, less what the nodes still bring around the messages."""
        return vectors
