"""Diagonal decomposition: each relation scales features and mixes none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rgcn.adjacency import EdgeStructure, RelationalAdjacency
from rgcn.errors import ConfigError
from rgcn.kernels import scaled_sum
from rgcn.nn.decompositions import cost
from rgcn.nn.decompositions.base import (
    Decomposition,
    OneHotSpace,
    OneHotWeights,
    Order,
    RelationWeights,
    WeightShape,
)
from rgcn.nn.decompositions.cost import Cost
from rgcn.nn.initialization import Initializer


@dataclass(frozen=True)
class Diagonal(Decomposition):
    """W_r = diag(w_r): R⁺ · width numbers. The first layer of e-RGCN, over learned embeddings.

    Tells relations apart at the least possible price; a full layer after it mixes the features.
    """

    def numbers(self, relations: int, width_in: int, width_out: int) -> int:
        return relations * width_in

    def weights(self, shape: WeightShape, init: Initializer, generator: torch.Generator) -> DiagonalWeights:
        if shape.in_features != shape.out_features:
            raise ConfigError(
                f"a diagonal weight keeps the width: in_features = {shape.in_features} must equal "
                f"out_features = {shape.out_features}"
            )
        return DiagonalWeights(init.draw((shape.relations, shape.in_features), generator))

    def one_hot_weights(
        self, space: OneHotSpace, out_features: int, init: Initializer, generator: torch.Generator
    ) -> OneHotWeights:
        raise ConfigError(
            "diagonal weights need input vectors to scale: give embeddings or features, not one-hot nodes"
        )


class DiagonalWeights(RelationWeights):
    """w [relations, width]. Scaling costs nothing beside reading, so no order is better than doing it all at once:

    out[i] = Σ over edges (i ← j, r) of A_r[i, j] · w_r ⊙ x_j
    """

    def __init__(self, scale: Tensor) -> None:
        super().__init__()
        self.scale = nn.Parameter(scale)
        self.register_load_state_dict_pre_hook(_from_blocks)  # type: ignore[no-untyped-call]

    def edgewise(self, x: Tensor, adjacency: RelationalAdjacency) -> Tensor:
        return scaled_sum(adjacency.structure.triple_index, adjacency.weight, self.scale, x)

    def horizontal(self, x: Tensor, adjacency: RelationalAdjacency) -> Tensor:
        return self.edgewise(x, adjacency)

    def vertical(self, x: Tensor, adjacency: RelationalAdjacency) -> Tensor:
        return self.edgewise(x, adjacency)

    def cost(self, order: Order, structure: EdgeStructure) -> Cost:
        relations, width = self.scale.shape
        return cost.scaled_sum(structure.num_targets, structure.num_sources, relations, structure.num_edges, width)

    def prepare(self, order: Order, structure: EdgeStructure) -> None:
        _ = structure.triple_index

    def dense(self) -> Tensor:
        return torch.diag_embed(self.scale)

    def extra_repr(self) -> str:
        return f"{list(self.scale.shape)}"


def _from_blocks(module: nn.Module, state: dict[str, Tensor], prefix: str, *_: Any) -> None:
    """Models saved before 0.2 hold a diagonal as blocks [relations, width, 1, 1]."""
    if f"{prefix}blocks" in state:
        state[f"{prefix}scale"] = state.pop(f"{prefix}blocks").flatten(1)
