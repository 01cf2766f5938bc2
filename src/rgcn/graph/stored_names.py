"""Many names as three arrays: their text back to back, where each ends, and a hash table that finds one by its text.

The arrays may lie in memory or be mapped from files; a name is read where it lies, and nothing is loaded for another's
sake. An id is a name's position and never depends on the hash, which only says where in the table an id is kept:
the slot of a name is its hash's first bits, or the next free one after it (open addressing).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rgcn.errors import DataError

# A word of eight bytes is taken in by an exclusive or and a multiplication, whose upper half is then folded onto the
# lower. numba computes the same (`hash_loops`): whoever changes one changes the other, and the stored format.
SEED, FACTOR, LAST_FACTOR = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93, 0xC2B2AE3D27D4EB4F
_MASK = (1 << 64) - 1
FULLEST = 0.625  # share of slots that are taken before the table doubles
# Names that nobody chose for it lie a few hundred slots from where they belong at most, in a table of any size.
FURTHEST = 4096
MOST_NAMES = (1 << 31) - 1
NAMES_AT_ONCE = 1 << 14


def name_hash(text: bytes) -> int:
    """32 bits that tell where a name is looked for."""
    state = (SEED ^ (len(text) * LAST_FACTOR)) & _MASK
    for start in range(0, len(text), 8):
        state = ((state ^ int.from_bytes(text[start : start + 8], "little")) * FACTOR) & _MASK
        state ^= state >> 32
    return ((state * LAST_FACTOR) & _MASK) >> 32


def name_hashes(text: NDArray[np.uint8], starts: NDArray[Any], lengths: NDArray[Any]) -> NDArray[np.uint32]:
    """`name_hash` of many names at once."""
    return np.asarray(name_keys(text, starts, lengths) >> np.uint64(32), dtype=np.uint32)


def name_keys(text: NDArray[np.uint8], starts: NDArray[Any], lengths: NDArray[Any]) -> NDArray[np.uint64]:
    """The 64 bits of which `name_hash` is the upper half: word by word, of those names that are so long."""
    factor, last_factor, half = np.uint64(FACTOR), np.uint64(LAST_FACTOR), np.uint64(32)
    lengths = np.asarray(lengths, dtype=np.int64)
    state = np.uint64(SEED) ^ (lengths.astype(np.uint64) * last_factor)
    order = np.argsort(-lengths, kind="stable")  # those with another word are then always the first
    fewer_words = -((lengths[order] + 7) // 8)
    eight = np.arange(8)
    for word in range(int(-fewer_words[0]) if len(order) else 0):
        some = order[: np.searchsorted(fewer_words, -word, side="left")]
        at = starts[some] + 8 * word
        read = text[np.minimum(at[:, None] + eight, len(text) - 1)]
        read[eight >= (lengths[some] - 8 * word)[:, None]] = 0
        mixed = (state[some] ^ read.view("<u8")[:, 0]) * factor
        state[some] = mixed ^ (mixed >> half)
    return np.asarray(state * last_factor, dtype=np.uint64)


class StoredNames(Sequence[str]):
    """Distinct names, read where they lie; a name's id is its position.

    text   uint8      UTF-8 of all names, back to back
    ends   int64 [N]  where in it each ends
    slots  int32      ids at the places their hashes tell, -1 where there is none; as many as a power of two

    >>> names = StoredNames.of(["Bern", "Oslo"])
    >>> names[1], names.get("Oslo"), names.get("Rome"), len(names)
    ('Oslo', 1, None, 2)
    """

    def __init__(self, text: NDArray[np.uint8], ends: NDArray[np.int64], slots: NDArray[np.int32]) -> None:
        size = len(slots)
        if size < 2 or size & (size - 1) or len(ends) >= size or (len(ends) and int(ends[-1]) != len(text)):
            raise DataError("a table of names is damaged: its parts do not fit each other")
        self.text, self.ends, self.slots = text, ends, slots
        self._shift = 33 - size.bit_length()

    @classmethod
    def of(cls, names: Iterable[str]) -> StoredNames:
        """The table of distinct names, numbered in the order given."""
        try:
            encoded = [name.encode() for name in names]
        except UnicodeEncodeError as error:
            raise DataError(f"a name holds half of a surrogate pair, which UTF-8 cannot write ({error})") from None
        lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
        text, ends = np.frombuffer(b"".join(encoded), dtype=np.uint8), np.cumsum(lengths)
        return cls(text, ends, placed(name_hashes(text, ends - lengths, lengths)))

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return tuple(self.encoded(i).decode(errors="replace") for i in range(*key.indices(len(self))))
        number = int(key)
        if not -len(self) <= number < len(self):
            raise IndexError(f"name {number} is outside 0..{len(self) - 1}")
        return self.encoded(number % len(self)).decode(errors="replace")

    def __iter__(self) -> Iterator[str]:
        return (name.decode(errors="replace") for block in self.encoded_blocks() for name in block)

    def encoded_blocks(self) -> Iterator[list[bytes]]:
        """UTF-8 of all names, some thousand at a time: single numbers of an array are slow."""
        start = 0
        for first in range(0, len(self), NAMES_AT_ONCE):
            there = self.ends[first : first + NAMES_AT_ONCE]
            self._check_places(np.concatenate([[start], there[:-1]]), there)
            ends = there.tolist()
            text, offset = self.text[start : ends[-1]].tobytes(), start
            yield [text[begin - offset : end - offset] for begin, end in pairwise([start, *ends])]
            start = ends[-1]

    def many(self, ids: NDArray[np.int64]) -> list[str]:
        """The names of many ids, in range; ten times faster than one by one."""
        ends = self.ends[ids]
        starts = ends - self.lengths(ids)
        self._check_places(starts, ends)
        text = memoryview(self.text)  # type: ignore[arg-type]
        spans = zip(starts.tolist(), ends.tolist(), strict=True)
        return [str(text[begin:end], "utf-8", "replace") for begin, end in spans]

    def _check_places(self, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        """Raise where names do not lie in the text: arrays of a file are not read before they are needed."""
        if len(ends) and (starts.min() < 0 or ends.max() > len(self.text) or (starts > ends).any()):
            raise DataError("a table of names is damaged: some of them have no place in it")

    def lengths(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """int64: bytes of the names of many ids."""
        return np.asarray(self.ends[ids] - np.where(ids > 0, self.ends[ids - 1], 0))

    def encoded(self, number: int) -> bytes:
        """UTF-8 of the name with this id."""
        start, end = int(self.ends[number - 1]) if number else 0, int(self.ends[number])
        if not 0 <= start <= end <= len(self.text):
            raise DataError(f"a table of names is damaged: name {number} has no place in it")
        return self.text[start:end].tobytes()

    def get(self, name: str) -> int | None:
        """The id of a name; None where there is none such."""
        try:
            text = name.encode()
        except UnicodeEncodeError:
            return None
        last = len(self.slots) - 1
        at = name_hash(text) >> self._shift
        for _ in range(FURTHEST + 1):
            found = int(self.slots[at])
            if found < 0:
                return None
            if found >= len(self):
                break
            if self.encoded(found) == text:
                return found
            at = (at + 1) & last
        raise DataError("a table of names is damaged: its slots lead nowhere")

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None


def placed(hashes: NDArray[np.uint32]) -> NDArray[np.int32]:
    """Slots for names of these hashes: all try their places at once, and whoever finds it taken tries the next."""
    slots = np.full(1 << max(3, int(len(hashes) / FULLEST).bit_length()), -1, dtype=np.int32)
    shift, last = np.uint32(33 - len(slots).bit_length()), len(slots) - 1
    waiting, at = np.arange(len(hashes), dtype=np.int32), (hashes >> shift).astype(np.int64)
    tries = 0
    while len(waiting):
        free = slots[at] < 0
        slots[at[free]] = waiting[free]  # of several, the last one written stays
        lost = slots[at] != waiting
        waiting, at = waiting[lost], (at[lost] + 1) & last
        tries += 1
        if tries > FURTHEST:
            raise colliding()
    return slots


def colliding() -> DataError:
    return DataError("thousands of names lead to the same place in the table: they look made to slow reading down")
