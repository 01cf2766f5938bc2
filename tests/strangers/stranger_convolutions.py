"""What a package from outside may put into the convolution: a message function and a decomposition, a class each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rgcn.adjacency import RelationalAdjacency
from rgcn.config import Section
from rgcn.nn.decompositions import Decomposition, MatrixWeights
from rgcn.nn.initialization import Initializer, WeightShape
from rgcn.nn.message_functions import Convolve, MessageFunction, MessageShape


class AttentionOptions(Section):
    slope: float = 0.2
    """Slope of a negative score."""


class Attention(MessageFunction):
    """Attention computed from both ends of an edge (u, r, v): exp LeakyReLU(⟨a_r, x_u⟩ + ⟨b_r, x_v⟩), normalized."""

    Options = AttentionOptions

    def __init__(self, shape: MessageShape, slope: float, generator: torch.Generator) -> None:
        super().__init__()
        size = shape.num_relations, shape.in_features
        self.of_source = nn.Parameter(torch.randn(size, generator=generator) / 4)
        self.of_target = nn.Parameter(torch.randn(size, generator=generator) / 4)
        self.slope = slope

    @classmethod
    def build(cls, shape: MessageShape, options: Mapping[str, Any], generator: torch.Generator) -> Attention:
        return cls(shape, cls.read_options(options).slope, generator)

    def forward(self, x: Tensor, adjacency: RelationalAdjacency, convolve: Convolve) -> Tensor:
        edges = adjacency.structure
        source, target = x[edges.source], x[edges.own_sources][edges.target]
        score = (source * self.of_source[edges.relation] + target * self.of_target[edges.relation]).sum(1)
        return convolve(x, adjacency.weighed_by(F.leaky_relu(score, self.slope).exp()))


class LowRankOptions(Section):
    rank: int = 2


@dataclass(frozen=True)
class LowRank(Decomposition):
    """W_r = U_r V_r, with an inner width of `rank`."""

    rank: int

    Options = LowRankOptions

    def numbers(self, relations: int, width_in: int, width_out: int) -> int:
        return relations * self.rank * (width_in + width_out)

    def weights(self, shape: WeightShape, init: Initializer, generator: torch.Generator) -> LowRankWeights:
        relations, width_in, width_out = shape
        sizes = (relations, width_in, self.rank), (relations, self.rank, width_out)
        return LowRankWeights(*(init.draw(size, generator) for size in sizes))


class LowRankWeights(MatrixWeights):
    def __init__(self, left: Tensor, right: Tensor) -> None:
        super().__init__()
        self.left, self.right = nn.Parameter(left), nn.Parameter(right)

    def matrices(self) -> Tensor:
        return (self.left @ self.right).unsqueeze(1)
