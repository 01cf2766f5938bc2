"""The loops of a path network's layer update on a CPU, in numba, for rows (node, question). `cpu` splits the rows.

`layer_update.reference_update` defines the update. Unreached rows are skipped; the others are copied, ROWS at a time,
to a buffer that stays in the nearest cache, where the whole update is computed.
"""

# mypy: disable-error-code="no-untyped-def"

import numpy as np

from rgcn.kernels.loops import _add, _inline, _jit, _load, _multiply, _scale, _store, _total, _zeros

ROWS = 32  # rows computed together; even


@_jit
def multiply(a, b, out, add):
    """Compute out = a @ b, or out += a @ b if `add`.

    a [even, m], b [m, multiple of 32]. Two rows are computed together, so that b is read half as often.
    """
    zero = a.dtype.type(0)
    for block in range(b.shape[1] // 32):
        k = 32 * block
        for pair in range(a.shape[0] // 2):
            r = 2 * pair
            s0 = s1 = s2 = s3 = t0 = t1 = t2 = t3 = _zeros(zero)
            for i in range(a.shape[1]):
                u, v = a[r, i], a[r + 1, i]
                b0, b1, b2, b3 = _load(b, i, k), _load(b, i, k + 8), _load(b, i, k + 16), _load(b, i, k + 24)
                s0, t0 = _add(s0, _scale(u, b0)), _add(t0, _scale(v, b0))
                s1, t1 = _add(s1, _scale(u, b1)), _add(t1, _scale(v, b1))
                s2, t2 = _add(s2, _scale(u, b2)), _add(t2, _scale(v, b2))
                s3, t3 = _add(s3, _scale(u, b3)), _add(t3, _scale(v, b3))
            if add:
                s0, s1 = _add(s0, _load(out, r, k)), _add(s1, _load(out, r, k + 8))
                s2, s3 = _add(s2, _load(out, r, k + 16)), _add(s3, _load(out, r, k + 24))
                t0, t1 = _add(t0, _load(out, r + 1, k)), _add(t1, _load(out, r + 1, k + 8))
                t2, t3 = _add(t2, _load(out, r + 1, k + 16)), _add(t3, _load(out, r + 1, k + 24))
            _store(out, r, k, s0)
            _store(out, r, k + 8, s1)
            _store(out, r, k + 16, s2)
            _store(out, r, k + 24, s3)
            _store(out, r + 1, k, t0)
            _store(out, r + 1, k + 8, t1)
            _store(out, r + 1, k + 16, t2)
            _store(out, r + 1, k + 24, t3)


@_jit
def collect(row, end, states, messages, squares, degree, scaled, unreached, least, inputs, ids):
    """Fill `inputs` with [x, a, deviation, s a, s deviation] of reached rows, and `ids` with their numbers.

    Returns how many there are, and the row after the last one. The remaining rows of the buffer are set to zero.
    """
    width, count = states.shape[1], 0
    has_deviation = len(squares) > 0
    while row < end and count < ROWS:
        reached = unreached
        for k in range(width):
            reached |= (states[row, k] != 0) | (messages[row, k] != 0)
        if reached:
            ids[count] = row
            for k in range(width):
                inputs[count, k] = states[row, k]
                inputs[count, width + k] = messages[row, k]
            last = 2 * width
            if has_deviation:
                for k in range(width):
                    variance = squares[row, k] - messages[row, k] * messages[row, k]
                    inputs[count, last + k] = np.sqrt(max(variance, least))
                last += width
            if scaled:
                for k in range(last - width):
                    inputs[count, last + k] = degree[row] * inputs[count, width + k]
            count += 1
        row += 1
    inputs[count:] = 0
    return count, row


@_jit
def linear_norm(inputs, weight, bias, count, norm, eps, z, scale):
    """Compute z = inputs · weight + bias; with `norm`, subtract its mean and multiply by `scale`, 1 / its deviation."""
    width, zero = z.dtype.type(z.shape[1]), z.dtype.type(0)
    multiply(inputs, weight, z, False)
    for r in range(count):
        for k in range(z.shape[1]):
            z[r, k] += bias[k]
        if not norm:
            continue
        s = t = _zeros(zero)
        for block in range(z.shape[1] // 8):
            s = _add(s, _load(z, r, 8 * block))
        mean = _total(s) / width
        for k in range(z.shape[1]):
            z[r, k] -= mean
        for block in range(z.shape[1] // 8):
            t = _add(t, _multiply(_load(z, r, 8 * block), _load(z, r, 8 * block)))
        scale[r] = 1 / np.sqrt(_total(t) / width + eps)
        for k in range(z.shape[1]):
            z[r, k] *= scale[r]


@_jit
def update(first, last, bounds, states, messages, squares, degree, weight, bias, gain, shift, mask, settings, out):
    """Compute out = [states +] ReLU(norm(W inputs + b)) of reached rows; weight is W transposed."""
    scaled, norm, skip, unreached, rescale, least, eps = settings
    width = states.shape[1]
    inputs, z = np.empty((ROWS, weight.shape[0]), states.dtype), np.empty((ROWS, width), states.dtype)
    ids, scale = np.empty(ROWS, np.int64), np.empty(ROWS, states.dtype)
    for n in range(bounds[first], bounds[last]):
        for k in range(width):
            out[n, k] = states[n, k] if skip else 0
    row, end = bounds[first], bounds[last]
    while row < end:
        count, row = collect(row, end, states, messages, squares, degree, scaled, unreached, least, inputs, ids)
        linear_norm(inputs, weight, bias, count, norm, eps, z, scale)
        for r in range(count):
            n = ids[r]
            for k in range(width):
                y = z[r, k] * gain[k] + shift[k] if norm else z[r, k]
                if len(mask):
                    y *= mask[n, k] * rescale
                out[n, k] += max(y, 0)


@_inline
def _norm_gradient(dz, z, r, gain, scale, total, size):
    """Go back through the normalization: dz ← scale · (gain · dz less its mean and its part along z)."""
    width, zero = dz.shape[1], dz.dtype.type(0)
    s = t = _zeros(zero)
    for k in range(width):
        total[size + 1, k] += dz[r, k] * z[r, k]
        total[size + 2, k] += dz[r, k]
        dz[r, k] *= gain[k]
    for block in range(width // 8):
        s = _add(s, _load(dz, r, 8 * block))
        t = _add(t, _multiply(_load(dz, r, 8 * block), _load(z, r, 8 * block)))
    mean, along = _total(s) / dz.dtype.type(width), _total(t) / dz.dtype.type(width)
    for k in range(width):
        dz[r, k] = scale[r] * (dz[r, k] - mean - along * z[r, k])


@_jit
def update_gradients(
    first, last, bounds, states, messages, squares, degree, weight, bias, gain, shift, mask, settings, slope, out, sums
):
    """From the gradient `slope` of the result, write those of the inputs.

    out is (states, messages, squares), sums [num_pieces, num_parts · width + 3, width]: for each piece, rows for W
    transposed, b, gain and shift.
    """
    scaled, norm, skip, unreached, rescale, least, eps = settings
    (d_states, d_messages, d_squares), width, size = out, states.shape[1], weight.shape[0]
    has_deviation, transposed, zero = len(squares) > 0, np.ascontiguousarray(weight.T), states.dtype.type(0)
    inputs, d_inputs = np.empty((ROWS, size), states.dtype), np.empty((ROWS, size), states.dtype)
    z, dz = np.empty((ROWS, width), states.dtype), np.empty((ROWS, width), states.dtype)
    columns = np.empty((size, ROWS), states.dtype)
    ids, scale = np.empty(ROWS, np.int64), np.empty(ROWS, states.dtype)
    for piece in range(first, last):
        total = sums[piece]
        total[:] = zero
        row, end = bounds[piece], bounds[piece + 1]
        d_messages[row:end] = zero
        d_squares[row:end] = zero  # it has no rows if there are no deviations
        for n in range(row, end):
            for k in range(width):
                d_states[n, k] = slope[n, k] if skip else zero
        while row < end:
            count, row = collect(row, end, states, messages, squares, degree, scaled, unreached, least, inputs, ids)
            linear_norm(inputs, weight, bias, count, norm, eps, z, scale)
            for r in range(count):
                n = ids[r]
                for k in range(width):
                    y = z[r, k] * gain[k] + shift[k] if norm else z[r, k]
                    d = slope[n, k] if y > 0 else zero
                    if len(mask):
                        d *= mask[n, k] * rescale
                    dz[r, k] = d
                if norm:
                    _norm_gradient(dz, z, r, gain, scale, total, size)
                for k in range(width):
                    total[size, k] += dz[r, k]
            dz[count:] = zero
            columns[:] = inputs.T
            multiply(columns, dz, total[:size], True)
            multiply(dz, transposed, d_inputs, False)
            for r in range(count):
                n, far = ids[r], (size - width) // 2 + width  # where the inputs scaled by the degree begin
                for k in range(width):
                    d_states[n, k] += d_inputs[r, k]
                if scaled:
                    for k in range(width, far):
                        d_inputs[r, k] += degree[n] * d_inputs[r, k + far - width]
                for k in range(width):
                    d_messages[n, k] = d_inputs[r, width + k]
                    if has_deviation:
                        # The gradient of √(q − a²) is 1 / 2√ for q and − a / √ for a; none below the least variance.
                        deviation = inputs[r, 2 * width + k]
                        if squares[n, k] - messages[n, k] * messages[n, k] > least:
                            part = d_inputs[r, 2 * width + k] / (2 * deviation)
                            d_squares[n, k] = part
                            d_messages[n, k] -= 2 * messages[n, k] * part
