"""How the states of nodes become a number for each class: heads, and the network of node classification."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import Self

from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.config import NodeModelConfig
from rgcn.config.fields import HasOptions, introduced
from rgcn.graph import KnowledgeGraph
from rgcn.nn.inputs import Source
from rgcn.nn.relational_encoder import Over, RelationalEncoder
from rgcn.nn.relational_graph_conv import RelationalGraphConv
from rgcn.placement import LOCAL, Placement


class Head(nn.Module, HasOptions, ABC):
    """From the last states [n, width] to logits [n, classes]: a member of the axis `head`.

    activated  whether it wants states through ReLU
    """

    activated = True

    @staticmethod
    def width(hidden: int, num_classes: int) -> int:
        """The width it wants the last convolution to have."""
        return hidden

    @classmethod
    def build(cls, hidden: int, num_classes: int, options: Mapping[str, Any], generator: torch.Generator) -> Self:
        """A head with fresh weights; options: `model.options`, of which `read_options` takes the head's own."""
        return cls(hidden, num_classes, generator)

    @abstractmethod
    def forward(self, states: Tensor) -> Tensor: ...

    @classmethod
    def words(cls) -> str:
        """What a report says of it, behind the layers."""
        return f"; then {introduced(cls)}"


class ConvolutionHead(Head):
    """None of its own: the last convolution gives a number for each class, as published."""

    activated = False

    def __init__(self, *_: Any) -> None:
        super().__init__()

    @staticmethod
    def width(hidden: int, num_classes: int) -> int:
        return num_classes

    def forward(self, states: Tensor) -> Tensor:
        return states

    @classmethod
    def words(cls) -> str:
        return ""


class LinearHead(Head):
    """logits = H W + b, W begins Glorot-uniform."""

    def __init__(self, hidden: int, num_classes: int, generator: torch.Generator) -> None:
        super().__init__()
        weight = torch.empty(num_classes, hidden)
        self.weight = nn.Parameter(nn.init.xavier_uniform_(weight, generator=generator))
        self.bias = nn.Parameter(torch.zeros(num_classes))

    def forward(self, states: Tensor) -> Tensor:
        return nn.functional.linear(states, self.weight, self.bias)


@dataclass(frozen=True)
class NodePlan:
    """What a network of node classification is built for.

    model      its settings
    graph      with labels; its classes are what the network tells apart
    adjacency  the operator of the graph
    training   what the loss can reach. Rows outside it are kept out of the parameters; None where something decays
               them, so that all must be parameters
    generator  where initial weights come from
    placement  which nodes are local: the operator has their rows
    """

    model: NodeModelConfig
    graph: KnowledgeGraph
    adjacency: RelationalAdjacency
    training: ReceptiveField | None
    generator: torch.Generator
    placement: Placement = LOCAL

    @property
    def num_classes(self) -> int:
        assert self.graph.labels is not None
        return self.graph.labels.num_classes


class NodeNetwork(RelationalEncoder):
    """An encoder with a head: over a field or a graph → [nodes, classes].

    The last convolution is not activated where it speaks for the classes itself; before any other head it is.
    """

    def __init__(self, source: Source, layers: Sequence[RelationalGraphConv], dropout: float, head: Head) -> None:
        super().__init__(source, layers, dropout, activated=head.activated)
        self.head = head

    def forward(self, over: Over) -> Tensor:
        return self.head(super().forward(over))  # type: ignore[no-any-return]
