"""The network of node classification: an encoder, and a head that turns its states into classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.nn.heads import Head
from rgcn.nn.inputs import EmbeddingInput, FeatureInput
from rgcn.nn.relational_encoder import Over, RelationalEncoder
from rgcn.nn.relational_graph_conv import RelationalGraphConv

if TYPE_CHECKING:
    from rgcn.config import NodeModelConfig
    from rgcn.graph import KnowledgeGraph


@dataclass(frozen=True)
class NodePlan:
    """What a network of node classification is built for.

    model      its settings
    graph      with labels; its classes are what the network tells apart
    adjacency  the operator of the graph
    training   what the loss can reach. Rows outside it are kept out of the parameters; None where something decays
               them, so that all must be parameters
    generator  where initial weights come from
    """

    model: NodeModelConfig
    graph: KnowledgeGraph
    adjacency: RelationalAdjacency
    training: ReceptiveField | None
    generator: torch.Generator

    @property
    def num_relations(self) -> int:
        return self.graph.num_relations

    @property
    def num_classes(self) -> int:
        assert self.graph.labels is not None
        return self.graph.labels.num_classes


class NodeNetwork(RelationalEncoder):
    """An encoder with a head: over a field or a graph → [nodes, classes].

    The last convolution is not activated where it speaks for the classes itself; before any other head it is.
    """

    def __init__(
        self,
        source: EmbeddingInput | FeatureInput | None,
        layers: Sequence[RelationalGraphConv],
        dropout: float,
        head: Head,
    ) -> None:
        super().__init__(source, layers, dropout, activated=head.activated)
        self.head = head

    def forward(self, over: Over) -> Tensor:
        return self.head(super().forward(over))  # type: ignore[no-any-return]
