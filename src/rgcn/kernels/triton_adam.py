"""Triton: Adam on a table of bases, its gradient made a node at a time and never written out."""

from __future__ import annotations

import triton
import triton.language as tl

from rgcn.kernels.triton_bases import spread_one


@triton.jit
def adam_bases(  # type: ignore[no-untyped-def]
    table_ptr,
    mean_ptr,
    square_ptr,
    coefficient_ptr,
    rows_ptr,
    pointer_ptr,
    relation_ptr,
    rate_ptr,
    root_ptr,
    new_mean,
    old_square,
    new_square,
    eps,
    decay,
    NUM_BASES: tl.constexpr,
    WIDTH: tl.constexpr,
    ACC: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """g[n, b] = Σ_{pairs p of n} coefficient[relation[p], b] · rows[p], as `triton_bases.spread`; then Adam with g."""
    n = tl.program_id(0)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = place < NUM_BASES * WIDTH
    at = n.to(tl.int64) * (NUM_BASES * WIDTH) + place
    # The table and its moments are asked for first: they are on their way while the gradient is summed.
    value = tl.load(table_ptr + at, mask=inside, other=0).to(ACC)
    mean = tl.load(mean_ptr + at, mask=inside, other=0).to(ACC)
    square = tl.load(square_ptr + at, mask=inside, other=0).to(ACC)
    rate = tl.load(rate_ptr).to(ACC)
    root = tl.load(root_ptr).to(ACC)
    begin = tl.load(pointer_ptr + n)
    end = tl.load(pointer_ptr + n + 1)
    slope = spread_one(coefficient_ptr, rows_ptr, relation_ptr, begin, end, place, NUM_BASES, WIDTH, ACC, BLOCK)
    slope += decay * value
    mean += new_mean * (slope - mean)
    square = old_square * square + new_square * slope * slope
    value -= rate * mean / (tl.sqrt(square) / root + eps)
    tl.store(table_ptr + at, value.to(table_ptr.dtype.element_ty), mask=inside)
    tl.store(mean_ptr + at, mean.to(mean_ptr.dtype.element_ty), mask=inside)
    tl.store(square_ptr + at, square.to(square_ptr.dtype.element_ty), mask=inside)
