"""The inner loops of the CPU kernels, in numba. Called by `cpu`, which cuts the work and says what each computes.

Sums are kept in eight or sixteen registers at a time: rows of a few numbers leave no loop long enough for the compiler
to vectorize by itself, and a sum kept in memory would be read back in every round. Where the width is no multiple of
eight, the last eight columns overlap those before them, and some are computed twice.

Arrays are indexed down to the number, never row by row: a row would be an object of its own, and all threads would
count their references to it in one place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba.core.compiler_lock import global_compiler_lock

LANES = 8

_inline = numba.njit(inline="always")  # into the loop's own code, or the sums would not stay in registers


def _jit(function: Callable[..., Any]) -> Any:
    """Compile a loop when it is first called, and keep the result on disk.

    LLVM can turn eight sums written one below the other into one vector ("superword" vectorization, which C compilers
    do by default). numba leaves it off unless told by a global setting; it is on here while these loops are compiled,
    and at no other time. On two cores it made the loops over bases of width 16 four times faster (5 against 16 billion
    multiply-adds a second with the rows in the cache).
    """
    loop: Any = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "nsz"})(function)
    compile_plainly = loop.compile

    def compile_to_vectors(signature: Any) -> Any:
        settings: Any = numba.config
        with global_compiler_lock:
            before = settings.SLP_VECTORIZE
            settings.SLP_VECTORIZE = 1
            try:
                return compile_plainly(signature)
            finally:
                settings.SLP_VECTORIZE = before

    loop.compile = compile_to_vectors
    return loop


# -- eight numbers at a time: tuples, which the compiler keeps in registers ----------------------------------


@_inline
def _zeros(zero):  # type: ignore[no-untyped-def]
    return zero, zero, zero, zero, zero, zero, zero, zero


@_inline
def _at(x, i, k):  # type: ignore[no-untyped-def]
    return x[i, k], x[i, k + 1], x[i, k + 2], x[i, k + 3], x[i, k + 4], x[i, k + 5], x[i, k + 6], x[i, k + 7]


@_inline
def _put(x, i, k, s):  # type: ignore[no-untyped-def]
    x[i, k], x[i, k + 1], x[i, k + 2], x[i, k + 3] = s[0], s[1], s[2], s[3]
    x[i, k + 4], x[i, k + 5], x[i, k + 6], x[i, k + 7] = s[4], s[5], s[6], s[7]


@_inline
def _plus(s, t):  # type: ignore[no-untyped-def]
    return s[0] + t[0], s[1] + t[1], s[2] + t[2], s[3] + t[3], s[4] + t[4], s[5] + t[5], s[6] + t[6], s[7] + t[7]


@_inline
def _times(s, t):  # type: ignore[no-untyped-def]
    return s[0] * t[0], s[1] * t[1], s[2] * t[2], s[3] * t[3], s[4] * t[4], s[5] * t[5], s[6] * t[6], s[7] * t[7]


@_inline
def _scaled(c, s):  # type: ignore[no-untyped-def]
    return c * s[0], c * s[1], c * s[2], c * s[3], c * s[4], c * s[5], c * s[6], c * s[7]


@_inline
def _total(s):  # type: ignore[no-untyped-def]
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]))


@_inline
def _sum_rows(weights, which, column, rows, shift, begin, end, step, out, to):  # type: ignore[no-untyped-def]
    """out[to] = Σ_p weights[which[p], column] · rows[shift + p] for p = begin .. end; which None: of p itself."""
    width, zero = rows.shape[1], rows.dtype.type(0)
    if width >= LANES:
        for block in range(0, (width + 7) // 8):
            k = max(min(8 * block, width - 8), 0)
            s = _zeros(zero)
            for p in range(begin, end, step):
                s = _plus(s, _scaled(weights[p if which is None else which[p], column], _at(rows, shift + p, k)))
            _put(out, to, k, s)
    else:
        for k in range(width):
            one = zero
            for p in range(begin, end, step):
                one += weights[p if which is None else which[p], column] * rows[shift + p, k]
            out[to, k] = one


# -- bases -------------------------------------------------------------------------------------------------


@_jit
def combine(first, last, bounds, coefficients, bases, pointer, relation, out):  # type: ignore[no-untyped-def]
    """out[p] = Σ_b coefficients[relation[p], b] · bases[n, b] for the pairs p of the nodes n.

    Two sums side by side, for even and odd b: a single one would wait for each addition before the next.
    """
    num_bases, width = bases.shape[1], bases.shape[2]
    rows, even, zero = bases.reshape((len(bases) * num_bases, width)), num_bases // 2 * 2, bases.dtype.type(0)
    for n in range(bounds[first], bounds[last]):
        start = max(n * num_bases, 0)  # never negative; so the compiler knows that no index counts from the end
        for p in range(pointer[n], pointer[n + 1]):
            r = relation[p]
            if width >= LANES:
                for block in range(0, (width + 7) // 8):
                    k = max(min(8 * block, width - 8), 0)
                    s = t = _zeros(zero)
                    for b in range(0, even, 2):
                        s = _plus(s, _scaled(coefficients[r, b], _at(rows, start + b, k)))
                        t = _plus(t, _scaled(coefficients[r, b + 1], _at(rows, start + b + 1, k)))
                    if even < num_bases:
                        s = _plus(s, _scaled(coefficients[r, even], _at(rows, start + even, k)))
                    _put(out, p, k, _plus(s, t))
            else:
                for k in range(width):
                    one = zero
                    for b in range(num_bases):
                        one += coefficients[r, b] * rows[start + b, k]
                    out[p, k] = one


@_jit
def spread(first, last, bounds, coefficients, rows, pointer, relation, out):  # type: ignore[no-untyped-def]
    """out[n, b] = Σ_p coefficients[relation[p], b] · rows[p] over the pairs p of the nodes n."""
    num_bases, flat = out.shape[1], out.reshape((len(out) * out.shape[1], out.shape[2]))
    for n in range(bounds[first], bounds[last]):
        spread_one(coefficients, rows, relation, pointer[n], pointer[n + 1], 1, flat, max(n * num_bases, 0))


@_jit
def spread_one(coefficients, rows, relation, begin, end, step, out, start):  # type: ignore[no-untyped-def]
    """out[start + b] = Σ_p coefficients[relation[p], b] · rows[p] for p = begin .. end; without relation, of p."""
    for b in range(coefficients.shape[1]):
        _sum_rows(coefficients, relation, b, rows, 0, begin, end, step, out, start + b)


@_jit
def coefficients(first, last, bounds, bases, rows, pointer, relation, partial):  # type: ignore[no-untyped-def]
    """partial[piece, r, b] = Σ_p ⟨bases[n, b], rows[p]⟩ over the pairs p of relation r.

    Each dot product is kept as eight sums until the piece is done: adding those up for every pair would take longest.
    What is left of the width is a last block of eight that counts only the columns not yet counted.
    """
    num_bases, width = bases.shape[1], bases.shape[2]
    flat, zero = bases.reshape((len(bases) * num_bases, width)), bases.dtype.type(0)
    lanes = np.empty((partial.shape[1] * num_bases, LANES), bases.dtype)
    rest, start = width % LANES, max(width - LANES, 0)
    slope_rest = np.zeros((1, LANES), bases.dtype)
    for piece in range(first, last):
        lanes[:] = zero
        for n in range(bounds[piece], bounds[piece + 1]):
            for p in range(pointer[n], pointer[n + 1]):
                own, base = max(relation[p] * num_bases, 0), max(n * num_bases, 0)
                if width < LANES:
                    for b in range(num_bases):
                        for k in range(width):
                            lanes[own + b, k] += flat[base + b, k] * rows[p, k]
                    continue
                for k in range(LANES - rest, LANES):
                    slope_rest[0, k] = rows[p, start + k]
                for b in range(num_bases):
                    s = _zeros(zero)
                    for block in range(width // 8):
                        s = _plus(s, _times(_at(flat, base + b, 8 * block), _at(rows, p, 8 * block)))
                    if rest:
                        s = _plus(s, _times(_at(flat, base + b, start), _at(slope_rest, 0, 0)))
                    _put(lanes, own + b, 0, _plus(s, _at(lanes, own + b, 0)))
        for r in range(partial.shape[1]):
            for b in range(num_bases):
                total = zero
                for k in range(LANES):
                    total += lanes[r * num_bases + b, k]
                partial[piece, r, b] = total


@_jit
def adam_bases(  # type: ignore[no-untyped-def]
    first, last, bounds, coefficients, rows, pointer, relation, table, mean, square, settings
):
    """Adam on table [n, B, width]; its gradient is what `spread` gives, made a node at a time and never written out."""
    rate, new_mean, old_square, new_square, correction, eps, decay = settings
    gradient = np.empty(table.shape[1:], table.dtype)
    g, p, m, v = gradient.ravel(), table.ravel(), mean.ravel(), square.ravel()
    size = len(g)
    for n in range(bounds[first], bounds[last]):
        spread_one(coefficients, rows, relation, pointer[n], pointer[n + 1], 1, gradient, 0)
        start = max(n * size, 0)
        for k in range(size):
            slope = g[k] + decay * p[start + k]
            m[start + k] += new_mean * (slope - m[start + k])
            v[start + k] = old_square * v[start + k] + new_square * slope * slope
            p[start + k] -= rate * m[start + k] / (np.sqrt(v[start + k]) / correction + eps)


@_jit
def lazy_adam_rows(first, last, bounds, rows, gradient, table, mean, square, steps, settings):  # type: ignore[no-untyped-def]
    """Adam on some rows of table [n, width], each with a count of its own steps; a row that stands again is padding."""
    lr, beta1, beta2, new_mean, old_square, new_square, eps, decay = settings
    kind, width = table.dtype.type, table.shape[1]
    for i in range(bounds[first], bounds[last]):
        r = rows[i]
        if i and rows[i - 1] == r:
            continue
        steps[r] += 1
        rate = kind(lr / (1 - beta1 ** np.float64(steps[r])))
        correction = kind(np.sqrt(1 - beta2 ** np.float64(steps[r])))
        for k in range(width):
            slope = gradient[i, k] + decay * table[r, k]
            mean[r, k] += new_mean * (slope - mean[r, k])
            square[r, k] = old_square * square[r, k] + new_square * slope * slope
            table[r, k] -= rate * mean[r, k] / (np.sqrt(square[r, k]) / correction + eps)


@_jit
def adagrad_rows(first, last, bounds, rows, gradient, table, total, settings):  # type: ignore[no-untyped-def]
    """Row-wise Adagrad on some rows of table [n, width]; a row that stands again is padding."""
    rate, eps, decay = settings
    width, zero = table.shape[1], table.dtype.type(0)
    for i in range(bounds[first], bounds[last]):
        r = rows[i]
        if i and rows[i - 1] == r:
            continue
        s, rest = _zeros(zero), zero
        for k in range(0, width // 8 * 8, 8):
            slope = _plus(_at(gradient, i, k), _scaled(decay, _at(table, r, k)))
            s = _plus(s, _times(slope, slope))
        for k in range(width // 8 * 8, width):
            rest += (gradient[i, k] + decay * table[r, k]) ** 2
        total[r] += (_total(s) + rest) / width
        size = rate / (np.sqrt(total[r]) + eps)
        for k in range(width):
            table[r, k] -= size * (gradient[i, k] + decay * table[r, k])


# -- entries -----------------------------------------------------------------------------------------------


@_inline
def _term(value, left, r, x, c, k):  # type: ignore[no-untyped-def]
    if left is None:
        return _scaled(value, _at(x, c, k))
    return _times(_scaled(value, _at(left, r, k)), _at(x, c, k))


@_inline
def _sum_row(begin, end, each, value, index, left, column, x, out, to):  # type: ignore[no-untyped-def]
    """out[to] = Σ_e value[e] · left[index[e]] ⊙ x[column[e]] for e = begin .. end; without left, of value and x."""
    width, zero = x.shape[1], x.dtype.type(0)
    for block in range(width // 16):
        k = 16 * block
        s = t = _zeros(zero)
        for e in range(begin, end):
            r = 0 if left is None else index[e]
            s = _plus(s, _term(value[e * each], left, r, x, column[e], k))
            t = _plus(t, _term(value[e * each], left, r, x, column[e], k + 8))
        _put(out, to, k, s)
        _put(out, to, k + 8, t)
    if width >= LANES:
        for block in range(width // 16 * 2, (width + 7) // 8):
            k = max(min(8 * block, width - 8), 0)
            s = _zeros(zero)
            for e in range(begin, end):
                r = 0 if left is None else index[e]
                s = _plus(s, _term(value[e * each], left, r, x, column[e], k))
            _put(out, to, k, s)
    else:
        for k in range(width):
            one = zero
            for e in range(begin, end):
                v = value[e * each] if left is None else value[e * each] * left[index[e], k]
                one += v * x[column[e], k]
            out[to, k] = one


@_inline
def _sum_wide_row(begin, end, each, value, index, left, column, x, out, to):  # type: ignore[no-untyped-def]
    """`_sum_row` of a wide row, where those of `left` may repeat: their width is a multiple of 32.

    An entry at a time: its row of x is read from end to end, as fast as memory gives it, while the sum, a row of a few
    kilobytes, stays in the nearest cache. The product of value and `left` is made once for all repeats.

    Where `out` is narrower than x, the sum is folded to its width, a multiple of 32: columns that lie so far apart are
    added up.
    """
    width, kept, zero = x.shape[1], out.shape[1], x.dtype.type(0)
    period = max(kept if kept < width else left.shape[1], 1)
    for k in range(kept):
        out[to, k] = zero
    for e in range(begin, end):
        v, r, c = value[e * each], index[e], column[e]
        if kept < width:
            for block in range(period // 16):
                j = 16 * block
                s = t = _zeros(zero)
                for repeat in range(width // period):
                    k = max(repeat * period + j, 0)
                    s = _plus(s, _times(_at(left, r, k), _at(x, c, k)))
                    t = _plus(t, _times(_at(left, r, k + 8), _at(x, c, k + 8)))
                _put(out, to, j, _plus(_at(out, to, j), _scaled(v, s)))
                _put(out, to, j + 8, _plus(_at(out, to, j + 8), _scaled(v, t)))
        else:
            for block in range(period // 32):
                j = 32 * block
                s0, s1 = _scaled(v, _at(left, r, j)), _scaled(v, _at(left, r, j + 8))
                s2, s3 = _scaled(v, _at(left, r, j + 16)), _scaled(v, _at(left, r, j + 24))
                for repeat in range(width // period):
                    k = max(repeat * period + j, 0)
                    _put(out, to, k, _plus(_at(out, to, k), _times(s0, _at(x, c, k))))
                    _put(out, to, k + 8, _plus(_at(out, to, k + 8), _times(s1, _at(x, c, k + 8))))
                    _put(out, to, k + 16, _plus(_at(out, to, k + 16), _times(s2, _at(x, c, k + 16))))
                    _put(out, to, k + 24, _plus(_at(out, to, k + 24), _times(s3, _at(x, c, k + 24))))


@_jit
def gather_sum(pointer, column, value, x, out):  # type: ignore[no-untyped-def]
    """out[i] = Σ_e value[e] · x[column[e]] for the rows i."""
    each = 1 if len(value) == len(column) else 0  # a single value stands for all
    for i in range(len(pointer) - 1):
        _sum_row(pointer[i], pointer[i + 1], each, value, None, None, column, x, out, i)


@_jit
def gather_product_sum(first, last, bounds, pointer, column, first_row, value, index, left, x, out, wide):  # type: ignore[no-untyped-def]
    """out[i] = Σ_e value[e] · left[index[e]] ⊙ x[column[e]] for the rows i.

    Pieces are cut at entries, so that a long row is shared. What a piece sums for a row that began before it goes to a
    row of its own, behind the others. wide: None, or true for `_sum_wide_row`.
    """
    num_rows, each = len(pointer) - 1, 1 if len(value) == len(column) else 0
    for piece in range(first, last):
        start, stop = bounds[piece], bounds[piece + 1]
        for i in range(first_row[piece] if piece else 0, min(first_row[piece + 1] + 1, num_rows)):
            begin, end = max(pointer[i], start), min(pointer[i + 1], stop)
            if begin < end or pointer[i] == pointer[i + 1]:
                to = i if pointer[i] >= start else num_rows + piece
                if wide is None:
                    _sum_row(begin, end, each, value, index, left, column, x, out, to)
                else:
                    _sum_wide_row(begin, end, each, value, index, left, column, x, out, to)


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
def entry_product(first, last, bounds, i, left, j, middle, k, right, out):  # type: ignore[no-untyped-def]
    """out[e] = Σ_w left[i[e], w] · right[k[e], w], and · middle[j[e], w] if there is one, in eight sums at once."""
    width, zero = left.shape[1], left.dtype.type(0)
    for e in range(bounds[first], bounds[last]):
        a, b, c = i[e], (0 if middle is None else j[e]), k[e]
        s, rest = _zeros(zero), zero
        for block in range(width // 8):
            product = _at(left, a, 8 * block)
            if middle is not None:
                product = _times(product, _at(middle, b, 8 * block))
            s = _plus(s, _times(product, _at(right, c, 8 * block)))
        for w in range(width // 8 * 8, width):
            rest += (left[a, w] if middle is None else left[a, w] * middle[b, w]) * right[c, w]
        out[e] = _total(s) + rest


# -- products of small matrices ----------------------------------------------------------------------------


@_jit
def grouped_product(first, last, bounds, x, weight, pointer, out):  # type: ignore[no-untyped-def]
    """out[p, j] = x[p, j] @ weight[r, j] for the pairs p of relation r and the blocks j."""
    num_blocks, width_in, width = weight.shape[1], weight.shape[2], weight.shape[3]
    matrices = weight.reshape((len(weight) * num_blocks * width_in, width))
    turned, rows = x.reshape((len(x) * num_blocks, width_in)).T, out.reshape((len(out) * num_blocks, width))
    r, zero = np.searchsorted(pointer, bounds[first], side="right") - 1, x.dtype.type(0)
    for p in range(bounds[first], bounds[last]):
        while p >= pointer[r + 1]:
            r += 1
        for j in range(num_blocks):
            if width >= LANES:
                row, matrix = max(p * num_blocks + j, 0), max((r * num_blocks + j) * width_in, 0)
                _sum_rows(turned, None, row, matrices, matrix, 0, width_in, 1, rows, row)
                continue
            for k in range(width):
                one = zero
                for i in range(width_in):
                    one += x[p, j, i] * weight[r, j, i, k]
                out[p, j, k] = one


@_jit
def grouped_outer(first, last, bounds, x, gradient, pointer, out):  # type: ignore[no-untyped-def]
    """out[r, j] = Σ_p x[p, j]ᵀ gradient[p, j] over the pairs p of relation r, for the blocks j."""
    num_blocks, width_in, width = out.shape[1], out.shape[2], out.shape[3]
    x_rows, slopes = x.reshape((len(x) * num_blocks, width_in)), gradient.reshape((len(x) * num_blocks, width))
    matrices, turned = out.reshape((len(out) * num_blocks * width_in, width)), np.empty((width, width_in), out.dtype)
    for r in range(bounds[first], bounds[last]):
        for j in range(num_blocks):
            matrix = max((r * num_blocks + j) * width_in, 0)
            begin, end = max(pointer[r] * num_blocks + j, 0), pointer[r + 1] * num_blocks + j
            if width < LANES and width_in >= LANES:  # few columns: the rows are the longer way
                spread_one(slopes, x_rows, None, begin, end, num_blocks, turned, 0)
                for i in range(width_in):
                    for o in range(width):
                        matrices[matrix + i, o] = turned[o, i]
            else:
                spread_one(x_rows, slopes, None, begin, end, num_blocks, matrices, matrix)


# -- ranks -------------------------------------------------------------------------------------------------


@_jit
def count_ranks(i0, i1, bounds, scores, own, first, row, target, begin, end, answers, out):  # type: ignore[no-untyped-def]
    """out[i] = greater, equal, known greater, known equal, not a number: one pass over a triple's row of scores."""
    for i in range(bounds[i0], bounds[i1]):
        values, true, place = scores[row[i]], own[i], target[i] - first
        greater, equal, strange = 0, 0, 0
        for j in range(scores.shape[1]):
            value = values[j]
            greater += value > true
            equal += value == true
            strange += value != value  # only NaN is not itself
        if 0 <= place < scores.shape[1]:  # itself is like itself, however it was rounded
            greater -= values[place] > true
            equal += 1 - (values[place] == true)
        known_greater, known_equal = 0, 0
        for p in range(begin[i], end[i]):
            if answers[p] != target[i]:
                known_greater += values[answers[p] - first] > true
                known_equal += values[answers[p] - first] == true
        out[i, 0], out[i, 1], out[i, 2], out[i, 3], out[i, 4] = greater, equal, known_greater, known_equal, strange
