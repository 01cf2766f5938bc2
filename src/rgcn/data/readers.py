"""What a reader is: the one page to know for a format of your own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rgcn.data.attributes import AttributeColumn
from rgcn.data.files import BadLines, ByteSource, SourceFile, decoded_lines, line_blocks
from rgcn.data.triple_collector import TripleCollector
from rgcn.errors import DataError

if TYPE_CHECKING:
    from rgcn.data.tables import TripleColumns

Triple = tuple[str, str, str]


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
        """Read one file, adding its triples in their order, and the numbers of nodes if it holds any."""


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
                    yield number, text.rstrip("\r")

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

    def add_attribute(self, name: str, nodes: Sequence[str], values: Sequence[float] | NDArray[Any]) -> None:
        """Add a number for each of n nodes, [n]: a column of the graph's features, zero for nodes without one."""
        self.collector.attributes.append(AttributeColumn(name, nodes, values))
