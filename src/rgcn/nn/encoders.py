"""Encoders: what each one offers, and ours (none, rgcn, e-rgcn, c-rgcn), recipes for the one stack of convolutions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from rgcn.adjacency import ReceptiveField
from rgcn.config import LinkModelConfig, NodeModelConfig
from rgcn.config.fields import Description, HasOptions, introduced
from rgcn.data.files import said
from rgcn.errors import ConfigError
from rgcn.nn.decompositions import Decomposition, Diagonal
from rgcn.nn.initialization import Initializer
from rgcn.nn.link_network import LinkNetwork, LinkPlan, VectorNetwork
from rgcn.nn.relational_encoder import Layer, NodeNetwork, NodePlan, Over, RelationalEncoder, link_stack, stacked
from rgcn.nn.relational_graph_conv import RelationalGraphConv
from rgcn.nn.row_tables import EmbeddingInput, FeatureInput, Source
from rgcn.plugins import DECODERS, DECOMPOSITIONS, HEADS, MESSAGE_FUNCTIONS
from rgcn.system.formatting import count


class Encoder(HasOptions):
    """A member of the axis `encoder`: builds the network of a task, with fresh weights.

    For links it is free to give every node a vector (`VectorEncoder`) or to compute each question anew: it answers with
    any `LinkNetwork`.

    hears  whether messages are passed at all; else no operator of the graph's edges is made
    """

    hears = True

    @classmethod
    def for_links(cls, plan: LinkPlan) -> LinkNetwork:
        """A network that scores triples."""
        raise ConfigError(f"the encoder {plan.model.encoder} predicts no links: choose none, rgcn or c-rgcn")

    @classmethod
    def for_nodes(cls, plan: NodePlan) -> NodeNetwork:
        """A network that gives nodes a number for each class."""
        raise ConfigError(
            f"the encoder {plan.model.encoder} classifies no nodes by itself: choose rgcn or e-rgcn, or ask a link "
            "model among the classes (task: classification-by-links)"
        )

    @classmethod
    def describe_links(cls, model: LinkModelConfig) -> Description:
        """What a report says of a network `for_links`."""
        return Description({"Architecture": introduced(cls)})

    @classmethod
    def describe_nodes(cls, model: NodeModelConfig, features: bool) -> Description:
        """What a report says of a network `for_nodes`; features: whether the graph's nodes have any."""
        return Description({"Architecture": introduced(cls)})

    @classmethod
    def published_parameters(cls, model: NodeModelConfig, inputs: int, relations: int, classes: int) -> int | None:
        """Numbers in the network where W_r of the first layer has a row for every node, as published code holds it.

        inputs, relations, classes are counts: inputs of the nodes, or of their features where these are given. None:
        nobody published one
        """
        return None

    @classmethod
    def kernels(cls, decomposition: str) -> list[str]:
        """The kernels that training it to classify nodes will call first, to be compiled ahead; none: as they come."""
        return []


class VectorEncoder(Encoder, ABC):
    """An encoder of links that gives every node a vector, for a decoder to score triples of."""

    @classmethod
    @abstractmethod
    def vectors(cls, plan: LinkPlan) -> RelationalEncoder:
        """The module that computes the vectors, with fresh weights."""

    @classmethod
    def for_links(cls, plan: LinkPlan) -> LinkNetwork:
        encoder = cls.vectors(plan)
        decoder = DECODERS.find(plan.model.decoder).build(plan, encoder.width)
        return VectorNetwork(encoder, decoder, plan.placement)

    @classmethod
    def describe_links(cls, model: LinkModelConfig) -> Description:
        encoding, decoder = cls.describe_vectors(model), DECODERS.find(model.decoder)
        architecture = f"{encoding['Architecture']}; scored by {introduced(decoder)}"
        return Description({**encoding, "Architecture": architecture}, decoder.limits(model))

    @classmethod
    def describe_vectors(cls, model: LinkModelConfig) -> dict[str, str]:
        """The encoder alone, by heading."""
        return {"Architecture": introduced(cls)}


class PlainEncoder(VectorEncoder):
    """No encoder: every node has a vector, E, and no message is passed. With DistMult on top this is DistMult."""

    hears = False

    @classmethod
    def vectors(cls, plan: LinkPlan) -> RelationalEncoder:
        return RelationalEncoder(embeddings(plan), [])

    @classmethod
    def describe_vectors(cls, model: LinkModelConfig) -> dict[str, str]:
        return {
            "Architecture": f"{model.title}: node embeddings of width {model.embedding}, without message passing",
            "Messages": "none",
        }


class RgcnEncoder(VectorEncoder):
    """RGCN: relational convolutions with ReLU between them, over whatever the nodes bring.

    For links: embeddings (or one-hot nodes), then convolutions; no activation after the last.

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

    @classmethod
    def for_nodes(cls, plan: NodePlan) -> NodeNetwork:
        model, source, layers = plan.model, cls.inputs(plan), cls.node_layers(plan.model, plan.num_classes)
        init = Initializer(model.init, model.gain, model.fans)
        width = None if source is None else source.width
        built = stacked(plan, width, layers, init, reach=plan.training)
        head = HEADS.find(model.head).build(layers[-1].out, plan.num_classes, model.options, plan.generator)
        return NodeNetwork(source, built, model.dropout, head)

    @classmethod
    def inputs(cls, plan: NodePlan) -> Source:
        """What gives nodes their input vectors; None for one-hot nodes."""
        config, features = plan.model, plan.graph.features
        if config.input == "one-hot" or (config.input == "auto" and features is None):
            return None
        if features is None:
            raise ConfigError(
                f"model.input is 'features', but the graph has none: read it with {said('features', 'FILE')}"
            )
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
        kind: type[Decomposition] = DECOMPOSITIONS.find(model.decomposition)
        layers = [Layer(width, kind.build(model, width), model.bias) for width in below]
        return [*layers, Layer(out, kind.build(model, out, is_output=not head.activated), model.bias)]

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
        given = model.input == "features" or (model.input == "auto" and features)
        nodes = "the nodes' features" if given else "one-hot nodes"
        return f"{count(model.layers, 'relational convolution')} of hidden width {model.hidden} over {nodes}"

    @classmethod
    def published_parameters(cls, model: NodeModelConfig, inputs: int, relations: int, classes: int) -> int:
        """AIFB: 91 · 8285 · 16 + 16 + 91 · 16 · 4 + 4

        >>> from rgcn.config import NodeModelConfig
        >>> RgcnEncoder.published_parameters(NodeModelConfig(), 8285, 45, 4)
        12068804
        """
        kinds, total, width = relations * (1 + model.inverse) + model.self_loops, 0, inputs
        for layer in cls.node_layers(model, classes):
            total += layer.published(width, kinds, model.self_loops)
            width = layer.out
        return total if model.head == "convolution" else total + (width + 1) * classes

    @classmethod
    def kernels(cls, decomposition: str) -> list[str]:
        return ["gather_sum", *DECOMPOSITIONS.find(decomposition).kernels]


class EmbeddingEncoder(RgcnEncoder):
    """e-RGCN: learned embeddings, a first convolution that only scales them, then full ones.

    For nodes only; about a tenth of RGCN's parameters.
    """

    for_links = Encoder.for_links

    @classmethod
    def inputs(cls, plan: NodePlan) -> EmbeddingInput:
        config, count = plan.model, plan.graph.num_nodes
        reached: Tensor | None = None
        if plan.training is not None:
            reached = torch.zeros(count, dtype=torch.bool)
            reached[plan.training.inputs.cpu()] = True
        # E [nodes, width] as torch.nn.init reads a matrix: the fan in is its width.
        init = Initializer(config.embedding_init, config.embedding_gain, fans=(config.embedding, count))
        partition = plan.placement.partition
        return EmbeddingInput(count, config.embedding, init, plan.generator, reached, partition=partition)

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
    def published_parameters(cls, model: NodeModelConfig, inputs: int, relations: int, classes: int) -> int:
        """
        >>> from rgcn.config import NodeModelConfig
        >>> model = NodeModelConfig(encoder="e-rgcn")  # AIFB: 8285 · 32 + 91 · 32 + 91 · 32 · 4 + 4
        >>> EmbeddingEncoder.published_parameters(model, 8285, 45, 4)
        279684
        """
        above = super().published_parameters(model, model.embedding, relations, classes)
        return inputs * model.embedding + above

    @classmethod
    def kernels(cls, decomposition: str) -> list[str]:
        above = super().kernels(decomposition)
        return ["gather_product_sum", *(kernel for kernel in above if kernel != "adam_bases")]


class CompressionEncoder(VectorEncoder):
    """c-RGCN, for links only: messages pass through a bottleneck, and the embedding goes around it."""

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
        inputs, nodes = (over.inputs, over.outputs) if isinstance(over, ReceptiveField) else (None, None)
        x = self.source(inputs) @ self.down + self.down_bias
        return self.source(nodes) + self.convolved(x, over)[-1] @ self.up  # type: ignore[no-any-return]

    def without_own(self, vectors: Tensor, nodes: Tensor) -> Tensor:
        # E goes around the bottleneck: without any message it is all there still.
        return vectors - self.source(nodes)  # type: ignore[no-any-return]


def embeddings(plan: LinkPlan, activated: bool = False) -> EmbeddingInput:
    model = plan.model
    init = Initializer(model.init, model.gain)
    on_disk = plan.training.tables == "disk"
    if on_disk and plan.adjacency.device.type != "cpu":
        raise ConfigError("tables: disk is for a CPU: set training.device to cpu, or training.tables to memory")
    size = plan.num_nodes, model.embedding
    return EmbeddingInput(*size, init, plan.generator, None, activated, on_disk, plan.placement.partition)


def convolutions_in_words(model: NodeModelConfig | LinkModelConfig) -> dict[str, str]:
    """How a relation's weight matrix is written; which way messages pass, and how they are added up."""
    ways = "along triples and against them" if model.inverse else "along triples only"
    loops = ", and each node hears itself" if model.self_loops else ""
    shared = {
        "relation": "averaged over the neighbors of each relation",
        "node": "averaged over all neighbors",
        "direction": "averaged over the neighbors of each direction",
        "none": "not normalized",
    }[model.normalization]
    messages = f"{ways}{loops}; {shared}, then the {model.aggregation} over relations"
    if model.message_function != "linear":
        messages = f"{introduced(MESSAGE_FUNCTIONS.find(model.message_function))}: {messages}"
    return {"Weight matrices": DECOMPOSITIONS.find(model.decomposition).words(model), "Messages": messages}
