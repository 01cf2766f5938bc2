"""The loops that find names in lines of plain text, in numba: rows of a table, and statements of N-Triples or N-Quads.

Called by `line_scanning`. They take what is written plainly, byte for byte as the parsers of tables and of RDF would
take it; of anything else they only say where it is, and the parsers decide.

Names are told as where they start, how long they are and their hash: `ends` in the order subject, object, subject, ...,
and `relations`.
"""

from __future__ import annotations

import numpy as np

from rgcn.data.name_loops import hash_of, loop

_ALPHA, _DIGIT = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", b"0123456789"


def _among(*groups: bytes) -> np.ndarray:
    table = np.zeros(256, dtype=np.uint8)
    table[list(b"".join(groups))] = 1
    return table


# RFC 3987, less what is rare enough to be left to the parser: user names, ports and brackets in the authority,
# characters beyond U+D7FF.
_LETTER, _LABEL = _among(_ALPHA), _among(_ALPHA, _DIGIT)
_SCHEME, _HOST = _among(_ALPHA, _DIGIT, b"+-."), _among(_ALPHA, _DIGIT, b"-._~")
_PATH = _among(_ALPHA, _DIGIT, b"-._~!$&'()*+,;=:@/?")
_HEX = _among(_DIGIT, b"abcdefABCDEF")
_ESCAPED = _among(b'"\\nrtbf')  # what stays as it is in the canonical form
_LOWER = _among(b"abcdefghijklmnopqrstuvwxyz")
_RDF = np.frombuffer(b"http://www.w3.org/1999/02/22-rdf-syntax-ns#", dtype=np.uint8)
_STRING = np.frombuffer(b"http://www.w3.org/2001/XMLSchema#string", dtype=np.uint8)
TAB, NEWLINE, RETURN, SPACE, QUOTE, HASH, PERCENT = (np.uint8(c) for c in b'\t\n\r "#%')
DOT, SLASH, COLON, OPEN, CLOSE, BACKSLASH, CARET, UNDERSCORE = (np.uint8(c) for c in b"./:<>\\^_")
_AT, _DASH, _QUESTION = (np.uint8(c) for c in b"@-?")


@loop
def character_at(text, at, end):  # type: ignore[no-untyped-def]
    """How many bytes the character beyond ASCII has that begins here; 0 where it is no UTF-8."""
    first = text[at]
    if first < 0xC2 or first > 0xF4:
        return 0
    size = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    if at + size > end:
        return 0
    for k in range(1, size):
        if text[at + k] & 0xC0 != 0x80:
            return 0
    second = text[at + 1]
    if (first == 0xE0 and second < 0xA0) or (first == 0xED and second > 0x9F):  # longer than need be, surrogates
        return 0
    if (first == 0xF0 and second < 0x90) or (first == 0xF4 and second > 0x8F):
        return 0
    return size


@loop
def _after_iri(text, at, end):  # type: ignore[no-untyped-def]
    """Where the absolute IRI ends that begins here after its <, at its >; -1 where it is not plainly one."""
    if at >= end or not _LETTER[text[at]]:
        return -1
    while at < end and _SCHEME[text[at]]:
        at += 1
    if at >= end or text[at] != COLON:
        return -1
    at += 1
    if at + 1 < end and text[at] == SLASH and text[at + 1] == SLASH:
        at += 2
        while at < end and _HOST[text[at]]:
            at += 1
        if at < end and text[at] not in (SLASH, _QUESTION, HASH, CLOSE):
            return -1
    fragment = False
    while at < end:
        byte = text[at]
        if _PATH[byte]:
            at += 1
        elif byte == CLOSE:
            return at
        elif byte >= 0xC2 and byte <= 0xED:
            size = character_at(text, at, end)
            if size == 0 or (byte == 0xC2 and text[at + 1] < 0xA0):
                return -1
            at += size
        elif byte == PERCENT:
            if at + 2 >= end or not (_HEX[text[at + 1]] and _HEX[text[at + 2]]):
                return -1
            at += 3
        elif byte == HASH and not fragment:
            fragment = True
            at += 1
        else:
            return -1
    return -1


@loop
def _begins(text, at, end, what):  # type: ignore[no-untyped-def]
    same = 0
    while same < len(what) and at + same < end and text[at + same] == what[same]:
        same += 1
    return same == len(what)


@loop
def _after_literal(text, at, end):  # type: ignore[no-untyped-def]
    """Where the literal ends whose opening quote is just before; -1 where it is not plainly one in canonical form."""
    while True:
        if at >= end:
            return -1
        byte = text[at]
        if byte == QUOTE:
            break
        if byte == BACKSLASH:
            if at + 1 >= end or not _ESCAPED[text[at + 1]]:
                return -1
            at += 2
        elif byte >= 0x80:
            size = character_at(text, at, end)
            if size == 0 or (byte == 0xEF and text[at + 1] == 0xBF and text[at + 2] >= 0xBE):
                return -1
            at += size
        elif byte < SPACE or byte == 0x7F:
            return -1
        else:
            at += 1
    at += 1
    if at < end and text[at] == _AT:
        begin = at + 1
        at = begin
        while at < end and _LOWER[text[at]]:
            at += 1
        if at - begin < 2 or at - begin > 3:
            return -1
        if at < end and text[at] == _DASH:
            begin = at + 1
            at = begin
            while at < end and _LOWER[text[at]]:
                at += 1
            if at - begin != 2 and at - begin != 4:
                return -1
    elif at + 2 < end and text[at] == CARET and text[at + 1] == CARET and text[at + 2] == OPEN:
        begin = at + 3
        at = _after_iri(text, begin, end)
        # The parser leaves out the type of a plain string, and refuses that of a text without its language.
        is_string = at - begin == len(_STRING) and _begins(text, begin, end, _STRING)
        if at < 0 or is_string or _begins(text, begin, end, _RDF):
            return -1
        at += 1
    return at


@loop
def _after_blank(text, at, end):  # type: ignore[no-untyped-def]
    """Where the label of a blank node ends that begins with an underscore; -1 where it is not plainly one."""
    if at + 2 >= end or text[at + 1] != COLON or not _LETTER[text[at + 2]]:
        return -1
    at += 3
    while at < end and _LABEL[text[at]]:
        at += 1
    return at


@loop
def _after_term(text, at, end, blanks, literals):  # type: ignore[no-untyped-def]
    """Where a term ends that begins here, at the white space after it; -1 where it is not plainly one."""
    if at >= end:
        return -1
    after = -1
    if text[at] == OPEN:
        after = _after_iri(text, at + 1, end) + 1
    elif text[at] == UNDERSCORE and blanks:
        after = _after_blank(text, at, end)
    elif text[at] == QUOTE and literals:
        after = _after_literal(text, at + 1, end)
    return after if 0 < after < end and text[after] in (SPACE, TAB) else -1


@loop
def _after_space(text, at, end):  # type: ignore[no-untyped-def]
    while at < end and text[at] in (SPACE, TAB):
        at += 1
    return at


@loop
def _skipped(text, at, end):  # type: ignore[no-untyped-def]
    """Whether a line says nothing: it is blank, or a remark of plain ASCII."""
    at = _after_space(text, at, end)
    if at < end and text[at] == HASH:
        while at < end and (text[at] == TAB or (text[at] >= SPACE and text[at] < 0x7F)):
            at += 1
    return at == end


@loop
def statements(text, quads, blanks, keep_literals, ends, relations, odd):  # type: ignore[no-untyped-def]
    """Find the triple of each line, (rows, odd lines). Of an odd line a row is left free, for the parser to fill.

    ends, relations  int64 starts, int64 lengths, uint32 hashes, each with room for all lines
    odd              int64 [lines, 3]: its row, and where the line starts and ends
    """
    ends_at, ends_length, ends_hash = ends
    relations_at, relations_length, relations_hash = relations
    rows = odds = line = 0
    size = len(text)
    while line < size:
        after = line
        while after < size and text[after] != NEWLINE:
            after += 1
        end = after
        if after < size and end > line and text[end - 1] == RETURN:
            end -= 1
        subject = line
        s = _after_term(text, subject, end, blanks, False)
        p = o = relation = object_ = -1
        if s > 0:
            relation = _after_space(text, s, end)
            p = _after_term(text, relation, end, False, False)
        if p > 0:
            object_ = _after_space(text, p, end)
            o = _after_term(text, object_, end, blanks, True)
        plain = o > 0
        if plain:
            at = _after_space(text, o, end)
            if quads and at < end and text[at] != DOT:
                g = _after_term(text, at, end, blanks, False)
                plain = g > 0
                at = _after_space(text, g, end)
            plain = plain and at + 1 == end and text[at] == DOT
        if not plain:
            if not _skipped(text, line, end):
                odd[odds, 0], odd[odds, 1], odd[odds, 2] = rows, line, end
                odds += 1
                rows += 1
        elif keep_literals or text[object_] != QUOTE:
            k = 2 * rows
            bare = text[subject] == OPEN
            ends_at[k], ends_length[k] = subject + bare, s - subject - 2 * bare
            ends_hash[k] = hash_of(text, ends_at[k], ends_length[k])
            relations_at[rows], relations_length[rows] = relation + 1, p - relation - 2
            relations_hash[rows] = hash_of(text, relation + 1, p - relation - 2)
            bare = text[object_] == OPEN
            ends_at[k + 1], ends_length[k + 1] = object_ + bare, o - object_ - 2 * bare
            ends_hash[k + 1] = hash_of(text, ends_at[k + 1], ends_length[k + 1])
            rows += 1
        line = after + 1
    return rows, odds


@loop
def table_rows(text, separator, quoted, width, columns, ends, relations):  # type: ignore[no-untyped-def]
    """Find the triple of each row; the number of rows, or -1 where not all are plain rows of `width` columns.

    columns  int64 [3]: where the subject, the relation and the object stand
    """
    ends_at, ends_length, ends_hash = ends
    relations_at, relations_length, relations_hash = relations
    rows = line = 0
    size = len(text)
    subject, relation, object_ = columns
    while line < size:
        if text[line] == NEWLINE or (text[line] == RETURN and (line + 1 == size or text[line + 1] == NEWLINE)):
            line += 1 if text[line] == NEWLINE else 2
            continue
        column, begin, at = 0, line, line
        while True:
            byte = text[at] if at < size else NEWLINE
            if byte in (separator, NEWLINE):
                end = at
                if byte == NEWLINE and end > begin and text[end - 1] == RETURN:
                    end -= 1
                if column == relation:
                    relations_at[rows], relations_length[rows] = begin, end - begin
                    relations_hash[rows] = hash_of(text, begin, end - begin)
                if column in (subject, object_):
                    k = 2 * rows + (column == object_)
                    ends_at[k], ends_length[k] = begin, end - begin
                    ends_hash[k] = hash_of(text, begin, end - begin)
                if end == begin and column in (subject, relation, object_):
                    return -1
                column += 1
                begin = at + 1
                if byte == NEWLINE:
                    break
                at += 1
            elif byte >= 0x80:
                length = character_at(text, at, size)
                if length == 0:
                    return -1
                at += length
            elif byte == 0 or (quoted and byte == QUOTE):
                return -1
            else:
                at += 1
        if column != width:
            return -1
        rows += 1
        line = at + 1
    return rows
