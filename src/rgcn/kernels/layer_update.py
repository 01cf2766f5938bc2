"""What a node becomes after a layer: x + ReLU(LayerNorm(W [x, a, …] + b)) where anything was heard, as one operation.

As separate operations of PyTorch this reads and writes the states a dozen times, and keeps half of these for the
gradient: more than the convolution itself. Here they are read once and written once, by one kernel on a GPU
(`triton_update`) and on a CPU (`update_loops`), elsewhere a few thousand rows at a time, which stay in the cache; the
gradient computes what is between anew.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from rgcn.kernels import dispatch
from rgcn.kernels.reference import EPSILON, LEAST_VARIANCE

CHUNK_ROWS = 4096


class UpdateSettings(NamedTuple):
    """scaled: hear everything a second time, times the node's degree factor; norm, skip: as they say; dropout: share of
    the output that is dropped, 0 when not training; wakes: whether biases wake a node that has heard nothing."""

    scaled: bool = True
    norm: bool = True
    skip: bool = True
    dropout: float = 0.0
    wakes: bool = False


class UpdateInputs(NamedTuple):
    """What an update reads: own, heard and, for deviations, squares [nodes, B, d], degree [nodes] or [nodes, B].

    weights  W [d, parts · d], b [d], LayerNorm's gain [d] and shift [d]
    drawn    bool like own: what dropout leaves; for kernels on a GPU the seed they draw it from; None: nothing drops
    """

    own: Tensor
    heard: Tensor
    squares: Tensor | None
    degree: Tensor
    weights: tuple[Tensor, ...]
    drawn: Tensor | None
    settings: UpdateSettings


def layer_update(given: UpdateInputs) -> Tensor:
    """[nodes, B, d]; what dropout leaves is drawn here.

    Differentiable in all but degree. A row that is zero in own and heard stays zero, unless it `wakes`.
    """
    own, heard, squares, degree, weights, _, settings = given
    if torch.compiler.is_compiling() or dispatch.plain:
        of_rows = degree.view(*degree.shape, *[1] * (own.ndim - degree.ndim))
        kept = _drawn(own, settings.dropout)
        return plain_update(UpdateInputs(own, heard, squares, of_rows, weights, kept, settings))
    fused = _fused(own)
    if fused is not None:
        return _LayerUpdate.apply(fused, settings, own, heard, squares, degree, *weights)  # type: ignore[no-any-return, no-untyped-call]
    count = own.shape[0] * own.shape[1]
    if not count:
        return own
    each = degree.repeat_interleave(own.shape[1]) if degree.ndim == 1 else degree
    tensors = (own, heard, squares, each, _drawn(own, settings.dropout))
    rows = [None if t is None else torch.split(t.reshape(count, -1), CHUNK_ROWS) for t in tensors]
    chunks = []
    for number in reversed(range(-(-count // CHUNK_ROWS))):  # gradients are then added up from the first chunk on
        *states, kept = [None if every is None else every[number] for every in rows]
        part = UpdateInputs._make((*states, weights, kept, settings))
        chunks.append(checkpoint(plain_update, part, use_reentrant=False, preserve_rng_state=False))
    return torch.cat(chunks[::-1]).to(own.dtype).view(own.shape)


def plain_update(given: UpdateInputs) -> Tensor:
    """The definition, in PyTorch's own operations, for rows [..., d]; degree [..., 1]."""
    own, heard, squares, degree, weights, kept, settings = given
    parts = [heard]
    if squares is not None:
        parts.append((squares - heard.square()).clamp(min=LEAST_VARIANCE).sqrt())
    if settings.scaled:
        parts += [part * degree for part in parts]
    weight, bias, gain, shift = (tensor.to(own.dtype) for tensor in weights)
    z = F.linear(torch.cat([own, *(part.to(own.dtype) for part in parts)], dim=-1), weight, bias)
    if settings.norm:
        z = F.layer_norm(z, z.shape[-1:], gain, shift, EPSILON)
    awake = (heard != 0).any(-1, keepdim=True) | (own != 0).any(-1, keepdim=True)
    out = torch.relu(z) if settings.wakes else torch.relu(z) * awake
    out = out if kept is None else out * kept / (1.0 - settings.dropout)
    return own + out if settings.skip else out


def _drawn(like: Tensor, dropout: float) -> Tensor | None:
    """bool like the tensor: what dropout leaves; None where it leaves all.

    On a CPU PyTorch draws one number after the other, which took a fifth of a step. Sixteen bits each are enough, from
    a generator whose words numpy promises to keep as they are.
    """
    if not dropout:
        return None
    if like.device.type != "cpu" or torch.compiler.is_compiling():
        return torch.rand_like(like, dtype=torch.float32) >= dropout
    words = np.random.SFC64(int(torch.randint(2**62, ()))).random_raw(-(-like.numel() // 4))
    return torch.from_numpy(words.view(np.uint16)[: like.numel()] >= round(dropout * 2**16)).view(like.shape)


class _LayerUpdate(torch.autograd.Function):
    """Keeps what went in, and nothing of what is between."""

    @staticmethod
    def forward(
        ctx: Any,
        fused: Any,
        settings: UpdateSettings,
        own: Tensor,
        heard: Tensor,
        squares: Tensor | None,
        degree: Tensor,
        *weights: Tensor,
    ) -> Tensor:
        if settings.dropout and own.is_cuda:  # the kernel draws for itself, from a seed
            drawn: Tensor | None = torch.randint(2**31 - 1, (1,), device=own.device)
        else:
            drawn = _drawn(own, settings.dropout)
        ctx.fused, ctx.settings = fused, settings
        ctx.save_for_backward(own, heard, squares, degree, drawn, *weights)
        return fused.layer_update(UpdateInputs(own, heard, squares, degree, weights, drawn, settings))  # type: ignore[no-any-return]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        own, heard, squares, degree, drawn, *weights = ctx.saved_tensors
        given = UpdateInputs(own, heard, squares, degree, tuple(weights), drawn, ctx.settings)
        of_own, of_heard, of_squares, *of_weights = ctx.fused.layer_update_gradients(given, slope.contiguous())
        return None, None, of_own, of_heard, of_squares, None, *of_weights


def _fused(own: Tensor) -> Any:
    """The kernels that do it in one pass, where they take states like these; else None."""
    width = own.shape[-1]
    takes = 16 <= width <= 64 and width & (width - 1) == 0 if own.is_cuda else width > 0 and width % 32 == 0
    if not takes:
        return None
    kernels = dispatch.kernels_for(own)
    return kernels if hasattr(kernels, "layer_update") else None
