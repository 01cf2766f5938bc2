"""Encoders: the interface, and the built-in none, rgcn, e-rgcn and c-rgcn, which differ in how they stack convolutions.

Encoders that run a computation for each question are in `path_network` and `universal_network`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rgcn.adjacency import ReceptiveField
from rgcn.config import LinkModelConfig, NodeModelConfig
from rgcn.config.fields import Description, HasOptions, component_title
from rgcn.data.files import option_hint
from rgcn.errors import ConfigError
from rgcn.nn.decompositions import Decomposition, Diagonal
from rgcn.nn.initialization import Initializer
from rgcn.nn.link_network import LinkNetwork, LinkPlan, VectorNetwork
from rgcn.nn.relational_encoder import EncoderInput, NodeNetwork, NodePlan, RelationalEncoder
from rgcn.nn.relational_graph_conv import MessageFunction, MessageShape, RelationalGraphConv
from rgcn.nn.row_tables import NodeEmbedding, NodeFeatures, NodeInput
from rgcn.plugins import DECODERS, DECOMPOSITIONS, HEADS, MESSAGE_FUNCTIONS
from rgcn.system.formatting import format_count


class Encoder(HasOptions):
    """A component that builds the network of a task, with initial weights.

    Register an encoder in `rgcn.plugins.ENCODERS`, or pass the class or its dotted name as `model.encoder`. For link
    prediction it may give every node a vector (`VectorEncoder`) or return any other `LinkNetwork`.

    Attributes:
        has_messages: Whether the network passes messages. If not, no operator of the graph's edges is built.
    """

    has_messages = True

    @classmethod
    def build_link_network(cls, plan: LinkPlan) -> LinkNetwork:
        """Build a network that scores triples."""
        raise ConfigError(f"the encoder {plan.model.encoder} cannot predict links: use none, rgcn or c-rgcn")

    @classmethod
    def build_node_network(cls, plan: NodePlan) -> NodeNetwork:
        """Build a network that computes logits of classes for nodes."""
        raise ConfigError(
            f"the encoder {plan.model.encoder} cannot classify nodes by itself: use rgcn or e-rgcn, or predict the "
            "class by links (task: classification-by-links)"
        )

    @classmethod
    def describe_links(cls, model: LinkModelConfig) -> Description:
        """Describe the link network for reports."""
        return Description({"Architecture": component_title(cls)})

    @classmethod
    def describe_nodes(cls, model: NodeModelConfig, features: bool) -> Description:
        """Describe the node network for reports; `features` says whether the graph has node features."""
        return Description({"Architecture": component_title(cls)})

    @classmethod
    def num_published_parameters(cls, model: NodeModelConfig, inputs: int, relations: int, classes: int) -> int | None:
        """Count the node network's parameters if the first layer had a row for every node, as in published code.

        Args:
            model: The model's configuration.
            inputs: Number of nodes, or of features if nodes have them.
            relations: Number of relations.
            classes: Number of classes.

        Returns:
            The number of parameters; None for encoders without a published number.
        """
        return None

    @classmethod
    def kernels(cls, decomposition: str) -> list[str]:
        """Return the names of kernels to compile before training; others are compiled on their first call."""
        return []


class VectorEncoder(Encoder, ABC):
    """An encoder for link prediction that computes a vector for every node, for a decoder to score triples."""

    @classmethod
    @abstractmethod
    def build_encoder(cls, plan: LinkPlan) -> RelationalEncoder:
        """Build the module that computes node vectors, with initial weights."""

    @classmethod
    def build_link_network(cls, plan: LinkPlan) -> LinkNetwork:
        """Build the encoder and the configured decoder."""
        encoder = cls.build_encoder(plan)
        decoder = DECODERS.resolve(plan.model.decoder).build(plan, encoder.dim)
        return VectorNetwork(encoder, decoder, plan.placement)

    @classmethod
    def describe_links(cls, model: LinkModelConfig) -> Description:
        """Describe encoder and decoder."""
        parts, decoder = cls.describe_encoder(model), DECODERS.resolve(model.decoder)
        architecture = f"{parts['Architecture']}; scored by {component_title(decoder)}"
        return Description({**parts, "Architecture": architecture}, decoder.limits(model))

    @classmethod
    def describe_encoder(cls, model: LinkModelConfig) -> dict[str, str]:
        """Describe the encoder alone, by heading."""
        return {"Architecture": component_title(cls)}


class LookupEncoder(VectorEncoder):
    """`none`: node embeddings without message passing. With the DistMult decoder this is the model DistMult."""

    has_messages = False

    @classmethod
    def build_encoder(cls, plan: LinkPlan) -> RelationalEncoder:
        """Build embeddings without layers."""
        return RelationalEncoder(build_embedding(plan), [])

    @classmethod
    def describe_encoder(cls, model: LinkModelConfig) -> dict[str, str]:
        """Describe the encoder alone, by heading."""
        return {
            "Architecture": f"{model.title}: node embeddings of dimension {model.embedding}, without message passing",
            "Messages": "none",
        }


class RGCNEncoder(VectorEncoder):
    """`rgcn`: relational convolutions with ReLU between them.

    For links: node embeddings or one-hot nodes, then convolutions, without an activation after the last.

    For nodes: one-hot nodes or node features, then convolutions, then a head.
    """

    @classmethod
    def build_encoder(cls, plan: LinkPlan) -> RelationalEncoder:
        """Build embeddings, unless nodes are one-hot, and convolutions of the same dimension."""
        model, one_hot = plan.model, plan.model.input == "one-hot"
        source = None if one_hot else build_embedding(plan, model.activated_input)
        return RelationalEncoder(source, build_link_layers(plan, model.embedding, one_hot))

    @classmethod
    def describe_encoder(cls, model: LinkModelConfig) -> dict[str, str]:
        """Describe the encoder alone, by heading."""
        nodes = "one-hot nodes" if model.input == "one-hot" else f"node embeddings of dimension {model.embedding}"
        layers = format_count(model.layers, "relational convolution")
        return {"Architecture": f"{model.title}: {layers} over {nodes}", **_describe_convolutions(model)}

    @classmethod
    def build_node_network(cls, plan: NodePlan) -> NodeNetwork:
        """Build the node input, the convolutions and the configured head."""
        model, source, specs = plan.model, cls.build_input(plan), cls.layer_specs(plan.model, plan.num_classes)
        init, dim = Initializer(model.init, model.gain, model.fans), None if source is None else source.dim
        layers = build_layers(plan, dim, specs, init)
        head = HEADS.resolve(model.head).build(specs[-1].dim, plan.num_classes, model.options, plan.generator)
        return NodeNetwork(source, layers, model.dropout, head)

    @classmethod
    def build_input(cls, plan: NodePlan) -> NodeInput:
        """Build the input of the first layer of a node network; None for one-hot nodes."""
        config, features = plan.model, plan.graph.features
        if config.input == "one-hot" or (config.input == "auto" and features is None):
            return None
        if features is None:
            raise ConfigError(
                f"model.input is 'features', but the graph has none: read it with {option_hint('features', 'FILE')}"
            )
        return NodeFeatures(torch.from_numpy(np.array(features)))

    @classmethod
    def layer_dims(cls, model: NodeModelConfig) -> list[int]:
        """Return the output dimension of each convolution; the head may change the last one."""
        return [model.hidden] * model.layers

    @classmethod
    def layer_specs(cls, model: NodeModelConfig, num_classes: int) -> list[LayerSpec]:
        """Return the convolutions of a node network."""
        head = HEADS.resolve(model.head)
        *inner, last = cls.layer_dims(model)
        out = head.input_dim(last, num_classes)
        kind: type[Decomposition] = DECOMPOSITIONS.resolve(model.decomposition)
        specs = [LayerSpec(dim, kind.build(model, dim), model.bias) for dim in inner]
        return [*specs, LayerSpec(out, kind.build(model, out, is_output=not head.needs_activation), model.bias)]

    @classmethod
    def describe_nodes(cls, model: NodeModelConfig, features: bool) -> Description:
        """Describe the node network for reports.

        >>> from rgcn.config import NodeModelConfig
        >>> RGCNEncoder.describe_nodes(NodeModelConfig(), False).parts["Architecture"]
        'rgcn: 2 relational convolutions of hidden dimension 16 over one-hot nodes'
        """
        architecture = f"{model.title}: {cls.describe_layers(model, features)}{HEADS.resolve(model.head).description()}"
        return Description({"Architecture": architecture, **_describe_convolutions(model)})

    @classmethod
    def describe_layers(cls, model: NodeModelConfig, features: bool) -> str:
        """Describe the convolutions of a node network and their input."""
        uses_features = model.input == "features" or (model.input == "auto" and features)
        nodes = "the nodes' features" if uses_features else "one-hot nodes"
        return f"{format_count(model.layers, 'relational convolution')} of hidden dimension {model.hidden} over {nodes}"

    @classmethod
    def num_published_parameters(cls, model: NodeModelConfig, inputs: int, relations: int, classes: int) -> int:
        """Count the parameters as the paper does; for AIFB 91 · 8285 · 16 + 16 + 91 · 16 · 4 + 4.

        >>> from rgcn.config import NodeModelConfig
        >>> RGCNEncoder.num_published_parameters(NodeModelConfig(), 8285, 45, 4)
        12068804
        """
        edge_relations, total, dim = relations * (1 + model.inverse) + model.self_loops, 0, inputs
        for spec in cls.layer_specs(model, classes):
            total += spec.num_published_parameters(dim, edge_relations, model.self_loops)
            dim = spec.dim
        return total if model.head == "convolution" else total + (dim + 1) * classes

    @classmethod
    def kernels(cls, decomposition: str) -> list[str]:
        """Return the kernels of the convolutions."""
        return ["gather_sum", *DECOMPOSITIONS.resolve(decomposition).kernels]


class ERGCNEncoder(RGCNEncoder):
    """`e-rgcn`, for nodes only: node embeddings, a first convolution with diagonal matrices, then full ones.

    It has about a tenth of the parameters of `rgcn`.
    """

    build_link_network = Encoder.build_link_network

    @classmethod
    def build_input(cls, plan: NodePlan) -> NodeEmbedding:
        """Build node embeddings, of which only those in the receptive field of the training nodes are trained."""
        config, num_nodes = plan.model, plan.graph.num_nodes
        is_trained: Tensor | None = None
        if plan.training is not None:
            is_trained = torch.zeros(num_nodes, dtype=torch.bool)
            is_trained[plan.training.inputs.cpu()] = True
        # torch.nn.init takes the second dimension of E [num_nodes, dim] for the fan in.
        init = Initializer(config.embedding_init, config.embedding_gain, fans=(config.embedding, num_nodes))
        partition = plan.placement.partition
        return NodeEmbedding(num_nodes, config.embedding, init, plan.generator, is_trained, partition=partition)

    @classmethod
    def layer_dims(cls, model: NodeModelConfig) -> list[int]:
        """Return the embedding's dimension for the diagonal convolution, then the hidden dimension."""
        return [model.embedding] + [model.hidden] * (model.layers - 1)

    @classmethod
    def layer_specs(cls, model: NodeModelConfig, num_classes: int) -> list[LayerSpec]:
        """Return a diagonal convolution without bias, as in the paper and its code, then full ones."""
        specs = super().layer_specs(model, num_classes)
        # A single layer has to mix the dimensions.
        return specs if model.layers == 1 else [LayerSpec(model.embedding, Diagonal(), False), *specs[1:]]

    @classmethod
    def describe_layers(cls, model: NodeModelConfig, features: bool) -> str:
        """Describe the embeddings and the convolutions."""
        layers = format_count(model.layers, "relational convolution")
        first = ", the first one diagonal" if model.layers > 1 else ""
        return f"learned node embeddings of dimension {model.embedding}, then {layers}{first}"

    @classmethod
    def num_published_parameters(cls, model: NodeModelConfig, inputs: int, relations: int, classes: int) -> int:
        """Count the parameters as the paper does.

        >>> from rgcn.config import NodeModelConfig
        >>> model = NodeModelConfig(encoder="e-rgcn")  # AIFB: 8285 · 32 + 91 · 32 + 91 · 32 · 4 + 4
        >>> ERGCNEncoder.num_published_parameters(model, 8285, 45, 4)
        279684
        """
        layers = super().num_published_parameters(model, model.embedding, relations, classes)
        return inputs * model.embedding + layers

    @classmethod
    def kernels(cls, decomposition: str) -> list[str]:
        """Return the kernels of the convolutions; there are no one-hot rows whose bases Adam would update."""
        layers = super().kernels(decomposition)
        return ["gather_product_sum", *(kernel for kernel in layers if kernel != "adam_bases")]


class CRGCNEncoder(VectorEncoder):
    """`c-rgcn`, for links only: messages pass through a bottleneck, and the embedding bypasses it."""

    @classmethod
    def build_encoder(cls, plan: LinkPlan) -> BottleneckEncoder:
        """Build embeddings, projections and convolutions of the bottleneck's dimension."""
        source, layers = build_embedding(plan), build_link_layers(plan, plan.model.bottleneck)
        return BottleneckEncoder(source, layers, Initializer(plan.model.init, plan.model.gain), plan.generator)

    @classmethod
    def describe_encoder(cls, model: LinkModelConfig) -> dict[str, str]:
        """Describe the encoder alone, by heading."""
        architecture = (
            f"{model.title}: {format_count(model.layers, 'relational convolution')} through a bottleneck of dimension "
            f"{model.bottleneck}, which the embedding of dimension {model.embedding} bypasses"
        )
        return {"Architecture": architecture, **_describe_convolutions(model)}


class BottleneckEncoder(RelationalEncoder):
    """H = E + g(σ(… Σ_r A_r f(E) W_r …)): messages pass through a bottleneck, and the embedding E bypasses it.

    f projects E to the dimension of the bottleneck and adds a bias; g projects back. g has no bias: a constant added to
    every node's vector can be learned by E, and without it convolutions of zeros leave E exactly as it is.

    Args:
        source: The embedding E.
        layers: The convolutions, of the bottleneck's dimension.
        init: How f and g are initialized.
        generator: Source of the initial weights.
    """

    source: NodeEmbedding

    def __init__(
        self, source: NodeEmbedding, layers: list[RelationalGraphConv], init: Initializer, generator: torch.Generator
    ) -> None:
        """Draw the initial projections."""
        super().__init__(source, layers, activated=True)
        self.dim, bottleneck = source.dim, layers[0].in_features
        self.down = nn.Parameter(init.draw((self.dim, bottleneck), generator))
        self.down_bias = nn.Parameter(torch.zeros(bottleneck))
        self.up = nn.Parameter(init.draw((bottleneck, self.dim), generator))

    def forward(self, over: EncoderInput) -> Tensor:
        """Compute node vectors `[num_nodes, dim]`."""
        inputs, nodes = (over.inputs, over.outputs) if isinstance(over, ReceptiveField) else (None, None)
        x = self.source(inputs) @ self.down + self.down_bias
        return self.source(nodes) + self.convolve(x, over)[-1] @ self.up  # type: ignore[no-any-return]

    def remove_inputs(self, vectors: Tensor, nodes: Tensor) -> Tensor:
        """Subtract the embeddings, which the encoder adds to the sum of the messages."""
        return vectors - self.source(nodes)  # type: ignore[no-any-return]


class LayerSpec(NamedTuple):
    """A convolution to build: its output dimension, its decomposition, and whether it has a bias."""

    dim: int
    decomposition: Decomposition
    bias: bool

    def num_published_parameters(self, in_dim: int, num_relations: int, self_loops: bool) -> int:
        """Count the parameters as the paper does; num_relations includes inverses and the self-loop."""
        apart = int(self.decomposition.self_loop_apart and self_loops)
        decomposed = self.decomposition.num_parameters(num_relations - apart, in_dim, self.dim)
        return decomposed + apart * in_dim * self.dim + self.bias * self.dim


def build_layers(
    plan: LinkPlan | NodePlan, in_dim: int | None, specs: list[LayerSpec], init: Initializer, loop_dropout: float = 0.0
) -> list[RelationalGraphConv]:
    """Build a stack of convolutions with initial weights.

    Args:
        plan: The configuration, the adjacency and the random generator.
        in_dim: Dimension of the node input; None for one-hot nodes, of which only those in the receptive field of
            `NodePlan.training` are trained.
        specs: The convolutions.
        init: How weights are initialized.
        loop_dropout: Dropout rate of self-loop messages.
    """
    layers: list[RelationalGraphConv] = []
    field = plan.training if isinstance(plan, NodePlan) else None
    training = None if field is None else (field.layers[0], field.inputs)
    adjacency, edges, generator = plan.adjacency, plan.adjacency.structure, plan.generator
    messages: type[MessageFunction] = MESSAGE_FUNCTIONS.resolve(plan.model.message_function)
    for dim, decomposition, bias in specs:
        options: dict[str, Any] = {"decomposition": decomposition, "bias": bias, "init": init, "generator": generator}
        options["self_loop_dropout"] = loop_dropout
        shape = MessageShape(edges.num_sources if in_dim is None else in_dim, dim, edges.num_relations)
        options["message_function"] = messages.build(shape, plan.model.convolution_options, generator)
        if in_dim is None:
            layer = RelationalGraphConv.one_hot(adjacency, dim, training=training, **options)
        else:
            options |= {"inverse": edges.has_inverse, "self_loops": edges.has_self_loops}
            layer = RelationalGraphConv(in_dim, dim, edges.num_data_relations, **options)
        layers.append(layer)
        in_dim = dim
    return layers


def build_link_layers(plan: LinkPlan, dim: int, one_hot: bool = False) -> list[RelationalGraphConv]:
    """Build the convolutions of a link encoder, all of the same dimension."""
    model, training = plan.model, plan.training
    init = Initializer(model.init, model.gain)
    if model.fans == "published" and model.blocks is not None:
        init = Initializer(model.init, model.gain, fans=(plan.num_relations, dim // model.blocks))
    dropout = training.self_loop_dropout if training.self_loop_dropout_on == "message" else 0.0
    spec = LayerSpec(dim, DECOMPOSITIONS.resolve(model.decomposition).build(model, dim), model.bias)
    in_dim = None if one_hot else dim
    return build_layers(plan, in_dim, [spec] * model.layers, init, dropout)


def build_embedding(plan: LinkPlan, activated: bool = False) -> NodeEmbedding:
    """Build the node embeddings that the configuration describes; `activated` adds a bias and a ReLU."""
    model = plan.model
    init = Initializer(model.init, model.gain)
    if model.node_deviation is not None:
        init = Initializer("normal", model.node_deviation)
    on_disk = plan.training.tables == "disk"
    if on_disk and plan.adjacency.device.type != "cpu":
        raise ConfigError("tables: disk is for a CPU: set training.device to cpu, or training.tables to memory")
    size = plan.num_nodes, model.embedding
    return NodeEmbedding(*size, init, plan.generator, None, activated, on_disk, plan.placement.partition)


def _describe_convolutions(model: NodeModelConfig | LinkModelConfig) -> dict[str, str]:
    """Describe the decomposition, the direction of messages and their aggregation, by heading."""
    directions = "along triples and against them" if model.inverse else "along triples only"
    loops = ", with self-loops" if model.self_loops else ""
    normalization = {
        "relation": "averaged over the neighbors of each relation",
        "node": "averaged over all neighbors",
        "direction": "averaged over the neighbors of each direction",
        "none": "not normalized",
    }[model.normalization]
    messages = f"{directions}{loops}; {normalization}, then the {model.aggregation} over relations"
    if model.message_function != "linear":
        messages = f"{component_title(MESSAGE_FUNCTIONS.resolve(model.message_function))}: {messages}"
    return {"Weight matrices": DECOMPOSITIONS.resolve(model.decomposition).describe(model), "Messages": messages}
