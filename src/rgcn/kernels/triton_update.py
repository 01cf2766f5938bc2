"""Triton: what a node becomes after a layer, in one pass over the states, and its gradients in another.

A program takes a tile of rows, a row being a node's state for one question, and holds everything between the rows that
go in and the row that comes out in registers. Gradients of the weights are sums over all rows: each program adds up
its own share, in order, and the shares are added up in order after it.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _normalized(z, gain, shift, D: tl.constexpr, NORM: tl.constexpr, EPS: tl.constexpr):  # type: ignore[no-untyped-def]
    """(z as LayerNorm leaves it, z before gain and shift, what z was divided by)."""
    if NORM:
        centered = z - (tl.sum(z, axis=1) / D)[:, None]
        scale = 1.0 / tl.sqrt(tl.sum(centered * centered, axis=1) / D + EPS)
        unit = centered * scale[:, None]
        return unit * gain[None, :] + shift[None, :], unit, scale
    return z, z, tl.sum(z, axis=1)


@triton.jit
def _mixed(  # type: ignore[no-untyped-def]
    own, heard, spread, degree, w_ptr, bias,
    D: tl.constexpr, PARTS: tl.constexpr, DEVIATION: tl.constexpr, SCALED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """W [own, heard, deviation, s heard, s deviation] + b."""
    i = tl.arange(0, D)
    at = w_ptr + i[None, :] * (PARTS * D) + i[:, None]  # a square of Wᵀ, [in, out]
    z = tl.dot(own, tl.load(at), input_precision=PRECISION) + bias[None, :]
    z += tl.dot(heard, tl.load(at + D), input_precision=PRECISION)
    if DEVIATION:
        z += tl.dot(spread, tl.load(at + 2 * D), input_precision=PRECISION)
    if SCALED:
        first: tl.constexpr = 3 if DEVIATION else 2
        z += degree[:, None] * tl.dot(heard, tl.load(at + first * D), input_precision=PRECISION)
        if DEVIATION:
            z += degree[:, None] * tl.dot(spread, tl.load(at + (first + 1) * D), input_precision=PRECISION)
    return z


@triton.jit
def _deviation(heard, square, LEAST: tl.constexpr):  # type: ignore[no-untyped-def]
    return tl.sqrt(tl.maximum(square - heard * heard, LEAST))


@triton.jit(do_not_specialize=["num_rows", "questions", "rate"])
def update(  # type: ignore[no-untyped-def]
    own_ptr, heard_ptr, square_ptr, degree_ptr, w_ptr, bias_ptr, gain_ptr, shift_ptr, seed_ptr, out_ptr,
    num_rows, questions, rate,
    D: tl.constexpr, PARTS: tl.constexpr, DEVIATION: tl.constexpr, SCALED: tl.constexpr, NORM: tl.constexpr,
    SKIP: tl.constexpr, DROPS: tl.constexpr, WAKES: tl.constexpr, LEAST: tl.constexpr, EPS: tl.constexpr,
    PRECISION: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    live = row < num_rows
    column = tl.arange(0, D)
    at, here = row[:, None] * D + column[None, :], live[:, None]
    own = tl.load(own_ptr + at, mask=here, other=0)
    heard_sum = tl.load(heard_ptr + at, mask=here, other=0).to(tl.float32)
    heard = heard_sum.to(own.dtype)
    spread = heard
    if DEVIATION:
        square = tl.load(square_ptr + at, mask=here, other=0).to(tl.float32)
        spread = _deviation(heard_sum, square, LEAST).to(own.dtype)
    degree = tl.load(degree_ptr + row // questions, mask=live, other=0)
    bias = tl.load(bias_ptr + column)
    z = _mixed(own, heard, spread, degree, w_ptr, bias, D, PARTS, DEVIATION, SCALED, PRECISION)
    gain, shift = tl.load(gain_ptr + column), tl.load(shift_ptr + column)
    y, _unit, _scale = _normalized(z, gain, shift, D, NORM, EPS)
    awake = (tl.max(tl.abs(own.to(tl.float32)), axis=1) > 0) | (tl.max(tl.abs(heard.to(tl.float32)), axis=1) > 0)
    y = tl.where(awake[:, None] | WAKES, tl.maximum(y, 0.0), 0.0)
    if DROPS:
        draw = tl.rand(tl.load(seed_ptr), at)
        y = tl.where(draw >= rate, y / (1.0 - rate), 0.0)
    if SKIP:
        y += own.to(tl.float32)
    tl.store(out_ptr + at, y.to(out_ptr.dtype.element_ty), mask=here)


@triton.jit(do_not_specialize=["num_rows", "questions", "rate", "num_programs"])
def update_gradients(  # type: ignore[no-untyped-def]
    own_ptr, heard_ptr, square_ptr, degree_ptr, w_ptr, bias_ptr, gain_ptr, shift_ptr, seed_ptr, slope_ptr,
    own_slope_ptr, heard_slope_ptr, square_slope_ptr, w_slope_ptr, vector_slope_ptr,
    num_rows, questions, rate, num_programs,
    D: tl.constexpr, PARTS: tl.constexpr, DEVIATION: tl.constexpr, SCALED: tl.constexpr, NORM: tl.constexpr,
    SKIP: tl.constexpr, DROPS: tl.constexpr, WAKES: tl.constexpr, LEAST: tl.constexpr, EPS: tl.constexpr,
    PRECISION: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Shares of a program: w_slope [programs, D, PARTS · D] and vector_slope [programs, 3, D]: bias, gain, shift."""
    program = tl.program_id(0)
    column = tl.arange(0, D)
    bias, gain, shift = tl.load(bias_ptr + column), tl.load(gain_ptr + column), tl.load(shift_ptr + column)
    first: tl.constexpr = 3 if DEVIATION else 2
    square_of_w = w_ptr + column[:, None] * (PARTS * D) + column[None, :]  # [out, in]
    w_own = tl.zeros([D, D], dtype=tl.float32)
    w_heard = tl.zeros([D, D], dtype=tl.float32)
    w_spread = tl.zeros([D, D], dtype=tl.float32)
    w_far_heard = tl.zeros([D, D], dtype=tl.float32)
    w_far_spread = tl.zeros([D, D], dtype=tl.float32)
    bias_slope = tl.zeros([D], dtype=tl.float32)
    gain_slope = tl.zeros([D], dtype=tl.float32)
    shift_slope = tl.zeros([D], dtype=tl.float32)
    for tile in range(program, (num_rows + ROWS - 1) // ROWS, num_programs):
        row = tile * ROWS + tl.arange(0, ROWS).to(tl.int64)
        live = row < num_rows
        at, here = row[:, None] * D + column[None, :], live[:, None]
        own = tl.load(own_ptr + at, mask=here, other=0)
        kind = own.dtype
        heard_sum = tl.load(heard_ptr + at, mask=here, other=0).to(tl.float32)
        heard = heard_sum.to(kind)
        spread, deviation, square = heard, heard_sum, heard_sum
        if DEVIATION:
            square = tl.load(square_ptr + at, mask=here, other=0).to(tl.float32)
            deviation = _deviation(heard_sum, square, LEAST)
            spread = deviation.to(kind)
        degree = tl.load(degree_ptr + row // questions, mask=live, other=0)
        z = _mixed(own, heard, spread, degree, w_ptr, bias, D, PARTS, DEVIATION, SCALED, PRECISION)
        y, unit, scale = _normalized(z, gain, shift, D, NORM, EPS)
        awake = (tl.max(tl.abs(own.to(tl.float32)), axis=1) > 0) | (tl.max(tl.abs(heard.to(tl.float32)), axis=1) > 0)
        slope = tl.load(slope_ptr + at, mask=here, other=0).to(tl.float32)
        dy = tl.where((awake[:, None] | WAKES) & (y > 0), slope, 0.0)
        if DROPS:
            draw = tl.rand(tl.load(seed_ptr), at)
            dy = tl.where(draw >= rate, dy / (1.0 - rate), 0.0)
        dz = dy
        if NORM:
            gain_slope += tl.sum(dy * unit, axis=0)
            shift_slope += tl.sum(dy, axis=0)
            du = dy * gain[None, :]
            along = tl.sum(du * unit, axis=1) / D
            dz = (du - (tl.sum(du, axis=1) / D)[:, None] - unit * along[:, None]) * scale[:, None]
        bias_slope += tl.sum(dz, axis=0)
        near = dz.to(kind)
        turned = tl.trans(near)
        w_own += tl.dot(turned, own, input_precision=PRECISION)
        w_heard += tl.dot(turned, heard, input_precision=PRECISION)
        d_own = tl.dot(near, tl.load(square_of_w), input_precision=PRECISION)
        d_heard = tl.dot(near, tl.load(square_of_w + D), input_precision=PRECISION)
        d_spread = tl.zeros([ROWS, D], dtype=tl.float32)
        if DEVIATION:
            w_spread += tl.dot(turned, spread, input_precision=PRECISION)
            d_spread = tl.dot(near, tl.load(square_of_w + 2 * D), input_precision=PRECISION)
        if SCALED:
            far = (dz * degree[:, None]).to(kind)
            far_turned = tl.trans(far)
            w_far_heard += tl.dot(far_turned, heard, input_precision=PRECISION)
            d_heard += tl.dot(far, tl.load(square_of_w + first * D), input_precision=PRECISION)
            if DEVIATION:
                w_far_spread += tl.dot(far_turned, spread, input_precision=PRECISION)
                d_spread += tl.dot(far, tl.load(square_of_w + (first + 1) * D), input_precision=PRECISION)
        if DEVIATION:
            per_square = tl.where(square - heard_sum * heard_sum > LEAST, d_spread / (2.0 * deviation), 0.0)
            d_heard -= 2.0 * heard_sum * per_square
            tl.store(square_slope_ptr + at, per_square.to(square_slope_ptr.dtype.element_ty), mask=here)
        if SKIP:
            d_own += slope
        tl.store(own_slope_ptr + at, d_own.to(own_slope_ptr.dtype.element_ty), mask=here)
        tl.store(heard_slope_ptr + at, d_heard.to(heard_slope_ptr.dtype.element_ty), mask=here)
    share = w_slope_ptr + program.to(tl.int64) * (D * PARTS * D) + column[:, None] * (PARTS * D) + column[None, :]
    tl.store(share, w_own)
    tl.store(share + D, w_heard)
    if DEVIATION:
        tl.store(share + 2 * D, w_spread)
    if SCALED:
        tl.store(share + first * D, w_far_heard)
        if DEVIATION:
            tl.store(share + (first + 1) * D, w_far_spread)
    vector = vector_slope_ptr + program * (3 * D) + column
    tl.store(vector, bias_slope)
    tl.store(vector + D, gain_slope)
    tl.store(vector + 2 * D, shift_slope)
