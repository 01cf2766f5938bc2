"""Triton kernels for the update of a path network's layer: one pass over the states, and another for the gradients.

A program processes a tile of rows, each the state of a node for one question. Everything between the rows read and the
row written stays in registers. Gradients of the weights are sums over all rows: each program sums its share in order,
and the shares are added in order afterwards.

Without squares there are no deviations; without a seed nothing is dropped.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _inputs(state_ptr, message_ptr, square_ptr, at, mask, MIN_VARIANCE: tl.constexpr):
    """Load a tile: states; messages, squares and deviations in float32; and bool [ROWS, 1], which rows are reached."""
    state = tl.load(state_ptr + at, mask=mask, other=0)
    message = tl.load(message_ptr + at, mask=mask, other=0).to(tl.float32)
    square, deviation = message, message
    if square_ptr is not None:
        square = tl.load(square_ptr + at, mask=mask, other=0).to(tl.float32)
        deviation = tl.sqrt(tl.maximum(square - message * message, MIN_VARIANCE))
    largest = tl.maximum(tl.abs(state.to(tl.float32)), tl.abs(message.to(state.dtype).to(tl.float32)))
    return state, message, square, deviation, (tl.max(largest, axis=1) > 0)[:, None]


@triton.jit
def _linear_norm(
    state, message, deviation, degree, w_ptr, bias_ptr, gain_ptr, shift_ptr,
    D: tl.constexpr, PARTS: tl.constexpr, SCALED: tl.constexpr, NORM: tl.constexpr, EPS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute z = W [state, message, deviation, s message, s deviation] + b for degree factors s.

    Returns the output of LayerNorm, z before gain and shift, and its scale; without NORM, z, z and a placeholder.
    """
    i = tl.arange(0, D)
    at = w_ptr + i[None, :] * (PARTS * D) + i[:, None]  # a square block of Wᵀ, [in, out]
    z = tl.dot(state, tl.load(at), input_precision=PRECISION) + tl.load(bias_ptr + i)[None, :]
    z += tl.dot(message, tl.load(at + D), input_precision=PRECISION)
    first: tl.constexpr = (PARTS + 1) // 2 if SCALED else PARTS  # the first part that is scaled
    if first == 3:
        z += tl.dot(deviation, tl.load(at + 2 * D), input_precision=PRECISION)
    if SCALED:
        z += degree[:, None] * tl.dot(message, tl.load(at + first * D), input_precision=PRECISION)
        if first == 3:
            z += degree[:, None] * tl.dot(deviation, tl.load(at + (first + 1) * D), input_precision=PRECISION)
    if NORM:
        centered = z - (tl.sum(z, axis=1) / D)[:, None]
        scale = 1.0 / tl.sqrt(tl.sum(centered * centered, axis=1) / D + EPS)
        unit = centered * scale[:, None]
        return unit * tl.load(gain_ptr + i)[None, :] + tl.load(shift_ptr + i)[None, :], unit, scale
    return z, z, tl.sum(z, axis=1)


@triton.jit
def _dropout(y, seed_ptr, at, rate):
    """Drop numbers with this probability, and scale the others; at: their numbers in the random stream."""
    if seed_ptr is not None:
        y = tl.where(tl.rand(tl.load(seed_ptr), at) >= rate, y / (1.0 - rate), 0.0)
    return y


@triton.jit(do_not_specialize=["num_rows", "questions", "rate"])
def update(
    state_ptr, message_ptr, square_ptr, degree_ptr, w_ptr, bias_ptr, gain_ptr, shift_ptr, seed_ptr, out_ptr,
    num_rows, questions, rate,
    D: tl.constexpr, PARTS: tl.constexpr, SCALED: tl.constexpr, NORM: tl.constexpr, SKIP: tl.constexpr,
    UNREACHED: tl.constexpr, MIN_VARIANCE: tl.constexpr, EPS: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Compute `layer_update.reference_update` for a tile of rows; `questions` rows share a degree factor."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    valid = row < num_rows
    at, mask = row[:, None] * D + tl.arange(0, D)[None, :], valid[:, None]
    state, message, _square, deviation, reached = _inputs(state_ptr, message_ptr, square_ptr, at, mask, MIN_VARIANCE)
    degree = tl.load(degree_ptr + row // questions, mask=valid, other=0)
    y, _unit, _scale = _linear_norm(
        state, message.to(state.dtype), deviation.to(state.dtype), degree, w_ptr, bias_ptr, gain_ptr, shift_ptr,
        D, PARTS, SCALED, NORM, EPS, PRECISION,
    )  # fmt: skip
    y = _dropout(tl.where(reached | UNREACHED, tl.maximum(y, 0.0), 0.0), seed_ptr, at, rate)
    if SKIP:
        y += state.to(tl.float32)
    tl.store(out_ptr + at, y.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["num_rows", "questions", "rate"])
def update_gradients(
    state_ptr, message_ptr, square_ptr, degree_ptr, w_ptr, bias_ptr, gain_ptr, shift_ptr, seed_ptr, gradient_ptr,
    d_state_ptr, d_message_ptr, d_square_ptr, d_w_ptr, d_vector_ptr, num_rows, questions, rate,
    D: tl.constexpr, PARTS: tl.constexpr, SCALED: tl.constexpr, NORM: tl.constexpr, SKIP: tl.constexpr,
    UNREACHED: tl.constexpr, MIN_VARIANCE: tl.constexpr, EPS: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of `update`, given that of its result.

    Each program writes its share of the weights' gradients: d_w [programs, D, PARTS · D], and d_vector [programs, 3, D]
    for bias, gain and shift.
    """
    program = tl.program_id(0)
    column = tl.arange(0, D)
    first: tl.constexpr = (PARTS + 1) // 2 if SCALED else PARTS
    w_block = w_ptr + column[:, None] * (PARTS * D) + column[None, :]  # [out, in]
    dw_state = tl.zeros([D, D], dtype=tl.float32)
    dw_message = tl.zeros([D, D], dtype=tl.float32)
    dw_deviation = tl.zeros([D, D], dtype=tl.float32)
    dw_scaled_message = tl.zeros([D, D], dtype=tl.float32)
    dw_scaled_deviation = tl.zeros([D, D], dtype=tl.float32)
    d_bias = tl.zeros([D], dtype=tl.float32)
    d_gain = tl.zeros([D], dtype=tl.float32)
    d_shift = tl.zeros([D], dtype=tl.float32)
    for tile in range(program, (num_rows + ROWS - 1) // ROWS, tl.num_programs(0)):
        row = tile * ROWS + tl.arange(0, ROWS).to(tl.int64)
        valid = row < num_rows
        at, mask = row[:, None] * D + column[None, :], valid[:, None]
        state, message_32, square, deviation_32, reached = _inputs(
            state_ptr, message_ptr, square_ptr, at, mask, MIN_VARIANCE
        )
        dtype = state.dtype
        message, deviation = message_32.to(dtype), deviation_32.to(dtype)
        degree = tl.load(degree_ptr + row // questions, mask=valid, other=0)
        y, unit, scale = _linear_norm(
            state, message, deviation, degree, w_ptr, bias_ptr, gain_ptr, shift_ptr,
            D, PARTS, SCALED, NORM, EPS, PRECISION,
        )  # fmt: skip
        gradient = tl.load(gradient_ptr + at, mask=mask, other=0).to(tl.float32)
        dz = _dropout(tl.where((reached | UNREACHED) & (y > 0), gradient, 0.0), seed_ptr, at, rate)
        if NORM:
            d_gain += tl.sum(dz * unit, axis=0)
            d_shift += tl.sum(dz, axis=0)
            du = dz * tl.load(gain_ptr + column)[None, :]
            along = tl.sum(du * unit, axis=1) / D
            dz = (du - (tl.sum(du, axis=1) / D)[:, None] - unit * along[:, None]) * scale[:, None]
        d_bias += tl.sum(dz, axis=0)
        dz_rounded = dz.to(dtype)
        transposed = tl.trans(dz_rounded)
        dw_state += tl.dot(transposed, state, input_precision=PRECISION)
        dw_message += tl.dot(transposed, message, input_precision=PRECISION)
        d_state = tl.dot(dz_rounded, tl.load(w_block), input_precision=PRECISION)
        d_message = tl.dot(dz_rounded, tl.load(w_block + D), input_precision=PRECISION)
        d_deviation = tl.zeros([ROWS, D], dtype=tl.float32)
        if square_ptr is not None:
            dw_deviation += tl.dot(transposed, deviation, input_precision=PRECISION)
            d_deviation = tl.dot(dz_rounded, tl.load(w_block + 2 * D), input_precision=PRECISION)
        if SCALED:
            scaled = (dz * degree[:, None]).to(dtype)
            scaled_transposed = tl.trans(scaled)
            dw_scaled_message += tl.dot(scaled_transposed, message, input_precision=PRECISION)
            d_message += tl.dot(scaled, tl.load(w_block + first * D), input_precision=PRECISION)
            if square_ptr is not None:
                dw_scaled_deviation += tl.dot(scaled_transposed, deviation, input_precision=PRECISION)
                d_deviation += tl.dot(scaled, tl.load(w_block + (first + 1) * D), input_precision=PRECISION)
        if square_ptr is not None:
            variance = square - message_32 * message_32
            d_square = tl.where(variance > MIN_VARIANCE, d_deviation / (2.0 * deviation_32), 0.0)
            d_message -= 2.0 * message_32 * d_square
            tl.store(d_square_ptr + at, d_square.to(d_square_ptr.dtype.element_ty), mask=mask)
        if SKIP:
            d_state += gradient
        tl.store(d_state_ptr + at, d_state.to(d_state_ptr.dtype.element_ty), mask=mask)
        tl.store(d_message_ptr + at, d_message.to(d_message_ptr.dtype.element_ty), mask=mask)
    share = d_w_ptr + program.to(tl.int64) * (D * PARTS * D) + column[:, None] * (PARTS * D) + column[None, :]
    tl.store(share, dw_state)
    tl.store(share + D, dw_message)
    if square_ptr is not None:
        tl.store(share + 2 * D, dw_deviation)
    if SCALED:
        tl.store(share + first * D, dw_scaled_message)
        if square_ptr is not None:
            tl.store(share + (first + 1) * D, dw_scaled_deviation)
    vector = d_vector_ptr + program * (3 * D) + column
    tl.store(vector, d_bias)
    tl.store(vector + D, d_gain)
    tl.store(vector + 2 * D, d_shift)
