"""The primitives as differentiable operations: one gradient for all implementations.

In eager mode each is a `torch.autograd.Function`, which costs little. While `torch.compile` traces, each is the
operator of the same name in `compiled`; there a pattern or pairs may also be given as the handle that stands for it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rgcn.kernels import compiled, primitives
from rgcn.pairs import Pairs
from rgcn.sparse import SparsePattern, TripleIndex

# Rows whose gradients PyTorch adds one by one sooner than they are sorted.
WORTH_SORTING = 4096


class _GatherSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pattern: SparsePattern, value: Tensor | None, x: Tensor) -> Tensor:
        ctx.pattern = pattern
        ctx.save_for_backward(value, x if value is not None and value.requires_grad else None)
        return primitives.gather_sum(pattern, value, x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor | None, Tensor | None]:
        pattern: SparsePattern = ctx.pattern
        value, x = ctx.saved_tensors
        grad_value = grad_x = None
        if ctx.needs_input_grad[1]:
            grad_value = primitives.entry_dot(pattern, gradient, x, value.numel(), value.dtype)
        if ctx.needs_input_grad[2]:
            grad_x = primitives.gather_sum(pattern.transpose, value, gradient)
        return None, grad_value, grad_x


def gather_sum(pattern: SparsePattern | str, value: Tensor | None, x: Tensor) -> Tensor:
    """The sparse matrix (pattern, value) times x: [rows, columns] · [columns, width] → [rows, width].

    value None stands for ones. Differentiable in value and x.
    """
    if torch.compiler.is_compiling():
        return compiled.gather_sum(_handle(pattern), value, x)  # type: ignore[no-any-return]
    out: Tensor = _GatherSum.apply(pattern, value, x)  # type: ignore[no-untyped-call]
    return out


class _ScaledSum(torch.autograd.Function):
    """A form linear in the value, the scale and x: each gradient is the same sum with the roles exchanged."""

    @staticmethod
    def forward(ctx: Any, edges: TripleIndex, value: Tensor | None, scale: Tensor, x: Tensor) -> Tensor:
        ctx.edges = edges
        ctx.save_for_backward(value, scale, x)
        return primitives.gather_product_sum(edges.by_target, value, scale, x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor | None, Tensor | None, Tensor | None]:
        edges: TripleIndex = ctx.edges
        value, scale, x = ctx.saved_tensors
        grad_value = grad_scale = grad_x = None
        if ctx.needs_input_grad[1]:
            ends = (edges.target, edges.relation, edges.source)
            grad_value = primitives.entry_product(ends, gradient, scale, x, value.dtype)
        if ctx.needs_input_grad[2]:
            grad_scale = primitives.gather_product_sum(edges.by_relation, value, x, gradient).to(scale.dtype)
        if ctx.needs_input_grad[3]:
            grad_x = primitives.gather_product_sum(edges.by_source, value, scale, gradient)
        return None, grad_value, grad_scale, grad_x


def scaled_sum(edges: TripleIndex, value: Tensor | None, scale: Tensor, x: Tensor) -> Tensor:
    """out[t] = Σ_{edges e into t} value[e] · scale[relation[e]] ⊙ x[source[e]]: [targets, width]. Differentiable.

    value [edges] or None (all one), scale [relations, width], x [sources, width].
    """
    if torch.compiler.is_compiling():
        return compiled.scaled_sum(_handle(edges), value, scale, x)
    out: Tensor = _ScaledSum.apply(edges, value, scale, x)  # type: ignore[no-untyped-call]
    return out


class FactoredGradient(NamedTuple):
    """A gradient G[n, b] = Σ_{pairs p of n} coefficients[relation[p], b] · rows[p] that nobody has written out yet."""

    coefficients: Tensor
    rows: Tensor
    pairs: Pairs


class _CombineBases(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, coefficients: Tensor, bases: Tensor, pairs: Pairs, factored: list[FactoredGradient] | None
    ) -> Tensor:
        ctx.save_for_backward(coefficients, bases)
        ctx.pairs, ctx.factored = pairs, factored
        return primitives.combine_bases(coefficients, bases, pairs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        coefficients, bases = ctx.saved_tensors
        grad_coefficients = grad_bases = None
        if ctx.needs_input_grad[0]:
            grad_coefficients = primitives.coefficient_gradient(bases, gradient, ctx.pairs, coefficients.dtype)
        if ctx.needs_input_grad[1] and ctx.factored is not None:
            # a copy: the optimizer may change the coefficients before it comes to the bases
            ctx.factored.append(FactoredGradient(coefficients.clone(), gradient, ctx.pairs))
        elif ctx.needs_input_grad[1]:
            grad_bases = primitives.spread_bases(coefficients, gradient, ctx.pairs)
        return grad_coefficients, grad_bases, None, None


class _SpreadBases(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, coefficients: Tensor, rows: Tensor, pairs: Pairs) -> Tensor:
        ctx.save_for_backward(coefficients, rows)
        ctx.pairs = pairs
        return primitives.spread_bases(coefficients, rows, pairs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        coefficients, rows = ctx.saved_tensors
        grad_coefficients = grad_rows = None
        if ctx.needs_input_grad[0]:
            grad_coefficients = primitives.coefficient_gradient(gradient, rows, ctx.pairs, coefficients.dtype)
        if ctx.needs_input_grad[1]:
            grad_rows = primitives.combine_bases(coefficients, gradient, ctx.pairs)
        return grad_coefficients, grad_rows, None


def combine_bases(
    coefficients: Tensor, bases: Tensor, pairs: Pairs | str, factored: list[FactoredGradient] | None = None
) -> Tensor:
    """out[p] = Σ_b coefficients[relation[p], b] · bases[node[p], b]; pairs sorted by node. Differentiable.

    With a list `factored`, the gradient of the bases is put there as its factors instead of being written out;
    a compiled graph writes it out.
    """
    if torch.compiler.is_compiling():
        return compiled.combine_bases(_handle(pairs), coefficients, bases)  # type: ignore[no-any-return]
    out: Tensor = _CombineBases.apply(coefficients, bases, pairs, factored)  # type: ignore[no-untyped-call]
    return out


def spread_bases(coefficients: Tensor, rows: Tensor, pairs: Pairs | str) -> Tensor:
    """out[n, b] = Σ_{pairs p of n} coefficients[relation[p], b] · rows[p]; pairs sorted by node. Differentiable."""
    if torch.compiler.is_compiling():
        return compiled.spread_bases(_handle(pairs), coefficients, rows)  # type: ignore[no-any-return]
    out: Tensor = _SpreadBases.apply(coefficients, rows, pairs)  # type: ignore[no-untyped-call]
    return out


class _GroupedProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, pairs: Pairs) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.pairs = pairs
        return primitives.grouped_product(x, weight, pairs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            grad_x = primitives.grouped_product(gradient, weight.transpose(2, 3), ctx.pairs)
        if ctx.needs_input_grad[1]:
            grad_weight = primitives.grouped_outer(x, gradient, ctx.pairs, weight)
        return grad_x, grad_weight, None


def grouped_product(x: Tensor, weight: Tensor, pairs: Pairs | str) -> Tensor:
    """out[p, k] = x[p, k] @ weight[r, k] for each pair p of relation r; pairs sorted by relation. Differentiable.

    x [pairs, K, in], weight [R, K, in, out] → [pairs, K, out].
    """
    if torch.compiler.is_compiling():
        return compiled.grouped_product(_handle(pairs), x, weight)  # type: ignore[no-any-return]
    out: Tensor = _GroupedProduct.apply(x, weight, pairs)  # type: ignore[no-untyped-call]
    return out


class _PairDot(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, pattern: SparsePattern) -> Tensor:
        ctx.save_for_backward(left, right)
        ctx.pattern = pattern
        kind = torch.promote_types(left.dtype, right.dtype)
        return primitives.entry_dot(pattern, left, right, pattern.num_entries, kind)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        left, right = ctx.saved_tensors
        pattern: SparsePattern = ctx.pattern
        grad_left = grad_right = None
        if ctx.needs_input_grad[0]:
            grad_left = primitives.gather_sum(pattern, gradient, right).to(left.dtype)
        if ctx.needs_input_grad[1]:
            grad_right = primitives.gather_sum(pattern.transpose, gradient, left).to(right.dtype)
        return grad_left, grad_right, None


def pair_dot(left: Tensor, right: Tensor, pattern: SparsePattern | str) -> Tensor:
    """out[e] = ⟨left[row[e]], right[column[e]]⟩ for the entries of a pattern, in the order of its values.

    Differentiable. left [rows, width], right [columns, width] → [entries]; the gathered matrices are never written out.
    """
    if torch.compiler.is_compiling():
        return compiled.pair_dot(_handle(pattern), left, right)  # type: ignore[no-any-return]
    out: Tensor = _PairDot.apply(left, right, pattern)  # type: ignore[no-untyped-call]
    return out


class _TakeRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, pattern: SparsePattern) -> Tensor:
        ctx.pattern = pattern
        return x.index_select(0, pattern.column)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        pattern: SparsePattern = ctx.pattern
        few = pattern.num_entries < WORTH_SORTING and gradient.device.type == "cpu" and gradient.element_size() >= 4
        if few and pattern.transient:
            # On a CPU one row is added after the other, in this order: a few need not be sorted for a single use.
            grad_x = gradient.new_zeros(pattern.num_columns, gradient.shape[1])
            return grad_x.index_add_(0, pattern.column, gradient), None
        return primitives.gather_sum(pattern.transpose, None, gradient), None


def take_rows(x: Tensor, index: Tensor | SparsePattern | str) -> Tensor:
    """x[index]: [entries, width]. Differentiable; a row's gradients are added in a fixed order, whatever the device.

    index [entries], or a pattern with one entry a row where the same rows are taken again and again.
    """
    if torch.compiler.is_compiling():
        # A pattern cannot be made while a graph is traced: then PyTorch's own gradient must do.
        return x.index_select(0, index) if isinstance(index, Tensor) else compiled.take_rows(_handle(index), x)
    if isinstance(index, Tensor):
        index = SparsePattern.picking(index, x.shape[0], transient=True)
    out: Tensor = _TakeRows.apply(x, index)  # type: ignore[no-untyped-call]
    return out


def _handle(thing: SparsePattern | Pairs | TripleIndex | str) -> str:
    return thing if isinstance(thing, str) else compiled.handle_of(thing)
