"""Message functions: what passes along the edges of a convolution. The interface, and the linear one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from typing_extensions import Self

from rgcn.adjacency import RelationalAdjacency
from rgcn.config.fields import HasOptions

# convolve(X, A) = Σ_r A_r X W_r: [sources, in] → [targets, out], with gradients for X, the weights of A, and the W_r.
Convolve = Callable[[Tensor, RelationalAdjacency], Tensor]


class MessageShape(NamedTuple):
    """Widths of a convolution's input and output; num_relations: inverses and the self-loop included."""

    in_features: int
    out_features: int
    num_relations: int


class MessageFunction(nn.Module, HasOptions, ABC):
    """Computes the messages of a convolution and their sums: H = forward(X, A, convolve) + b. A registered component.

    A function that only weighs edges, for example by both of their ends, calls `convolve` with other edge weights. It
    then works with every decomposition, and the sums stay sparse products:

        edges = adjacency.structure                                 # `source`, `target`, `relation`: integers [edges]
        source = x[edges.source]                                    # [edges, in]
        target = x[edges.own_sources][edges.target]                 # [edges, in]
        score = ...                                                 # [edges]
        return convolve(x, adjacency.weighed_by(torch.exp(score)))  # weights are normalized again

    With `normalization: node` this is a softmax over all edges into a node, with `normalization: relation` a softmax
    over its edges of each relation. `tests/strangers/test_stranger_message_function.py` is a complete example.
    """

    @classmethod
    def build(cls, shape: MessageShape, options: Mapping[str, Any], generator: torch.Generator) -> Self:
        """Make the function of one convolution, with initial weights.

        Args:
            shape: The convolution's widths and number of relations.
            options: `model.convolution_options`; `read_options` takes those that the class declares.
            generator: Source of the initial weights.
        """
        return cls()

    @abstractmethod
    def forward(self, x: Tensor, adjacency: RelationalAdjacency, convolve: Convolve) -> Tensor:
        """Compute the sums of messages.

        Args:
            x: A vector for each source, [sources, in].
            adjacency: The weighted edges, an operator [targets, sources] for each relation.
            convolve: The linear convolution with the layer's matrices.

        Returns:
            A vector for each target, [targets, out].
        """


class LinearMessages(MessageFunction):
    """The source's vector times its relation's matrix, weighed by A_r[target, source]: as published."""

    def forward(self, x: Tensor, adjacency: RelationalAdjacency, convolve: Convolve) -> Tensor:
        return convolve(x, adjacency)
