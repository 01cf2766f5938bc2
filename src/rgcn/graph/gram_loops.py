"""The loops that index a long text, in numba: see `name_search`."""

from __future__ import annotations

import numpy as np

from rgcn.graph.hash_loops import loop


@loop
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


@loop
def fill_grams(text, bounds, kinds, number, first, places, part):  # type: ignore[no-untyped-def]
    """Write the entries, of which the first has this number, that hold the sequences from `first` on.

    places  int64: where the next entry of each sequence is written; -1: nowhere
    """
    last = np.full(len(places), -1, np.int32)
    for entry in range(len(bounds) - 1):
        gram = np.int64(kinds[text[bounds[entry]]]) << 6
        gram |= np.int64(kinds[text[bounds[entry] + 1]])
        for at in range(bounds[entry] + 2, bounds[entry + 1] + 1):
            gram = ((gram << 6) | np.int64(kinds[text[at]])) & 0x3FFFF
            one = gram - first
            if 0 <= one < len(places) and last[one] != entry and places[one] >= 0:
                last[one] = entry
                part[places[one]] = number + entry
                places[one] += 1
