"""Find the triples in blocks of plain lines by compiled loops, which run on several threads.

The lines of a block, and the triples found in it, do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rgcn.graph.vocabulary import pack_names

Names = list[tuple[str, str, str]]


class Spans(NamedTuple):
    """Names in a text: where they start, how long they are, and their hashes."""

    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    hashes: NDArray[np.uint32]

    @classmethod
    def empty(cls, number: int) -> Spans:
        """Return spans that are to be filled."""
        integers = np.empty((2, number), dtype=np.int64)
        return cls(integers[0], integers[1], np.empty(number, dtype=np.uint32))

    @classmethod
    def of(cls, names: Iterable[str]) -> tuple[NDArray[np.uint8], Spans]:
        """Return the concatenated names, and where in this text they are."""
        from rgcn.graph import name_loops

        text, starts, lengths = pack_names(names)
        hashes = np.empty(len(starts), dtype=np.uint32)
        name_loops.hash_all(text, starts, lengths, hashes)
        return text, cls(starts, lengths, hashes)

    def select(self, index: Any) -> Spans:
        """Return some of the spans."""
        return Spans(*(array[index] for array in self))


class TripleSpans(NamedTuple):
    """Triples in a text; `ends` has the subject and object of each in turn."""

    text: NDArray[np.uint8]
    ends: Spans
    relations: Spans


def table_triples(data: bytes, separator: bytes, quoted: bool, width: int, columns: list[int]) -> TripleSpans | None:
    """Return the triples of a block of a table, or None if a row needs a parser."""
    triples, odd = _find(data, table_row(separator, quoted, width), columns, False, True)
    return None if len(odd) else triples


def line_triples(
    data: bytes, quads: bool, blanks: bool, keep_literals: bool, parse: Callable[[list[bytes]], Names | None]
) -> TripleSpans | None:
    """Return the triples of a block of N-Triples or N-Quads.

    Args:
        data: Whole lines.
        quads: Whether they are N-Quads.
        blanks: Whether the labels of blank nodes are their names.
        keep_literals: Whether to keep triples whose object is a literal.
        parse: Returns the triple of each line that is not plain, or None if the whole block needs a parser.

    Returns:
        The triples, or None if the whole block needs a parser.
    """
    triples, odd = _find(data, statement(quads, blanks), [0, 1, 2], True, keep_literals)
    if not len(odd):
        return triples
    parsed = parse([data[start:end] for _, start, end in odd.tolist()])
    if parsed is None:
        return None
    added, spans = Spans.of(name for triple in parsed for name in triple)
    text, places = np.concatenate([triples.text, added]), odd[:, 0]
    text.setflags(write=False)
    spans = spans._replace(starts=spans.starts + len(triples.text))
    columns: Iterable[Any] = zip(triples.ends, triples.relations, spans, strict=True)
    for ends, relations, part in columns:
        ends[2 * places], ends[2 * places + 1], relations[places] = part[0::3], part[2::3], part[1::3]
    keep = np.ones(len(triples.relations.starts), dtype=bool)
    if not keep_literals:
        keep[places] = [not triple[2].startswith('"') for triple in parsed]
    return TripleSpans(text, triples.ends.select(np.repeat(keep, 2)), triples.relations.select(keep))


def _find(
    data: bytes, automaton: tuple[Any, Any], columns: list[int], rdf: bool, keep_literals: bool
) -> tuple[TripleSpans, NDArray[np.int64]]:
    """Return the triples of plain lines, and for each other line its row, and where it starts and ends."""
    from rgcn.data import reading_loops

    whole = data if data.endswith(b"\n") else data + b"\n"
    text, lines = np.frombuffer(whole, dtype=np.uint8), whole.count(b"\n")
    ends, relations, odd = Spans.empty(2 * lines), Spans.empty(lines), np.empty((lines, 3), dtype=np.int64)
    options = np.array(columns, dtype=np.int64), rdf, keep_literals
    rows, odds = reading_loops.find_triples(text, *automaton, *options, tuple(ends), tuple(relations), odd)
    return TripleSpans(text, ends.select(slice(2 * rows)), relations.select(slice(rows))), odd[:odds]


# -- automata of plain lines: tables with the next state for each state and byte ---------------------------------------

# They accept N-Triples, N-Quads and rows of tables exactly as the parsers would. What is rare is left to the parsers:
# user names, ports and brackets in an IRI, characters beyond U+D7FF in one, and escapes that the canonical form writes
# otherwise.
#
# A pattern is bytes (any one of them), a tuple (patterns one after the other), a list (any one of the patterns) or
# `Repeated` (a pattern any number of times).

REFUSED, ACCEPTED = 0, 1  # the two states in which an automaton stops


class Repeated(NamedTuple):
    """A pattern any number of times."""

    pattern: Any


def _bytes(first: int, last: int) -> bytes:
    return bytes(range(first, last + 1))


def _maybe(*pattern: Any) -> Any:
    return [(), pattern]


_NEXT = _bytes(0x80, 0xBF)  # UTF-8: the bytes after the first byte of a character
_TO_D7FF = [(b"\xe0", _bytes(0xA0, 0xBF), _NEXT), (_bytes(0xE1, 0xEC), _NEXT, _NEXT)]
_TO_D7FF += [(b"\xed", _bytes(0x80, 0x9F), _NEXT)]
_FROM_10000 = [(b"\xf0", _bytes(0x90, 0xBF), _NEXT, _NEXT), (_bytes(0xF1, 0xF3), _NEXT, _NEXT, _NEXT)]
_FROM_10000 += [(b"\xf4", _bytes(0x80, 0x8F), _NEXT, _NEXT)]
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
    """Return the automaton of a statement: the table, and the states in which its four fields begin."""
    node = [_IRI, _BLANK] if blanks else [_IRI]
    graph = _maybe(node, _SPACE, Repeated(_SPACE)) if quads else ()
    return _table((node, _SPACE), (_IRI, _SPACE), ([*node, _LITERAL], _SPACE), (graph, b".", Repeated(b"\r"), b"\n"))


@cache
def table_row(separator: bytes, quoted: bool, width: int) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    """Return the automaton of a table's row: the table, and the states in which the columns begin."""
    text = Repeated([bytes(set(_bytes(0x01, 0x7F)) - set(b"\n" + separator + b'"' * quoted)), *_BEYOND_ASCII])
    table, (inner, last) = _table((text, separator), (text, b"\n"))
    return table, np.array([inner] * (width - 1) + [last], dtype=np.uint16)


def _table(*patterns: Any) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    """Return the table of one automaton that accepts any of the patterns, and the state in which each begins.

    A state is the set of sequences of patterns that may follow, each beginning with bytes. Patterns are identified by
    their `id`, since the constants above keep them alive.
    """

    def reached(rests: Iterable[tuple[Any, ...]]) -> dict[tuple[int, ...], tuple[Any, ...]]:
        return {tuple(map(id, rest)): rest for some in rests for rest in _begins(some)}

    first = [reached([pattern]) for pattern in patterns]
    waiting = list({frozenset(state): state for state in first}.values())
    numbers = {frozenset(state): 2 + number for number, state in enumerate(waiting)}
    rows = [[REFUSED] * 256, [ACCEPTED] * 256]
    for state in waiting:
        rests = list(state.values())
        takes = [tuple(place for place, rest in enumerate(rests) if byte in rest[0]) for byte in range(256)]
        leads: dict[tuple[int, ...], int] = {(): REFUSED}
        for places in dict.fromkeys(takes):
            after = reached(rests[place][1:] for place in places)
            if () in after:
                leads[places] = ACCEPTED
            elif places:
                leads[places] = numbers.setdefault(frozenset(after), 2 + len(numbers))
                if len(numbers) > len(waiting):
                    waiting.append(after)
        rows.append([leads[places] for places in takes])
    return np.array(rows, dtype=np.uint16), np.array([numbers[frozenset(state)] for state in first], dtype=np.uint16)


def _begins(rest: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield the ways in which a sequence of patterns can begin with bytes, or end."""
    if not rest or isinstance(rest[0], bytes):
        yield rest
    elif isinstance(rest[0], Repeated):
        yield from _begins(rest[1:])
        yield from _begins((rest[0].pattern, *rest))
    elif isinstance(rest[0], tuple):
        yield from _begins((*rest[0], *rest[1:]))
    else:
        for one in rest[0]:
            yield from _begins((one, *rest[1:]))
