"""The primitives on a GPU, in Triton. Each has the signature and the meaning of its namesake in `reference`.

Sums are accumulated in float32 (float64 for float64), in an order that follows from shapes and patterns alone,
and without atomics: same inputs, same bits. Nothing here waits for the device, so that every function can be part of a
CUDA graph. Tile sizes come from formulas, not from trials: trials would make times and bits a matter of luck.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from rgcn.kernels import triton_adam, triton_bases, triton_groups, triton_pieces, triton_ranks, triton_sums
from rgcn.pairs import Pairs
from rgcn.sparse import PIECE, Pieces, SparsePattern

# Bytes that partial results may take; beyond, the work is cut differently.
SCRATCH = 512 << 20
# Multiply and add in one rounding, whatever Triton's default is: it differs between versions.
FUSED: dict[str, Any] = {"enable_fp_fusion": True}
# Numbers of a node's bases that one warp can hold in its registers.
HELD = 2048
# Of a matrix at least this large `tl.dot` makes good use, even if one side must be padded to its least size, 16.
WORTH_A_DOT = 256


def gather_sum(pattern: SparsePattern, value: Tensor | None, x: Tensor) -> Tensor:
    return _gather(pattern, value, None, None, x)


def gather_product_sum(pattern: SparsePattern, value: Tensor | None, index: Tensor, left: Tensor, x: Tensor) -> Tensor:
    return _gather(pattern, value, index, left, x)


def entry_dot(i: Tensor, left: Tensor, j: Tensor, right: Tensor) -> Tensor:
    return _entries(i, left, None, None, j, right)


def entry_product(i: Tensor, left: Tensor, j: Tensor, middle: Tensor, k: Tensor, right: Tensor) -> Tensor:
    return _entries(i, left, j, middle, k, right)


def combine_bases(coefficients: Tensor, bases: Tensor, pairs: Pairs) -> Tensor:
    num_bases, width = bases.shape[1], bases.shape[2]
    out = bases.new_empty(len(pairs), width)
    if out.numel() == 0 or num_bases == 0:
        return out.zero_()
    block = min(128, _power(width))
    rows = max(1, 512 // block)
    with _on(out):
        triton_bases.combine[(triton.cdiv(len(pairs), rows), triton.cdiv(width, block))](
            coefficients.contiguous(),
            bases.contiguous(),
            pairs.relation,
            pairs.node,
            out,
            len(pairs),
            NUM_BASES=num_bases,
            WIDTH=width,
            ACC=_accumulator(out),
            PAIRS=rows,
            BLOCK_W=block,
            UNROLL=next(unroll for unroll in (8, 5, 4, 3, 2, 1) if num_bases % unroll == 0),
            num_warps=4,
            **FUSED,
        )
    return out


def spread_bases(coefficients: Tensor, rows: Tensor, pairs: Pairs) -> Tensor:
    num_bases, width = coefficients.shape[1], rows.shape[1]
    out = rows.new_empty(pairs.num_nodes, num_bases, width)
    if out.numel() == 0 or len(pairs) == 0:
        return out.zero_()
    block = min(1024, _power(num_bases * width))
    with _on(out):
        triton_bases.spread[(pairs.num_nodes, triton.cdiv(num_bases * width, block))](
            coefficients.contiguous(),
            rows.contiguous(),
            pairs.pointer,
            pairs.relation,
            out,
            NUM_BASES=num_bases,
            WIDTH=width,
            ACC=_accumulator(out),
            BLOCK=block,
            num_warps=1 if block <= 128 else 2,
            **FUSED,
        )
    return out


def coefficient_gradient(bases: Tensor, rows: Tensor, pairs: Pairs) -> Tensor:
    """Each pair's products first, then their sum over the pairs of each relation: both in a fixed order."""
    num_bases, width = bases.shape[1], bases.shape[2]
    if len(pairs) == 0 or num_bases == 0 or width == 0:
        return bases.new_zeros(pairs.num_relations, num_bases)
    bases, rows = bases.contiguous(), rows.contiguous()
    kind = torch.float64 if bases.dtype == torch.float64 else torch.float32
    step = max(1, SCRATCH // (len(pairs) * kind.itemsize))
    parts = []
    for first in range(0, num_bases, step):
        some = bases[:, first : first + step]
        product = bases.new_empty(len(pairs), some.shape[1], dtype=kind)
        block_b, block_w = _power(some.shape[1]), _power(width)
        sizes: dict[str, Any] = {
            "NODE_STRIDE": num_bases * width,
            "WIDTH": width,
            "ACC": _accumulator(product),
            **FUSED,
        }
        with _on(product):
            if block_b * block_w <= HELD:
                triton_bases.node_products[(pairs.num_nodes,)](
                    some, rows, pairs.pointer, product, some.shape[1],
                    BLOCK_B=block_b, BLOCK_W=block_w, num_warps=1, **sizes,
                )  # fmt: skip
            else:
                block_b, block_w = min(8, block_b), min(128, block_w)
                tile = max(1, 2048 // (block_w * block_b))
                triton_bases.pair_products[(triton.cdiv(len(pairs), tile), triton.cdiv(some.shape[1], block_b))](
                    some, rows, pairs.node, product, len(pairs), some.shape[1],
                    PAIRS=tile, BLOCK_B=block_b, BLOCK_W=block_w, num_warps=4, **sizes,
                )  # fmt: skip
        parts.append(gather_sum(pairs.by_relation, None, product))
    return torch.cat(parts, 1).to(bases.dtype)


def grouped_product(x: Tensor, weight: Tensor, pairs: Pairs) -> Tensor:
    _, num_blocks, width_in, width_out = weight.shape
    out = x.new_empty(x.shape[0], num_blocks, width_out)
    if out.numel() == 0 or width_in == 0:
        return out.zero_()
    tiles = pairs.tiles
    arguments = (tiles.row, tiles.begin, tiles.end, x.contiguous(), weight, out, num_blocks, *weight.stride())
    with _on(out):
        if _dot_serves(x, width_in, width_out):
            precision = _precision(x)
            block_out = min(32 if precision == "ieee" else 64, max(16, _power(width_out)))
            triton_groups.product_dot[(len(tiles.row), num_blocks * triton.cdiv(width_out, block_out))](
                *arguments,
                IN=width_in,
                OUT=width_out,
                PRECISION=precision,
                PAIRS=PIECE,
                BLOCK_I=16 if precision == "ieee" else min(32, max(16, _power(width_in))),
                BLOCK_O=block_out,
                num_warps=4,
                **FUSED,
            )
        else:
            columns = num_blocks * width_out
            block = min(128, _power(columns))
            triton_groups.product_columns[(len(tiles.row), triton.cdiv(columns, block))](
                *arguments,
                IN=width_in,
                OUT=width_out,
                ACC=_accumulator(out),
                PAIRS=min(PIECE, 1024 // block),
                BLOCK_C=block,
                num_warps=4,
                **FUSED,
            )
    return out


def grouped_outer(x: Tensor, gradient: Tensor, pairs: Pairs) -> Tensor:
    num_blocks, width_in, width_out = x.shape[1], x.shape[2], gradient.shape[2]
    out = x.new_empty(pairs.num_relations, num_blocks, width_in, width_out)
    if out.numel() == 0 or len(pairs) == 0:
        return out.zero_()
    size = num_blocks * width_in * width_out
    tiles = _tiles(pairs, width_in, width_out, size)
    partial = _partial(tiles, size, out)
    arguments = (tiles.row, tiles.begin, tiles.end, tiles.slot, x.contiguous(), gradient.contiguous(), out, partial)
    with _on(out):
        if _dot_serves(x, width_in, width_out):
            precision = _precision(x)
            limit = 32 if precision == "ieee" else 64
            block_in, block_out = (min(limit, max(16, _power(width))) for width in (width_in, width_out))
            blocks = triton.cdiv(width_in, block_in) * triton.cdiv(width_out, block_out)
            triton_groups.outer_dot[(len(tiles.row), num_blocks * blocks)](
                *arguments,
                num_blocks,
                pairs.num_relations,
                IN=width_in,
                OUT=width_out,
                PRECISION=precision,
                PAIRS=16 if precision == "ieee" else 32,
                BLOCK_I=block_in,
                BLOCK_O=block_out,
                num_warps=4,
                **FUSED,
            )
        else:
            block = min(128, _power(size))
            triton_groups.outer_columns[(len(tiles.row), triton.cdiv(size, block))](
                *arguments,
                num_blocks,
                pairs.num_relations,
                IN=width_in,
                OUT=width_out,
                ACC=_accumulator(out),
                PAIRS=min(PIECE, 1024 // block),
                BLOCK_C=block,
                num_warps=4,
                **FUSED,
            )
        _add_slots(tiles, partial, out, pairs.num_relations, size)
    return out


def adam_bases(
    table: Tensor,
    first: Tensor,
    second: Tensor,
    step: Tensor,
    coefficients: Tensor,
    rows: Tensor,
    pairs: Pairs,
    lr: float | Tensor,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
) -> None:
    if table.numel() == 0:
        return
    num_bases, width = table.shape[1], table.shape[2]
    block = min(1024, _power(num_bases * width))
    # How far along training is, only the device knows: the corrections are computed there, in double precision.
    taken = step.double()
    rate = lr / (1 - torch.pow(betas[0], taken))
    root = (1 - torch.pow(betas[1], taken)).sqrt()
    with _on(table):
        triton_adam.adam_bases[(pairs.num_nodes, triton.cdiv(num_bases * width, block))](
            table.detach(),
            first,
            second,
            coefficients.contiguous(),
            rows.contiguous(),
            pairs.pointer,
            pairs.relation,
            rate,
            root,
            1 - betas[0],
            betas[1],
            1 - betas[1],
            eps,
            weight_decay,
            NUM_BASES=num_bases,
            WIDTH=width,
            ACC=_accumulator(table),
            BLOCK=block,
            num_warps=1 if block <= 128 else 2,
            **FUSED,
        )


def count_ranks(scores: Tensor, row: Tensor, target: Tensor, begin: Tensor, end: Tensor, answers: Tensor) -> Tensor:
    """int64 [c, 5]: scores greater than the triple's own, equal to it (itself among them), how many of either are
    other known answers, and how many scores are NaN.

    Triple i is scores[row[i], target[i]] of scores [u, N]; its query's known answers are answers[begin[i] : end[i]].
    """
    out = torch.empty(row.numel(), 5, dtype=torch.int64, device=scores.device)
    if row.numel() == 0:
        return out
    if scores.stride(1) != 1:
        scores = scores.contiguous()
    if answers.device != scores.device or answers.is_floating_point():  # there are none, and none will be read
        answers = begin
    with _on(out):
        triton_ranks.count[(row.numel(),)](
            scores,
            row.contiguous(),
            target.contiguous(),
            begin.contiguous(),
            end.contiguous(),
            answers.contiguous(),
            out,
            scores.stride(0),
            scores.shape[1],
            KIND=_accumulator(scores),
            BLOCK=min(2048, max(128, _power(scores.shape[1]))),
            ANSWERS=128,
            num_warps=4,
            **FUSED,
        )
    return out


def _gather(
    pattern: SparsePattern, value: Tensor | None, index: Tensor | None, left: Tensor | None, x: Tensor
) -> Tensor:
    width = x.shape[1]
    out = x.new_empty(pattern.num_rows, width)
    if out.numel() == 0 or pattern.num_entries == 0:
        return out.zero_()
    x, pieces = x.contiguous(), pieces_of(pattern)
    partial = _partial(pieces, width, out)
    block = min(128, _power(width))
    # Measured on graphs of AM's shape: many short rows want many side by side, longer ones more entries in flight.
    short = pattern.num_entries < 2 * pattern.num_rows
    rows, unroll, warps = (max(1, 512 // block), 2, 4) if short else (max(1, 256 // block), 4, 2)
    with _on(out):
        triton_sums.gather_pieces[(triton.cdiv(len(pieces.row), rows), triton.cdiv(width, block))](
            pieces.row,
            pieces.begin,
            pieces.end,
            pieces.slot,
            pattern.column,
            x if value is None else value.contiguous(),
            pattern.column if index is None else index.contiguous(),
            x if left is None else left.contiguous(),
            x,
            out,
            partial,
            len(pieces.row),
            pattern.num_rows,
            WIDTH=width,
            HAS_VALUE=value is not None,
            HAS_LEFT=left is not None,
            ACC=_accumulator(out),
            ROWS=rows,
            BLOCK_W=block,
            UNROLL=unroll,
            num_warps=warps,
            **FUSED,
        )
        _add_slots(pieces, partial, out, pattern.num_rows, width)
    return out


def _entries(i: Tensor, left: Tensor, j: Tensor | None, middle: Tensor | None, k: Tensor, right: Tensor) -> Tensor:
    width, entries = left.shape[1], i.numel()
    out = left.new_empty(entries)
    if entries == 0 or width == 0:
        return out.zero_()
    i, k, left = i.contiguous(), k.contiguous(), left.contiguous()
    block = min(128, _power(width))
    tile = max(1, 1024 // block)
    with _on(out):
        triton_sums.entry_products[(triton.cdiv(entries, tile),)](
            i,
            left,
            i if j is None else j.contiguous(),
            left if middle is None else middle.contiguous(),
            k,
            right.contiguous(),
            out,
            entries,
            WIDTH=width,
            THREE=middle is not None,
            ACC=_accumulator(out),
            ENTRIES=tile,
            BLOCK_W=block,
            num_warps=4,
            **FUSED,
        )
    return out


def pieces_of(pattern: SparsePattern) -> Pieces:
    """The pattern's pieces: for a lasting pattern the ones it keeps, in an order that suits; else cut quickly."""
    if not pattern.transient or "pieces" in pattern.__dict__:
        return pattern.pieces
    num_rows, num_entries, device = pattern.num_rows, pattern.num_entries, pattern.pointer.device
    num_pieces, num_slots = num_rows + num_entries // PIECE, 2 * num_entries // PIECE
    packed = torch.empty(num_rows, dtype=torch.int64, device=device)
    row, begin, end, slot = torch.empty(4, num_pieces, dtype=torch.int32, device=device).unbind(0)
    longs = torch.full((3, num_slots // 2), num_rows, dtype=torch.int32, device=device)
    long_row, long_slot, long_count = longs.unbind(0)
    block = 256
    with _on(packed):
        triton_pieces.count_pieces[(triton.cdiv(num_rows, block),)](
            pattern.pointer, packed, num_rows, PIECE=PIECE, BLOCK=block, num_warps=4
        )
        triton_pieces.cut_pieces[(triton.cdiv(num_pieces, block),)](
            pattern.pointer,
            torch.cumsum(packed, 0),
            row,
            begin,
            end,
            slot,
            long_row,
            long_slot,
            long_count,
            num_rows,
            num_pieces,
            num_rows.bit_length() + 1,
            PIECE=PIECE,
            BLOCK=block,
            num_warps=4,
        )
    pieces = Pieces(row, begin, end, slot, long_row, long_slot, long_count, num_slots)
    pattern.__dict__["pieces"] = pieces
    return pieces


def _partial(pieces: Pieces, size: int, out: Tensor) -> Tensor:
    """A place for the sums of pieces that are not their whole row: [slots, size], not rounded to out's type."""
    kind = torch.float64 if out.dtype == torch.float64 else torch.float32
    return torch.empty(max(1, pieces.num_slots) * size, dtype=kind, device=out.device)


def _add_slots(pieces: Pieces, partial: Tensor, out: Tensor, num_rows: int, size: int) -> None:
    if len(pieces.long_row) == 0:
        return
    block = min(128, _power(size))
    triton_sums.add_slots[(len(pieces.long_row), triton.cdiv(size, block))](
        pieces.long_row,
        pieces.long_slot,
        pieces.long_count,
        partial,
        out,
        num_rows,
        size,
        ACC=_accumulator(out),
        SLOTS=min(64, 2048 // block),
        BLOCK_W=block,
        num_warps=4,
        **FUSED,
    )


def _tiles(pairs: Pairs, width_in: int, width_out: int, size: int) -> Pieces:
    """The relations' pairs cut into pieces that are worth their partial sums [K, in, out], which must fit as well."""
    piece = PIECE
    while piece < 2**30 and (
        piece * (width_in + width_out) < 2 * width_in * width_out or 8 * len(pairs) // piece * size > SCRATCH
    ):
        piece *= 2
    if piece == PIECE:
        return pairs.tiles
    known: dict[int, Pieces] = pairs.__dict__.setdefault("_tiles_of", {})
    if piece not in known:
        known[piece] = Pieces.of(pairs.pointer, len(pairs), piece)
    return known[piece]


def _dot_serves(x: Tensor, width_in: int, width_out: int) -> bool:
    if x.dtype == torch.float64 or (x.dtype == torch.bfloat16 and x.device.type == "cpu"):
        return False  # float64 has no fast product here; the interpreter's takes bfloat16 for integers
    return width_in * width_out >= WORTH_A_DOT and min(width_in, width_out) > 1


def _precision(x: Tensor) -> str:
    """How `tl.dot` multiplies float32: exactly, unless the user allowed PyTorch's own products less."""
    full = x.dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest"
    return "ieee" if full else "tf32"


def _accumulator(x: Tensor) -> Any:
    return tl.float64 if x.dtype == torch.float64 else tl.float32


def _power(size: int) -> int:
    """The least power of two that is not less."""
    return 1 << (size - 1).bit_length()


def _on(x: Tensor) -> AbstractContextManager[Any]:
    """Triton launches on the current device: make it x's where it is not."""
    if x.device.type != "cuda" or x.device.index == torch.cuda.current_device():
        return nullcontext()
    return torch.cuda.device(x.device)
