"""The loops of a path layer's update on a CPU, in numba: what `layer_update` defines, for rows (node, question).

Rows that heard nothing are passed over; the others are collected, ROWS at a time, in a buffer that stays in the nearest
cache, where the whole update is computed. Called by `cpu`, which cuts the rows into pieces.
"""

from __future__ import annotations

import numpy as np

from rgcn.kernels.loops import _at, _jit, _plus, _put, _scaled, _times, _total, _zeros

ROWS = 32  # even


@_jit
def multiply(a, b, out, add):  # type: ignore[no-untyped-def]
    """out = a @ b, or out += a @ b; a [even, m], b [m, a multiple of 32]. Two rows at once share what is read of b."""
    zero = a.dtype.type(0)
    for block in range(b.shape[1] // 32):
        k = 32 * block
        for pair in range(a.shape[0] // 2):
            r = 2 * pair
            s0 = s1 = s2 = s3 = t0 = t1 = t2 = t3 = _zeros(zero)
            for i in range(a.shape[1]):
                u, v = a[r, i], a[r + 1, i]
                b0, b1, b2, b3 = _at(b, i, k), _at(b, i, k + 8), _at(b, i, k + 16), _at(b, i, k + 24)
                s0, t0 = _plus(s0, _scaled(u, b0)), _plus(t0, _scaled(v, b0))
                s1, t1 = _plus(s1, _scaled(u, b1)), _plus(t1, _scaled(v, b1))
                s2, t2 = _plus(s2, _scaled(u, b2)), _plus(t2, _scaled(v, b2))
                s3, t3 = _plus(s3, _scaled(u, b3)), _plus(t3, _scaled(v, b3))
            if add:
                s0, s1 = _plus(s0, _at(out, r, k)), _plus(s1, _at(out, r, k + 8))
                s2, s3 = _plus(s2, _at(out, r, k + 16)), _plus(s3, _at(out, r, k + 24))
                t0, t1 = _plus(t0, _at(out, r + 1, k)), _plus(t1, _at(out, r + 1, k + 8))
                t2, t3 = _plus(t2, _at(out, r + 1, k + 16)), _plus(t3, _at(out, r + 1, k + 24))
            _put(out, r, k, s0)
            _put(out, r, k + 8, s1)
            _put(out, r, k + 16, s2)
            _put(out, r, k + 24, s3)
            _put(out, r + 1, k, t0)
            _put(out, r + 1, k + 8, t1)
            _put(out, r + 1, k + 16, t2)
            _put(out, r + 1, k + 24, t3)


@_jit
def collect(row, end, own, heard, squares, degree, scaled, wakes, least, inputs, which):  # type: ignore[no-untyped-def]
    """Fill `inputs` with [x, a, deviation, s a, s deviation] of rows that are awake; (how many, the row to go on from).

    which: their numbers. Rows of the buffer that are left over are zero.
    """
    width, count = own.shape[1], 0
    deviates = len(squares) > 0
    while row < end and count < ROWS:
        awake = wakes
        for k in range(width):
            awake |= (own[row, k] != 0) | (heard[row, k] != 0)
        if awake:
            which[count] = row
            for k in range(width):
                inputs[count, k] = own[row, k]
                inputs[count, width + k] = heard[row, k]
            last = 2 * width
            if deviates:
                for k in range(width):
                    inputs[count, last + k] = np.sqrt(max(squares[row, k] - heard[row, k] * heard[row, k], least))
                last += width
            if scaled:
                for k in range(last - width):
                    inputs[count, last + k] = degree[row] * inputs[count, width + k]
            count += 1
        row += 1
    inputs[count:] = 0
    return count, row


@_jit
def mix(inputs, weight, bias, count, norm, eps, z, scale):  # type: ignore[no-untyped-def]
    """z = inputs · weight + bias; with norm less its mean, over its deviation. scale: one over that deviation."""
    width, zero = z.dtype.type(z.shape[1]), z.dtype.type(0)
    multiply(inputs, weight, z, False)
    for r in range(count):
        for k in range(z.shape[1]):
            z[r, k] += bias[k]
        if not norm:
            continue
        s = t = _zeros(zero)
        for block in range(z.shape[1] // 8):
            s = _plus(s, _at(z, r, 8 * block))
        mean = _total(s) / width
        for k in range(z.shape[1]):
            z[r, k] -= mean
        for block in range(z.shape[1] // 8):
            t = _plus(t, _times(_at(z, r, 8 * block), _at(z, r, 8 * block)))
        scale[r] = 1 / np.sqrt(_total(t) / width + eps)
        for k in range(z.shape[1]):
            z[r, k] *= scale[r]


@_jit
def update(  # type: ignore[no-untyped-def]
    first, last, bounds, own, heard, squares, degree, weight, bias, gain, shift, kept, settings, out
):
    """out = [own +] ReLU(norm(W inputs + b)) where awake; weight: W transposed, [parts · width, width]."""
    scaled, norm, skip, wakes, share, least, eps = settings
    width = own.shape[1]
    inputs, z = np.empty((ROWS, weight.shape[0]), own.dtype), np.empty((ROWS, width), own.dtype)
    which, scale = np.empty(ROWS, np.int64), np.empty(ROWS, own.dtype)
    for n in range(bounds[first], bounds[last]):
        for k in range(width):
            out[n, k] = own[n, k] if skip else 0
    row, end = bounds[first], bounds[last]
    while row < end:
        count, row = collect(row, end, own, heard, squares, degree, scaled, wakes, least, inputs, which)
        mix(inputs, weight, bias, count, norm, eps, z, scale)
        for r in range(count):
            n = which[r]
            for k in range(width):
                y = z[r, k] * gain[k] + shift[k] if norm else z[r, k]
                if len(kept):
                    y *= kept[n, k] * share
                out[n, k] += max(y, 0)


@_jit
def update_gradients(  # type: ignore[no-untyped-def]
    first, last, bounds, own, heard, squares, degree, weight, bias, gain, shift, kept, settings, slope, of, sums
):
    """of: own, heard, squares, to be written. sums [pieces, parts · width + 3, width]: W transposed, b, gain, shift."""
    scaled, norm, skip, wakes, share, least, eps = settings
    (of_own, of_heard, of_squares), width, size = of, own.shape[1], weight.shape[0]
    deviates, transposed, zero = len(squares) > 0, np.ascontiguousarray(weight.T), own.dtype.type(0)
    inputs, slopes = np.empty((ROWS, size), own.dtype), np.empty((ROWS, size), own.dtype)
    z, down = np.empty((ROWS, width), own.dtype), np.empty((ROWS, width), own.dtype)
    columns = np.empty((size, ROWS), own.dtype)
    which, scale = np.empty(ROWS, np.int64), np.empty(ROWS, own.dtype)
    for piece in range(first, last):
        total = sums[piece]
        total[:] = zero
        row, end = bounds[piece], bounds[piece + 1]
        of_heard[row:end] = zero
        of_squares[row:end] = zero  # which has no rows without deviations
        for n in range(row, end):
            for k in range(width):
                of_own[n, k] = slope[n, k] if skip else zero
        while row < end:
            count, row = collect(row, end, own, heard, squares, degree, scaled, wakes, least, inputs, which)
            mix(inputs, weight, bias, count, norm, eps, z, scale)
            for r in range(count):
                n = which[r]
                for k in range(width):
                    y = z[r, k] * gain[k] + shift[k] if norm else z[r, k]
                    d = slope[n, k] if y > 0 else zero
                    if len(kept):
                        d *= kept[n, k] * share
                    down[r, k] = d
                if norm:
                    # Through the normalization: g = gain · d less its mean and its part along z
                    s = t = _zeros(zero)
                    for k in range(width):
                        total[size + 1, k] += down[r, k] * z[r, k]
                        total[size + 2, k] += down[r, k]
                        down[r, k] *= gain[k]
                    for block in range(width // 8):
                        s = _plus(s, _at(down, r, 8 * block))
                        t = _plus(t, _times(_at(down, r, 8 * block), _at(z, r, 8 * block)))
                    mean, along = _total(s) / own.dtype.type(width), _total(t) / own.dtype.type(width)
                    for k in range(width):
                        down[r, k] = scale[r] * (down[r, k] - mean - along * z[r, k])
                for k in range(width):
                    total[size, k] += down[r, k]
            down[count:] = zero
            columns[:] = inputs.T
            multiply(columns, down, total[:size], True)
            multiply(down, transposed, slopes, False)
            for r in range(count):
                n, far = which[r], (size - width) // 2 + width
                for k in range(width):
                    of_own[n, k] += slopes[r, k]
                if scaled:
                    for k in range(width, far):
                        slopes[r, k] += degree[n] * slopes[r, k + far - width]
                for k in range(width):
                    of_heard[n, k] = slopes[r, width + k]
                    if deviates:
                        # d √(q − a²): 1 / 2√ to q, − a / √ to a, and none below the least variance
                        deviation = inputs[r, 2 * width + k]
                        if squares[n, k] - heard[n, k] * heard[n, k] > least:
                            part = slopes[r, 2 * width + k] / (2 * deviation)
                            of_squares[n, k] = part
                            of_heard[n, k] -= 2 * heard[n, k] * part
