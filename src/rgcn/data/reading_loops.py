"""The loops of reading, in numba: they find names in lines, turn names into numbers, and order rows by their nodes.

`line_scanning`, `triple_collector` and `triple_rows` call them, and own the arrays. A table of names has in its slots a
name's hash beside its id while it grows, so that other names are told apart without being read, and doubling the table
reads no name at all.
"""

from __future__ import annotations

import numpy as np

from rgcn.data.line_scanning import REFUSED, TAKEN
from rgcn.graph.name_loops import hash_of, loop, same, word_at
from rgcn.graph.vocabulary import FURTHEST

_TAB, _NEWLINE, _RETURN, _SPACE, _QUOTE, _HASH, _OPEN, _CLOSE = (np.uint8(c) for c in b'\t\n\r "#<>')
# The parser leaves out the type of a plain string, and refuses that of a text without its language.
_STRING, _LANG_STRING = (np.uint64(int.from_bytes(end, "little")) for end in (b"#string>", b"gString>"))
_HALF, _FULL = np.uint64(32), np.uint64(0xFFFFFFFF)
AT_ONCE = 64  # names whose places in memory are asked for together, so that they are waited for together


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


@loop
def number(text, bounds, count, slots, given, starts, lengths, hashes, ids):  # type: ignore[no-untyped-def]
    """Give each name its id: that of an equal one before it, or the next. The new number of names; -1: too far to look.

    text    uint8     all names so far, with room for those given
    bounds  int64     where in it each begins, and where the last ends; with room
    slots   uint64    hash and id + 1 of a name; 0: free. At most `FULLEST` of them are taken, were all given ones new
    given   uint8     what the names to number are read from
    """
    shift = np.uint64(32 - np.int64(np.log2(len(slots))))
    last = np.int64(len(slots) - 1)
    seen = np.uint64(0)
    for first in range(0, len(starts), AT_ONCE):
        end = min(first + AT_ONCE, len(starts))
        for i in range(first, end):
            slot = slots[np.int64(np.uint64(hashes[i]) >> shift)]
            seen += slot
            ids[i] = np.int32(slot & _FULL) - 1 if slot >> _HALF == hashes[i] else -1
        for i in range(first, end):
            if ids[i] >= 0:
                seen += np.uint64(bounds[ids[i] + 1])
        for i in range(first, end):
            if ids[i] >= 0:
                seen += np.uint64(text[bounds[ids[i]]])
        for i in range(first, end):
            tag, length = np.uint64(hashes[i]), np.int64(lengths[i])
            at = np.int64(tag >> shift)
            tries = 0
            while True:
                slot = slots[at]
                if slot == 0:
                    begin = bounds[count]
                    for k in range(length):
                        text[begin + k] = given[starts[i] + k]
                    count += 1
                    bounds[count] = begin + length
                    slots[at] = (tag << _HALF) | np.uint64(count)
                    ids[i] = np.int32(count - 1)
                    break
                if slot >> _HALF == tag:
                    one = np.int64(slot & _FULL) - 1
                    begin = bounds[one]
                    if bounds[one + 1] - begin == length and same(text, begin, given, starts[i], length):
                        ids[i] = np.int32(one)
                        break
                at = (at + 1) & last
                tries += 1
                if tries > FURTHEST:
                    return -1, seen
    return count, seen


@loop
def spread(slots, wider):  # type: ignore[no-untyped-def]
    """Put what is in the slots into more of them. False: one lies too far from where it belongs."""
    shift = np.uint64(32 - np.int64(np.log2(len(wider))))
    last = np.int64(len(wider) - 1)
    for i in range(len(slots)):
        if slots[i]:
            at = np.int64((slots[i] >> _HALF) >> shift)
            tries = 0
            while wider[at]:
                at = (at + 1) & last
                tries += 1
                if tries > FURTHEST:
                    return False
            wider[at] = slots[i]
    return True


@loop
def put_in_order(rows, column, low, places, order):  # type: ignore[no-untyped-def]
    """Write the numbers of the rows whose column is `low` or one of the next where `places` says, which move on."""
    for i in range(len(rows)):
        key = rows[i, column] - low
        if 0 <= key < len(places):
            order[places[key]] = i
            places[key] += 1


@loop
def find_repeats(rows, splits, times, order, ends, kept, many, keys):  # type: ignore[no-untyped-def]
    """Mark rows that repeat another of their subject; how many are of subjects with too many rows, written to `many`.

    order, ends  rows by subject, and where those of each end
    splits       int8 [T], or none; times  float64 [T], or none: become the earliest of those that repeat
    keys         int64 [k, 3], zero: room for the rows of a subject that has no more
    """
    first = left = 0
    for end in ends:
        if end - first > len(keys):
            for i in range(first, end):
                many[left] = order[i]
                left += 1
        elif end - first > 1:
            for i in range(end - first):
                row = order[first + i]
                keys[i, 0], keys[i, 1] = rows[row, 2], rows[row, 1]
                if len(splits):
                    keys[i, 2] = splits[row]
                for j in range(i):
                    if keys[i, 0] == keys[j, 0] and keys[i, 1] == keys[j, 1] and keys[i, 2] == keys[j, 2]:
                        kept[row] = False
                        if len(times):
                            times[order[first + j]] = min(times[order[first + j]], times[row])
                        break
        first = end
    return left
