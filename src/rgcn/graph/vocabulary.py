"""Names and the integers that stand for them: of nodes, of relations, and of the classes that some nodes have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from rgcn.errors import DataError, NothingToHoldOutError, UnknownNameError

if TYPE_CHECKING:
    from rgcn.graph.knowledge_graph import KnowledgeGraph

SPLITS = ("train", "valid", "test")


class NodeKind(IntEnum):
    """What a node is in RDF. An IRI and a literal with the same text are two nodes."""

    IRI = 0
    LITERAL = 1
    BLANK = 2


class Vocabulary(Sequence[str]):
    """An immutable list of distinct names; a name's id is its position.

    Ids follow the order given, never a hash, so the same input always gives the same ids.

    >>> v = Vocabulary(["Bern", "Oslo"], kind="node")
    >>> v["Oslo"], v[0], "Rome" in v, len(v)
    (1, 'Bern', False, 2)
    >>> v["Osl"]
    Traceback (most recent call last):
    rgcn.errors.UnknownNameError: unknown node 'Osl'. Did you mean 'Oslo'?
    """

    def __init__(self, names: Iterable[str] | StoredNames, kind: str = "name") -> None:
        self._names: Sequence[str] = names if isinstance(names, StoredNames) else tuple(names)
        self.kind = kind

    @property
    def table(self) -> StoredNames:
        """The names as arrays, for writing them to files."""
        return StoredNames.of(self._names) if self.stored is None else self.stored

    @property
    def stored(self) -> StoredNames | None:
        """The names as arrays, where they lie so."""
        return self._names if isinstance(self._names, StoredNames) else None

    def encoded_blocks(self) -> Iterator[list[bytes]]:
        """UTF-8 of all names, some thousand at a time."""
        if isinstance(self._names, StoredNames):
            yield from self._names.encoded_blocks()
        elif self._names:
            yield [name.encode() for name in self._names]

    @cached_property
    def _ids(self) -> dict[str, int] | StoredNames:
        if isinstance(self._names, StoredNames):
            return self._names  # looked up where they lie
        ids = {name: i for i, name in enumerate(self._names)}
        if len(ids) != len(self._names):
            raise DataError(f"a {self.kind} name stands twice in the vocabulary")
        return ids

    def keys(self, ids: NDArray[np.int64]) -> NDArray[np.uint64]:
        """uint64: stable hashes of the names of many ids. Unlike ids, they do not depend on the order of the input."""
        distinct, place = np.unique(ids, return_inverse=True)
        return name_keys(*packed(self.many(distinct), "surrogatepass"))[place]

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._ids

    def __getitem__(self, key):  # type: ignore[no-untyped-def]
        """The id of a name, the name of an id, or the names of a slice."""
        if isinstance(key, str):
            found = self._ids.get(key)
            if found is None:
                raise UnknownNameError(self.kind, key, self._names)
            return found
        return self._names[key]

    def id(self, name: str | int) -> int:
        """The id of a name; an id in range is returned as it is."""
        if isinstance(name, str):
            return int(self[name])
        if not 0 <= name < len(self):
            raise DataError(f"{self.kind} {name} is outside 0..{len(self) - 1}")
        return int(name)

    def ids(self, names: Iterable[str | int]) -> NDArray[np.int64]:
        if isinstance(names, str):  # its letters would be looked up one by one
            raise DataError(f"a list of names is needed, not the single {self.kind} {names!r}")
        return np.fromiter((self.id(name) for name in names), dtype=np.int64)

    def many(self, ids: NDArray[np.int64]) -> list[str]:
        """The names of many ids."""
        if isinstance(self._names, StoredNames):
            return self._names.many(ids)
        return [self._names[number] for number in ids.tolist()]

    def get(self, name: str) -> int | None:
        return self._ids.get(name)

    @property
    def longest(self) -> int:
        """How many characters the longest name has, at most: of names as arrays their bytes are counted."""
        if isinstance(self._names, StoredNames):
            return int(np.diff(self._names.ends, prepend=0).max(initial=0))
        return max(map(len, self._names), default=0)

    def take(self, ids: Iterable[int]) -> Vocabulary:
        """A smaller vocabulary of the given ids, renumbered in that order."""
        return Vocabulary((self._names[i] for i in ids), kind=self.kind)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and (
            self._names is other._names or (len(self) == len(other) and all(map(str.__eq__, self, other)))
        )

    def __hash__(self) -> int:
        return hash((len(self), *self._names[:3]))  # equal whether they lie in memory or in files

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} names, kind={self.kind!r})"


@dataclass(frozen=True, eq=False)
class NodeLabels:
    """Class of each labelled node, and its split.

    nodes   int64 [L]  node ids, each at most once
    classes int64 [L]  class ids
    names              the class names; one numbering for all splits, so that class 0 is the same class everywhere
    splits  int8 [L]   index into ("train", "valid", "test")
    """

    nodes: NDArray[np.int64]
    classes: NDArray[np.int64]
    names: Vocabulary
    splits: NDArray[np.int8]

    def __post_init__(self) -> None:
        for field, dtype in (("nodes", np.int64), ("classes", np.int64), ("splits", np.int8)):
            array = np.array(getattr(self, field), dtype=dtype)
            array.setflags(write=False)
            object.__setattr__(self, field, array)
        if not len(self.nodes) == len(self.classes) == len(self.splits):
            raise DataError("labels: nodes, classes and splits differ in length")
        if len(np.unique(self.nodes)) != len(self.nodes):
            raise DataError("labels: a node has two classes; this library gives each node one class")
        if len(self.classes) and not (self.classes.min() >= 0 and self.classes.max() < len(self.names)):
            raise DataError("labels: a class id has no name")
        if len(self.splits) and not (self.splits.min() >= 0 and self.splits.max() < len(SPLITS)):
            raise DataError(f"labels: a split is none of {', '.join(SPLITS)}")

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def num_classes(self) -> int:
        return len(self.names)

    def of(self, split: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(nodes, classes) of one split, or of "all"."""
        if split == "all":
            return self.nodes, self.classes
        if split not in SPLITS:
            raise DataError(f"unknown split {split!r}; there are {', '.join(SPLITS)} and all")
        chosen = self.splits == SPLITS.index(split)
        return self.nodes[chosen], self.classes[chosen]

    def counts(self) -> Mapping[str, int]:
        """Number of labelled nodes in each split that has any."""
        sizes = {split: int((self.splits == i).sum()) for i, split in enumerate(SPLITS)}
        return {split: size for split, size in sizes.items() if size}

    def holding_out(self, split: str, share: float, seed: int) -> NodeLabels:
        """The same with a share of the training labels held out, class by class; a class keeps one to learn from.

        Where the share of no class makes one, the largest classes give one each. DataError where none has two.

        >>> labels = NodeLabels(np.arange(6), np.array([0, 0, 0, 0, 1, 1]), Vocabulary("ab"), np.zeros(6))
        >>> labels.holding_out("test", 0.5, seed=0)
        NodeLabels(6 nodes, 2 classes; train 3, test 3)
        """
        rng, splits = np.random.default_rng(seed), self.splits.copy()
        train = np.flatnonzero(splits == SPLITS.index("train"))
        members = [rng.permutation(train[self.classes[train] == label]) for label in np.unique(self.classes[train])]
        numbers = [min(round(share * len(of)), len(of) - 1) for of in members]
        if share and not any(numbers):
            members = sorted((of for of in members if len(of) > 1), key=len, reverse=True)
            members = members[: max(1, round(share * len(train)))]
            numbers = [1] * len(members)
        if share and not any(numbers):
            raise NothingToHoldOutError(
                f"no label can be held out: each of {len(train):,} is the only one of its class"
            )
        for of, number in zip(members, numbers, strict=True):
            splits[of[:number]] = SPLITS.index(split)
        return NodeLabels(self.nodes, self.classes, self.names, splits)

    def remapped(self, new_id: NDArray[np.int64]) -> NodeLabels:
        """The same labels after renumbering nodes; `new_id` is -1 for nodes that are gone."""
        kept = new_id[self.nodes] >= 0
        return NodeLabels(new_id[self.nodes[kept]], self.classes[kept], self.names, self.splits[kept])

    def __repr__(self) -> str:
        parts = ", ".join(f"{split} {count}" for split, count in self.counts().items())
        return f"NodeLabels({len(self)} nodes, {self.num_classes} classes; {parts})"


# -- many names as arrays ----------------------------------------------------------------------------------

# A word of eight bytes is taken in by an exclusive or and a multiplication, whose upper half is then folded onto the
# lower. numba computes the same (`name_loops`): whoever changes one changes the other, and the stored format.
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


def packed(
    names: Iterable[str], errors: str = "strict"
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """UTF-8 of names back to back, where each starts, and how long it is."""
    encoded = [name.encode(errors=errors) for name in names]
    lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
    return np.frombuffer(b"".join(encoded), dtype=np.uint8), np.cumsum(lengths) - lengths, lengths


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
            text, starts, lengths = packed(names)
        except UnicodeEncodeError as error:
            raise DataError(f"a name holds half of a surrogate pair, which UTF-8 cannot write ({error})") from None
        return cls(text, starts + lengths, placed(name_hashes(text, starts, lengths)))

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


# -- two graphs that name the same things -------------------------------------------------------------------

MOST_NAMED = 5


def plain_name(name: str, kind: str) -> str:
    """The plain name behind an IRI of our own making (`kg.to_rdf`), so that what was written can be read back."""
    from rgcn.graph.rdf_terms import BASE  # brings a reader of RDF, which plain names have no need of

    prefix = f"{BASE}{kind}:"
    return unquote(name[len(prefix) :]) if name.startswith(prefix) else name


def relation_ids(known: Vocabulary, new: Vocabulary, used: NDArray[np.int64], source: str) -> NDArray[np.int64]:
    """The known id of each relation that is used; -1 for the others. `source`: where they are from, for words."""
    found, unknown = np.full(len(new), -1, dtype=np.int64), []
    for number in used.tolist():
        name = new[number] if new[number] in known else plain_name(new[number], "relation")
        if name in known:
            found[number] = known[name]
        else:
            unknown.append(new[number])
    if unknown:
        first = UnknownNameError("relation", unknown[0], known)
        more = f" ({len(unknown)} relations are unknown: {some_names(unknown)})" if len(unknown) > 1 else ""
        raise DataError(
            f"{source}: {first}{more} A model has weights for the relations it was trained with: take the other "
            "triples out, or train anew with them"
        )
    return found


def with_relations(graph: KnowledgeGraph, known: Vocabulary) -> KnowledgeGraph:
    """The same graph with its relations numbered as they are known; DataError where it uses others.

    >>> from rgcn.graph import KnowledgeGraph
    >>> graph = KnowledgeGraph.from_triples([("a", "likes", "b"), ("b", "knows", "c")])
    >>> with_relations(graph, Vocabulary(["knows", "likes", "sees"])).triples.tolist()
    [[0, 1, 1], [1, 0, 2]]
    """
    number = relation_ids(known, graph.relations, np.unique(graph.triples[:, 1]), graph.name or "the graph")
    triples = graph.triples.copy()
    triples[:, 1] = number[triples[:, 1]]
    return replace(graph, triples=triples, relations=known)


def some_names(names: list[str] | tuple[str, ...]) -> str:
    """The first of them."""
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return ", ".join(map(repr, names[:MOST_NAMED])) + more
