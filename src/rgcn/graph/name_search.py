"""An index that finds names by a part of them, or by similar spelling, in about a millisecond.

For a graph in memory it is made at the first question. With a stored graph it is written once (`write`) and mapped
(`open`), so that only what a question needs is read.

search.text         UTF-8 of all entries, best first: titles, and names that differ from them, each between edges
search.bounds.npy   int64 [num_entries + 1]  where each entry begins, and where the last one ends
search.ids.npy      int32 [num_entries]      the id of each entry
search.grams.npy    int64 [64³ + 1]          the entries with trigram i are holding[grams[i] : grams[i + 1]]
search.holding.npy  int32                    entries, ascending for each trigram
search.common.npy   int32                    trigrams that too many entries contain to list them
search.hashes.npy   uint32 [num_spellings]   hashes of whole titles, names and further spellings, sorted
search.called.npy   int32 [num_spellings]    the id of each spelling
"""

from __future__ import annotations

import difflib
import io
import mmap
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rgcn.errors import DataError
from rgcn.graph.vocabulary import Ids, name_hash, name_hashes
from rgcn.system.atomic_files import replace_atomically, write_array
from rgcn.system.threads import map_in_threads

EDGE = "\x1e"  # begins and ends a title or a name; normalization removes it from names, since it is white space
MAX_QUERY_LENGTH = MAX_NAME_LENGTH = 200
# To suggest similar names, at most MAX_COMPARED entries are compared letter by letter.
MAX_COMPARED, MAX_COMPARED_LENGTH, MIN_SIMILARITY = 8, 60, 0.6
MAX_RARE_ENTRIES, MAX_RARE_GRAMS = 1000, 8
FIRST_BLOCK = 64
# If more entries contain one or two letters, reading all entries from the best on finds enough of them sooner.
MAX_PREFIX_ENTRIES = 20_000
BLOCK_ENTRIES = 1 << 14
# A longer text is counted by numba instead of sorted, with bounded memory for each pass.
MAX_SORTED_BYTES, MAX_PASS_ENTRIES = 1 << 22, 1 << 26
THREAD_ENTRIES = 1 << 20
# Among so many entries, a trigram that every eighth entry contains excludes too few to be worth its memory.
MIN_ENTRIES_FOR_COMMON, COMMON_SHARE = 1 << 14, 8
ARRAYS = ("bounds", "ids", "grams", "holding", "common", "hashes", "called")
SEARCH_FILES = ("search.text", *(f"search.{name}.npy" for name in ARRAYS))

DAMAGED_INDEX = "the index of the stored graph's names is damaged: `rgcn data check` says which part of it"

Spelling = tuple[int, str, str, Sequence[str]]  # id, title, name, further spellings
JoinedTexts = tuple[bytes, Ids]  # concatenated texts, and the number of bytes of each


class IndexPart(NamedTuple):
    """Some entries of an index.

    Args:
        text: UTF-8 of the entries.
        sizes: The number of bytes of each entry, int64 [n].
        ids: The id of each entry, int64 [n].
        keys: The hash of each spelling in the upper half, and its id in the lower half, uint64 [num_spellings].
    """

    text: bytes
    sizes: Ids
    ids: Ids
    keys: NDArray[np.uint64]

    @classmethod
    def of(
        cls, ids: Sequence[int] | Ids, texts: JoinedTexts, owners: Sequence[int] | Ids, keys: JoinedTexts
    ) -> IndexPart:
        """Make it from the ids and texts of entries, and from spellings (keys) and the ids that have them (owners)."""
        spellings, lengths = keys
        hashes = name_hashes(np.frombuffer(spellings, np.uint8), np.cumsum(lengths) - lengths, lengths)
        return cls(*texts, np.asarray(ids, np.int64), hashes.astype(np.uint64) << _HALF | np.asarray(owners, np.uint64))


_HALF, _EDGE = np.uint64(32), EDGE.encode()


def _kinds_of_bytes() -> NDArray[np.uint8]:
    """Map bytes to 64 kinds: edge, space, each letter and digit, ten for other ASCII, sixteen for the rest."""
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
    """All titles and names as one text, best first, and the entries that contain each trigram.

    Results are ordered: titles equal to the query, titles that begin with it, titles and names with a word that does,
    any other part; better ones first within each. A trigram may list an entry that does not contain the pattern, never
    too few, because different bytes share a kind; so the listed entries are compared with the pattern. The fields are
    the arrays described above.

    >>> names = ["Old Zealand", "New Zealand", "Zealandia"]
    >>> spellings = ((number, names[number], names[number], ()) for number in (1, 0, 2))
    >>> search = NameSearch.of([index_part(spellings)])
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
    def of(cls, parts: Iterable[IndexPart]) -> NameSearch:
        """Make the index in memory, from parts in order, best entries first."""
        buffer = io.BytesIO()
        bounds, ids, hashes, called = _write_text(parts, buffer)
        text = buffer.getvalue()
        grams, common, blocks = _postings(np.frombuffer(text, dtype=np.uint8), bounds)
        holding = np.concatenate([np.empty(0, np.int32), *blocks])
        return cls(text, bounds, ids, grams, holding, common, hashes, called)

    @staticmethod
    def write(parts: Iterable[IndexPart], folder: Path) -> None:
        """Write the index into a folder, a part at a time, so that it need not fit into memory."""
        arrays: dict[str, Any] = {}

        def write_text(path: Path) -> None:
            with path.open("wb") as file:
                arrays.update(zip(("bounds", "ids", "hashes", "called"), _write_text(parts, file), strict=True))

        replace_atomically(folder / "search.text", write_text)
        text = np.memmap(folder / "search.text", dtype=np.uint8, mode="r")
        arrays["grams"], arrays["common"], blocks = _postings(text, arrays["bounds"])
        write_array(_path(folder, "holding"), np.int32, (int(arrays["grams"][-1]),), blocks)
        for name, array in arrays.items():
            write_array(_path(folder, name), array.dtype.type, array.shape, [array])

    @classmethod
    def open(cls, folder: Path) -> NameSearch:
        """Map the index of a folder; the text may be followed by other bytes."""
        try:
            arrays = {name: np.load(_path(folder, name), mmap_mode="r").view(np.ndarray) for name in ARRAYS}
            with (folder / "search.text").open("rb") as file:
                text = mmap.mmap(file.fileno(), int(arrays["bounds"][-1]) + len(_EDGE), access=mmap.ACCESS_READ)
        except (ValueError, OverflowError, IndexError) as error:
            raise DataError(DAMAGED_INDEX) from error
        return cls(text, **arrays)

    def find(self, query: str, limit: int = 10) -> list[int]:
        """Return at most `limit` ids whose title or name contains the query, best first."""
        text = normalize_name(query[:MAX_QUERY_LENGTH])
        results, ids = dict[int, None](), self._views[2]
        if not text or limit < 1:
            return []
        for pattern in (EDGE + text + EDGE, EDGE + text, " " + text, text):
            for entry in self._entries_with(_encoded(pattern)):
                results[ids[entry]] = None
                if len(results) >= limit:
                    return list(results)
        return list(results)

    def whole(self, text: str) -> list[int]:
        """Return the ids with a spelling whose hash is that of this normalized text, ascending."""
        key = np.uint32(name_hash(_encoded(text)))
        begin, end = (np.searchsorted(self.hashes, key, side) for side in ("left", "right"))
        return sorted(set(self.called[begin:end].tolist()))

    @cached_property
    def _views(self) -> tuple[Any, Any, Any, frozenset[int]]:
        """(grams, bounds, ids, common): Python reads single numbers of these fastest."""
        grams, bounds, ids = (memoryview(array) for array in (self.grams, self.bounds, self.ids))  # type: ignore[arg-type]
        return grams, bounds, ids, frozenset(self.common.tolist())

    def _entries_with(self, pattern: bytes) -> Iterator[int]:
        """Yield the entries that contain a pattern, ascending."""
        lists = self._entries_by_gram(pattern) if len(pattern) >= 3 else self._entries_by_prefix(pattern)
        text, bounds = self.text, self._views[1]
        if not lists:  # the trigrams exclude too little: read the whole text
            at = text.find(pattern)
            while at >= 0:
                entry = int(np.searchsorted(self.bounds, at, side="right")) - 1
                yield entry
                at = text.find(pattern, int(self.bounds[entry + 1]))
            return
        rarest, begin, size = lists[0], 0, FIRST_BLOCK
        while begin < len(rarest):  # the first block is mostly enough
            entries = rarest[begin : begin + size]
            for other in lists[1:4] if begin else ():
                entries = entries[other[np.searchsorted(other[:-1], entries)] == entries]
            for entry in checked(entries, len(self.ids)):
                if text.find(pattern, bounds[entry], bounds[entry + 1]) >= 0:
                    yield entry
            begin, size = begin + size, size * 8

    def _entries_by_gram(self, pattern: bytes) -> list[NDArray[np.int32]]:
        """Return the entries with each trigram of the pattern that is not too common, shortest list first."""
        (grams, _, _, common), kinds = self._views, pattern.translate(KINDS_TABLE)
        wanted = {kinds[at] << 2 * BITS | kinds[at + 1] << BITS | kinds[at + 2] for at in range(len(kinds) - 2)}
        spans = sorted((grams[gram + 1] - grams[gram], gram) for gram in wanted if gram not in common)
        return [self.holding[grams[gram] : grams[gram + 1]] for _, gram in spans]

    def _entries_by_prefix(self, pattern: bytes) -> list[NDArray[np.int32]]:
        """Return the entries with trigrams that begin with one or two bytes; [] if there are very many.

        An edge follows each entry, so that every byte begins a trigram.
        """
        (grams, _, _, common), width, first = self._views, 1 << BITS * (3 - len(pattern)), 0
        for kind in pattern.translate(KINDS_TABLE):
            first = first << BITS | kind
        span = range(first * width, (first + 1) * width)
        begin, end = grams[span.start], grams[span.stop]
        if end - begin > MAX_PREFIX_ENTRIES or any(gram in span for gram in common):
            return []
        return [np.unique(self.holding[begin:end])]

    def similar(self, name: str, limit: int = 3) -> list[int]:
        """Return ids with a similar title or name, else those that contain it: domestic_dog.n.01 for dog.

        Only the entries that share most of the rare trigrams are compared letter by letter, so that an unusual query
        does not delay other requests of a server.
        """
        text, ids_by_piece = normalize_name(name[:MAX_QUERY_LENGTH])[:MAX_COMPARED_LENGTH], dict[str, list[int]]()
        if not text:
            return []
        for entry in self._most_shared(_encoded(EDGE + text + EDGE)):
            pieces = self.text[int(self.bounds[entry]) : int(self.bounds[entry + 1])].decode("utf-8", "surrogatepass")
            for piece in filter(None, pieces.split(EDGE)):
                ids_by_piece.setdefault(piece[:MAX_COMPARED_LENGTH], []).append(int(self.ids[entry]))
        matches = difflib.get_close_matches(text, ids_by_piece, 2 * limit, MIN_SIMILARITY)
        ids = dict.fromkeys(number for piece in matches for number in ids_by_piece[piece])
        return list(ids)[:limit] or self.find(text, limit)

    def _most_shared(self, pattern: bytes) -> list[int]:
        """Return the entries that share most of the rare trigrams of the pattern."""
        lists = [entries for entries in self._entries_by_gram(pattern) if len(entries)]
        if not lists:
            return []
        rare = [entries for entries in lists[:MAX_RARE_GRAMS] if len(entries) <= MAX_RARE_ENTRIES]
        entries, counts = np.unique(np.concatenate(rare or [lists[0][:MAX_RARE_ENTRIES]]), return_counts=True)
        return checked(entries[np.argsort(-counts, kind="stable")[:MAX_COMPARED]], len(self.ids))


def checked(numbers: NDArray[np.int32] | list[int], size: int) -> list[int]:
    """Return the numbers as a list. Raise unless all are in range: a stored index may be damaged."""
    if len(numbers) and not 0 <= np.min(numbers) <= np.max(numbers) < size:
        raise DataError(DAMAGED_INDEX)
    return numbers if isinstance(numbers, list) else list[int](numbers.tolist())


def normalize_name(text: str) -> str:
    """Remove what people leave out when they type a name: case, underscores, additional white space."""
    return " ".join(text.replace("_", " ").casefold().split())


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _path(folder: Path, name: str) -> Path:
    return folder / f"search.{name}.npy"


# -- making the index -------------------------------------------------------------------------------------------


def entries_of(spellings: Iterable[Spelling]) -> tuple[list[int], list[str], list[int], list[str]]:
    """Return the arguments of `IndexPart.of` for spellings in order, best first; texts and keys are not joined yet."""
    ids, texts, owners, keys = list[int](), list[str](), list[int](), list[str]()
    for number, title, name, others in spellings:
        begins = name[:MAX_NAME_LENGTH]  # only the beginning of a long text can be searched
        shown = [normalize_name(piece) for piece in ([title] if title == begins else [title, begins])]
        others = others if name is begins else (*others, name)
        ids.append(number)
        texts.append("".join(f"{EDGE}{piece}{EDGE}" for piece in shown))
        keys += (*shown, *map(normalize_name, others))
        owners += [number] * (len(shown) + len(others))
    return ids, texts, owners, keys


def index_part(spellings: Iterable[Spelling]) -> IndexPart:
    """Return the entries of spellings in order, best first."""
    ids, texts, owners, keys = entries_of(spellings)
    return IndexPart.of(ids, joined(texts), owners, joined(keys))


def joined(texts: Sequence[str]) -> JoinedTexts:
    """Concatenate texts: (UTF-8, number of bytes of each text)."""
    whole = "".join(texts)
    pieces = texts if whole.isascii() else list(map(_encoded, texts))
    return _encoded(whole), np.fromiter(map(len, pieces), np.int64, len(pieces))


def _write_text(parts: Iterable[IndexPart], file: BinaryIO) -> tuple[NDArray[Any], ...]:
    """Write the text, and return (bounds, ids, hashes, called)."""
    sizes, ids, keys = [np.zeros(1, np.int64)], [np.empty(0, np.int32)], [np.empty(0, np.uint64)]
    for part in parts:
        file.write(part.text)
        sizes.append(part.sizes)
        ids.append(part.ids.astype(np.int32))
        keys.append(part.keys)
    file.write(_EDGE)  # an edge follows the last entry, too
    called = np.concatenate(keys)
    keys.clear()
    called.sort()
    called = called[np.concatenate([[True], called[1:] != called[:-1]])[: len(called)]]
    bounds = np.cumsum(np.concatenate(sizes))
    return bounds, np.concatenate(ids), (called >> _HALF).astype(np.uint32), called.astype(np.uint32).view(np.int32)


def _postings(text: NDArray[np.uint8], bounds: Ids) -> tuple[Ids, NDArray[np.int32], Iterator[NDArray[np.int32]]]:
    """Return (grams, common, blocks of holding)."""
    if len(text) <= MAX_SORTED_BYTES:
        # A trigram begins at every byte of an entry but its last; the edge that follows an entry may end one.
        entry = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
        inside = np.flatnonzero(entry[:-1] == entry[1:])
        kinds = KINDS[text].astype(np.int32)
        grams = kinds[:-2] << 2 * BITS | kinds[1:-1] << BITS | kinds[2:]
        pairs = np.unique(grams[inside].astype(np.int64) << 32 | entry[inside])
        counts = np.bincount(pairs >> 32, minlength=GRAMS)
        return _pointer(counts), np.empty(0, np.int32), iter([(pairs & 0xFFFFFFFF).astype(np.int32)])
    from rgcn.graph.name_loops import count_grams

    num_entries, bounds = len(bounds) - 1, np.asarray(bounds)
    parts = [bounds[first : first + THREAD_ENTRIES + 1] for first in range(0, num_entries, THREAD_ENTRIES)]
    by_part = np.zeros((len(parts), GRAMS), dtype=np.int64)
    deque(map_in_threads(range(len(parts)), lambda i: count_grams(text, parts[i], KINDS, by_part[i])), maxlen=0)
    counts = by_part.sum(axis=0)
    is_common = counts > num_entries // COMMON_SHARE if num_entries > MIN_ENTRIES_FOR_COMMON else np.zeros(GRAMS, bool)
    counts[is_common] = 0
    pointer = _pointer(counts)
    positions = pointer[:-1] + np.cumsum(by_part, axis=0) - by_part
    positions[:, is_common] = -1
    return pointer, np.flatnonzero(is_common).astype(np.int32), _passes(text, parts, pointer, positions)


def _pointer(counts: NDArray[Any]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _passes(text: NDArray[np.uint8], parts: list[Ids], pointer: Ids, positions: Ids) -> Iterator[NDArray[np.int32]]:
    """Yield `holding` in blocks of bounded size; each block takes a pass over the text.

    Args:
        text: The text of all entries.
        parts: The bounds of the entries of each thread.
        pointer: Where the entries of each trigram begin in `holding`.
        positions: Where each thread writes the first entry of each trigram; -1 for common ones.
    """
    from rgcn.graph.name_loops import fill_grams

    first = 0
    while first < GRAMS:
        last = max(first + 1, int(np.searchsorted(pointer, pointer[first] + MAX_PASS_ENTRIES, side="right")) - 1)
        block = np.empty(pointer[last] - pointer[first], dtype=np.int32)
        if len(block):
            here = positions[:, first:last]
            here = np.where(here < 0, here, here - pointer[first])
            work = [(text, part, KINDS, i * THREAD_ENTRIES, first, here[i], block) for i, part in enumerate(parts)]
            deque(map_in_threads(work, lambda arguments: fill_grams(*arguments)), maxlen=0)
            yield block
        first = last
