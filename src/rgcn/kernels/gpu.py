"""The primitives on a GPU, in Triton. Each has the signature and the meaning of its namesake in `reference`.

Sums are computed in float32 (float64 for float64), in an order that depends on shapes and patterns only, and without
atomics: the same inputs give the same bits. No function waits for the device, so each can be part of a CUDA graph.
Tile sizes come from formulas, not from trials, which would make times and bits depend on chance.
"""

from contextlib import nullcontext
from typing import Any

import torch
import triton.language as tl
from torch import Tensor
from triton import cdiv

from rgcn.kernels import reference, triton_pairs, triton_sums, triton_update
from rgcn.kernels.layer_update import UpdateInputs
from rgcn.kernels.reference import EPSILON, MIN_VARIANCE, AdamSettings, FactoredGradient
from rgcn.kernels.sparse import MAX_PIECE, Pairs, RowPieces, SparsePattern

# Bytes that partial results may take; beyond, the work is split differently.
MAX_PARTIAL_BYTES = 512 << 20
# How many numbers of a node's bases one warp can hold in registers.
MAX_REGISTER_BASES = 2048
# Programs that share the rows of an update: each keeps its own partial sums of the weights' gradients.
MAX_UPDATE_PROGRAMS = 528
# How many numbers of a long row one program processes.
WIDE_BLOCK = 512
# `tl.dot` pays off for matrices of at least this size, even if one side must be padded to its least size, 16.
MIN_DOT_SIZE = 256
# The row optimizers make few passes over few rows without waiting for the device: a kernel would gain little.
lazy_adam_rows, adagrad_rows = reference.lazy_adam_rows, reference.adagrad_rows


def gather_sum(pattern: SparsePattern, value: Tensor | None, x: Tensor) -> Tensor:
    """See `reference.gather_sum`."""
    return gather_product_sum(pattern, value, None, None, x)


def gather_product_sum(
    pattern: SparsePattern,
    value: Tensor | None,
    index: Tensor | None,
    left: Tensor | None,
    x: Tensor,
    width: int | None = None,
    exact: bool = False,
) -> Tensor:
    """See `reference.gather_product_sum`; without index and left, `reference.gather_sum`."""
    x_width, pieces = x.shape[1], row_pieces(pattern)
    out = x.new_empty(pattern.num_rows, x_width, dtype=_sum_type(x) if exact else x.dtype)
    block = min(128, _power_of_2(x_width))
    # Measured on graphs of AM's size: short rows want many rows per program, longer ones more entries in flight.
    has_short_rows = pattern.num_entries < 2 * pattern.num_rows
    rows, unroll, warps = (max(1, 512 // block), 2, 4) if has_short_rows else (max(1, 256 // block), 4, 2)
    if x_width >= WIDE_BLOCK:  # many questions side by side: one row occupies all lanes
        block, rows, unroll, warps = WIDE_BLOCK, 1, 4, 1
    partial, num_pieces = _partial(pieces, x_width, out), pieces.parts.shape[1]
    tensors = (pieces.parts, pattern.column, *map(_contiguous, (value, index, left, x)), out, partial)
    sizes = {"WIDTH": x_width, "LEFT_WIDTH": x_width if left is None else left.shape[1], "ACC": _accumulator(out)}
    sizes |= {"ROWS": rows, "BLOCK_W": block, "UNROLL": unroll}
    grid = (cdiv(num_pieces, rows), cdiv(x_width, block))
    _launch(triton_sums.gather_pieces, grid, out, *tensors, num_pieces, pattern.num_rows, warps=warps, **sizes)
    _add_slots(pieces, partial, out, x_width)
    return reference.folded(out, width or x_width)


def entry_product(i: Tensor, left: Tensor, j: Tensor | None, middle: Tensor | None, k: Tensor, right: Tensor) -> Tensor:
    """See `reference.entry_product`."""
    width, entries = left.shape[1], i.numel()
    out, block = left.new_empty(entries), min(128, _power_of_2(width))
    tile = max(1, 1024 // block)
    sizes = {"WIDTH": width, "ACC": _accumulator(out), "ENTRIES": tile, "BLOCK_W": block}
    tensors = (*map(_contiguous, (i, left, j, middle, k, right)), out)
    return _launch(triton_sums.entry_products, (cdiv(entries, tile),), out, *tensors, entries, **sizes)


def combine_bases(coefficients: Tensor, bases: Tensor, pairs: Pairs) -> Tensor:
    """See `reference.combine_bases`."""
    num_bases, width = bases.shape[1], bases.shape[2]
    out, block = bases.new_empty(len(pairs), width), min(128, _power_of_2(width))
    rows = max(1, 512 // block)
    unroll = next(unroll for unroll in (8, 5, 4, 3, 2, 1) if num_bases % unroll == 0)
    sizes = {"NUM_BASES": num_bases, "WIDTH": width, "ACC": _accumulator(out)}
    sizes |= {"PAIRS": rows, "BLOCK_W": block, "UNROLL": unroll}
    tensors = (coefficients.contiguous(), bases.contiguous(), pairs.relation, pairs.node, out)
    grid = (cdiv(len(pairs), rows), cdiv(width, block))
    return _launch(triton_pairs.combine_bases, grid, out, *tensors, len(pairs), **sizes)


def spread_bases(coefficients: Tensor, rows: Tensor, pairs: Pairs) -> Tensor:
    """See `reference.spread_bases`."""
    out = rows.new_empty(pairs.num_nodes, coefficients.shape[1], rows.shape[1])
    return _spread(FactoredGradient(coefficients, rows, pairs), out, (None,) * 9)


def _spread(factors: FactoredGradient, table: Tensor, adam: tuple[Any, ...]) -> Tensor:
    """Write `spread_bases` of the factors to the table, or take Adam's step by it; one block of a node per program."""
    coefficients, rows, pairs = factors
    num_nodes, num_bases, width = table.shape
    block = min(1024, _power_of_2(num_bases * width))
    sizes = {"NUM_BASES": num_bases, "WIDTH": width, "ACC": _accumulator(table), "BLOCK": block}
    tensors = (coefficients.contiguous(), rows.contiguous(), pairs.pointer, pairs.relation, table)
    grid, warps = (num_nodes, cdiv(num_bases * width, block)), 1 if block <= 128 else 2
    return _launch(triton_pairs.spread_bases, grid, table, *tensors, *adam, warps=warps, **sizes)


def coefficient_gradient(bases: Tensor, rows: Tensor, pairs: Pairs) -> Tensor:
    """See `reference.coefficient_gradient`. Computes each pair's products, then sums them over each relation."""
    num_bases, width = bases.shape[1], bases.shape[2]
    if len(pairs) == 0 or num_bases == 0 or width == 0:
        return bases.new_zeros(pairs.num_relations, num_bases)
    bases, rows, kind = bases.contiguous(), rows.contiguous(), _sum_type(bases)
    step = max(1, MAX_PARTIAL_BYTES // (len(pairs) * kind.itemsize))
    parts = []
    for first in range(0, num_bases, step):
        chunk = bases[:, first : first + step]
        product = bases.new_empty(len(pairs), chunk.shape[1], dtype=kind)
        block_b, block_w = _power_of_2(chunk.shape[1]), _power_of_2(width)
        sizes = {"NODE_STRIDE": num_bases * width, "WIDTH": width, "ACC": _accumulator(product)}
        if block_b * block_w <= MAX_REGISTER_BASES:
            sizes |= {"BLOCK_B": block_b, "BLOCK_W": block_w}
            arguments = (chunk, rows, pairs.pointer, product, chunk.shape[1])
            _launch(triton_pairs.node_products, (pairs.num_nodes,), product, *arguments, warps=1, **sizes)
        else:
            block_b, block_w = min(8, block_b), min(128, block_w)
            sizes |= {"BLOCK_B": block_b, "BLOCK_W": block_w, "PAIRS": max(1, 2048 // (block_w * block_b))}
            grid = (cdiv(len(pairs), sizes["PAIRS"]), cdiv(chunk.shape[1], block_b))
            tensors = (chunk, rows, pairs.node, product)
            _launch(triton_pairs.pair_products, grid, product, *tensors, len(pairs), chunk.shape[1], **sizes)
        parts.append(gather_sum(pairs.by_relation, None, product))
    return torch.cat(parts, 1).to(bases.dtype)


def grouped_product(x: Tensor, weight: Tensor, pairs: Pairs) -> Tensor:
    """See `reference.grouped_product`."""
    _, num_blocks, width_in, width_out = weight.shape
    out, parts, sizes = x.new_empty(x.shape[0], num_blocks, width_out), pairs.pieces().parts, _product_sizes(weight, x)
    if sizes["DOT"]:
        is_exact = sizes["PRECISION"] == "ieee"
        block, block_in = _dot_block(width_out, is_exact), 16 if is_exact else min(32, max(16, _power_of_2(width_in)))
        block_pairs, columns = MAX_PIECE, num_blocks * cdiv(width_out, block)
    else:
        block, block_in = min(128, _power_of_2(num_blocks * width_out)), 1
        block_pairs, columns = min(MAX_PIECE, 1024 // block), cdiv(num_blocks * width_out, block)
    sizes |= {"PAIRS": block_pairs, "BLOCK_I": block_in, "BLOCK": block}
    arguments = (parts, x.contiguous(), weight, out, num_blocks, *weight.stride())
    return _launch(triton_pairs.product, (parts.shape[1], columns), out, *arguments, **sizes)


def grouped_outer(x: Tensor, gradient: Tensor, pairs: Pairs) -> Tensor:
    """See `reference.grouped_outer`."""
    num_blocks, width_in, width_out = x.shape[1], x.shape[2], gradient.shape[2]
    out = x.new_empty(pairs.num_relations, num_blocks, width_in, width_out)
    size, sizes = num_blocks * width_in * width_out, _product_sizes(out, x)
    pieces = _worthwhile_pieces(pairs, width_in, width_out, size)
    partial = _partial(pieces, size, out)
    if sizes["DOT"]:
        is_exact = sizes["PRECISION"] == "ieee"
        block_in, block = (_dot_block(width, is_exact) for width in (width_in, width_out))
        block_pairs, columns = 16 if is_exact else 32, num_blocks * cdiv(width_in, block_in) * cdiv(width_out, block)
    else:
        block, block_in = min(128, _power_of_2(size)), 1
        block_pairs, columns = min(MAX_PIECE, 1024 // block), cdiv(size, block)
    sizes |= {"PAIRS": block_pairs, "BLOCK_I": block_in, "BLOCK": block}
    tensors = (pieces.parts, x.contiguous(), gradient.contiguous(), out, partial)
    grid = (pieces.parts.shape[1], columns)
    _launch(triton_pairs.outer, grid, out, *tensors, num_blocks, pairs.num_relations, **sizes)
    _add_slots(pieces, partial, out, size)
    return out


def _product_sizes(weight: Tensor, x: Tensor) -> dict[str, Any]:
    """Constants of kernels that multiply by matrices [num_relations, K, in, out]; DOT: whether they use `tl.dot`."""
    width_in, width_out = weight.shape[2:]
    dot = width_in * width_out >= MIN_DOT_SIZE and min(width_in, width_out) > 1
    # `tl.dot` is slow for float64, and wrong for bfloat16 in the interpreter.
    dot = dot and not (x.dtype == torch.float64 or (x.dtype == torch.bfloat16 and x.device.type == "cpu"))
    return {"IN": width_in, "OUT": width_out, "DOT": dot, "ACC": _accumulator(x), "PRECISION": _precision(x)}


def adam_bases(
    table: Tensor, first: Tensor, second: Tensor, step: Tensor, gradient: FactoredGradient, settings: AdamSettings
) -> None:
    """See `reference.adam_bases`."""
    lr, betas, eps, weight_decay = settings
    # The step count is on the device, so the bias corrections are computed there, in double precision.
    count = step.double()
    rate, root = lr / (1 - torch.pow(betas[0], count)), (1 - torch.pow(betas[1], count)).sqrt()
    state = (first, second, rate, root, 1 - betas[0], betas[1], 1 - betas[1], eps, weight_decay)
    _spread(gradient, table.detach(), state)


def count_ranks(
    scores: Tensor, score: Tensor, first: int, row: Tensor, target: Tensor, begin: Tensor, end: Tensor, answers: Tensor
) -> Tensor:
    """See `reference.count_ranks`."""
    out = torch.empty(row.numel(), 5, dtype=torch.int64, device=scores.device)
    if scores.stride(1) != 1:
        scores = scores.contiguous()
    if answers.device != scores.device or answers.is_floating_point():  # a placeholder: no answers, none is read
        answers = begin
    indices = map(_contiguous, (score, row, target, begin, end, answers))
    block = min(2048, max(128, _power_of_2(scores.shape[1])))
    sizes = {"ACC": _accumulator(scores), "BLOCK": block, "ANSWERS": 128}
    numbers = scores.stride(0), scores.shape[1], first
    return _launch(triton_sums.count_ranks, (len(row),), out, scores, *indices, out, *numbers, **sizes)


def layer_update(inputs: UpdateInputs) -> Tensor:
    """See `layer_update.reference_update`."""
    out, (arguments, numbers, sizes) = torch.empty_like(inputs.states), _update_arguments(inputs)
    return _launch(triton_update.update, (cdiv(numbers[0], 128),), out, *arguments, out, *numbers, ROWS=128, **sizes)


def layer_update_gradients(inputs: UpdateInputs, gradient: Tensor) -> tuple[Tensor | None, ...]:
    """Return the gradients of `UpdateInputs`: states, messages, squares (None if there are none), and each weight."""
    states, weights = inputs.states, inputs.weights
    arguments, numbers, sizes = _update_arguments(inputs)
    gradients = [None if tensor is None else torch.empty_like(tensor) for tensor in inputs[:3]]
    programs = min(MAX_UPDATE_PROGRAMS, max(1, cdiv(numbers[0], 64)))
    of_matrix = torch.zeros(programs, *weights[0].shape, device=states.device)
    of_vectors = torch.zeros(programs, 3, weights[0].shape[0], device=states.device)
    tensors = (*arguments, gradient, *gradients, of_matrix, of_vectors)
    _launch(triton_update.update_gradients, (programs,), states, *tensors, *numbers, ROWS=64, **sizes)
    sums = of_matrix.sum(0), *of_vectors.sum(0).unbind()
    return *gradients, *(total.to(weight.dtype) for total, weight in zip(sums, weights, strict=True))


def _update_arguments(inputs: UpdateInputs) -> tuple[list[Tensor | None], tuple[Any, ...], dict[str, Any]]:
    """Return the tensors; the number of rows, how many of them share a degree factor, dropout; and the constants."""
    states, messages, squares, degree, (weight, *vectors), seed, settings = inputs
    vectors = [vector.float() for vector in vectors]
    tensors = (states, messages, squares, degree.float(), weight.to(states.dtype), *vectors, seed)
    width, rows = states.shape[-1], states.numel() // states.shape[-1]
    numbers = rows, rows // max(1, degree.numel()), settings.dropout
    flags = {"SCALED": settings.degree_scaling, "NORM": settings.norm, "SKIP": settings.skip}
    flags |= {"UNREACHED": settings.update_unreached}
    sizes = {"D": width, "PARTS": weight.shape[1] // width, "PRECISION": _precision(states)}
    return [*map(_contiguous, tensors)], numbers, {**flags, **sizes, "MIN_VARIANCE": MIN_VARIANCE, "EPS": EPSILON}


def row_pieces(pattern: SparsePattern) -> RowPieces:
    """Return a pattern's pieces; those of a transient pattern are computed on the device, without waiting for it."""
    if not pattern.transient or "pieces" in vars(pattern):
        return pattern.pieces
    num_rows, device = pattern.num_rows, pattern.pointer.device
    num_pieces, num_long_rows = num_rows + pattern.num_entries // MAX_PIECE, pattern.num_entries // MAX_PIECE
    packed = torch.empty(num_rows, dtype=torch.int64, device=device)
    parts = torch.empty(4, num_pieces, dtype=torch.int32, device=device)
    long_rows = torch.full((3, num_long_rows), num_rows, dtype=torch.int32, device=device)
    sizes = {"MAX_PIECE": MAX_PIECE, "BLOCK": 256}
    _launch(triton_sums.count_pieces, (cdiv(num_rows, 256),), packed, pattern.pointer, packed, num_rows, **sizes)
    numbers = (num_rows, num_pieces, num_long_rows, num_rows.bit_length() + 1)
    tensors = (pattern.pointer, torch.cumsum(packed, 0), parts, long_rows)
    _launch(triton_sums.split_rows, (cdiv(num_pieces, 256),), packed, *tensors, *numbers, **sizes)
    object.__setattr__(pattern, "pieces", RowPieces(parts, long_rows, 2 * num_long_rows))
    return pattern.pieces


def _partial(pieces: RowPieces, size: int, out: Tensor) -> Tensor:
    """Allocate the partial sums [num_slots, size] of pieces that are not their whole row, not in out's rounded type."""
    return torch.empty(max(1, pieces.num_slots) * size, dtype=_sum_type(out), device=out.device)


def _add_slots(pieces: RowPieces, partial: Tensor, out: Tensor, size: int) -> None:
    block, num_long_rows = min(128, _power_of_2(size)), pieces.long_rows.shape[1]
    sizes = {"ACC": _accumulator(out), "SLOTS": min(64, 2048 // block), "BLOCK_W": block}
    if num_long_rows:
        grid = (num_long_rows, cdiv(size, block))
        _launch(triton_sums.add_slots, grid, out, pieces.long_rows, partial, out, len(out), size, **sizes)


def _worthwhile_pieces(pairs: Pairs, width_in: int, width_out: int, size: int) -> RowPieces:
    """Split relations' pairs into pieces so long that their partial sums [K, in, out] pay off and fit in memory."""
    piece = MAX_PIECE
    while piece < 2**30 and (
        piece * (width_in + width_out) < 2 * width_in * width_out or 8 * len(pairs) // piece * size > MAX_PARTIAL_BYTES
    ):
        piece *= 2
    return pairs.pieces(piece)


def _dot_block(width: int, is_exact: bool) -> int:
    """The side of a block that one program multiplies with `tl.dot`, for a matrix side of this width."""
    return min(32 if is_exact else 64, max(16, _power_of_2(width)))


def _precision(x: Tensor) -> str:
    """The precision of `tl.dot`: float32 is multiplied exactly, as by PyTorch, unless the user allows less."""
    is_exact = x.dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest"
    return "ieee" if is_exact else "tf32"


def _sum_type(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _accumulator(x: Tensor) -> Any:
    return tl.float64 if x.dtype == torch.float64 else tl.float32


def _power_of_2(size: int) -> int:
    """Return the least power of two that is at least `size`. Unlike Triton's, it is not zero for an empty tensor."""
    return 1 << (size - 1).bit_length()


def _contiguous(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.contiguous()


def _launch(kernel: Any, grid: tuple[int, ...], out: Tensor, *arguments: Any, warps: int = 4, **sizes: Any) -> Tensor:
    """Start a kernel on the device of `out`, and return `out`; fill it with zeros if the grid has no programs.

    Multiplication and addition are fused into one rounding, because Triton's default differs between versions.
    """
    if 0 in grid:
        return out.zero_()
    is_elsewhere = out.device.type == "cuda" and out.device.index != torch.cuda.current_device()
    with torch.cuda.device(out.device) if is_elsewhere else nullcontext():
        kernel[grid](*arguments, num_warps=warps, enable_fp_fusion=True, **sizes)
    return out
