"""Guards against documents that were made to hurt their parser: what they read is checked before the parser sees it.

Entities that expand without end, elements or brackets within each other so deep that parsing takes forever or overflows
the parser's stack. Each guard is handed the document piece by piece, and raises DataError where it must not be read.
"""

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rgcn.errors import DataError

# Brackets or elements within each other. People's files stay below a few dozen; the parsers of RDF/XML and JSON-LD take
# time or stack that grows with the depth for everything inside.
MAX_NESTING = 500


class _Guard:
    nested, flat = "", ""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._depth = 0

    def _follow(self, steps: NDArray[np.int64]) -> None:
        """Go deeper by 1, or up again by -1, with each step."""
        if len(steps):
            depths = self._depth + np.cumsum(steps)
            self._enter(int(depths.max()))
            self._depth = int(depths[-1])

    def _enter(self, depth: int) -> None:
        if depth > MAX_NESTING:
            self._refuse(f"its {self.nested} are nested more than {MAX_NESTING} deep", self.flat)
        self._depth = depth

    def _refuse(self, reason: str, advice: str) -> None:
        raise DataError(f"{self._path}: refused, because {reason}; {advice}")


# -- brackets in JSON: the parser of JSON-LD has a stack that they overflow --------------------------------

_NO_JSON_MARKS = bytes(set(range(256)) - set(b'"[]{}'))
_JSON_STRING = re.compile(rb'"[^"]*"')
_JSON_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_STEP = np.zeros(256, dtype=np.int64)
_STEP[list(b"[{")], _STEP[list(b"]}")] = 1, -1


class JsonNestingGuard(_Guard):
    """Follows how many brackets are open, piece by piece; brackets within strings are text.

    >>> guard = JsonNestingGuard(Path("a.jsonld"))
    >>> guard.check(b'{"p": ["]]]]", ')
    >>> guard.check(b"[" * 1000)
    Traceback (most recent call last):
    rgcn.errors.DataError: a.jsonld: refused, because its brackets are nested more than 500 deep...
    """

    nested = "brackets"
    flat = "write it flat, each node an object of its own that others refer to by @id"
    _in_string = _escaped = False

    def check(self, data: bytes) -> None:
        """Raise DataError where the brackets of all data so far are nested too deep."""
        if self._escaped:
            data = b"\\" + data
        self._escaped = (len(data) - len(data.rstrip(b"\\"))) % 2 == 1  # by the last backslash, what comes next
        escapes_gone = _JSON_ESCAPE.sub(b"", data)  # such a quote ends no string
        marks = (b'"' if self._in_string else b"") + escapes_gone.translate(None, _NO_JSON_MARKS)
        outside = _JSON_STRING.sub(b"", marks.replace(b'""', b""))
        self._in_string = outside.count(b'"') == 1
        outside = outside.partition(b'"')[0]
        self._follow(_STEP[np.frombuffer(outside, dtype=np.uint8)])


# -- elements in XML: the parser of RDF/XML takes longer for an element the deeper it stands ---------------

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


class XmlNestingGuard(_Guard):
    """Follows how many elements are open, piece by piece.

    Almost every file is plain, and its tags are counted a piece at a time. What could mislead the count (tags in
    comments, in CDATA sections or in attributes) is looked at tag by tag.

    >>> guard = XmlNestingGuard(Path("a.rdf"))
    >>> guard.check(b"<a><!-- </a></a> --><b c='/>'/>")
    >>> guard.check(b"<a>" * 1000)
    Traceback (most recent call last):
    rgcn.errors.DataError: a.rdf: refused, because its elements are nested more than 500 deep...
    """

    nested = "elements"
    flat = "write it flat, each node a description of its own that others refer to by rdf:resource"
    _held = b""
    _until = b""  # what ends the comment, CDATA section or instruction that is open
    _begun = False  # whether an element was seen

    def check(self, data: bytes) -> None:
        """Raise DataError where the elements of all data so far are nested too deep, or one has too many attributes."""
        data = self._held + data
        steps = None if self._until else self._quickly(data)
        if steps is None:
            self._tag_by_tag(data)
        elif len(steps):
            self._begun = True
            self._follow(steps)
        if len(self._held) > MAX_TAG_BYTES:
            self._refuse(f"a tag is longer than {MAX_TAG_BYTES >> 10} KiB", "is the file XML at all?")

    def _quickly(self, data: bytes) -> NDArray[np.int64] | None:
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
        return np.where(ends, -1, before != ord("/")).astype(np.int64)

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
        if len(_QUOTED.findall(tag)) > MAX_ATTRIBUTES:
            self._refuse(f"an element has more than {MAX_ATTRIBUTES:,} attributes", "write them as elements")
        if tag.startswith(b"</"):
            self._depth = max(0, self._depth - 1)
        elif not tag.endswith(b"/>"):
            self._enter(self._depth + 1)
        self._begun = True


# -- entities in XML: the parser expands whatever a document type declares ---------------------------------

MAX_ENTITY_BYTES = 2048
MAX_DECLARATION_BYTES = MAX_ENTITY_BYTES + 512
ENTITY_EXPANSION_ALWAYS_ALLOWED = 256 << 20
MAX_ENTITY_EXPANSION_RATIO = 50
_DECLARATION = re.compile(rb"""<!ENTITY\s+[^\s"'%&<>]+\s+("[^"]*"|'[^']*')\s*>""")


class EntityGuard(_Guard):
    """Lets pass the plain abbreviations of namespaces that ontologies declare, and nothing cleverer.

    Entities made of other entities grow exponentially ("billion laughs"), long ones quadratically, external ones
    would read other files. All are refused before the parser sees them.

    >>> guard = EntityGuard(Path("a.owl"))
    >>> guard.passed(b'<!ENTITY owl "http://www.w3.org/2002/07/owl#">', last=True)
    b'<!ENTITY owl "http://www.w3.org/2002/07/owl#">'
    >>> guard.passed(b'<!ENTITY big "&small;&small;">', last=True)
    Traceback (most recent call last):
    rgcn.errors.DataError: a.owl: refused, because an entity is declared through other entities (...
    """

    _held = b""
    _longest = _references = _seen = 0

    def passed(self, data: bytes, last: bool) -> bytes:
        """The bytes that are safe to hand on; a declaration cut by the end of `data` waits for the next call."""
        data = self._held + data
        safe = len(data)
        if not last:
            # "<!ENTITY" itself may be cut, so its possible beginnings wait as well
            begun = data.rfind(b"<!", max(0, len(data) - MAX_DECLARATION_BYTES))
            safe = begun if begun >= 0 else len(data) - data.endswith(b"<")
        position = data.find(b"<!ENTITY")
        while 0 <= position < safe:
            if not last and len(data) - position < MAX_DECLARATION_BYTES:
                safe = position
                break
            self._check(data[position : position + MAX_DECLARATION_BYTES])
            position = data.find(b"<!ENTITY", position + 1)
        self._held = data[safe:]
        self._count_references(data[:safe])
        return data[:safe]

    def _check(self, declaration: bytes) -> None:
        match = _DECLARATION.match(declaration)
        value = match.group(1)[1:-1] if match else b""
        if match is None or len(value) > MAX_ENTITY_BYTES:
            self._refuse_bomb(f"an entity is external, malformed or longer than {MAX_ENTITY_BYTES} bytes", declaration)
        if b"&" in value or b"%" in value:
            self._refuse_bomb("an entity is declared through other entities", declaration)
        self._longest = max(self._longest, len(value))

    def _count_references(self, data: bytes) -> None:
        self._seen += len(data)
        if not self._longest:
            return
        self._references += data.count(b"&")
        expansion = self._references * self._longest
        if expansion > ENTITY_EXPANSION_ALWAYS_ALLOWED and expansion > MAX_ENTITY_EXPANSION_RATIO * self._seen:
            self._refuse_bomb(f"its entities would expand it more than {MAX_ENTITY_EXPANSION_RATIO}-fold", b"")

    def _refuse_bomb(self, reason: str, declaration: bytes) -> None:
        advice = "this is how entity bombs are built. Expand the entities with an XML tool if you trust the file"
        self._refuse(f"{reason} ({declaration[:80].decode(errors='replace')})", advice)
