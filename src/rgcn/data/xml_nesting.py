"""Keeps deeply nested XML from the parser of RDF/XML, which takes longer for an element the deeper it stands."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rgcn.data.files import MAX_NESTING
from rgcn.errors import DataError

# Attributes are compared with each other, so their cost grows with the square; people's elements have a few dozen.
MAX_ATTRIBUTES = 1000
# How much of a tag may be waited for; 1,000 attributes of a long IRI each fit.
MAX_TAG_BYTES = 1 << 20

# A tag as the parser sees it: in quotes anything may stand, even < and >.
_TAG = re.compile(rb"""<[^>"']*(?:(?:"[^"]*"|'[^']*')[^>"']*)*>""")
_QUOTED = re.compile(rb""""[^"]*"|'[^']*'""")
_ENDS = {b"<!--": b"-->", b"<![": b"]]>", b"<?": b"?>"}
_LONGEST_OPENING = len(b"<!--")
# A document type that ends in the same place for every reader: no < or > in what it quotes or remarks.
_DOCUMENT_TYPE = re.compile(rb"<![Dd][^<>\[]*(?:\[[^<>\]]*(?:<![^<>]*>[^<>\]]*)*\]\s*)?>")
_NO_MARKS = bytes(set(range(256)) - set(b"<>\"'"))
_ELEMENT = re.compile(rb"<[^!]")


class XmlNestingGuard:
    """Follows how many elements are open, piece by piece.

    Almost every file is plain, and its tags are counted a piece at a time. What could mislead the count (tags in
    comments, in CDATA sections or in attributes) is looked at tag by tag.

    >>> guard = XmlNestingGuard(Path("a.rdf"))
    >>> guard.check(b"<a><!-- </a></a> --><b c='/>'/>")
    >>> guard.check(b"<a>" * 1000)
    Traceback (most recent call last):
    rgcn.errors.DataError: a.rdf: refused, because its elements are nested more than 500 deep...
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._depth = 0
        self._held = b""
        self._until = b""  # what ends the comment, CDATA section or instruction that is open
        self._begun = False  # whether an element was seen

    def check(self, data: bytes) -> None:
        """Raise DataError where the elements of all data so far are nested too deep, or one has too many attributes."""
        data = self._held + data
        steps = None if self._until else self._quickly(data)
        if steps is None:
            self._tag_by_tag(data)
        elif len(steps):
            self._begun = True
            depths = self._depth + np.cumsum(steps, dtype=np.int64)
            self._enter(int(depths.max()))
            self._depth = int(depths[-1])
        if len(self._held) > MAX_TAG_BYTES:
            self._refuse(f"a tag is longer than {MAX_TAG_BYTES >> 10} KiB", "is the file XML at all?")

    def _quickly(self, data: bytes) -> NDArray[np.int8] | None:
        """+1, 0 or -1 for each tag, where all that stands between < and > plainly is a tag; else None.

        Quotes that stand side by side, with no bracket or other quote between them, close each other. Where that leaves
        none in any tag, each < is the beginning of a tag and the next > its end.
        """
        last = data.rfind(b"<")
        complete = data if last < 0 or b">" in data[last:] else data[:last]
        marks = complete.translate(None, _NO_MARKS)
        for pair in (b'""', b"''"):
            if pair * MAX_ATTRIBUTES in marks:
                return None
            marks = marks.replace(pair, b"")
        if marks.replace(b"<>", b"").strip(b"\"'"):
            return None
        text = np.frombuffer(complete, dtype=np.uint8)
        brackets = np.flatnonzero((text == ord("<")) | (text == ord(">")))
        after, before = text[brackets[::2] + 1], text[brackets[1::2] - 1]
        if ((after == ord("!")) | (after == ord("?"))).any():
            return None
        self._held = data[len(complete) :]
        ends = after == ord("/")
        return np.where(ends, -1, before != ord("/")).astype(np.int8)

    def _tag_by_tag(self, data: bytes) -> None:
        position = 0
        while True:
            if self._until:
                end = data.find(self._until, position)
                if end < 0:
                    self._held = data[max(position, len(data) - len(self._until) + 1) :]
                    return
                position, self._until = end + len(self._until), b""
            position = data.find(b"<", position)
            if position < 0 or len(data) - position < _LONGEST_OPENING:
                self._held = b"" if position < 0 else data[position:]
                return
            opening = next((o for o in _ENDS if data.startswith(o, position)), None)
            if opening is not None:
                self._until, position = _ENDS[opening], position + len(opening)
                continue
            declares = data.startswith((b"<!D", b"<!d"), position)
            token = (_DOCUMENT_TYPE if declares else _TAG).match(data, position)
            if declares and (self._begun or (token is None and _ELEMENT.search(data, position))):
                # The parser would take it, and in what it holds an element could be hidden, or seem to be one.
                self._refuse("a document type stands within the document or declares markup", "take it out")
            if token is None:
                self._held = data[position:]
                return
            if not declares:
                self._count(token.group())
            position = token.end()

    def _count(self, tag: bytes) -> None:
        self._limit_attributes(len(_QUOTED.findall(tag)))
        if tag.startswith(b"</"):
            self._depth = max(0, self._depth - 1)
        elif not tag.endswith(b"/>"):
            self._enter(self._depth + 1)
            self._depth += 1
        self._begun = True

    def _enter(self, depth: int) -> None:
        if depth > MAX_NESTING:
            self._refuse(
                f"its elements are nested more than {MAX_NESTING} deep",
                "write it flat, each node a description of its own that others refer to by rdf:resource",
            )

    def _limit_attributes(self, count: int) -> None:
        if count > MAX_ATTRIBUTES:
            self._refuse(f"an element has more than {MAX_ATTRIBUTES:,} attributes", "write them as elements")

    def _refuse(self, reason: str, advice: str) -> None:
        raise DataError(f"{self._path}: refused, because {reason}; {advice}")
