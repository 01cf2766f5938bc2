"""Encoders of link prediction: from the graph to a vector for every node.

Each is called with the operator of the edges to pass messages over, [N, N], and returns [N, width]. `at` gives the
vectors of a few nodes alone, the same numbers, from the part of the graph that reaches them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.nn.encoder import EmbeddingInput
from rgcn.nn.initialization import Initializer
from rgcn.nn.relational_graph_conv import RelationalGraphConv


class PlainEmbedding(nn.Module):
    """No message passing: E itself. With DistMult on top this is DistMult."""

    def __init__(self, source: EmbeddingInput) -> None:
        super().__init__()
        self.source = source

    def forward(self, adjacency: RelationalAdjacency | None = None) -> Tensor:
        return self.source.all_nodes()

    def at(self, field: ReceptiveField | None, nodes: Tensor) -> Tensor:
        """[nodes, width]: their embeddings; there is no field, for no message is passed."""
        return self.source(nodes)  # type: ignore[no-any-return]


class ConvolutionalEncoder(nn.Module):
    """RGCN: embeddings (or one-hot nodes), then convolutions with ReLU between them; none after the last."""

    def __init__(self, source: EmbeddingInput | None, layers: Sequence[RelationalGraphConv]) -> None:
        super().__init__()
        self.source = source
        self.layers = nn.ModuleList(layers)

    def forward(self, adjacency: RelationalAdjacency) -> Tensor:
        x = None if self.source is None else self.source.all_nodes()
        for depth, layer in enumerate(self.layers):
            x = layer(x if x is None or depth == 0 else torch.relu(x), adjacency)
        assert x is not None
        return x

    def at(self, field: ReceptiveField, nodes: Tensor) -> Tensor:
        """[nodes, width]: the vectors of the nodes whose receptive field this is."""
        x: Tensor | None = None if self.source is None else self.source(field.inputs)
        for depth, (layer, adjacency) in enumerate(zip(self.layers, field.layers, strict=True)):
            first = depth == 0
            x = layer(x if x is None or first else torch.relu(x), adjacency, field.inputs if first else None)
        assert x is not None
        return x


class CompressionEncoder(nn.Module):
    """c-RGCN: H = E + g(σ(… Σ_r A_r f(E) W_r …)), messages pass through a bottleneck, and E goes around it.

    f projects down to the bottleneck, with a bias; g projects up again. g has no bias of its own: a constant added to
    every node's vector is a matter of E, and without it a convolution of zeros leaves E exactly as it is.
    """

    def __init__(
        self,
        source: EmbeddingInput,
        layers: Sequence[RelationalGraphConv],
        width: int,
        bottleneck: int,
        init: Initializer,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.source = source
        self.down = nn.Parameter(init.draw((width, bottleneck), generator))
        self.down_bias = nn.Parameter(torch.zeros(bottleneck))
        self.layers = nn.ModuleList(layers)
        self.up = nn.Parameter(init.draw((bottleneck, width), generator))

    def forward(self, adjacency: RelationalAdjacency) -> Tensor:
        embedding = self.source.all_nodes()
        x = embedding @ self.down + self.down_bias
        for layer in self.layers:
            x = torch.relu(layer(x, adjacency))
        return embedding + x @ self.up

    def at(self, field: ReceptiveField, nodes: Tensor) -> Tensor:
        """[nodes, width]: the vectors of the nodes whose receptive field this is."""
        x = self.source(field.inputs) @ self.down + self.down_bias
        for layer, adjacency in zip(self.layers, field.layers, strict=True):
            x = torch.relu(layer(x, adjacency))
        return self.source(nodes) + x @ self.up  # type: ignore[no-any-return]
