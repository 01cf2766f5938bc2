"""c-RGCN: messages pass through a bottleneck, and the embedding goes around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from typing_extensions import Self

from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.nn.encoders.base import VectorEncoder
from rgcn.nn.encoders.layers import convolutions_in_words, link_layer
from rgcn.nn.initialization import Initializer
from rgcn.nn.inputs import EmbeddingInput
from rgcn.nn.relational_graph_conv import RelationalGraphConv
from rgcn.words import count

if TYPE_CHECKING:
    from rgcn.config import LinkModelConfig
    from rgcn.nn.link_network import LinkPlan


class CompressionEncoder(VectorEncoder):
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
        nn.Module.__init__(self)
        self.source: EmbeddingInput = source
        self.num_layers, self.width = len(layers), width
        self.down = nn.Parameter(init.draw((width, bottleneck), generator))
        self.down_bias = nn.Parameter(torch.zeros(bottleneck))
        self.layers = nn.ModuleList(layers)
        self.up = nn.Parameter(init.draw((bottleneck, width), generator))

    @classmethod
    def build(cls, plan: LinkPlan) -> Self:
        model = plan.model
        init = Initializer(model.init, model.gain)
        source = EmbeddingInput(plan.num_nodes, model.embedding, init, plan.generator)
        layers = [link_layer(plan, model.bottleneck) for _ in range(model.layers)]
        return cls(source, layers, model.embedding, model.bottleneck, init, plan.generator)

    def forward(self, adjacency: RelationalAdjacency | None) -> Tensor:
        embedding = self.source.all_nodes()
        x = embedding @ self.down + self.down_bias
        for layer in self.layers:
            x = torch.relu(layer(x, adjacency))
        return embedding + x @ self.up

    def at(self, field: ReceptiveField, nodes: Tensor) -> Tensor:
        x = self.source(field.inputs) @ self.down + self.down_bias
        for layer, adjacency in zip(self.layers, field.layers, strict=True):
            x = torch.relu(layer(x, adjacency))
        return self.source(nodes) + x @ self.up  # type: ignore[no-any-return]

    def without_own(self, vectors: Tensor, nodes: Tensor) -> Tensor:
        # E goes around the bottleneck: without any message it is all there still.
        return vectors - self.source(nodes)  # type: ignore[no-any-return]

    @classmethod
    def describe_vectors(cls, model: LinkModelConfig) -> dict[str, str]:
        architecture = (
            f"{model.title}: {count(model.layers, 'relational convolution')} through a bottleneck of width "
            f"{model.bottleneck}, the embedding of width {model.embedding} goes around it"
        )
        return {"Architecture": architecture, **convolutions_in_words(model)}
