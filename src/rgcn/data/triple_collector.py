"""How names become integers: triples of names are taken block by block, numbered, and kept as rows of ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, BinaryIO

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rgcn.data.attributes import AttributeColumn, feature_matrix
from rgcn.data.line_scanning import FoundTriples, Spans
from rgcn.data.triple_rows import distinct
from rgcn.errors import DataError
from rgcn.graph import SPLITS, KnowledgeGraph, Vocabulary
from rgcn.graph.knowledge_graph import ARRAYS_OF_TRIPLES
from rgcn.graph.vocabulary import FULLEST, MOST_NAMES, StoredNames, colliding

MOST_PREFIXES = 1000  # of a file: more are no help to anybody


class NamesInDictionary:
    """Names and their ids as Python keeps them: there at once, for as many as a small graph has."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def number(self, names: list[str]) -> NDArray[np.int32]:
        """Ids of the names; new ones get the next."""
        ids = self._ids
        return np.fromiter((ids.setdefault(name, len(ids)) for name in names), dtype=np.int32, count=len(names))

    def vocabulary(self, kind: str) -> Vocabulary:
        return Vocabulary(self._ids, kind=kind)


class NamesInTable:
    """Names and their ids as arrays, numbered by compiled loops: 20 bytes or so beside its text for each name."""

    def __init__(self) -> None:
        self._text, self._bounds = np.empty(1 << 20, dtype=np.uint8), np.zeros(1 << 16, dtype=np.int64)
        self._slots, self._count = np.zeros(1 << 16, dtype=np.uint64), 0

    def number(self, names: list[str]) -> NDArray[np.int32]:
        """Ids of the names; new ones get the next."""
        return self.number_spans(*Spans.of(names))

    def number_spans(self, text: NDArray[np.uint8], spans: Spans) -> NDArray[np.int32]:
        """The same for names in a text."""
        from rgcn.data import reading_loops

        most = self._count + len(spans.starts)
        self._text = _with_room(self._text, int(self._bounds[self._count]) + int(spans.lengths.sum()))
        self._bounds = _with_room(self._bounds, most + 1)
        while most > FULLEST * len(self._slots):
            wider = np.zeros(2 * len(self._slots), dtype=np.uint64)
            if not reading_loops.spread(self._slots, wider):
                raise colliding()
            self._slots = wider
        ids = np.empty(len(spans.starts), dtype=np.int32)
        count, _ = reading_loops.number(self._text, self._bounds, self._count, self._slots, text, *spans, ids)
        if count < 0:
            raise colliding()
        if count >= MOST_NAMES:
            raise DataError(f"more than {MOST_NAMES:,} names: read the files in parts")
        self._count = count
        return ids

    def vocabulary(self, kind: str) -> Vocabulary:
        """The names as they lie; no more can be numbered."""
        ends = self._bounds[1 : self._count + 1]
        slots = np.empty(len(self._slots), dtype=np.int32)
        for first in range(0, len(slots), 1 << 20):  # a slot is its name's hash, and the id and one
            slots[first : first + (1 << 20)] = self._slots[first : first + (1 << 20)].astype(np.int32) - 1
        self._slots = self._slots[:0]
        return Vocabulary(StoredNames(self._text[: self._bounds[self._count]], ends, slots), kind=kind)


def _with_room(array: NDArray[Any], needed: int) -> NDArray[Any]:
    """The array, or a copy in a longer one; what is not written to yet takes no memory."""
    if needed <= len(array):
        return array
    longer = np.empty(max(needed, 2 * len(array)), dtype=array.dtype)
    longer[: len(array)] = array
    return longer


class TripleCollector:
    """Takes triples of names block by block, numbers them, and in the end gives a graph.

    Ids follow the first appearance, subject before object, and never a hash.

    >>> collector = TripleCollector()
    >>> collector.add(pl.Series(["b", "a"]), pl.Series(["r", "r"]), pl.Series(["c", "b"]))
    >>> graph, _ = collector.graph()
    >>> list(graph.nodes), graph.triples.tolist()
    (['b', 'c', 'a'], [[0, 0, 1], [2, 0, 0]])
    """

    # Python sees each distinct name once in a batch, so large batches are fast; they are bounded for memory's sake.
    BATCH = 250_000

    def __init__(self, large: bool = False, rows_file: BinaryIO | None = None) -> None:
        """large: worth compiled loops. rows_file: where rows of ids are kept, int32 [T, 3]; None: in memory."""
        self.large = large
        kind = NamesInTable if large else NamesInDictionary
        self._nodes, self._relations = kind(), kind()
        self._rows_file = rows_file
        self._rows = [np.empty((0, 3), dtype=np.int32)]
        self._splits = [np.empty(0, dtype=np.int8)]
        self._weights: list[NDArray[np.float32] | None] = [None]
        self._times: list[NDArray[np.float64]] = []
        self._waiting: list[pl.DataFrame] = []
        self._name_of: Callable[[str], str] | None = None
        self.count = 0
        self.has_splits = False
        self.prefixes: dict[str, list[str]] = {}
        self.attributes: list[AttributeColumn] = []

    def add(
        self,
        subjects: pl.Series,
        relations: pl.Series,
        objects: pl.Series,
        *,
        split: str | NDArray[np.int8] | None = None,
        weights: NDArray[np.float32] | None = None,
        times: NDArray[np.float64] | None = None,
        name_of: Callable[[str], str] | None = None,
    ) -> None:
        """Add T triples, each column a string series of length T; `name_of` turns what the file says into a name.

        split  of all of them, or of each, int8 [T]
        """
        if not len(subjects):
            return
        if name_of is not self._name_of or sum(map(len, self._waiting)) + len(subjects) > self.BATCH:
            self._number_waiting()
        self._name_of = name_of
        self._waiting.append(pl.DataFrame({"subject": subjects, "relation": relations, "object": objects}))
        self._note(len(subjects), split, weights)
        if times is not None:
            self._times.append(times)

    def add_found(self, found: FoundTriples, split: str | None) -> None:
        """Add triples that were found in a text."""
        self._number_waiting()
        assert isinstance(self._nodes, NamesInTable)
        assert isinstance(self._relations, NamesInTable)
        ends = self._nodes.number_spans(found.text, found.ends)
        self._keep(ends, self._relations.number_spans(found.text, found.relations))
        self._note(len(ends) // 2, split, None)

    def declare(self, prefixes: Mapping[str, str]) -> None:
        """What a file says its prefixes stand for."""
        for prefix, space in islice(prefixes.items(), MOST_PREFIXES):
            spaces = self.prefixes.setdefault(prefix, [])
            if space not in spaces:
                spaces.append(space)

    def _note(self, number: int, split: str | NDArray[np.int8] | None, weights: NDArray[np.float32] | None) -> None:
        self.has_splits |= split is not None
        if split is None or isinstance(split, str):
            split = np.full(number, SPLITS.index(split or "train"), dtype=np.int8)
        self._splits.append(split)
        self._weights.append(weights)
        self.count += number

    def _number_waiting(self) -> None:
        if not self._waiting:
            return
        batch = pl.concat(self._waiting)
        self._waiting = []
        in_file_order = np.arange(2 * len(batch)).reshape(2, -1).T.ravel()
        ends = pl.concat([batch["subject"].rename("name"), batch["object"].rename("name")]).gather(in_file_order)
        self._keep(self._numbered(ends, self._nodes), self._numbered(batch["relation"], self._relations))

    def _numbered(self, names: pl.Series, known: NamesInTable | NamesInDictionary) -> NDArray[np.int32]:
        """Ids of the names, int32 [len(names)]; Python sees each distinct name once only."""
        positions = names.rename("name").to_frame().with_row_index("position")
        first = positions.select(pl.col("position").min().over("name")).to_series().to_numpy()
        is_first = first == np.arange(len(names))
        distinct = names.filter(pl.Series(is_first)).to_list()
        if self._name_of is not None:
            distinct = list(map(self._name_of, distinct))
        return np.asarray(known.number(distinct)[(np.cumsum(is_first) - 1)[first]])

    def _keep(self, ends: NDArray[np.int32], relations: NDArray[np.int32]) -> None:
        rows = np.empty((len(relations), 3), dtype=np.int32)
        rows[:, 0], rows[:, 1], rows[:, 2] = ends[0::2], relations, ends[1::2]
        if self._rows_file is None:
            self._rows.append(rows)
        else:
            self._rows_file.write(rows.data)

    def names(self) -> tuple[Vocabulary, Vocabulary]:
        """Nodes and relations, once all is added."""
        self._number_waiting()
        return self._nodes.vocabulary("node"), self._relations.vocabulary("relation")

    def columns(self, nodes: Vocabulary) -> dict[str, NDArray[Any]]:
        """What stands beside each row of ids, its split, weight and time, and beside each node; where there are any."""
        weights = None
        if any(some is not None for some in self._weights):  # a file without any weighs 1
            pairs = zip(self._weights, self._splits, strict=True)
            weights = np.concatenate([np.ones(len(of), np.float32) if some is None else some for some, of in pairs])
        times = np.concatenate(self._times) if self._times else None
        if times is not None and len(times) != self.count:
            raise DataError("some files have a time for each triple and others have none: read them apart")
        splits = np.concatenate(self._splits) if self.has_splits else None
        features = feature_matrix(self.attributes, nodes)[0] if self.attributes else None
        found = {"triple_splits": splits, "edge_weights": weights, "triple_times": times, "features": features}
        return {name: array for name, array in found.items() if array is not None}

    def graph(self) -> tuple[KnowledgeGraph, int]:
        """The graph of all triples, and how many were left out because they stand in the same split already."""
        nodes, relations = self.names()
        columns: dict[str, Any] = self.columns(nodes)
        rows = np.concatenate(self._rows)
        self._rows.clear()
        kept = kept_rows(rows, columns, len(nodes))
        duplicates = len(kept) - int(np.count_nonzero(kept))
        if duplicates:
            rows, columns = rows[kept], kept_columns(columns, kept)
        triples = rows.astype(np.int64)
        triples.setflags(write=False)
        return KnowledgeGraph(triples, nodes, relations, **columns), duplicates


def kept_rows(rows: NDArray[Any], columns: Mapping[str, NDArray[Any]], num_nodes: int) -> NDArray[np.bool_]:
    """bool [T]: which rows are no repetition of another; with weights, a triple that stands twice is two edges."""
    if "edge_weights" in columns:
        return np.ones(len(rows), dtype=bool)
    return distinct(rows, columns.get("triple_splits"), columns.get("triple_times"), num_nodes)


def kept_columns(columns: Mapping[str, NDArray[Any]], kept: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
    """What stands beside the rows that are kept."""
    return {name: array[kept] if name in ARRAYS_OF_TRIPLES else array for name, array in columns.items()}
