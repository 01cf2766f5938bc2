"""e-RGCN: learned embeddings, a first convolution that only scales them, then full ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rgcn.errors import ConfigError
from rgcn.nn.decompositions import Diagonal
from rgcn.nn.encoders.layers import Layer
from rgcn.nn.encoders.rgcn import RgcnEncoder
from rgcn.nn.initialization import Initializer
from rgcn.nn.inputs import EmbeddingInput
from rgcn.nn.link_network import LinkNetwork, LinkPlan
from rgcn.nn.node_network import NodePlan
from rgcn.words import count

if TYPE_CHECKING:
    from rgcn.config import NodeModelConfig


class EmbeddingEncoder(RgcnEncoder):
    """For nodes only; about a tenth of RGCN's parameters."""

    @classmethod
    def for_links(cls, plan: LinkPlan) -> LinkNetwork:
        raise ConfigError("e-rgcn classifies nodes; for links choose rgcn, c-rgcn or none")

    @classmethod
    def inputs(cls, plan: NodePlan) -> EmbeddingInput:
        config, count = plan.model, plan.graph.num_nodes
        reached: Tensor | None = None
        if plan.training is not None:
            reached = torch.zeros(count, dtype=torch.bool)
            reached[plan.training.inputs.cpu()] = True
        # E [nodes, width] as torch.nn.init reads a matrix: the fan in is its width.
        init = Initializer(config.embedding_init, config.embedding_gain, fans=(config.embedding, count))
        return EmbeddingInput(count, config.embedding, init, plan.generator, reached)

    @classmethod
    def widths(cls, model: NodeModelConfig) -> list[int]:
        return [model.embedding] + [model.hidden] * (model.layers - 1)

    @classmethod
    def node_layers(cls, model: NodeModelConfig, num_classes: int) -> list[Layer]:
        layers = super().node_layers(model, num_classes)
        # With a single layer there is nothing after a diagonal to mix. Neither the paper's equation nor its code has a
        # bias there.
        return layers if model.layers == 1 else [Layer(model.embedding, Diagonal(), False), *layers[1:]]

    @classmethod
    def node_words(cls, model: NodeModelConfig, features: bool) -> str:
        layers = count(model.layers, "relational convolution")
        first = ", the first one diagonal" if model.layers > 1 else ""
        return f"learned node embeddings of width {model.embedding}, then {layers}{first}"

    @classmethod
    def published_parameters(
        cls, config: NodeModelConfig, num_inputs: int, num_relations: int, num_classes: int
    ) -> int:
        """
        >>> from rgcn.config import NodeModelConfig
        >>> model = NodeModelConfig(encoder="e-rgcn")  # AIFB: 8285 · 32 + 91 · 32 + 91 · 32 · 4 + 4
        >>> EmbeddingEncoder.published_parameters(model, 8285, 45, 4)
        279684
        """
        above = super().published_parameters(config, config.embedding, num_relations, num_classes)
        return num_inputs * config.embedding + above

    @classmethod
    def kernels(cls, decomposition: str) -> list[str]:
        above = super().kernels(decomposition)
        return ["gather_product_sum", *(kernel for kernel in above if kernel != "adam_bases")]
