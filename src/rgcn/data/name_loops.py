"""The loops that turn names into numbers, in numba: a table that gives each its id.

Called by `collecting`, which owns the arrays. A table's slots hold a name's hash beside its id while it grows, so that
other names are told apart without being read, and doubling the table reads no name at all.
"""

from __future__ import annotations

import numpy as np

from rgcn.graph.hash_loops import loop, same
from rgcn.graph.stored_names import FURTHEST

_HALF, _FULL = np.uint64(32), np.uint64(0xFFFFFFFF)
AT_ONCE = 64  # names whose places in memory are asked for together, so that they are waited for together


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
                    if bounds[one + 1] - begin == length and same(text, begin, given, starts[i], length):
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
