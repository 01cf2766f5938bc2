"""Decoders that score by the distance between a query and a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from typing_extensions import Self

from rgcn.errors import ConfigError
from rgcn.nn.decoders.bilinear import QueryDecoder, relation_initializer
from rgcn.nn.initialization import Initializer

if TYPE_CHECKING:
    from rgcn.nn.link_network import LinkPlan

MIN_SQUARED_DISTANCE = 1e-12  # below it, the square root would have no useful gradient


class DistanceDecoder(QueryDecoder):
    """A decoder by Euclidean distance: f(s, r, o) = γ - ‖q(s, r) - o‖ = γ - ‖p(r, o) - s‖.

    Since ‖q - o‖² = ‖q‖² + ‖o‖² - 2 ⟨q, o⟩, all nodes are scored by one matrix product: `prepare` appends ‖o‖² to a
    node's vector as a column.

    Args:
        num_relations: Number of relations, without reciprocal ones.
        dim: Dimension of a node vector.
        margin: γ, the score at distance zero. It has no effect on ranks, nor on a softmax over nodes.
        init: How the relation vectors are initialized; None for the decoder's default.
        generator: Source of the initial weights; None for PyTorch's default.
        reciprocal: Whether to give each relation a second vector for questions about subjects.
    """

    def __init__(
        self,
        num_relations: int,
        dim: int,
        margin: float = 9.0,
        init: Initializer | None = None,
        generator: torch.Generator | None = None,
        reciprocal: bool = False,
    ) -> None:
        """Draw the initial parameters of the relations."""
        super().__init__(num_relations, dim, init, generator, reciprocal)
        self.margin = margin

    @classmethod
    def build(cls, plan: LinkPlan, dim: int) -> Self:
        """Create a decoder with `model.margin`."""
        model = plan.model
        if model.decoder_biases:
            raise ConfigError(f"{cls.__name__} compares distances and has no biases: set model.decoder_biases to false")
        init = relation_initializer(plan)
        return cls(plan.num_relations, dim, model.margin, init, plan.generator, model.reciprocal)

    def prepare(self, nodes: Tensor, node_ids: Tensor | None = None) -> Tensor:
        """Append ‖v‖² to each vector v as a column."""
        return torch.cat([nodes, nodes.square().sum(1, keepdim=True)], dim=1)

    def extend_query(self, query: Tensor, node: Tensor, relation: Tensor, as_subject: bool) -> tuple[Tensor, Tensor]:
        """Return (2 q, -1) and -‖q‖², whose product with a prepared vector (o, ‖o‖²) is -‖q - o‖²."""
        longer = torch.cat([2 * query, query.new_full((len(query), 1), -1.0)], dim=1)
        return longer, -query.square().sum(1)

    def finish(self, product: Tensor) -> Tensor:
        """Return γ - √-x from x = -‖q - o‖²."""
        return self.margin - (-product).clamp(min=MIN_SQUARED_DISTANCE).sqrt()
