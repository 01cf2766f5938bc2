"""The primitives for the CPU where plain PyTorch is slow: numba, vectorized, on as many threads as PyTorch has.

Each function has the signature and the meaning of its namesake in `reference`; the loops themselves are in `loops`.

Why plain `njit` loops on a thread pool, and not numba's own `parallel=True`: the latter takes several seconds to
compile each kernel on a user's first run (these take half a second to two, then come from numba's cache), brings a
second pool of threads, and is not safe to call from two threads. Work is cut where it does not depend on the number of
threads, and partial sums are added in order, so that the result is bit for bit the same on one core and on many.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rgcn.kernels import loops, reference, update_loops
from rgcn.kernels.layer_update import UpdateInputs
from rgcn.kernels.reference import AdamSettings, FactoredGradient
from rgcn.kernels.sparse import Pairs, SparsePattern, computed_once

Array = np.ndarray[Any, Any]

PIECES = 16
# PyTorch's own sum is as fast as ours and runs on its own threads, but it takes a tenth of a millisecond to begin.
LARGEST_OWN_SUM = 300_000
# Fewer multiply-adds than this are done before a second thread has woken up.
WORTH_A_THREAD = 2_000_000
# Rows this wide are read from end to end, one after the other; what repeats in them does so after a multiple of FOLD.
WIDE, FOLD = 96, 32


def gather_sum(pattern: SparsePattern, value: Tensor | None, x: Tensor) -> Tensor:
    if pattern.num_entries * x.shape[1] > LARGEST_OWN_SUM or (value is not None and value.dtype != x.dtype):
        return reference.gather_sum(pattern, value, x)
    host, out = _host(pattern), x.new_empty(pattern.num_rows, x.shape[1])
    values = _ones(x.dtype) if value is None else _array(value)
    loops.gather_sum(host.pointer, host.ids, values, _array(x), out.numpy())
    return out


def gather_product_sum(
    pattern: SparsePattern,
    value: Tensor | None,
    index: Tensor,
    left: Tensor,
    x: Tensor,
    width: int | None = None,
    exact: bool = False,
) -> Tensor:
    width, full = width or x.shape[1], x.shape[1]
    if width < full and width % FOLD:
        return reference.folded(gather_product_sum(pattern, value, index, left, x), width)
    if pattern.num_entries == 0:
        return x.new_zeros(pattern.num_rows, width)
    wide = width < full or (full >= WIDE and left.shape[1] % FOLD == 0) or None
    host, left = _host(pattern), left if wide else reference.repeated(left, full)
    # Behind the rows, one for each piece: what it summed for a row that an earlier piece began.
    out = x.new_empty(pattern.num_rows + PIECES, width)
    values = _ones(x.dtype) if value is None else value
    arguments = (host.pointer, host.ids, host.begins, values, index, left, x, out.numpy(), wide)
    _in_pieces(loops.gather_product_sum, host.cuts, pattern.num_entries * full, *arguments)
    loops.add_continued(host.cuts, host.pointer, host.begins, out.numpy())
    return out[: pattern.num_rows]


def entry_product(i: Tensor, left: Tensor, j: Tensor | None, middle: Tensor | None, k: Tensor, right: Tensor) -> Tensor:
    out = left.new_empty(i.numel())
    work = (1 if middle is None else 2) * i.numel() * left.shape[1]
    _in_pieces(loops.entry_product, _even(i.numel()), work, i, left, j, middle, k, right, out)
    return out


def combine_bases(coefficients: Tensor, bases: Tensor, pairs: Pairs) -> Tensor:
    host = _host(pairs)
    out = bases.new_empty(len(pairs), bases.shape[2])
    work = out.numel() * bases.shape[1]
    _in_pieces(loops.combine, host.cuts, work, coefficients, bases, host.pointer, host.ids, out)
    return out


def spread_bases(coefficients: Tensor, rows: Tensor, pairs: Pairs) -> Tensor:
    host = _host(pairs)
    out = rows.new_empty(pairs.num_nodes, coefficients.shape[1], rows.shape[1])
    work = out.numel() + rows.numel() * coefficients.shape[1]
    _in_pieces(loops.spread, host.cuts, work, coefficients, rows, host.pointer, host.ids, out)
    return out


def coefficient_gradient(bases: Tensor, rows: Tensor, pairs: Pairs) -> Tensor:
    host = _host(pairs)
    partial = bases.new_empty(PIECES, pairs.num_relations, bases.shape[1])
    work = rows.numel() * bases.shape[1]
    _in_pieces(loops.coefficients, host.cuts, work, bases, rows, host.pointer, host.ids, partial)
    return partial.sum(0)


def grouped_product(x: Tensor, weight: Tensor, pairs: Pairs) -> Tensor:
    out = x.new_empty(x.shape[0], weight.shape[1], weight.shape[3])
    work = out.numel() * x.shape[2]
    _in_pieces(loops.grouped_product, _even(x.shape[0]), work, x, weight, _host(pairs).pointer, out)
    return out


def grouped_outer(x: Tensor, gradient: Tensor, pairs: Pairs) -> Tensor:
    host = _host(pairs)
    out = x.new_empty(pairs.num_relations, x.shape[1], x.shape[2], gradient.shape[2])
    work = x.numel() * gradient.shape[2]
    _in_pieces(loops.grouped_outer, host.cuts, work, x, gradient, host.pointer, out)
    return out


def adam_bases(
    table: Tensor, first: Tensor, second: Tensor, step: Tensor, gradient: FactoredGradient, settings: AdamSettings
) -> None:
    (coefficients, rows, pairs), (lr, betas, eps, weight_decay) = gradient, settings
    host, count = _host(pairs), float(step)
    number = np.float64 if table.dtype == torch.float64 else np.float32
    rate, correction = float(lr) / (1 - betas[0] ** count), (1 - betas[1] ** count) ** 0.5
    numbers = map(number, (rate, 1 - betas[0], betas[1], 1 - betas[1], correction, eps, weight_decay))
    arguments = (coefficients, rows, host.pointer, host.ids, table, first, second, tuple(numbers))
    # Every row is read and written, whether it has pairs or not: the cut is by rows.
    _in_pieces(loops.adam_bases, _even(pairs.num_nodes), 10 * table.numel(), *arguments)


def lazy_adam_rows(tables: Sequence[Tensor], rows: Tensor, gradient: Tensor, settings: AdamSettings) -> None:
    (lr, betas, eps, decay), kind = settings, _array(tables[0]).dtype.type
    numbers = *map(np.float64, (lr, *betas)), *map(kind, (1 - betas[0], betas[1], 1 - betas[1], eps, decay))
    _in_pieces(loops.lazy_adam_rows, _even(len(rows)), 10 * gradient.numel(), rows, gradient, *tables, numbers)


def adagrad_rows(tables: Sequence[Tensor], rows: Tensor, gradient: Tensor, settings: AdamSettings) -> None:
    numbers = tuple(map(_array(tables[0]).dtype.type, (float(settings.lr), settings.eps, settings.weight_decay)))
    _in_pieces(loops.adagrad_rows, _even(len(rows)), 6 * gradient.numel(), rows, gradient, *tables, numbers)


def count_ranks(
    scores: Tensor, own: Tensor, first: int, row: Tensor, target: Tensor, begin: Tensor, end: Tensor, answers: Tensor
) -> Tensor:
    out = torch.empty(len(row), 5, dtype=torch.int64)
    work = len(row) * scores.shape[1]
    _in_pieces(loops.count_ranks, _even(len(row)), work, scores, own, first, row, target, begin, end, answers, out)
    return out


def layer_update(given: UpdateInputs) -> Tensor:
    """For widths that are multiples of FOLD."""
    own = given.own
    out = torch.empty_like(own, memory_format=torch.contiguous_format)
    work, rows = own.numel() * given.weights[0].shape[1], out.view(-1, own.shape[-1])
    _in_pieces(update_loops.update, _even(len(rows)), work, *_update_arguments(given), rows)
    return out


def layer_update_gradients(given: UpdateInputs, slope: Tensor) -> tuple[Tensor | None, ...]:
    """Of own, heard, squares, and the four weights."""
    own, width, size = given.own, given.own.shape[-1], given.weights[0].shape[1]
    of = [None if tensor is None else own.new_empty(own.shape) for tensor in given[:3]]
    rows = tuple(_array(_rows(tensor, own)) for tensor in of)
    sums = own.new_empty(PIECES, size + 3, width)
    arguments, work = _update_arguments(given), 4 * own.numel() * size
    _in_pieces(update_loops.update_gradients, _even(len(rows[0])), work, *arguments, _rows(slope, own), rows, sums)
    total = sums.sum(0)
    return *of, total[:size].T, total[size], total[size + 1], total[size + 2]


def _update_arguments(given: UpdateInputs) -> tuple[Any, ...]:
    own, heard, squares, degree, weights, kept, (scaled, norm, skip, dropout, wakes) = given
    weight, *others = (tensor.to(own.dtype) for tensor in weights)
    numbers = map(_array(own).dtype.type, (1 / (1 - dropout), reference.LEAST_VARIANCE, reference.EPSILON))
    of_row = (degree.unsqueeze(1) if degree.ndim == 1 else degree).to(own.dtype).expand(own.shape[:2]).reshape(-1)
    mask = (torch.empty(0, own.shape[-1], dtype=torch.bool) if kept is None else kept).reshape(-1, own.shape[-1])
    tables = (_rows(own, own), _rows(heard, own), _rows(squares, own), of_row, weight.T, *others, mask)
    return *tables, (scaled, norm, skip, wakes, *numbers)


def _rows(given: Tensor | None, like: Tensor) -> Tensor:
    return like.new_empty(0, like.shape[-1]) if given is None else given.reshape(-1, like.shape[-1])


class _Host(NamedTuple):
    """The memory of pairs or a pattern as arrays, and where the work on them is cut.

    ids    the pairs' relations, or the entries' columns
    cuts   of the pairs' groups, or of the entries; begins: the row of a pattern that each cut lies in
    """

    pointer: Array
    ids: Array
    cuts: Array
    begins: Array


@computed_once
def _host(of: Pairs | SparsePattern) -> _Host:
    pointer, ids = _array(of.pointer), _array(of.relation if isinstance(of, Pairs) else of.column)
    cuts = _even(len(ids))
    if isinstance(of, Pairs):  # cut between groups, such that each piece has about as many members
        cuts = np.searchsorted(pointer, np.linspace(0, pointer[-1], PIECES + 1))
        cuts[0], cuts[-1] = 0, len(pointer) - 1
    return _Host(pointer, ids, cuts, np.searchsorted(pointer, cuts, side="right") - 1)


@cache
def _ones(kind: torch.dtype) -> Array:
    return _array(torch.ones(1, dtype=kind))


def _array(tensor: Tensor) -> Array:
    """The tensor's memory as an array, without a copy where it is contiguous."""
    array: Array = tensor.detach().contiguous().numpy()
    return array


@lru_cache(1024)
def _even(size: int) -> Array:
    """int64 [PIECES + 1]: cuts of 0 .. size into equal parts."""
    return np.arange(PIECES + 1, dtype=np.int64) * size // PIECES


class _Own(threading.local):
    threads = 0


_own = _Own()


@contextmanager
def own_threads() -> Iterator[None]:
    """Within, these kernels alone run on several threads, and PyTorch's own operations on one.

    After each parallel operation PyTorch's threads stay awake for a while, in case another follows, and keep ours from
    the cores: a training step that alternates between the two took twice as long. What is large in our steps is in
    these kernels; what is left to PyTorch is small.
    """
    before = torch.get_num_threads()
    if _own.threads or before == 1:
        yield
        return
    _own.threads = before
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _own.threads = 0


@cache
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    # Keyed by process: threads do not survive a fork, so a child makes a pool of its own.
    return ThreadPoolExecutor(threads, thread_name_prefix="rgcn-kernel")


def _in_pieces(kernel: Callable[..., None], bounds: Array, work: int, *arguments: Any) -> None:
    """kernel(first, last, bounds, *arguments): the pieces first .. last, on several threads if it is worth it."""
    arguments = tuple(_array(given) if isinstance(given, Tensor) else given for given in arguments)
    threads = min(_own.threads or torch.get_num_threads(), PIECES)
    if threads < 2 or work < WORTH_A_THREAD:
        kernel(0, PIECES, bounds, *arguments)
        return
    shares = [(i * PIECES // threads, (i + 1) * PIECES // threads) for i in range(threads)]
    others = [_pool(threads - 1, os.getpid()).submit(kernel, *share, bounds, *arguments) for share in shares[1:]]
    kernel(*shares[0], bounds, *arguments)
    for other in others:
        other.result()
