"""The loops that turn names into numbers, in numba: the hash of a name, and a table that gives each its id.

Called by `numbering`, which owns the arrays. A table's slots hold a name's hash beside its id while it grows, so that
other names are told apart without being read, and doubling the table reads no name at all.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from rgcn.graph.stored_names import FACTOR, FURTHEST, LAST_FACTOR, SEED

_SEED, _FACTOR, _LAST = np.uint64(SEED), np.uint64(FACTOR), np.uint64(LAST_FACTOR)
_HALF, _EIGHT, _FULL = np.uint64(32), np.uint64(8), np.uint64(0xFFFFFFFF)
AT_ONCE = 64  # names whose places in memory are asked for together, so that they are waited for together

loop: Any = numba.njit(cache=True, nogil=True, error_model="numpy")


def _word_at(typing_context, array, index):  # type: ignore[no-untyped-def]
    """Eight bytes of an array as one number, wherever they begin."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(64).as_pointer())
        return builder.load(place, align=1)

    return types.uint64(array, types.int64), generate


word_at: Any = intrinsic(_word_at)


@loop
def hash_of(text, start, length):  # type: ignore[no-untyped-def]
    """`stored_names.name_hash` of a piece of text."""
    state = _SEED ^ (np.uint64(length) * _LAST)
    at, end = start, start + length
    while at + 8 <= end:
        state = (state ^ word_at(text, at)) * _FACTOR
        state ^= state >> _HALF
        at += 8
    if at < end:
        rest = np.uint64(0)
        if length >= 8:  # the last eight bytes, less those that were taken in already
            rest = word_at(text, end - 8) >> (_EIGHT * np.uint64(8 - (end - at)))
        else:
            for k in range(end - at):
                rest |= np.uint64(text[at + k]) << (_EIGHT * np.uint64(k))
        state = (state ^ rest) * _FACTOR
        state ^= state >> _HALF
    return np.uint32((state * _LAST) >> _HALF)


@loop
def hash_all(text, starts, lengths, hashes):  # type: ignore[no-untyped-def]
    for i in range(len(starts)):
        hashes[i] = hash_of(text, starts[i], lengths[i])


@loop
def _same(a, i, b, j, length):  # type: ignore[no-untyped-def]
    k = 0
    while k + 8 <= length:
        if word_at(a, i + k) != word_at(b, j + k):
            return False
        k += 8
    while k < length:
        if a[i + k] != b[j + k]:
            return False
        k += 1
    return True


@loop
def number(text, bounds, count, slots, given, starts, lengths, hashes, ids):  # type: ignore[no-untyped-def]
    """Give each name its id: that of an equal one before it, or the next. The new number of names; -1: too far to look.

    text    uint8     all names so far, with room for those given
    bounds  int64     where in it each begins, and where the last ends; with room
    slots   uint64    hash and id + 1 of a name; 0: free. At most `FULLEST` of them are taken, were all given ones new
    given   uint8     what the names to number are read from
    """
    shift = np.uint64(32 - np.int64(np.log2(len(slots))))
    last = np.int64(len(slots) - 1)
    seen = np.uint64(0)
    for first in range(0, len(starts), AT_ONCE):
        end = min(first + AT_ONCE, len(starts))
        for i in range(first, end):
            slot = slots[np.int64(np.uint64(hashes[i]) >> shift)]
            seen += slot
            ids[i] = np.int32(slot & _FULL) - 1 if slot >> _HALF == hashes[i] else -1
        for i in range(first, end):
            if ids[i] >= 0:
                seen += np.uint64(bounds[ids[i] + 1])
        for i in range(first, end):
            if ids[i] >= 0:
                seen += np.uint64(text[bounds[ids[i]]])
        for i in range(first, end):
            tag, length = np.uint64(hashes[i]), np.int64(lengths[i])
            at = np.int64(tag >> shift)
            tries = 0
            while True:
                slot = slots[at]
                if slot == 0:
                    begin = bounds[count]
                    for k in range(length):
                        text[begin + k] = given[starts[i] + k]
                    count += 1
                    bounds[count] = begin + length
                    slots[at] = (tag << _HALF) | np.uint64(count)
                    ids[i] = np.int32(count - 1)
                    break
                if slot >> _HALF == tag:
                    one = np.int64(slot & _FULL) - 1
                    begin = bounds[one]
                    if bounds[one + 1] - begin == length and _same(text, begin, given, starts[i], length):
                        ids[i] = np.int32(one)
                        break
                at = (at + 1) & last
                tries += 1
                if tries > FURTHEST:
                    return -1, seen
    return count, seen


@loop
def spread(slots, wider):  # type: ignore[no-untyped-def]
    """Put what is in the slots into more of them. False: one lies too far from where it belongs."""
    shift = np.uint64(32 - np.int64(np.log2(len(wider))))
    last = np.int64(len(wider) - 1)
    for i in range(len(slots)):
        if slots[i]:
            at = np.int64((slots[i] >> _HALF) >> shift)
            tries = 0
            while wider[at]:
                at = (at + 1) & last
                tries += 1
                if tries > FURTHEST:
                    return False
            wider[at] = slots[i]
    return True


@loop
def sort_by_counting(keys, places, order):  # type: ignore[no-untyped-def]
    """Write the order of the keys, equal ones as they come; `places` is zero, and one longer than there are keys."""
    for key in keys:
        places[key + 1] += 1
    for k in range(len(places) - 1):
        places[k + 1] += places[k]
    for i in range(len(keys)):
        order[places[keys[i]]] = i
        places[keys[i]] += 1
