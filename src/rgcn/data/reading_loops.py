"""Compiled loops (numba) that find names in lines, number names, and sort rows by node.

`line_scanning`, `triple_collector` and `triple_rows` call them, and own the arrays. While a hash table of names grows,
its slots hold both the hash and the id of a name, so most other names are distinguished without reading them. Doubling
the table reads no name at all.
"""

from __future__ import annotations

import numpy as np

from rgcn.data.line_scanning import ACCEPTED, REFUSED
from rgcn.graph.name_loops import hash_of, loop, same, word_at
from rgcn.graph.vocabulary import MAX_PROBES

_TAB, _NEWLINE, _RETURN, _SPACE, _QUOTE, _HASH, _OPEN, _CLOSE = (np.uint8(c) for c in b'\t\n\r "#<>')
# The parser drops the datatype of plain strings, and refuses that of text with a language but no language tag.
_STRING, _LANG_STRING = (np.uint64(int.from_bytes(end, "little")) for end in (b"#string>", b"gString>"))
_HALF, _FULL = np.uint64(32), np.uint64(0xFFFFFFFF)
PREFETCH_NAMES = 64  # names whose memory is read ahead together, so that the waiting times overlap


@loop
def _is_blank(text, at, end, allows_comments):  # type: ignore[no-untyped-def]
    """Return whether a line is empty, or a comment in ASCII."""
    while allows_comments and at < end and (text[at] == _SPACE or text[at] == _TAB):
        at += 1
    if allows_comments and at < end and text[at] == _HASH:
        while at < end and (text[at] == _TAB or (text[at] >= _SPACE and text[at] < 0x7F)):
            at += 1
    return at == end


@loop
def find_triples(text, table, starts, columns, rdf, keep_literals, ends, relations, odd):  # type: ignore[no-untyped-def]
    """Find the triple of each line.

    Args:
        text: Lines as uint8; the last one ends with a line end too.
        table: The automaton of the fields (`line_scanning`).
        starts: The state in which each field begins.
        columns: Which fields are subject, relation and object, int64 [3].
        rdf: Whether the fields are RDF terms, with any white space between them and comments on their own lines.
        keep_literals: Whether to keep triples whose object is a literal.
        ends: Takes int64 starts, int64 lengths and uint32 hashes of the subject and object of each triple in turn.
        relations: Takes the same of relations.
        odd: Takes for each odd line, which needs a parser: its row, where it starts and where it ends, int64
            [num_lines, 3].

    Returns:
        The number of rows, with one left free for each odd line, and the number of odd lines.
    """
    begins, afters = np.empty(len(starts), dtype=np.int64), np.empty(len(starts), dtype=np.int64)
    last, object_ = len(starts) - 1, columns[2]
    rows = odds = at = 0
    while at < len(text):
        line, state = at, np.uint16(ACCEPTED)
        for field in range(len(starts)):
            begins[field], state = at, starts[field]
            while state > ACCEPTED:
                state = table[state, text[at]]
                at += 1
            if state == REFUSED:
                break
            afters[field] = at - 1
            while rdf and field < last and (text[at] == _SPACE or text[at] == _TAB):
                at += 1
        plain, keep = state == ACCEPTED, True
        if plain and rdf:
            after = afters[object_]
            is_literal = text[begins[object_]] == _QUOTE
            keep = keep_literals or not is_literal
            if is_literal and text[after - 1] == _CLOSE:
                kind = word_at(text, after - 8)
                plain = kind != _STRING and kind != _LANG_STRING
        elif plain:
            while afters[last] > begins[last] and text[afters[last] - 1] == _RETURN:
                afters[last] -= 1
            for column in columns:
                plain = plain and begins[column] < afters[column]
        if plain and keep:
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
            if not _is_blank(text, line, end, rdf):
                odd[odds, 0], odd[odds, 1], odd[odds, 2] = rows, line, end
                odds += 1
                rows += 1
    return rows, odds


@loop
def number(text, bounds, count, slots, source, starts, lengths, hashes, ids):  # type: ignore[no-untyped-def]
    """Number names: a name gets the id of an equal one before it, or else the next id.

    Args:
        text: The text of all names so far, uint8, with space for the new ones.
        bounds: Where in it each name begins, and where the last one ends, int64, with space for new ones.
        count: Number of names so far.
        slots: Hash table: hash and id + 1 of a name, or 0, uint64. At most a share `MAX_LOAD` of the slots is used
            even if all names are new.
        source: The text that the names to number are in, uint8.
        starts: Where in it they start.
        lengths: Their lengths.
        hashes: Their hashes.
        ids: Takes their ids.

    Returns:
        The new number of names, or -1 if too many names have similar hashes; and a number without meaning, which keeps
        the compiler from removing the loops that read ahead.
    """
    shift = np.uint64(32 - np.int64(np.log2(len(slots))))
    last = np.int64(len(slots) - 1)
    seen = np.uint64(0)
    for first in range(0, len(starts), PREFETCH_NAMES):
        end = min(first + PREFETCH_NAMES, len(starts))
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
                        text[begin + k] = source[starts[i] + k]
                    count += 1
                    bounds[count] = begin + length
                    slots[at] = (tag << _HALF) | np.uint64(count)
                    ids[i] = np.int32(count - 1)
                    break
                if slot >> _HALF == tag:
                    one = np.int64(slot & _FULL) - 1
                    begin = bounds[one]
                    if bounds[one + 1] - begin == length and same(text, begin, source, starts[i], length):
                        ids[i] = np.int32(one)
                        break
                at = (at + 1) & last
                tries += 1
                if tries > MAX_PROBES:
                    return -1, seen
    return count, seen


@loop
def spread(slots, wider):  # type: ignore[no-untyped-def]
    """Copy a hash table into a larger one; return False if a slot is too far from where it belongs."""
    shift = np.uint64(32 - np.int64(np.log2(len(wider))))
    last = np.int64(len(wider) - 1)
    for i in range(len(slots)):
        if slots[i]:
            at = np.int64((slots[i] >> _HALF) >> shift)
            tries = 0
            while wider[at]:
                at = (at + 1) & last
                tries += 1
                if tries > MAX_PROBES:
                    return False
            wider[at] = slots[i]
    return True


@loop
def sort_by_counting(rows, column, low, places, order):  # type: ignore[no-untyped-def]
    """Write the number of each row with a node from `low` on to the next place of that node in `order`."""
    for i in range(len(rows)):
        key = rows[i, column] - low
        if 0 <= key < len(places):
            order[places[key]] = i
            places[key] += 1


@loop
def find_duplicates(rows, splits, times, order, ends, is_first, remaining, keys):  # type: ignore[no-untyped-def]
    """Find rows that are duplicates of another row of the same subject.

    Args:
        rows: Ids of subject, relation and object, [num_rows, 3].
        splits: Split of each row, int8 [num_rows], or an empty array.
        times: Time of each row, float64 [num_rows], or an empty array; changed to the earliest time of duplicates.
        order: Numbers of the rows, by subject.
        ends: Where in `order` those of each subject end.
        is_first: Set to False for duplicates, bool [num_rows].
        remaining: Takes the numbers of rows whose subject has more rows than `keys`.
        keys: Zeros to work with, int64 [max_rows, 3].

    Returns:
        How many rows were written to `remaining`.
    """
    first = left = 0
    for end in ends:
        if end - first > len(keys):
            for i in range(first, end):
                remaining[left] = order[i]
                left += 1
        elif end - first > 1:
            for i in range(end - first):
                row = order[first + i]
                keys[i, 0], keys[i, 1] = rows[row, 2], rows[row, 1]
                if len(splits):
                    keys[i, 2] = splits[row]
                for j in range(i):
                    if keys[i, 0] == keys[j, 0] and keys[i, 1] == keys[j, 1] and keys[i, 2] == keys[j, 2]:
                        is_first[row] = False
                        if len(times):
                            times[order[first + j]] = min(times[order[first + j]], times[row])
                        break
        first = end
    return left
