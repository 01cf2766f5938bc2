"""The interface of readers: what to implement to read another format of triples."""

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

    To read another format, write a subclass. Choose it by `rgcn.read(path, format=MyReader)`, or by its dotted name
    "package.module:MyReader" there or in `data.format` of a configuration. Once a package registers it under the entry
    points `rgcn.readers`, it is also chosen by the suffix of a file. Subclasses need not care about compression,
    limits, progress and the counting of bad lines.

    Attributes:
        suffixes: Suffixes of such files: lower case, without dot. Built-in readers of the same suffix come first.
        plural: A name for the files of several formats. A folder is read if all its files have the same.
        is_rdf: Whether names are terms as N-Triples writes them, where a literal begins with " and a blank node
            with _.

    >>> class Arrows(TripleReader):
    ...     '''Lines like "Bern -> Switzerland".'''
    ...
    ...     suffixes = ("arrows",)
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

    suffixes: ClassVar[tuple[str, ...]] = ()
    plural: ClassVar[str] = ""
    is_rdf: ClassVar[bool] = False

    @abstractmethod
    def read(self, reading: Reading) -> None:
        """Read a file: add its triples in their order, and the numbers of nodes if it has any."""


@dataclass(frozen=True)
class Reading:
    """A file that is being read: where its bytes come from, and where its triples go.

    Attributes:
        file: Its path, format and split.
        source: Its bytes, decompressed.
        collector: Takes the triples.
        bad_lines: Takes malformed lines.
        columns: The user's options for the columns of a table.
        keep_literals: Whether to keep triples whose object is a literal.
        blank_prefix: Part of the names of blank nodes, since their labels mean other nodes in other files.
    """

    file: SourceFile
    source: ByteSource
    collector: TripleCollector
    bad_lines: BadLines
    columns: TripleColumns | None = None
    keep_literals: bool = True
    blank_prefix: str = ""

    BATCH_SIZE: ClassVar[int] = 100_000

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield (number from 1, text) of each line that is not blank; lines that are not UTF-8 are bad lines."""
        for block in line_blocks(self.source):
            for number, text in decoded_lines(block, self.file.path, self.bad_lines):
                if text.strip():
                    yield number, text.rstrip("\r")

    def bad_line(self, number: int, text: str, reason: str) -> None:
        """Raise ParseError, or count the line if the user wants bad lines to be skipped."""
        self.bad_lines.report(self.file.path, number, text, reason)

    def add(self, triples: Iterable[Triple]) -> None:
        """Add triples (subject, relation, object) of names."""
        remaining = iter(triples)
        while batch := list(islice(remaining, self.BATCH_SIZE)):
            subjects, relations, objects = zip(*batch, strict=True)
            self.add_columns(subjects, relations, objects)

    def add_columns(
        self,
        subjects: Sequence[str],
        relations: Sequence[str],
        objects: Sequence[str],
        weights: NDArray[np.float32] | None = None,
    ) -> None:
        """Add triples as columns of names.

        Args:
            subjects: [num_triples].
            relations: [num_triples].
            objects: [num_triples].
            weights: Weights of the edges, [num_triples].

        Raises:
            DataError: A name is empty.
        """
        columns = [pl.Series(names, dtype=pl.String) for names in (subjects, relations, objects)]
        if any(column.null_count() or (column == "").any() for column in columns):
            raise DataError(f"{self.file.path}: the reader {self.file.format} gave a triple with an empty name")
        self.collector.add(*columns, split=self.file.split, weights=weights)

    def add_attribute(self, name: str, nodes: Sequence[str], values: Sequence[float] | NDArray[Any]) -> None:
        """Add a number for each of some nodes: a column of the graph's features, zero for other nodes."""
        self.collector.attributes.append(AttributeColumn(name, nodes, values))
