"""Names of nodes, relations and classes, and the integer ids that stand for them."""

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

from rgcn.errors import MAX_NAMES_SHOWN, DataError, NothingToHoldOutError, UnknownNameError

if TYPE_CHECKING:
    from rgcn.graph.knowledge_graph import KnowledgeGraph

SPLITS = ("train", "valid", "test")
Ids = NDArray[np.int64]


class NodeKind(IntEnum):
    """The kind of a node in RDF. An IRI and a literal with the same text are two nodes."""

    IRI = 0
    LITERAL = 1
    BLANK = 2


class Vocabulary(Sequence[str]):
    """An immutable list of distinct names. The id of a name is its position.

    Args:
        names: The names. Ids follow their order, so that the same input always gives the same ids.
        kind: What the names are of, for error messages: "node", "relation" or "class".

    Attributes:
        stored_names: The arrays that hold the names, if they are stored as arrays.

    >>> v = Vocabulary(["Bern", "Oslo"], kind="node")
    >>> v["Oslo"], v[0], "Rome" in v, len(v)
    (1, 'Bern', False, 2)
    >>> v["Osl"]
    Traceback (most recent call last):
    rgcn.errors.UnknownNameError: unknown node 'Osl'. Did you mean 'Oslo'?
    """

    def __init__(self, names: Iterable[str] | StoredNames, kind: str = "name") -> None:
        self.stored_names, self.kind = names if isinstance(names, StoredNames) else None, kind
        self._names: Sequence[str] = tuple(names) if self.stored_names is None else self.stored_names

    @property
    def table(self) -> StoredNames:
        """The names as arrays, for writing them to files."""
        return self.stored_names or StoredNames.of(self._names)

    def encoded_blocks(self) -> Iterator[list[bytes]]:
        """Yield all names as UTF-8, some thousand at a time."""
        if self.stored_names is not None:
            yield from self.stored_names.encoded_blocks()
        elif self._names:
            yield [name.encode() for name in self._names]

    @cached_property
    def _ids(self) -> dict[str, int] | StoredNames:
        if self.stored_names is not None:
            return self.stored_names
        ids = {name: i for i, name in enumerate(self._names)}
        if len(ids) != len(self._names):
            raise DataError(f"a {self.kind} name occurs twice in the vocabulary")
        return ids

    def hashes(self, ids: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Hash the names of ids, uint64 [n]. Unlike ids, the hashes do not depend on the order of the input."""
        distinct, position = np.unique(ids, return_inverse=True)
        return hash_names(*pack_names(self.names_of(distinct), "surrogatepass"))[position]

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._ids

    def __getitem__(self, key):  # type: ignore[no-untyped-def]
        if not isinstance(key, str):
            return self._names[key]
        if (number := self._ids.get(key)) is None:
            raise UnknownNameError(self.kind, key, self._names)
        return number

    def id(self, name: str | int) -> int:
        """Return the id of a name. An id in range is returned as it is."""
        if isinstance(name, str):
            return int(self[name])
        if not 0 <= name < len(self):
            raise DataError(f"{self.kind} {name} is outside 0..{len(self) - 1}")
        return int(name)

    def ids(self, names: Iterable[str | int]) -> NDArray[np.int64]:
        """Return the ids of names, int64 [n]."""
        if isinstance(names, str):  # its letters would be looked up one by one
            raise DataError(f"a list of names is needed, not the single {self.kind} {names!r}")
        return np.fromiter((self.id(name) for name in names), dtype=np.int64)

    def names_of(self, ids: NDArray[np.int64]) -> list[str]:
        """Return the names of ids."""
        if self.stored_names is not None:
            return self.stored_names.names_of(ids)
        return [self._names[number] for number in ids.tolist()]

    def get(self, name: str) -> int | None:
        """Return the id of a name, or None if there is no such name."""
        return self._ids.get(name)

    @property
    def longest(self) -> int:
        """An upper bound on the number of characters of a name. For stored names it is a number of bytes."""
        if self.stored_names is not None:
            return int(np.diff(self.stored_names.ends, prepend=0).max(initial=0))
        return max(map(len, self._names), default=0)

    def take(self, ids: Iterable[int]) -> Vocabulary:
        """Return a vocabulary of some of the names, numbered in the order of `ids`."""
        return Vocabulary((self._names[i] for i in ids), kind=self.kind)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and (
            self._names is other._names or (len(self) == len(other) and all(map(str.__eq__, self, other)))
        )

    def __hash__(self) -> int:
        return hash((len(self), *self._names[:3]))  # the same for names in memory and in files

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} names, kind={self.kind!r})"


@dataclass(frozen=True, eq=False)
class NodeLabels:
    """The class and the split of each labeled node.

    Args:
        nodes: Node ids, int64 [num_labels], each at most once.
        classes: Class ids, int64 [num_labels]. All splits use the same ids.
        names: The names of the classes.
        splits: Indices into ("train", "valid", "test"), int8 [num_labels].
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
            raise DataError("labels: a node has two classes; only one class per node is supported")
        if not np.isin(self.classes, range(len(self.names))).all():
            raise DataError("labels: a class id has no name")
        if not np.isin(self.splits, range(len(SPLITS))).all():
            raise DataError(f"labels: a split is none of {', '.join(SPLITS)}")

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def num_classes(self) -> int:
        """The number of classes."""
        return len(self.names)

    def of(self, split: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return (nodes, classes) of one split, or of "all"."""
        if split == "all":
            return self.nodes, self.classes
        if split not in SPLITS:
            raise DataError(f"unknown split {split!r}; there are {', '.join(SPLITS)} and all")
        chosen = self.splits == SPLITS.index(split)
        return self.nodes[chosen], self.classes[chosen]

    def counts(self) -> Mapping[str, int]:
        """Count the labeled nodes of each split that has any."""
        sizes = {split: int((self.splits == i).sum()) for i, split in enumerate(SPLITS)}
        return {split: size for split, size in sizes.items() if size}

    def hold_out(self, split: str, share: float, seed: int) -> NodeLabels:
        """Move a share of the training labels of each class to another split; every class keeps at least one.

        If the share rounds to no label in every class, one label of each of the largest classes is moved.

        Args:
            split: The split that receives the labels: "valid" or "test".
            share: The share of training labels, from 0 to 1.
            seed: The same seed gives the same labels.

        Raises:
            NothingToHoldOutError: No class has two training labels.

        >>> labels = NodeLabels(np.arange(6), np.array([0, 0, 0, 0, 1, 1]), Vocabulary("ab"), np.zeros(6))
        >>> labels.hold_out("test", 0.5, seed=0)
        NodeLabels(6 nodes, 2 classes; train 3, test 3)
        """
        rng, splits = np.random.default_rng(seed), self.splits.copy()
        train = np.flatnonzero(splits == SPLITS.index("train"))
        members = [rng.permutation(train[self.classes[train] == label]) for label in np.unique(self.classes[train])]
        counts = [min(round(share * len(rows)), len(rows) - 1) for rows in members]
        if share and not any(counts):
            members = sorted((rows for rows in members if len(rows) > 1), key=len, reverse=True)
            members = members[: max(1, round(share * len(train)))]
            counts = [1] * len(members)
        if share and not counts:
            raise NothingToHoldOutError(
                f"no label can be held out: each of {len(train):,} is the only one of its class"
            )
        for rows, count in zip(members, counts, strict=True):
            splits[rows[:count]] = SPLITS.index(split)
        return NodeLabels(self.nodes, self.classes, self.names, splits)

    def remap(self, new_ids: NDArray[np.int64]) -> NodeLabels:
        """Renumber the nodes: `new_ids` [num_nodes] has -1 for nodes that were removed."""
        kept = new_ids[self.nodes] >= 0
        return NodeLabels(new_ids[self.nodes[kept]], self.classes[kept], self.names, self.splits[kept])

    def __repr__(self) -> str:
        parts = ", ".join(f"{split} {count}" for split, count in self.counts().items())
        return f"NodeLabels({len(self)} nodes, {self.num_classes} classes; {parts})"


# -- names as arrays -------------------------------------------------------------------------------------------

# For each word of eight bytes: exclusive or, multiply, fold the upper half onto the lower. `name_loops` computes the
# same hash with numba, and stored graphs contain it: change all of them together, and the version of the format.
SEED, FACTOR, LAST_FACTOR = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93, 0xC2B2AE3D27D4EB4F
_MASK = (1 << 64) - 1
MAX_LOAD = 0.625  # the share of slots that may be used before the table doubles
MAX_PROBES = 4096  # ordinary names need a few hundred at most; names that are made to collide need more
MAX_NAMES = (1 << 31) - 1
NAMES_PER_BLOCK = 1 << 14


def pack_names(names: Iterable[str], errors: str = "strict") -> tuple[NDArray[np.uint8], Ids, Ids]:
    """Concatenate names: (UTF-8 text, start of each name, number of bytes of each name)."""
    encoded = [name.encode(errors=errors) for name in names]
    lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
    return np.frombuffer(b"".join(encoded), dtype=np.uint8), np.cumsum(lengths) - lengths, lengths


def name_hash(text: bytes) -> int:
    """Return the 32-bit hash of a name that determines its slot."""
    state = (SEED ^ (len(text) * LAST_FACTOR)) & _MASK
    for start in range(0, len(text), 8):
        state = ((state ^ int.from_bytes(text[start : start + 8], "little")) * FACTOR) & _MASK
        state ^= state >> 32
    return ((state * LAST_FACTOR) & _MASK) >> 32


def name_hashes(text: NDArray[np.uint8], starts: NDArray[Any], lengths: NDArray[Any]) -> NDArray[np.uint32]:
    """Return `name_hash` of many names."""
    return np.asarray(hash_names(text, starts, lengths) >> np.uint64(32), dtype=np.uint32)


def hash_names(text: NDArray[np.uint8], starts: NDArray[Any], lengths: NDArray[Any]) -> NDArray[np.uint64]:
    """Return 64-bit hashes of many names, uint64 [n]; `name_hash` is the upper half."""
    factor, last_factor, half = np.uint64(FACTOR), np.uint64(LAST_FACTOR), np.uint64(32)
    lengths = np.asarray(lengths, dtype=np.int64)
    state = np.uint64(SEED) ^ (lengths.astype(np.uint64) * last_factor)
    order = np.argsort(-lengths, kind="stable")  # longest first: the names that have another word are a prefix
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
    """Distinct names as arrays, which may be mapped from a file. The id of a name is its position.

    Args:
        text: UTF-8 of all names, concatenated, uint8.
        ends: The end of each name in the text, int64 [num_names].
        slots: A hash table of ids, int32, with -1 in empty slots. Its size is a power of two.

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
        """Make the table of distinct names, numbered in this order."""
        try:
            text, starts, lengths = pack_names(names)
        except UnicodeEncodeError as error:
            raise DataError(f"a name contains half of a surrogate pair, which UTF-8 cannot encode ({error})") from None
        return cls(text, starts + lengths, _hash_table(name_hashes(text, starts, lengths)))

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
        """Yield all names as UTF-8, some thousand at a time: reading single numbers of an array is slow."""
        start = 0
        for first in range(0, len(self), NAMES_PER_BLOCK):
            block = self.ends[first : first + NAMES_PER_BLOCK]
            self._check_spans(np.concatenate([[start], block[:-1]]), block)
            ends = block.tolist()
            text, offset = self.text[start : ends[-1]].tobytes(), start
            yield [text[begin - offset : end - offset] for begin, end in pairwise([start, *ends])]
            start = ends[-1]

    def names_of(self, ids: NDArray[np.int64]) -> list[str]:
        """Return the names of ids in range; ten times faster than one by one."""
        ends = self.ends[ids]
        starts = np.where(ids > 0, self.ends[ids - 1], 0)
        self._check_spans(starts, ends)
        text = memoryview(self.text)  # type: ignore[arg-type]
        spans = zip(starts.tolist(), ends.tolist(), strict=True)
        return [str(text[begin:end], "utf-8", "replace") for begin, end in spans]

    def _check_spans(self, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        """Raise unless these spans are inside the text. They are checked on use, because opening reads nothing."""
        if len(ends) and (starts.min() < 0 or ends.max() > len(self.text) or (starts > ends).any()):
            raise DataError("a table of names is damaged: some names are outside its text")

    def encoded(self, number: int) -> bytes:
        """Return the UTF-8 of the name with this id."""
        start, end = int(self.ends[number - 1]) if number else 0, int(self.ends[number])
        if not 0 <= start <= end <= len(self.text):
            raise DataError(f"a table of names is damaged: name {number} is outside its text")
        return self.text[start:end].tobytes()

    def get(self, name: str) -> int | None:
        """Return the id of a name, or None if there is no such name."""
        try:
            text = name.encode()
        except UnicodeEncodeError:
            return None
        slot = name_hash(text) >> self._shift
        for _ in range(MAX_PROBES + 1):
            number = int(self.slots[slot])
            if number < 0:
                return None
            if number >= len(self):
                break
            if self.encoded(number) == text:
                return number
            slot = (slot + 1) % len(self.slots)
        raise DataError("a table of names is damaged: its slots contain ids that do not exist")

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None


def _hash_table(hashes: NDArray[np.uint32]) -> NDArray[np.int32]:
    """Insert all names at once: those whose slot is taken try the next slot in the next round."""
    slots = np.full(1 << max(3, int(len(hashes) / MAX_LOAD).bit_length()), -1, dtype=np.int32)
    shift, last = np.uint32(33 - len(slots).bit_length()), len(slots) - 1
    waiting, at = np.arange(len(hashes), dtype=np.int32), (hashes >> shift).astype(np.int64)
    for _ in range(MAX_PROBES + 1):
        if not len(waiting):
            return slots
        free = slots[at] < 0
        slots[at[free]] = waiting[free]  # of several names for one slot, the last one written stays
        lost = slots[at] != waiting
        waiting, at = waiting[lost], (at[lost] + 1) & last
    raise collision_error()


def collision_error() -> DataError:
    """Return the error for names that were made to have the same hash."""
    return DataError("thousands of names have the same hash: they look made to slow reading down")


# -- two graphs with the same names -----------------------------------------------------------------------------


def plain_name(name: str, kind: str) -> str:
    """Return the name behind an IRI that `kg.to_rdf` made of it; any other name as it is."""
    from rgcn.graph.rdf_terms import BASE  # imports the RDF library, which plain names do not need

    prefix = f"{BASE}{kind}:"
    return unquote(name[len(prefix) :]) if name.startswith(prefix) else name


def match_relations(known: Vocabulary, new: Vocabulary, used: NDArray[np.int64], source: str) -> NDArray[np.int64]:
    """Return the known id of each new relation that is used, and -1 for the others, int64 [num_new].

    Args:
        known: The relations of a model.
        new: The relations of another graph.
        used: The ids of the new relations to find.
        source: Where the new relations are from, for error messages.

    Raises:
        DataError: A used relation is unknown.
    """
    names = new.names_of(used)
    found = [known.get(name if name in known else plain_name(name, "relation")) for name in names]
    if unknown := [name for name, number in zip(names, found, strict=True) if number is None]:
        first = UnknownNameError("relation", unknown[0], known)
        more = f" ({len(unknown)} relations are unknown: {quote_names(unknown)})" if len(unknown) > 1 else ""
        raise DataError(
            f"{source}: {first}{more} A model has weights for the relations it was trained with: remove the other "
            "triples, or train again with them"
        )
    ids = np.full(len(new), -1, dtype=np.int64)
    ids[used] = np.array(found, dtype=np.int64)
    return ids


def renumber_relations(graph: KnowledgeGraph, known: Vocabulary) -> KnowledgeGraph:
    """Replace the relations of a graph by those of `known`, matched by name.

    Raises:
        DataError: The graph has a triple of another relation.

    >>> from rgcn.graph import KnowledgeGraph
    >>> graph = KnowledgeGraph.from_triples([("a", "likes", "b"), ("b", "knows", "c")])
    >>> renumber_relations(graph, Vocabulary(["knows", "likes", "sees"])).triples.tolist()
    [[0, 1, 1], [1, 0, 2]]
    """
    ids = match_relations(known, graph.relations, np.unique(graph.triples[:, 1]), graph.name or "the graph")
    triples = graph.triples.copy()
    triples[:, 1] = ids[triples[:, 1]]
    return replace(graph, triples=triples, relations=known)


def quote_names(names: Sequence[str]) -> str:
    """List the first names in quotes, and say how many more there are."""
    more = f" and {len(names) - MAX_NAMES_SHOWN:,} more" if len(names) > MAX_NAMES_SHOWN else ""
    return ", ".join(map(repr, names[:MAX_NAMES_SHOWN])) + more
