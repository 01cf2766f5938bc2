"""What every encoder offers: the networks it can be the body of."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from torch import Tensor, nn
from typing_extensions import Self

from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.axis_tables import DECODERS
from rgcn.config.knobs import Description, introduced
from rgcn.errors import ConfigError
from rgcn.nn.inputs import EmbeddingInput

if TYPE_CHECKING:
    from rgcn.config import LinkModelConfig, NodeModelConfig
    from rgcn.nn.link_network import LinkNetwork, LinkPlan
    from rgcn.nn.node_network import NodePlan, RelationalEncoder


class Encoder:
    """A member of the axis `encoder`: builds the network of a task, with fresh weights.

    For links it is free to give every node a vector (`VectorEncoder`) or to compute each question anew: it answers with
    any `LinkNetwork`.
    """

    @classmethod
    def for_links(cls, plan: LinkPlan) -> LinkNetwork:
        """A network that scores triples."""
        raise ConfigError(f"the encoder {plan.model.encoder} predicts no links: choose none, rgcn or c-rgcn")

    @classmethod
    def for_nodes(cls, plan: NodePlan) -> RelationalEncoder:
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
    def published_parameters(
        cls, config: NodeModelConfig, num_inputs: int, num_relations: int, num_classes: int
    ) -> int | None:
        """Numbers in the network where W_r of the first layer has a row for every node, as published code holds it.

        num_inputs  the number of nodes, or of their features where these are given. None: nobody published one
        """
        return None

    @classmethod
    def kernels(cls, decomposition: str) -> list[str]:
        """The kernels that training it to classify nodes will call first, to be compiled ahead; none: as they come."""
        return []


class VectorEncoder(Encoder, nn.Module):
    """An encoder of links that gives every node a vector: forward(operator of the edges to hear) → [N, width].

    source      what nodes bring of their own; None for one-hot nodes
    width       numbers a node
    num_layers  convolutions
    one_hot     whether the first layer looks rows up by node
    """

    source: EmbeddingInput | None
    width: int
    num_layers: int
    one_hot: bool = False

    @classmethod
    @abstractmethod
    def build(cls, plan: LinkPlan) -> Self:
        """An encoder with fresh weights."""

    @abstractmethod
    def forward(self, adjacency: RelationalAdjacency | None) -> Tensor:
        """[N, width]: every node's vector."""

    @abstractmethod
    def at(self, field: ReceptiveField, nodes: Tensor) -> Tensor:
        """[nodes, width]: the same vectors, of the nodes whose receptive field this is alone."""

    def without_own(self, vectors: Tensor, nodes: Tensor) -> Tensor:
        """Vectors [n, width] computed without any message, less what the nodes still bring around the messages."""
        return vectors

    @classmethod
    def for_links(cls, plan: LinkPlan) -> LinkNetwork:
        from rgcn.nn.link_network import VectorNetwork

        encoder = cls.build(plan)
        decoder = DECODERS.find(plan.model.decoder)
        return VectorNetwork(encoder, decoder.build(plan, encoder.width))

    @classmethod
    def describe_links(cls, model: LinkModelConfig) -> Description:
        encoding, decoder = cls.describe_vectors(model), DECODERS.find(model.decoder)
        architecture = f"{encoding['Architecture']}; scored by {introduced(decoder)}"
        return Description({**encoding, "Architecture": architecture}, decoder.limits(model))

    @classmethod
    def describe_vectors(cls, model: LinkModelConfig) -> dict[str, str]:
        """The encoder alone, by heading."""
        return {"Architecture": introduced(cls)}
