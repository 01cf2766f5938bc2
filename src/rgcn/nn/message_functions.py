"""What an edge of a convolution says: the interface of message functions, and the linear one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from typing_extensions import Self

from rgcn.adjacency import RelationalAdjacency
from rgcn.config import LinkModelConfig, NodeModelConfig
from rgcn.config.fields import HasOptions
from rgcn.plugins import MESSAGE_FUNCTIONS

Convolve = Callable[[Tensor, RelationalAdjacency], Tensor]


class MessageShape(NamedTuple):
    """Widths of a convolution's input and output; num_relations: inverses and the self-loop included."""

    in_features: int
    out_features: int
    num_relations: int


class MessageFunction(nn.Module, HasOptions, ABC):
    """The messages that pass along the edges of one convolution, and their sums: a registered component.

    A convolution computes H = forward(X, A, convolve) + b, where convolve(X, A) = Σ_r A_r X W_r uses the matrices of
    its decomposition and is differentiable in X and in the weights of A. A function that only weighs edges, by both of
    their ends for example, convolves with other weights and needs to know nothing of decompositions:

        edges = adjacency.structure
        target, source = x[edges.own_sources][edges.target], x[edges.source]      # both ends of each edge
        strength = ...                                                            # [edges], positive
        return convolve(x, adjacency.weighed_by(strength))                        # normalized again

    With strength = exp(score), `normalization: node` makes that a softmax over all edges into a node, and
    `normalization: relation` one over its edges of each relation.
    """

    @classmethod
    def build(cls, shape: MessageShape, options: Mapping[str, Any], generator: torch.Generator) -> Self:
        """A function with fresh weights; options: `model.convolution_options`, for `read_options`."""
        return cls()

    @abstractmethod
    def forward(self, x: Tensor, adjacency: RelationalAdjacency, convolve: Convolve) -> Tensor:
        """x [sources, in_features], an adjacency [targets, sources] → [targets, out_features]."""


class LinearMessages(MessageFunction):
    """The source's vector times its relation's matrix, weighed by A_r[target, source]: as published."""

    def forward(self, x: Tensor, adjacency: RelationalAdjacency, convolve: Convolve) -> Tensor:
        return convolve(x, adjacency)


def message_functions(
    model: NodeModelConfig | LinkModelConfig, generator: torch.Generator
) -> Callable[[MessageShape], MessageFunction]:
    """What makes the message function of each convolution, as a model's settings ask for it."""
    kind: type[MessageFunction] = MESSAGE_FUNCTIONS.find(model.message_function)
    return lambda shape: kind.build(shape, model.convolution_options, generator)
