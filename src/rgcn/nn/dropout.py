"""Dropout whose draws belong to nodes, so that it does not matter which process computes them."""

import torch
import torch.nn.functional as F
from torch import Tensor

_ODD, _LARGEST = (0x1E3779B97F4A7C15, 0x3F58476D1CE4E5B9), 2**53


def drop(x: Tensor, rate: float, training: bool, names: Tensor | None) -> Tensor:
    """x [n, width] with a share of its numbers zero while training, the others larger, as `F.dropout` does it.

    names  int64 [n]: which node each row is. What is dropped then follows from the node, the column and one draw of
           PyTorch's generator, which all processes make alike. None: every number is drawn
    """
    if names is None or not training or not rate:
        return F.dropout(x, rate, training)
    key = int(torch.randint(2**62, ()))
    z = names[:, None] * x.shape[1] + torch.arange(x.shape[1], device=x.device)
    for turn, odd in enumerate((*_ODD, *_ODD)):  # products wrap around, and each shift mixes high digits into low ones
        z = (z + (key >> turn)) * odd
        z = z ^ (z >> 31)
    kept = ((z & (_LARGEST - 1)).double() / _LARGEST >= rate).to(x.dtype)
    return x * kept / (1.0 - rate)
