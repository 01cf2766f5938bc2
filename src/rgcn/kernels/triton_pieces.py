"""Triton: the rows of a pattern cut into pieces, for patterns that serve a single step.

`Pieces.of` says what is computed; it takes some thirty small operations, which is nothing for a graph that is trained
on for thousands of steps and much of a step for one sampled anew each time. Here it is two kernels around one scan.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["num_rows"])
def count_pieces(pointer_ptr, packed_ptr, num_rows, PIECE: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """packed[i]: the number of row i's pieces in the upper 32 bits; below, how many of them need a slot."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    exists = i < num_rows
    begin = tl.load(pointer_ptr + i, mask=exists, other=0).to(tl.int64)
    end = tl.load(pointer_ptr + i + 1, mask=exists, other=0).to(tl.int64)
    count = tl.maximum((end - begin + PIECE - 1) // PIECE, 1)
    slots = tl.where(count > 1, count, 0)
    tl.store(packed_ptr + i, count * 4294967296 + slots, mask=exists)


@triton.jit(do_not_specialize=["num_rows", "num_pieces", "halvings"])
def cut_pieces(  # type: ignore[no-untyped-def]
    pointer_ptr,
    packed_ptr,
    row_ptr,
    begin_ptr,
    end_ptr,
    slot_ptr,
    long_row_ptr,
    long_slot_ptr,
    long_count_ptr,
    num_rows,
    num_pieces,
    halvings,
    PIECE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Each piece finds its row among the running sums of `packed`, and from it everything else.

    A long row has at least two slots, so that half its first slot is a place in the list of long rows that is its own.
    """
    piece = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    exists = piece < num_pieces
    low = tl.zeros([BLOCK], dtype=tl.int32)
    high = low + num_rows
    for _ in range(0, halvings):  # the first row whose pieces end after this one
        middle = (low + high) // 2
        open_ = low < high
        ends = (tl.load(packed_ptr + middle, mask=exists & open_, other=0) // 4294967296).to(tl.int32)
        after = ends > piece
        high = tl.where(open_ & after, middle, high)
        low = tl.where(open_ & (ends <= piece), middle + 1, low)
    found = exists & (low < num_rows)
    before = tl.load(packed_ptr + low - 1, mask=found & (low > 0), other=0)
    upto = tl.load(packed_ptr + low, mask=found, other=0)
    number = piece - (before // 4294967296).to(tl.int32)
    first_slot = (before % 4294967296).to(tl.int32)
    slots = (upto % 4294967296).to(tl.int32) - first_slot
    start = tl.load(pointer_ptr + low, mask=found, other=0).to(tl.int32)
    stop = tl.load(pointer_ptr + low + 1, mask=found, other=0).to(tl.int32)
    begin = start + number * PIECE
    tl.store(row_ptr + piece, low, mask=exists)
    tl.store(begin_ptr + piece, begin, mask=exists)
    tl.store(end_ptr + piece, tl.where(found, tl.minimum(begin + PIECE, stop), begin), mask=exists)
    tl.store(slot_ptr + piece, tl.where(found & (slots > 0), first_slot + number, -1), mask=exists)
    heads = found & (slots > 0) & (number == 0)
    tl.store(long_row_ptr + first_slot // 2, low, mask=heads)
    tl.store(long_slot_ptr + first_slot // 2, first_slot, mask=heads)
    tl.store(long_count_ptr + first_slot // 2, slots, mask=heads)
