"""Blocks of lines as names to be numbered: found by compiled loops on several threads, handed on in order.

Which lines a block has does not depend on the threads, and neither does what is found in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rgcn.graph.vocabulary import packed

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
        from rgcn.graph import name_loops

        text, starts, lengths = packed(names)
        hashes = np.empty(len(starts), dtype=np.uint32)
        name_loops.hash_all(text, starts, lengths, hashes)
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


# -- what plain lines look like, as automata: tables that say of each state and byte which state comes next -----------

# They take N-Triples, N-Quads and rows of tables byte for byte as the parsers would take them. What is rare they
# refuse, and the parsers decide: user names, ports and brackets in an IRI, characters beyond U+D7FF in one, escapes
# that the canonical form writes otherwise.
#
# A pattern is bytes: any one of them; a tuple: one after the other; a list: one of them; `Repeated`: any number of
# times.

REFUSED, TAKEN = 0, 1  # the two states in which an automaton stops


class Repeated(NamedTuple):
    of: Any


def _bytes(first: int, last: int) -> bytes:
    return bytes(range(first, last + 1))


def _maybe(*pattern: Any) -> Any:
    return [(), pattern]


_NEXT = _bytes(0x80, 0xBF)  # UTF-8: what follows the first byte of a character
_TO_D7FF = [(_bytes(0xE0, 0xE0), _bytes(0xA0, 0xBF), _NEXT), (_bytes(0xE1, 0xEC), _NEXT, _NEXT)]
_TO_D7FF += [(_bytes(0xED, 0xED), _bytes(0x80, 0x9F), _NEXT)]
_FROM_10000 = [(_bytes(0xF0, 0xF0), _bytes(0x90, 0xBF), _NEXT, _NEXT), (_bytes(0xF1, 0xF3), _NEXT, _NEXT, _NEXT)]
_FROM_10000 += [(_bytes(0xF4, 0xF4), _bytes(0x80, 0x8F), _NEXT, _NEXT)]
_TWO = (_bytes(0xC2, 0xDF), _NEXT)
_BEYOND_ASCII = [_TWO, *_TO_D7FF, (_bytes(0xEE, 0xEF), _NEXT, _NEXT), *_FROM_10000]

_LOWER = b"abcdefghijklmnopqrstuvwxyz"
_LETTER, _DIGIT = _LOWER + _LOWER.upper(), b"0123456789"
_HEX = _DIGIT + b"abcdefABCDEF"
_SPACE = b" \t"
_FIRST = [_LETTER + _DIGIT + b"-._~!$&'()*+,;=:@?", (b"%", _HEX, _HEX), (b"\xc2", _bytes(0xA0, 0xBF))]
_FIRST += [(_bytes(0xC3, 0xDF), _NEXT), *_TO_D7FF]
_PATH = Repeated([b"/", *_FIRST])
_HIERARCHY = [
    (b"/", b"/", Repeated(_LETTER + _DIGIT + b"-._~"), _maybe(b"/?", _PATH)),
    (_maybe(b"/"), _maybe(_FIRST, _PATH)),
]
_IRI = (b"<", _LETTER, Repeated(_LETTER + _DIGIT + b"+-."), b":", _HIERARCHY, _maybe(b"#", _PATH), b">")
_BLANK = (b"_", b":", _LETTER, Repeated(_LETTER + _DIGIT))
_LANGUAGE = (b"@", _LOWER, _LOWER, _maybe(_LOWER), _maybe(b"-", _LOWER, _LOWER, _maybe(_LOWER, _LOWER)))
_PLAIN = bytes(set(_bytes(0x20, 0x7E)) - set(b'"\\'))
_TO_FFFD = [(b"\xee", _NEXT, _NEXT), (b"\xef", _bytes(0x80, 0xBE), _NEXT), (b"\xef", b"\xbf", _bytes(0x80, 0xBD))]
_CHARACTERS = Repeated([_PLAIN, (b"\\", b'"\\nrtbf'), _TWO, *_TO_D7FF, *_TO_FFFD, *_FROM_10000])
_LITERAL = (b'"', _CHARACTERS, b'"', _maybe([_LANGUAGE, (b"^", b"^", _IRI)]))


@cache
def statement(quads: bool, blanks: bool) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    """The table, and the states in which subject, relation, object and the rest of a line begin."""
    node = [_IRI, _BLANK] if blanks else [_IRI]
    graph = _maybe(node, _SPACE, Repeated(_SPACE)) if quads else ()
    return _table((node, _SPACE), (_IRI, _SPACE), ([*node, _LITERAL], _SPACE), (graph, b".", Repeated(b"\r"), b"\n"))


@cache
def table_row(separator: bytes, quoted: bool, width: int) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    """The table, and the states in which the columns begin."""
    text = Repeated([bytes(set(_bytes(0x01, 0x7F)) - set(b"\n" + separator + b'"' * quoted)), *_BEYOND_ASCII])
    table, (inner, last) = _table((text, separator), (text, b"\n"))
    return table, np.array([inner] * (width - 1) + [last], dtype=np.uint16)


def _table(*patterns: Any) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    """The table of one automaton that takes any of the patterns, and where each begins.

    A state is what may follow: patterns one after the other, of which the first is bytes. Patterns are told apart by
    their ids; they live as long as the constants that hold them.
    """

    def reached(rests: Iterable[tuple[Any, ...]]) -> dict[tuple[int, ...], tuple[Any, ...]]:
        return {tuple(map(id, rest)): rest for some in rests for rest in _begins(some)}

    first = [reached([pattern]) for pattern in patterns]
    waiting = list({frozenset(state): state for state in first}.values())
    numbers = {frozenset(state): 2 + number for number, state in enumerate(waiting)}
    rows = [[REFUSED] * 256, [TAKEN] * 256]
    for state in waiting:
        rests = list(state.values())
        takes = [tuple(place for place, rest in enumerate(rests) if byte in rest[0]) for byte in range(256)]
        leads: dict[tuple[int, ...], int] = {(): REFUSED}
        for places in dict.fromkeys(takes):
            after = reached(rests[place][1:] for place in places)
            if () in after:
                leads[places] = TAKEN
            elif places:
                leads[places] = numbers.setdefault(frozenset(after), 2 + len(numbers))
                if len(numbers) > len(waiting):
                    waiting.append(after)
        rows.append([leads[places] for places in takes])
    return np.array(rows, dtype=np.uint16), np.array([numbers[frozenset(state)] for state in first], dtype=np.uint16)


def _begins(rest: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """The ways in which patterns one after the other begin with bytes, or end."""
    if not rest or isinstance(rest[0], bytes):
        yield rest
    elif isinstance(rest[0], Repeated):
        yield from _begins(rest[1:])
        yield from _begins((rest[0].of, *rest))
    elif isinstance(rest[0], tuple):
        yield from _begins((*rest[0], *rest[1:]))
    else:
        for one in rest[0]:
            yield from _begins((one, *rest[1:]))
