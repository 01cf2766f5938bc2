"""What one training will do, decided once before it begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from typing_extensions import Self

from rgcn.config import Section
from rgcn.graph import KnowledgeGraph
from rgcn.placement import Placement


@dataclass(frozen=True, eq=False)
class Plan:
    """A training with every default filled in and every split drawn. Nothing downstream decides any of this again.

    model     the model's settings
    training  the training's settings; `chosen` are those that were left open and follow from the graph and the machine
    seed      every random choice follows from it
    graph     what is learned from and measured on: everything that is held out is marked, what is pruned is gone
    device    where the network is trained
    placement which nodes and which share of a batch this process computes
    """

    model: Any
    training: Any
    seed: int
    graph: KnowledgeGraph
    device: torch.device
    placement: Placement
    chosen: Mapping[str, Any]

    def with_training(self, **changes: Any) -> Self:
        """The same plan with other settings of the training, such as its number of steps."""
        training: Section = self.training
        return replace(self, training=training.model_copy(update=changes))
