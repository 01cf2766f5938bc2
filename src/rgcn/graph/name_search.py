"""Names by a part of them, and by what is spelled alike, fast enough for every key a person presses."""

from __future__ import annotations

import difflib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

EDGE = "\x1e"  # where a title or a name begins and ends; folding takes it out of names, since it counts as a space
LONGEST_QUERY = LONGEST_NAME = 200
# Texts longer than this are searched from end to end instead: their index would take gigabytes.
LONGEST_TEXT = 30_000_000
# Of such a text, what begins it is looked at to guess what was meant.
WELL_KNOWN = 2_000_000
MOST_COMPARED, LONGEST_COMPARED, ALIKE = 8, 60, 0.6


@dataclass(frozen=True, eq=False)
class NameSearch:
    """All titles and names in one long text, best ones first.

    A title that is the query comes first, then titles that begin so, then words that do, then any part of a title or
    name; within each, better ones first. With an index this takes a tenth of a millisecond; reading the whole text,
    ten for a million characters, and Python's lock is held meanwhile.

    text    an entry after the other: the title, and the name where that is another
    bounds  where each entry begins, and where the last one ends
    ids     whom an entry is of

    >>> names = ["Old Zealand", "New Zealand", "Zealandia"]
    >>> search = NameSearch.of(names, lambda number: names[number], best_first=[1, 0, 2])
    >>> search.find("zea"), search.find("land", limit=1), search.similar("Zeelandia", limit=1)
    ([2, 1, 0], [1], [2])
    """

    text: str
    bounds: list[int]
    ids: list[int]

    @classmethod
    def of(cls, names: Sequence[str], title: Callable[[int], str], best_first: Iterable[int]) -> NameSearch:
        pieces, bounds, ids = [], [0], []
        for number in best_first:
            called, name = title(number), names[number][:LONGEST_NAME]  # an abstract is searched by how it begins
            piece = _edged(folded(called)) + ("" if called == name else _edged(folded(name)))
            pieces.append(piece)
            bounds.append(bounds[-1] + len(piece))
            ids.append(number)
        return cls("".join(pieces), bounds, ids)

    @cached_property
    def index(self) -> GramIndex | None:
        """Made at the first question, in some tenths of a second for a million characters."""
        return GramIndex(self.text, self.bounds) if len(self.text) <= LONGEST_TEXT else None

    @cached_property
    def well_known(self) -> NameSearch:
        """This, or as much of it as can have an index."""
        if self.index is not None:
            return self
        most = bisect_right(self.bounds, WELL_KNOWN) - 1
        return NameSearch(self.text[: self.bounds[most]], self.bounds[: most + 1], self.ids[:most])

    @cached_property
    def whole(self) -> dict[str, list[int]]:
        """Entries by the whole of a title or name."""
        found: defaultdict[str, list[int]] = defaultdict(list)
        for entry, (begin, end) in enumerate(pairwise(self.bounds)):
            for piece in self.text[begin + 1 : end - 1].split(EDGE + EDGE):
                found[piece].append(entry)
        return dict(found)

    def find(self, query: str, limit: int = 10) -> list[int]:
        """Those that match best, at most `limit` of them."""
        words = folded(query[:LONGEST_QUERY])
        found: dict[int, None] = {}
        if not words or limit < 1 or (self.index is None and words not in self.text):
            return []
        for pattern in (_edged(words), EDGE + words, " " + words, words):
            for entry in self._holding(pattern):
                found[self.ids[entry]] = None
                if len(found) >= limit:
                    return list(found)
        return list(found)

    def _holding(self, pattern: str) -> Iterator[int]:
        """The entries that hold a pattern."""
        text, bounds = self.text, self.bounds
        if self.index is None:
            at = text.find(pattern)
            while at >= 0:
                entry = bisect_right(bounds, at) - 1
                yield entry
                at = text.find(pattern, bounds[entry + 1])  # one hit an entry is enough
        elif pattern[0] == EDGE == pattern[-1]:
            yield from self.whole.get(pattern[1:-1], ())
        else:
            for entry in self.index.holding(pattern):
                if text.find(pattern, bounds[entry], bounds[entry + 1]) >= 0:
                    yield entry

    def similar(self, name: str, limit: int = 3) -> list[int]:
        """Those with a name most like this one, else those of which it is a part: dog for domestic_dog.n.01.

        Only the entries that share most of the name's rare sequences are compared letter by letter: a stranger who
        asks for nonsense must not keep the others waiting.
        """
        words, known = folded(name[:LONGEST_QUERY])[:LONGEST_COMPARED], self.well_known
        if not words or known.index is None:
            return []
        scored = [(known._likeness(words, entry), entry) for entry in known.index.near(_edged(words), MOST_COMPARED)]
        alike = sorted((pair for pair in scored if pair[0] >= ALIKE), key=lambda pair: -pair[0])
        return [known.ids[entry] for _, entry in alike[:limit]] or known.find(words, limit)

    def _likeness(self, words: str, entry: int) -> float:
        matcher = difflib.SequenceMatcher(b=words, autojunk=False)
        best = 0.0
        for piece in self.text[self.bounds[entry] : self.bounds[entry + 1]].split(EDGE):
            matcher.set_seq1(piece[:LONGEST_COMPARED])
            if piece and matcher.real_quick_ratio() > best and matcher.quick_ratio() > best:
                best = max(best, matcher.ratio())
        return best


def folded(text: str) -> str:
    """A name without what people leave out when they type it: case, underscores, spaces around."""
    return " ".join(text.replace("_", " ").casefold().split())


def _edged(words: str) -> str:
    return EDGE + words + EDGE


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
