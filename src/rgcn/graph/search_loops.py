"""The loops that make an index of names, in numba: they spell names, and list the names that hold three letters.

`spell` writes what `titles` and `name_search` say of plain ASCII, byte by byte. Whoever changes `local_name`,
`literal_text`, `folded` or what somebody may be called changes it here too; a property test compares them. Names that
are not ASCII, that may be percent-encoded, or whose last part is cut for its length, are left to Python.
"""

from __future__ import annotations

import numpy as np

from rgcn.graph.hash_loops import hash_of, loop, same
from rgcn.graph.name_search import EDGE, LONGEST_NAME

LONGEST_TITLE = 120  # letters of a literal's text
KEYS = 5  # that one may have at most: title, name's beginning, what follows a prefix, last part, whole name
_EDGE = np.uint8(ord(EDGE))
_SPACE, _QUOTE, _ESCAPE, _NEWLINE, _COLON, _SLASH, _HASH, _LINE, _PERCENT = (np.uint8(c) for c in b' "\\\n:/#_%')
_ELLIPSIS = np.frombuffer("…".encode(), dtype=np.uint8)
_BLANKS = np.frombuffer(b"nrtbf", dtype=np.uint8)
_HALF = np.uint64(32)


@loop
def _is_space(letter):  # type: ignore[no-untyped-def]
    return letter == 32 or 9 <= letter <= 13 or 28 <= letter <= 31


@loop
def _is_plain(text, begin, end):  # type: ignore[no-untyped-def]
    seen = np.uint8(0)
    for at in range(begin, end):
        seen |= text[at]
    return seen < 128


@loop
def _has(letter, text, begin, end):  # type: ignore[no-untyped-def]
    at = begin
    while at < end and text[at] != letter:
        at += 1
    return at < end


@loop
def _fold(text, begin, end, to, place):  # type: ignore[no-untyped-def]
    """Write `folded` of a piece of text; where it ends."""
    first, waits = place, False
    for at in range(begin, end):
        letter = text[at]
        if letter == _LINE or _is_space(letter):
            waits = place > first
            continue
        if waits:
            to[place], waits = _SPACE, False
            place += 1
        to[place] = letter + 32 if 65 <= letter <= 90 else letter
        place += 1
    return place


@loop
def _edged(text, begin, end, to, place):  # type: ignore[no-untyped-def]
    """Write `folded` of a piece of text between edges; where it ends."""
    to[place] = _EDGE
    place = _fold(text, begin, end, to, place + 1)
    to[place] = _EDGE
    return place + 1


@loop
def _key(text, begin, end, node):  # type: ignore[no-untyped-def]
    return np.uint64(hash_of(text, begin, end - begin)) << _HALF | np.uint64(node)


@loop
def _after_scheme(text, begin, end):  # type: ignore[no-untyped-def]
    """Where :// stands; -1: nowhere."""
    for at in range(begin, end - 2):
        if text[at] == _COLON and text[at + 1] == _SLASH and text[at + 2] == _SLASH:
            return at
    return -1


@loop
def _last_part(text, begin, end):  # type: ignore[no-untyped-def]
    """`local_name`: where it begins and ends."""
    if text[begin] == _QUOTE or _after_scheme(text, begin, min(end, begin + 12)) < 0:
        return begin, end
    stem = end
    while text[stem - 1] == _SLASH or text[stem - 1] == _HASH:
        stem -= 1
    at = stem
    while at > begin and text[at - 1] != _SLASH and text[at - 1] != _HASH:
        at -= 1
    return at, stem


@loop
def _title(text, begin, end, to):  # type: ignore[no-untyped-def]
    """Write `shortened(literal_text(...))`; how long it is."""
    last = end - 1
    while last > begin and text[last] != _QUOTE:
        last -= 1
    size, at, waits = 0, begin + 1, False
    if text[begin] != _QUOTE or last == begin:
        size = end - begin
        to[:size] = text[begin:end]
    else:
        while at < last:
            letter = text[at]
            if letter == _ESCAPE and at + 1 < last and text[at + 1] != _NEWLINE:
                at += 1
                letter = text[at]
                for blank in _BLANKS:
                    letter = _SPACE if letter == blank else letter
            at += 1
            if _is_space(letter):
                waits = size > 0
                continue
            if waits:
                to[size], waits = _SPACE, False
                size += 1
            to[size] = letter
            size += 1
    if size > LONGEST_TITLE:
        size = LONGEST_TITLE - 1
        while size > 0 and _is_space(to[size - 1]):
            size -= 1
        for letter in _ELLIPSIS:
            to[size] = letter
            size += 1
    return size


@loop
def spell(text, ends, nodes, kinds, titles, literal, to, sizes, keys, odd, room):  # type: ignore[no-untyped-def]
    """Write the entries of some nodes; (bytes, keys, odd ones) that were written.

    text, ends  the names (`stored_names`)
    nodes       int64 [n]: whom to write, in this order
    kinds       uint8 [N], of which `literal` is one; or none
    titles      int32 [N]: a literal that is a node's title, or -1; or none
    to          uint8: the text, with room for twice the names, 130 bytes for a title, and edges
    sizes       int64 [n]: bytes of each entry; 0: an odd one
    keys        uint64: hash of what somebody is called, and who
    odd         int64 [n]: places of those that are not plain
    room        uint8 [2, m]: for a piece of text, and a title
    """
    scratch, titled = room[0], room[1]
    place = count = odds = 0
    for i in range(len(nodes)):
        node, start = nodes[i], place
        begin, end = ends[node - 1] if node else 0, ends[node]
        named = np.int64(-1)
        if len(kinds):
            named = np.int64(titles[node]) if titles[node] >= 0 else node if kinds[node] == literal else named
        from_, until = begin, end
        if named >= 0:
            from_, until = ends[named - 1] if named else 0, ends[named]
        plain = begin < end and from_ < until and _is_plain(text, begin, end)
        plain = plain and (text[begin] == _QUOTE or not _has(_PERCENT, text, begin, end))
        last, last_end = _last_part(text, begin, end) if plain else (begin, end)
        plain = plain and (named >= 0 or last_end - last <= LONGEST_TITLE)
        if not plain or (from_ != begin and not _is_plain(text, from_, until)):
            odd[odds], sizes[i] = i, 0
            odds += 1
            continue
        after = min(end, begin + LONGEST_NAME)
        if named >= 0:
            size = _title(text, from_, until, titled)
            is_last = size == last_end - last and same(titled, 0, text, last, size)
            is_name = size == after - begin and same(titled, 0, text, begin, size)
        else:
            size, is_last, is_name = 0, True, last == begin and last_end == after
        after_title = _edged(titled, 0, size, to, place) if named >= 0 else _edged(text, last, last_end, to, place)
        keys[count] = _key(to, place + 1, after_title - 1, node)
        count, place = count + 1, after_title
        if not is_name:
            after_name = _edged(text, begin, after, to, place)
            keys[count] = _key(to, place + 1, after_name - 1, node)
            count, place = count + 1, after_name
        sizes[i] = place - start
        if not is_last and (last > begin or last_end < end):
            keys[count] = _key(scratch, 0, _fold(text, last, last_end, scratch, 0), node)
            count += 1
        if after < end:
            keys[count] = _key(scratch, 0, _fold(text, begin, end, scratch, 0), node)
            count += 1
        colon = begin
        while colon < end and text[colon] != _COLON:
            colon += 1
        blank = text[begin] == _LINE and colon == begin + 1
        if colon < end and text[begin] != _QUOTE and not blank and _after_scheme(text, begin, end) < 0:
            scratch[0] = _COLON
            keys[count] = _key(scratch, 0, _fold(text, colon + 1, end, scratch, 1), node)
            count += 1
    return place, count, odds


@loop
def count_grams(text, bounds, kinds, counts):  # type: ignore[no-untyped-def]
    """Add to counts how many entries hold each sequence of three letters."""
    last = np.full(len(counts), -1, np.int32)
    for entry in range(len(bounds) - 1):
        gram = np.int64(kinds[text[bounds[entry]]]) << 6
        gram |= np.int64(kinds[text[bounds[entry] + 1]])
        for at in range(bounds[entry] + 2, bounds[entry + 1] + 1):
            gram = ((gram << 6) | np.int64(kinds[text[at]])) & 0x3FFFF
            if last[gram] != entry:
                last[gram] = entry
                counts[gram] += 1


@loop
def fill_grams(text, bounds, kinds, number, first, places, part):  # type: ignore[no-untyped-def]
    """Write the entries, of which the first has this number, that hold the sequences from `first` on.

    places  int64: where the next entry of each sequence is written; -1: nowhere
    """
    last = np.full(len(places), -1, np.int32)
    for entry in range(len(bounds) - 1):
        gram = np.int64(kinds[text[bounds[entry]]]) << 6
        gram |= np.int64(kinds[text[bounds[entry] + 1]])
        for at in range(bounds[entry] + 2, bounds[entry + 1] + 1):
            gram = ((gram << 6) | np.int64(kinds[text[at]])) & 0x3FFFF
            one = gram - first
            if 0 <= one < len(places) and last[one] != entry and places[one] >= 0:
                last[one] = entry
                part[places[one]] = number + entry
                places[one] += 1
