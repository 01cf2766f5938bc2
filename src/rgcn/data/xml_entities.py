"""Keeps entity bombs in XML files from the parser, which expands whatever a document type declares."""

from __future__ import annotations

import re
from pathlib import Path

from rgcn.errors import DataError

MAX_ENTITY_BYTES = 2048
MAX_DECLARATION_BYTES = MAX_ENTITY_BYTES + 512
EXPANSION_ALWAYS_ALLOWED = 256 << 20
MAX_EXPANSION_RATIO = 50

_DECLARATION = re.compile(rb"""<!ENTITY\s+[^\s"'%&<>]+\s+("[^"]*"|'[^']*')\s*>""")


class EntityGuard:
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

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held = b""
        self._longest = 0
        self._references = self._seen = 0

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
        if match is None:
            self._refuse(f"an entity is external, malformed or longer than {MAX_ENTITY_BYTES} bytes", declaration)
            return
        value = match.group(1)[1:-1]
        if len(value) > MAX_ENTITY_BYTES:
            self._refuse(f"an entity is longer than {MAX_ENTITY_BYTES} bytes", declaration)
        if b"&" in value or b"%" in value:
            self._refuse("an entity is declared through other entities", declaration)
        self._longest = max(self._longest, len(value))

    def _count_references(self, data: bytes) -> None:
        self._seen += len(data)
        if not self._longest:
            return
        self._references += data.count(b"&")
        expansion = self._references * self._longest
        if expansion > EXPANSION_ALWAYS_ALLOWED and expansion > MAX_EXPANSION_RATIO * self._seen:
            self._refuse(f"its entities would expand it more than {MAX_EXPANSION_RATIO}-fold", b"")

    def _refuse(self, reason: str, declaration: bytes) -> None:
        excerpt = declaration[:80].decode(errors="replace")
        raise DataError(
            f"{self._path}: refused, because {reason} ({excerpt}); this is how entity bombs are built. "
            "Expand the entities with an XML tool if you trust the file"
        )
