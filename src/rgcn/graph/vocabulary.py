"""Names and the integers that stand for them: of nodes, of relations, and of the classes that some nodes have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rgcn.errors import DataError, NothingToHoldOutError, UnknownNameError
from rgcn.graph.stored_names import StoredNames, name_keys

SPLITS = ("train", "valid", "test")
MOST_KEYS = 1 << 20  # names whose hashes are all kept once one is asked for


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

    @cached_property
    def _keys(self) -> NDArray[np.uint64]:
        return self._hashed(None)

    def keys(self, ids: NDArray[np.int64]) -> NDArray[np.uint64]:
        """uint64: stable hashes of the names of many ids. Unlike ids, they do not depend on the order of the input."""
        if len(self) <= MOST_KEYS:
            return self._keys[ids]
        distinct, place = np.unique(ids, return_inverse=True)
        return self._hashed(distinct)[place]

    def _hashed(self, ids: NDArray[np.int64] | None) -> NDArray[np.uint64]:
        """Of these ids, or of all."""
        stored = self.stored
        if stored is not None:
            ends = np.asarray(stored.ends if ids is None else stored.ends[ids])
            lengths = np.diff(ends, prepend=0) if ids is None else stored.lengths(ids)
            return name_keys(stored.text, ends - lengths, lengths)
        names = self._names if ids is None else self.many(ids)
        encoded = [name.encode(errors="surrogatepass") for name in names]
        lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
        return name_keys(np.frombuffer(b"".join(encoded), dtype=np.uint8), np.cumsum(lengths) - lengths, lengths)

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
