"""Loops over names, compiled by numba: their hash (`vocabulary.name_hash`), and the trigrams of `name_search`."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from rgcn.graph.vocabulary import FACTOR, LAST_FACTOR, SEED

_SEED, _FACTOR, _LAST = np.uint64(SEED), np.uint64(FACTOR), np.uint64(LAST_FACTOR)
_HALF, _EIGHT = np.uint64(32), np.uint64(8)

loop: Any = numba.njit(cache=True, nogil=True, error_model="numpy")


def _word_at(typing_context, array, index):  # type: ignore[no-untyped-def]
    """Read eight bytes of an array as one number, without alignment."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(64).as_pointer())
        return builder.load(place, align=1)

    return types.uint64(array, types.int64), generate


word_at: Any = intrinsic(_word_at)


@loop
def hash_of(text, start, length):  # type: ignore[no-untyped-def]
    """Return `vocabulary.name_hash` of a part of a text."""
    state = _SEED ^ (np.uint64(length) * _LAST)
    at, end = start, start + length
    while at + 8 <= end:
        state = (state ^ word_at(text, at)) * _FACTOR
        state ^= state >> _HALF
        at += 8
    if at < end:
        rest = np.uint64(0)
        if length >= 8:  # the last eight bytes, without those that were hashed already
            rest = word_at(text, end - 8) >> (_EIGHT * np.uint64(8 - (end - at)))
        else:
            for k in range(end - at):
                rest |= np.uint64(text[at + k]) << (_EIGHT * np.uint64(k))
        state = (state ^ rest) * _FACTOR
        state ^= state >> _HALF
    return np.uint32((state * _LAST) >> _HALF)


@loop
def hash_all(text, starts, lengths, hashes):  # type: ignore[no-untyped-def]
    """Write the hashes of names into `hashes`."""
    for i in range(len(starts)):
        hashes[i] = hash_of(text, starts[i], lengths[i])


@loop
def same(a, i, b, j, length):  # type: ignore[no-untyped-def]
    """Return True if two parts of texts, of the same length, are equal."""
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


# -- trigrams of a long text (`name_search`) --------------------------------------------------------------------


@loop
def count_grams(text, bounds, kinds, counts):  # type: ignore[no-untyped-def]
    """Add to `counts` the number of entries that contain each trigram."""
    last = np.full(len(counts), -1, np.int32)
    for entry in range(len(bounds) - 1):
        gram = np.int64(kinds[text[bounds[entry]]]) << 6
        gram |= np.int64(kinds[text[bounds[entry] + 1]])
        for at in range(bounds[entry] + 2, bounds[entry + 1] + 1):
            gram = ((gram << 6) | np.int64(kinds[text[at]])) & 0x3FFFF
            if last[gram] != entry:
                last[gram] = entry
                counts[gram] += 1


@loop
def fill_grams(text, bounds, kinds, first_entry, first_gram, positions, block):  # type: ignore[no-untyped-def]
    """Write the entries that contain each trigram from `first_gram` on.

    Args:
        text: UTF-8 of all entries.
        bounds: The bounds of some entries.
        kinds: The kind of each byte.
        first_entry: The number of the first of these entries.
        first_gram: The first trigram.
        positions: Where the next entry of each trigram is written, int64 [n]; -1: nowhere.
        block: Receives the entries.
    """
    last = np.full(len(positions), -1, np.int32)
    for entry in range(len(bounds) - 1):
        gram = np.int64(kinds[text[bounds[entry]]]) << 6
        gram |= np.int64(kinds[text[bounds[entry] + 1]])
        for at in range(bounds[entry] + 2, bounds[entry + 1] + 1):
            gram = ((gram << 6) | np.int64(kinds[text[at]])) & 0x3FFFF
            column = gram - first_gram
            if 0 <= column < len(positions) and last[column] != entry and positions[column] >= 0:
                last[column] = entry
                block[positions[column]] = first_entry + entry
                positions[column] += 1
