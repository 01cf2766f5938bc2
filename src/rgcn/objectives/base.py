"""What every objective offers: a batch goes in, a loss comes out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from typing_extensions import Self

from rgcn.adjacency import RelationalAdjacency
from rgcn.nn.link_network import LinkNetwork

if TYPE_CHECKING:
    from rgcn.config import LinkTrainingConfig


@dataclass(frozen=True)
class ObjectivePlan:
    """What an objective is built for.

    training  its settings
    triples   int64 [T, 3]: all training triples, on the device
    """

    training: LinkTrainingConfig
    triples: Tensor
    num_nodes: int
    num_relations: int


class Objective(ABC):
    """Turns a batch of true triples into a loss: a member of the axis `objective`.

    The trainer knows nothing of it; on a GPU it records the step, so that nothing here may wait for the device.
    """

    @classmethod
    @abstractmethod
    def build(cls, plan: ObjectivePlan) -> Self: ...

    def draw(self, positives: Tensor, generator: torch.Generator) -> Any:
        """What the objective invents for a batch int64 [n, 3], such as false triples; before any edge is dropped."""
        return None

    @abstractmethod
    def loss(
        self, network: LinkNetwork, adjacency: RelationalAdjacency | None, positives: Tensor, drawn: Any
    ) -> Tensor:
        """A scalar with gradients.

        adjacency  the edges that carry messages in this step; None where the network passes none
        drawn      what `draw` gave for this batch
        """
