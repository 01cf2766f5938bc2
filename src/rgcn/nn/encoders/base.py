"""What every encoder offers: the networks it can be the body of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from rgcn.axis_tables import DECODERS
from rgcn.errors import ConfigError
from rgcn.nn.description import Description, introduced
from rgcn.nn.link_network import LinkNetwork, LinkPlan, VectorNetwork
from rgcn.nn.node_network import NodeNetwork, NodePlan
from rgcn.nn.relational_encoder import RelationalEncoder

if TYPE_CHECKING:
    from rgcn.config import LinkModelConfig, NodeModelConfig


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


class VectorEncoder(Encoder, ABC):
    """An encoder of links that gives every node a vector, for a decoder to score triples of."""

    @classmethod
    @abstractmethod
    def vectors(cls, plan: LinkPlan) -> RelationalEncoder:
        """The module that computes the vectors, with fresh weights."""

    @classmethod
    def for_links(cls, plan: LinkPlan) -> LinkNetwork:
        encoder = cls.vectors(plan)
        return VectorNetwork(encoder, DECODERS.find(plan.model.decoder).build(plan, encoder.width))

    @classmethod
    def describe_links(cls, model: LinkModelConfig) -> Description:
        encoding, decoder = cls.describe_vectors(model), DECODERS.find(model.decoder)
        architecture = f"{encoding['Architecture']}; scored by {introduced(decoder)}"
        return Description({**encoding, "Architecture": architecture}, decoder.limits(model))

    @classmethod
    def describe_vectors(cls, model: LinkModelConfig) -> dict[str, str]:
        """The encoder alone, by heading."""
        return {"Architecture": introduced(cls)}
