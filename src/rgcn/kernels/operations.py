"""The primitives as differentiable operations on numbers of any precision, each registered with PyTorch once.

Autograd and compilers cannot look into numba or Triton. So each primitive is an operator `rgcn::...`, which eager mode
and `torch.compile` call alike: it takes tensors, and the handle of its pattern, pairs or edges. The shape of its result
follows from these, and every gradient is one of the operators again: a compiled forward pass and a compiled backward
pass are one graph each, without breaks.

In eager mode the function behind an operator is called directly. Through PyTorch's dispatcher a step on AIFB, a
millisecond made of four such operations, took 13 % longer.

Kernels take tensors of one type, with values in the order of a pattern's entries. Types are converted only in this
module, by two rules:

- Half precision (bfloat16, float16) holds results, never sums. On a CPU, which has no kernels for it, the operands are
  converted to float32 and the result is rounded once; on a GPU the kernels read half precision and sum in float32.
- The result has the type of the rows that are summed. Their weights (values of edges, coefficients) may have another
  type, and are not rounded to that of the rows: an edge's 1/3 stays 1/3 while the features are bfloat16.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from rgcn.kernels import dispatch, reference
from rgcn.kernels.dispatch import kernels_for, product_kernels
from rgcn.kernels.reference import FactoredGradient
from rgcn.kernels.sparse import KernelStructure, Pairs, SparsePattern, TripleIndex, structure_for

# PyTorch adds the gradients of fewer rows than this one by one sooner than they are sorted.
MIN_SORTED_ROWS = 4096
HALF = (torch.bfloat16, torch.float16)

_library = torch.library.Library("rgcn", "DEF")  # type: ignore[no-untyped-call]


def _operator(
    schema: str,
    empty: Callable[..., Tensor],
    *gradients: Callable[..., Tensor | None] | None,
    saved: Callable[..., tuple[Tensor | None, ...]] = lambda *tensors: tensors,
) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Register the decorated function, which computes on any device, as an operator; return the function to call.

    Args:
        schema: A handle, then flags, then tensors, the rows last: gradients are rounded to their type. The function
            gets the structure in place of its handle.
        empty: Makes an empty tensor like the result, from the same arguments.
        gradients: For each tensor, what computes its gradient from (ctx, gradient of the result, handle, flags, saved
            tensors); None for a tensor without gradient. Without any the operator is not differentiable. ctx.structure
            is the structure, ctx.extra an object that the call passes on.
        saved: Which of the tensors the gradients read.
    """
    name, num_options = schema.partition("(")[0], schema.count("str ") + schema.count("bool ")

    def register(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        _library.define(f"{schema} -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))  # type: ignore[no-untyped-call]

        def compute(handle: str, *inputs: Any) -> Tensor:
            return function(structure_for(KernelStructure, handle), *inputs)

        def make_empty(handle: str, *inputs: Any) -> Tensor:
            return empty(structure_for(KernelStructure, handle), *inputs)

        _library.impl(name, compute, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
        torch.library.register_fake(f"rgcn::{name}", make_empty, lib=_library)
        operator: Callable[..., Tensor] = getattr(torch.ops.rgcn, name).default
        differentiable: Any = _make_differentiable(gradients, saved)

        def call(structure: SparsePattern | Pairs | TripleIndex | str, *rest: Any, extra: Any = None) -> Any:
            if not isinstance(structure, str):
                if torch.compiler.is_compiling():
                    structure.prepare_for_tracing()
                structure = structure.handle
            inputs = structure, *rest
            if dispatch.use_reference:
                return compute(*inputs)
            if torch.compiler.is_compiling() or is_in_torch_dispatch_mode():
                return operator(*inputs)
            # Nothing is traced: the dispatcher would make the same calls, 10 to 30 µs later.
            if gradients and torch.is_grad_enabled():
                return differentiable.apply(compute, inputs[:num_options], extra, *inputs[num_options:])
            return compute(*inputs)

        def below_autograd(*inputs: Any) -> Tensor:
            with torch._C._AutoDispatchBelowAutograd():
                return operator(*inputs)

        def with_gradient(*inputs: Any) -> Any:
            return differentiable.apply(below_autograd, inputs[:num_options], None, *inputs[num_options:])

        if gradients:
            _library.impl(name, with_gradient, "Autograd")  # type: ignore[no-untyped-call]
        return call

    return register


def _make_differentiable(
    gradients: Sequence[Callable[..., Tensor | None] | None], saved: Callable[..., tuple[Tensor | None, ...]]
) -> type[torch.autograd.Function]:
    """Return what runs an operator and computes its gradients; arguments are those of `_operator`."""

    class Differentiable(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, run: Callable[..., Tensor], options: tuple[Any, ...], extra: Any, *inputs: Any) -> Any:
            ctx.options, ctx.extra, ctx.rows = options, extra, getattr(inputs[-1], "dtype", None)
            ctx.structure = structure_for(KernelStructure, options[0])  # keeps it alive for the backward pass
            ctx.save_for_backward(*saved(*inputs))
            return run(*options, *inputs)

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
            gradient = gradient if gradient.dtype == ctx.rows else gradient.to(ctx.rows)
            arguments = (ctx, gradient, *ctx.options, *ctx.saved_tensors)
            each = zip(gradients, ctx.needs_input_grad[3:], strict=True)  # a list, since a generator takes longer
            return None, None, None, *[f(*arguments) if f and is_needed else None for f, is_needed in each]

    return Differentiable


def _like_last(structure: KernelStructure, *tensors: Tensor) -> Tensor:
    return torch.empty_like(tensors[-1])


# -- types --------------------------------------------------------------------------------------------------


def _widened(x: Tensor) -> Tensor:
    """Convert half precision to float32 where the device has no kernels for it."""
    return x.float() if x.dtype in HALF and x.device.type != "cuda" else x


def _same_type(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Convert both to the wider of their types, then as `_widened`."""
    dtype = torch.promote_types(left.dtype, right.dtype)
    return _widened(left.to(dtype)), _widened(right.to(dtype))


def _weights_for(x: Tensor, weights: Tensor) -> Tensor:
    """Convert the weights of rows x to a type that kernels accept: Triton's accept float32 for half precision."""
    if weights.dtype == x.dtype:
        return weights
    return weights.to(torch.float32 if x.dtype in HALF and kernels_for(x) is not reference else x.dtype)


def _sum_type(x: Tensor) -> torch.dtype:
    """The type in which sums of x are computed, before they are rounded."""
    return torch.float32 if x.dtype in HALF else x.dtype


# -- a sparse matrix times a dense one ----------------------------------------------------------------------
# cache: True to cache values in the order of the entries for the next call (`SparsePattern.in_entry_order`). A compiled
# graph must not, because it may write other values into the same memory without a change of version.


def _ordered(pattern: SparsePattern, value: Tensor | None, x: Tensor, cache: bool) -> Tensor | None:
    if value is None:
        return None
    if cache or pattern.value_id is None:
        return _weights_for(x, pattern.in_entry_order(value))
    return _weights_for(x, value.index_select(0, pattern.value_id))


def _sum(pattern: SparsePattern, value: Tensor | None, x: Tensor, cache: bool = False) -> Tensor:
    wide = _widened(x)
    out: Tensor = kernels_for(wide).gather_sum(pattern, _ordered(pattern, value, wide, cache), wide)
    return out if wide is x else out.to(x.dtype)


@_operator(
    "gather_sum(str pattern, bool is_transposed, bool cache, Tensor? value, Tensor x)",
    lambda pattern, is_transposed, cache, value, x: x.new_empty(
        pattern.num_columns if is_transposed else pattern.num_rows, x.shape[1]
    ),
    lambda ctx, g, pattern, transposed, _, value, x: _entry_dot(pattern, *((x, g) if transposed else (g, x)), value),
    lambda ctx, g, pattern, transposed, cache, value, x: _gather_sum(pattern, not transposed, cache, value, g),
    saved=lambda value, x: (value, x if value is not None and value.requires_grad else None),
)
def _gather_sum(pattern: SparsePattern, is_transposed: bool, cache: bool, value: Tensor | None, x: Tensor) -> Tensor:
    return _sum(pattern.transpose if is_transposed else pattern, value, x, cache)


def _dot_type(left: Tensor, right: Tensor, value: Tensor | None) -> torch.dtype:
    return torch.promote_types(left.dtype, right.dtype) if value is None else value.dtype


@_operator(
    "entry_dot(str pattern, Tensor left, Tensor right, Tensor? value)",
    lambda pattern, left, right, value: left.new_empty(
        pattern.num_entries if value is None else len(value), dtype=_dot_type(left, right, value)
    ),
    lambda ctx, g, pattern, left, right, value: _gather_sum(pattern, False, False, g, right).to(left.dtype),
    lambda ctx, g, pattern, left, right, value: _gather_sum(pattern, True, False, g, left).to(right.dtype),
    None,
)
def _entry_dot(pattern: SparsePattern, left: Tensor, right: Tensor, value: Tensor | None) -> Tensor:
    """⟨left[row], right[column]⟩ of each entry, in the order of the values and, if there are any, of their type."""
    num_values, dtype = pattern.num_entries if value is None else len(value), _dot_type(left, right, value)
    left, right = _same_type(left, right)
    per_entry = kernels_for(left).entry_product(pattern.row, left, None, None, pattern.column, right)
    return pattern.in_value_order(per_entry, num_values).to(dtype)


def gather_sum(pattern: SparsePattern | str, value: Tensor | None, x: Tensor) -> Tensor:
    """Multiply the sparse matrix (pattern, value) by x. Differentiable in value and x.

    Args:
        pattern: The positions of the entries, or their handle.
        value: The values of the entries; None: all one.
        x: [num_columns, width].

    Returns:
        [num_rows, width].
    """
    return _gather_sum(pattern, False, not torch.compiler.is_compiling(), value, x)


def pair_dot(left: Tensor, right: Tensor, pattern: SparsePattern | str) -> Tensor:
    """out[e] = ⟨left[row[e]], right[column[e]]⟩ for the entries of a pattern, in the order of its values.

    Differentiable. left [num_rows, width], right [num_columns, width] → [num_entries]. Gathered rows are not stored.
    """
    return _entry_dot(pattern, left, right, None)


# -- selected rows ------------------------------------------------------------------------------------------


@_operator("put_rows(str pattern, Tensor x)", lambda pattern, x: x.new_empty(pattern.num_columns, x.shape[1]))
def _put_rows(pattern: SparsePattern, x: Tensor) -> Tensor:
    is_small = pattern.num_entries < MIN_SORTED_ROWS and x.device.type == "cpu" and x.element_size() >= 4
    if is_small and pattern.transient:
        # A CPU adds the rows in this order. Sorting a few rows for a single use would take longer.
        return x.new_zeros(pattern.num_columns, x.shape[1]).index_add_(0, pattern.column, x)
    return _sum(pattern.transpose, None, x)


@_operator(
    "take_rows(str pattern, Tensor x)",
    lambda pattern, x: x.new_empty(pattern.num_rows, *x.shape[1:]),
    lambda ctx, gradient, pattern: _put_rows(pattern, gradient),
    saved=lambda x: (),
)
def _take_rows(pattern: SparsePattern, x: Tensor) -> Tensor:
    return x.index_select(0, pattern.column)


def take_rows(x: Tensor, index: Tensor | SparsePattern | str) -> Tensor:
    """Return x[index]. Differentiable; gradients of a row are added in a fixed order on every device.

    Args:
        x: [num_rows, width].
        index: int64 [n], or `SparsePattern.selection` of it, or its handle, if the same rows are taken repeatedly.

    Returns:
        [n, width].
    """
    if not isinstance(index, Tensor):
        return _take_rows(index, x)
    if torch.compiler.is_compiling():  # no pattern can be created while a graph is traced: use PyTorch's own gradient
        return x.index_select(0, index)
    selection = SparsePattern.selection(index, x.shape[0], transient=True)
    return _take_rows(selection.handle, x)


# -- the same sum with a diagonal matrix for each relation ------------------------------------------------------
# It is linear in the value, the scale and x, so each gradient is the same sum, viewed from another end of the edges.


@_operator(
    "scaled_sum(str edges, str role, bool cache, bool exact, Tensor? value, Tensor scale, Tensor x)",
    lambda edges, role, cache, exact, value, scale, x: x.new_empty(
        edges.size_of(role), x.shape[1], dtype=_sum_type(x) if exact else x.dtype
    ),
    lambda ctx, g, edges, _, cache, exact, value, scale, x: _entry_product(edges, g, scale, x, value),
    lambda ctx, g, edges, _, cache, exact, value, scale, x: _scale_gradient(edges, cache, value, x, g, scale),
    lambda ctx, g, edges, _, cache, exact, value, scale, x: _scaled_sum(edges, "source", cache, False, value, scale, g),
)
def _scaled_sum(
    edges: TripleIndex, role: str, cache: bool, exact: bool, value: Tensor | None, scale: Tensor, x: Tensor
) -> Tensor:
    (pattern, index), wide = edges.view_from(role), _widened(x)
    inputs = (pattern, _ordered(pattern, value, wide, cache), index, _weights_for(wide, scale), wide)
    out: Tensor = kernels_for(wide).gather_product_sum(*inputs, exact=exact)
    return out.to(_sum_type(x) if exact else x.dtype)


@_operator("scale_gradient(str edges, bool cache, Tensor? value, Tensor x, Tensor gradient, Tensor scale)", _like_last)
def _scale_gradient(
    edges: TripleIndex, cache: bool, value: Tensor | None, x: Tensor, gradient: Tensor, scale: Tensor
) -> Tensor:
    (pattern, index), wide = edges.view_from("relation"), _widened(gradient)
    inputs = (pattern, _ordered(pattern, value, wide, cache), index, _widened(x), wide)
    return kernels_for(wide).gather_product_sum(*inputs, width=scale.shape[1]).to(scale.dtype)  # type: ignore[no-any-return]


@_operator("entry_product(str edges, Tensor left, Tensor middle, Tensor right, Tensor value)", _like_last)
def _entry_product(edges: TripleIndex, left: Tensor, middle: Tensor, right: Tensor, value: Tensor) -> Tensor:
    """Σ_w left[target, w] · middle[relation, w] · right[source, w] for each edge, [num_edges], of the type of `value`.

    A narrower `middle` is repeated, in memory: a table of relations is small compared with the rows.
    """
    left, right = _same_type(left, right)
    middle = reference.repeated(_weights_for(left, middle), left.shape[1])
    out: Tensor = kernels_for(left).entry_product(edges.target, left, edges.relation, middle, edges.source, right)
    return out.to(value.dtype)


def scaled_sum(edges: TripleIndex, value: Tensor | None, scale: Tensor, x: Tensor, *, exact: bool = False) -> Tensor:
    """out[t] = Σ_{edges e into t} value[e] · scale[relation[e]] ⊙ x[source[e]]. Differentiable.

    Args:
        edges: The edges.
        value: [num_edges]; None: all one.
        scale: [num_relations, width]. If x holds the vectors of several questions side by side, `scale` may be
            [num_relations, width / num_questions], the same for each question.
        x: [num_sources, width].
        exact: For half precision, return the sum in float32 instead of rounding it to x's type.

    Returns:
        [num_targets, width].

    Raises:
        ValueError: The widths do not fit.
    """
    if scale.shape[1] != x.shape[1] and (scale.shape[1] == 0 or x.shape[1] % scale.shape[1]):
        raise ValueError(
            f"The relations' table has {scale.shape[1]} columns, x has {x.shape[1]}. Give a table as wide as x, or as "
            "wide as one of several equal parts of it."
        )
    return _scaled_sum(edges, "target", not torch.compiler.is_compiling(), exact, value, scale, x)


# -- bases combined into rows of pairs and, its transpose, rows of pairs summed into bases ----------------------


def _bases_gradient(ctx: Any, gradient: Tensor, pairs: str, coefficients: Tensor, bases: Tensor) -> Tensor | None:
    if ctx.extra is None:
        return _spread_bases(pairs, coefficients, gradient)
    # A copy, because the optimizer may change the coefficients before the bases.
    ctx.extra.append(FactoredGradient(coefficients.clone(), gradient, ctx.structure))
    return None


@_operator(
    "combine_bases(str pairs, Tensor coefficients, Tensor bases)",
    lambda pairs, coefficients, bases: bases.new_empty(len(pairs), bases.shape[2]),
    lambda ctx, g, pairs, coefficients, bases: _coefficient_gradient(pairs, bases, g, coefficients),
    _bases_gradient,
)
def _combine_bases(pairs: Pairs, coefficients: Tensor, bases: Tensor) -> Tensor:
    wide = _widened(bases)
    return kernels_for(wide).combine_bases(_weights_for(wide, coefficients), wide, pairs).to(bases.dtype)  # type: ignore[no-any-return]


@_operator(
    "spread_bases(str pairs, Tensor coefficients, Tensor rows)",
    lambda pairs, coefficients, rows: rows.new_empty(pairs.num_nodes, coefficients.shape[1], rows.shape[1]),
    lambda ctx, g, pairs, coefficients, rows: _coefficient_gradient(pairs, g, rows, coefficients),
    lambda ctx, g, pairs, coefficients, rows: _combine_bases(pairs, coefficients, g),
)
def _spread_bases(pairs: Pairs, coefficients: Tensor, rows: Tensor) -> Tensor:
    wide = _widened(rows)
    return kernels_for(wide).spread_bases(_weights_for(wide, coefficients), wide, pairs).to(rows.dtype)  # type: ignore[no-any-return]


@_operator("coefficient_gradient(str pairs, Tensor bases, Tensor rows, Tensor coefficients)", _like_last)
def _coefficient_gradient(pairs: Pairs, bases: Tensor, rows: Tensor, coefficients: Tensor) -> Tensor:
    bases, rows = _same_type(bases, rows)
    return kernels_for(bases).coefficient_gradient(bases, rows, pairs).to(coefficients.dtype)  # type: ignore[no-any-return]


def combine_bases(
    coefficients: Tensor, bases: Tensor, pairs: Pairs | str, factored: list[FactoredGradient] | None = None
) -> Tensor:
    """out[p] = Σ_b coefficients[relation[p], b] · bases[node[p], b]. Differentiable.

    Args:
        coefficients: [num_relations, num_bases].
        bases: [num_nodes, num_bases, width].
        pairs: Pairs sorted by node, or their handle.
        factored: The backward pass appends the factors of the bases' gradient to this list instead of computing the
            gradient. A compiled graph ignores the list.

    Returns:
        [num_pairs, width].
    """
    return _combine_bases(pairs, coefficients, bases, extra=factored)


def spread_bases(coefficients: Tensor, rows: Tensor, pairs: Pairs | str) -> Tensor:
    """out[n, b] = Σ_{pairs p of n} coefficients[relation[p], b] · rows[p]. Differentiable.

    coefficients [num_relations, num_bases], rows [num_pairs, width], pairs sorted by node →
    [num_nodes, num_bases, width].
    """
    return _spread_bases(pairs, coefficients, rows)


# -- a product with each relation's matrix --------------------------------------------------------------------


def _without_autocast(x: Tensor) -> AbstractContextManager[object]:
    """Disable autocast, which would round what has just been converted to float32."""
    device = x.device.type
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


@_operator(
    "grouped_product(str pairs, Tensor weight, Tensor x)",
    lambda pairs, weight, x: x.new_empty(x.shape[0], weight.shape[1], weight.shape[3]),
    lambda ctx, g, pairs, weight, x: _grouped_outer(pairs, x, g, weight),
    lambda ctx, g, pairs, weight, x: _grouped_product(pairs, weight.transpose(2, 3), g),
)
def _grouped_product(pairs: Pairs, weight: Tensor, x: Tensor) -> Tensor:
    """Multiply in the type of x: matrix units take both factors in one type."""
    wide = _widened(x)
    weight = weight.to(wide.dtype)
    with _without_autocast(wide):
        out: Tensor = product_kernels(wide, weight).grouped_product(wide, weight, pairs)
    return out if wide is x else out.to(x.dtype)


@_operator("grouped_outer(str pairs, Tensor x, Tensor gradient, Tensor weight)", _like_last)
def _grouped_outer(pairs: Pairs, x: Tensor, gradient: Tensor, weight: Tensor) -> Tensor:
    x, gradient = _same_type(x, gradient)
    with _without_autocast(x):
        return product_kernels(x, weight).grouped_outer(x, gradient, pairs).to(weight.dtype)  # type: ignore[no-any-return]


def grouped_product(x: Tensor, weight: Tensor, pairs: Pairs | str) -> Tensor:
    """out[p, k] = x[p, k] @ weight[r, k] for each pair p of relation r. Differentiable.

    x [num_pairs, K, in], weight [num_relations, K, in, out], pairs sorted by relation → [num_pairs, K, out].
    """
    return _grouped_product(pairs, weight, x)
