"""The primitives for `torch.compile`: operators that a compiler can put into its graph without looking inside.

In eager mode the gradients are `torch.autograd.Function`s that hold a pattern or pairs as Python objects, and the
kernels are numba or Triton. A compiler can trace neither. So the same primitives are registered with PyTorch as
operators `rgcn::…`, which name their pattern by a *handle*, a word that stands for an object of this process. The shape
of a result follows from the object and the shapes of the tensors, and every gradient is one of these operators again:
forward and backward become one graph each, without breaks.

Handles are words and not numbers because a compiler may decide to treat a number as variable. They are never the same
in two processes, so that a compiled graph kept on disk is not taken for another graph's.
"""

from __future__ import annotations

import ctypes
import uuid
import weakref
from collections.abc import Callable
from itertools import count
from typing import Any, TypeVar

import torch
from torch import Tensor

from rgcn.kernels import primitives
from rgcn.pairs import Pairs
from rgcn.sparse import SparsePattern, TripleIndex

Held = TypeVar("Held", SparsePattern, Pairs, TripleIndex)
Thing = TypeVar("Thing")

# -- handles ----------------------------------------------------------------------------------------------

_objects: weakref.WeakValueDictionary[str, SparsePattern | Pairs | TripleIndex] = weakref.WeakValueDictionary()
_numbers = count()
_process = uuid.uuid4().hex[:12]


def object_at(address: int, kind: type[Thing]) -> Thing:
    """The object whose `id` this is; it must be alive.

    Why such a thing is needed: a function that runs while a graph is traced (`assume_constant_result`) can be given
    constants, but objects only in the newest PyTorch (2.13 does, 2.11 does not). `id(thing)` is a constant: the
    compiler makes the graph hold for this very object, which the traced function keeps alive meanwhile.
    """
    thing = ctypes.cast(address, ctypes.py_object).value
    assert isinstance(thing, kind), f"a {kind.__name__} was expected, not a {type(thing).__name__}"
    return thing


def handle_of(thing: SparsePattern | Pairs | TripleIndex) -> str:
    """The word that stands for this object as long as it lives. Known when a graph is compiled, constant in it."""
    return _handle_at(id(thing))  # type: ignore[no-any-return, unused-ignore]


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator, unused-ignore]
def _handle_at(address: int) -> str:
    thing: Any = object_at(address, object)
    known: str | None = thing.__dict__.get("_handle")
    # A copy brings its original's handle along: it gets one of its own.
    if known is None or _objects.get(known) is not thing:
        if not thing.__dict__:  # the compiler's stand-in for an object that will exist when the graph runs
            raise RuntimeError(
                f"a {type(thing).__name__} was made inside a compiled function: make it outside, and pass it in"
            )
        known = thing.__dict__["_handle"] = f"{type(thing).__name__}-{_process}-{next(_numbers)}"
        _objects[known] = thing
        _make_ready(thing)
    return known


def _make_ready(thing: SparsePattern | Pairs | TripleIndex) -> None:
    """Make what the kernels of a GPU keep with an object, before any graph runs.

    With `mode="reduce-overhead"` the compiled graph is recorded as a CUDA graph: what would first be made then would
    lie in the recording's memory, and be written over.
    """
    if isinstance(thing, SparsePattern):
        if thing.column.is_cuda:
            _ = thing.row, thing.pieces, thing.transpose.row, thing.transpose.pieces
    elif thing.relation.is_cuda:
        if isinstance(thing, Pairs):
            _ = thing.bounds, thing.tiles, thing.by_relation.pieces
        else:
            _ = [view.pieces for view, _ in (thing.by_target, thing.by_relation, thing.by_source)]


def _object(kind: type[Held], handle: str) -> Held:
    found = _objects.get(handle)
    if not isinstance(found, kind):
        raise RuntimeError(
            f"{handle} is gone: a compiled graph needs the adjacency it was compiled for. Keep the adjacency at least "
            "until the backward pass is done, and compile in the process that runs"
        )
    return found


def _pattern(handle: str) -> SparsePattern:
    return _object(SparsePattern, handle)


def _pairs(handle: str) -> Pairs:
    return _object(Pairs, handle)


def _edges(handle: str) -> TripleIndex:
    return _object(TripleIndex, handle)


# -- operators --------------------------------------------------------------------------------------------

_library = torch.library.Library("rgcn", "DEF")  # type: ignore[no-untyped-call]
RUNS: dict[Any, Callable[..., Tensor]] = {}
"""What each operator computes, for whoever must look inside (`plain`)."""


def _define(schema: str, run: Callable[..., Tensor], shape: Callable[..., Tensor]) -> Any:
    """Register an operator: what it computes on any device, and the shape and type of what it will give."""
    name = schema.partition("(")[0]
    _library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))  # type: ignore[no-untyped-call]
    _library.impl(name, run, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"rgcn::{name}", shape, lib=_library)
    operator = getattr(torch.ops.rgcn, name).default
    RUNS[operator] = run
    return operator


def _differentiable(operator: Any, setup: Callable[..., None], backward: Callable[..., Any]) -> None:
    torch.library.register_autograd(operator, backward, setup_context=setup, lib=_library)


def _new(x: Tensor, *shape: Any) -> Tensor:
    return x.new_empty(shape)


# A sparse matrix times a dense one. Its values are not remembered in order, as they are in eager mode: a compiler may
# write others into the same memory without saying so.


def _sum(pattern: str, value: Tensor | None, x: Tensor) -> Tensor:
    return primitives.gather_sum(_pattern(pattern), value, x, remember=False)


def _transposed_sum(pattern: str, value: Tensor | None, x: Tensor) -> Tensor:
    return primitives.gather_sum(_pattern(pattern).transpose, value, x, remember=False)


def _value_gradient(pattern: str, left: Tensor, right: Tensor, value: Tensor) -> Tensor:
    return primitives.entry_dot(_pattern(pattern), left, right, value.numel(), value.dtype)


gather_sum = _define(
    "gather_sum(str pattern, Tensor? value, Tensor x) -> Tensor",
    _sum,
    lambda pattern, value, x: _new(x, _pattern(pattern).num_rows, x.shape[1]),
)
_gather_sum_transposed = _define(
    "gather_sum_transposed(str pattern, Tensor? value, Tensor x) -> Tensor",
    _transposed_sum,
    lambda pattern, value, x: _new(x, _pattern(pattern).num_columns, x.shape[1]),
)
_gather_sum_value = _define(
    "gather_sum_value_gradient(str pattern, Tensor left, Tensor right, Tensor value) -> Tensor",
    _value_gradient,
    lambda pattern, left, right, value: _new(value, value.numel()),
)


def _save_sum(ctx: Any, inputs: tuple[str, Tensor | None, Tensor], output: Tensor) -> None:
    ctx.pattern, value, x = inputs
    ctx.save_for_backward(value, x if ctx.needs_input_grad[1] else None)


def _gather_sum_backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor | None, Tensor | None]:
    value, x = ctx.saved_tensors
    grad_value = grad_x = None
    if ctx.needs_input_grad[1]:
        grad_value = _gather_sum_value(ctx.pattern, gradient, x, value)
    if ctx.needs_input_grad[2]:
        grad_x = _gather_sum_transposed(ctx.pattern, value, gradient)
    return None, grad_value, grad_x


_differentiable(gather_sum, _save_sum, _gather_sum_backward)


# The same sum with a diagonal matrix for each relation.

_SEEN_FROM: dict[str, Callable[[TripleIndex], tuple[SparsePattern, Tensor]]] = {
    "target": lambda edges: edges.by_target,
    "relation": lambda edges: edges.by_relation,
    "source": lambda edges: edges.by_source,
}
_ROLES = ("target", "relation", "source")


def _product_sum(edges: str, by: str, value: Tensor | None, left: Tensor, x: Tensor) -> Tensor:
    return primitives.gather_product_sum(_SEEN_FROM[by](_edges(edges)), value, left, x, remember=False)


def _product_value_gradient(edges: str, gradient: Tensor, scale: Tensor, x: Tensor, value: Tensor) -> Tensor:
    found = _edges(edges)
    return primitives.entry_product((found.target, found.relation, found.source), gradient, scale, x, value.dtype)


_scaled_sum = _define(
    "scaled_sum(str edges, str by, Tensor? value, Tensor left, Tensor x) -> Tensor",
    _product_sum,
    lambda edges, by, value, left, x: _new(x, _edges(edges).sizes[_ROLES.index(by)], x.shape[1]),
)
_scaled_sum_value = _define(
    "scaled_sum_value_gradient(str edges, Tensor gradient, Tensor scale, Tensor x, Tensor value) -> Tensor",
    _product_value_gradient,
    lambda edges, gradient, scale, x, value: _new(value, value.numel()),
)


def _save_scaled_sum(ctx: Any, inputs: tuple[str, str, Tensor | None, Tensor, Tensor], output: Tensor) -> None:
    ctx.edges, _, value, scale, x = inputs
    ctx.save_for_backward(value, scale, x)


def _scaled_sum_backward(ctx: Any, gradient: Tensor) -> tuple[None, None, Tensor | None, Tensor | None, Tensor | None]:
    value, scale, x = ctx.saved_tensors
    grad_value = grad_scale = grad_x = None
    if ctx.needs_input_grad[2]:
        grad_value = _scaled_sum_value(ctx.edges, gradient, scale, x, value)
    if ctx.needs_input_grad[3]:
        grad_scale = _scaled_sum(ctx.edges, "relation", value, x, gradient).to(scale.dtype)
    if ctx.needs_input_grad[4]:
        grad_x = _scaled_sum(ctx.edges, "source", value, scale, gradient)
    return None, None, grad_value, grad_scale, grad_x


_differentiable(_scaled_sum, _save_scaled_sum, _scaled_sum_backward)


def scaled_sum(edges: str, value: Tensor | None, scale: Tensor, x: Tensor) -> Tensor:
    out: Tensor = _scaled_sum(edges, "target", value, scale, x)
    return out


# Bases combined into pairs and, its transpose, pairs spread over bases.

combine_bases = _define(
    "combine_bases(str pairs, Tensor coefficients, Tensor bases) -> Tensor",
    lambda pairs, coefficients, bases: primitives.combine_bases(coefficients, bases, _pairs(pairs)),
    lambda pairs, coefficients, bases: _new(bases, len(_pairs(pairs)), bases.shape[2]),
)
spread_bases = _define(
    "spread_bases(str pairs, Tensor coefficients, Tensor rows) -> Tensor",
    lambda pairs, coefficients, rows: primitives.spread_bases(coefficients, rows, _pairs(pairs)),
    lambda pairs, coefficients, rows: _new(rows, _pairs(pairs).num_nodes, coefficients.shape[1], rows.shape[1]),
)
_coefficient_gradient = _define(
    "coefficient_gradient(str pairs, Tensor bases, Tensor rows, Tensor coefficients) -> Tensor",
    lambda pairs, bases, rows, coefficients: primitives.coefficient_gradient(
        bases, rows, _pairs(pairs), coefficients.dtype
    ),
    lambda pairs, bases, rows, coefficients: _new(coefficients, *coefficients.shape),
)


def _save_bases(ctx: Any, inputs: tuple[str, Tensor, Tensor], output: Tensor) -> None:
    ctx.pairs, coefficients, other = inputs
    ctx.save_for_backward(coefficients, other)


def _combine_backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor | None, Tensor | None]:
    coefficients, bases = ctx.saved_tensors
    grad_coefficients = grad_bases = None
    if ctx.needs_input_grad[1]:
        grad_coefficients = _coefficient_gradient(ctx.pairs, bases, gradient, coefficients)
    if ctx.needs_input_grad[2]:
        grad_bases = spread_bases(ctx.pairs, coefficients, gradient)
    return None, grad_coefficients, grad_bases


def _spread_backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor | None, Tensor | None]:
    coefficients, rows = ctx.saved_tensors
    grad_coefficients = grad_rows = None
    if ctx.needs_input_grad[1]:
        grad_coefficients = _coefficient_gradient(ctx.pairs, gradient, rows, coefficients)
    if ctx.needs_input_grad[2]:
        grad_rows = combine_bases(ctx.pairs, coefficients, gradient)
    return None, grad_coefficients, grad_rows


_differentiable(combine_bases, _save_bases, _combine_backward)
_differentiable(spread_bases, _save_bases, _spread_backward)


# A product with each relation's matrix.

grouped_product = _define(
    "grouped_product(str pairs, Tensor x, Tensor weight) -> Tensor",
    lambda pairs, x, weight: primitives.grouped_product(x, weight, _pairs(pairs)),
    lambda pairs, x, weight: _new(x, x.shape[0], weight.shape[1], weight.shape[3]),
)
_grouped_outer = _define(
    "grouped_outer(str pairs, Tensor x, Tensor gradient, Tensor weight) -> Tensor",
    lambda pairs, x, gradient, weight: primitives.grouped_outer(x, gradient, _pairs(pairs), weight),
    lambda pairs, x, gradient, weight: _new(weight, *weight.shape),
)


def _save_product(ctx: Any, inputs: tuple[str, Tensor, Tensor], output: Tensor) -> None:
    ctx.pairs, x, weight = inputs
    ctx.save_for_backward(x, weight)


def _product_backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor | None, Tensor | None]:
    x, weight = ctx.saved_tensors
    grad_x = grad_weight = None
    if ctx.needs_input_grad[1]:
        grad_x = grouped_product(ctx.pairs, gradient, weight.transpose(2, 3))
    if ctx.needs_input_grad[2]:
        grad_weight = _grouped_outer(ctx.pairs, x, gradient, weight)
    return None, grad_x, grad_weight


_differentiable(grouped_product, _save_product, _product_backward)


# Rows picked, and products at a pattern's entries.


def _entry_dots(pattern: str, left: Tensor, right: Tensor) -> Tensor:
    found = _pattern(pattern)
    kind = torch.promote_types(left.dtype, right.dtype)
    return primitives.entry_dot(found, left, right, found.num_entries, kind)


take_rows = _define(
    "take_rows(str pattern, Tensor x) -> Tensor",
    lambda pattern, x: x.index_select(0, _pattern(pattern).column),
    lambda pattern, x: _new(x, _pattern(pattern).num_rows, *x.shape[1:]),
)
pair_dot = _define(
    "pair_dot(str pattern, Tensor left, Tensor right) -> Tensor",
    _entry_dots,
    lambda pattern, left, right: left.new_empty(
        _pattern(pattern).num_entries, dtype=torch.promote_types(left.dtype, right.dtype)
    ),
)


def _save_rows(ctx: Any, inputs: tuple[str, Tensor], output: Tensor) -> None:
    ctx.pattern = inputs[0]


def _take_rows_backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
    return None, _gather_sum_transposed(ctx.pattern, None, gradient)


def _save_pair_dot(ctx: Any, inputs: tuple[str, Tensor, Tensor], output: Tensor) -> None:
    ctx.pattern, left, right = inputs
    ctx.save_for_backward(left, right)


def _pair_dot_backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor | None, Tensor | None]:
    left, right = ctx.saved_tensors
    grad_left = grad_right = None
    if ctx.needs_input_grad[1]:
        grad_left = gather_sum(ctx.pattern, gradient, right).to(left.dtype)
    if ctx.needs_input_grad[2]:
        grad_right = _gather_sum_transposed(ctx.pattern, gradient, left).to(right.dtype)
    return None, grad_left, grad_right


_differentiable(take_rows, _save_rows, _take_rows_backward)
_differentiable(pair_dot, _save_pair_dot, _pair_dot_backward)
