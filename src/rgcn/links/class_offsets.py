"""How far the scores of each class are off, told by nodes whose class is known and was hidden."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

# Of (scale - 1)² + Σ offset²; chosen on the training labels of world, AIFB and MUTAG, five folds: docs/any-graph.md.
RIDGE = 1.0
STEPS = 100


class ClassLevel(NamedTuple):
    """scale · score + offset [classes]: a model that never met these classes prefers some for no reason of theirs."""

    scale: Tensor
    offset: Tensor

    def of(self, logits: Tensor) -> Tensor:
        return (logits.double() * self.scale + self.offset).to(logits.dtype)

    @classmethod
    def fitted(cls, logits: Tensor, classes: Tensor) -> ClassLevel:
        """What makes the known classes int64 [n] likeliest, of logits [n, classes]; few nodes move it little.

        >>> logits = torch.tensor([[3.0, 0.0], [3.0, 1.0], [3.0, 2.5], [3.0, 2.6]]).repeat(20, 1)
        >>> level = ClassLevel.fitted(logits, torch.tensor([0, 0, 1, 1]).repeat(20))
        >>> level.of(logits[:4]).argmax(1).tolist()
        [0, 0, 1, 1]
        """
        logits = logits.detach().double().cpu()
        scale, offset = torch.ones((), dtype=torch.float64), torch.zeros(logits.shape[1], dtype=torch.float64)
        parts = [scale.requires_grad_(), offset.requires_grad_()]
        optimizer = torch.optim.LBFGS(parts, max_iter=STEPS, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            optimizer.zero_grad()
            wrong = F.cross_entropy(logits * scale + offset, classes.cpu(), reduction="sum")
            total = wrong + RIDGE * ((scale - 1.0).square() + offset.square().sum())
            total.backward()  # type: ignore[no-untyped-call]
            return total

        optimizer.step(loss)  # type: ignore[no-untyped-call]
        return cls(scale.detach(), offset.detach())
