"""The loop that finds names in lines of plain text, in numba; called by `line_scanning`."""

from __future__ import annotations

import numpy as np

from rgcn.data.line_grammar import REFUSED, TAKEN
from rgcn.graph.hash_loops import hash_of, loop, word_at

_TAB, _NEWLINE, _RETURN, _SPACE, _QUOTE, _HASH, _OPEN, _CLOSE = (np.uint8(c) for c in b'\t\n\r "#<>')
# The parser leaves out the type of a plain string, and refuses that of a text without its language.
_STRING, _LANG_STRING = (np.uint64(int.from_bytes(end, "little")) for end in (b"#string>", b"gString>"))


@loop
def _says_nothing(text, at, end, remarks):  # type: ignore[no-untyped-def]
    """Whether a line is blank, or a remark of plain ASCII."""
    while remarks and at < end and (text[at] == _SPACE or text[at] == _TAB):
        at += 1
    if remarks and at < end and text[at] == _HASH:
        while at < end and (text[at] == _TAB or (text[at] >= _SPACE and text[at] < 0x7F)):
            at += 1
    return at == end


@loop
def find_triples(text, table, starts, columns, rdf, keep_literals, ends, relations, odd):  # type: ignore[no-untyped-def]
    """Find the triple of each line, (rows, odd lines). Of an odd line a row is left free, for a parser to fill.

    text             uint8: lines, the last one ended too
    table, starts    the automaton of the fields (`line_grammar`)
    columns          int64 [3]: which fields are the subject, the relation and the object
    rdf              whether these are terms, with any white space between them and remarks on lines of their own
    ends, relations  int64 starts, int64 lengths, uint32 hashes, with room for all lines; `ends` has subject and object
                     of each triple in turn
    odd              int64 [lines, 3]: the row, and where the line starts and ends
    """
    begins, afters = np.empty(len(starts), dtype=np.int64), np.empty(len(starts), dtype=np.int64)
    last, object_ = len(starts) - 1, columns[2]
    rows = odds = at = 0
    while at < len(text):
        line, state = at, np.uint16(TAKEN)
        for field in range(len(starts)):
            begins[field], state = at, starts[field]
            while state > TAKEN:
                state = table[state, text[at]]
                at += 1
            if state == REFUSED:
                break
            afters[field] = at - 1
            while rdf and field < last and (text[at] == _SPACE or text[at] == _TAB):
                at += 1
        plain, kept = state == TAKEN, True
        if plain and rdf:
            after = afters[object_]
            is_literal = text[begins[object_]] == _QUOTE
            kept = keep_literals or not is_literal
            if is_literal and text[after - 1] == _CLOSE:
                kind = word_at(text, after - 8)
                plain = kind != _STRING and kind != _LANG_STRING
        elif plain:
            while afters[last] > begins[last] and text[afters[last] - 1] == _RETURN:
                afters[last] -= 1
            for column in columns:
                plain = plain and begins[column] < afters[column]
        if plain and kept:
            for k in range(3):
                begin, after = begins[columns[k]], afters[columns[k]]
                bare = rdf and text[begin] == _OPEN
                begin, length = begin + bare, after - begin - 2 * bare
                to, place = (relations, rows) if k == 1 else (ends, 2 * rows + k // 2)
                to[0][place], to[1][place], to[2][place] = begin, length, hash_of(text, begin, length)
            rows += 1
        elif not plain:
            at = line
            while text[at] != _NEWLINE:
                at += 1
            end = at
            while end > line and text[end - 1] == _RETURN:
                end -= 1
            at += 1
            if not _says_nothing(text, line, end, rdf):
                odd[odds, 0], odd[odds, 1], odd[odds, 2] = rows, line, end
                odds += 1
                rows += 1
    return rows, odds
