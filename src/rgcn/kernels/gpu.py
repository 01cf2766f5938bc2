"""The primitives on a GPU, in Triton. Each has the signature and the meaning of its namesake in `reference`.

Sums are accumulated in float32 (float64 for float64), in an order that follows from shapes and patterns alone,
and without atomics: same inputs, same bits. Nothing here waits for the device, so that every function can be part of a
CUDA graph. Tile sizes come from formulas, not from trials: trials would make times and bits a matter of luck.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
import triton.language as tl
from torch import Tensor
from triton import cdiv

from rgcn.kernels import reference, triton_pairs, triton_sums, triton_update
from rgcn.kernels.layer_update import UpdateInputs
from rgcn.kernels.reference import EPSILON, LEAST_VARIANCE, AdamSettings, FactoredGradient
from rgcn.kernels.sparse import PIECE, Pairs, RowPieces, SparsePattern, computed_once

# Bytes that partial results may take; beyond, the work is cut differently.
SCRATCH = 512 << 20
# Numbers of a node's bases that one warp can hold in its registers.
HELD = 2048
# Programs that share the rows of an update: more would keep more partial sums of the weights' gradients.
PROGRAMS = 528
# Numbers of a row that one program takes, where rows are long.
WIDE = 512
# Of a matrix at least this large `tl.dot` makes good use, even if one side must be padded to its least size, 16.
WORTH_A_DOT = 256
# A few passes over few rows, none of which waits: a kernel of our own would gain little.
lazy_adam_rows, adagrad_rows = reference.lazy_adam_rows, reference.adagrad_rows


def gather_sum(pattern: SparsePattern, value: Tensor | None, x: Tensor) -> Tensor:
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
    """Without index and left: `gather_sum`."""
    full, pieces = x.shape[1], pieces_of(pattern)
    out = x.new_empty(pattern.num_rows, full, dtype=_sum_type(x) if exact else x.dtype)
    block = min(128, _power(full))
    # Measured on graphs of AM's shape: many short rows want many side by side, longer ones more entries in flight.
    short = pattern.num_entries < 2 * pattern.num_rows
    rows, unroll, warps = (max(1, 512 // block), 2, 4) if short else (max(1, 256 // block), 4, 2)
    if full >= WIDE:  # many questions side by side: a row fills the lanes by itself
        block, rows, unroll, warps = WIDE, 1, 4, 1
    partial, num_pieces = _partial(pieces, full, out), pieces.parts.shape[1]
    tensors = (pieces.parts, pattern.column, *map(_contiguous, (value, index, left, x)), out, partial)
    sizes = {"WIDTH": full, "LEFT_WIDTH": full if left is None else left.shape[1], "ACC": _accumulator(out)}
    sizes |= {"ROWS": rows, "BLOCK_W": block, "UNROLL": unroll}
    grid = (cdiv(num_pieces, rows), cdiv(full, block))
    _launch(triton_sums.gather_pieces, grid, out, *tensors, num_pieces, pattern.num_rows, warps=warps, **sizes)
    _add_slots(pieces, partial, out, full)
    return reference.folded(out, width or full)


def entry_product(i: Tensor, left: Tensor, j: Tensor | None, middle: Tensor | None, k: Tensor, right: Tensor) -> Tensor:
    width, entries = left.shape[1], i.numel()
    out, block = left.new_empty(entries), min(128, _power(width))
    tile = max(1, 1024 // block)
    sizes = {"WIDTH": width, "ACC": _accumulator(out), "ENTRIES": tile, "BLOCK_W": block}
    tensors = (*map(_contiguous, (i, left, j, middle, k, right)), out)
    return _launch(triton_sums.entry_products, (cdiv(entries, tile),), out, *tensors, entries, **sizes)


def combine_bases(coefficients: Tensor, bases: Tensor, pairs: Pairs) -> Tensor:
    num_bases, width = bases.shape[1], bases.shape[2]
    out, block = bases.new_empty(len(pairs), width), min(128, _power(width))
    rows = max(1, 512 // block)
    unroll = next(unroll for unroll in (8, 5, 4, 3, 2, 1) if num_bases % unroll == 0)
    sizes = {"NUM_BASES": num_bases, "WIDTH": width, "ACC": _accumulator(out)}
    sizes |= {"PAIRS": rows, "BLOCK_W": block, "UNROLL": unroll}
    tensors = (coefficients.contiguous(), bases.contiguous(), pairs.relation, pairs.node, out)
    grid = (cdiv(len(pairs), rows), cdiv(width, block))
    return _launch(triton_pairs.combine, grid, out, *tensors, len(pairs), **sizes)


def spread_bases(coefficients: Tensor, rows: Tensor, pairs: Pairs) -> Tensor:
    out = rows.new_empty(pairs.num_nodes, coefficients.shape[1], rows.shape[1])
    return _spread(FactoredGradient(coefficients, rows, pairs), out, (None,) * 9)


def _spread(given: FactoredGradient, table: Tensor, adam: tuple[Any, ...]) -> Tensor:
    """What is spread to the table, or Adam's step by it; a program writes a block of one node's bases."""
    coefficients, rows, pairs = given
    num_nodes, num_bases, width = table.shape
    block = min(1024, _power(num_bases * width))
    sizes = {"NUM_BASES": num_bases, "WIDTH": width, "ACC": _accumulator(table), "BLOCK": block}
    tensors = (coefficients.contiguous(), rows.contiguous(), pairs.pointer, pairs.relation, table)
    grid, warps = (num_nodes, cdiv(num_bases * width, block)), 1 if block <= 128 else 2
    return _launch(triton_pairs.spread, grid, table, *tensors, *adam, warps=warps, **sizes)


def coefficient_gradient(bases: Tensor, rows: Tensor, pairs: Pairs) -> Tensor:
    """Each pair's products first, then their sum over the pairs of each relation: both in a fixed order."""
    num_bases, width = bases.shape[1], bases.shape[2]
    if len(pairs) == 0 or num_bases == 0 or width == 0:
        return bases.new_zeros(pairs.num_relations, num_bases)
    bases, rows, kind = bases.contiguous(), rows.contiguous(), _sum_type(bases)
    step = max(1, SCRATCH // (len(pairs) * kind.itemsize))
    parts = []
    for first in range(0, num_bases, step):
        some = bases[:, first : first + step]
        product = bases.new_empty(len(pairs), some.shape[1], dtype=kind)
        block_b, block_w = _power(some.shape[1]), _power(width)
        sizes = {"NODE_STRIDE": num_bases * width, "WIDTH": width, "ACC": _accumulator(product)}
        arguments: tuple[Any, ...]
        grid: tuple[int, ...]
        if block_b * block_w <= HELD:
            arguments = (some, rows, pairs.pointer, product, some.shape[1])
            kernel, grid, warps = triton_pairs.node_products, (pairs.num_nodes,), 1
        else:
            block_b, block_w = min(8, block_b), min(128, block_w)
            sizes["PAIRS"] = max(1, 2048 // (block_w * block_b))
            arguments = (some, rows, pairs.node, product, len(pairs), some.shape[1])
            grid = (cdiv(len(pairs), sizes["PAIRS"]), cdiv(some.shape[1], block_b))
            kernel, warps = triton_pairs.pair_products, 4
        _launch(kernel, grid, product, *arguments, warps=warps, BLOCK_B=block_b, BLOCK_W=block_w, **sizes)
        parts.append(gather_sum(pairs.by_relation, None, product))
    return torch.cat(parts, 1).to(bases.dtype)


def grouped_product(x: Tensor, weight: Tensor, pairs: Pairs) -> Tensor:
    _, num_blocks, width_in, width_out = weight.shape
    out, parts, sizes = x.new_empty(x.shape[0], num_blocks, width_out), pairs.tiles.parts, _product_sizes(weight, x)
    if sizes["DOT"]:
        exactly = sizes["PRECISION"] == "ieee"
        block, block_in = _side(width_out, exactly), 16 if exactly else min(32, max(16, _power(width_in)))
        pairs_at_once, columns = PIECE, num_blocks * cdiv(width_out, block)
    else:
        block, block_in = min(128, _power(num_blocks * width_out)), 1
        pairs_at_once, columns = min(PIECE, 1024 // block), cdiv(num_blocks * width_out, block)
    sizes |= {"PAIRS": pairs_at_once, "BLOCK_I": block_in, "BLOCK": block}
    arguments = (parts, x.contiguous(), weight, out, num_blocks, *weight.stride())
    return _launch(triton_pairs.product, (parts.shape[1], columns), out, *arguments, **sizes)


def grouped_outer(x: Tensor, gradient: Tensor, pairs: Pairs) -> Tensor:
    num_blocks, width_in, width_out = x.shape[1], x.shape[2], gradient.shape[2]
    out = x.new_empty(pairs.num_relations, num_blocks, width_in, width_out)
    size, sizes = num_blocks * width_in * width_out, _product_sizes(out, x)
    tiles = _tiles(pairs, width_in, width_out, size)
    partial = _partial(tiles, size, out)
    if sizes["DOT"]:
        exactly = sizes["PRECISION"] == "ieee"
        block_in, block = (_side(width, exactly) for width in (width_in, width_out))
        pairs_at_once, columns = 16 if exactly else 32, num_blocks * cdiv(width_in, block_in) * cdiv(width_out, block)
    else:
        block, block_in = min(128, _power(size)), 1
        pairs_at_once, columns = min(PIECE, 1024 // block), cdiv(size, block)
    sizes |= {"PAIRS": pairs_at_once, "BLOCK_I": block_in, "BLOCK": block}
    tensors = (tiles.parts, x.contiguous(), gradient.contiguous(), out, partial)
    grid = (tiles.parts.shape[1], columns)
    _launch(triton_pairs.outer, grid, out, *tensors, num_blocks, pairs.num_relations, **sizes)
    _add_slots(tiles, partial, out, size)
    return out


def _product_sizes(weight: Tensor, x: Tensor) -> dict[str, Any]:
    """Of products with matrices [relations, K, in, out]: their sizes, whether `tl.dot` multiplies them, and how."""
    width_in, width_out = weight.shape[2:]
    dot = width_in * width_out >= WORTH_A_DOT and min(width_in, width_out) > 1
    # float64 has no fast product here; the interpreter's takes bfloat16 for integers
    dot = dot and not (x.dtype == torch.float64 or (x.dtype == torch.bfloat16 and x.device.type == "cpu"))
    return {"IN": width_in, "OUT": width_out, "DOT": dot, "ACC": _accumulator(x), "PRECISION": _precision(x)}


def adam_bases(
    table: Tensor, first: Tensor, second: Tensor, step: Tensor, gradient: FactoredGradient, settings: AdamSettings
) -> None:
    lr, betas, eps, weight_decay = settings
    # How far along training is, only the device knows: the corrections are computed there, in double precision.
    taken = step.double()
    rate, root = lr / (1 - torch.pow(betas[0], taken)), (1 - torch.pow(betas[1], taken)).sqrt()
    state = (first, second, rate, root, 1 - betas[0], betas[1], 1 - betas[1], eps, weight_decay)
    _spread(gradient, table.detach(), state)


def count_ranks(
    scores: Tensor, own: Tensor, first: int, row: Tensor, target: Tensor, begin: Tensor, end: Tensor, answers: Tensor
) -> Tensor:
    out = torch.empty(row.numel(), 5, dtype=torch.int64, device=scores.device)
    if scores.stride(1) != 1:
        scores = scores.contiguous()
    if answers.device != scores.device or answers.is_floating_point():  # there are none, and none will be read
        answers = begin
    indices = map(_contiguous, (own, row, target, begin, end, answers))
    block = min(2048, max(128, _power(scores.shape[1])))
    sizes = {"KIND": _accumulator(scores), "BLOCK": block, "ANSWERS": 128}
    numbers = scores.stride(0), scores.shape[1], first
    return _launch(triton_sums.count_ranks, (len(row),), out, scores, *indices, out, *numbers, **sizes)


def layer_update(given: UpdateInputs) -> Tensor:
    out, (arguments, numbers, sizes) = torch.empty_like(given.own), _update_arguments(given)
    return _launch(triton_update.update, (cdiv(numbers[0], 128),), out, *arguments, out, *numbers, ROWS=128, **sizes)


def layer_update_gradients(given: UpdateInputs, slope: Tensor) -> tuple[Tensor | None, ...]:
    """Gradients of own, heard, squares and the four weights."""
    own, weights = given.own, given.weights
    arguments, numbers, sizes = _update_arguments(given)
    slopes = [None if tensor is None else torch.empty_like(tensor) for tensor in given[:3]]
    programs = min(PROGRAMS, max(1, cdiv(numbers[0], 64)))
    of_matrix = torch.zeros(programs, *weights[0].shape, device=own.device)
    of_vectors = torch.zeros(programs, 3, weights[0].shape[0], device=own.device)
    tensors = (*arguments, slope, *slopes, of_matrix, of_vectors)
    _launch(triton_update.update_gradients, (programs,), own, *tensors, *numbers, ROWS=64, **sizes)
    of_weights = of_matrix.sum(0), *of_vectors.sum(0).unbind()
    return *slopes, *(total.to(given.dtype) for total, given in zip(of_weights, weights, strict=True))


def _update_arguments(given: UpdateInputs) -> tuple[list[Tensor | None], tuple[Any, ...], dict[str, Any]]:
    """Tensors; rows of states, how many of these share a degree factor, and dropout; sizes."""
    own, heard, squares, degree, (weight, *vectors), seed, settings = given
    tensors = (own, heard, squares, degree.float(), weight.to(own.dtype), *(vector.float() for vector in vectors), seed)
    width, rows = own.shape[-1], own.numel() // own.shape[-1]
    numbers = rows, rows // max(1, degree.numel()), settings.dropout
    sizes: dict[str, Any] = {name.upper(): getattr(settings, name) for name in ("scaled", "norm", "skip", "wakes")}
    sizes |= {"D": width, "PARTS": weight.shape[1] // width, "PRECISION": _precision(own)}
    return [*map(_contiguous, tensors)], numbers, {**sizes, "LEAST": LEAST_VARIANCE, "EPS": EPSILON}


def pieces_of(pattern: SparsePattern) -> RowPieces:
    """The pattern's pieces: for a lasting pattern the ones it keeps, in an order that suits; else cut quickly."""
    if not pattern.transient or "pieces" in vars(pattern):
        return pattern.pieces
    num_rows, device = pattern.num_rows, pattern.pointer.device
    num_pieces, num_longs = num_rows + pattern.num_entries // PIECE, pattern.num_entries // PIECE
    packed = torch.empty(num_rows, dtype=torch.int64, device=device)
    parts = torch.empty(4, num_pieces, dtype=torch.int32, device=device)
    longs = torch.full((3, num_longs), num_rows, dtype=torch.int32, device=device)
    sizes = {"PIECE": PIECE, "BLOCK": 256}
    _launch(triton_sums.count_pieces, (cdiv(num_rows, 256),), packed, pattern.pointer, packed, num_rows, **sizes)
    numbers = (num_rows, num_pieces, num_longs, num_rows.bit_length() + 1)
    tensors = (pattern.pointer, torch.cumsum(packed, 0), parts, longs)
    _launch(triton_sums.cut_pieces, (cdiv(num_pieces, 256),), packed, *tensors, *numbers, **sizes)
    object.__setattr__(pattern, "pieces", RowPieces(parts, longs, 2 * num_longs))
    return pattern.pieces


def _partial(pieces: RowPieces, size: int, out: Tensor) -> Tensor:
    """A place for the sums of pieces that are not their whole row: [slots, size], not rounded to out's type."""
    return torch.empty(max(1, pieces.num_slots) * size, dtype=_sum_type(out), device=out.device)


def _add_slots(pieces: RowPieces, partial: Tensor, out: Tensor, size: int) -> None:
    block, num_longs = min(128, _power(size)), pieces.longs.shape[1]
    sizes = {"ACC": _accumulator(out), "SLOTS": min(64, 2048 // block), "BLOCK_W": block}
    if num_longs:
        grid = (num_longs, cdiv(size, block))
        _launch(triton_sums.add_slots, grid, out, pieces.longs, partial, out, len(out), size, **sizes)


def _tiles(pairs: Pairs, width_in: int, width_out: int, size: int) -> RowPieces:
    """The relations' pairs cut into pieces that are worth their partial sums [K, in, out], which must fit as well."""
    piece = PIECE
    while piece < 2**30 and (
        piece * (width_in + width_out) < 2 * width_in * width_out or 8 * len(pairs) // piece * size > SCRATCH
    ):
        piece *= 2
    if piece == PIECE:
        return pairs.tiles
    known = _larger_tiles(pairs)
    if piece not in known:
        known[piece] = RowPieces.of(pairs.pointer, piece)
    return known[piece]


@computed_once
def _larger_tiles(_: Pairs) -> dict[int, RowPieces]:
    """The pieces that were cut, by their size."""
    return {}


def _side(width: int, exactly: bool) -> int:
    """Numbers of a side of the matrix that one program takes where `tl.dot` multiplies."""
    return min(32 if exactly else 64, max(16, _power(width)))


def _precision(x: Tensor) -> str:
    """How `tl.dot` multiplies float32: exactly, unless the user allowed PyTorch's own products less."""
    full = x.dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest"
    return "ieee" if full else "tf32"


def _sum_type(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _accumulator(x: Tensor) -> Any:
    return tl.float64 if x.dtype == torch.float64 else tl.float32


def _power(size: int) -> int:
    """The least power of two that is not less."""
    return 1 << (size - 1).bit_length()


def _contiguous(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.contiguous()


def _launch(kernel: Any, grid: tuple[int, ...], out: Tensor, *arguments: Any, warps: int = 4, **sizes: Any) -> Tensor:
    """Start a kernel on the device of `out`, which is returned: Triton takes the current one. No programs: zeros.

    It multiplies and adds in one rounding, whatever Triton's default is, for that differs between versions.
    """
    if 0 in grid:
        return out.zero_()
    elsewhere = out.device.type == "cuda" and out.device.index != torch.cuda.current_device()
    with torch.cuda.device(out.device) if elsewhere else nullcontext():
        kernel[grid](*arguments, num_warps=warps, enable_fp_fusion=True, **sizes)
    return out
