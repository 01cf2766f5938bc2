"""What a reader is: the one page to know for a format of your own; and how names become integers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rgcn.data.files import BadLines, ByteSource, SourceFile, decoded_lines, line_blocks
from rgcn.errors import DataError
from rgcn.graph import SPLITS, KnowledgeGraph, Vocabulary

if TYPE_CHECKING:
    from rgcn.data.tables import TripleColumns

Triple = tuple[str, str, str]
MOST_PREFIXES = 1000  # of a file: more are no help to anybody


class TripleReader(ABC):
    """Reads files of one format.

    One of your own is a subclass, chosen as `rgcn.read(path, format=Mine)`, as "package.module:Mine" there or by
    `data.format` in a configuration, or by the endings of its files once a package registers it under the entry points
    `rgcn.readers`. Compression, limits, progress and the counting of bad lines are taken care of.

    endings  what names of such files end with: lower case, no dot; a built-in reader of the same ending comes first
    plural   what such files are called, where a format is one of a kind: a folder is read if its files are all of one
    is_rdf   names are terms as N-Triples writes them: what begins with " is a literal, what begins with _ a blank node

    >>> class Arrows(TripleReader):
    ...     '''A line "Bern -> Switzerland" each.'''
    ...
    ...     endings = ("arrows",)
    ...
    ...     def read(self, reading: Reading) -> None:
    ...         reading.add(self._triples(reading))
    ...
    ...     def _triples(self, reading: Reading) -> Iterator[Triple]:
    ...         for number, line in reading.lines():
    ...             start, arrow, end = line.partition(" -> ")
    ...             if arrow:
    ...                 yield start, "to", end
    ...             else:
    ...                 reading.bad_line(number, line, "there is no arrow")
    >>> import tempfile, rgcn
    >>> with tempfile.NamedTemporaryFile("w", suffix=".arrows") as file:
    ...     _ = file.write("Bern -> Switzerland")
    ...     file.flush()
    ...     list(rgcn.read(file.name, format=Arrows).nodes)
    ['Bern', 'Switzerland']
    """

    endings: ClassVar[tuple[str, ...]] = ()
    plural: ClassVar[str] = ""
    is_rdf: ClassVar[bool] = False

    @abstractmethod
    def read(self, reading: Reading) -> None:
        """Read one file, adding its triples in their order."""


@dataclass(frozen=True)
class Reading:
    """One file on its way into a graph: where its bytes come from, and where its triples go.

    file           its path, format and split
    source         its bytes, expanded where the file is compressed
    columns        what the user said of a table's columns
    keep_literals  False: leave out triples whose object is a literal
    blank_prefix   goes into names of blank nodes, which mean something else in another file
    """

    file: SourceFile
    source: ByteSource
    collector: TripleCollector
    bad_lines: BadLines
    columns: TripleColumns | None = None
    keep_literals: bool = True
    blank_prefix: str = ""

    BATCH: ClassVar[int] = 100_000

    def lines(self) -> Iterator[tuple[int, str]]:
        """Every line that is not blank, and its number from 1; one that is no UTF-8 text is a bad one."""
        for block in line_blocks(self.source):
            for number, text in decoded_lines(block, self.file.path, self.bad_lines):
                if text.strip():
                    yield number, text

    def bad_line(self, number: int, text: str, reason: str) -> None:
        """Stop with an error that names the line, or count it where the user wants bad lines skipped."""
        self.bad_lines.report(self.file.path, number, text, reason)

    def add(self, triples: Iterable[Triple]) -> None:
        """Add triples of names: subject, relation, object."""
        rest = iter(triples)
        while batch := list(islice(rest, self.BATCH)):
            subjects, relations, objects = zip(*batch, strict=True)
            self.add_columns(subjects, relations, objects)

    def add_columns(
        self,
        subjects: Sequence[str],
        relations: Sequence[str],
        objects: Sequence[str],
        weights: NDArray[np.float32] | None = None,
    ) -> None:
        """Add T triples, a column of T names each, with weights float32 [T] where edges have some."""
        columns = [pl.Series(names, dtype=pl.String) for names in (subjects, relations, objects)]
        if any(column.null_count() or (column == "").any() for column in columns):
            raise DataError(f"{self.file.path}: the reader {self.file.format} gave a triple in which a name is empty")
        subject, relation, object_ = columns
        self.collector.add(subject, relation, object_, split=self.file.split, weights=weights)


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
    BATCH = 1_000_000

    def __init__(self) -> None:
        self._node_ids, self._relation_ids = dict[str, int](), dict[str, int]()
        self._triples = [np.empty((0, 3), dtype=np.int64)]
        self._splits = [np.empty(0, dtype=np.int8)]
        self._weights: list[NDArray[np.float32] | None] = [None]
        self._times: list[NDArray[np.float64]] = []
        self._waiting: list[pl.DataFrame] = []
        self._name_of: Callable[[str], str] | None = None
        self.count = 0
        self.has_splits = False
        self.prefixes: dict[str, list[str]] = {}

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
        self.has_splits |= split is not None
        if split is None or isinstance(split, str):
            split = np.full(len(subjects), SPLITS.index(split or "train"), dtype=np.int8)
        self._splits.append(split)
        self._weights.append(weights)
        if times is not None:
            self._times.append(times)
        self.count += len(subjects)

    def declare(self, prefixes: Mapping[str, str]) -> None:
        """What a file says its prefixes stand for."""
        for prefix, space in islice(prefixes.items(), MOST_PREFIXES):
            spaces = self.prefixes.setdefault(prefix, [])
            if space not in spaces:
                spaces.append(space)

    def _number_waiting(self) -> None:
        if not self._waiting:
            return
        batch = pl.concat(self._waiting)
        self._waiting = []
        in_file_order = np.arange(2 * len(batch)).reshape(2, -1).T.ravel()
        ends = pl.concat([batch["subject"].rename("name"), batch["object"].rename("name")]).gather(in_file_order)
        end_ids = _number(ends, self._node_ids, self._name_of).reshape(-1, 2)
        relation_ids = _number(batch["relation"], self._relation_ids, self._name_of)
        self._triples.append(np.stack([end_ids[:, 0], relation_ids, end_ids[:, 1]], axis=1))

    def graph(self) -> tuple[KnowledgeGraph, int]:
        """The graph of all triples, and how many were left out because they stand in the same split already."""
        self._number_waiting()
        triples, splits = np.concatenate(self._triples), np.concatenate(self._splits)
        weights, duplicates = None, 0
        if any(some is not None for some in self._weights):  # a file without any weighs 1
            pairs = zip(self._weights, self._splits, strict=True)
            weights = np.concatenate([np.ones(len(of), np.float32) if some is None else some for some, of in pairs])
        times = np.concatenate(self._times) if self._times else None
        if times is not None and len(times) != len(triples):
            raise DataError("some files have a time for each triple and others have none: read them apart")
        if weights is None:  # with weights, a triple that stands twice is two edges
            table = pl.DataFrame({"s": triples[:, 0], "r": triples[:, 1], "o": triples[:, 2], "split": splits})
            first = table.select(pl.struct(pl.all()).is_first_distinct()).to_series().to_numpy()
            duplicates = int((~first).sum())
            if times is not None:  # of a triple that stands several times, when it was said first
                said = table.with_columns(time=times).select(pl.col("time").min().over("s", "r", "o", "split"))
                times = said.to_series().to_numpy()[first]
            triples, splits = triples[first], splits[first]
        nodes, relations = Vocabulary(self._node_ids, kind="node"), Vocabulary(self._relation_ids, kind="relation")
        columns: dict[str, Any] = {"triple_splits": splits, "edge_weights": weights, "triple_times": times}
        return KnowledgeGraph(triples, nodes, relations, **columns), duplicates


def _number(names: pl.Series, ids: dict[str, int], name_of: Callable[[str], str] | None) -> NDArray[np.int64]:
    """Ids of the names, int64 [len(names)], extending `ids`; Python sees each distinct name once only."""
    positions = names.rename("name").to_frame().with_row_index("position")
    first = positions.select(pl.col("position").min().over("name")).to_series().to_numpy()
    is_first = first == np.arange(len(names))
    distinct = names.filter(pl.Series(is_first)).to_list()
    if name_of is not None:
        distinct = [name_of(name) for name in distinct]
    numbers = np.fromiter((ids.setdefault(name, len(ids)) for name in distinct), dtype=np.int64, count=len(distinct))
    return np.asarray(numbers[(np.cumsum(is_first) - 1)[first]])
