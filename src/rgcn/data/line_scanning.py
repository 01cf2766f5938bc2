"""Blocks of lines as names to be numbered: found by compiled loops on several threads, handed on in order.

Which lines a block has does not depend on the threads, and neither does what is found in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rgcn.data.line_grammar import statement, table_row

Names = list[tuple[str, str, str]]


class Spans(NamedTuple):
    """Names in a text: where they start, int64, how long they are, int64, and their hashes, uint32."""

    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    hashes: NDArray[np.uint32]

    @classmethod
    def room_for(cls, number: int) -> Spans:
        integers = np.empty((2, number), dtype=np.int64)
        return cls(integers[0], integers[1], np.empty(number, dtype=np.uint32))

    @classmethod
    def of(cls, names: Iterable[str]) -> tuple[NDArray[np.uint8], Spans]:
        """The text of names, and where in it they are."""
        from rgcn.graph import hash_loops

        encoded = [name.encode() for name in names]
        lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
        text, starts = np.frombuffer(b"".join(encoded), dtype=np.uint8), np.cumsum(lengths) - lengths
        hashes = np.empty(len(encoded), dtype=np.uint32)
        hash_loops.hash_all(text, starts, lengths, hashes)
        return text, cls(starts, lengths, hashes)

    def at(self, chosen: Any) -> Spans:
        return Spans(*(array[chosen] for array in self))


class FoundTriples(NamedTuple):
    """Triples of names in a text: `ends` has subject and object of each in turn."""

    text: NDArray[np.uint8]
    ends: Spans
    relations: Spans


def table_triples(data: bytes, separator: bytes, quoted: bool, width: int, columns: list[int]) -> FoundTriples | None:
    """The triples of plain rows; None where there is any other."""
    found, odd = _found(data, table_row(separator, quoted, width), columns, False, True)
    return None if len(odd) else found


def line_triples(
    data: bytes, quads: bool, blanks: bool, keep_literals: bool, parse: Callable[[list[bytes]], Names | None]
) -> FoundTriples | None:
    """The triples of N-Triples, or N-Quads; lines that are not plain are left to `parse`, which may give up the block.

    blanks  whether the names of blank nodes are their labels
    parse   from such lines to the triple of each
    """
    found, odd = _found(data, statement(quads, blanks), [0, 1, 2], True, keep_literals)
    if not len(odd):
        return found
    triples = parse([data[start:end] for _, start, end in odd.tolist()])
    if triples is None:
        return None
    behind, spans = Spans.of(name for triple in triples for name in triple)
    text, places = np.concatenate([found.text, behind]), odd[:, 0]
    text.setflags(write=False)
    spans = spans._replace(starts=spans.starts + len(found.text))
    columns: Iterable[Any] = zip(found.ends, found.relations, spans, strict=True)
    for ends, relations, part in columns:
        ends[2 * places], ends[2 * places + 1], relations[places] = part[0::3], part[2::3], part[1::3]
    kept = np.ones(len(found.relations.starts), dtype=bool)
    if not keep_literals:
        kept[places] = [not triple[2].startswith('"') for triple in triples]
    return FoundTriples(text, found.ends.at(np.repeat(kept, 2)), found.relations.at(kept))


def _found(
    data: bytes, automaton: tuple[Any, Any], columns: list[int], rdf: bool, keep_literals: bool
) -> tuple[FoundTriples, NDArray[np.int64]]:
    """The triples of plain lines, and the others: the row that waits for each, and where it starts and ends."""
    from rgcn.data import reading_loops

    whole = data if data.endswith(b"\n") else data + b"\n"
    text, lines = np.frombuffer(whole, dtype=np.uint8), whole.count(b"\n")
    ends, relations, odd = Spans.room_for(2 * lines), Spans.room_for(lines), np.empty((lines, 3), dtype=np.int64)
    given = *automaton, np.array(columns, dtype=np.int64), rdf, keep_literals, tuple(ends), tuple(relations), odd
    rows, odds = reading_loops.find_triples(text, *given)
    return FoundTriples(text, ends.at(slice(2 * rows)), relations.at(slice(rows))), odd[:odds]
