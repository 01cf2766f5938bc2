"""Names by a part of them, and by what is spelled alike, fast enough for every key a person presses."""

from __future__ import annotations

import difflib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from rgcn.graph.gram_index import GramIndex

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
