"""RGCN: relational convolutions with ReLU between them, over whatever the nodes bring."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import Self

from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.axis_tables import HEADS
from rgcn.config.knobs import Description
from rgcn.errors import ConfigError
from rgcn.nn.decompositions import Decomposition
from rgcn.nn.encoders.base import VectorEncoder
from rgcn.nn.encoders.layers import convolutions_in_words, link_decomposition, link_init, link_layer, node_decomposition
from rgcn.nn.initialization import Initializer
from rgcn.nn.inputs import EmbeddingInput, FeatureInput, OneHotInput
from rgcn.nn.node_network import NodePlan, RelationalEncoder
from rgcn.nn.relational_graph_conv import RelationalGraphConv
from rgcn.words import count

if TYPE_CHECKING:
    from rgcn.config import LinkModelConfig, NodeModelConfig
    from rgcn.nn.link_network import LinkPlan


class RgcnEncoder(VectorEncoder):
    """For links: embeddings (or one-hot nodes), then convolutions; no activation after the last.

    For nodes: one-hot nodes or given features, then convolutions, then a head.
    """

    def __init__(self, source: EmbeddingInput | None, layers: Sequence[RelationalGraphConv]) -> None:
        nn.Module.__init__(self)
        self.source = source
        self.layers = nn.ModuleList(layers)
        self.num_layers, self.width = len(layers), layers[-1].out_features
        self.one_hot = source is None

    @classmethod
    def build(cls, plan: LinkPlan) -> Self:
        model, training = plan.model, plan.training
        one_hot = model.input == "one-hot"
        if one_hot and training.self_loop_dropout_on == "message" and training.self_loop_dropout:
            raise ConfigError("one-hot nodes have no self-loop message to drop numbers of: self_loop_dropout_on=edge")
        source, layers = None, []
        if one_hot:
            first = RelationalGraphConv.one_hot(
                plan.adjacency,
                model.embedding,
                decomposition=link_decomposition(model),
                bias=model.bias,
                init=link_init(plan, model.embedding),
                generator=plan.generator,
            )
            layers.append(first)
        else:
            init = Initializer(model.init, model.gain)
            activated = model.activated_input
            source = EmbeddingInput(plan.num_nodes, model.embedding, init, plan.generator, activated=activated)
        while len(layers) < model.layers:
            layers.append(link_layer(plan, model.embedding))
        return cls(source, layers)

    def forward(self, adjacency: RelationalAdjacency | None) -> Tensor:
        x = None if self.source is None else self.source.all_nodes()
        for depth, layer in enumerate(self.layers):
            x = layer(x if x is None or depth == 0 else torch.relu(x), adjacency)
        assert x is not None
        return x

    def at(self, field: ReceptiveField, nodes: Tensor) -> Tensor:
        x: Tensor | None = None if self.source is None else self.source(field.inputs)
        for depth, (layer, adjacency) in enumerate(zip(self.layers, field.layers, strict=True)):
            first = depth == 0
            x = layer(x if x is None or first else torch.relu(x), adjacency, field.inputs if first else None)
        assert x is not None
        return x

    @classmethod
    def describe_vectors(cls, model: LinkModelConfig) -> dict[str, str]:
        nodes = "one-hot nodes" if model.input == "one-hot" else f"node embeddings of width {model.embedding}"
        layers = count(model.layers, "relational convolution")
        return {"Architecture": f"{model.title}: {layers} over {nodes}", **convolutions_in_words(model)}

    # -- classes -----------------------------------------------------------------------------------------

    @classmethod
    def for_nodes(cls, plan: NodePlan) -> RelationalEncoder:
        source, width = cls.inputs(plan)
        return stacked(plan, source, width, cls)

    @classmethod
    def inputs(cls, plan: NodePlan) -> tuple[nn.Module, int | None]:
        """The module that gives nodes their input vectors, and their width; None for one-hot nodes."""
        config, features = plan.model, plan.graph.features
        if config.input == "features" or (config.input == "auto" and features is not None):
            if features is None:
                raise ConfigError("model.input is 'features', but the graph has none: read it with features=FILE")
            return FeatureInput(torch.from_numpy(np.array(features))), features.shape[1]
        return OneHotInput(), None

    @classmethod
    def node_layer(cls, plan: NodePlan, depth: int, is_output: bool, out: int) -> tuple[Decomposition, bool]:
        """How the weights of a convolution are written, and whether it has a bias."""
        return node_decomposition(plan.model, is_output, out), plan.model.bias

    @classmethod
    def hidden(cls, plan: NodePlan, depth: int) -> int:
        """The width after a convolution that does not speak for the classes."""
        return plan.model.hidden

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
        for depth in range(config.layers):
            last = depth + 1 == config.layers and config.head == "convolution"
            out = num_classes if last else config.hidden
            if not last and config.decomposition == "diagonal":
                total += relations * width
            elif config.bases is not None:
                total += config.bases * width * out + relations * config.bases
            elif config.blocks is not None and out % config.blocks == 0:
                apart = int(config.self_loops)  # the self-loop's matrix stays full
                total += (relations - apart) * width * out // config.blocks + apart * width * out
            else:
                total += relations * width * out
            total += out if config.bias else 0
            width = out
        return total if config.head == "convolution" else total + (width + 1) * num_classes

    @classmethod
    def kernels(cls, decomposition: str) -> list[str]:
        products = ["grouped_product", "grouped_outer"]
        bases = ["combine_bases", "spread_bases", "coefficient_gradient", "adam_bases"]
        return ["gather_sum", *(bases if decomposition == "basis" else products)]


def stacked(plan: NodePlan, source: nn.Module, width: int | None, kind: type[RgcnEncoder]) -> RelationalEncoder:
    """Convolutions one on another, and the head the settings name."""
    config, head = plan.model, HEADS.find(plan.model.head)
    init = Initializer(config.init, config.gain, config.fans)
    layers: list[RelationalGraphConv] = []
    for depth in range(config.layers):
        out = kind.hidden(plan, depth)
        is_output = False
        if depth + 1 == config.layers:
            wanted = head.width(out, plan.num_classes)
            is_output, out = not head.activated, wanted
        decomposition, bias = kind.node_layer(plan, depth, is_output, out)
        if width is None:
            training = plan.training
            layer = RelationalGraphConv.one_hot(
                plan.adjacency,
                out,
                decomposition=decomposition,
                training=None if training is None else (training.layers[0], training.inputs),
                bias=bias,
                init=init,
                generator=plan.generator,
            )
        else:
            layer = RelationalGraphConv(
                width,
                out,
                plan.graph.num_relations,
                decomposition=decomposition,
                inverse=config.inverse,
                self_loops=config.self_loops,
                bias=bias,
                init=init,
                generator=plan.generator,
            )
        layers.append(layer)
        width = out
    assert width is not None
    return RelationalEncoder(
        source, layers, config.dropout, head.build(width, plan.num_classes, config.options, plan.generator)
    )
