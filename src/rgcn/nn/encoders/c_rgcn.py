"""c-RGCN: messages pass through a bottleneck, and the embedding goes around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from rgcn.adjacency import ReceptiveField
from rgcn.nn.encoders.base import VectorEncoder
from rgcn.nn.encoders.layers import convolutions_in_words, link_stack
from rgcn.nn.encoders.plain import embeddings
from rgcn.nn.initialization import Initializer
from rgcn.nn.inputs import EmbeddingInput
from rgcn.nn.relational_encoder import Over, RelationalEncoder
from rgcn.nn.relational_graph_conv import RelationalGraphConv
from rgcn.words import count

if TYPE_CHECKING:
    from rgcn.config import LinkModelConfig
    from rgcn.nn.link_network import LinkPlan


class CompressionEncoder(VectorEncoder):
    """For links only."""

    @classmethod
    def vectors(cls, plan: LinkPlan) -> BottleneckEncoder:
        source, layers = embeddings(plan), link_stack(plan, plan.model.bottleneck)
        return BottleneckEncoder(source, layers, Initializer(plan.model.init, plan.model.gain), plan.generator)

    @classmethod
    def describe_vectors(cls, model: LinkModelConfig) -> dict[str, str]:
        architecture = (
            f"{model.title}: {count(model.layers, 'relational convolution')} through a bottleneck of width "
            f"{model.bottleneck}, the embedding of width {model.embedding} goes around it"
        )
        return {"Architecture": architecture, **convolutions_in_words(model)}


class BottleneckEncoder(RelationalEncoder):
    """H = E + g(σ(… Σ_r A_r f(E) W_r …)), messages pass through a bottleneck, and E goes around it.

    f projects down to the bottleneck, with a bias; g projects up again. g has no bias of its own: a constant added to
    every node's vector is a matter of E, and without it a convolution of zeros leaves E exactly as it is.
    """

    source: EmbeddingInput

    def __init__(
        self,
        source: EmbeddingInput,
        layers: Sequence[RelationalGraphConv],
        init: Initializer,
        generator: torch.Generator,
    ) -> None:
        super().__init__(source, layers, activated=True)
        self.width, bottleneck = source.width, layers[0].in_features
        self.down = nn.Parameter(init.draw((self.width, bottleneck), generator))
        self.down_bias = nn.Parameter(torch.zeros(bottleneck))
        self.up = nn.Parameter(init.draw((bottleneck, self.width), generator))

    def forward(self, over: Over) -> Tensor:
        nodes = over.outputs if isinstance(over, ReceptiveField) else None
        x = self.brought(over) @ self.down + self.down_bias
        return self.source(nodes) + self.convolved(x, over)[-1] @ self.up  # type: ignore[no-any-return]

    def without_own(self, vectors: Tensor, nodes: Tensor) -> Tensor:
        # E goes around the bottleneck: without any message it is all there still.
        return vectors - self.source(nodes)  # type: ignore[no-any-return]
