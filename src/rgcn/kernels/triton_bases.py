"""Triton: pairs sorted by node, and the bases of their nodes.

Where a program takes a tile of pairs, the pairs of one node are neighbours: they ask for the same bases in the same
instruction, or a moment later from the cache, so that bases come from memory once.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["num_pairs"])
def combine(  # type: ignore[no-untyped-def]
    coefficient_ptr,
    bases_ptr,
    relation_ptr,
    node_ptr,
    out_ptr,
    num_pairs,
    NUM_BASES: tl.constexpr,
    WIDTH: tl.constexpr,
    ACC: tl.constexpr,
    PAIRS: tl.constexpr,
    BLOCK_W: tl.constexpr,
    UNROLL: tl.constexpr,  # divides NUM_BASES
):
    """out[p] = Σ_b coefficient[relation[p], b] · bases[node[p], b]: nothing to reduce between threads."""
    p = tl.program_id(0).to(tl.int64) * PAIRS + tl.arange(0, PAIRS)
    live = p < num_pairs
    w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    here = live[:, None] & (w < WIDTH)[None, :]
    relation = tl.load(relation_ptr + p, mask=live, other=0).to(tl.int64)
    node = tl.load(node_ptr + p, mask=live, other=0).to(tl.int64)
    coefficients = coefficient_ptr + relation * NUM_BASES
    bases = bases_ptr + node[:, None] * (NUM_BASES * WIDTH) + w[None, :]
    acc = tl.zeros([PAIRS, BLOCK_W], dtype=ACC)
    for b in range(0, NUM_BASES, UNROLL):
        for u in tl.static_range(UNROLL):
            c = tl.load(coefficients + (b + u), mask=live, other=0).to(ACC)
            acc += c[:, None] * tl.load(bases + (b + u) * WIDTH, mask=here, other=0).to(ACC)
    tl.store(out_ptr + p[:, None] * WIDTH + w[None, :], acc.to(out_ptr.dtype.element_ty), mask=here)


@triton.jit
def spread(  # type: ignore[no-untyped-def]
    coefficient_ptr,
    rows_ptr,
    pointer_ptr,
    relation_ptr,
    table_ptr,
    mean_ptr,
    square_ptr,
    rate_ptr,
    root_ptr,
    new_mean,
    old_square,
    new_square,
    eps,
    decay,
    ADAM: tl.constexpr,
    NUM_BASES: tl.constexpr,
    WIDTH: tl.constexpr,
    ACC: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """table[n, b] = Σ_{pairs p of n} coefficient[relation[p], b] · rows[p]: a node a program, written once.

    ADAM: that sum is the gradient of table, is never written out, and table takes a step of Adam.

    Laid flat, neighboring threads hold neighboring numbers whatever the width, and nothing is exchanged between them;
    coefficients and rows are few, and come from the cache.
    """
    n = tl.program_id(0)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = place < NUM_BASES * WIDTH
    at = n.to(tl.int64) * (NUM_BASES * WIDTH) + place
    if ADAM:  # asked for first: they are on their way while the gradient is summed
        value = tl.load(table_ptr + at, mask=inside, other=0).to(ACC)
        mean = tl.load(mean_ptr + at, mask=inside, other=0).to(ACC)
        square = tl.load(square_ptr + at, mask=inside, other=0).to(ACC)
        rate = tl.load(rate_ptr).to(ACC)
        root = tl.load(root_ptr).to(ACC)
    begin = tl.load(pointer_ptr + n)
    end = tl.load(pointer_ptr + n + 1)
    b = place // WIDTH
    w = place - b * WIDTH
    total = tl.zeros([BLOCK], dtype=ACC)
    for j in range(0, end - begin, 2):
        for u in tl.static_range(2):
            p = tl.minimum(begin + (j + u), end - 1)  # beyond the last pair: the last again, counted as nothing
            live = inside & (place * 0 + (begin + (j + u)) < end)
            relation = tl.load(relation_ptr + p).to(tl.int64)
            c = tl.load(coefficient_ptr + relation * NUM_BASES + b, mask=live, other=0).to(ACC)
            total += c * tl.load(rows_ptr + p.to(tl.int64) * WIDTH + w, mask=live, other=0).to(ACC)
    if ADAM:
        total += decay * value
        mean += new_mean * (total - mean)
        square = old_square * square + new_square * total * total
        total = value - rate * mean / (tl.sqrt(square) / root + eps)
        tl.store(mean_ptr + at, mean.to(mean_ptr.dtype.element_ty), mask=inside)
        tl.store(square_ptr + at, square.to(square_ptr.dtype.element_ty), mask=inside)
    tl.store(table_ptr + at, total.to(table_ptr.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["num_bases"])
def node_products(  # type: ignore[no-untyped-def]
    bases_ptr,
    rows_ptr,
    pointer_ptr,
    out_ptr,
    num_bases,
    NODE_STRIDE: tl.constexpr,
    WIDTH: tl.constexpr,
    ACC: tl.constexpr,
    BLOCK_B: tl.constexpr,
    BLOCK_W: tl.constexpr,
):
    """As `pair_products`, a node a program: its bases are few enough to be held while its pairs pass by."""
    n = tl.program_id(0)
    begin = tl.load(pointer_ptr + n)
    end = tl.load(pointer_ptr + n + 1)
    if begin < end:
        b = tl.arange(0, BLOCK_B)
        w = tl.arange(0, BLOCK_W)
        here = (b < num_bases)[:, None] & (w < WIDTH)[None, :]
        at = bases_ptr + n.to(tl.int64) * NODE_STRIDE + (b * WIDTH)[:, None] + w[None, :]
        bases = tl.load(at, mask=here, other=0).to(ACC)
        for j in range(0, end - begin):
            p = begin + j
            x = tl.load(rows_ptr + p.to(tl.int64) * WIDTH + w, mask=w < WIDTH, other=0).to(ACC)
            total = tl.sum(bases * x[None, :], axis=1)
            tl.store(out_ptr + p.to(tl.int64) * num_bases + b, total, mask=b < num_bases)


@triton.jit(do_not_specialize=["num_pairs", "num_bases"])
def pair_products(  # type: ignore[no-untyped-def]
    bases_ptr,
    rows_ptr,
    node_ptr,
    out_ptr,
    num_pairs,
    num_bases,
    NODE_STRIDE: tl.constexpr,
    WIDTH: tl.constexpr,
    ACC: tl.constexpr,
    PAIRS: tl.constexpr,
    BLOCK_B: tl.constexpr,
    BLOCK_W: tl.constexpr,
):
    """out[p, b] = ⟨bases[node[p], b], rows[p]⟩ for the num_bases bases that begin at bases_ptr."""
    p = tl.program_id(0).to(tl.int64) * PAIRS + tl.arange(0, PAIRS)
    live = p < num_pairs
    b = tl.program_id(1) * BLOCK_B + tl.arange(0, BLOCK_B)
    is_base = b < num_bases
    here = live[:, None] & is_base[None, :]
    node = tl.load(node_ptr + p, mask=live, other=0).to(tl.int64) * NODE_STRIDE
    base = node[:, None] + (b * WIDTH)[None, :]
    acc = tl.zeros([PAIRS, BLOCK_B, BLOCK_W], dtype=ACC)
    for w0 in range(0, WIDTH, BLOCK_W):
        w = w0 + tl.arange(0, BLOCK_W)
        inside = w < WIDTH
        x_at = rows_ptr + p[:, None] * WIDTH + w[None, :]
        x = tl.load(x_at, mask=live[:, None] & inside[None, :], other=0).to(ACC)
        v_at = bases_ptr + base[:, :, None] + w[None, None, :]
        v = tl.load(v_at, mask=here[:, :, None] & inside[None, None, :], other=0).to(ACC)
        acc += v * x[:, None, :]
    tl.store(out_ptr + p[:, None] * num_bases + b[None, :], tl.sum(acc, axis=2), mask=here)
