"""How the states of nodes become a number for each class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import Self

from rgcn.config.knobs import introduced


class Head(nn.Module, ABC):
    """From the last states [n, width] to logits [n, classes]: a member of the axis `head`.

    activated  whether it wants states through ReLU
    """

    activated = True

    @staticmethod
    def width(hidden: int, num_classes: int) -> int:
        """The width it wants the last convolution to have."""
        return hidden

    @classmethod
    @abstractmethod
    def build(cls, hidden: int, num_classes: int, options: Mapping[str, Any], generator: torch.Generator) -> Self:
        """A head with fresh weights; options: the settings' own, for heads from outside."""

    @abstractmethod
    def forward(self, states: Tensor) -> Tensor: ...

    @classmethod
    def words(cls) -> str:
        """What a report says of it, behind the layers."""
        return f"; then {introduced(cls)}"


class ConvolutionHead(Head):
    """None of its own: the last convolution gives a number for each class, as published."""

    activated = False

    @staticmethod
    def width(hidden: int, num_classes: int) -> int:
        return num_classes

    @classmethod
    def build(cls, hidden: int, num_classes: int, options: Mapping[str, Any], generator: torch.Generator) -> Self:
        return cls()

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

    @classmethod
    def build(cls, hidden: int, num_classes: int, options: Mapping[str, Any], generator: torch.Generator) -> Self:
        return cls(hidden, num_classes, generator)

    def forward(self, states: Tensor) -> Tensor:
        return nn.functional.linear(states, self.weight, self.bias)
