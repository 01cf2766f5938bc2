"""What one training will do, decided once before it begins, and on which device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import Self

from rgcn.config import Section
from rgcn.errors import ConfigError
from rgcn.graph import KnowledgeGraph
from rgcn.placement import Placement, current


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


def choose_device(name: str) -> torch.device:
    """The device of a name; "auto" is a GPU where there is one."""
    if name != "cpu":
        current().check_device(name)
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"device {name!r} was asked for, but PyTorch sees no GPU here; use cpu or auto")
    return torch.device(name)


def on_device(array: NDArray[np.int64], device: torch.device) -> Tensor:
    return torch.from_numpy(np.array(array)).to(device)
