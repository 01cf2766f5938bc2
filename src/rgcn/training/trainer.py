"""What takes the training steps of a task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from rgcn.placement import LOCAL, Placement
from rgcn.training.optimizers import RowOptimizer


class Trainer(ABC):
    """Takes the steps of a task; everything random in it comes from `generator`.

    placement           which part of each batch is local
    step_bytes          about how much memory a step takes beside the weights; 0: little
    steps_an_epoch      how many steps are one of what the configuration counts in `epochs`
    shares_dropout_mask True if all processes must draw the same dropout mask: of nodes that each of them, or one of
                        them, computes
    """

    network: nn.Module
    optimizer: torch.optim.Optimizer
    generator: torch.Generator
    step_bytes = 0
    steps_an_epoch = 1
    placement: Placement = LOCAL
    shares_dropout_mask = False

    @abstractmethod
    def step(self) -> Tensor:
        """Take one step; its loss before it, on the device, not waited for."""

    def all_reduce_gradients(self, loss: Tensor) -> Tensor:
        """Sum the gradients of all processes' shares of a batch; returns the loss of the whole batch."""
        return self.placement.all_reduce_gradients(self.network, self.optimizer, loss)

    def clip(self, norm: float) -> None:
        """Scale all gradients down to this norm."""
        leaves = self.optimizer.leaves() if isinstance(self.optimizer, RowOptimizer) else []
        self.placement.clip_gradients(self.network, leaves, norm)

    def running(self) -> AbstractContextManager[object]:
        """Held while steps are taken; batches may be made ahead meanwhile."""
        return nullcontext()

    def figures(self) -> dict[str, float]:
        """What is known of the last step besides its loss; asked only where it is reported."""
        return {}

    def state(self) -> dict[str, Any]:
        """Plain values that the next steps depend on, besides weights, optimizer and generator."""
        return {}

    def restore(self, steps_taken: int, state: dict[str, Any]) -> None:  # noqa: B027
        """Continue as another trainer would after so many steps; called before the first step."""
