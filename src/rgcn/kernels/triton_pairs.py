"""Triton: pairs sorted by node, and the bases of their nodes; pairs sorted by relation, and its matrix.

Where a program takes a tile of pairs sorted by node, the pairs of one node are neighbours: they ask for the same bases
in the same instruction, or a moment later from the cache, so that bases come from memory once.

Of pairs sorted by relation a program takes one piece of a relation's. Matrices large enough go through `tl.dot` (DOT),
BLOCK_I inputs × BLOCK outputs at a time; small blocks, diagonals and float64 go by BLOCK columns, where a column is any
number of the flattened row: lanes stay busy even where a block is 1 x 1.
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
    NUM_BASES: tl.constexpr,
    WIDTH: tl.constexpr,
    ACC: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """table[n, b] = Σ_{pairs p of n} coefficient[relation[p], b] · rows[p]: a node a program, written once.

    With mean and the rest, that sum is the gradient of table, is never written out, and table takes a step of Adam.

    Laid flat, neighboring threads hold neighboring numbers whatever the width, and nothing is exchanged between them;
    coefficients and rows are few, and come from the cache.
    """
    n = tl.program_id(0)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = place < NUM_BASES * WIDTH
    at = n.to(tl.int64) * (NUM_BASES * WIDTH) + place
    if mean_ptr is not None:  # asked for first: they are on their way while the gradient is summed
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
    if mean_ptr is not None:
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


@triton.jit
def product(  # type: ignore[no-untyped-def]
    parts_ptr,
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
    piece = parts_ptr + tl.program_id(0)
    begin = tl.load(piece + tl.num_programs(0))
    end = tl.load(piece + 2 * tl.num_programs(0))
    if begin < end:
        relation = tl.load(piece).to(tl.int64)
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
    parts_ptr,
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
    piece = parts_ptr + tl.program_id(0)
    relation = tl.load(piece)
    if relation < num_relations:
        begin = tl.load(piece + tl.num_programs(0))
        end = tl.load(piece + 2 * tl.num_programs(0))
        slot = tl.load(piece + 3 * tl.num_programs(0))
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
