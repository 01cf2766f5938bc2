"""Initial weights: schemes and fans.

A scheme has a distribution, normal or uniform, and a standard deviation that follows from the fans:

    glorot         gain · √(2 / (fan_in + fan_out))
    kaiming        gain · √(1 / fan_in)
    schlichtkrull  gain · 3 / √(fan_in + fan_out)      (the original link predictor)

An exception is schlichtkrull-uniform: like the original code, it uses the value as the bound of the interval.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from rgcn.config import Scheme
from rgcn.errors import ConfigError

AnyScheme = Literal[Scheme, "normal", "zeros"]
Fans = Literal["matrix", "stacked"]
WeightShape = tuple[int, int, int]  # of stacked relation matrices: num_relations, in_features, out_features
CHUNK_ROWS = 1 << 16


@dataclass(frozen=True)
class Initializer:
    """An initialization scheme with its gain and its definition of fans.

    Args:
        scheme: "glorot-uniform", "glorot-normal", "kaiming-uniform", "kaiming-normal", "schlichtkrull-uniform",
            "schlichtkrull-normal", "normal" (with standard deviation `gain`) or "zeros".
        gain: Factor of the standard deviation.
        fans: "matrix" for the fans of one relation's matrix `[in, out]`, as the authors of the schemes meant them;
            "stacked" for PyTorch's rule applied to all matrices `[num_relations, in, out]`, as published RGCN code
            does, which takes the number of relations for a fan and draws much smaller weights; or (fan_in, fan_out).

    >>> Initializer("glorot-normal").std((16, 4))
    0.31622776601683794
    """

    scheme: AnyScheme = "glorot-uniform"
    gain: float = 1.0
    fans: Fans | tuple[int, int] = "matrix"

    def __post_init__(self) -> None:
        """Check the names."""
        if self.scheme not in get_args(AnyScheme):
            raise ConfigError(f"unknown initialization {self.scheme!r}; choose from {', '.join(get_args(AnyScheme))}")
        if isinstance(self.fans, str) and self.fans not in get_args(Fans):
            raise ConfigError(f"unknown fans {self.fans!r}; choose from {', '.join(get_args(Fans))}")

    def std(self, shape: Sequence[int]) -> float:
        """Return the standard deviation for a weight of this shape, whose last two dimensions are `[in, out]`."""
        kind = self.scheme.partition("-")[0]
        if kind in ("normal", "zeros"):
            return self.gain if kind == "normal" else 0.0
        if not isinstance(self.fans, str):
            fans = self.fans
        elif self.fans == "stacked":
            fans = shape[1] * math.prod(shape[2:]), shape[0] * math.prod(shape[2:])
        else:
            fans = shape[-2], shape[-1]
        fan_in, fan_out = (max(fan, 1) for fan in fans)
        if kind == "kaiming":
            return self.gain / math.sqrt(fan_in)
        if kind == "glorot":
            return self.gain * math.sqrt(2.0 / (fan_in + fan_out))
        return self.gain * 3.0 / math.sqrt(fan_in + fan_out)

    def draw(
        self, shape: Sequence[int], generator: torch.Generator, rows: int | None = None, out: Tensor | None = None
    ) -> Tensor:
        """Draw random values, on the CPU whatever the device, so that a seed gives the same weights everywhere.

        Args:
            shape: Shape of the weight.
            generator: Source of randomness.
            rows: Number of rows to draw instead, `[rows, shape[-1]]`, with the deviation of a weight of `shape`.
            out: Memory for the values; None for a new tensor.
        """
        size = tuple(shape) if rows is None else (rows, shape[-1])
        std, values = self.std(shape), torch.empty(size) if out is None else out
        if self.scheme.endswith("uniform"):
            bound = std if self.scheme.startswith("schlichtkrull") else std * math.sqrt(3.0)
            return values.uniform_(-bound, bound, generator=generator)
        return values.normal_(0.0, 1.0, generator=generator).mul_(std)

    def draw_in_chunks(self, shape: Sequence[int], generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the values of `draw` in chunks of rows: row numbers int64 `[n]` and values `[n, shape[-1]]`."""
        # PyTorch draws normal numbers 16 at a time and shorter tensors differently: no chunk may have fewer.
        chunk = CHUNK_ROWS if shape[0] >= CHUNK_ROWS + 16 else shape[0]
        begin = 0
        while begin < shape[0]:
            rows = chunk if begin + chunk + 16 <= shape[0] else shape[0] - begin
            yield torch.arange(begin, begin + rows), self.draw(shape, generator, rows=rows)
            begin += rows
