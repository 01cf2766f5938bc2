"""RGCN: relational convolutions with ReLU between them, over whatever the nodes bring."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from rgcn.axis_tables import HEADS
from rgcn.errors import ConfigError
from rgcn.nn.description import Description
from rgcn.nn.encoders.base import VectorEncoder
from rgcn.nn.encoders.layers import Layer, convolutions_in_words, link_stack, node_decomposition, stacked
from rgcn.nn.encoders.plain import embeddings
from rgcn.nn.initialization import Initializer
from rgcn.nn.inputs import EmbeddingInput, FeatureInput
from rgcn.nn.node_network import NodeNetwork, NodePlan
from rgcn.nn.relational_encoder import RelationalEncoder
from rgcn.words import count

if TYPE_CHECKING:
    from rgcn.config import LinkModelConfig, NodeModelConfig
    from rgcn.nn.link_network import LinkPlan


class RgcnEncoder(VectorEncoder):
    """For links: embeddings (or one-hot nodes), then convolutions; no activation after the last.

    For nodes: one-hot nodes or given features, then convolutions, then a head.
    """

    @classmethod
    def vectors(cls, plan: LinkPlan) -> RelationalEncoder:
        model, training = plan.model, plan.training
        one_hot = model.input == "one-hot"
        if one_hot and training.self_loop_dropout_on == "message" and training.self_loop_dropout:
            raise ConfigError("one-hot nodes have no self-loop message to drop numbers of: self_loop_dropout_on=edge")
        source = None if one_hot else embeddings(plan, model.activated_input)
        return RelationalEncoder(source, link_stack(plan, model.embedding, one_hot))

    @classmethod
    def describe_vectors(cls, model: LinkModelConfig) -> dict[str, str]:
        nodes = "one-hot nodes" if model.input == "one-hot" else f"node embeddings of width {model.embedding}"
        layers = count(model.layers, "relational convolution")
        return {"Architecture": f"{model.title}: {layers} over {nodes}", **convolutions_in_words(model)}

    # -- classes -----------------------------------------------------------------------------------------

    @classmethod
    def for_nodes(cls, plan: NodePlan) -> NodeNetwork:
        model, source, layers = plan.model, cls.inputs(plan), cls.node_layers(plan.model, plan.num_classes)
        init = Initializer(model.init, model.gain, model.fans)
        built = stacked(plan, None if source is None else source.width, layers, init)
        head = HEADS.find(model.head).build(layers[-1].out, plan.num_classes, model.options, plan.generator)
        return NodeNetwork(source, built, model.dropout, head)

    @classmethod
    def inputs(cls, plan: NodePlan) -> EmbeddingInput | FeatureInput | None:
        """What gives nodes their input vectors; None for one-hot nodes."""
        config, features = plan.model, plan.graph.features
        if config.input == "one-hot" or (config.input == "auto" and features is None):
            return None
        if features is None:
            raise ConfigError("model.input is 'features', but the graph has none: read it with features=FILE")
        return FeatureInput(torch.from_numpy(np.array(features)))

    @classmethod
    def widths(cls, model: NodeModelConfig) -> list[int]:
        """The width after each convolution, the last one's before the head has its say."""
        return [model.hidden] * model.layers

    @classmethod
    def node_layers(cls, model: NodeModelConfig, num_classes: int) -> list[Layer]:
        """The convolutions below the head; the last speaks for the classes where the head leaves that to it."""
        head = HEADS.find(model.head)
        *below, last = cls.widths(model)
        out = head.width(last, num_classes)
        layers = [Layer(width, node_decomposition(model, False, width), model.bias) for width in below]
        return [*layers, Layer(out, node_decomposition(model, not head.activated, out), model.bias)]

    @classmethod
    def describe_nodes(cls, model: NodeModelConfig, features: bool) -> Description:
        """
        >>> from rgcn.config import NodeModelConfig
        >>> RgcnEncoder.describe_nodes(NodeModelConfig(), False).made_of["Architecture"]
        'rgcn: 2 relational convolutions of hidden width 16 over one-hot nodes'
        """
        architecture = f"{model.title}: {cls.node_words(model, features)}{HEADS.find(model.head).words()}"
        return Description({"Architecture": architecture, **convolutions_in_words(model)})

    @classmethod
    def node_words(cls, model: NodeModelConfig, features: bool) -> str:
        """The layers in words."""
        given = model.input == "features" or (model.input == "auto" and features)
        nodes = "the nodes' features" if given else "one-hot nodes"
        return f"{count(model.layers, 'relational convolution')} of hidden width {model.hidden} over {nodes}"

    @classmethod
    def published_parameters(
        cls, config: NodeModelConfig, num_inputs: int, num_relations: int, num_classes: int
    ) -> int:
        """
        >>> from rgcn.config import NodeModelConfig
        >>> RgcnEncoder.published_parameters(
        ...     NodeModelConfig(), 8285, 45, 4
        ... )  # AIFB: 91 · 8285 · 16 + 16 + 91 · 16 · 4 + 4
        12068804
        """
        relations = num_relations * (1 + config.inverse) + config.self_loops
        total, width = 0, num_inputs
        for layer in cls.node_layers(config, num_classes):
            total += layer.published(width, relations, config.self_loops)
            width = layer.out
        return total if config.head == "convolution" else total + (width + 1) * num_classes

    @classmethod
    def kernels(cls, decomposition: str) -> list[str]:
        products = ["grouped_product", "grouped_outer"]
        bases = ["combine_bases", "spread_bases", "coefficient_gradient", "adam_bases"]
        return ["gather_sum", *(bases if decomposition == "basis" else products)]
