"""The inner loops of the CPU kernels, in numba. `cpu` calls them with pieces first .. last of the work.

Eight or sixteen sums at a time are local variables: short rows leave no loop long enough for the compiler to vectorize
by itself, and a sum in memory would be read back in every round. If the width is no multiple of eight, the last eight
columns overlap those before them, and some are computed twice.

Arrays are indexed down to the number, never row by row: a row would be an object of its own, whose reference count all
threads would update.
"""

# mypy: disable-error-code="no-untyped-def"

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba.core.compiler_lock import global_compiler_lock

LANES = 8

_inline = numba.njit(inline="always")  # otherwise the sums would not stay in registers


def _jit(function: Callable[..., Any]) -> Any:
    """Compile a loop when it is first called, and keep the result on disk.

    LLVM can combine eight separate sums into one vector (superword vectorization, which C compilers do by default).
    numba enables it by a global setting only, which is on while these loops are compiled. On two cores it made the
    loops over bases of width 16 three times faster (16 instead of 5 billion multiply-adds per second with the rows in
    the cache).
    """
    loop: Any = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "nsz"})(function)
    compile_loop = loop.compile

    def compile_vectorized(signature: Any) -> Any:
        settings: Any = numba.config
        with global_compiler_lock:
            before = settings.SLP_VECTORIZE
            settings.SLP_VECTORIZE = 1
            try:
                return compile_loop(signature)
            finally:
                settings.SLP_VECTORIZE = before

    loop.compile = compile_vectorized
    return loop


# -- eight numbers at a time: tuples, which the compiler keeps in registers -----------------------------------


@_inline
def _zeros(zero):
    return zero, zero, zero, zero, zero, zero, zero, zero


@_inline
def _load(x, i, k):
    return x[i, k], x[i, k + 1], x[i, k + 2], x[i, k + 3], x[i, k + 4], x[i, k + 5], x[i, k + 6], x[i, k + 7]


@_inline
def _store(x, i, k, s):
    x[i, k], x[i, k + 1], x[i, k + 2], x[i, k + 3] = s[0], s[1], s[2], s[3]
    x[i, k + 4], x[i, k + 5], x[i, k + 6], x[i, k + 7] = s[4], s[5], s[6], s[7]


@_inline
def _add(s, t):
    return s[0] + t[0], s[1] + t[1], s[2] + t[2], s[3] + t[3], s[4] + t[4], s[5] + t[5], s[6] + t[6], s[7] + t[7]


@_inline
def _multiply(s, t):
    return s[0] * t[0], s[1] * t[1], s[2] * t[2], s[3] * t[3], s[4] * t[4], s[5] * t[5], s[6] * t[6], s[7] * t[7]


@_inline
def _scale(c, s):
    return c * s[0], c * s[1], c * s[2], c * s[3], c * s[4], c * s[5], c * s[6], c * s[7]


@_inline
def _total(s):
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]))


@_inline
def _sum_rows(weights, which, column, rows, shift, begin, end, step, out, to):
    """out[to] = Σ_p weights[which[p], column] · rows[shift + p] for p = begin .. end; which None: p itself."""
    width, zero = rows.shape[1], rows.dtype.type(0)
    if width >= LANES:
        for block in range(0, (width + 7) // 8):
            k = max(min(8 * block, width - 8), 0)
            s = _zeros(zero)
            for p in range(begin, end, step):
                s = _add(s, _scale(weights[p if which is None else which[p], column], _load(rows, shift + p, k)))
            _store(out, to, k, s)
    else:
        for k in range(width):
            one = zero
            for p in range(begin, end, step):
                one += weights[p if which is None else which[p], column] * rows[shift + p, k]
            out[to, k] = one


# -- bases -------------------------------------------------------------------------------------------------


@_jit
def combine_bases(first, last, bounds, coefficients, bases, pointer, relation, out):
    """out[p] = Σ_b coefficients[relation[p], b] · bases[n, b] for the pairs p of the nodes n.

    Even and odd b have separate sums, because in one sum each addition would wait for the one before.
    """
    num_bases, width = bases.shape[1], bases.shape[2]
    rows, even, zero = bases.reshape((len(bases) * num_bases, width)), num_bases // 2 * 2, bases.dtype.type(0)
    transposed = coefficients.T
    for n in range(bounds[first], bounds[last]):
        start = max(n * num_bases, 0)  # tells the compiler that no index is negative
        for p in range(pointer[n], pointer[n + 1]):
            r = relation[p]
            if width >= LANES:
                for block in range(0, (width + 7) // 8):
                    k = max(min(8 * block, width - 8), 0)
                    s = t = _zeros(zero)
                    for b in range(0, even, 2):
                        s = _add(s, _scale(coefficients[r, b], _load(rows, start + b, k)))
                        t = _add(t, _scale(coefficients[r, b + 1], _load(rows, start + b + 1, k)))
                    if even < num_bases:
                        s = _add(s, _scale(coefficients[r, even], _load(rows, start + even, k)))
                    _store(out, p, k, _add(s, t))
            else:
                _sum_rows(transposed, None, r, rows, start, 0, num_bases, 1, out, p)


@_jit
def spread_bases(first, last, bounds, coefficients, rows, pointer, relation, out):
    """out[n, b] = Σ_p coefficients[relation[p], b] · rows[p] over the pairs p of the nodes n."""
    num_bases, flat = out.shape[1], out.reshape((len(out) * out.shape[1], out.shape[2]))
    for n in range(bounds[first], bounds[last]):
        _spread_group(coefficients, rows, relation, pointer[n], pointer[n + 1], 1, flat, max(n * num_bases, 0))


@_jit
def _spread_group(coefficients, rows, relation, begin, end, step, out, start):
    """out[start + b] = Σ_p c[p, b] · rows[p] for p = begin .. end, with c[p] = coefficients[relation[p]].

    relation None: c[p] = coefficients[p].
    """
    for b in range(coefficients.shape[1]):
        _sum_rows(coefficients, relation, b, rows, 0, begin, end, step, out, start + b)


@_jit
def coefficient_gradient(first, last, bounds, bases, rows, pointer, relation, partial):
    """partial[piece, r, b] = Σ_p ⟨bases[n, b], rows[p]⟩ over the pairs p of relation r.

    Each dot product stays eight sums until the piece is done: adding them up for every pair would take the most time.
    The last block of eight columns counts only those not yet counted.
    """
    num_bases, width = bases.shape[1], bases.shape[2]
    flat, zero = bases.reshape((len(bases) * num_bases, width)), bases.dtype.type(0)
    lanes = np.empty((partial.shape[1] * num_bases, LANES), bases.dtype)
    rest, start = width % LANES, max(width - LANES, 0)
    last_block = np.zeros((1, LANES), bases.dtype)
    for piece in range(first, last):
        lanes[:] = zero
        for n in range(bounds[piece], bounds[piece + 1]):
            for p in range(pointer[n], pointer[n + 1]):
                lane, base = max(relation[p] * num_bases, 0), max(n * num_bases, 0)
                if width < LANES:
                    for b in range(num_bases):
                        for k in range(width):
                            lanes[lane + b, k] += flat[base + b, k] * rows[p, k]
                    continue
                for k in range(LANES - rest, LANES):
                    last_block[0, k] = rows[p, start + k]
                for b in range(num_bases):
                    s = _zeros(zero)
                    for block in range(width // 8):
                        s = _add(s, _multiply(_load(flat, base + b, 8 * block), _load(rows, p, 8 * block)))
                    if rest:
                        s = _add(s, _multiply(_load(flat, base + b, start), _load(last_block, 0, 0)))
                    _store(lanes, lane + b, 0, _add(s, _load(lanes, lane + b, 0)))
        for r in range(partial.shape[1]):
            for b in range(num_bases):
                total = zero
                for k in range(LANES):
                    total += lanes[r * num_bases + b, k]
                partial[piece, r, b] = total


@_jit
def adam_bases(first, last, bounds, coefficients, rows, pointer, relation, table, mean, square, settings):
    """Adam on table [n, num_bases, width]. Its gradient, that of `spread_bases`, is computed a node at a time."""
    rate, new_mean, old_square, new_square, correction, eps, decay = settings
    gradient = np.empty(table.shape[1:], table.dtype)
    g, p, m, v = gradient.ravel(), table.ravel(), mean.ravel(), square.ravel()
    size = len(g)
    for n in range(bounds[first], bounds[last]):
        _spread_group(coefficients, rows, relation, pointer[n], pointer[n + 1], 1, gradient, 0)
        start = max(n * size, 0)
        for k in range(size):
            slope = g[k] + decay * p[start + k]
            m[start + k] += new_mean * (slope - m[start + k])
            v[start + k] = old_square * v[start + k] + new_square * slope * slope
            p[start + k] -= rate * m[start + k] / (np.sqrt(v[start + k]) / correction + eps)


@_jit
def lazy_adam_rows(first, last, bounds, rows, gradient, table, mean, square, steps, settings):
    """Adam on some rows of table [n, width], each with its own number of steps; a repeated row is padding."""
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
def adagrad_rows(first, last, bounds, rows, gradient, table, total, settings):
    """Row-wise Adagrad on some rows of table [n, width]; a repeated row is padding."""
    rate, eps, decay = settings
    width, zero = table.shape[1], table.dtype.type(0)
    for i in range(bounds[first], bounds[last]):
        r = rows[i]
        if i and rows[i - 1] == r:
            continue
        s, rest = _zeros(zero), zero
        for k in range(0, width // 8 * 8, 8):
            slope = _add(_load(gradient, i, k), _scale(decay, _load(table, r, k)))
            s = _add(s, _multiply(slope, slope))
        for k in range(width // 8 * 8, width):
            rest += (gradient[i, k] + decay * table[r, k]) ** 2
        total[r] += (_total(s) + rest) / width
        size = rate / (np.sqrt(total[r]) + eps)
        for k in range(width):
            table[r, k] -= size * (gradient[i, k] + decay * table[r, k])


# -- entries -----------------------------------------------------------------------------------------------


@_inline
def _term(value, left, r, x, c, k):
    if left is None:
        return _scale(value, _load(x, c, k))
    return _multiply(_scale(value, _load(left, r, k)), _load(x, c, k))


@_inline
def _sum_row(begin, end, stride, value, index, left, column, x, out, to):
    """out[to] = Σ_e value[e · stride] · left[index[e]] ⊙ x[column[e]] for e = begin .. end; left None: without it."""
    width, zero = x.shape[1], x.dtype.type(0)
    for block in range(width // 16):
        k = 16 * block
        s = t = _zeros(zero)
        for e in range(begin, end):
            r = 0 if left is None else index[e]
            s = _add(s, _term(value[e * stride], left, r, x, column[e], k))
            t = _add(t, _term(value[e * stride], left, r, x, column[e], k + 8))
        _store(out, to, k, s)
        _store(out, to, k + 8, t)
    if width >= LANES:
        for block in range(width // 16 * 2, (width + 7) // 8):
            k = max(min(8 * block, width - 8), 0)
            s = _zeros(zero)
            for e in range(begin, end):
                r = 0 if left is None else index[e]
                s = _add(s, _term(value[e * stride], left, r, x, column[e], k))
            _store(out, to, k, s)
    else:
        for k in range(width):
            one = zero
            for e in range(begin, end):
                v = value[e * stride] if left is None else value[e * stride] * left[index[e], k]
                one += v * x[column[e], k]
            out[to, k] = one


@_inline
def _sum_wide_row(begin, end, stride, value, index, left, column, x, out, to):
    """`_sum_row` of a wide row. Rows of `left` may repeat along it; their width is a multiple of 32.

    One entry at a time: its row of x is read sequentially, at the speed of memory, while the sum, a row of a few
    kilobytes, stays in the nearest cache. The product of value and `left` is computed once for all repeats.

    If `out` is narrower than x, columns that lie its width, a multiple of 32, apart are summed.
    """
    width, out_width, zero = x.shape[1], out.shape[1], x.dtype.type(0)
    period = max(out_width if out_width < width else left.shape[1], 1)
    for k in range(out_width):
        out[to, k] = zero
    for e in range(begin, end):
        v, r, c = value[e * stride], index[e], column[e]
        if out_width < width:
            for block in range(period // 16):
                j = 16 * block
                s = t = _zeros(zero)
                for repeat in range(width // period):
                    k = max(repeat * period + j, 0)
                    s = _add(s, _multiply(_load(left, r, k), _load(x, c, k)))
                    t = _add(t, _multiply(_load(left, r, k + 8), _load(x, c, k + 8)))
                _store(out, to, j, _add(_load(out, to, j), _scale(v, s)))
                _store(out, to, j + 8, _add(_load(out, to, j + 8), _scale(v, t)))
        else:
            for block in range(period // 32):
                j = 32 * block
                s0, s1 = _scale(v, _load(left, r, j)), _scale(v, _load(left, r, j + 8))
                s2, s3 = _scale(v, _load(left, r, j + 16)), _scale(v, _load(left, r, j + 24))
                for repeat in range(width // period):
                    k = max(repeat * period + j, 0)
                    _store(out, to, k, _add(_load(out, to, k), _multiply(s0, _load(x, c, k))))
                    _store(out, to, k + 8, _add(_load(out, to, k + 8), _multiply(s1, _load(x, c, k + 8))))
                    _store(out, to, k + 16, _add(_load(out, to, k + 16), _multiply(s2, _load(x, c, k + 16))))
                    _store(out, to, k + 24, _add(_load(out, to, k + 24), _multiply(s3, _load(x, c, k + 24))))


@_jit
def gather_sum(pointer, column, value, x, out):
    """out[i] = Σ_e value[e] · x[column[e]] for the rows i."""
    stride = 1 if len(value) == len(column) else 0  # a single value is that of all entries
    for i in range(len(pointer) - 1):
        _sum_row(pointer[i], pointer[i + 1], stride, value, None, None, column, x, out, i)


@_jit
def gather_product_sum(first, last, bounds, pointer, column, first_row, value, index, left, x, out, is_wide):
    """out[i] = Σ_e value[e] · left[index[e]] ⊙ x[column[e]] for the rows i.

    Pieces are split between entries, so that several may share a long row. What a piece sums for a row that began
    before it goes to an extra row of `out`. is_wide: None, or True for `_sum_wide_row`.
    """
    num_rows, stride = len(pointer) - 1, 1 if len(value) == len(column) else 0
    for piece in range(first, last):
        start, stop = bounds[piece], bounds[piece + 1]
        for i in range(first_row[piece] if piece else 0, min(first_row[piece + 1] + 1, num_rows)):
            begin, end = max(pointer[i], start), min(pointer[i + 1], stop)
            if begin < end or pointer[i] == pointer[i + 1]:
                to = i if pointer[i] >= start else num_rows + piece
                if is_wide is None:
                    _sum_row(begin, end, stride, value, index, left, column, x, out, to)
                else:
                    _sum_wide_row(begin, end, stride, value, index, left, column, x, out, to)


@_jit
def add_continued(bounds, pointer, first_row, out):
    """Add what pieces summed for rows that began before them, in the order of the pieces."""
    num_rows = len(pointer) - 1
    for piece in range(len(bounds) - 1):
        i = first_row[piece]
        if bounds[piece] < bounds[piece + 1] and pointer[i] < bounds[piece]:
            for k in range(out.shape[1]):
                out[i, k] += out[num_rows + piece, k]


@_jit
def entry_product(first, last, bounds, i, left, j, middle, k, right, out):
    """out[e] = Σ_w left[i[e], w] · middle[j[e], w] · right[k[e], w], as eight sums; middle None: without it."""
    width, zero = left.shape[1], left.dtype.type(0)
    for e in range(bounds[first], bounds[last]):
        a, b, c = i[e], (0 if middle is None else j[e]), k[e]
        s, rest = _zeros(zero), zero
        for block in range(width // 8):
            product = _load(left, a, 8 * block)
            if middle is not None:
                product = _multiply(product, _load(middle, b, 8 * block))
            s = _add(s, _multiply(product, _load(right, c, 8 * block)))
        for w in range(width // 8 * 8, width):
            rest += (left[a, w] if middle is None else left[a, w] * middle[b, w]) * right[c, w]
        out[e] = _total(s) + rest


# -- products of small matrices ----------------------------------------------------------------------------


@_jit
def grouped_product(first, last, bounds, x, weight, pointer, out):
    """out[p, j] = x[p, j] @ weight[r, j] for the pairs p of relation r and the blocks j."""
    num_blocks, width_in, width = weight.shape[1], weight.shape[2], weight.shape[3]
    matrices = weight.reshape((len(weight) * num_blocks * width_in, width))
    transposed, rows = x.reshape((len(x) * num_blocks, width_in)).T, out.reshape((len(out) * num_blocks, width))
    r, zero = np.searchsorted(pointer, bounds[first], side="right") - 1, x.dtype.type(0)
    for p in range(bounds[first], bounds[last]):
        while p >= pointer[r + 1]:
            r += 1
        for j in range(num_blocks):
            if width >= LANES:
                row, matrix = max(p * num_blocks + j, 0), max((r * num_blocks + j) * width_in, 0)
                _sum_rows(transposed, None, row, matrices, matrix, 0, width_in, 1, rows, row)
                continue
            for k in range(width):
                one = zero
                for i in range(width_in):
                    one += x[p, j, i] * weight[r, j, i, k]
                out[p, j, k] = one


@_jit
def grouped_outer(first, last, bounds, x, gradient, pointer, out):
    """out[r, j] = Σ_p x[p, j]ᵀ gradient[p, j] over the pairs p of relation r, for the blocks j."""
    num_blocks, width_in, width = out.shape[1], out.shape[2], out.shape[3]
    x_rows, gradients = x.reshape((len(x) * num_blocks, width_in)), gradient.reshape((len(x) * num_blocks, width))
    matrices = out.reshape((len(out) * num_blocks * width_in, width))
    transposed = np.empty((width, width_in), out.dtype)
    for r in range(bounds[first], bounds[last]):
        for j in range(num_blocks):
            matrix = max((r * num_blocks + j) * width_in, 0)
            begin, end = max(pointer[r] * num_blocks + j, 0), pointer[r + 1] * num_blocks + j
            if width < LANES and width_in >= LANES:  # few columns: vectorize along the rows instead
                _spread_group(gradients, x_rows, None, begin, end, num_blocks, transposed, 0)
                for i in range(width_in):
                    for o in range(width):
                        matrices[matrix + i, o] = transposed[o, i]
            else:
                _spread_group(x_rows, gradients, None, begin, end, num_blocks, matrices, matrix)


# -- ranks -------------------------------------------------------------------------------------------------


@_jit
def count_ranks(i0, i1, bounds, scores, score, first, row, target, begin, end, answers, out):
    """out[i] = counts of greater, equal, known greater, known equal, NaN: one pass over a triple's row of scores."""
    for i in range(bounds[i0], bounds[i1]):
        candidates, own, place = scores[row[i]], score[i], target[i] - first
        greater, equal, not_a_number = 0, 0, 0
        for j in range(scores.shape[1]):
            candidate = candidates[j]
            greater += candidate > own
            equal += candidate == own
            not_a_number += candidate != candidate  # true for NaN only
        if 0 <= place < scores.shape[1]:  # the target equals the triple, even if its score was rounded differently
            greater -= candidates[place] > own
            equal += 1 - (candidates[place] == own)
        known_greater, known_equal = 0, 0
        for p in range(begin[i], end[i]):
            if answers[p] != target[i]:
                known_greater += candidates[answers[p] - first] > own
                known_equal += candidates[answers[p] - first] == own
        out[i, 0], out[i, 1], out[i, 2], out[i, 3] = greater, equal, known_greater, known_equal
        out[i, 4] = not_a_number
