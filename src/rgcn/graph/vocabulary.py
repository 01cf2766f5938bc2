"""Names and the integers that stand for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rgcn.errors import DataError, UnknownNameError


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

    def __init__(self, names: Iterable[str], kind: str = "name") -> None:
        self._names = tuple(names)
        self.kind = kind

    @cached_property
    def _ids(self) -> dict[str, int]:
        ids = {name: i for i, name in enumerate(self._names)}
        if len(ids) != len(self._names):
            raise DataError(f"a {self.kind} name stands twice in the vocabulary")
        return ids

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._ids

    def __getitem__(self, key):  # type: ignore[no-untyped-def]
        """The id of a name, the name of an id, or the names of a slice."""
        if isinstance(key, str):
            try:
                return self._ids[key]
            except KeyError:
                raise UnknownNameError(self.kind, key, self._names) from None
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

    def get(self, name: str) -> int | None:
        return self._ids.get(name)

    def take(self, ids: Iterable[int]) -> Vocabulary:
        """A smaller vocabulary of the given ids, renumbered in that order."""
        return Vocabulary((self._names[i] for i in ids), kind=self.kind)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self._names == other._names

    def __hash__(self) -> int:
        return hash(self._names)

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} names, kind={self.kind!r})"
