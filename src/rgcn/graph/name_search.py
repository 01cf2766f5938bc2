"""Names by a part of them, and by what is spelled alike, fast enough for every key a person presses.

The index is a few arrays. Of a graph in memory it is made at the first question; with a stored graph it lies beside the
names, written once (`write`), and is mapped (`opened`): nothing is read that no question needs.

search.text         UTF-8 of all entries, best ones first: titles, and names where these are others, each between edges
search.bounds.npy   int64 [E + 1]  where each entry begins, and where the last one ends
search.ids.npy      int32 [E]      whom an entry is of
search.grams.npy    int64 [64³+1]  entries that hold a sequence of three letters: grams[i] to grams[i + 1] of holding
search.holding.npy  int32          entries, ascending within a sequence
search.common.npy   int32          sequences that too many entries hold to list them
search.hashes.npy   uint32 [K]     of whole titles and names and what else somebody may be called; sorted
search.called.npy   int32 [K]      whom each is of
"""

from __future__ import annotations

import difflib
import io
import mmap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rgcn.errors import DataError
from rgcn.graph.vocabulary import name_hash, name_hashes
from rgcn.system.atomic_files import replace_atomically, write_array
from rgcn.system.threads import in_order

EDGE = "\x1e"  # where a title or a name begins and ends; folding takes it out of names, since it counts as a space
LONGEST_QUERY = LONGEST_NAME = 200
MOST_COMPARED, LONGEST_COMPARED, ALIKE = 8, 60, 0.6
# How much is looked at to guess what was meant.
RARE, RARE_LISTS = 1000, 8
FIRST_LOOK = 64
# More entries than these that hold one of a few letters are met soon by reading from the best on.
FEW = 20_000
ENTRIES_AT_ONCE = 1 << 14
# Sorting at once takes some bytes for each; beyond, numba counts, and what a pass writes is bounded.
MOST_SORTED, MOST_IN_A_PASS = 1 << 22, 1 << 26
ENTRIES_COUNTED = 1 << 20  # by one thread at a time
# Of so many entries, a sequence that is in every eighth tells too little for the room that it takes.
MANY, COMMON_SHARE = 1 << 14, 8
ARRAYS = ("bounds", "ids", "grams", "holding", "common", "hashes", "called")
SEARCH_FILES = ("search.text", *(f"search.{name}.npy" for name in ARRAYS))

Spelled = tuple[int, str, str, Sequence[str]]  # whom it is of, title, name, what else it may be called
Joined = tuple[bytes, NDArray[np.int64]]  # texts back to back, and how many bytes each has


class Written(NamedTuple):
    """Some entries of an index.

    text   UTF-8 of them
    sizes  int64 [n]   bytes of each
    ids    int64 [n]   whom each is of
    keys   uint64 [k]  hashes of what somebody may be called, and in the lower half who
    """

    text: bytes
    sizes: NDArray[np.int64]
    ids: NDArray[np.int64]
    keys: NDArray[np.uint64]

    @classmethod
    def of(cls, texts: Joined, ids: NDArray[np.int64], keys: Joined, owners: NDArray[Any]) -> Written:
        """Entries and what somebody may be called, each back to back; and whom each is of."""
        called, lengths = keys
        hashes = name_hashes(np.frombuffer(called, np.uint8), np.cumsum(lengths) - lengths, lengths)
        return cls(*texts, ids, hashes.astype(np.uint64) << _HALF | owners.astype(np.uint64))


_HALF, _EDGE = np.uint64(32), EDGE.encode()


def _kinds_of_bytes() -> NDArray[np.uint8]:
    """64 kinds: the edge, a space, letters and digits each one, ten of other signs, sixteen of what is no ASCII."""
    kinds = 38 + np.arange(256) % 10
    kinds[128:] = 48 + np.arange(128) % 16
    kinds[ord(EDGE)], kinds[ord(" ")] = 0, 1
    kinds[ord("a") : ord("z") + 1] = 2 + np.arange(26)
    kinds[ord("0") : ord("9") + 1] = 28 + np.arange(10)
    return kinds.astype(np.uint8)


KINDS, BITS = _kinds_of_bytes(), 6
KINDS_TABLE = KINDS.tobytes()
GRAMS = 1 << 3 * BITS


@dataclass(frozen=True, eq=False)
class NameSearch:
    """All titles and names in one long text, best ones first, and where each sequence of three letters occurs.

    A title that is the query comes first, then titles that begin so, then words that do, then any part of a title or
    name; within each, better ones first. The index may name an entry too many, never one too few: the entries that it
    names are read. Fields as above.

    >>> names = ["Old Zealand", "New Zealand", "Zealandia"]
    >>> spelled = ((number, names[number], names[number], ()) for number in (1, 0, 2))
    >>> search = NameSearch.of([Entries.of(spelled).written()])
    >>> search.find("zea"), search.find("land", limit=1), search.similar("Zeelandia", limit=1)
    ([2, 1, 0], [1], [2])
    """

    text: bytes | mmap.mmap
    bounds: NDArray[np.int64]
    ids: NDArray[np.int32]
    grams: NDArray[np.int64]
    holding: NDArray[np.int32]
    common: NDArray[np.int32]
    hashes: NDArray[np.uint32]
    called: NDArray[np.int32]

    @classmethod
    def of(cls, parts: Iterable[Written]) -> NameSearch:
        """Of those that are searched for, best first."""
        buffer = io.BytesIO()
        bounds, ids, hashes, called = _write_text(parts, buffer)
        text = buffer.getvalue()
        grams, common, pieces = _postings(np.frombuffer(text, dtype=np.uint8), bounds)
        holding = np.concatenate([np.empty(0, np.int32), *pieces])
        return cls(text, bounds, ids, grams, holding, common, hashes, called)

    @staticmethod
    def write(parts: Iterable[Written], folder: Path) -> None:
        """The same into a folder, a part at a time: more names than fit into memory may be written."""
        arrays: dict[str, Any] = {}

        def write_text(path: Path) -> None:
            with path.open("wb") as file:
                arrays.update(zip(("bounds", "ids", "hashes", "called"), _write_text(parts, file), strict=True))

        replace_atomically(folder / "search.text", write_text)
        text = np.memmap(folder / "search.text", dtype=np.uint8, mode="r")
        arrays["grams"], arrays["common"], pieces = _postings(text, arrays["bounds"])
        write_array(_path(folder, "holding"), np.int32, (int(arrays["grams"][-1]),), pieces)
        for name, array in arrays.items():
            write_array(_path(folder, name), array.dtype.type, array.shape, [array])

    @classmethod
    def opened(cls, folder: Path) -> NameSearch:
        """What `write` wrote, mapped; something else may follow the text."""
        try:
            arrays = {name: np.load(_path(folder, name), mmap_mode="r").view(np.ndarray) for name in ARRAYS}
            with (folder / "search.text").open("rb") as file:
                text = mmap.mmap(file.fileno(), int(arrays["bounds"][-1]) + len(_EDGE), access=mmap.ACCESS_READ)
        except (ValueError, OverflowError, IndexError) as error:
            raise damaged_index() from error
        return cls(text, **arrays)

    def find(self, query: str, limit: int = 10) -> list[int]:
        """Those that match best, at most `limit` of them."""
        words = folded(query[:LONGEST_QUERY])
        found, ids = dict[int, None](), self._places[2]
        if not words or limit < 1:
            return []
        for pattern in (EDGE + words + EDGE, EDGE + words, " " + words, words):
            for entry in self._holding(_encoded(pattern)):
                found[ids[entry]] = None
                if len(found) >= limit:
                    return list(found)
        return list(found)

    def whole(self, words: str) -> list[int]:
        """Those of whom a whole title or name, or what else they may be called, is perhaps this, folded; ascending."""
        key = np.uint32(name_hash(_encoded(words)))
        begin, end = (np.searchsorted(self.hashes, key, side) for side in ("left", "right"))
        return sorted(set(self.called[begin:end].tolist()))

    @cached_property
    def _places(self) -> tuple[Any, Any, Any, frozenset[int]]:
        """(grams, bounds, ids, common) as Python reads single numbers of them soonest."""
        grams, bounds, ids = (memoryview(of) for of in (self.grams, self.bounds, self.ids))  # type: ignore[arg-type]
        return grams, bounds, ids, frozenset(self.common.tolist())

    def _holding(self, pattern: bytes) -> Iterator[int]:
        """The entries that hold a pattern, ascending."""
        lists = self._lists(pattern) if len(pattern) >= 3 else self._beginning(pattern)
        if not lists:
            yield from self._read_through(pattern)
            return
        text, bounds, rarest = self.text, self._places[1], lists[0]
        # The first entries are mostly enough; the rest is looked at where they are not.
        begin, size = 0, FIRST_LOOK
        while begin < len(rarest):
            entries = rarest[begin : begin + size]
            for other in lists[1:4] if begin else ():
                entries = entries[other[np.searchsorted(other[:-1], entries)] == entries]
            for entry in self._existing(entries):
                if text.find(pattern, bounds[entry], bounds[entry + 1]) >= 0:
                    yield entry
            begin, size = begin + size, size * 8

    def _read_through(self, pattern: bytes) -> Iterator[int]:
        at = self.text.find(pattern)
        while at >= 0:
            entry = int(np.searchsorted(self.bounds, at, side="right")) - 1
            yield entry
            at = self.text.find(pattern, int(self.bounds[entry + 1]))  # one hit an entry is enough

    def _lists(self, pattern: bytes) -> list[NDArray[np.int32]]:
        """The entries of each sequence of three in the pattern that is not too common, shortest first."""
        (grams, _, _, common), kinds = self._places, pattern.translate(KINDS_TABLE)
        found = {kinds[at] << 2 * BITS | kinds[at + 1] << BITS | kinds[at + 2] for at in range(len(kinds) - 2)}
        spans = sorted((grams[gram + 1] - grams[gram], gram) for gram in found if gram not in common)
        return [self.holding[grams[gram] : grams[gram + 1]] for _, gram in spans]

    def _beginning(self, pattern: bytes) -> list[NDArray[np.int32]]:
        """The entries of the sequences that begin with one or two letters; none where they are very many.

        An edge follows wherever the text of an entry ends, so that every letter begins a sequence.
        """
        (grams, _, _, common), width, first = self._places, 1 << BITS * (3 - len(pattern)), 0
        for kind in pattern.translate(KINDS_TABLE):
            first = first << BITS | kind
        span = range(first * width, (first + 1) * width)
        begin, end = grams[span.start], grams[span.stop]
        if end - begin > FEW or any(gram in span for gram in common):
            return []
        return [np.unique(self.holding[begin:end])]

    def similar(self, name: str, limit: int = 3) -> list[int]:
        """Those with a name most like this one, else those of which it is a part: dog for domestic_dog.n.01.

        Only the entries that share most of the name's rare sequences are compared letter by letter: a stranger who
        asks for nonsense must not keep the others waiting.
        """
        words, pieces = folded(name[:LONGEST_QUERY])[:LONGEST_COMPARED], dict[str, list[int]]()
        if not words:
            return []
        for entry in self._near(_encoded(EDGE + words + EDGE)):
            text = self.text[int(self.bounds[entry]) : int(self.bounds[entry + 1])].decode("utf-8", "surrogatepass")
            for piece in filter(None, text.split(EDGE)):
                pieces.setdefault(piece[:LONGEST_COMPARED], []).append(int(self.ids[entry]))
        alike = difflib.get_close_matches(words, pieces, 2 * limit, ALIKE)
        return list(dict.fromkeys(of for piece in alike for of in pieces[piece]))[:limit] or self.find(words, limit)

    def _near(self, pattern: bytes) -> list[int]:
        """The entries that share most of the pattern's rare sequences."""
        lists = [entries for entries in self._lists(pattern) if len(entries)]
        if not lists:
            return []
        rare = [entries for entries in lists[:RARE_LISTS] if len(entries) <= RARE] or [lists[0][:RARE]]
        entries, counts = np.unique(np.concatenate(rare), return_counts=True)
        return self._existing(entries[np.argsort(-counts, kind="stable")[:MOST_COMPARED]])

    def _existing(self, entries: NDArray[np.int32]) -> list[int]:
        """Entries that a sequence is said to be in, all of which there are."""
        if len(entries) and not 0 <= entries.min() <= entries.max() < len(self.ids):
            raise damaged_index()
        there: list[int] = entries.tolist()
        return there


def damaged_index() -> DataError:
    return DataError("the index of the stored graph's names is damaged: `rgcn data check` says which part of it")


def folded(text: str) -> str:
    """A name without what people leave out when they type it: case, underscores, spaces around."""
    return " ".join(text.replace("_", " ").casefold().split())


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _path(folder: Path, name: str) -> Path:
    return folder / f"search.{name}.npy"


# -- making it ---------------------------------------------------------------------------------------------------


class Entries(NamedTuple):
    """Entries of an index, with what somebody may be called, folded, and whom each of that is of."""

    ids: Sequence[int] | NDArray[np.int64]
    texts: Sequence[str]
    keys: Sequence[str]
    owners: Sequence[int] | NDArray[np.int64]

    @classmethod
    def of(cls, spelled: Iterable[Spelled]) -> Entries:
        """The entries of some, best first."""
        ids, texts, keys, owners = list[int](), list[str](), list[str](), list[int]()
        for number, title, name, others in spelled:
            begins = name[:LONGEST_NAME]  # an abstract is searched by how it begins
            shown = [folded(piece) for piece in ([title] if title == begins else [title, begins])]
            others = others if name is begins else (*others, name)
            ids.append(number)
            texts.append("".join(f"{EDGE}{piece}{EDGE}" for piece in shown))
            keys += (*shown, *map(folded, others))
            owners += [number] * (len(shown) + len(others))
        return cls(ids, texts, keys, owners)

    def written(self) -> Written:
        """The same as bytes and hashes."""
        owners, ids = np.asarray(self.owners, np.uint64), np.asarray(self.ids, np.int64)
        return Written.of(_joined(self.texts), ids, _joined(self.keys), owners)


def _joined(texts: Sequence[str]) -> Joined:
    """All of them back to back, and how many bytes each has."""
    whole = "".join(texts)
    of = texts if whole.isascii() else list(map(_encoded, texts))
    return _encoded(whole), np.fromiter(map(len, of), np.int64, len(of))


def _write_text(parts: Iterable[Written], file: BinaryIO) -> tuple[NDArray[Any], ...]:
    """Write the text; (bounds, ids, hashes, called)."""
    sizes, ids, keys = [np.zeros(1, np.int64)], [np.empty(0, np.int32)], [np.empty(0, np.uint64)]
    for part in parts:
        file.write(part.text)
        sizes.append(part.sizes)
        ids.append(part.ids.astype(np.int32))
        keys.append(part.keys)
    file.write(_EDGE)  # so that an edge follows the last entry, too
    called = np.concatenate(keys)
    keys.clear()
    called.sort()
    called = called[np.concatenate([[True], called[1:] != called[:-1]])[: len(called)]]
    bounds = np.cumsum(np.concatenate(sizes))
    return bounds, np.concatenate(ids), (called >> _HALF).astype(np.uint32), called.astype(np.uint32).view(np.int32)


def _postings(
    text: NDArray[np.uint8], bounds: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int32], Iterator[NDArray[np.int32]]]:
    """(grams, common, parts of holding)."""
    if len(text) <= MOST_SORTED:
        # A sequence begins at every letter of an entry but its last; the edge that follows an entry may end one.
        entry = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
        inside = np.flatnonzero(entry[:-1] == entry[1:])
        kinds = KINDS[text].astype(np.int32)
        grams = kinds[:-2] << 2 * BITS | kinds[1:-1] << BITS | kinds[2:]
        pairs = np.unique(grams[inside].astype(np.int64) << 32 | entry[inside])
        counts = np.bincount(pairs >> 32, minlength=GRAMS)
        sorted_at_once = (pairs & 0xFFFFFFFF).astype(np.int32)
        return _pointer(counts), np.empty(0, np.int32), iter([sorted_at_once])
    from rgcn.graph.name_loops import count_grams

    entries, bounds = len(bounds) - 1, np.asarray(bounds)
    parts = [bounds[first : first + ENTRIES_COUNTED + 1] for first in range(0, entries, ENTRIES_COUNTED)]
    by_part = np.zeros((len(parts), GRAMS), dtype=np.int64)
    for _ in in_order(range(len(parts)), lambda i: count_grams(text, parts[i], KINDS, by_part[i])):
        pass
    counts = by_part.sum(axis=0)
    is_common = counts > entries // COMMON_SHARE if entries > MANY else np.zeros(GRAMS, bool)
    counts[is_common] = 0
    pointer = _pointer(counts)
    places = pointer[:-1] + np.cumsum(by_part, axis=0) - by_part
    places[:, is_common] = -1
    return pointer, np.flatnonzero(is_common).astype(np.int32), _passes(text, parts, pointer, places)


def _pointer(counts: NDArray[Any]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _passes(
    text: NDArray[np.uint8], parts: list[NDArray[np.int64]], pointer: NDArray[np.int64], places: NDArray[np.int64]
) -> Iterator[NDArray[np.int32]]:
    """Holding a bounded part at a time: each a pass over the text for the next sequences.

    parts, places  some entries each, and where the first of them that hold a sequence are written
    """
    from rgcn.graph.name_loops import fill_grams

    first = 0
    while first < GRAMS:
        last = max(first + 1, int(np.searchsorted(pointer, pointer[first] + MOST_IN_A_PASS, side="right")) - 1)
        part = np.empty(pointer[last] - pointer[first], dtype=np.int32)
        if len(part):
            here = places[:, first:last]
            here = np.where(here < 0, here, here - pointer[first])
            given = [(text, of, KINDS, i * ENTRIES_COUNTED, first, here[i], part) for i, of in enumerate(parts)]
            for _ in in_order(given, lambda each: fill_grams(*each)):
                pass
            yield part
        first = last
