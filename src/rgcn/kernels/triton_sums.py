"""Triton: sums over the entries of a sparse matrix, products at its entries, and the counts that ranks are made of.

Sums follow the pattern's `Pieces`: a program takes a tile of pieces × a block of the width, and walks along the entries
of all its pieces at once. Each sum has a fixed order, and no two programs write to the same place: same inputs, same
bits. Widths are compile-time constants, so that the compiler knows how rows are aligned and loads them in vectors.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["num_pieces", "num_rows"])
def gather_pieces(  # type: ignore[no-untyped-def]
    parts_ptr,
    column_ptr,
    value_ptr,
    index_ptr,
    left_ptr,
    x_ptr,
    out_ptr,
    partial_ptr,
    num_pieces,
    num_rows,
    WIDTH: tl.constexpr,
    LEFT_WIDTH: tl.constexpr,
    ACC: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_W: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """The sum of each piece: to its row of `out` where it is all of the row, else to its slot of `partial`.

    parts is that of `RowPieces`; value, index and left may be None.
    """
    piece = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    exists = piece < num_pieces
    row = tl.load(parts_ptr + piece, mask=exists, other=0)
    begin = tl.load(parts_ptr + num_pieces + piece, mask=exists, other=0)
    end = tl.load(parts_ptr + 2 * num_pieces + piece, mask=exists, other=0)
    slot = tl.load(parts_ptr + 3 * num_pieces + piece, mask=exists, other=-1)
    w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    inside = w < WIDTH
    acc = tl.zeros([ROWS, BLOCK_W], dtype=ACC)
    longest = tl.max(end - begin, axis=0)
    for j in range(0, longest, UNROLL):
        for u in tl.static_range(UNROLL):  # independent loads, in flight together
            e = begin + (j + u)
            live = e < end
            here = live[:, None] & inside[None, :]
            column = tl.load(column_ptr + e, mask=live, other=0).to(tl.int64)
            term = tl.load(x_ptr + column[:, None] * WIDTH + w[None, :], mask=here, other=0).to(ACC)
            if left_ptr is not None:
                index = tl.load(index_ptr + e, mask=live, other=0).to(tl.int64)
                beside = index[:, None] * LEFT_WIDTH + (w % LEFT_WIDTH)[None, :]  # a narrow row repeats
                term *= tl.load(left_ptr + beside, mask=here, other=0).to(ACC)
            if value_ptr is not None:
                term *= tl.load(value_ptr + e, mask=live, other=0).to(ACC)[:, None]
            acc += term
    whole = exists & (slot < 0) & (row < num_rows)
    part = exists & (slot >= 0)
    row_start = row.to(tl.int64) * WIDTH
    slot_start = slot.to(tl.int64) * WIDTH
    out = acc.to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + row_start[:, None] + w[None, :], out, mask=whole[:, None] & inside[None, :])
    tl.store(partial_ptr + slot_start[:, None] + w[None, :], acc, mask=part[:, None] & inside[None, :])


@triton.jit(do_not_specialize=["num_rows"])
def add_slots(  # type: ignore[no-untyped-def]
    longs_ptr,
    partial_ptr,
    out_ptr,
    num_rows,
    width,
    ACC: tl.constexpr,
    SLOTS: tl.constexpr,
    BLOCK_W: tl.constexpr,
):
    """A row of several pieces: the sum of its slots. A program for each of the longs of `RowPieces`."""
    row = tl.load(longs_ptr + tl.program_id(0))
    if row < num_rows:
        first = tl.load(longs_ptr + tl.num_programs(0) + tl.program_id(0))
        count = tl.load(longs_ptr + 2 * tl.num_programs(0) + tl.program_id(0))
        w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
        s = tl.arange(0, SLOTS)
        inside = w < width
        acc = tl.zeros([SLOTS, BLOCK_W], dtype=ACC)
        for j in range(0, count, SLOTS):
            live = (j + s) < count
            start = (first + j + s).to(tl.int64) * width
            acc += tl.load(partial_ptr + start[:, None] + w[None, :], mask=live[:, None] & inside[None, :], other=0)
        total = tl.sum(acc, axis=0)
        at = row.to(tl.int64) * width + w
        tl.store(out_ptr + at, total.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["num_entries"])
def entry_products(  # type: ignore[no-untyped-def]
    i_ptr,
    left_ptr,
    j_ptr,
    middle_ptr,
    k_ptr,
    right_ptr,
    out_ptr,
    num_entries,
    WIDTH: tl.constexpr,
    ACC: tl.constexpr,
    ENTRIES: tl.constexpr,
    BLOCK_W: tl.constexpr,
):
    """out[e] = Σ_w left[i[e], w] · right[k[e], w], and · middle[j[e], w] unless that is None."""
    e = tl.program_id(0).to(tl.int64) * ENTRIES + tl.arange(0, ENTRIES)
    live = e < num_entries
    i = tl.load(i_ptr + e, mask=live, other=0).to(tl.int64) * WIDTH
    k = tl.load(k_ptr + e, mask=live, other=0).to(tl.int64) * WIDTH
    if middle_ptr is not None:
        j = tl.load(j_ptr + e, mask=live, other=0).to(tl.int64) * WIDTH
    acc = tl.zeros([ENTRIES, BLOCK_W], dtype=ACC)
    for w0 in range(0, WIDTH, BLOCK_W):
        w = w0 + tl.arange(0, BLOCK_W)
        here = live[:, None] & (w < WIDTH)[None, :]
        term = tl.load(left_ptr + i[:, None] + w[None, :], mask=here, other=0).to(ACC)
        if middle_ptr is not None:
            term *= tl.load(middle_ptr + j[:, None] + w[None, :], mask=here, other=0).to(ACC)
        term *= tl.load(right_ptr + k[:, None] + w[None, :], mask=here, other=0).to(ACC)
        acc += term
    tl.store(out_ptr + e, tl.sum(acc, axis=1).to(out_ptr.dtype.element_ty), mask=live)


@triton.jit(do_not_specialize=["num_nodes", "first"])
def count_ranks(  # type: ignore[no-untyped-def]
    scores_ptr,
    own_ptr,
    row_ptr,
    target_ptr,
    begin_ptr,
    end_ptr,
    answers_ptr,
    out_ptr,
    stride,
    num_nodes,
    first,
    KIND: tl.constexpr,  # no narrower than the scores
    BLOCK: tl.constexpr,
    ANSWERS: tl.constexpr,
):
    """out[i] = greater, equal, known greater, known equal, not a number: a program and one pass for each triple i."""
    i = tl.program_id(0).to(tl.int64)
    scores = scores_ptr + tl.load(row_ptr + i).to(tl.int64) * stride
    target = tl.load(target_ptr + i).to(tl.int64)
    own = tl.load(own_ptr + i).to(KIND)
    greater = tl.zeros([BLOCK], dtype=tl.int32)
    equal = tl.zeros([BLOCK], dtype=tl.int32)
    strange = tl.zeros([BLOCK], dtype=tl.int32)
    for n0 in range(0, num_nodes, BLOCK):
        n = n0 + tl.arange(0, BLOCK)
        live = n < num_nodes
        value = tl.load(scores + n, mask=live, other=0).to(KIND)
        greater += ((value > own) & live).to(tl.int32)
        equal += ((value == own) & live).to(tl.int32)
        strange += ((value != value) & live).to(tl.int32)  # only NaN is not itself
    place = target - first
    there = (place >= 0) & (place < num_nodes)
    itself = tl.load(scores + place, mask=there, other=0).to(KIND)  # like itself, however it was rounded
    known_greater = tl.zeros([ANSWERS], dtype=tl.int32)
    known_equal = tl.zeros([ANSWERS], dtype=tl.int32)
    begin = tl.load(begin_ptr + i).to(tl.int64)
    end = tl.load(end_ptr + i).to(tl.int64)
    for a0 in range(begin, end, ANSWERS):
        a = a0 + tl.arange(0, ANSWERS)
        live = a < end
        node = tl.load(answers_ptr + a, mask=live, other=0).to(tl.int64)
        other = live & (node != target)
        value = tl.load(scores + node - first, mask=other, other=0).to(KIND)
        known_greater += ((value > own) & other).to(tl.int32)
        known_equal += ((value == own) & other).to(tl.int32)
    tl.store(out_ptr + i * 5, tl.sum(greater, axis=0).to(tl.int64) - (there & (itself > own)).to(tl.int64))
    tl.store(out_ptr + i * 5 + 1, tl.sum(equal, axis=0).to(tl.int64) + (there & (itself != own)).to(tl.int64))
    tl.store(out_ptr + i * 5 + 2, tl.sum(known_greater, axis=0).to(tl.int64))
    tl.store(out_ptr + i * 5 + 3, tl.sum(known_equal, axis=0).to(tl.int64))
    tl.store(out_ptr + i * 5 + 4, tl.sum(strange, axis=0).to(tl.int64))


# -- a pattern cut into pieces, for one that serves a single step ------------------------------------------------
# `Pieces.of` says what is computed; it takes some thirty small operations, which is nothing for a graph that is trained
# on for thousands of steps and much of a step for one sampled anew each time. Here it is two kernels around one scan.


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


@triton.jit(do_not_specialize=["num_rows", "num_pieces", "num_longs", "halvings"])
def cut_pieces(  # type: ignore[no-untyped-def]
    pointer_ptr,
    packed_ptr,
    parts_ptr,
    longs_ptr,
    num_rows,
    num_pieces,
    num_longs,
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
    tl.store(parts_ptr + piece, low, mask=exists)
    tl.store(parts_ptr + num_pieces + piece, begin, mask=exists)
    tl.store(parts_ptr + 2 * num_pieces + piece, tl.where(found, tl.minimum(begin + PIECE, stop), begin), mask=exists)
    slot = tl.where(found & (slots > 0), first_slot + number, -1)
    tl.store(parts_ptr + 3 * num_pieces + piece, slot, mask=exists)
    heads = found & (slots > 0) & (number == 0)
    tl.store(longs_ptr + first_slot // 2, low, mask=heads)
    tl.store(longs_ptr + num_longs + first_slot // 2, first_slot, mask=heads)
    tl.store(longs_ptr + 2 * num_longs + first_slot // 2, slots, mask=heads)
