"""The loops that index a long text, in numba: see `name_search`."""

from __future__ import annotations

import numba
import numpy as np

_jit = numba.njit(cache=True, nogil=True)


@_jit
def count_grams(text, bounds, kinds, counts):  # type: ignore[no-untyped-def]
    """Add to counts how many entries hold each sequence of three letters."""
    last = np.full(len(counts), -1, np.int32)
    for entry in range(len(bounds) - 1):
        gram = np.int64(kinds[text[bounds[entry]]]) << 6
        gram |= np.int64(kinds[text[bounds[entry] + 1]])
        for at in range(bounds[entry] + 2, bounds[entry + 1] + 1):
            gram = ((gram << 6) | np.int64(kinds[text[at]])) & 0x3FFFF
            if last[gram] != entry:
                last[gram] = entry
                counts[gram] += 1


@_jit
def fill_grams(text, bounds, kinds, pointer, first, stop, part):  # type: ignore[no-untyped-def]
    """Write the entries that hold the sequences from first to before stop, where these have room."""
    place = pointer[first:stop] - pointer[first]
    for entry in range(len(bounds) - 1):
        gram = np.int64(kinds[text[bounds[entry]]]) << 6
        gram |= np.int64(kinds[text[bounds[entry] + 1]])
        for at in range(bounds[entry] + 2, bounds[entry + 1] + 1):
            gram = ((gram << 6) | np.int64(kinds[text[at]])) & 0x3FFFF
            if first <= gram < stop:
                begin, end = pointer[gram] - pointer[first], pointer[gram + 1] - pointer[first]
                here = place[gram - first]
                if begin < end and (here == begin or part[here - 1] != entry):
                    part[here] = entry
                    place[gram - first] = here + 1
