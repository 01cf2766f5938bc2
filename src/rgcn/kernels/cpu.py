"""The primitives on a CPU, in numba: vectorized, on as many threads as PyTorch has.

Each function has the signature and the meaning of the function of the same name in `reference`. The loops are in
`loops` and `update_loops`.

The loops are plain `njit` functions on a thread pool. numba's own `parallel=True` takes several seconds to compile each
kernel on the first run (these take half a second to two, then come from numba's cache), starts a second pool of
threads, and must not be called from two threads. Work is split at places that do not depend on the number of threads,
and partial sums are added in order, so the result is bit for bit the same on one core and on many.
"""

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
from rgcn.kernels.sparse import Pairs, SparsePattern, cached_per_object

Array = np.ndarray[Any, Any]

NUM_PIECES = 16
# PyTorch's own sum is as fast and runs on its own threads, but takes a tenth of a millisecond to start.
MAX_COMPILED_SUM = 300_000
# Fewer multiply-adds than this are done before a second thread has woken up.
MIN_THREADED_WORK = 2_000_000
# Rows of at least this width are processed one entry at a time; the width of a repeated table must be a multiple of 32.
MIN_WIDE_ROW, WIDE_MULTIPLE = 96, 32


def gather_sum(pattern: SparsePattern, value: Tensor | None, x: Tensor) -> Tensor:
    """See `reference.gather_sum`."""
    if pattern.num_entries * x.shape[1] > MAX_COMPILED_SUM or (value is not None and value.dtype != x.dtype):
        return reference.gather_sum(pattern, value, x)
    work, out = _split(pattern), x.new_empty(pattern.num_rows, x.shape[1])
    values = _ones(x.dtype) if value is None else _array(value)
    loops.gather_sum(work.pointer, work.ids, values, _array(x), out.numpy())
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
    """See `reference.gather_product_sum`."""
    x_width = x.shape[1]
    width = width or x_width
    if width < x_width and width % WIDE_MULTIPLE:
        return reference.folded(gather_product_sum(pattern, value, index, left, x), width)
    if pattern.num_entries == 0:
        return x.new_zeros(pattern.num_rows, width)
    # None instead of False: numba compiles another loop for another type of argument.
    is_wide = width < x_width or (x_width >= MIN_WIDE_ROW and left.shape[1] % WIDE_MULTIPLE == 0) or None
    work, left = _split(pattern), left if is_wide else reference.repeated(left, x_width)
    # After the rows comes one row for each piece: its sum for a row that an earlier piece began.
    out = x.new_empty(pattern.num_rows + NUM_PIECES, width)
    values = _ones(x.dtype) if value is None else value
    arguments = (work.pointer, work.ids, work.first_rows, values, index, left, x, out.numpy(), is_wide)
    _run(loops.gather_product_sum, work.bounds, pattern.num_entries * x_width, *arguments)
    loops.add_continued(work.bounds, work.pointer, work.first_rows, out.numpy())
    return out[: pattern.num_rows]


def entry_product(i: Tensor, left: Tensor, j: Tensor | None, middle: Tensor | None, k: Tensor, right: Tensor) -> Tensor:
    """See `reference.entry_product`."""
    out = left.new_empty(i.numel())
    size = (1 if middle is None else 2) * i.numel() * left.shape[1]
    _run(loops.entry_product, _even_bounds(i.numel()), size, i, left, j, middle, k, right, out)
    return out


def combine_bases(coefficients: Tensor, bases: Tensor, pairs: Pairs) -> Tensor:
    """See `reference.combine_bases`."""
    work, out = _split(pairs), bases.new_empty(len(pairs), bases.shape[2])
    size = out.numel() * bases.shape[1]
    _run(loops.combine_bases, work.bounds, size, coefficients, bases, work.pointer, work.ids, out)
    return out


def spread_bases(coefficients: Tensor, rows: Tensor, pairs: Pairs) -> Tensor:
    """See `reference.spread_bases`."""
    work, out = _split(pairs), rows.new_empty(pairs.num_nodes, coefficients.shape[1], rows.shape[1])
    size = out.numel() + rows.numel() * coefficients.shape[1]
    _run(loops.spread_bases, work.bounds, size, coefficients, rows, work.pointer, work.ids, out)
    return out


def coefficient_gradient(bases: Tensor, rows: Tensor, pairs: Pairs) -> Tensor:
    """See `reference.coefficient_gradient`."""
    work, partial = _split(pairs), bases.new_empty(NUM_PIECES, pairs.num_relations, bases.shape[1])
    size = rows.numel() * bases.shape[1]
    _run(loops.coefficient_gradient, work.bounds, size, bases, rows, work.pointer, work.ids, partial)
    return partial.sum(0)


def grouped_product(x: Tensor, weight: Tensor, pairs: Pairs) -> Tensor:
    """See `reference.grouped_product`."""
    out, bounds = x.new_empty(x.shape[0], weight.shape[1], weight.shape[3]), _even_bounds(x.shape[0])
    _run(loops.grouped_product, bounds, out.numel() * x.shape[2], x, weight, _split(pairs).pointer, out)
    return out


def grouped_outer(x: Tensor, gradient: Tensor, pairs: Pairs) -> Tensor:
    """See `reference.grouped_outer`."""
    work, out = _split(pairs), x.new_empty(pairs.num_relations, x.shape[1], x.shape[2], gradient.shape[2])
    _run(loops.grouped_outer, work.bounds, x.numel() * gradient.shape[2], x, gradient, work.pointer, out)
    return out


def adam_bases(
    table: Tensor, first: Tensor, second: Tensor, step: Tensor, gradient: FactoredGradient, settings: AdamSettings
) -> None:
    """See `reference.adam_bases`."""
    (coefficients, rows, pairs), (lr, betas, eps, weight_decay) = gradient, settings
    work, count = _split(pairs), float(step)
    number = np.float64 if table.dtype == torch.float64 else np.float32
    rate, correction = float(lr) / (1 - betas[0] ** count), (1 - betas[1] ** count) ** 0.5
    numbers = map(number, (rate, 1 - betas[0], betas[1], 1 - betas[1], correction, eps, weight_decay))
    arguments = (coefficients, rows, work.pointer, work.ids, table, first, second, tuple(numbers))
    # Every row is read and written, whether it has pairs or not, so the work is split by rows.
    _run(loops.adam_bases, _even_bounds(pairs.num_nodes), 10 * table.numel(), *arguments)


def lazy_adam_rows(tables: Sequence[Tensor], rows: Tensor, gradient: Tensor, settings: AdamSettings) -> None:
    """See `reference.lazy_adam_rows`."""
    (lr, betas, eps, decay), number = settings, _array(tables[0]).dtype.type
    numbers = *map(np.float64, (lr, *betas)), *map(number, (1 - betas[0], betas[1], 1 - betas[1], eps, decay))
    _run(loops.lazy_adam_rows, _even_bounds(len(rows)), 10 * gradient.numel(), rows, gradient, *tables, numbers)


def adagrad_rows(tables: Sequence[Tensor], rows: Tensor, gradient: Tensor, settings: AdamSettings) -> None:
    """See `reference.adagrad_rows`."""
    numbers = tuple(map(_array(tables[0]).dtype.type, (float(settings.lr), settings.eps, settings.weight_decay)))
    _run(loops.adagrad_rows, _even_bounds(len(rows)), 6 * gradient.numel(), rows, gradient, *tables, numbers)


def count_ranks(
    scores: Tensor, score: Tensor, first: int, row: Tensor, target: Tensor, begin: Tensor, end: Tensor, answers: Tensor
) -> Tensor:
    """See `reference.count_ranks`."""
    out = torch.empty(len(row), 5, dtype=torch.int64)
    arguments = (scores, score, first, row, target, begin, end, answers, out)
    _run(loops.count_ranks, _even_bounds(len(row)), len(row) * scores.shape[1], *arguments)
    return out


def layer_update(inputs: UpdateInputs) -> Tensor:
    """See `layer_update.reference_update`; the width must be a multiple of 32."""
    states = inputs.states
    out = torch.empty_like(states, memory_format=torch.contiguous_format)
    size, rows = states.numel() * inputs.weights[0].shape[1], out.view(-1, states.shape[-1])
    _run(update_loops.update, _even_bounds(len(rows)), size, *_update_arguments(inputs), rows)
    return out


def layer_update_gradients(inputs: UpdateInputs, gradient: Tensor) -> tuple[Tensor | None, ...]:
    """Return the gradients of `UpdateInputs`: states, messages, squares (None if there are none), and each weight."""
    states, width, num_inputs = inputs.states, inputs.states.shape[-1], inputs.weights[0].shape[1]
    gradients = [None if tensor is None else states.new_empty(states.shape) for tensor in inputs[:3]]
    rows = tuple(_array(_rows(tensor, states)) for tensor in gradients)
    sums = states.new_empty(NUM_PIECES, num_inputs + 3, width)
    arguments, size = _update_arguments(inputs), 4 * states.numel() * num_inputs
    bounds = _even_bounds(len(rows[0]))
    _run(update_loops.update_gradients, bounds, size, *arguments, _rows(gradient, states), rows, sums)
    total = sums.sum(0)
    return *gradients, total[:num_inputs].T, *total[num_inputs:]


def _update_arguments(inputs: UpdateInputs) -> tuple[Any, ...]:
    states, messages, squares, degree, weights, mask, settings = inputs
    weight, *vectors = (tensor.to(states.dtype) for tensor in weights)
    constants = (1 / (1 - settings.dropout), reference.MIN_VARIANCE, reference.EPSILON)
    numbers = map(_array(states).dtype.type, constants)
    row_degree = (degree.unsqueeze(1) if degree.ndim == 1 else degree).to(states.dtype).expand(states.shape[:2])
    mask = (torch.empty(0, states.shape[-1], dtype=torch.bool) if mask is None else mask).reshape(-1, states.shape[-1])
    tables = (*(_rows(tensor, states) for tensor in (states, messages, squares)), row_degree.reshape(-1))
    flags = (settings.degree_scaling, settings.norm, settings.skip, settings.update_unreached)
    return *tables, weight.T, *vectors, mask, (*flags, *numbers)


def _rows(tensor: Tensor | None, like: Tensor) -> Tensor:
    """Reshape to [num_rows, width]; no rows for None."""
    return like.new_empty(0, like.shape[-1]) if tensor is None else tensor.reshape(-1, like.shape[-1])


class _SplitWork(NamedTuple):
    """The arrays of a pattern or of pairs, and where the work on them is split.

    pointer     the rows of a pattern, or the groups of pairs
    ids         columns of entries, or relations of pairs
    bounds      int64 [NUM_PIECES + 1]: pieces of the entries of a pattern, or of the groups of pairs
    first_rows  the row of a pattern in which each piece begins
    """

    pointer: Array
    ids: Array
    bounds: Array
    first_rows: Array


@cached_per_object
def _split(structure: Pairs | SparsePattern) -> _SplitWork:
    ids = _array(structure.relation if isinstance(structure, Pairs) else structure.column)
    pointer, bounds = _array(structure.pointer), _even_bounds(len(ids))
    if isinstance(structure, Pairs):  # split between groups, into pieces of about as many pairs
        bounds = np.searchsorted(pointer, np.linspace(0, pointer[-1], NUM_PIECES + 1))
        bounds[0], bounds[-1] = 0, len(pointer) - 1
    return _SplitWork(pointer, ids, bounds, np.searchsorted(pointer, bounds, side="right") - 1)


@cache
def _ones(dtype: torch.dtype) -> Array:
    return _array(torch.ones(1, dtype=dtype))


def _array(tensor: Tensor) -> Array:
    """Return the tensor's memory as an array, without a copy if it is contiguous."""
    array: Array = tensor.detach().contiguous().numpy()
    return array


@lru_cache(1024)
def _even_bounds(size: int) -> Array:
    """Split 0 .. size into equal pieces, int64 [NUM_PIECES + 1]."""
    return np.arange(NUM_PIECES + 1, dtype=np.int64) * size // NUM_PIECES


class _KernelThreads(threading.local):
    count = 0


_kernel_threads = _KernelThreads()


@contextmanager
def single_threaded_torch() -> Iterator[None]:
    """Run PyTorch's own operations on one thread, and these kernels on as many as PyTorch had.

    After each parallel operation PyTorch's threads stay awake for a while, in case another follows, and keep ours from
    the cores: a training step that alternated between the two took twice as long. The large operations of our steps
    are in these kernels; those left to PyTorch are small.
    """
    before = torch.get_num_threads()
    if _kernel_threads.count or before == 1:
        yield
        return
    _kernel_threads.count = before
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _kernel_threads.count = 0


@cache
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    # The process is part of the key because threads do not survive a fork: a child needs its own pool.
    return ThreadPoolExecutor(threads, thread_name_prefix="rgcn-kernel")


def _run(kernel: Callable[..., None], bounds: Array, work: int, *arguments: Any) -> None:
    """Call kernel(first, last, bounds, *arguments) for all pieces, on several threads if there is enough work.

    Args:
        kernel: A loop over the pieces first .. last.
        bounds: Where the pieces begin, [NUM_PIECES + 1].
        work: The number of multiply-adds.
        arguments: Passed on; tensors as arrays.
    """
    arguments = tuple(_array(each) if isinstance(each, Tensor) else each for each in arguments)
    threads = min(_kernel_threads.count or torch.get_num_threads(), NUM_PIECES)
    if threads < 2 or work < MIN_THREADED_WORK:
        kernel(0, NUM_PIECES, bounds, *arguments)
        return
    shares = [(i * NUM_PIECES // threads, (i + 1) * NUM_PIECES // threads) for i in range(threads)]
    others = [_pool(threads - 1, os.getpid()).submit(kernel, *share, bounds, *arguments) for share in shares[1:]]
    kernel(*shares[0], bounds, *arguments)
    for other in others:
        other.result()
