"""Triton: pairs sorted by relation, each multiplied by the matrix of its relation.

A program takes one piece of a relation's pairs. Matrices large enough go through `tl.dot`; small blocks, diagonals and
float64 go column by column, where a column is any (block, output) of the flattened row: lanes stay busy even where a
block is 1 x 1.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def product_dot(  # type: ignore[no-untyped-def]
    row_ptr,
    begin_ptr,
    end_ptr,
    x_ptr,
    weight_ptr,
    out_ptr,
    num_blocks,
    stride_r,
    stride_k,
    stride_i,
    stride_o,
    IN: tl.constexpr,
    OUT: tl.constexpr,
    PRECISION: tl.constexpr,
    PAIRS: tl.constexpr,
    BLOCK_I: tl.constexpr,
    BLOCK_O: tl.constexpr,
):
    """out[p, k] = x[p, k] @ weight[r, k] for the pairs of one piece, one k, one block of outputs."""
    begin = tl.load(begin_ptr + tl.program_id(0))
    end = tl.load(end_ptr + tl.program_id(0))
    if begin < end:
        relation = tl.load(row_ptr + tl.program_id(0)).to(tl.int64)
        out_blocks: tl.constexpr = (OUT + BLOCK_O - 1) // BLOCK_O
        k = tl.program_id(1) // out_blocks
        o = (tl.program_id(1) % out_blocks) * BLOCK_O + tl.arange(0, BLOCK_O)
        p = begin + tl.arange(0, PAIRS)
        live = p < end
        pk = p.to(tl.int64) * num_blocks + k
        weight = weight_ptr + relation * stride_r + k.to(tl.int64) * stride_k
        acc = tl.zeros([PAIRS, BLOCK_O], dtype=tl.float32)
        for i0 in range(0, IN, BLOCK_I):
            i = i0 + tl.arange(0, BLOCK_I)
            x_at = x_ptr + pk[:, None] * IN + i[None, :]
            x = tl.load(x_at, mask=live[:, None] & (i < IN)[None, :], other=0)
            w_at = weight + i[:, None] * stride_i + o[None, :] * stride_o
            w = tl.load(w_at, mask=(i < IN)[:, None] & (o < OUT)[None, :], other=0).to(x.dtype)
            acc = tl.dot(x, w, acc, input_precision=PRECISION)
        out_at = out_ptr + pk[:, None] * OUT + o[None, :]
        tl.store(out_at, acc.to(out_ptr.dtype.element_ty), mask=live[:, None] & (o < OUT)[None, :])


@triton.jit
def product_columns(  # type: ignore[no-untyped-def]
    row_ptr,
    begin_ptr,
    end_ptr,
    x_ptr,
    weight_ptr,
    out_ptr,
    num_blocks,
    stride_r,
    stride_k,
    stride_i,
    stride_o,
    IN: tl.constexpr,
    OUT: tl.constexpr,
    ACC: tl.constexpr,
    PAIRS: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """The same where column c is output c % OUT of block c // OUT."""
    begin = tl.load(begin_ptr + tl.program_id(0))
    end = tl.load(end_ptr + tl.program_id(0))
    if begin < end:
        relation = tl.load(row_ptr + tl.program_id(0)).to(tl.int64)
        num_columns = num_blocks * OUT
        c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
        inside = c < num_columns
        k = c // OUT
        weight = weight_ptr + relation * stride_r + k.to(tl.int64) * stride_k + (c % OUT) * stride_o
        for p0 in range(begin, end, PAIRS):
            p = p0 + tl.arange(0, PAIRS)
            live = p < end
            here = live[:, None] & inside[None, :]
            p_wide = p.to(tl.int64)
            x_at = x_ptr + p_wide[:, None] * (num_blocks * IN) + (k * IN)[None, :]
            acc = tl.zeros([PAIRS, BLOCK_C], dtype=ACC)
            for i in range(0, IN):
                w = tl.load(weight + i * stride_i, mask=inside, other=0).to(ACC)
                acc += tl.load(x_at + i, mask=here, other=0).to(ACC) * w[None, :]
            out_at = out_ptr + p_wide[:, None] * num_columns + c[None, :]
            tl.store(out_at, acc.to(out_ptr.dtype.element_ty), mask=here)


@triton.jit(do_not_specialize=["num_relations"])
def outer_dot(  # type: ignore[no-untyped-def]
    row_ptr,
    begin_ptr,
    end_ptr,
    slot_ptr,
    x_ptr,
    gradient_ptr,
    out_ptr,
    partial_ptr,
    num_blocks,
    num_relations,
    IN: tl.constexpr,
    OUT: tl.constexpr,
    PRECISION: tl.constexpr,
    PAIRS: tl.constexpr,
    BLOCK_I: tl.constexpr,
    BLOCK_O: tl.constexpr,
):
    """Σ_p x[p, k]ᵀ gradient[p, k] over one piece, to the relation's place or to the piece's slot."""
    relation = tl.load(row_ptr + tl.program_id(0))
    if relation < num_relations:
        begin = tl.load(begin_ptr + tl.program_id(0))
        end = tl.load(end_ptr + tl.program_id(0))
        slot = tl.load(slot_ptr + tl.program_id(0))
        in_blocks: tl.constexpr = (IN + BLOCK_I - 1) // BLOCK_I
        out_blocks: tl.constexpr = (OUT + BLOCK_O - 1) // BLOCK_O
        k = tl.program_id(1) // (in_blocks * out_blocks)
        block = tl.program_id(1) % (in_blocks * out_blocks)
        i = (block // out_blocks) * BLOCK_I + tl.arange(0, BLOCK_I)
        o = (block % out_blocks) * BLOCK_O + tl.arange(0, BLOCK_O)
        acc = tl.zeros([BLOCK_I, BLOCK_O], dtype=tl.float32)
        for p0 in range(begin, end, PAIRS):
            p = p0 + tl.arange(0, PAIRS)
            live = p < end
            pk = p.to(tl.int64) * num_blocks + k
            x_at = x_ptr + pk[:, None] * IN + i[None, :]
            g_at = gradient_ptr + pk[:, None] * OUT + o[None, :]
            x = tl.load(x_at, mask=live[:, None] & (i < IN)[None, :], other=0)
            g = tl.load(g_at, mask=live[:, None] & (o < OUT)[None, :], other=0).to(x.dtype)
            acc = tl.dot(tl.trans(x), g, acc, input_precision=PRECISION)
        here = (i < IN)[:, None] & (o < OUT)[None, :]
        within = k.to(tl.int64) * (IN * OUT) + (i * OUT)[:, None] + o[None, :]
        size = num_blocks * (IN * OUT)
        if slot < 0:
            tl.store(out_ptr + relation.to(tl.int64) * size + within, acc.to(out_ptr.dtype.element_ty), mask=here)
        else:
            tl.store(partial_ptr + slot.to(tl.int64) * size + within, acc, mask=here)


@triton.jit(do_not_specialize=["num_relations"])
def outer_columns(  # type: ignore[no-untyped-def]
    row_ptr,
    begin_ptr,
    end_ptr,
    slot_ptr,
    x_ptr,
    gradient_ptr,
    out_ptr,
    partial_ptr,
    num_blocks,
    num_relations,
    IN: tl.constexpr,
    OUT: tl.constexpr,
    ACC: tl.constexpr,
    PAIRS: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """The same where column c is one number of the relation's [K, IN, OUT]."""
    relation = tl.load(row_ptr + tl.program_id(0))
    if relation < num_relations:
        begin = tl.load(begin_ptr + tl.program_id(0))
        end = tl.load(end_ptr + tl.program_id(0))
        slot = tl.load(slot_ptr + tl.program_id(0))
        num_columns = num_blocks * (IN * OUT)
        c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
        inside = c < num_columns
        k = c // (IN * OUT)
        x_column = k * IN + (c // OUT) % IN
        g_column = k * OUT + c % OUT
        acc = tl.zeros([PAIRS, BLOCK_C], dtype=ACC)
        for p0 in range(begin, end, PAIRS):
            p = p0 + tl.arange(0, PAIRS)
            here = (p < end)[:, None] & inside[None, :]
            p_wide = p.to(tl.int64)
            x_at = x_ptr + p_wide[:, None] * (num_blocks * IN) + x_column[None, :]
            g_at = gradient_ptr + p_wide[:, None] * (num_blocks * OUT) + g_column[None, :]
            acc += tl.load(x_at, mask=here, other=0).to(ACC) * tl.load(g_at, mask=here, other=0).to(ACC)
        total = tl.sum(acc, axis=0)
        if slot < 0:
            at = relation.to(tl.int64) * num_columns + c
            tl.store(out_ptr + at, total.to(out_ptr.dtype.element_ty), mask=inside)
        else:
            tl.store(partial_ptr + slot.to(tl.int64) * num_columns + c, total, mask=inside)
