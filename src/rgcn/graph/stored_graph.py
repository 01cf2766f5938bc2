"""A graph whose triples stay in the file that they lie in."""

from __future__ import annotations

from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rgcn.errors import DataError
from rgcn.graph.knowledge_graph import ARRAYS_OF_NODES, ARRAYS_OF_TRIPLES, KnowledgeGraph


class StoredGraph(KnowledgeGraph):
    """A graph opened from a folder, as `data/graph_store` writes it.

    `triples` reads all triples, once somebody asks; `triples_at` reads some. Numbers in them are checked when they are
    read. A changed copy (`dataclasses.replace`), or one sent to another process, is a plain graph in memory, because
    the folder does not hold the copy.
    """

    _rows: NDArray[Any]  # int32 or int64 [T, 3]: the triples in their file, mapped where they are many
    _incidence: tuple[NDArray[np.int64], NDArray[np.int64]]
    search_folder: Path | None

    def __new__(cls, *given: Any, **named: Any) -> KnowledgeGraph:  # type: ignore[misc]
        return KnowledgeGraph(*given, **named)  # so that `dataclasses.replace` gives a plain graph

    def __reduce__(self) -> tuple[Any, ...]:
        return KnowledgeGraph, tuple(getattr(self, each.name) for each in fields(self))

    @classmethod
    def opened(
        cls,
        rows: NDArray[Any],
        incidence: tuple[NDArray[Any], NDArray[Any]],
        *,
        fingerprint: str | None = None,
        search_folder: Path | None = None,
        **others: Any,
    ) -> StoredGraph:
        """The graph of triples in a file and the index of them; others: the other fields of a `KnowledgeGraph`.

        fingerprint    None: computed when somebody asks
        search_folder  the folder, if it has an index of the names
        """
        graph: StoredGraph = object.__new__(cls)
        given = {"_rows": rows, "_incidence": incidence, "search_folder": search_folder, "metadata": {}, **others}
        if fingerprint is not None:
            given["fingerprint"] = fingerprint
        for name, value in given.items():
            object.__setattr__(graph, name, value)
        graph._own_arrays(*ARRAYS_OF_NODES, *ARRAYS_OF_TRIPLES)
        graph._check()
        if not isinstance(rows, np.memmap):
            _ = graph.triples  # so few that they are in memory: checked at once
        return graph

    @cached_property
    def triples(self) -> NDArray[np.int64]:
        """int64 [T, 3]: read and checked when somebody asks for them, then kept."""
        wide = self._named_rows(self._rows, 0)
        wide.setflags(write=False)
        return wide

    @property
    def stored(self) -> bool:
        return "triples" not in vars(self)

    def triples_at(self, places: NDArray[np.int64] | slice) -> NDArray[np.int64]:
        if not self.stored:
            return super().triples_at(places)
        try:
            return self._named_rows(self._rows[places], None)
        except IndexError as error:
            raise DataError(f"the stored graph is damaged: it has no such triple ({error})") from None

    def degrees(self, split: str = "all") -> NDArray[np.int64]:
        return self.num_touching(slice(None)) if split == "all" else super().degrees(split)
