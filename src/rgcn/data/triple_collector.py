"""Collect triples of names: number the names and store the triples as rows of ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, BinaryIO

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rgcn.data.attributes import AttributeColumn, feature_matrix
from rgcn.data.line_scanning import Spans, TripleSpans
from rgcn.data.triple_rows import distinct
from rgcn.errors import DataError
from rgcn.graph import SPLITS, KnowledgeGraph, Vocabulary
from rgcn.graph.knowledge_graph import ARRAYS_OF_TRIPLES
from rgcn.graph.vocabulary import MAX_LOAD, MAX_NAMES, StoredNames, collision_error

MAX_PREFIXES = 1000  # per file
Split = str | NDArray[np.int8] | None


class NamesInDictionary:
    """Numbers the names of a small graph by a dictionary, which takes no time to set up."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def number(self, names: list[str]) -> NDArray[np.int32]:
        """Return the ids of names; new names get the next ids."""
        ids = self._ids
        return np.fromiter((ids.setdefault(name, len(ids)) for name in names), dtype=np.int32, count=len(names))

    def vocabulary(self, kind: str) -> Vocabulary:
        """Return all names; `kind` is what error messages call a name."""
        return Vocabulary(self._ids, kind=kind)


class NamesInTable:
    """Numbers names by compiled loops and a hash table, with about 20 bytes per name in addition to its text."""

    def __init__(self) -> None:
        self._text, self._bounds = np.empty(1 << 20, dtype=np.uint8), np.zeros(1 << 16, dtype=np.int64)
        self._slots, self._count = np.zeros(1 << 16, dtype=np.uint64), 0

    def number(self, names: list[str]) -> NDArray[np.int32]:
        """Return the ids of names; new names get the next ids."""
        return self.number_spans(*Spans.of(names))

    def number_spans(self, text: NDArray[np.uint8], spans: Spans) -> NDArray[np.int32]:
        """Return the ids of names in a text; new names get the next ids."""
        from rgcn.data import reading_loops

        max_count = self._count + len(spans.starts)
        self._text = _enlarged(self._text, int(self._bounds[self._count]) + int(spans.lengths.sum()))
        self._bounds = _enlarged(self._bounds, max_count + 1)
        while max_count > MAX_LOAD * len(self._slots):
            wider = np.zeros(2 * len(self._slots), dtype=np.uint64)
            if not reading_loops.spread(self._slots, wider):
                raise collision_error()
            self._slots = wider
        ids = np.empty(len(spans.starts), dtype=np.int32)
        count, _ = reading_loops.number(self._text, self._bounds, self._count, self._slots, text, *spans, ids)
        if count < 0:
            raise collision_error()
        if count >= MAX_NAMES:
            raise DataError(f"more than {MAX_NAMES:,} names: read the files in parts")
        self._count = count
        return ids

    def vocabulary(self, kind: str) -> Vocabulary:
        """Return all names without copying them; no more can be numbered."""
        ends = self._bounds[1 : self._count + 1]
        slots = np.empty(len(self._slots), dtype=np.int32)
        for first in range(0, len(slots), 1 << 20):  # a slot holds hash and id + 1
            slots[first : first + (1 << 20)] = self._slots[first : first + (1 << 20)].astype(np.int32) - 1
        self._slots = self._slots[:0]
        return Vocabulary(StoredNames(self._text[: self._bounds[self._count]], ends, slots), kind=kind)


def _enlarged(array: NDArray[Any], needed: int) -> NDArray[Any]:
    """Return the array, or a longer copy. Elements that were never written to take no memory."""
    if needed <= len(array):
        return array
    longer = np.empty(max(needed, 2 * len(array)), dtype=array.dtype)
    longer[: len(array)] = array
    return longer


class TripleCollector:
    """Takes triples of names block by block, and makes a graph of them.

    Names are numbered by first appearance, subject before object.

    Args:
        large: Whether there are enough triples for compiled loops.
        rows_file: Where to write rows of ids, int32 [num_triples, 3]; None keeps them in memory.

    >>> collector = TripleCollector()
    >>> collector.add(pl.Series(["b", "a"]), pl.Series(["r", "r"]), pl.Series(["c", "b"]))
    >>> graph, _ = collector.graph()
    >>> list(graph.nodes), graph.triples.tolist()
    (['b', 'c', 'a'], [[0, 0, 1], [2, 0, 0]])
    """

    # Python handles each distinct name once per batch, so large batches are fast; they are limited to save memory.
    BATCH_ROWS = 250_000

    def __init__(self, large: bool = False, rows_file: BinaryIO | None = None) -> None:
        self.large, self._rows_file = large, rows_file
        numbering: Any = NamesInTable if large else NamesInDictionary
        self._nodes, self._relations = numbering(), numbering()
        self._rows, self._splits = [np.empty((0, 3), dtype=np.int32)], [np.empty(0, dtype=np.int8)]
        self._weights: list[NDArray[np.float32] | None] = [None]
        self._times, self._pending = list[NDArray[np.float64]](), list[pl.DataFrame]()
        self._name_of: Callable[[str], str] | None = None
        self.count, self.has_splits = 0, False
        self.prefixes, self.attributes = dict[str, list[str]](), list[AttributeColumn]()

    def add(
        self,
        subjects: pl.Series,
        relations: pl.Series,
        objects: pl.Series,
        *,
        split: Split = None,
        weights: NDArray[np.float32] | None = None,
        times: NDArray[np.float64] | None = None,
        name_of: Callable[[str], str] | None = None,
    ) -> None:
        """Add triples.

        Args:
            subjects: String series [num_triples].
            relations: String series [num_triples].
            objects: String series [num_triples].
            split: The split of all of them, or of each, int8 [num_triples].
            weights: Weights of the edges, [num_triples].
            times: Times of the triples, [num_triples].
            name_of: Turns the text in the file into a name.
        """
        if not len(subjects):
            return
        if name_of is not self._name_of or sum(map(len, self._pending)) + len(subjects) > self.BATCH_ROWS:
            self._number_pending()
        self._name_of = name_of
        self._pending.append(pl.DataFrame({"subject": subjects, "relation": relations, "object": objects}))
        self._add_values(len(subjects), split, weights)
        if times is not None:
            self._times.append(times)

    def add_spans(self, found: TripleSpans, split: str | None) -> None:
        """Add triples in a text, found by compiled loops."""
        self._number_pending()
        ends = self._nodes.number_spans(found.text, found.ends)
        self._add_rows(ends, self._relations.number_spans(found.text, found.relations))
        self._add_values(len(ends) // 2, split, None)

    def declare(self, prefixes: Mapping[str, str]) -> None:
        """Add the prefixes that a file declares."""
        for prefix, space in islice(prefixes.items(), MAX_PREFIXES):
            spaces = self.prefixes.setdefault(prefix, [])
            if space not in spaces:
                spaces.append(space)

    def _add_values(self, number: int, split: Split, weights: NDArray[np.float32] | None) -> None:
        self.has_splits |= split is not None
        if split is None or isinstance(split, str):
            split = np.full(number, SPLITS.index(split or "train"), dtype=np.int8)
        self._splits.append(split)
        self._weights.append(weights)
        self.count += number

    def _number_pending(self) -> None:
        if not self._pending:
            return
        batch, self._pending = pl.concat(self._pending), []
        file_order = np.arange(2 * len(batch)).reshape(2, -1).T.ravel()
        ends = pl.concat([batch["subject"].rename("name"), batch["object"].rename("name")]).gather(file_order)
        self._add_rows(self._ids_of(ends, self._nodes), self._ids_of(batch["relation"], self._relations))

    def _ids_of(self, names: pl.Series, numbering: NamesInTable | NamesInDictionary) -> NDArray[np.int32]:
        """Return the ids of names, int32 [num_names]; Python handles each distinct name once."""
        positions = names.rename("name").to_frame().with_row_index("position")
        first = positions.select(pl.col("position").min().over("name")).to_series().to_numpy()
        is_first = first == np.arange(len(names))
        distinct = names.filter(pl.Series(is_first)).to_list()
        if self._name_of is not None:
            distinct = list(map(self._name_of, distinct))
        return np.asarray(numbering.number(distinct)[(np.cumsum(is_first) - 1)[first]])

    def _add_rows(self, ends: NDArray[np.int32], relations: NDArray[np.int32]) -> None:
        rows = np.empty((len(relations), 3), dtype=np.int32)
        rows[:, 0], rows[:, 1], rows[:, 2] = ends[0::2], relations, ends[1::2]
        if self._rows_file is None:
            self._rows.append(rows)
        else:
            self._rows_file.write(rows.data)

    def finish(self) -> tuple[Vocabulary, Vocabulary, dict[str, Any]]:
        """Return nodes, relations, and the splits, weights and times of rows and features of nodes that there are."""
        self._number_pending()
        nodes, relations, weights = self._nodes.vocabulary("node"), self._relations.vocabulary("relation"), None
        if any(some is not None for some in self._weights):  # triples of files without weights get 1
            pairs = zip(self._weights, self._splits, strict=True)
            weights = np.concatenate([np.ones(len(of), np.float32) if some is None else some for some, of in pairs])
        times = np.concatenate(self._times) if self._times else None
        if times is not None and len(times) != self.count:
            raise DataError("some files have a time for each triple and others have none: read them separately")
        splits = np.concatenate(self._splits) if self.has_splits else None
        features = feature_matrix(self.attributes, nodes)[0] if self.attributes else None
        columns = {"triple_splits": splits, "edge_weights": weights, "triple_times": times, "features": features}
        return nodes, relations, {name: array for name, array in columns.items() if array is not None}

    def graph(self) -> tuple[KnowledgeGraph, int]:
        """Return the graph of all triples, and the number of duplicates that were left out."""
        nodes, relations, columns = self.finish()
        rows = np.concatenate(self._rows)
        self._rows.clear()
        is_first = find_distinct_rows(rows, columns, len(nodes))
        if duplicates := int(np.count_nonzero(~is_first)):
            rows, columns = rows[is_first], select_rows(columns, is_first)
        triples = rows.astype(np.int64)
        triples.setflags(write=False)
        return KnowledgeGraph(triples, nodes, relations, **columns), duplicates


def find_distinct_rows(rows: NDArray[Any], columns: Mapping[str, NDArray[Any]], num_nodes: int) -> NDArray[np.bool_]:
    """Find the rows that are not duplicates, bool [num_rows]. With weights, each row is an edge of its own."""
    if "edge_weights" in columns:
        return np.ones(len(rows), dtype=bool)
    return distinct(rows, columns.get("triple_splits"), columns.get("triple_times"), num_nodes)


def select_rows(columns: Mapping[str, NDArray[Any]], selected: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
    """Return the columns with only the selected rows."""
    return {name: array[selected] if name in ARRAYS_OF_TRIPLES else array for name, array in columns.items()}
