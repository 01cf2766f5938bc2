"""Which entries of a long text hold a sequence of characters, without reading the text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

LONGEST_GRAM = 3
# Twelve bits of a letter are kept, so that sorting is cheap: those that differ only above are taken for one.
LETTER = 0xFFF
FIRST_LOOK = 64
# How much is looked at to guess what was meant.
RARE, RARE_LISTS = 1000, 8


class GramIndex:
    """Where each sequence of one, two or three characters occurs: entries, ascending.

    It may name an entry too many, never one too few: who asks reads the entries that it names.

    >>> index = GramIndex("bernoslobonn", [0, 4, 8, 12])
    >>> list(index.holding("bo")), list(index.holding("n")), list(index.holding("nos"))
    ([2], [0, 2], [])
    """

    def __init__(self, text: str, bounds: Sequence[int]) -> None:
        """bounds: where each entry begins, and where the last one ends"""
        points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
        letters = (points & LETTER).astype(np.uint16)
        entry = np.repeat(np.arange(len(bounds) - 1, dtype=np.int32), np.diff(bounds))
        self._nowhere = entry[:0]
        self._holding: dict[str, NDArray[np.int32]] = {}
        for size in range(1, LONGEST_GRAM + 1):
            self._add(letters, entry, size)

    def _add(self, letters: NDArray[np.uint16], entry: NDArray[np.int32], size: int) -> None:
        count = max(len(letters) - size + 1, 0)
        place = np.flatnonzero(entry[:count] == entry[size - 1 :])
        # From the last letter to the first by stable sorts of 16 bits, which numpy does by radix: a third of the time.
        for at in reversed(range(size)):
            place = place[np.argsort(letters[place + at], kind="stable")]
        found = entry[place]
        begins = np.zeros(len(place), dtype=bool)
        for at in range(size):
            begins |= np.diff(letters[place + at], prepend=LETTER + 1) != 0
        fresh = begins | (np.diff(found, prepend=-1) != 0)
        first = np.flatnonzero(begins)
        grams = letters[place[first][:, None] + np.arange(size)].astype("<u4").tobytes().decode("utf-32-le")
        cuts = [*(np.cumsum(fresh)[first] - 1).tolist(), int(fresh.sum())]
        found = found[fresh]
        for number, (begin, end) in enumerate(pairwise(cuts)):
            self._holding[grams[number * size : (number + 1) * size]] = found[begin:end]

    def holding(self, pattern: str) -> Iterator[int]:
        """The entries that may hold a pattern, ascending."""
        lists = self._lists(pattern)
        rarest, others = lists[0], lists[1:3]
        # The first entries are mostly enough; the rest is looked at where they are not.
        begin, size = 0, FIRST_LOOK
        while begin < len(rarest):
            entries = rarest[begin : begin + size]
            for other in others:
                entries = entries[other[np.searchsorted(other[:-1], entries)] == entries]
            yield from entries.tolist()
            begin, size = begin + size, size * 8

    def near(self, pattern: str, most: int) -> list[int]:
        """The entries that share most of the pattern's rare sequences."""
        lists = [entries for entries in self._lists(pattern) if len(entries)]
        if not lists:
            return []
        rare = [entries for entries in lists[:RARE_LISTS] if len(entries) <= RARE] or [lists[0][:RARE]]
        entries, counts = np.unique(np.concatenate(rare), return_counts=True)
        return [int(entry) for entry in entries[np.argsort(-counts, kind="stable")[:most]]]

    def _lists(self, pattern: str) -> list[NDArray[np.int32]]:
        """The entries of each sequence of three characters in the pattern, or of a shorter pattern; shortest first."""
        if not pattern.isascii():
            pattern = "".join(chr(ord(letter) & LETTER) for letter in pattern)
        size = min(len(pattern), LONGEST_GRAM)
        grams = dict.fromkeys(pattern[at : at + size] for at in range(len(pattern) - size + 1))
        return sorted((self._holding.get(gram, self._nowhere) for gram in grams), key=len)
