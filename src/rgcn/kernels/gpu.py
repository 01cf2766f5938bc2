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

from rgcn.kernels import reference, triton_bases, triton_groups, triton_sums, triton_update
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


def exact_product_sum(pattern: SparsePattern, value: Tensor | None, index: Tensor, left: Tensor, x: Tensor) -> Tensor:
    """`gather_product_sum`, not rounded to x's type."""
    return gather_product_sum(pattern, value, index, left, x, _sum_type(x))


def gather_product_sum(
    pattern: SparsePattern,
    value: Tensor | None,
    index: Tensor | None,
    left: Tensor | None,
    x: Tensor,
    kind: torch.dtype | None = None,
) -> Tensor:
    """Without index and left: `gather_sum`. kind: type of the result, by default that of x."""
    width = x.shape[1]
    out = x.new_empty(pattern.num_rows, width, dtype=kind)
    if out.numel() == 0 or pattern.num_entries == 0:
        return out.zero_()
    x, pieces = x.contiguous(), pieces_of(pattern)
    partial = _partial(pieces, width, out)
    block = min(128, _power(width))
    # Measured on graphs of AM's shape: many short rows want many side by side, longer ones more entries in flight.
    short = pattern.num_entries < 2 * pattern.num_rows
    rows, unroll, warps = (max(1, 512 // block), 2, 4) if short else (max(1, 256 // block), 4, 2)
    if width >= WIDE:  # many questions side by side: a row fills the lanes by itself
        block, rows, unroll, warps = WIDE, 1, 4, 1
    tensors = (
        pattern.column,
        x if value is None else value.contiguous(),
        pattern.column if index is None else index.contiguous(),
        x if left is None else left.contiguous(),
        x,
    )
    arguments = (*pieces[:4], *tensors, out, partial, len(pieces.row), pattern.num_rows)
    sizes = {"WIDTH": width, "ACC": _accumulator(out), "ROWS": rows, "BLOCK_W": block, "UNROLL": unroll}
    sizes["LEFT_WIDTH"] = width if left is None else left.shape[1]
    which = {"HAS_VALUE": value is not None, "HAS_LEFT": left is not None}
    grid = (cdiv(len(pieces.row), rows), cdiv(width, block))
    _launch(triton_sums.gather_pieces, grid, out, *arguments, warps=warps, **sizes, **which)
    _add_slots(pieces, partial, out, pattern.num_rows, width)
    return out


def entry_dot(i: Tensor, left: Tensor, j: Tensor, right: Tensor) -> Tensor:
    return entry_product(i, left, None, None, j, right)


def entry_product(i: Tensor, left: Tensor, j: Tensor | None, middle: Tensor | None, k: Tensor, right: Tensor) -> Tensor:
    """Without j and middle: `entry_dot`."""
    width, entries = left.shape[1], i.numel()
    out = left.new_empty(entries)
    if entries == 0 or width == 0:
        return out.zero_()
    block = min(128, _power(width))
    tile = max(1, 1024 // block)
    given = (i, left, i if j is None else j, left if middle is None else middle, k, right)
    sizes = {"WIDTH": width, "THREE": middle is not None, "ACC": _accumulator(out), "ENTRIES": tile, "BLOCK_W": block}
    tensors = (tensor.contiguous() for tensor in given)
    _launch(triton_sums.entry_products, (cdiv(entries, tile),), out, *tensors, out, entries, **sizes)
    return out


def combine_bases(coefficients: Tensor, bases: Tensor, pairs: Pairs) -> Tensor:
    num_bases, width = bases.shape[1], bases.shape[2]
    out = bases.new_empty(len(pairs), width)
    if out.numel() == 0 or num_bases == 0:
        return out.zero_()
    block = min(128, _power(width))
    rows = max(1, 512 // block)
    tensors = (coefficients.contiguous(), bases.contiguous(), pairs.relation, pairs.node, out)
    unroll = next(unroll for unroll in (8, 5, 4, 3, 2, 1) if num_bases % unroll == 0)
    sizes = {"NUM_BASES": num_bases, "WIDTH": width, "ACC": _accumulator(out), "PAIRS": rows, "BLOCK_W": block}
    grid = (cdiv(len(pairs), rows), cdiv(width, block))
    _launch(triton_bases.combine, grid, out, *tensors, len(pairs), UNROLL=unroll, **sizes)
    return out


def spread_bases(coefficients: Tensor, rows: Tensor, pairs: Pairs) -> Tensor:
    out = rows.new_empty(pairs.num_nodes, coefficients.shape[1], rows.shape[1])
    if out.numel() == 0 or len(pairs) == 0:
        return out.zero_()
    grid, warps, sizes = _of_nodes(out)
    tensors = (coefficients.contiguous(), rows.contiguous(), pairs.pointer, pairs.relation)
    unused = (out,) * 5 + (0.0,) * 5
    _launch(triton_bases.spread, grid, out, *tensors, *unused, ADAM=False, warps=warps, **sizes)
    return out


def _of_nodes(table: Tensor) -> tuple[tuple[int, int], int, dict[str, Any]]:
    """(grid, warps, sizes) of programs that write a block of one node's bases in the table [nodes, B, width]."""
    num_nodes, num_bases, width = table.shape
    block = min(1024, _power(num_bases * width))
    sizes = {"NUM_BASES": num_bases, "WIDTH": width, "ACC": _accumulator(table), "BLOCK": block}
    return (num_nodes, cdiv(num_bases * width, block)), 1 if block <= 128 else 2, sizes


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
            kernel, grid, warps = triton_bases.node_products, (pairs.num_nodes,), 1
        else:
            block_b, block_w = min(8, block_b), min(128, block_w)
            sizes["PAIRS"] = max(1, 2048 // (block_w * block_b))
            arguments = (some, rows, pairs.node, product, len(pairs), some.shape[1])
            grid = (cdiv(len(pairs), sizes["PAIRS"]), cdiv(some.shape[1], block_b))
            kernel, warps = triton_bases.pair_products, 4
        _launch(kernel, grid, product, *arguments, warps=warps, BLOCK_B=block_b, BLOCK_W=block_w, **sizes)
        parts.append(gather_sum(pairs.by_relation, None, product))
    return torch.cat(parts, 1).to(bases.dtype)


def grouped_product(x: Tensor, weight: Tensor, pairs: Pairs) -> Tensor:
    _, num_blocks, width_in, width_out = weight.shape
    out = x.new_empty(x.shape[0], num_blocks, width_out)
    if out.numel() == 0 or width_in == 0:
        return out.zero_()
    tiles, dot = pairs.tiles, _dot_serves(x, width_in, width_out)
    arguments = (tiles.row, tiles.begin, tiles.end, x.contiguous(), weight, out, num_blocks, *weight.stride())
    if dot:
        exactly = _precision(x) == "ieee"
        block, block_in = _side(width_out, exactly), 16 if exactly else min(32, max(16, _power(width_in)))
        pairs_at_once, columns = PIECE, num_blocks * cdiv(width_out, block)
    else:
        block, block_in = min(128, _power(num_blocks * width_out)), 1
        pairs_at_once, columns = min(PIECE, 1024 // block), cdiv(num_blocks * width_out, block)
    sizes = {"IN": width_in, "OUT": width_out, "PAIRS": pairs_at_once, "BLOCK_I": block_in, "BLOCK": block}
    how = {"DOT": dot, "ACC": _accumulator(out), "PRECISION": _precision(x)}
    _launch(triton_groups.product, (len(tiles.row), columns), out, *arguments, **sizes, **how)
    return out


def grouped_outer(x: Tensor, gradient: Tensor, pairs: Pairs) -> Tensor:
    num_blocks, width_in, width_out = x.shape[1], x.shape[2], gradient.shape[2]
    out = x.new_empty(pairs.num_relations, num_blocks, width_in, width_out)
    if out.numel() == 0 or len(pairs) == 0:
        return out.zero_()
    size = num_blocks * width_in * width_out
    tiles, dot = _tiles(pairs, width_in, width_out, size), _dot_serves(x, width_in, width_out)
    partial = _partial(tiles, size, out)
    arguments = (*tiles[:4], x.contiguous(), gradient.contiguous(), out, partial, num_blocks, pairs.num_relations)
    if dot:
        exactly = _precision(x) == "ieee"
        block_in, block = (_side(width, exactly) for width in (width_in, width_out))
        pairs_at_once, columns = 16 if exactly else 32, num_blocks * cdiv(width_in, block_in) * cdiv(width_out, block)
    else:
        block, block_in = min(128, _power(size)), 1
        pairs_at_once, columns = min(PIECE, 1024 // block), cdiv(size, block)
    sizes = {"IN": width_in, "OUT": width_out, "PAIRS": pairs_at_once, "BLOCK_I": block_in, "BLOCK": block}
    how = {"DOT": dot, "ACC": _accumulator(out), "PRECISION": _precision(x)}
    _launch(triton_groups.outer, (len(tiles.row), columns), out, *arguments, **sizes, **how)
    _add_slots(tiles, partial, out, pairs.num_relations, size)
    return out


def adam_bases(
    table: Tensor, first: Tensor, second: Tensor, step: Tensor, gradient: FactoredGradient, settings: AdamSettings
) -> None:
    (coefficients, rows, pairs), (lr, betas, eps, weight_decay) = gradient, settings
    if table.numel() == 0:
        return
    # How far along training is, only the device knows: the corrections are computed there, in double precision.
    taken = step.double()
    rate = lr / (1 - torch.pow(betas[0], taken))
    root = (1 - torch.pow(betas[1], taken)).sqrt()
    tensors = (coefficients.contiguous(), rows.contiguous(), pairs.pointer, pairs.relation)
    state = (table.detach(), first, second, rate, root, 1 - betas[0], betas[1], 1 - betas[1], eps, weight_decay)
    grid, warps, sizes = _of_nodes(table)
    _launch(triton_bases.spread, grid, table, *tensors, *state, ADAM=True, warps=warps, **sizes)


def count_ranks(
    scores: Tensor, own: Tensor, first: int, row: Tensor, target: Tensor, begin: Tensor, end: Tensor, answers: Tensor
) -> Tensor:
    out = torch.empty(row.numel(), 5, dtype=torch.int64, device=scores.device)
    if row.numel() == 0:
        return out
    if scores.stride(1) != 1:
        scores = scores.contiguous()
    if answers.device != scores.device or answers.is_floating_point():  # there are none, and none will be read
        answers = begin
    indices = (tensor.contiguous() for tensor in (own, row, target, begin, end, answers))
    block = min(2048, max(128, _power(scores.shape[1])))
    sizes = {"KIND": _accumulator(scores), "BLOCK": block, "ANSWERS": 128}
    numbers = scores.stride(0), scores.shape[1], first
    _launch(triton_sums.count_ranks, (len(row),), out, scores, *indices, out, *numbers, **sizes)
    return out


def layer_update(given: UpdateInputs) -> Tensor:
    out = torch.empty_like(given.own)
    if out.numel():
        arguments, numbers, sizes = _update_arguments(given)
        _launch(triton_update.update, (cdiv(numbers[0], 128),), out, *arguments, out, *numbers, ROWS=128, **sizes)
    return out


def layer_update_gradients(given: UpdateInputs, slope: Tensor) -> tuple[Tensor | None, ...]:
    """Gradients of own, heard, squares and the four weights."""
    own, heard, squares, _, weights, _, _ = given
    arguments, numbers, sizes = _update_arguments(given)
    slopes = torch.empty_like(own), torch.empty_like(heard), torch.empty_like(heard if squares is None else squares)
    programs = min(PROGRAMS, max(1, cdiv(numbers[0], 64)))
    of_matrix = torch.zeros(programs, *weights[0].shape, device=own.device)
    of_vectors = torch.zeros(programs, 3, weights[0].shape[0], device=own.device)
    tensors = (*arguments, slope, *slopes, of_matrix, of_vectors)
    _launch(triton_update.update_gradients, (programs,), own, *tensors, *numbers, programs, ROWS=64, **sizes)
    of_weights = of_matrix.sum(0), *of_vectors.sum(0).unbind()
    found = (total.to(given.dtype) for total, given in zip(of_weights, weights, strict=True))
    return slopes[0], slopes[1], None if squares is None else slopes[2], *found


def _update_arguments(given: UpdateInputs) -> tuple[tuple[Tensor, ...], tuple[Any, ...], dict[str, Any]]:
    """Tensors; rows of states, how many of these share a degree factor, and dropout; sizes."""
    own, heard, squares, degree, weights, seed, settings = given
    weight, *vectors = weights
    states = (own, heard, heard if squares is None else squares, degree.float())
    tensors = (*states, weight.to(own.dtype), *(vector.float() for vector in vectors), degree if seed is None else seed)
    width, rows = own.shape[-1], own.numel() // own.shape[-1]
    sizes: dict[str, Any] = {"D": width, "PARTS": weight.shape[1] // width, "PRECISION": _precision(own)}
    sizes |= {"DEVIATION": squares is not None, "DROPS": seed is not None, "LEAST": LEAST_VARIANCE, "EPS": EPSILON}
    sizes |= {name.upper(): getattr(settings, name) for name in ("scaled", "norm", "skip", "wakes")}
    return tuple(tensor.contiguous() for tensor in tensors), (rows, rows // degree.numel(), settings.dropout), sizes


def pieces_of(pattern: SparsePattern) -> RowPieces:
    """The pattern's pieces: for a lasting pattern the ones it keeps, in an order that suits; else cut quickly."""
    if not pattern.transient or "pieces" in vars(pattern):
        return pattern.pieces
    num_rows, num_entries, device = pattern.num_rows, pattern.num_entries, pattern.pointer.device
    num_pieces, num_slots = num_rows + num_entries // PIECE, 2 * num_entries // PIECE
    packed = torch.empty(num_rows, dtype=torch.int64, device=device)
    parts = torch.empty(4, num_pieces, dtype=torch.int32, device=device).unbind(0)
    longs = torch.full((3, num_slots // 2), num_rows, dtype=torch.int32, device=device).unbind(0)
    sizes = {"PIECE": PIECE, "BLOCK": 256}
    _launch(triton_sums.count_pieces, (cdiv(num_rows, 256),), packed, pattern.pointer, packed, num_rows, **sizes)
    counts = (num_rows, num_pieces, num_rows.bit_length() + 1)
    tensors = (pattern.pointer, torch.cumsum(packed, 0), *parts, *longs)
    _launch(triton_sums.cut_pieces, (cdiv(num_pieces, 256),), packed, *tensors, *counts, **sizes)
    object.__setattr__(pattern, "pieces", RowPieces._make((*parts, *longs, num_slots)))
    return pattern.pieces


def _partial(pieces: RowPieces, size: int, out: Tensor) -> Tensor:
    """A place for the sums of pieces that are not their whole row: [slots, size], not rounded to out's type."""
    return torch.empty(max(1, pieces.num_slots) * size, dtype=_sum_type(out), device=out.device)


def _add_slots(pieces: RowPieces, partial: Tensor, out: Tensor, num_rows: int, size: int) -> None:
    if len(pieces.long_row) == 0:
        return
    block = min(128, _power(size))
    sizes = {"ACC": _accumulator(out), "SLOTS": min(64, 2048 // block), "BLOCK_W": block}
    grid = (len(pieces.long_row), cdiv(size, block))
    _launch(triton_sums.add_slots, grid, out, *pieces[4:7], partial, out, num_rows, size, **sizes)


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


def _dot_serves(x: Tensor, width_in: int, width_out: int) -> bool:
    if x.dtype == torch.float64 or (x.dtype == torch.bfloat16 and x.device.type == "cpu"):
        return False  # float64 has no fast product here; the interpreter's takes bfloat16 for integers
    return width_in * width_out >= WORTH_A_DOT and min(width_in, width_out) > 1


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


def _launch(kernel: Any, grid: tuple[int, ...], out: Tensor, *arguments: Any, warps: int = 4, **sizes: Any) -> None:
    """Start a kernel on the device of `out`: Triton takes the current one.

    It multiplies and adds in one rounding, whatever Triton's default is, for that differs between versions.
    """
    elsewhere = out.device.type == "cuda" and out.device.index != torch.cuda.current_device()
    with torch.cuda.device(out.device) if elsewhere else nullcontext():
        kernel[grid](*arguments, num_warps=warps, enable_fp_fusion=True, **sizes)
