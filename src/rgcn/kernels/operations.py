"""The primitives as differentiable operations on numbers of any precision, each registered with PyTorch once.

Autograd and compilers cannot look into numba or Triton. So each primitive is an operator `rgcn::…`, called in eager
mode and by `torch.compile` alike: it takes tensors, and names its pattern, pairs or edges by their word. The shape of
its result follows from these, and every gradient is one of the operators again: a compiled forward and backward pass
are one graph each, without breaks.

In eager mode nobody asks the dispatcher: what it would call is called at once. Through the dispatcher a step on AIFB,
a millisecond made of four such operations, took 13 % longer.

Kernels take tensors of one type, with values in the order of a pattern's entries. Here is the one place where types are
widened and results rounded, by two rules:

- Half precision (bfloat16, float16) holds results, never sums. On a CPU, which has no kernels for it, the operands are
  widened to float32 and the result is rounded once; on a GPU the kernels read half precision and add in float32.
- The result has the type of the rows that are summed. What weighs them (values of edges, coefficients) may be of
  another type, and is not rounded to that of the rows: an edge's 1/3 stays 1/3 while the features are bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from rgcn.kernels import dispatch, reference
from rgcn.kernels.dispatch import kernels_for, product_kernels
from rgcn.kernels.reference import FactoredGradient
from rgcn.kernels.sparse import Named, Pairs, SparsePattern, TripleIndex, named

# Rows whose gradients PyTorch adds one by one sooner than they are sorted.
WORTH_SORTING = 4096
HALF = (torch.bfloat16, torch.float16)

Gradients = tuple[Tensor | None, ...]

_library = torch.library.Library("rgcn", "DEF")  # type: ignore[no-untyped-call]


def _operator(
    schema: str,
    empty: Callable[..., Tensor],
    gradients: Callable[..., Gradients] | None = None,
    saved: Callable[..., Gradients] = lambda *tensors: tensors,
) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Register the decorated function, which computes on any device, as an operator; returns the function to call.

    schema     its words, then its tensors; the first word stands for an object, which functions are given in its place
    empty      makes an empty tensor like its result
    gradients  (ctx, gradient, and for each of its tensors whether it wants one) → those of its tensors; ctx.words and
               ctx.saved_tensors are what it was called with, ctx.extra is what the call brought along
    saved      which of its tensors the gradients will read
    """
    name, num_words = schema.partition("(")[0], schema.count("str ") + schema.count("bool ")

    def register(run: Callable[..., Tensor]) -> Callable[..., Tensor]:
        _library.define(f"{schema} -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))  # type: ignore[no-untyped-call]

        def computed(word: str, *inputs: Any) -> Tensor:
            return run(named(Named, word), *inputs)

        _library.impl(name, computed, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
        torch.library.register_fake(
            f"rgcn::{name}", lambda word, *inputs: empty(named(Named, word), *inputs), lib=_library
        )
        operator: Callable[..., Tensor] = getattr(torch.ops.rgcn, name).default

        class Differentiable(torch.autograd.Function):
            @staticmethod
            def forward(
                ctx: Any, compute: Callable[..., Tensor], words: tuple[Any, ...], extra: Any, *tensors: Any
            ) -> Any:
                ctx.words, ctx.extra = words, extra
                ctx.thing = named(Named, words[0])  # lives as long as the gradient may ask for it
                ctx.save_for_backward(*saved(*tensors))
                return compute(*words, *tensors)

            @staticmethod
            @once_differentiable
            def backward(ctx: Any, gradient: Tensor) -> Gradients:
                assert gradients is not None
                return None, None, None, *gradients(ctx, gradient, *ctx.needs_input_grad[3:])

        def call(*inputs: Any, extra: Any = None) -> Any:
            if dispatch.plain:
                return computed(*inputs)
            if torch.compiler.is_compiling() or is_in_torch_dispatch_mode():
                return operator(*inputs)
            # Nobody traces: the dispatcher would call what is called here, 10 to 30 µs later.
            if gradients is not None and torch.is_grad_enabled():
                return Differentiable.apply(computed, inputs[:num_words], extra, *inputs[num_words:])  # type: ignore[no-untyped-call]
            return computed(*inputs)

        def below_autograd(*inputs: Any) -> Tensor:
            with torch._C._AutoDispatchBelowAutograd():
                return operator(*inputs)

        def with_gradient(*inputs: Any) -> Any:
            return Differentiable.apply(below_autograd, inputs[:num_words], None, *inputs[num_words:])  # type: ignore[no-untyped-call]

        if gradients is not None:
            _library.impl(name, with_gradient, "Autograd")  # type: ignore[no-untyped-call]
        return call

    return register


def _word(thing: SparsePattern | Pairs | TripleIndex | str) -> str:
    if isinstance(thing, str):
        return thing
    if torch.compiler.is_compiling():
        thing.make_ready()
    return thing.word


def _like_last(thing: Named, *tensors: Tensor) -> Tensor:
    return torch.empty_like(tensors[-1])


# -- types --------------------------------------------------------------------------------------------------


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


def _in_type(dtype: torch.dtype, out: Tensor) -> Tensor:
    return out if out.dtype == dtype else out.to(dtype)


def _sum_type(x: Tensor) -> torch.dtype:
    """What sums of x are kept in before they are rounded."""
    return torch.float32 if x.dtype in HALF else x.dtype


# -- a sparse matrix times a dense one ----------------------------------------------------------------------
# remember: whether values, once put in order, may be kept for the next call (`SparsePattern.arranged`). Not in a
# compiled graph, which may write others into the same memory without saying so.


def _arranged(pattern: SparsePattern, value: Tensor | None, x: Tensor, remember: bool) -> Tensor | None:
    if value is None:
        return None
    if remember or pattern.entry is None:
        return _beside(pattern.arranged(value), x)
    return _beside(value.index_select(0, pattern.entry), x)


def _sum(pattern: SparsePattern, value: Tensor | None, x: Tensor, remember: bool = False) -> Tensor:
    wide = _wide(x)
    return _in_type(x.dtype, kernels_for(wide).gather_sum(pattern, _arranged(pattern, value, wide, remember), wide))


def _gather_sum_gradients(ctx: Any, gradient: Tensor, for_value: bool, for_x: bool) -> Gradients:
    (pattern, transposed, remember), (value, x) = ctx.words, ctx.saved_tensors
    left, right = (x, gradient) if transposed else (gradient, x)
    return (
        _entry_dot(pattern, left, right, value) if for_value else None,
        _gather_sum(pattern, not transposed, remember, value, gradient) if for_x else None,
    )


@_operator(
    "gather_sum(str pattern, bool transposed, bool remember, Tensor? value, Tensor x)",
    lambda pattern, transposed, remember, value, x: x.new_empty(
        pattern.num_columns if transposed else pattern.num_rows, x.shape[1]
    ),
    _gather_sum_gradients,
    saved=lambda value, x: (value, x if value is not None and value.requires_grad else None),
)
def _gather_sum(pattern: SparsePattern, transposed: bool, remember: bool, value: Tensor | None, x: Tensor) -> Tensor:
    return _sum(pattern.transpose if transposed else pattern, value, x, remember)


def _entry_dot_gradients(ctx: Any, gradient: Tensor, for_left: bool, for_right: bool, for_value: bool) -> Gradients:
    (pattern,), (left, right, _) = ctx.words, ctx.saved_tensors
    return (
        _gather_sum(pattern, False, False, gradient, right).to(left.dtype) if for_left else None,
        _gather_sum(pattern, True, False, gradient, left).to(right.dtype) if for_right else None,
        None,
    )


@_operator(
    "entry_dot(str pattern, Tensor left, Tensor right, Tensor? value)",
    lambda pattern, left, right, value: (
        left.new_empty(pattern.num_entries, dtype=torch.promote_types(left.dtype, right.dtype))
        if value is None
        else torch.empty_like(value)
    ),
    _entry_dot_gradients,
)
def _entry_dot(pattern: SparsePattern, left: Tensor, right: Tensor, value: Tensor | None) -> Tensor:
    """⟨left[row], right[column]⟩ of each entry, in the place of its value: like `value`, where there is one."""
    dtype = torch.promote_types(left.dtype, right.dtype) if value is None else value.dtype
    left, right = _alike(left, right)
    of_entry = kernels_for(left).entry_product(pattern.row, left, None, None, pattern.column, right)
    return _in_type(dtype, pattern.given_back(of_entry, pattern.num_entries if value is None else len(value)))


def gather_sum(pattern: SparsePattern | str, value: Tensor | None, x: Tensor) -> Tensor:
    """The sparse matrix (pattern, value) times x: [rows, columns] · [columns, width] → [rows, width].

    value None stands for ones. Differentiable in value and x.
    """
    return _gather_sum(_word(pattern), False, not torch.compiler.is_compiling(), value, x)


def pair_dot(left: Tensor, right: Tensor, pattern: SparsePattern | str) -> Tensor:
    """out[e] = ⟨left[row[e]], right[column[e]]⟩ for the entries of a pattern, in the order of its values.

    Differentiable. left [rows, width], right [columns, width] → [entries]; the gathered matrices are never written out.
    """
    return _entry_dot(_word(pattern), left, right, None)


# -- rows picked --------------------------------------------------------------------------------------------


@_operator("put_rows(str pattern, Tensor x)", lambda pattern, x: x.new_empty(pattern.num_columns, x.shape[1]))
def _put_rows(pattern: SparsePattern, x: Tensor) -> Tensor:
    few = pattern.num_entries < WORTH_SORTING and x.device.type == "cpu" and x.element_size() >= 4
    if few and pattern.transient:
        # On a CPU one row is added after the other, in this order: a few need not be sorted for a single use.
        return x.new_zeros(pattern.num_columns, x.shape[1]).index_add_(0, pattern.column, x)
    return _sum(pattern.transpose, None, x)


@_operator(
    "take_rows(str pattern, Tensor x)",
    lambda pattern, x: x.new_empty(pattern.num_rows, *x.shape[1:]),
    lambda ctx, gradient, for_x: (_put_rows(*ctx.words, gradient),),
    saved=lambda x: (),
)
def _take_rows(pattern: SparsePattern, x: Tensor) -> Tensor:
    return x.index_select(0, pattern.column)


def take_rows(x: Tensor, index: Tensor | SparsePattern | str) -> Tensor:
    """x[index]: [entries, width]. Differentiable; a row's gradients are added in a fixed order, whatever the device.

    index [entries], or a pattern with one entry a row where the same rows are taken again and again.
    """
    if not isinstance(index, Tensor):
        return _take_rows(_word(index), x)
    if torch.compiler.is_compiling():  # a pattern cannot be made while a graph is traced: PyTorch's own gradient
        return x.index_select(0, index)
    picking = SparsePattern.picking(index, x.shape[0], transient=True)
    return _take_rows(picking.word, x)


# -- the same sum with a diagonal matrix for each relation ------------------------------------------------------
# A form linear in the value, the scale and x: each gradient is the same sum seen from another end of the edges.


def _scaled_sum_gradients(ctx: Any, gradient: Tensor, for_value: bool, for_scale: bool, for_x: bool) -> Gradients:
    (edges, _, remember, _), (value, scale, x) = ctx.words, ctx.saved_tensors
    gradient = gradient.to(x.dtype)
    return (
        _entry_product(edges, gradient, scale, x, value) if for_value else None,
        _scale_gradient(edges, remember, value, x, gradient, scale) if for_scale else None,
        _scaled_sum(edges, "source", remember, False, value, scale, gradient) if for_x else None,
    )


@_operator(
    "scaled_sum(str edges, str by, bool remember, bool exact, Tensor? value, Tensor left, Tensor x)",
    lambda edges, by, remember, exact, value, left, x: x.new_empty(
        edges.size_of(by), x.shape[1], dtype=_sum_type(x) if exact else x.dtype
    ),
    _scaled_sum_gradients,
)
def _scaled_sum(
    edges: TripleIndex, by: str, remember: bool, exact: bool, value: Tensor | None, left: Tensor, x: Tensor
) -> Tensor:
    """exact: of half precision, the sum as it was added up, in float32."""
    (pattern, index), wide = edges.seen_from(by), _wide(x)
    given = (pattern, _arranged(pattern, value, wide, remember), index, _beside(left, wide), wide)
    out = kernels_for(wide).gather_product_sum(*given, exact=exact)
    return _in_type(_sum_type(x) if exact else x.dtype, out)


@_operator(
    "scale_gradient(str edges, bool remember, Tensor? value, Tensor x, Tensor gradient, Tensor scale)", _like_last
)
def _scale_gradient(
    edges: TripleIndex, remember: bool, value: Tensor | None, x: Tensor, gradient: Tensor, scale: Tensor
) -> Tensor:
    (pattern, index), wide = edges.seen_from("relation"), _wide(gradient)
    given = (pattern, _arranged(pattern, value, wide, remember), index, _wide(x), wide)
    return _in_type(scale.dtype, kernels_for(wide).gather_product_sum(*given, width=scale.shape[1]))


@_operator("entry_product(str edges, Tensor left, Tensor middle, Tensor right, Tensor value)", _like_last)
def _entry_product(edges: TripleIndex, left: Tensor, middle: Tensor, right: Tensor, value: Tensor) -> Tensor:
    """[edges]: Σ_w left[target, w] · middle[relation, w] · right[source, w], like value.

    A narrower `middle` is repeated, in memory: it is a table of relations, small beside the rows.
    """
    left, right = _alike(left, right)
    middle = reference.repeated(_beside(middle, left), left.shape[1])
    out = kernels_for(left).entry_product(edges.target, left, edges.relation, middle, edges.source, right)
    return _in_type(value.dtype, out)


def scaled_sum(edges: TripleIndex, value: Tensor | None, scale: Tensor, x: Tensor, *, exact: bool = False) -> Tensor:
    """out[t] = Σ_{edges e into t} value[e] · scale[relation[e]] ⊙ x[source[e]]: [targets, width]. Differentiable.

    value [edges] or None (all one), scale [relations, width], x [sources, width]. Where the vectors of several
    questions stand side by side in x, scale may be narrower, [relations, width / questions]: the same for each of them.
    exact: of half precision, the sum as it was added up, in float32; else rounded to x's type.
    """
    if scale.shape[1] != x.shape[1] and (scale.shape[1] == 0 or x.shape[1] % scale.shape[1]):
        raise ValueError(
            f"The relations' table has {scale.shape[1]} columns, x has {x.shape[1]}. Give a table as wide as x, or as "
            "wide as one of several equal parts of it."
        )
    return _scaled_sum(_word(edges), "target", not torch.compiler.is_compiling(), exact, value, scale, x)


# -- bases combined into pairs and, its transpose, pairs spread over bases ---------------------------------------


def _combine_gradients(ctx: Any, gradient: Tensor, for_coefficients: bool, for_bases: bool) -> Gradients:
    (pairs,), (coefficients, bases), factored = ctx.words, ctx.saved_tensors, ctx.extra
    if for_bases and factored is not None:
        # a copy: the optimizer may change the coefficients before it comes to the bases
        factored.append(FactoredGradient(coefficients.clone(), gradient, ctx.thing))
    return (
        _coefficient_gradient(pairs, bases, gradient, coefficients) if for_coefficients else None,
        _spread_bases(pairs, coefficients, gradient) if for_bases and factored is None else None,
    )


@_operator(
    "combine_bases(str pairs, Tensor coefficients, Tensor bases)",
    lambda pairs, coefficients, bases: bases.new_empty(len(pairs), bases.shape[2]),
    _combine_gradients,
)
def _combine_bases(pairs: Pairs, coefficients: Tensor, bases: Tensor) -> Tensor:
    wide = _wide(bases)
    return _in_type(bases.dtype, kernels_for(wide).combine_bases(_beside(coefficients, wide), wide, pairs))


def _spread_gradients(ctx: Any, gradient: Tensor, for_coefficients: bool, for_rows: bool) -> Gradients:
    (pairs,), (coefficients, rows) = ctx.words, ctx.saved_tensors
    return (
        _coefficient_gradient(pairs, gradient, rows, coefficients) if for_coefficients else None,
        _combine_bases(pairs, coefficients, gradient) if for_rows else None,
    )


@_operator(
    "spread_bases(str pairs, Tensor coefficients, Tensor rows)",
    lambda pairs, coefficients, rows: rows.new_empty(pairs.num_nodes, coefficients.shape[1], rows.shape[1]),
    _spread_gradients,
)
def _spread_bases(pairs: Pairs, coefficients: Tensor, rows: Tensor) -> Tensor:
    wide = _wide(rows)
    return _in_type(rows.dtype, kernels_for(wide).spread_bases(_beside(coefficients, wide), wide, pairs))


@_operator("coefficient_gradient(str pairs, Tensor bases, Tensor rows, Tensor coefficients)", _like_last)
def _coefficient_gradient(pairs: Pairs, bases: Tensor, rows: Tensor, coefficients: Tensor) -> Tensor:
    bases, rows = _alike(bases, rows)
    return _in_type(coefficients.dtype, kernels_for(bases).coefficient_gradient(bases, rows, pairs))


def combine_bases(
    coefficients: Tensor, bases: Tensor, pairs: Pairs | str, factored: list[FactoredGradient] | None = None
) -> Tensor:
    """out[p] = Σ_b coefficients[relation[p], b] · bases[node[p], b]; pairs sorted by node. Differentiable.

    With a list `factored`, the gradient of the bases is put there as its factors instead of being written out;
    a compiled graph writes it out.
    """
    return _combine_bases(_word(pairs), coefficients, bases, extra=factored)


def spread_bases(coefficients: Tensor, rows: Tensor, pairs: Pairs | str) -> Tensor:
    """out[n, b] = Σ_{pairs p of n} coefficients[relation[p], b] · rows[p]; pairs sorted by node. Differentiable."""
    return _spread_bases(_word(pairs), coefficients, rows)


# -- a product with each relation's matrix --------------------------------------------------------------------


def _unrounded(x: Tensor) -> AbstractContextManager[object]:
    """Without autocast, which would round what has just been widened."""
    device = x.device.type
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


def _product_gradients(ctx: Any, gradient: Tensor, for_x: bool, for_weight: bool) -> Gradients:
    (pairs,), (x, weight) = ctx.words, ctx.saved_tensors
    return (
        _grouped_product(pairs, gradient, weight.transpose(2, 3)) if for_x else None,
        _grouped_outer(pairs, x, gradient, weight) if for_weight else None,
    )


@_operator(
    "grouped_product(str pairs, Tensor x, Tensor weight)",
    lambda pairs, x, weight: x.new_empty(x.shape[0], weight.shape[1], weight.shape[3]),
    _product_gradients,
)
def _grouped_product(pairs: Pairs, x: Tensor, weight: Tensor) -> Tensor:
    """Matrix units take both of one type: that of x."""
    wide = _wide(x)
    weight = weight.to(wide.dtype)
    with _unrounded(wide):
        return _in_type(x.dtype, product_kernels(wide, weight).grouped_product(wide, weight, pairs))


@_operator("grouped_outer(str pairs, Tensor x, Tensor gradient, Tensor weight)", _like_last)
def _grouped_outer(pairs: Pairs, x: Tensor, gradient: Tensor, weight: Tensor) -> Tensor:
    x, gradient = _alike(x, gradient)
    with _unrounded(x):
        return _in_type(weight.dtype, product_kernels(x, weight).grouped_outer(x, gradient, pairs))


def grouped_product(x: Tensor, weight: Tensor, pairs: Pairs | str) -> Tensor:
    """out[p, k] = x[p, k] @ weight[r, k] for each pair p of relation r; pairs sorted by relation. Differentiable.

    x [pairs, K, in], weight [R, K, in, out] → [pairs, K, out].
    """
    return _grouped_product(_word(pairs), x, weight)
