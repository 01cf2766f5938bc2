"""The primitives as differentiable operations: one gradient for all implementations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rgcn.kernels import dispatch, reference
from rgcn.sparse import SparsePattern, pointer_from_sorted


class _GatherSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pattern: SparsePattern, value: Tensor | None, x: Tensor) -> Tensor:
        ctx.pattern = pattern
        ctx.save_for_backward(value, x if value is not None and value.requires_grad else None)
        return reference.gather_sum(pattern.pointer, pattern.column, value, x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor | None, Tensor | None]:
        pattern: SparsePattern = ctx.pattern
        value, x = ctx.saved_tensors
        grad_value = grad_x = None
        if ctx.needs_input_grad[1]:
            grad_value = dispatch.dot_kernels(x).entry_dot(pattern.row, pattern.column, gradient, x)
        if ctx.needs_input_grad[2]:
            transposed = pattern.transpose
            moved = None if value is None else value.index_select(0, transposed.order)
            grad_x = reference.gather_sum(transposed.pattern.pointer, transposed.pattern.column, moved, gradient)
        return None, grad_value, grad_x


def gather_sum(pattern: SparsePattern, value: Tensor | None, x: Tensor) -> Tensor:
    """The sparse matrix (pattern, value) times x: [rows, columns] · [columns, width] → [rows, width].

    value None stands for ones. Differentiable in value and x.
    """
    out: Tensor = _GatherSum.apply(pattern, value, x)  # type: ignore[no-untyped-call]
    return out


class _CombineBases(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, coefficients: Tensor, bases: Tensor, pointer: Tensor, relation: Tensor, node: Tensor
    ) -> Tensor:
        ctx.save_for_backward(coefficients, bases, pointer, relation, node)
        out: Tensor = dispatch.bases_kernels(bases).combine_bases(coefficients, bases, pointer, relation, node)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        coefficients, bases, *pairs = ctx.saved_tensors
        kernels = dispatch.bases_kernels(bases)
        grad_coefficients = grad_bases = None
        if ctx.needs_input_grad[0]:
            grad_coefficients = kernels.coefficient_gradient(bases, gradient, *pairs, coefficients.shape[0])
        if ctx.needs_input_grad[1]:
            grad_bases = kernels.spread_bases(coefficients, gradient, *pairs)
        return grad_coefficients, grad_bases, None, None, None


class _SpreadBases(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, coefficients: Tensor, rows: Tensor, pointer: Tensor, relation: Tensor, node: Tensor
    ) -> Tensor:
        ctx.save_for_backward(coefficients, rows, pointer, relation, node)
        out: Tensor = dispatch.bases_kernels(rows).spread_bases(coefficients, rows, pointer, relation, node)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        coefficients, rows, *pairs = ctx.saved_tensors
        kernels = dispatch.bases_kernels(rows)
        grad_coefficients = grad_rows = None
        if ctx.needs_input_grad[0]:
            grad_coefficients = kernels.coefficient_gradient(gradient, rows, *pairs, coefficients.shape[0])
        if ctx.needs_input_grad[1]:
            grad_rows = kernels.combine_bases(coefficients, gradient, *pairs)
        return grad_coefficients, grad_rows, None, None, None


def combine_bases(coefficients: Tensor, bases: Tensor, pointer: Tensor, relation: Tensor, node: Tensor) -> Tensor:
    """out[p] = Σ_b coefficients[relation[p], b] · bases[node[p], b]; pairs sorted by node. Differentiable."""
    out: Tensor = _CombineBases.apply(coefficients, bases, pointer, relation, node)  # type: ignore[no-untyped-call]
    return out


def spread_bases(coefficients: Tensor, rows: Tensor, pointer: Tensor, relation: Tensor, node: Tensor) -> Tensor:
    """out[n, b] = Σ_{pairs p of n} coefficients[relation[p], b] · rows[p]; pairs sorted by node. Differentiable."""
    out: Tensor = _SpreadBases.apply(coefficients, rows, pointer, relation, node)  # type: ignore[no-untyped-call]
    return out


class _GroupedProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, pointer: Tensor, bounds: Sequence[int] | None) -> Tensor:
        ctx.save_for_backward(x, weight, pointer)
        ctx.bounds = bounds
        out: Tensor = dispatch.product_kernels(x, weight).grouped_product(x, weight, pointer, bounds)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        x, weight, pointer = ctx.saved_tensors
        kernels = dispatch.product_kernels(x, weight)
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            grad_x = kernels.grouped_product(gradient, weight.transpose(2, 3), pointer, ctx.bounds)
        if ctx.needs_input_grad[1]:
            grad_weight = kernels.grouped_outer(x, gradient, pointer, ctx.bounds)
        return grad_x, grad_weight, None, None


def grouped_product(x: Tensor, weight: Tensor, pointer: Tensor, bounds: Sequence[int] | None = None) -> Tensor:
    """out[p, k] = x[p, k] @ weight[r, k] for each pair p of relation r; pairs sorted by relation. Differentiable.

    x [pairs, K, in], weight [R, K, in, out], pointer [R + 1], bounds its numbers on the host → [pairs, K, out].
    """
    out: Tensor = _GroupedProduct.apply(x, weight, pointer, bounds)  # type: ignore[no-untyped-call]
    return out


class _PairDot(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, left: Tensor, i: Tensor, right: Tensor, j: Tensor) -> Tensor:
        ctx.save_for_backward(left, i, right, j)
        out: Tensor = dispatch.dot_kernels(left).entry_dot(i, j, left, right)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None, Tensor | None, None]:
        left, i, right, j = ctx.saved_tensors
        grad_left = _weighted_sum(i, len(left), gradient, j, right) if ctx.needs_input_grad[0] else None
        grad_right = _weighted_sum(j, len(right), gradient, i, left) if ctx.needs_input_grad[2] else None
        return grad_left, None, grad_right, None


def _weighted_sum(row: Tensor, num_rows: int, value: Tensor, column: Tensor, x: Tensor) -> Tensor:
    """out[n] = Σ_{e: row[e] = n} value[e] · x[column[e]], by sorting the rows: no two writers meet, no order varies."""
    order = torch.argsort(row, stable=True)
    pointer = pointer_from_sorted(row.index_select(0, order), num_rows)
    return reference.gather_sum(pointer, column.index_select(0, order), value.index_select(0, order), x)


def pair_dot(left: Tensor, i: Tensor, right: Tensor, j: Tensor) -> Tensor:
    """out[e] = ⟨left[i[e]], right[j[e]]⟩, without writing the two gathered matrices out. Differentiable.

    left [n, width], right [m, width], i and j int64 [entries] → [entries].
    """
    out: Tensor = _PairDot.apply(left, i, right, j)  # type: ignore[no-untyped-call]
    return out
