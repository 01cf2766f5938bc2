"""Triton kernels for pairs: sums over the bases of their nodes, and products with the matrices of their relations.

For pairs sorted by node, the pairs of one node are neighbors in a tile. They read the same bases in the same
instruction, or soon after from the cache, so bases are read from memory once.

For pairs sorted by relation, a program processes one piece of a relation's pairs. Large matrices are multiplied by
`tl.dot` (DOT), BLOCK_I inputs × BLOCK outputs at a time. Small blocks, diagonals and float64 are processed BLOCK
columns of the flattened row at a time, so that no lane is idle even if blocks are 1 × 1.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["num_pairs"])
def combine_bases(
    coefficient_ptr, bases_ptr, relation_ptr, node_ptr, out_ptr, num_pairs,
    NUM_BASES: tl.constexpr, WIDTH: tl.constexpr, ACC: tl.constexpr, PAIRS: tl.constexpr, BLOCK_W: tl.constexpr,
    UNROLL: tl.constexpr,
):  # fmt: skip
    """Compute out[p] = Σ_b coefficient[relation[p], b] · bases[node[p], b]; UNROLL divides NUM_BASES."""
    p = tl.program_id(0).to(tl.int64) * PAIRS + tl.arange(0, PAIRS)
    valid = p < num_pairs
    w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    mask = valid[:, None] & (w < WIDTH)[None, :]
    relation = tl.load(relation_ptr + p, mask=valid, other=0).to(tl.int64)
    node = tl.load(node_ptr + p, mask=valid, other=0).to(tl.int64)
    coefficients = coefficient_ptr + relation * NUM_BASES
    bases = bases_ptr + node[:, None] * (NUM_BASES * WIDTH) + w[None, :]
    acc = tl.zeros([PAIRS, BLOCK_W], dtype=ACC)
    for b in range(0, NUM_BASES, UNROLL):
        for u in tl.static_range(UNROLL):
            c = tl.load(coefficients + (b + u), mask=valid, other=0).to(ACC)
            acc += c[:, None] * tl.load(bases + (b + u) * WIDTH, mask=mask, other=0).to(ACC)
    tl.store(out_ptr + p[:, None] * WIDTH + w[None, :], acc.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def spread_bases(
    coefficient_ptr, rows_ptr, pointer_ptr, relation_ptr, table_ptr, mean_ptr, square_ptr, rate_ptr, root_ptr,
    new_mean, old_square, new_square, eps, decay,
    NUM_BASES: tl.constexpr, WIDTH: tl.constexpr, ACC: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute table[n, b] = Σ_{pairs p of n} coefficient[relation[p], b] · rows[p], a node per program.

    With mean and the parameters after it, that sum is the gradient of table, and table takes a step of Adam.

    Neighboring threads hold neighboring numbers of the flattened table, whatever the width, and exchange nothing.
    Coefficients and rows are few, and come from the cache.
    """
    n = tl.program_id(0)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = place < NUM_BASES * WIDTH
    at = n.to(tl.int64) * (NUM_BASES * WIDTH) + place
    if mean_ptr is not None:  # loaded first, to arrive while the gradient is summed
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
            p = tl.minimum(begin + (j + u), end - 1)  # after the last pair: the last one again, masked
            valid = inside & (place * 0 + (begin + (j + u)) < end)
            relation = tl.load(relation_ptr + p).to(tl.int64)
            c = tl.load(coefficient_ptr + relation * NUM_BASES + b, mask=valid, other=0).to(ACC)
            total += c * tl.load(rows_ptr + p.to(tl.int64) * WIDTH + w, mask=valid, other=0).to(ACC)
    if mean_ptr is not None:
        total += decay * value
        mean += new_mean * (total - mean)
        square = old_square * square + new_square * total * total
        total = value - rate * mean / (tl.sqrt(square) / root + eps)
        tl.store(mean_ptr + at, mean.to(mean_ptr.dtype.element_ty), mask=inside)
        tl.store(square_ptr + at, square.to(square_ptr.dtype.element_ty), mask=inside)
    tl.store(table_ptr + at, total.to(table_ptr.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["num_bases"])
def node_products(
    bases_ptr, rows_ptr, pointer_ptr, out_ptr, num_bases,
    NODE_STRIDE: tl.constexpr, WIDTH: tl.constexpr, ACC: tl.constexpr, BLOCK_B: tl.constexpr,
    BLOCK_W: tl.constexpr,
):  # fmt: skip
    """Like `pair_products`, a node per program: its bases are few enough to stay in registers for all its pairs."""
    n = tl.program_id(0)
    begin = tl.load(pointer_ptr + n)
    end = tl.load(pointer_ptr + n + 1)
    if begin < end:
        b = tl.arange(0, BLOCK_B)
        w = tl.arange(0, BLOCK_W)
        mask = (b < num_bases)[:, None] & (w < WIDTH)[None, :]
        at = bases_ptr + n.to(tl.int64) * NODE_STRIDE + (b * WIDTH)[:, None] + w[None, :]
        bases = tl.load(at, mask=mask, other=0).to(ACC)
        for j in range(0, end - begin):
            p = begin + j
            x = tl.load(rows_ptr + p.to(tl.int64) * WIDTH + w, mask=w < WIDTH, other=0).to(ACC)
            total = tl.sum(bases * x[None, :], axis=1)
            tl.store(out_ptr + p.to(tl.int64) * num_bases + b, total, mask=b < num_bases)


@triton.jit(do_not_specialize=["num_pairs", "num_bases"])
def pair_products(
    bases_ptr, rows_ptr, node_ptr, out_ptr, num_pairs, num_bases,
    NODE_STRIDE: tl.constexpr, WIDTH: tl.constexpr, ACC: tl.constexpr, PAIRS: tl.constexpr,
    BLOCK_B: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """Compute out[p, b] = ⟨bases[node[p], b], rows[p]⟩ for the num_bases bases that begin at bases_ptr."""
    p = tl.program_id(0).to(tl.int64) * PAIRS + tl.arange(0, PAIRS)
    valid = p < num_pairs
    b = tl.program_id(1) * BLOCK_B + tl.arange(0, BLOCK_B)
    is_base = b < num_bases
    mask = valid[:, None] & is_base[None, :]
    node = tl.load(node_ptr + p, mask=valid, other=0).to(tl.int64) * NODE_STRIDE
    base = node[:, None] + (b * WIDTH)[None, :]
    acc = tl.zeros([PAIRS, BLOCK_B, BLOCK_W], dtype=ACC)
    for w0 in range(0, WIDTH, BLOCK_W):
        w = w0 + tl.arange(0, BLOCK_W)
        inside = w < WIDTH
        x_at = rows_ptr + p[:, None] * WIDTH + w[None, :]
        x = tl.load(x_at, mask=valid[:, None] & inside[None, :], other=0).to(ACC)
        v_at = bases_ptr + base[:, :, None] + w[None, None, :]
        v = tl.load(v_at, mask=mask[:, :, None] & inside[None, None, :], other=0).to(ACC)
        acc += v * x[:, None, :]
    tl.store(out_ptr + p[:, None] * num_bases + b[None, :], tl.sum(acc, axis=2), mask=mask)


@triton.jit
def product(
    parts_ptr, x_ptr, weight_ptr, out_ptr, num_blocks, stride_r, stride_k, stride_i, stride_o,
    IN: tl.constexpr, OUT: tl.constexpr, DOT: tl.constexpr, ACC: tl.constexpr, PRECISION: tl.constexpr,
    PAIRS: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute out[p, k] = x[p, k] @ weight[r, k] for the pairs of one piece."""
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
            valid = p < end
            pk = p.to(tl.int64) * num_blocks + k
            weight = weight_ptr + relation * stride_r + k.to(tl.int64) * stride_k
            acc = tl.zeros([PAIRS, BLOCK], dtype=ACC)
            for i0 in range(0, IN, BLOCK_I):
                i = i0 + tl.arange(0, BLOCK_I)
                x_at = x_ptr + pk[:, None] * IN + i[None, :]
                x = tl.load(x_at, mask=valid[:, None] & (i < IN)[None, :], other=0)
                w_at = weight + i[:, None] * stride_i + o[None, :] * stride_o
                w = tl.load(w_at, mask=(i < IN)[:, None] & (o < OUT)[None, :], other=0).to(x.dtype)
                acc = tl.dot(x, w, acc, input_precision=PRECISION)
            out_at = out_ptr + pk[:, None] * OUT + o[None, :]
            tl.store(out_at, acc.to(out_ptr.dtype.element_ty), mask=valid[:, None] & (o < OUT)[None, :])
        else:  # column c is output c % OUT of block c // OUT
            num_columns = num_blocks * OUT
            c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
            inside = c < num_columns
            k = c // OUT
            weight = weight_ptr + relation * stride_r + k.to(tl.int64) * stride_k + (c % OUT) * stride_o
            for p0 in range(begin, end, PAIRS):
                p = p0 + tl.arange(0, PAIRS)
                valid = p < end
                mask = valid[:, None] & inside[None, :]
                p_wide = p.to(tl.int64)
                x_at = x_ptr + p_wide[:, None] * (num_blocks * IN) + (k * IN)[None, :]
                acc = tl.zeros([PAIRS, BLOCK], dtype=ACC)
                for i in range(0, IN):
                    w = tl.load(weight + i * stride_i, mask=inside, other=0).to(ACC)
                    acc += tl.load(x_at + i, mask=mask, other=0).to(ACC) * w[None, :]
                out_at = out_ptr + p_wide[:, None] * num_columns + c[None, :]
                tl.store(out_at, acc.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["num_relations"])
def outer(
    parts_ptr, x_ptr, gradient_ptr, out_ptr, partial_ptr, num_blocks, num_relations,
    IN: tl.constexpr, OUT: tl.constexpr, DOT: tl.constexpr, ACC: tl.constexpr, PRECISION: tl.constexpr,
    PAIRS: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sum x[p, k]ᵀ gradient[p, k] over one piece, to the relation's place or to the piece's slot."""
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
                valid = p < end
                pk = p.to(tl.int64) * num_blocks + k
                x_at = x_ptr + pk[:, None] * IN + i[None, :]
                g_at = gradient_ptr + pk[:, None] * OUT + o[None, :]
                x = tl.load(x_at, mask=valid[:, None] & (i < IN)[None, :], other=0)
                g = tl.load(g_at, mask=valid[:, None] & (o < OUT)[None, :], other=0).to(x.dtype)
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
                mask = (p < end)[:, None] & inside[None, :]
                p_wide = p.to(tl.int64)
                x_at = x_ptr + p_wide[:, None] * (num_blocks * IN) + x_column[None, :]
                g_at = gradient_ptr + p_wide[:, None] * (num_blocks * OUT) + g_column[None, :]
                acc += tl.load(x_at, mask=mask, other=0).to(ACC) * tl.load(g_at, mask=mask, other=0).to(ACC)
            total = tl.sum(acc, axis=0)
        if slot < 0:
            tl.store(out_ptr + relation.to(tl.int64) * size + within, total.to(out_ptr.dtype.element_ty), mask=inside)
        else:
            tl.store(partial_ptr + slot.to(tl.int64) * size + within, total, mask=inside)
