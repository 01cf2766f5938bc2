"""The update of a path network's layer: x + ReLU(LayerNorm(W [x, a, ...] + b)) for reached nodes, as one operation.

As separate operations of PyTorch it would read and write the states a dozen times, and keep half of these tensors for
the gradient: more memory traffic than the convolution itself. Here one kernel reads and writes them once, on a GPU
(`triton_update`) and on a CPU (`update_loops`). Elsewhere it works on a few thousand rows at a time, which stay in the
cache. The backward pass computes the intermediate results again.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from rgcn.kernels import dispatch
from rgcn.kernels.reference import EPSILON, MIN_VARIANCE

CHUNK_ROWS = 4096


class UpdateSettings(NamedTuple):
    """The variant of the update.

    Attributes:
        degree_scaling: Pass every aggregate a second time, multiplied by the node's degree factor.
        norm: Apply LayerNorm.
        skip: Add the old state to the new one.
        dropout: Share of the output to drop; 0 outside training.
        update_unreached: Also update nodes without any message, by the biases alone.
    """

    degree_scaling: bool = True
    norm: bool = True
    skip: bool = True
    dropout: float = 0.0
    update_unreached: bool = False


class UpdateInputs(NamedTuple):
    """The inputs of an update.

    Attributes:
        states: [num_nodes, num_questions, width].
        messages: Weighted sums of messages, like `states`.
        squares: Weighted sums of squared messages, like `states`: then the standard deviation of the messages is
            another aggregate. None: it is not.
        degree: Degree factors, [num_nodes] or [num_nodes, num_questions].
        weights: W [width, num_parts · width], b [width], and gain and shift [width] of LayerNorm.
        dropout_mask: bool like `states`, True where dropout keeps a number; for GPU kernels the seed [1] they draw it
            from; None: nothing is dropped. `layer_update` ignores what it is given, and draws one.
        settings: The variant of the update.
    """

    states: Tensor
    messages: Tensor
    squares: Tensor | None
    degree: Tensor
    weights: tuple[Tensor, ...]
    dropout_mask: Tensor | None
    settings: UpdateSettings


def layer_update(inputs: UpdateInputs) -> Tensor:
    """Return the new states [num_nodes, num_questions, width]. Draws the dropout mask.

    Differentiable in all inputs but the degree. A row that is zero in states and messages stays zero, except with
    `update_unreached`.
    """
    states, messages, squares, degree, weights, _, settings = inputs
    if torch.compiler.is_compiling() or dispatch.use_reference:
        row_degree = degree.view(*degree.shape, *[1] * (states.ndim - degree.ndim))
        return reference_update(inputs._replace(degree=row_degree, dropout_mask=_draw_mask(states, settings.dropout)))
    width, kernels = states.shape[-1], dispatch.kernels_for(states)
    is_supported = width in (16, 32, 64) if states.is_cuda else width > 0 and width % 32 == 0
    if is_supported and hasattr(kernels, "layer_update"):  # in one pass
        return _LayerUpdate.apply(kernels, settings, *inputs[:4], *weights)  # type: ignore[no-any-return, no-untyped-call]
    num_rows = states.shape[0] * states.shape[1]
    if not num_rows:
        return states
    row_degree = degree.repeat_interleave(states.shape[1]) if degree.ndim == 1 else degree
    tensors = (states, messages, squares, row_degree, _draw_mask(states, settings.dropout))
    rows = [None if t is None else torch.split(t.reshape(num_rows, -1), CHUNK_ROWS) for t in tensors]
    chunks = []
    for number in reversed(range(-(-num_rows // CHUNK_ROWS))):  # backward then sums gradients from the first chunk on
        *chunk, mask = [None if every is None else every[number] for every in rows]
        part = UpdateInputs._make((*chunk, weights, mask, settings))
        chunks.append(checkpoint(reference_update, part, use_reentrant=False, preserve_rng_state=False))
    return torch.cat(chunks[::-1]).to(states.dtype).view(states.shape)


def reference_update(inputs: UpdateInputs) -> Tensor:
    """The definition of the update, in PyTorch's own operations, for rows [..., width] and degrees [..., 1]."""
    states, messages, squares, degree, weights, dropout_mask, settings = inputs
    parts = [messages]
    if squares is not None:
        parts.append((squares - messages.square()).clamp(min=MIN_VARIANCE).sqrt())
    if settings.degree_scaling:
        parts += [part * degree for part in parts]
    weight, bias, gain, shift = (tensor.to(states.dtype) for tensor in weights)
    z = F.linear(torch.cat([states, *(part.to(states.dtype) for part in parts)], dim=-1), weight, bias)
    if settings.norm:
        z = F.layer_norm(z, z.shape[-1:], gain, shift, EPSILON)
    is_reached = (messages != 0).any(-1, keepdim=True) | (states != 0).any(-1, keepdim=True)
    out = torch.relu(z) if settings.update_unreached else torch.relu(z) * is_reached
    out = out if dropout_mask is None else out * dropout_mask / (1.0 - settings.dropout)
    return states + out if settings.skip else out


def _draw_mask(like: Tensor, dropout: float) -> Tensor | None:
    """Draw a dropout mask, bool like the tensor; None if nothing is dropped.

    On a CPU PyTorch draws numbers one by one, which took a fifth of a step. 16 random bits per number are enough, from
    a NumPy generator whose stream is guaranteed to stay the same.
    """
    if not dropout:
        return None
    if like.device.type != "cpu" or torch.compiler.is_compiling():
        return torch.rand_like(like, dtype=torch.float32) >= dropout
    bits = np.random.SFC64(int(torch.randint(2**62, ()))).random_raw(-(-like.numel() // 4))
    return torch.from_numpy(bits.view(np.uint16)[: like.numel()] >= round(dropout * 2**16)).view(like.shape)


class _LayerUpdate(torch.autograd.Function):
    """Save only the inputs for the backward pass, no intermediate result."""

    @staticmethod
    def forward(ctx: Any, kernels: Any, settings: UpdateSettings, *tensors: Any) -> Tensor:
        (states, messages, squares, degree), weights = tensors[:4], tensors[4:]
        if settings.dropout and states.is_cuda:  # the kernel draws the mask, from a seed
            mask: Tensor | None = torch.randint(2**31 - 1, (1,), device=states.device)
        else:
            mask = _draw_mask(states, settings.dropout)
        ctx.kernels, ctx.settings = kernels, settings
        ctx.save_for_backward(states, messages, squares, degree, mask, *weights)
        return kernels.layer_update(UpdateInputs._make((*tensors[:4], weights, mask, settings)))  # type: ignore[no-any-return]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        *tensors, mask = ctx.saved_tensors[:5]
        inputs = UpdateInputs._make((*tensors, ctx.saved_tensors[5:], mask, ctx.settings))
        *of_rows, weight, bias, gain, shift = ctx.kernels.layer_update_gradients(inputs, gradient.contiguous())
        return None, None, *of_rows, None, weight, bias, gain, shift
