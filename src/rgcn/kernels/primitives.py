"""The primitives for numbers of any precision: the one place where types are widened and results rounded.

Below this, kernels take tensors of one type, with values in the order of a pattern's entries. Above it, `operations`
adds the gradients. Two rules hold here:

- Half precision (bfloat16, float16) holds results, never sums. On a CPU, which has no kernels for it, the operands are
  widened to float32 and the result is rounded once; on a GPU the kernels read half precision and add in float32.
- The result has the type of the rows that are summed. What weighs them (values of edges, coefficients) may be of
  another type, and is not rounded to that of the rows: an edge's 1/3 stays 1/3 while the features are bfloat16.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from rgcn.kernels import reference
from rgcn.kernels.dispatch import kernels_for, product_kernels
from rgcn.kernels.sparse import Pairs, SparsePattern

HALF = (torch.bfloat16, torch.float16)


def gather_sum(pattern: SparsePattern, value: Tensor | None, x: Tensor, remember: bool = True) -> Tensor:
    """The sparse matrix (pattern, value) times x [columns, width] → [rows, width]; values in the order they were given.

    remember: whether the values, once put in order, may be kept for the next call (see `SparsePattern.arranged`).
    """
    wide = _wide(x)
    out: Tensor = kernels_for(wide).gather_sum(pattern, _arranged(pattern, value, wide, remember), wide)
    return out if wide is x else out.to(x.dtype)


def gather_product_sum(
    view: tuple[SparsePattern, Tensor],
    value: Tensor | None,
    left: Tensor,
    x: Tensor,
    remember: bool = True,
    exact: bool = False,
) -> Tensor:
    """Σ value · left ⊙ x over the entries of each row; view: a pattern, and which row of `left` each entry takes.

    left [m, width] or, repeated along the row, [m, a divisor of it].
    """
    pattern, index = view
    wide = _wide(x)
    arranged = _arranged(pattern, value, wide, remember)
    kernels, given = kernels_for(wide), (pattern, arranged, index, _beside(left, wide), wide)
    if exact and wide.dtype in HALF and hasattr(kernels, "exact_product_sum"):
        out: Tensor = kernels.exact_product_sum(*given)
    else:
        out = kernels.gather_product_sum(*given)
    return out.to(sum_type(x) if exact else x.dtype)


def gather_product_fold(
    view: tuple[SparsePattern, Tensor], value: Tensor | None, left: Tensor, x: Tensor, like: Tensor, remember: bool
) -> Tensor:
    """`gather_product_sum`, its columns added up that meet when they are folded to the width of `like`, in its type."""
    (pattern, index), (left, x), width = view, _alike(left, x), like.shape[1]
    kernels, arranged = kernels_for(x), _arranged(pattern, value, x, remember)
    if hasattr(kernels, "gather_product_fold"):
        out: Tensor = kernels.gather_product_fold(pattern, arranged, index, left, x, width)
    else:
        out = reference.folded(kernels.gather_product_sum(pattern, arranged, index, left, x), width)
    return out.to(like.dtype)


def entry_dot(pattern: SparsePattern, left: Tensor, right: Tensor, value: Tensor | None = None) -> Tensor:
    """⟨left[row], right[column]⟩ of each entry, in the place of its value: like `value`, where there is one."""
    dtype = torch.promote_types(left.dtype, right.dtype) if value is None else value.dtype
    left, right = _alike(left, right)
    of_entry: Tensor = kernels_for(left).entry_dot(pattern.row, left, pattern.column, right)
    return pattern.given_back(of_entry, pattern.num_entries if value is None else value.numel()).to(dtype)


def entry_product(
    ends: tuple[Tensor, Tensor, Tensor], left: Tensor, middle: Tensor, right: Tensor, dtype: torch.dtype
) -> Tensor:
    """[entries]: Σ_w left[i, w] · middle[j, w] · right[k, w], for the ends (i, j, k) of each entry.

    A narrower `middle` is repeated, in memory: it is a table of relations, small beside the rows.
    """
    i, j, k = ends
    left, right = _alike(left, right)
    middle = reference.repeated(_beside(middle, left), left.shape[1])
    out: Tensor = kernels_for(left).entry_product(i, left, j, middle, k, right)
    return out.to(dtype)


def combine_bases(coefficients: Tensor, bases: Tensor, pairs: Pairs) -> Tensor:
    wide = _wide(bases)
    out: Tensor = kernels_for(wide).combine_bases(_beside(coefficients, wide), wide, pairs)
    return out if wide is bases else out.to(bases.dtype)


def spread_bases(coefficients: Tensor, rows: Tensor, pairs: Pairs) -> Tensor:
    wide = _wide(rows)
    out: Tensor = kernels_for(wide).spread_bases(_beside(coefficients, wide), wide, pairs)
    return out if wide is rows else out.to(rows.dtype)


def coefficient_gradient(bases: Tensor, rows: Tensor, pairs: Pairs, dtype: torch.dtype) -> Tensor:
    bases, rows = _alike(bases, rows)
    out: Tensor = kernels_for(bases).coefficient_gradient(bases, rows, pairs)
    return out.to(dtype)


def grouped_product(x: Tensor, weight: Tensor, pairs: Pairs) -> Tensor:
    """x [pairs, K, in], weight [R, K, in, out] → [pairs, K, out]. Matrix units take both of one type: that of x."""
    wide = _wide(x)
    weight = weight.to(wide.dtype)
    with _as_given(wide):
        out: Tensor = product_kernels(wide, weight).grouped_product(wide, weight, pairs)
    return out if wide is x else out.to(x.dtype)


def grouped_outer(x: Tensor, gradient: Tensor, pairs: Pairs, weight: Tensor) -> Tensor:
    """[R, K, in, out]: the gradient of `grouped_product`'s weight, which tells shape and type."""
    x, gradient = _alike(x, gradient)
    with _as_given(x):
        out: Tensor = product_kernels(x, weight).grouped_outer(x, gradient, pairs)
    return out.to(weight.dtype)


def sum_type(x: Tensor) -> torch.dtype:
    """What sums of x are kept in before they are rounded."""
    return torch.float32 if x.dtype in HALF else x.dtype


def _wide(x: Tensor) -> Tensor:
    """x as the kernels of its device take it."""
    return x.float() if x.dtype in HALF and x.device.type != "cuda" else x


def _alike(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Both in the wider of their types, as the kernels take it."""
    if left.dtype != right.dtype:
        kind = torch.promote_types(left.dtype, right.dtype)
        left, right = left.to(kind), right.to(kind)
    return _wide(left), _wide(right)


def _beside(other: Tensor, x: Tensor) -> Tensor:
    """What weighs the rows x, in a type the kernels take beside them: Triton's read float32 beside half precision."""
    if other.dtype == x.dtype:
        return other
    return other.to(torch.float32 if x.dtype in HALF and kernels_for(x) is not reference else x.dtype)


def _arranged(pattern: SparsePattern, value: Tensor | None, x: Tensor, remember: bool) -> Tensor | None:
    if value is None:
        return None
    if remember or pattern.entry is None:
        return _beside(pattern.arranged(value), x)
    return _beside(value.index_select(0, pattern.entry), x)


def _as_given(x: Tensor) -> AbstractContextManager[object]:
    """Autocast would round what has just been widened."""
    device = x.device.type
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()
