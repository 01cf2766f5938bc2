"""The inner loops of the CPU kernels, in numba. Called by `cpu`, which cuts the work and says what each computes.

Sums are kept in eight or sixteen registers at a time: rows of a few numbers leave no loop long enough for the compiler
to vectorize by itself, and a sum kept in memory would be read back in every round. Where the width is no multiple of
eight, the last eight columns overlap those before them, and some are computed twice.

Arrays are indexed down to the number, never row by row: a row would be an object of its own, and all threads would
count their references to it in one place.
"""

from __future__ import annotations

import numpy as np

from rgcn.kernels.compiling import jit as _jit

LANES = 8


# -- bases -------------------------------------------------------------------------------------------------


@_jit
def combine(first, last, bounds, coefficients, bases, pointer, relation, out):  # type: ignore[no-untyped-def]
    """out[p] = Σ_b coefficients[relation[p], b] · bases[n, b] for the pairs p of the nodes n.

    Two sums side by side, for even and odd b: a single one would wait for each addition before the next.
    """
    num_bases, width = bases.shape[1], bases.shape[2]
    even, zero = num_bases // 2 * 2, bases.dtype.type(0)
    for n in range(bounds[first], bounds[last]):
        for p in range(pointer[n], pointer[n + 1]):
            r = relation[p]
            if width >= 8:
                for block in range(0, (width + 7) // 8):
                    k = max(min(8 * block, width - 8), 0)
                    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = zero
                    t0 = t1 = t2 = t3 = t4 = t5 = t6 = t7 = zero
                    for b in range(0, even, 2):
                        c, d = coefficients[r, b], coefficients[r, b + 1]
                        s0 += c * bases[n, b, k]
                        s1 += c * bases[n, b, k + 1]
                        s2 += c * bases[n, b, k + 2]
                        s3 += c * bases[n, b, k + 3]
                        s4 += c * bases[n, b, k + 4]
                        s5 += c * bases[n, b, k + 5]
                        s6 += c * bases[n, b, k + 6]
                        s7 += c * bases[n, b, k + 7]
                        t0 += d * bases[n, b + 1, k]
                        t1 += d * bases[n, b + 1, k + 1]
                        t2 += d * bases[n, b + 1, k + 2]
                        t3 += d * bases[n, b + 1, k + 3]
                        t4 += d * bases[n, b + 1, k + 4]
                        t5 += d * bases[n, b + 1, k + 5]
                        t6 += d * bases[n, b + 1, k + 6]
                        t7 += d * bases[n, b + 1, k + 7]
                    if even < num_bases:
                        c = coefficients[r, even]
                        s0 += c * bases[n, even, k]
                        s1 += c * bases[n, even, k + 1]
                        s2 += c * bases[n, even, k + 2]
                        s3 += c * bases[n, even, k + 3]
                        s4 += c * bases[n, even, k + 4]
                        s5 += c * bases[n, even, k + 5]
                        s6 += c * bases[n, even, k + 6]
                        s7 += c * bases[n, even, k + 7]
                    out[p, k], out[p, k + 1], out[p, k + 2], out[p, k + 3] = s0 + t0, s1 + t1, s2 + t2, s3 + t3
                    out[p, k + 4], out[p, k + 5], out[p, k + 6], out[p, k + 7] = s4 + t4, s5 + t5, s6 + t6, s7 + t7
            else:
                for k in range(width):
                    s0 = zero
                    for b in range(num_bases):
                        s0 += coefficients[r, b] * bases[n, b, k]
                    out[p, k] = s0


@_jit
def spread(first, last, bounds, coefficients, rows, pointer, relation, out):  # type: ignore[no-untyped-def]
    """out[n, b] = Σ_p coefficients[relation[p], b] · rows[p] over the pairs p of the nodes n."""
    for n in range(bounds[first], bounds[last]):
        spread_one(coefficients, rows, relation, pointer[n], pointer[n + 1], out, n)


@_jit
def spread_one(coefficients, rows, relation, begin, end, out, n):  # type: ignore[no-untyped-def]
    """out[n, b] = Σ_p coefficients[relation[p], b] · rows[p] for p = begin .. end."""
    num_bases, width = out.shape[1], out.shape[2]
    zero = rows.dtype.type(0)
    for b in range(num_bases):
        if width >= 8:
            for block in range(0, (width + 7) // 8):
                k = max(min(8 * block, width - 8), 0)
                s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = zero
                for p in range(begin, end):
                    c = coefficients[relation[p], b]
                    s0 += c * rows[p, k]
                    s1 += c * rows[p, k + 1]
                    s2 += c * rows[p, k + 2]
                    s3 += c * rows[p, k + 3]
                    s4 += c * rows[p, k + 4]
                    s5 += c * rows[p, k + 5]
                    s6 += c * rows[p, k + 6]
                    s7 += c * rows[p, k + 7]
                out[n, b, k], out[n, b, k + 1], out[n, b, k + 2], out[n, b, k + 3] = s0, s1, s2, s3
                out[n, b, k + 4], out[n, b, k + 5], out[n, b, k + 6], out[n, b, k + 7] = s4, s5, s6, s7
        else:
            for k in range(width):
                s0 = zero
                for p in range(begin, end):
                    c = coefficients[relation[p], b]
                    s0 += c * rows[p, k]
                out[n, b, k] = s0


@_jit
def coefficients(first, last, bounds, bases, rows, pointer, relation, partial):  # type: ignore[no-untyped-def]
    """partial[piece, r, b] = Σ_p ⟨bases[n, b], rows[p]⟩ over the pairs p of relation r.

    Each dot product is kept as eight sums until the piece is done: adding those up for every pair would take longest.
    What is left of the width is a last block of eight that counts only the columns not yet counted.
    """
    num_bases, width = bases.shape[1], bases.shape[2]
    zero = bases.dtype.type(0)
    lanes = np.empty((partial.shape[1], num_bases, LANES), bases.dtype)
    rest, start = width % LANES, max(width - LANES, 0)
    slope_rest = np.zeros(LANES, bases.dtype)
    for piece in range(first, last):
        lanes[:] = zero
        for n in range(bounds[piece], bounds[piece + 1]):
            for p in range(pointer[n], pointer[n + 1]):
                r = relation[p]
                if width < LANES:
                    for b in range(num_bases):
                        for k in range(width):
                            lanes[r, b, k] += bases[n, b, k] * rows[p, k]
                    continue
                for k in range(LANES - rest, LANES):
                    slope_rest[k] = rows[p, start + k]
                for b in range(num_bases):
                    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = zero
                    for block in range(width // 8):
                        k = 8 * block
                        s0 += bases[n, b, k] * rows[p, k]
                        s1 += bases[n, b, k + 1] * rows[p, k + 1]
                        s2 += bases[n, b, k + 2] * rows[p, k + 2]
                        s3 += bases[n, b, k + 3] * rows[p, k + 3]
                        s4 += bases[n, b, k + 4] * rows[p, k + 4]
                        s5 += bases[n, b, k + 5] * rows[p, k + 5]
                        s6 += bases[n, b, k + 6] * rows[p, k + 6]
                        s7 += bases[n, b, k + 7] * rows[p, k + 7]
                    if rest:
                        s0 += bases[n, b, start] * slope_rest[0]
                        s1 += bases[n, b, start + 1] * slope_rest[1]
                        s2 += bases[n, b, start + 2] * slope_rest[2]
                        s3 += bases[n, b, start + 3] * slope_rest[3]
                        s4 += bases[n, b, start + 4] * slope_rest[4]
                        s5 += bases[n, b, start + 5] * slope_rest[5]
                        s6 += bases[n, b, start + 6] * slope_rest[6]
                        s7 += bases[n, b, start + 7] * slope_rest[7]
                    lanes[r, b, 0] += s0
                    lanes[r, b, 1] += s1
                    lanes[r, b, 2] += s2
                    lanes[r, b, 3] += s3
                    lanes[r, b, 4] += s4
                    lanes[r, b, 5] += s5
                    lanes[r, b, 6] += s6
                    lanes[r, b, 7] += s7
        for r in range(partial.shape[1]):
            for b in range(num_bases):
                s0 = zero
                for k in range(LANES):
                    s0 += lanes[r, b, k]
                partial[piece, r, b] = s0


@_jit
def adam_bases(  # type: ignore[no-untyped-def]
    first,
    last,
    bounds,
    coefficients,
    rows,
    pointer,
    relation,
    table,
    mean,
    square,
    rate,
    new_mean,
    old_square,
    new_square,
    correction,
    eps,
    decay,
):
    """Adam on table [n, B, width]; its gradient is what `spread` gives, made a node at a time and never written out."""
    gradient = np.empty((1, table.shape[1], table.shape[2]), table.dtype)
    g, p, m, v = gradient.ravel(), table.ravel(), mean.ravel(), square.ravel()
    size = len(g)
    for n in range(bounds[first], bounds[last]):
        spread_one(coefficients, rows, relation, pointer[n], pointer[n + 1], gradient, 0)
        start = max(n * size, 0)  # never negative; so the compiler knows that no index counts from the end
        for k in range(size):
            slope = g[k] + decay * p[start + k]
            m[start + k] += new_mean * (slope - m[start + k])
            v[start + k] = old_square * v[start + k] + new_square * slope * slope
            p[start + k] -= rate * m[start + k] / (np.sqrt(v[start + k]) / correction + eps)


# -- entries -----------------------------------------------------------------------------------------------


@_jit
def gather_sum(pointer, column, value, x, out):  # type: ignore[no-untyped-def]
    """out[i] = Σ_e value[e] · x[column[e]] for the rows i."""
    width = x.shape[1]
    zero = x.dtype.type(0)
    each = 1 if len(value) == len(column) else 0  # a single value stands for all
    for i in range(len(pointer) - 1):
        begin, end = pointer[i], pointer[i + 1]
        for block in range(width // 16):
            k = 16 * block
            s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = s8 = s9 = sa = sb = sc = sd = se = sf = zero
            for e in range(begin, end):
                c, j = value[e * each], column[e]
                s0 += c * x[j, k]
                s1 += c * x[j, k + 1]
                s2 += c * x[j, k + 2]
                s3 += c * x[j, k + 3]
                s4 += c * x[j, k + 4]
                s5 += c * x[j, k + 5]
                s6 += c * x[j, k + 6]
                s7 += c * x[j, k + 7]
                s8 += c * x[j, k + 8]
                s9 += c * x[j, k + 9]
                sa += c * x[j, k + 10]
                sb += c * x[j, k + 11]
                sc += c * x[j, k + 12]
                sd += c * x[j, k + 13]
                se += c * x[j, k + 14]
                sf += c * x[j, k + 15]
            out[i, k], out[i, k + 1], out[i, k + 2], out[i, k + 3] = s0, s1, s2, s3
            out[i, k + 4], out[i, k + 5], out[i, k + 6], out[i, k + 7] = s4, s5, s6, s7
            out[i, k + 8], out[i, k + 9], out[i, k + 10], out[i, k + 11] = s8, s9, sa, sb
            out[i, k + 12], out[i, k + 13], out[i, k + 14], out[i, k + 15] = sc, sd, se, sf
        if width >= 8:
            for block in range(width // 16 * 2, (width + 7) // 8):
                k = max(min(8 * block, width - 8), 0)
                s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = zero
                for e in range(begin, end):
                    c, j = value[e * each], column[e]
                    s0 += c * x[j, k]
                    s1 += c * x[j, k + 1]
                    s2 += c * x[j, k + 2]
                    s3 += c * x[j, k + 3]
                    s4 += c * x[j, k + 4]
                    s5 += c * x[j, k + 5]
                    s6 += c * x[j, k + 6]
                    s7 += c * x[j, k + 7]
                out[i, k], out[i, k + 1], out[i, k + 2], out[i, k + 3] = s0, s1, s2, s3
                out[i, k + 4], out[i, k + 5], out[i, k + 6], out[i, k + 7] = s4, s5, s6, s7
        else:
            for k in range(width):
                s0 = zero
                for e in range(begin, end):
                    c, j = value[e * each], column[e]
                    s0 += c * x[j, k]
                out[i, k] = s0


@_jit
def gather_product_sum(first, last, bounds, pointer, column, first_row, value, index, left, x, out):  # type: ignore[no-untyped-def]
    """out[i] = Σ_e value[e] · left[index[e]] ⊙ x[column[e]].

    Pieces are cut at entries, so that a long row is shared. What a piece sums for a row that began before it goes to a
    row of its own, behind the others.
    """
    width, num_rows = x.shape[1], len(pointer) - 1
    zero = x.dtype.type(0)
    each = 1 if len(value) == len(column) else 0  # a single value stands for all
    for piece in range(first, last):
        entry, stop = bounds[piece], bounds[piece + 1]
        i = first_row[piece]
        while entry < stop:
            while pointer[i + 1] <= entry:
                i += 1
            end = min(pointer[i + 1], stop)
            t = i if entry == pointer[i] else num_rows + piece
            for block in range(width // 16):
                k = 16 * block
                s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = s8 = s9 = sa = sb = sc = sd = se = sf = zero
                for e in range(entry, end):
                    c, a, j = value[e * each], index[e], column[e]
                    s0 += c * left[a, k] * x[j, k]
                    s1 += c * left[a, k + 1] * x[j, k + 1]
                    s2 += c * left[a, k + 2] * x[j, k + 2]
                    s3 += c * left[a, k + 3] * x[j, k + 3]
                    s4 += c * left[a, k + 4] * x[j, k + 4]
                    s5 += c * left[a, k + 5] * x[j, k + 5]
                    s6 += c * left[a, k + 6] * x[j, k + 6]
                    s7 += c * left[a, k + 7] * x[j, k + 7]
                    s8 += c * left[a, k + 8] * x[j, k + 8]
                    s9 += c * left[a, k + 9] * x[j, k + 9]
                    sa += c * left[a, k + 10] * x[j, k + 10]
                    sb += c * left[a, k + 11] * x[j, k + 11]
                    sc += c * left[a, k + 12] * x[j, k + 12]
                    sd += c * left[a, k + 13] * x[j, k + 13]
                    se += c * left[a, k + 14] * x[j, k + 14]
                    sf += c * left[a, k + 15] * x[j, k + 15]
                out[t, k], out[t, k + 1], out[t, k + 2], out[t, k + 3] = s0, s1, s2, s3
                out[t, k + 4], out[t, k + 5], out[t, k + 6], out[t, k + 7] = s4, s5, s6, s7
                out[t, k + 8], out[t, k + 9], out[t, k + 10], out[t, k + 11] = s8, s9, sa, sb
                out[t, k + 12], out[t, k + 13], out[t, k + 14], out[t, k + 15] = sc, sd, se, sf
            if width >= 8:
                for block in range(width // 16 * 2, (width + 7) // 8):
                    k = max(min(8 * block, width - 8), 0)
                    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = zero
                    for e in range(entry, end):
                        c, a, j = value[e * each], index[e], column[e]
                        s0 += c * left[a, k] * x[j, k]
                        s1 += c * left[a, k + 1] * x[j, k + 1]
                        s2 += c * left[a, k + 2] * x[j, k + 2]
                        s3 += c * left[a, k + 3] * x[j, k + 3]
                        s4 += c * left[a, k + 4] * x[j, k + 4]
                        s5 += c * left[a, k + 5] * x[j, k + 5]
                        s6 += c * left[a, k + 6] * x[j, k + 6]
                        s7 += c * left[a, k + 7] * x[j, k + 7]
                    out[t, k], out[t, k + 1], out[t, k + 2], out[t, k + 3] = s0, s1, s2, s3
                    out[t, k + 4], out[t, k + 5], out[t, k + 6], out[t, k + 7] = s4, s5, s6, s7
            else:
                for k in range(width):
                    s0 = zero
                    for e in range(entry, end):
                        c, a, j = value[e * each], index[e], column[e]
                        s0 += c * left[a, k] * x[j, k]
                    out[t, k] = s0
            entry = end


@_jit
def add_continued(bounds, pointer, first_row, out):  # type: ignore[no-untyped-def]
    """Add what pieces summed for rows that had begun before them, in their order."""
    num_rows = len(pointer) - 1
    for piece in range(len(bounds) - 1):
        i = first_row[piece]
        if bounds[piece] < bounds[piece + 1] and pointer[i] < bounds[piece]:
            for k in range(out.shape[1]):
                out[i, k] += out[num_rows + piece, k]


@_jit
def entry_dot(first, last, bounds, i, left, j, right, out):  # type: ignore[no-untyped-def]
    """out[e] = ⟨left[i[e]], right[j[e]]⟩, in eight sums at once."""
    width = left.shape[1]
    zero = left.dtype.type(0)
    for e in range(bounds[first], bounds[last]):
        a, b = i[e], j[e]
        s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = rest = zero
        for block in range(width // 8):
            k = 8 * block
            s0 += left[a, k] * right[b, k]
            s1 += left[a, k + 1] * right[b, k + 1]
            s2 += left[a, k + 2] * right[b, k + 2]
            s3 += left[a, k + 3] * right[b, k + 3]
            s4 += left[a, k + 4] * right[b, k + 4]
            s5 += left[a, k + 5] * right[b, k + 5]
            s6 += left[a, k + 6] * right[b, k + 6]
            s7 += left[a, k + 7] * right[b, k + 7]
        for k in range(width // 8 * 8, width):
            rest += left[a, k] * right[b, k]
        out[e] = ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7)) + rest


@_jit
def entry_product(first, last, bounds, i, left, j, middle, k, right, out):  # type: ignore[no-untyped-def]
    """out[e] = Σ_w left[i[e], w] · middle[j[e], w] · right[k[e], w], in eight sums at once."""
    width = left.shape[1]
    zero = left.dtype.type(0)
    for e in range(bounds[first], bounds[last]):
        a, b, c = i[e], j[e], k[e]
        s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = rest = zero
        for block in range(width // 8):
            w = 8 * block
            s0 += left[a, w] * middle[b, w] * right[c, w]
            s1 += left[a, w + 1] * middle[b, w + 1] * right[c, w + 1]
            s2 += left[a, w + 2] * middle[b, w + 2] * right[c, w + 2]
            s3 += left[a, w + 3] * middle[b, w + 3] * right[c, w + 3]
            s4 += left[a, w + 4] * middle[b, w + 4] * right[c, w + 4]
            s5 += left[a, w + 5] * middle[b, w + 5] * right[c, w + 5]
            s6 += left[a, w + 6] * middle[b, w + 6] * right[c, w + 6]
            s7 += left[a, w + 7] * middle[b, w + 7] * right[c, w + 7]
        for w in range(width // 8 * 8, width):
            rest += left[a, w] * middle[b, w] * right[c, w]
        out[e] = ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7)) + rest


# -- products of small matrices ----------------------------------------------------------------------------


@_jit
def grouped_product(first, last, bounds, x, weight, pointer, out):  # type: ignore[no-untyped-def]
    """out[p, j] = x[p, j] @ weight[r, j] for the pairs p of relation r and the blocks j."""
    num_blocks, width_in, width = weight.shape[1], weight.shape[2], weight.shape[3]
    r = np.searchsorted(pointer, bounds[first], side="right") - 1
    zero = x.dtype.type(0)
    for p in range(bounds[first], bounds[last]):
        while p >= pointer[r + 1]:
            r += 1
        for j in range(num_blocks):
            if width >= 8:
                for block in range(0, (width + 7) // 8):
                    k = max(min(8 * block, width - 8), 0)
                    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = zero
                    for i in range(width_in):
                        v = x[p, j, i]
                        s0 += v * weight[r, j, i, k]
                        s1 += v * weight[r, j, i, k + 1]
                        s2 += v * weight[r, j, i, k + 2]
                        s3 += v * weight[r, j, i, k + 3]
                        s4 += v * weight[r, j, i, k + 4]
                        s5 += v * weight[r, j, i, k + 5]
                        s6 += v * weight[r, j, i, k + 6]
                        s7 += v * weight[r, j, i, k + 7]
                    out[p, j, k], out[p, j, k + 1], out[p, j, k + 2], out[p, j, k + 3] = s0, s1, s2, s3
                    out[p, j, k + 4], out[p, j, k + 5], out[p, j, k + 6], out[p, j, k + 7] = s4, s5, s6, s7
            else:
                for k in range(width):
                    s0 = zero
                    for i in range(width_in):
                        v = x[p, j, i]
                        s0 += v * weight[r, j, i, k]
                    out[p, j, k] = s0


@_jit
def grouped_outer(first, last, bounds, x, gradient, pointer, out):  # type: ignore[no-untyped-def]
    """out[r, j] = Σ_p x[p, j]ᵀ gradient[p, j] over the pairs p of relation r, for the blocks j."""
    num_blocks, width_in, width = out.shape[1], out.shape[2], out.shape[3]
    zero = x.dtype.type(0)
    for r in range(bounds[first], bounds[last]):
        begin, end = pointer[r], pointer[r + 1]
        for j in range(num_blocks):
            if width < 8 and width_in >= 8:  # few columns: the rows are the longer way
                for o in range(width):
                    for block in range((width_in + 7) // 8):
                        i = max(min(8 * block, width_in - 8), 0)
                        s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = zero
                        for p in range(begin, end):
                            v = gradient[p, j, o]
                            s0 += v * x[p, j, i]
                            s1 += v * x[p, j, i + 1]
                            s2 += v * x[p, j, i + 2]
                            s3 += v * x[p, j, i + 3]
                            s4 += v * x[p, j, i + 4]
                            s5 += v * x[p, j, i + 5]
                            s6 += v * x[p, j, i + 6]
                            s7 += v * x[p, j, i + 7]
                        out[r, j, i, o], out[r, j, i + 1, o], out[r, j, i + 2, o], out[r, j, i + 3, o] = s0, s1, s2, s3
                        out[r, j, i + 4, o], out[r, j, i + 5, o], out[r, j, i + 6, o], out[r, j, i + 7, o] = (
                            s4,
                            s5,
                            s6,
                            s7,
                        )
                continue
            for i in range(width_in):
                if width >= 8:
                    for block in range(0, (width + 7) // 8):
                        k = max(min(8 * block, width - 8), 0)
                        s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = zero
                        for p in range(begin, end):
                            v = x[p, j, i]
                            s0 += v * gradient[p, j, k]
                            s1 += v * gradient[p, j, k + 1]
                            s2 += v * gradient[p, j, k + 2]
                            s3 += v * gradient[p, j, k + 3]
                            s4 += v * gradient[p, j, k + 4]
                            s5 += v * gradient[p, j, k + 5]
                            s6 += v * gradient[p, j, k + 6]
                            s7 += v * gradient[p, j, k + 7]
                        out[r, j, i, k], out[r, j, i, k + 1], out[r, j, i, k + 2], out[r, j, i, k + 3] = s0, s1, s2, s3
                        out[r, j, i, k + 4], out[r, j, i, k + 5], out[r, j, i, k + 6], out[r, j, i, k + 7] = (
                            s4,
                            s5,
                            s6,
                            s7,
                        )
                else:
                    for k in range(width):
                        s0 = zero
                        for p in range(begin, end):
                            v = x[p, j, i]
                            s0 += v * gradient[p, j, k]
                        out[r, j, i, k] = s0
