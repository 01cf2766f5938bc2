"""What a node becomes after a layer: x + ReLU(LayerNorm(W [x, a, …] + b)) where anything was heard, as one operation.

As separate operations of PyTorch this reads and writes the states a dozen times, and keeps half of these for the
gradient: more than the convolution itself. Here they are read once and written once, by one kernel on a GPU
(`triton_update`) and on a CPU (`update_loops`), elsewhere a few thousand rows at a time, which stay in the cache; the
gradient computes what is between anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from rgcn.kernels import dispatch
from rgcn.kernels.reference import EPSILON, LEAST_VARIANCE

CHUNK_ROWS = 4096

Weights: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor]


class UpdateSettings(NamedTuple):
    """scaled: hear everything a second time, times the node's degree factor; norm, skip: as they say; dropout: share of
    the output that is dropped, 0 when not training; wakes: whether biases wake a node that has heard nothing."""

    scaled: bool = True
    norm: bool = True
    skip: bool = True
    dropout: float = 0.0
    wakes: bool = False


def layer_update(
    own: Tensor,
    heard: Tensor,
    squares: Tensor | None,
    degree: Tensor,
    weights: Weights,
    settings: UpdateSettings,
) -> Tensor:
    """own, heard and, for deviations, squares [nodes, B, d], degree [nodes] or [nodes, B] → [nodes, B, d].

    weights  W [d, parts · d], b [d], LayerNorm's gain [d] and shift [d]

    Differentiable in all but degree. A row that is zero in own and heard stays zero, unless it `wakes`.
    """
    if torch.compiler.is_compiling() or dispatch.plain:
        kept = _drawn(own, settings.dropout)
        of_rows = degree.view(*degree.shape, *[1] * (own.ndim - degree.ndim))
        return plain_update(own, heard, squares, of_rows, weights, settings, kept)
    return _LayerUpdate.apply(settings, own, heard, squares, degree, *weights)  # type: ignore[no-any-return, no-untyped-call]


def plain_update(
    own: Tensor,
    heard: Tensor,
    squares: Tensor | None,
    degree: Tensor,
    weights: Weights,
    settings: UpdateSettings,
    kept: Tensor | None = None,
) -> Tensor:
    """The definition, in PyTorch's own operations, for rows [..., d]; degree [..., 1].

    kept  bool like own: what dropout leaves
    """
    weight, bias, gain, shift = (tensor.to(own.dtype) for tensor in weights)
    z = F.linear(_inputs(own, heard, squares, degree, settings), weight, bias)
    if settings.norm:
        z = F.layer_norm(z, z.shape[-1:], gain, shift, EPSILON)
    out = torch.relu(z) if settings.wakes else torch.relu(z) * _awake(own, heard)
    out = out if kept is None else out * kept / (1.0 - settings.dropout)
    return own + out if settings.skip else out


def _inputs(own: Tensor, heard: Tensor, squares: Tensor | None, degree: Tensor, settings: UpdateSettings) -> Tensor:
    """[own, heard, deviation, s heard, s deviation], as far as there are such."""
    parts = [heard]
    if squares is not None:
        parts.append((squares - heard.square()).clamp(min=LEAST_VARIANCE).sqrt())
    if settings.scaled:
        parts += [part * degree for part in parts]
    return torch.cat([own, *(part.to(own.dtype) for part in parts)], dim=-1)


def _awake(own: Tensor, heard: Tensor) -> Tensor:
    return (heard != 0).any(-1, keepdim=True) | (own != 0).any(-1, keepdim=True)


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
        settings: UpdateSettings,
        own: Tensor,
        heard: Tensor,
        squares: Tensor | None,
        degree: Tensor,
        weight: Tensor,
        bias: Tensor,
        gain: Tensor,
        shift: Tensor,
    ) -> Tensor:
        fused, weights = _fused(own), (weight, bias, gain, shift)
        drawn = None
        if settings.dropout:
            # The kernel draws for itself, from a seed; here a number is drawn for each place.
            on_gpu = fused is not None and own.is_cuda
            drawn = torch.randint(2**31 - 1, (1,), device=own.device) if on_gpu else _drawn(own, settings.dropout)
        ctx.settings = settings
        ctx.save_for_backward(own, heard, squares, degree, drawn, *weights)
        if fused is not None:
            return fused.layer_update(own, heard, squares, degree, weights, drawn, settings)  # type: ignore[no-any-return]
        out = torch.empty_like(own)
        of_rows = out.view(-1, out.shape[-1])

        def fill(rows: slice, x: Tensor, a: Tensor, square: Tensor | None, s: Tensor, kept: Tensor | None) -> None:
            of_rows[rows] = plain_update(x, a, square, s, weights, settings, kept)

        _in_chunks(fill, own, heard, squares, degree, drawn)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        own, heard, squares, degree, drawn, *weights = ctx.saved_tensors
        fused, settings = _fused(own), ctx.settings
        slope = slope.contiguous()
        if fused is not None:
            given = (own, heard, squares, degree, weights, drawn, settings, slope)
            of_own, of_heard, of_squares, *of_weights = fused.layer_update_gradients(*given)
        else:
            of_own, of_heard, of_squares, *of_weights = _gradients(
                own, heard, squares, degree, tuple(weights), drawn, settings, slope
            )
        return None, of_own, of_heard, of_squares, None, *of_weights


def _fused(own: Tensor) -> Any:
    """The kernels that do it in one pass, where they take states like these; else None."""
    width = own.shape[-1]
    takes = 16 <= width <= 64 and width & (width - 1) == 0 if own.is_cuda else width > 0 and width % 32 == 0
    if not takes:
        return None
    kernels = dispatch.kernels_for(own)
    return kernels if hasattr(kernels, "layer_update") else None


def _in_chunks(work: Callable[..., Any], own: Tensor, *others: Tensor | None) -> list[Any]:
    """work(rows, what belongs to them …) for [nodes, B, d], a few thousand rows at a time; what it returned, in order.

    A chunk's operations are small: each is done by one thread, and the threads take chunks in turn.
    """
    nodes, questions = own.shape[:2]
    of_rows: list[Tensor | None] = []
    for tensor in (own, *others):
        if tensor is not None and tensor.ndim == 1:  # of the nodes
            tensor = tensor.repeat_interleave(questions)
        of_rows.append(None if tensor is None else tensor.reshape(nodes * questions, -1))
    chunks = [slice(first, first + CHUNK_ROWS) for first in range(0, nodes * questions, CHUNK_ROWS)]

    def done(rows: slice) -> Any:
        with torch.no_grad():  # which each thread has to say for itself
            return work(rows, *(None if tensor is None else tensor[rows] for tensor in of_rows))

    return dispatch.on_threads(done, chunks) if own.device.type == "cpu" else [done(rows) for rows in chunks]


def _gradients(
    own: Tensor,
    heard: Tensor,
    squares: Tensor | None,
    degree: Tensor,
    weights: tuple[Tensor, ...],
    drawn: Tensor | None,
    settings: UpdateSettings,
    slope: Tensor,
) -> tuple[Tensor | None, ...]:
    """Of own, heard, squares and the weights."""
    weight, bias, gain, shift = (tensor.to(own.dtype) for tensor in weights)
    width = own.shape[-1]
    of_own, of_heard = torch.empty_like(own), torch.empty_like(heard)
    of_squares = None if squares is None else torch.empty_like(squares)

    def fill(
        rows: slice, x: Tensor, a: Tensor, square: Tensor | None, s: Tensor, kept: Tensor | None, dy: Tensor
    ) -> tuple[Tensor, ...]:
        """Writes what belongs to the rows; returns their share of the weights' gradients."""
        inputs = _inputs(x, a, square, s, settings)
        z = torch.addmm(bias, inputs, weight.T)
        down = dy.clone() if settings.wakes else dy * _awake(x, a)
        if kept is not None:
            down.mul_(kept).div_(1.0 - settings.dropout)
        of_gain, of_shift = torch.zeros_like(gain), torch.zeros_like(shift)
        if settings.norm:
            y, mean, scale = torch.native_layer_norm(z, [width], gain, shift, EPSILON)
            down.mul_(y > 0)
            given = (down, z, [width], mean, scale, gain, shift, [True, True, True])
            down, of_gain, of_shift = torch.ops.aten.native_layer_norm_backward(*given)
        else:
            down.mul_(z > 0)
        parts = list(torch.split(down @ weight, width, dim=1))
        of_own.view(-1, width)[rows] = parts[0] + dy if settings.skip else parts[0]
        count = 1 if square is None else 2
        slopes = parts[1 : 1 + count]
        if settings.scaled:
            slopes = [part + far * s for part, far in zip(slopes, parts[1 + count :], strict=True)]
        if square is not None and of_squares is not None:
            variance = square - a.square()
            deviation = variance.clamp(min=LEAST_VARIANCE).sqrt()
            of_square = torch.where(variance > LEAST_VARIANCE, slopes[1] / (2 * deviation), 0.0)
            of_squares.view(-1, width)[rows] = of_square
            slopes[0] = slopes[0] - 2 * a * of_square
        of_heard.view(-1, width)[rows] = slopes[0]
        return down.T @ inputs, down.sum(0), of_gain, of_shift

    shares = _in_chunks(fill, own, heard, squares, degree, drawn, slope)
    totals = [sum(share, start=torch.zeros_like(share[0])) for share in zip(*shares, strict=True)]
    totals = totals or [torch.zeros_like(tensor) for tensor in weights]
    return of_own, of_heard, of_squares, *(total.to(given.dtype) for total, given in zip(totals, weights, strict=True))
