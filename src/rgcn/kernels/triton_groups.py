"""Triton: pairs sorted by relation, each multiplied by the matrix of its relation.

A program takes one piece of a relation's pairs. Matrices large enough go through `tl.dot` (DOT), BLOCK_I inputs × BLOCK
outputs at a time; small blocks, diagonals and float64 go by BLOCK columns, where a column is any number of the
flattened row: lanes stay busy even where a block is 1 x 1.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def product(  # type: ignore[no-untyped-def]
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
    DOT: tl.constexpr,
    ACC: tl.constexpr,
    PRECISION: tl.constexpr,
    PAIRS: tl.constexpr,
    BLOCK_I: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """out[p, k] = x[p, k] @ weight[r, k] for the pairs of one piece."""
    begin = tl.load(begin_ptr + tl.program_id(0))
    end = tl.load(end_ptr + tl.program_id(0))
    if begin < end:
        relation = tl.load(row_ptr + tl.program_id(0)).to(tl.int64)
        if DOT:  # for one k, one block of outputs
            out_blocks: tl.constexpr = (OUT + BLOCK - 1) // BLOCK
            k = tl.program_id(1) // out_blocks
            o = (tl.program_id(1) % out_blocks) * BLOCK + tl.arange(0, BLOCK)
            p = begin + tl.arange(0, PAIRS)
            live = p < end
            pk = p.to(tl.int64) * num_blocks + k
            weight = weight_ptr + relation * stride_r + k.to(tl.int64) * stride_k
            acc = tl.zeros([PAIRS, BLOCK], dtype=ACC)
            for i0 in range(0, IN, BLOCK_I):
                i = i0 + tl.arange(0, BLOCK_I)
                x_at = x_ptr + pk[:, None] * IN + i[None, :]
                x = tl.load(x_at, mask=live[:, None] & (i < IN)[None, :], other=0)
                w_at = weight + i[:, None] * stride_i + o[None, :] * stride_o
                w = tl.load(w_at, mask=(i < IN)[:, None] & (o < OUT)[None, :], other=0).to(x.dtype)
                acc = tl.dot(x, w, acc, input_precision=PRECISION)
            out_at = out_ptr + pk[:, None] * OUT + o[None, :]
            tl.store(out_at, acc.to(out_ptr.dtype.element_ty), mask=live[:, None] & (o < OUT)[None, :])
        else:  # column c is output c % OUT of block c // OUT
            num_columns = num_blocks * OUT
            c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
            inside = c < num_columns
            k = c // OUT
            weight = weight_ptr + relation * stride_r + k.to(tl.int64) * stride_k + (c % OUT) * stride_o
            for p0 in range(begin, end, PAIRS):
                p = p0 + tl.arange(0, PAIRS)
                live = p < end
                here = live[:, None] & inside[None, :]
                p_wide = p.to(tl.int64)
                x_at = x_ptr + p_wide[:, None] * (num_blocks * IN) + (k * IN)[None, :]
                acc = tl.zeros([PAIRS, BLOCK], dtype=ACC)
                for i in range(0, IN):
                    w = tl.load(weight + i * stride_i, mask=inside, other=0).to(ACC)
                    acc += tl.load(x_at + i, mask=here, other=0).to(ACC) * w[None, :]
                out_at = out_ptr + p_wide[:, None] * num_columns + c[None, :]
                tl.store(out_at, acc.to(out_ptr.dtype.element_ty), mask=here)


@triton.jit(do_not_specialize=["num_relations"])
def outer(  # type: ignore[no-untyped-def]
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
    DOT: tl.constexpr,
    ACC: tl.constexpr,
    PRECISION: tl.constexpr,
    PAIRS: tl.constexpr,
    BLOCK_I: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Σ_p x[p, k]ᵀ gradient[p, k] over one piece, to the relation's place or to the piece's slot."""
    relation = tl.load(row_ptr + tl.program_id(0))
    if relation < num_relations:
        begin = tl.load(begin_ptr + tl.program_id(0))
        end = tl.load(end_ptr + tl.program_id(0))
        slot = tl.load(slot_ptr + tl.program_id(0))
        size = num_blocks * (IN * OUT)
        if DOT:
            in_blocks: tl.constexpr = (IN + BLOCK_I - 1) // BLOCK_I
            out_blocks: tl.constexpr = (OUT + BLOCK - 1) // BLOCK
            k = tl.program_id(1) // (in_blocks * out_blocks)
            block = tl.program_id(1) % (in_blocks * out_blocks)
            i = (block // out_blocks) * BLOCK_I + tl.arange(0, BLOCK_I)
            o = (block % out_blocks) * BLOCK + tl.arange(0, BLOCK)
            total = tl.zeros([BLOCK_I, BLOCK], dtype=ACC)
            for p0 in range(begin, end, PAIRS):
                p = p0 + tl.arange(0, PAIRS)
                live = p < end
                pk = p.to(tl.int64) * num_blocks + k
                x_at = x_ptr + pk[:, None] * IN + i[None, :]
                g_at = gradient_ptr + pk[:, None] * OUT + o[None, :]
                x = tl.load(x_at, mask=live[:, None] & (i < IN)[None, :], other=0)
                g = tl.load(g_at, mask=live[:, None] & (o < OUT)[None, :], other=0).to(x.dtype)
                total = tl.dot(tl.trans(x), g, total, input_precision=PRECISION)
            inside = (i < IN)[:, None] & (o < OUT)[None, :]
            within = k.to(tl.int64) * (IN * OUT) + (i * OUT)[:, None] + o[None, :]
        else:  # column c is one number of the relation's [K, IN, OUT]
            within = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
            inside = within < size
            k = within // (IN * OUT)
            x_column = k * IN + (within // OUT) % IN
            g_column = k * OUT + within % OUT
            acc = tl.zeros([PAIRS, BLOCK], dtype=ACC)
            for p0 in range(begin, end, PAIRS):
                p = p0 + tl.arange(0, PAIRS)
                here = (p < end)[:, None] & inside[None, :]
                p_wide = p.to(tl.int64)
                x_at = x_ptr + p_wide[:, None] * (num_blocks * IN) + x_column[None, :]
                g_at = gradient_ptr + p_wide[:, None] * (num_blocks * OUT) + g_column[None, :]
                acc += tl.load(x_at, mask=here, other=0).to(ACC) * tl.load(g_at, mask=here, other=0).to(ACC)
            total = tl.sum(acc, axis=0)
        if slot < 0:
            tl.store(out_ptr + relation.to(tl.int64) * size + within, total.to(out_ptr.dtype.element_ty), mask=inside)
        else:
            tl.store(partial_ptr + slot.to(tl.int64) * size + within, total, mask=inside)
