"""How weights begin.

Every scheme draws with a standard deviation given by the fans:

    glorot         gain · √(2 / (fan_in + fan_out))
    kaiming        gain · √(1 / fan_in)
    schlichtkrull  gain · 3 / √(fan_in + fan_out)      (the original link predictor's)

and a distribution, normal or uniform, of that standard deviation; only schlichtkrull-uniform follows the original code
and takes the value as the bound of the interval.
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
WeightShape = tuple[int, int, int]  # of a stack of W_r: relations, in, out
PART = 1 << 16  # rows drawn at a time


@dataclass(frozen=True)
class Initializer:
    """A scheme with its gain and its idea of fans.

    fans  "matrix": of one relation's matrix, [in, out], as the schemes' authors meant them.
          "stacked": PyTorch's rule applied to the whole stack [relations, in, out], as published RGCN code does; it
          reads the number of relations as a fan and draws much smaller weights.
          (fan_in, fan_out): given outright.

    >>> Initializer("glorot-normal").std((16, 4))
    0.31622776601683794
    """

    scheme: AnyScheme = "glorot-uniform"
    gain: float = 1.0
    fans: Fans | tuple[int, int] = "matrix"

    def __post_init__(self) -> None:
        if self.scheme not in get_args(AnyScheme):
            raise ConfigError(f"unknown initialization {self.scheme!r}; there are {', '.join(get_args(AnyScheme))}")
        if isinstance(self.fans, str) and self.fans not in get_args(Fans):
            raise ConfigError(f"unknown fans {self.fans!r}; there are {', '.join(get_args(Fans))}")

    def std(self, shape: Sequence[int]) -> float:
        """Standard deviation for a weight of this shape; the last two dimensions are [in, out]."""
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
        """Random values of this shape, in `out` if given; with `rows`, [rows, shape[-1]] as rows of such a weight.

        Drawn on the CPU whatever the device, so that a seed means the same weights everywhere.
        """
        size = tuple(shape) if rows is None else (rows, shape[-1])
        std, values = self.std(shape), torch.empty(size) if out is None else out
        if self.scheme.endswith("uniform"):
            bound = std if self.scheme.startswith("schlichtkrull") else std * math.sqrt(3.0)
            return values.uniform_(-bound, bound, generator=generator)
        return values.normal_(0.0, 1.0, generator=generator).mul_(std)

    def drawn_in_parts(self, shape: Sequence[int], generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """`draw`, the same numbers, some rows at a time: (their numbers int64 [n], values [n, shape[-1]])."""
        # PyTorch draws normal numbers sixteen at a time, and fewer in another way: no part may be shorter.
        at_once = PART if shape[0] >= PART + 16 else shape[0]
        begin = 0
        while begin < shape[0]:
            rows = at_once if begin + at_once + 16 <= shape[0] else shape[0] - begin
            yield torch.arange(begin, begin + rows), self.draw(shape, generator, rows=rows)
            begin += rows
