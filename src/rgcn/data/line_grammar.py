"""What plain lines look like, as automata: a table that says of each state and byte which state comes next.

They take N-Triples, N-Quads and rows of tables byte for byte as the parsers would take them. What is rare (user names,
ports and brackets in an IRI, characters beyond U+D7FF in one, escapes that the canonical form writes otherwise) they
refuse, and the parsers decide.

A pattern is bytes: any one of them; a tuple: one after the other; a list: one of them; `Any`: any number of times.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any as Pattern

import numpy as np
from numpy.typing import NDArray

REFUSED, TAKEN = 0, 1  # the two states in which an automaton stops


@dataclass(frozen=True)
class Any:
    of: Pattern


def _bytes(first: int, last: int) -> bytes:
    return bytes(range(first, last + 1))


def _maybe(*pattern: Pattern) -> Pattern:
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
_PATH = Any([b"/", *_FIRST])
_HIERARCHY = [
    (b"/", b"/", Any(_LETTER + _DIGIT + b"-._~"), _maybe(b"/?", _PATH)),
    (_maybe(b"/"), _maybe(_FIRST, _PATH)),
]
_IRI = (b"<", _LETTER, Any(_LETTER + _DIGIT + b"+-."), b":", _HIERARCHY, _maybe(b"#", _PATH), b">")
_BLANK = (b"_", b":", _LETTER, Any(_LETTER + _DIGIT))
_LANGUAGE = (b"@", _LOWER, _LOWER, _maybe(_LOWER), _maybe(b"-", _LOWER, _LOWER, _maybe(_LOWER, _LOWER)))
_PLAIN = bytes(set(_bytes(0x20, 0x7E)) - set(b'"\\'))
_TO_FFFD = [(b"\xee", _NEXT, _NEXT), (b"\xef", _bytes(0x80, 0xBE), _NEXT), (b"\xef", b"\xbf", _bytes(0x80, 0xBD))]
_CHARACTERS = Any([_PLAIN, (b"\\", b'"\\nrtbf'), _TWO, *_TO_D7FF, *_TO_FFFD, *_FROM_10000])
_LITERAL = (b'"', _CHARACTERS, b'"', _maybe([_LANGUAGE, (b"^", b"^", _IRI)]))


@cache
def statement(quads: bool, blanks: bool) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    """The table, and the states in which subject, relation, object and the rest of a line begin."""
    node = [_IRI, _BLANK] if blanks else [_IRI]
    graph = _maybe(node, _SPACE, Any(_SPACE)) if quads else ()
    return _table((node, _SPACE), (_IRI, _SPACE), ([*node, _LITERAL], _SPACE), (graph, b".", Any(b"\r"), b"\n"))


@cache
def table_row(separator: bytes, quoted: bool, width: int) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    """The table, and the states in which the columns begin."""
    text = Any([bytes(set(_bytes(0x01, 0x7F)) - set(b"\n" + separator + b'"' * quoted)), *_BEYOND_ASCII])
    table, (inner, last) = _table((text, separator), (text, b"\n"))
    return table, np.array([inner] * (width - 1) + [last], dtype=np.uint16)


def _table(*patterns: Pattern) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    """The table of one automaton that takes any of the patterns, and where each begins."""
    steps: list[list[tuple[bytes, int]]] = [[]]  # from each state: which bytes lead where; none: without reading

    def new() -> int:
        steps.append([])
        return len(steps) - 1

    def add(pattern: Pattern, start: int, end: int) -> None:
        if isinstance(pattern, bytes):
            steps[start].append((pattern, end))
        elif isinstance(pattern, list):
            for one in pattern:
                add(one, start, end)
        elif isinstance(pattern, Any):
            middle = new()
            steps[start].append((b"", middle))
            add(pattern.of, middle, middle)
            steps[middle].append((b"", end))
        else:
            for part in pattern:
                add(part, start, start := new())
            steps[start].append((b"", end))

    def reached(states: set[int]) -> frozenset[int]:
        waiting, found = list(states), set(states)
        while waiting:
            further = {end for taken, end in steps[waiting.pop()] if not taken} - found
            found |= further
            waiting += further
        return frozenset(found)

    end, begins = 0, [new() for _ in patterns]
    for pattern, start in zip(patterns, begins, strict=True):
        add(pattern, start, end)
    first = [reached({start}) for start in begins]
    rows: list[list[int]] = [[REFUSED] * 256, [TAKEN] * 256]
    numbers: dict[frozenset[int], int] = {states: 2 + i for i, states in enumerate(dict.fromkeys(first))}
    for states in (waiting := list(numbers)):
        leads: dict[int, set[int]] = {}
        for state in states:
            for taken, to in steps[state]:
                for byte in taken:
                    leads.setdefault(byte, set()).add(to)
        row = [REFUSED] * 256
        for byte, to_states in leads.items():
            after = reached(to_states)
            if after not in numbers and end not in after:
                numbers[after] = 2 + len(numbers)
                waiting.append(after)
            row[byte] = TAKEN if end in after else numbers[after]
        rows.append(row)
    return np.array(rows, dtype=np.uint16), np.array([numbers[states] for states in first], dtype=np.uint16)
