"""Blocks of lines as names to be numbered: found by compiled loops on several threads, handed on in order.

Which lines a block has does not depend on the threads, and neither does what is found in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from rgcn.threads import available_cores

Block = TypeVar("Block")
Found = TypeVar("Found")


class Spans(NamedTuple):
    """Names in a text: where they start, int64, how long they are, int64, and their hashes, uint32."""

    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    hashes: NDArray[np.uint32]

    @classmethod
    def room_for(cls, number: int) -> Spans:
        integers = np.empty((2, number), dtype=np.int64)
        return cls(integers[0], integers[1], np.empty(number, dtype=np.uint32))

    def at(self, chosen: Any) -> Spans:
        return Spans(*(array[chosen] for array in self))


class FoundTriples(NamedTuple):
    """Triples of names in a text: `ends` has subject and object of each in turn."""

    text: NDArray[np.uint8]
    ends: Spans
    relations: Spans


def in_order(blocks: Iterable[Block], work: Callable[[Block], Found]) -> Iterator[tuple[Block, Found]]:
    """Each block with what `work` makes of it; that of the next ones is made meanwhile, on other threads."""
    threads = available_cores()
    waiting: deque[tuple[Block, Future[Found]]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for block in blocks:
            waiting.append((block, pool.submit(work, block)))
            if len(waiting) > threads:
                done, found = waiting.popleft()
                yield done, found.result()
        while waiting:
            done, found = waiting.popleft()
            yield done, found.result()


def table_triples(
    data: bytes, separator: str, quoted: bool, width: int, columns: tuple[int, int, int]
) -> FoundTriples | None:
    """The triples of plain rows; None where there is any other."""
    from rgcn.data import line_loops

    text, lines = np.frombuffer(data, dtype=np.uint8), data.count(b"\n") + 1
    ends, relations = Spans.room_for(2 * lines), Spans.room_for(lines)
    at = np.array(columns, dtype=np.int64)
    rows = line_loops.table_rows(text, np.uint8(ord(separator)), quoted, width, at, tuple(ends), tuple(relations))
    return None if rows < 0 else FoundTriples(text, ends.at(slice(2 * rows)), relations.at(slice(rows)))


Names = list[tuple[str, str, str]]


def line_triples(
    data: bytes, quads: bool, blanks: bool, keep_literals: bool, parse: Callable[[list[bytes]], Names | None]
) -> FoundTriples | None:
    """The triples of N-Triples, or N-Quads; lines that are not plain are left to `parse`, which may give up the block.

    blanks  whether the names of blank nodes are their labels
    parse   from such lines to the triple of each
    """
    from rgcn.data import line_loops, name_loops

    text, lines = np.frombuffer(data, dtype=np.uint8), data.count(b"\n") + 1
    ends, relations, odd = Spans.room_for(2 * lines), Spans.room_for(lines), np.empty((lines, 3), dtype=np.int64)
    rows, odds = line_loops.statements(text, quads, blanks, keep_literals, tuple(ends), tuple(relations), odd)
    ends, relations = ends.at(slice(2 * rows)), relations.at(slice(rows))
    if not odds:
        return FoundTriples(text, ends, relations)
    triples = parse([data[start:end] for _, start, end in odd[:odds].tolist()])
    if triples is None:
        return None
    encoded = [name.encode() for triple in triples for name in triple]
    lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
    starts = len(data) + np.cumsum(lengths) - lengths
    hashes = np.empty(len(lengths), dtype=np.uint32)
    text, places = np.concatenate([text, np.frombuffer(b"".join(encoded), dtype=np.uint8)]), odd[:odds, 0]
    name_loops.hash_all(text, starts, lengths, hashes)
    parsed = Spans(starts, lengths, hashes)
    for whole, part in zip(ends, parsed, strict=True):
        whole[2 * places], whole[2 * places + 1] = part[0::3], part[2::3]
    for whole, part in zip(relations, parsed, strict=True):
        whole[places] = part[1::3]
    kept = np.ones(rows, dtype=bool)
    if not keep_literals:
        kept[places] = [not triple[2].startswith('"') for triple in triples]
    return FoundTriples(text, ends.at(np.repeat(kept, 2)), relations.at(kept))
