"""The primitives for the CPU where plain PyTorch is slow: numba, vectorized, on as many threads as PyTorch has.

Each function has the signature and the meaning of its namesake in `reference`.

Why plain `njit` loops on a thread pool, and not numba's own `parallel=True`: the latter takes several seconds to
compile each kernel on a user's first run (these take a few tenths, once, then come from numba's cache), brings a second
pool of threads, and is not safe to call from two threads. Work is cut where it does not depend on the number of
threads, and partial sums are added in order, so that the result is bit for bit the same on one core and on many.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

PIECES = 16
# Fewer multiply-adds than this are done before a second thread has woken up.
WORTH_A_THREAD = 200_000

_jit = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "nsz"})


def combine_bases(coefficients: Tensor, bases: Tensor, pointer: Tensor, relation: Tensor, node: Tensor) -> Tensor:
    out = bases.new_empty(relation.numel(), bases.shape[2])
    work = out.numel() * bases.shape[1]
    _in_pieces(_combine, _balanced(pointer), work, *_arrays(coefficients, bases, pointer, relation), out.numpy())
    return out


def spread_bases(coefficients: Tensor, rows: Tensor, pointer: Tensor, relation: Tensor, node: Tensor) -> Tensor:
    out = rows.new_empty(pointer.numel() - 1, coefficients.shape[1], rows.shape[1])
    work = out.numel() + rows.numel() * coefficients.shape[1]
    _in_pieces(_spread, _balanced(pointer), work, *_arrays(coefficients, rows, pointer, relation), out.numpy())
    return out


def coefficient_gradient(
    bases: Tensor, rows: Tensor, pointer: Tensor, relation: Tensor, node: Tensor, num_relations: int
) -> Tensor:
    partial = bases.new_zeros(PIECES, num_relations, bases.shape[1])
    work = rows.numel() * bases.shape[1]
    arrays = _arrays(bases, rows, pointer, relation)
    _in_pieces(_coefficients, _balanced(pointer), work, *arrays, partial.numpy())
    return partial.sum(0)


def grouped_product(x: Tensor, weight: Tensor, pointer: Tensor, bounds: Sequence[int] | None = None) -> Tensor:
    out = x.new_empty(x.shape[0], weight.shape[1], weight.shape[3])
    pieces = np.linspace(0, x.shape[0], PIECES + 1).astype(np.int64)
    _in_pieces(_grouped_product, pieces, out.numel() * x.shape[2], *_arrays(x, weight, pointer), out.numpy())
    return out


def grouped_outer(x: Tensor, gradient: Tensor, pointer: Tensor, bounds: Sequence[int] | None = None) -> Tensor:
    out = x.new_empty(pointer.numel() - 1, x.shape[1], x.shape[2], gradient.shape[2])
    work = x.numel() * gradient.shape[2]
    _in_pieces(_grouped_outer, _balanced(pointer), work, *_arrays(x, gradient, pointer), out.numpy())
    return out


def entry_dot(row: Tensor, column: Tensor, left: Tensor, right: Tensor) -> Tensor:
    out = left.new_empty(row.numel())
    bounds = np.linspace(0, row.numel(), PIECES + 1).astype(np.int64)
    _in_pieces(_entry_dot, bounds, row.numel() * left.shape[1], *_arrays(row, column, left, right), out.numpy())
    return out


def _arrays(*tensors: Tensor) -> tuple[Any, ...]:
    """The tensors' memory as arrays, without a copy where they are contiguous."""
    return tuple(tensor.detach().contiguous().numpy() for tensor in tensors)


def _balanced(pointer: Tensor) -> np.ndarray[Any, Any]:
    """int64 [PIECES + 1]: cuts of the groups such that each piece has about as many members."""
    bounds = pointer.numpy()
    cuts = np.searchsorted(bounds, np.linspace(0, bounds[-1], PIECES + 1))
    cuts[0], cuts[-1] = 0, len(bounds) - 1
    return cuts


@cache
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    # Keyed by process: threads do not survive a fork, so a child makes a pool of its own.
    return ThreadPoolExecutor(threads, thread_name_prefix="rgcn-kernel")


def _in_pieces(kernel: Callable[..., None], bounds: np.ndarray[Any, Any], work: int, *arrays: Any) -> None:
    """kernel(first, last, bounds, *arrays): the pieces first .. last, on several threads if the work is worth it."""
    threads = min(torch.get_num_threads(), PIECES)
    if threads < 2 or work < WORTH_A_THREAD:
        kernel(0, PIECES, bounds, *arrays)
        return
    shares = [(i * PIECES // threads, (i + 1) * PIECES // threads) for i in range(threads)]
    others = [_pool(threads - 1, os.getpid()).submit(kernel, *share, bounds, *arrays) for share in shares[1:]]
    kernel(*shares[0], bounds, *arrays)
    for other in others:
        other.result()


@_jit
def _combine(first, last, bounds, coefficients, bases, pointer, relation, out):  # type: ignore[no-untyped-def]
    num_bases, width = bases.shape[1], bases.shape[2]
    for n in range(bounds[first], bounds[last]):
        for p in range(pointer[n], pointer[n + 1]):
            r = relation[p]
            for k in range(width):
                out[p, k] = 0
            for b in range(num_bases):
                c = coefficients[r, b]
                for k in range(width):
                    out[p, k] += c * bases[n, b, k]


@_jit
def _spread(first, last, bounds, coefficients, rows, pointer, relation, out):  # type: ignore[no-untyped-def]
    num_bases, width = out.shape[1], out.shape[2]
    for n in range(bounds[first], bounds[last]):
        for b in range(num_bases):
            for k in range(width):
                out[n, b, k] = 0
        for p in range(pointer[n], pointer[n + 1]):
            r = relation[p]
            for b in range(num_bases):
                c = coefficients[r, b]
                for k in range(width):
                    out[n, b, k] += c * rows[p, k]


@_jit
def _dot(a, b, width):  # type: ignore[no-untyped-def]
    """⟨a, b⟩ in eight sums at once: a single one would wait for each addition before the next."""
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = a.dtype.type(0)
    k = 0
    while k + 8 <= width:
        s0 += a[k] * b[k]
        s1 += a[k + 1] * b[k + 1]
        s2 += a[k + 2] * b[k + 2]
        s3 += a[k + 3] * b[k + 3]
        s4 += a[k + 4] * b[k + 4]
        s5 += a[k + 5] * b[k + 5]
        s6 += a[k + 6] * b[k + 6]
        s7 += a[k + 7] * b[k + 7]
        k += 8
    while k < width:
        s0 += a[k] * b[k]
        k += 1
    return ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))


@_jit
def _coefficients(first, last, bounds, bases, rows, pointer, relation, partial):  # type: ignore[no-untyped-def]
    num_bases, width = bases.shape[1], bases.shape[2]
    for piece in range(first, last):
        for n in range(bounds[piece], bounds[piece + 1]):
            for p in range(pointer[n], pointer[n + 1]):
                r = relation[p]
                for b in range(num_bases):
                    partial[piece, r, b] += _dot(bases[n, b], rows[p], width)


@_jit
def _entry_dot(first, last, bounds, row, column, left, right, out):  # type: ignore[no-untyped-def]
    width = left.shape[1]
    for e in range(bounds[first], bounds[last]):
        out[e] = _dot(left[row[e]], right[column[e]], width)


# The grouped products keep eight or four sums in registers at a time: matrices of a few dozen numbers leave no loop
# long enough for the compiler to vectorize by itself.


@_jit
def _grouped_product(first, last, bounds, x, weight, pointer, out):  # type: ignore[no-untyped-def]
    num_blocks, width_in, width_out = weight.shape[1], weight.shape[2], weight.shape[3]
    r = np.searchsorted(pointer, bounds[first], side="right") - 1
    zero = x.dtype.type(0)
    for p in range(bounds[first], bounds[last]):
        while p >= pointer[r + 1]:
            r += 1
        for k in range(num_blocks):
            w, row, o = weight[r, k], x[p, k], 0
            while o + 8 <= width_out:
                s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = zero
                for i in range(width_in):
                    v = row[i]
                    s0 += v * w[i, o]
                    s1 += v * w[i, o + 1]
                    s2 += v * w[i, o + 2]
                    s3 += v * w[i, o + 3]
                    s4 += v * w[i, o + 4]
                    s5 += v * w[i, o + 5]
                    s6 += v * w[i, o + 6]
                    s7 += v * w[i, o + 7]
                out[p, k, o], out[p, k, o + 1], out[p, k, o + 2], out[p, k, o + 3] = s0, s1, s2, s3
                out[p, k, o + 4], out[p, k, o + 5], out[p, k, o + 6], out[p, k, o + 7] = s4, s5, s6, s7
                o += 8
            while o + 4 <= width_out:
                s0 = s1 = s2 = s3 = zero
                for i in range(width_in):
                    v = row[i]
                    s0 += v * w[i, o]
                    s1 += v * w[i, o + 1]
                    s2 += v * w[i, o + 2]
                    s3 += v * w[i, o + 3]
                out[p, k, o], out[p, k, o + 1], out[p, k, o + 2], out[p, k, o + 3] = s0, s1, s2, s3
                o += 4
            while o < width_out:
                s0 = zero
                for i in range(width_in):
                    s0 += row[i] * w[i, o]
                out[p, k, o] = s0
                o += 1


@_jit
def _grouped_outer(first, last, bounds, x, gradient, pointer, out):  # type: ignore[no-untyped-def]
    num_blocks, width_in, width_out = out.shape[1], out.shape[2], out.shape[3]
    zero = x.dtype.type(0)
    for r in range(bounds[first], bounds[last]):
        begin, end = pointer[r], pointer[r + 1]
        for k in range(num_blocks):
            for o in range(width_out):
                i = 0
                while i + 8 <= width_in:
                    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = zero
                    for p in range(begin, end):
                        v = gradient[p, k, o]
                        s0 += v * x[p, k, i]
                        s1 += v * x[p, k, i + 1]
                        s2 += v * x[p, k, i + 2]
                        s3 += v * x[p, k, i + 3]
                        s4 += v * x[p, k, i + 4]
                        s5 += v * x[p, k, i + 5]
                        s6 += v * x[p, k, i + 6]
                        s7 += v * x[p, k, i + 7]
                    out[r, k, i, o], out[r, k, i + 1, o], out[r, k, i + 2, o], out[r, k, i + 3, o] = s0, s1, s2, s3
                    out[r, k, i + 4, o], out[r, k, i + 5, o], out[r, k, i + 6, o], out[r, k, i + 7, o] = s4, s5, s6, s7
                    i += 8
                while i < width_in:
                    s0 = zero
                    for p in range(begin, end):
                        s0 += gradient[p, k, o] * x[p, k, i]
                    out[r, k, i, o] = s0
                    i += 1
