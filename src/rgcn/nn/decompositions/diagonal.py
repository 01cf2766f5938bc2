"""Diagonal decomposition: each relation scales features and mixes none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from rgcn.errors import ConfigError
from rgcn.nn.decompositions.base import Decomposition, OneHotSpace, OneHotWeights, WeightShape
from rgcn.nn.decompositions.full import BlockWeights
from rgcn.nn.initialization import Initializer


@dataclass(frozen=True)
class Diagonal(Decomposition):
    """W_r = diag(w_r): R⁺ · width numbers. The first layer of e-RGCN, over learned embeddings.

    Tells relations apart at the least possible price; a full layer after it mixes the features.
    """

    def weights(self, shape: WeightShape, init: Initializer, generator: torch.Generator) -> BlockWeights:
        if shape.in_features != shape.out_features:
            raise ConfigError(
                f"a diagonal weight keeps the width: in_features = {shape.in_features} must equal "
                f"out_features = {shape.out_features}"
            )
        return BlockWeights(shape, num_blocks=shape.in_features, init=init, generator=generator)

    def one_hot_weights(
        self, space: OneHotSpace, out_features: int, init: Initializer, generator: torch.Generator
    ) -> OneHotWeights[Any]:
        raise ConfigError(
            "diagonal weights need input vectors to scale: give embeddings or features, not one-hot nodes"
        )
