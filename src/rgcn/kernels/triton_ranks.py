"""Triton: what the rank of a triple is made of, in one pass over its row of scores."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["num_nodes", "first"])
def count(  # type: ignore[no-untyped-def]
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
    """out[i] = greater, equal, known greater, known equal, not a number: one program for each triple i."""
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
