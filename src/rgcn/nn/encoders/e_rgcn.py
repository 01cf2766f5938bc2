"""e-RGCN: learned embeddings, a first convolution that only scales them, then full ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from rgcn.errors import ConfigError
from rgcn.nn.decompositions import Decomposition, Diagonal
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
    def inputs(cls, plan: NodePlan) -> tuple[nn.Module, int | None]:
        config, count = plan.model, plan.graph.num_nodes
        reached: Tensor | None = None
        if plan.training is not None:
            reached = torch.zeros(count, dtype=torch.bool)
            reached[plan.training.inputs.cpu()] = True
        # E [nodes, width] as torch.nn.init reads a matrix: the fan in is its width.
        init = Initializer(config.embedding_init, config.embedding_gain, fans=(config.embedding, count))
        return EmbeddingInput(count, config.embedding, init, plan.generator, reached), config.embedding

    @classmethod
    def node_layer(cls, plan: NodePlan, depth: int, is_output: bool, out: int) -> tuple[Decomposition, bool]:
        # With a single layer there is nothing after a diagonal to mix. Neither the paper's equation nor its code has a
        # bias there.
        if depth == 0 and plan.model.layers > 1:
            return Diagonal(), False
        return super().node_layer(plan, depth, is_output, out)

    @classmethod
    def hidden(cls, plan: NodePlan, depth: int) -> int:
        return plan.model.embedding if depth == 0 else plan.model.hidden

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
        relations = num_relations * (1 + config.inverse) + config.self_loops
        scaling = relations * config.embedding if config.layers > 1 else 0
        rest = config.model_copy(update={"layers": max(config.layers - 1, 1)})
        above = super().published_parameters(rest, config.embedding, num_relations, num_classes)
        return num_inputs * config.embedding + scaling + above

    @classmethod
    def kernels(cls, decomposition: str) -> list[str]:
        bases = ["combine_bases", "spread_bases", "coefficient_gradient"]
        last = bases if decomposition == "basis" else ["grouped_product", "grouped_outer"]
        return ["gather_product_sum", "gather_sum", *last]
