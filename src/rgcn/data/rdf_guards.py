"""Check documents before they are parsed, and refuse those that were made to harm the parser.

Such documents have entities that expand without end, or elements or brackets nested so deep that parsing takes forever
or overflows the parser's stack. A guard gets the document piece by piece, and raises DataError to refuse it.
"""

import re
from pathlib import Path
from xml.parsers.expat import ErrorString, ExpatError, ParserCreate

import numpy as np

from rgcn.errors import DataError

# Depth of brackets or elements. Ordinary files stay below a few dozen. The parsers of RDF/XML and JSON-LD need time or
# stack in proportion to the depth for everything inside.
MAX_NESTING = 500
_TOO_DEEP = f"are nested more than {MAX_NESTING} deep; write each node as"

_NOT_JSON_MARKS = bytes(set(range(256)) - set(b'"[]{}'))
_JSON_STRING = re.compile(rb'"[^"]*"')
_JSON_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_STEP = np.zeros(256, dtype=np.int64)
_STEP[list(b"[{")], _STEP[list(b"]}")] = 1, -1


class JsonGuard:
    """Counts the open brackets of a JSON document; those within strings do not count.

    >>> guard = JsonGuard(Path("a.jsonld"))
    >>> guard.check(b'{"p": ["]]]]", ')
    >>> guard.check(b"[" * 1000)
    Traceback (most recent call last):
    rgcn.errors.DataError: a.jsonld: refused, because its brackets are nested more than 500 deep...
    """

    _in_string = _escaped = False

    def __init__(self, path: Path) -> None:
        self._path, self._depth = path, 0

    def check(self, data: bytes) -> None:
        """Check the next piece; raise DataError if its brackets are nested too deep."""
        if self._escaped:
            data = b"\\" + data
        num_backslashes = len(data) - len(data.rstrip(b"\\"))
        self._escaped = num_backslashes % 2 == 1  # the last one escapes the next character
        unescaped = _JSON_ESCAPE.sub(b"", data)  # an escaped quote does not end a string
        marks = (b'"' if self._in_string else b"") + unescaped.translate(None, _NOT_JSON_MARKS)
        outside = _JSON_STRING.sub(b"", marks.replace(b'""', b""))
        self._in_string = outside.count(b'"') == 1
        brackets = np.frombuffer(outside.partition(b'"')[0], dtype=np.uint8)
        depths = self._depth + np.cumsum(_STEP[brackets])
        if depths.max(initial=0) > MAX_NESTING:
            reason = f"its brackets {_TOO_DEEP} an object of its own that others refer to by @id"
            raise DataError(f"{self._path}: refused, because {reason}")
        self._depth = int(depths[-1]) if len(depths) else self._depth


# Attributes are compared with each other, so their cost grows with the square; ordinary elements have a few dozen.
MAX_ATTRIBUTES = 1000
# Enough for 1,000 attributes with long IRIs.
MAX_TAG_BYTES = 1 << 20
MAX_ENTITY_BYTES = 2048
ENTITY_EXPANSION_ALWAYS_ALLOWED = 256 << 20
MAX_ENTITY_EXPANSION_RATIO = 50


class XmlGuard:
    """Follows the elements and declared entities of an XML document with a strict parser.

    The parser of RDF/XML takes longer for deeper elements, and it expands all entities that a document type declares.
    Entities made of other entities grow exponentially ("billion laughs"), long ones quadratically, and external ones
    would read other files. Only short entities are allowed, which ontologies use to abbreviate namespaces. Documents
    that are not well-formed are refused, since the two parsers could understand them differently.

    >>> guard = XmlGuard(Path("a.rdf"))
    >>> guard.check(b"<a><!-- </a></a> --><b c='/>'/>")
    >>> guard.check(b"<a>" * 1000)
    Traceback (most recent call last):
    rgcn.errors.DataError: a.rdf: refused, because its elements are nested more than 500 deep...
    >>> XmlGuard(Path("a.owl")).check(b'<!DOCTYPE a [<!ENTITY big "&small;&small;">]>')
    Traceback (most recent call last):
    rgcn.errors.DataError: a.owl: refused, because the entity big is declared through other entities...
    """

    def __init__(self, path: Path) -> None:
        self._path, self._parser = path, ParserCreate("utf-8")
        self._depth = self._longest_entity = self._num_references = self._num_bytes = 0
        self._parser.ordered_attributes, self._parser.EntityDeclHandler = True, self._declare
        self._parser.StartElementHandler, self._parser.EndElementHandler = self._begin, self._end

    def check(self, data: bytes) -> None:
        """Check the next piece; raise DataError to refuse the document, SyntaxError if it is not XML."""
        problem = None
        try:
            self._parser.Parse(data)
        except ExpatError as error:
            problem = SyntaxError(f"not XML: {ErrorString(error.code)}", (None, error.lineno, None, None))
        self._num_bytes += len(data)
        self._num_references += data.count(b"&")
        expansion = self._num_references * self._longest_entity
        if expansion > ENTITY_EXPANSION_ALWAYS_ALLOWED and expansion > MAX_ENTITY_EXPANSION_RATIO * self._num_bytes:
            self._refuse_bomb(f"its entities would expand it more than {MAX_ENTITY_EXPANSION_RATIO}-fold")
        if problem is not None:
            raise problem
        if self._num_bytes - self._parser.CurrentByteIndex > MAX_TAG_BYTES:
            self._refuse(f"a tag is longer than {MAX_TAG_BYTES >> 10} KiB; is the file XML at all?")

    def _begin(self, name: str, attributes: list[str]) -> None:
        self._depth += 1
        if self._depth > MAX_NESTING:
            self._refuse(f"its elements {_TOO_DEEP} a description of its own that others refer to by rdf:resource")
        if len(attributes) > 2 * MAX_ATTRIBUTES:
            self._refuse(f"an element has more than {MAX_ATTRIBUTES:,} attributes; write them as elements")

    def _end(self, name: str) -> None:
        self._depth -= 1

    def _declare(self, name: str, is_parameter: bool, value: str | None, *external: object) -> None:
        if is_parameter or value is None or len(value.encode()) > MAX_ENTITY_BYTES:
            self._refuse_bomb(f"the entity {name} is external, a parameter or longer than {MAX_ENTITY_BYTES} bytes")
        elif "&" in value or "%" in value:
            self._refuse_bomb(f"the entity {name} is declared through other entities")
        else:
            self._longest_entity = max(self._longest_entity, len(value.encode()))

    def _refuse_bomb(self, reason: str) -> None:
        advice = "this is how entity bombs are built. Expand the entities with an XML tool if you trust the file"
        self._refuse(f"{reason}; {advice}")

    def _refuse(self, reason: str) -> None:
        raise DataError(f"{self._path}: refused, because {reason}")
