"""Triton kernels for sparse matrices: sums over rows, products at entries, and the counts that ranks follow from.

Sums follow the pattern's `RowPieces`: a program processes a tile of pieces × a block of the width, all its pieces in
step. Each sum has a fixed order, and no two programs write to the same place: the same inputs give the same bits.
Widths are compile-time constants, so that the compiler knows how rows are aligned and loads them as vectors.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["num_pieces", "num_rows"])
def gather_pieces(
    parts_ptr, column_ptr, value_ptr, index_ptr, left_ptr, x_ptr, out_ptr, partial_ptr, num_pieces, num_rows,
    WIDTH: tl.constexpr, LEFT_WIDTH: tl.constexpr, ACC: tl.constexpr, ROWS: tl.constexpr, BLOCK_W: tl.constexpr,
    UNROLL: tl.constexpr,
):  # fmt: skip
    """Sum each piece, to its row of `out` if it is the whole row, else to its slot of `partial`.

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
            valid = e < end
            mask = valid[:, None] & inside[None, :]
            column = tl.load(column_ptr + e, mask=valid, other=0).to(tl.int64)
            term = tl.load(x_ptr + column[:, None] * WIDTH + w[None, :], mask=mask, other=0).to(ACC)
            if left_ptr is not None:
                index = tl.load(index_ptr + e, mask=valid, other=0).to(tl.int64)
                left_at = index[:, None] * LEFT_WIDTH + (w % LEFT_WIDTH)[None, :]  # a narrower row repeats
                term *= tl.load(left_ptr + left_at, mask=mask, other=0).to(ACC)
            if value_ptr is not None:
                term *= tl.load(value_ptr + e, mask=valid, other=0).to(ACC)[:, None]
            acc += term
    whole = exists & (slot < 0) & (row < num_rows)
    part = exists & (slot >= 0)
    row_start = row.to(tl.int64) * WIDTH
    slot_start = slot.to(tl.int64) * WIDTH
    out = acc.to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + row_start[:, None] + w[None, :], out, mask=whole[:, None] & inside[None, :])
    tl.store(partial_ptr + slot_start[:, None] + w[None, :], acc, mask=part[:, None] & inside[None, :])


@triton.jit(do_not_specialize=["num_rows"])
def add_slots(
    long_rows_ptr, partial_ptr, out_ptr, num_rows, width, ACC: tl.constexpr, SLOTS: tl.constexpr, BLOCK_W: tl.constexpr
):
    """Sum the slots of a row of several pieces; a program for each of the long_rows of `RowPieces`."""
    row = tl.load(long_rows_ptr + tl.program_id(0))
    if row < num_rows:
        first = tl.load(long_rows_ptr + tl.num_programs(0) + tl.program_id(0))
        count = tl.load(long_rows_ptr + 2 * tl.num_programs(0) + tl.program_id(0))
        w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
        s = tl.arange(0, SLOTS)
        inside = w < width
        acc = tl.zeros([SLOTS, BLOCK_W], dtype=ACC)
        for j in range(0, count, SLOTS):
            valid = (j + s) < count
            start = (first + j + s).to(tl.int64) * width
            acc += tl.load(partial_ptr + start[:, None] + w[None, :], mask=valid[:, None] & inside[None, :], other=0)
        total = tl.sum(acc, axis=0)
        at = row.to(tl.int64) * width + w
        tl.store(out_ptr + at, total.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["num_entries"])
def entry_products(
    i_ptr, left_ptr, j_ptr, middle_ptr, k_ptr, right_ptr, out_ptr, num_entries,
    WIDTH: tl.constexpr, ACC: tl.constexpr, ENTRIES: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """Compute out[e] = Σ_w left[i[e], w] · middle[j[e], w] · right[k[e], w]; middle None: without it."""
    e = tl.program_id(0).to(tl.int64) * ENTRIES + tl.arange(0, ENTRIES)
    valid = e < num_entries
    i = tl.load(i_ptr + e, mask=valid, other=0).to(tl.int64) * WIDTH
    k = tl.load(k_ptr + e, mask=valid, other=0).to(tl.int64) * WIDTH
    if middle_ptr is not None:
        j = tl.load(j_ptr + e, mask=valid, other=0).to(tl.int64) * WIDTH
    acc = tl.zeros([ENTRIES, BLOCK_W], dtype=ACC)
    for w0 in range(0, WIDTH, BLOCK_W):
        w = w0 + tl.arange(0, BLOCK_W)
        mask = valid[:, None] & (w < WIDTH)[None, :]
        term = tl.load(left_ptr + i[:, None] + w[None, :], mask=mask, other=0).to(ACC)
        if middle_ptr is not None:
            term *= tl.load(middle_ptr + j[:, None] + w[None, :], mask=mask, other=0).to(ACC)
        term *= tl.load(right_ptr + k[:, None] + w[None, :], mask=mask, other=0).to(ACC)
        acc += term
    tl.store(out_ptr + e, tl.sum(acc, axis=1).to(out_ptr.dtype.element_ty), mask=valid)


@triton.jit(do_not_specialize=["num_nodes", "first"])
def count_ranks(
    scores_ptr, score_ptr, row_ptr, target_ptr, begin_ptr, end_ptr, answers_ptr, out_ptr, stride, num_nodes, first,
    ACC: tl.constexpr, BLOCK: tl.constexpr, ANSWERS: tl.constexpr,
):  # fmt: skip
    """Compute `reference.count_ranks`, in one pass per triple; ACC is no narrower than the scores."""
    i = tl.program_id(0).to(tl.int64)
    scores = scores_ptr + tl.load(row_ptr + i).to(tl.int64) * stride
    target = tl.load(target_ptr + i).to(tl.int64)
    own = tl.load(score_ptr + i).to(ACC)
    greater = tl.zeros([BLOCK], dtype=tl.int32)
    equal = tl.zeros([BLOCK], dtype=tl.int32)
    nan = tl.zeros([BLOCK], dtype=tl.int32)
    for n0 in range(0, num_nodes, BLOCK):
        n = n0 + tl.arange(0, BLOCK)
        valid = n < num_nodes
        value = tl.load(scores + n, mask=valid, other=0).to(ACC)
        greater += ((value > own) & valid).to(tl.int32)
        equal += ((value == own) & valid).to(tl.int32)
        nan += ((value != value) & valid).to(tl.int32)  # true for NaN only
    place = target - first
    is_candidate = (place >= 0) & (place < num_nodes)
    # The target counts as equal to the triple, even if its score was rounded differently.
    target_score = tl.load(scores + place, mask=is_candidate, other=0).to(ACC)
    known_greater = tl.zeros([ANSWERS], dtype=tl.int32)
    known_equal = tl.zeros([ANSWERS], dtype=tl.int32)
    begin = tl.load(begin_ptr + i).to(tl.int64)
    end = tl.load(end_ptr + i).to(tl.int64)
    for a0 in range(begin, end, ANSWERS):
        a = a0 + tl.arange(0, ANSWERS)
        valid = a < end
        node = tl.load(answers_ptr + a, mask=valid, other=0).to(tl.int64)
        is_other = valid & (node != target)
        value = tl.load(scores + node - first, mask=is_other, other=0).to(ACC)
        known_greater += ((value > own) & is_other).to(tl.int32)
        known_equal += ((value == own) & is_other).to(tl.int32)
    tl.store(out_ptr + i * 5, tl.sum(greater, axis=0).to(tl.int64) - (is_candidate & (target_score > own)).to(tl.int64))
    tl.store(
        out_ptr + i * 5 + 1, tl.sum(equal, axis=0).to(tl.int64) + (is_candidate & (target_score != own)).to(tl.int64)
    )
    tl.store(out_ptr + i * 5 + 2, tl.sum(known_greater, axis=0).to(tl.int64))
    tl.store(out_ptr + i * 5 + 3, tl.sum(known_equal, axis=0).to(tl.int64))
    tl.store(out_ptr + i * 5 + 4, tl.sum(nan, axis=0).to(tl.int64))


# -- the pieces of a transient pattern ---------------------------------------------------------------------------
# `RowPieces.of` defines the result. It takes about thirty small operations: little for a graph that is trained on for
# thousands of steps, but a large part of a step for one sampled in each step. Here it is two kernels around one scan.


@triton.jit(do_not_specialize=["num_rows"])
def count_pieces(pointer_ptr, packed_ptr, num_rows, MAX_PIECE: tl.constexpr, BLOCK: tl.constexpr):
    """Store in packed[i] the number of row i's pieces (upper 32 bits), and how many of them need a slot (lower)."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    exists = i < num_rows
    begin = tl.load(pointer_ptr + i, mask=exists, other=0).to(tl.int64)
    end = tl.load(pointer_ptr + i + 1, mask=exists, other=0).to(tl.int64)
    count = tl.maximum((end - begin + MAX_PIECE - 1) // MAX_PIECE, 1)
    slots = tl.where(count > 1, count, 0)
    tl.store(packed_ptr + i, count * 4294967296 + slots, mask=exists)


@triton.jit(do_not_specialize=["num_rows", "num_pieces", "num_long_rows", "halvings"])
def split_rows(
    pointer_ptr, packed_ptr, parts_ptr, long_rows_ptr, num_rows, num_pieces, num_long_rows, halvings,
    MAX_PIECE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Find the row of each piece by binary search in the running sums of `packed`, and compute the rest from it.

    A long row has at least two slots, so half its first slot is a place of its own in the list of long rows.
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
    has_row = exists & (low < num_rows)
    before = tl.load(packed_ptr + low - 1, mask=has_row & (low > 0), other=0)
    through = tl.load(packed_ptr + low, mask=has_row, other=0)
    number = piece - (before // 4294967296).to(tl.int32)
    first_slot = (before % 4294967296).to(tl.int32)
    slots = (through % 4294967296).to(tl.int32) - first_slot
    start = tl.load(pointer_ptr + low, mask=has_row, other=0).to(tl.int32)
    stop = tl.load(pointer_ptr + low + 1, mask=has_row, other=0).to(tl.int32)
    begin = start + number * MAX_PIECE
    tl.store(parts_ptr + piece, low, mask=exists)
    tl.store(parts_ptr + num_pieces + piece, begin, mask=exists)
    tl.store(
        parts_ptr + 2 * num_pieces + piece, tl.where(has_row, tl.minimum(begin + MAX_PIECE, stop), begin), mask=exists
    )
    slot = tl.where(has_row & (slots > 0), first_slot + number, -1)
    tl.store(parts_ptr + 3 * num_pieces + piece, slot, mask=exists)
    heads = has_row & (slots > 0) & (number == 0)
    tl.store(long_rows_ptr + first_slot // 2, low, mask=heads)
    tl.store(long_rows_ptr + num_long_rows + first_slot // 2, first_slot, mask=heads)
    tl.store(long_rows_ptr + 2 * num_long_rows + first_slot // 2, slots, mask=heads)
