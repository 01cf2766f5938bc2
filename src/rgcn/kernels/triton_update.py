"""Triton: what a node becomes after a layer, in one pass over the states, and its gradients in another.

A program takes a tile of rows, a row being a node's state for one question, and holds everything between the rows that
go in and the row that comes out in registers. Gradients of the weights are sums over all rows: each program adds up
its own share, in order, and the shares are added up in order after it.

Without squares the update has no deviations; without a seed nothing is dropped.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _inputs(own_ptr, heard_ptr, square_ptr, at, here, LEAST: tl.constexpr):  # type: ignore[no-untyped-def]
    """(own; heard, squares and deviations in float32; [ROWS, 1]: whether a row is awake)."""
    own = tl.load(own_ptr + at, mask=here, other=0)
    heard = tl.load(heard_ptr + at, mask=here, other=0).to(tl.float32)
    square, deviation = heard, heard
    if square_ptr is not None:
        square = tl.load(square_ptr + at, mask=here, other=0).to(tl.float32)
        deviation = tl.sqrt(tl.maximum(square - heard * heard, LEAST))
    largest = tl.maximum(tl.abs(own.to(tl.float32)), tl.abs(heard.to(own.dtype).to(tl.float32)))
    return own, heard, square, deviation, (tl.max(largest, axis=1) > 0)[:, None]


@triton.jit
def _mixed(  # type: ignore[no-untyped-def]
    own, heard, spread, degree, w_ptr, bias_ptr, gain_ptr, shift_ptr,
    D: tl.constexpr, PARTS: tl.constexpr, SCALED: tl.constexpr, NORM: tl.constexpr, EPS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """W [own, heard, deviation, s heard, s deviation] + b: (normalized; before gain and shift; the scale of that)."""
    i = tl.arange(0, D)
    at = w_ptr + i[None, :] * (PARTS * D) + i[:, None]  # a square of Wᵀ, [in, out]
    z = tl.dot(own, tl.load(at), input_precision=PRECISION) + tl.load(bias_ptr + i)[None, :]
    z += tl.dot(heard, tl.load(at + D), input_precision=PRECISION)
    first: tl.constexpr = (PARTS + 1) // 2 if SCALED else PARTS  # of the parts that are scaled
    if first == 3:
        z += tl.dot(spread, tl.load(at + 2 * D), input_precision=PRECISION)
    if SCALED:
        z += degree[:, None] * tl.dot(heard, tl.load(at + first * D), input_precision=PRECISION)
        if first == 3:
            z += degree[:, None] * tl.dot(spread, tl.load(at + (first + 1) * D), input_precision=PRECISION)
    if NORM:
        centered = z - (tl.sum(z, axis=1) / D)[:, None]
        scale = 1.0 / tl.sqrt(tl.sum(centered * centered, axis=1) / D + EPS)
        unit = centered * scale[:, None]
        return unit * tl.load(gain_ptr + i)[None, :] + tl.load(shift_ptr + i)[None, :], unit, scale
    return z, z, tl.sum(z, axis=1)


@triton.jit
def _dropped(y, seed_ptr, at, rate):  # type: ignore[no-untyped-def]
    if seed_ptr is not None:
        y = tl.where(tl.rand(tl.load(seed_ptr), at) >= rate, y / (1.0 - rate), 0.0)
    return y


@triton.jit(do_not_specialize=["num_rows", "questions", "rate"])
def update(  # type: ignore[no-untyped-def]
    own_ptr, heard_ptr, square_ptr, degree_ptr, w_ptr, bias_ptr, gain_ptr, shift_ptr, seed_ptr, out_ptr,
    num_rows, questions, rate,
    D: tl.constexpr, PARTS: tl.constexpr, SCALED: tl.constexpr, NORM: tl.constexpr, SKIP: tl.constexpr,
    WAKES: tl.constexpr, LEAST: tl.constexpr, EPS: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    live = row < num_rows
    at, here = row[:, None] * D + tl.arange(0, D)[None, :], live[:, None]
    own, heard, _square, deviation, awake = _inputs(own_ptr, heard_ptr, square_ptr, at, here, LEAST)
    degree = tl.load(degree_ptr + row // questions, mask=live, other=0)
    y, _unit, _scale = _mixed(
        own, heard.to(own.dtype), deviation.to(own.dtype), degree, w_ptr, bias_ptr, gain_ptr, shift_ptr,
        D, PARTS, SCALED, NORM, EPS, PRECISION,
    )  # fmt: skip
    y = _dropped(tl.where(awake | WAKES, tl.maximum(y, 0.0), 0.0), seed_ptr, at, rate)
    if SKIP:
        y += own.to(tl.float32)
    tl.store(out_ptr + at, y.to(out_ptr.dtype.element_ty), mask=here)


@triton.jit(do_not_specialize=["num_rows", "questions", "rate"])
def update_gradients(  # type: ignore[no-untyped-def]
    own_ptr, heard_ptr, square_ptr, degree_ptr, w_ptr, bias_ptr, gain_ptr, shift_ptr, seed_ptr, slope_ptr,
    own_slope_ptr, heard_slope_ptr, square_slope_ptr, w_slope_ptr, vector_slope_ptr,
    num_rows, questions, rate,
    D: tl.constexpr, PARTS: tl.constexpr, SCALED: tl.constexpr, NORM: tl.constexpr, SKIP: tl.constexpr,
    WAKES: tl.constexpr, LEAST: tl.constexpr, EPS: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Shares of a program: w_slope [programs, D, PARTS · D] and vector_slope [programs, 3, D]: bias, gain, shift."""
    program = tl.program_id(0)
    column = tl.arange(0, D)
    first: tl.constexpr = (PARTS + 1) // 2 if SCALED else PARTS
    square_of_w = w_ptr + column[:, None] * (PARTS * D) + column[None, :]  # [out, in]
    w_own = tl.zeros([D, D], dtype=tl.float32)
    w_heard = tl.zeros([D, D], dtype=tl.float32)
    w_spread = tl.zeros([D, D], dtype=tl.float32)
    w_far_heard = tl.zeros([D, D], dtype=tl.float32)
    w_far_spread = tl.zeros([D, D], dtype=tl.float32)
    bias_slope = tl.zeros([D], dtype=tl.float32)
    gain_slope = tl.zeros([D], dtype=tl.float32)
    shift_slope = tl.zeros([D], dtype=tl.float32)
    for tile in range(program, (num_rows + ROWS - 1) // ROWS, tl.num_programs(0)):
        row = tile * ROWS + tl.arange(0, ROWS).to(tl.int64)
        live = row < num_rows
        at, here = row[:, None] * D + column[None, :], live[:, None]
        own, heard_sum, square, deviation, awake = _inputs(own_ptr, heard_ptr, square_ptr, at, here, LEAST)
        kind = own.dtype
        heard, spread = heard_sum.to(kind), deviation.to(kind)
        degree = tl.load(degree_ptr + row // questions, mask=live, other=0)
        y, unit, scale = _mixed(
            own, heard, spread, degree, w_ptr, bias_ptr, gain_ptr, shift_ptr,
            D, PARTS, SCALED, NORM, EPS, PRECISION,
        )  # fmt: skip
        slope = tl.load(slope_ptr + at, mask=here, other=0).to(tl.float32)
        dz = _dropped(tl.where((awake | WAKES) & (y > 0), slope, 0.0), seed_ptr, at, rate)
        if NORM:
            gain_slope += tl.sum(dz * unit, axis=0)
            shift_slope += tl.sum(dz, axis=0)
            du = dz * tl.load(gain_ptr + column)[None, :]
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
        if square_ptr is not None:
            w_spread += tl.dot(turned, spread, input_precision=PRECISION)
            d_spread = tl.dot(near, tl.load(square_of_w + 2 * D), input_precision=PRECISION)
        if SCALED:
            far = (dz * degree[:, None]).to(kind)
            far_turned = tl.trans(far)
            w_far_heard += tl.dot(far_turned, heard, input_precision=PRECISION)
            d_heard += tl.dot(far, tl.load(square_of_w + first * D), input_precision=PRECISION)
            if square_ptr is not None:
                w_far_spread += tl.dot(far_turned, spread, input_precision=PRECISION)
                d_spread += tl.dot(far, tl.load(square_of_w + (first + 1) * D), input_precision=PRECISION)
        if square_ptr is not None:
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
    if square_ptr is not None:
        tl.store(share + 2 * D, w_spread)
    if SCALED:
        tl.store(share + first * D, w_far_heard)
        if square_ptr is not None:
            tl.store(share + (first + 1) * D, w_far_spread)
    vector = vector_slope_ptr + program * (3 * D) + column
    tl.store(vector, bias_slope)
    tl.store(vector + D, gain_slope)
    tl.store(vector + 2 * D, shift_slope)
