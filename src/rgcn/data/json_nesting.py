"""Keeps deeply nested JSON from the parser of JSON-LD, whose stack it would overflow."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from rgcn.data.files import MAX_NESTING
from rgcn.errors import DataError

_STRUCTURE = b'"[]{}'
_ALL_ELSE = bytes(set(range(256)) - set(_STRUCTURE))
_STRING = re.compile(rb'"[^"]*"')
_STEP = np.zeros(256, dtype=np.int64)
_STEP[list(b"[{")], _STEP[list(b"]}")] = 1, -1


class JsonNestingGuard:
    """Follows how many brackets are open, piece by piece; brackets within strings are text.

    >>> guard = JsonNestingGuard(Path("a.jsonld"))
    >>> guard.check(b'{"p": ["]]]]", ')
    >>> guard.check(b"[" * 1000)
    Traceback (most recent call last):
    rgcn.errors.DataError: a.jsonld: refused, because its brackets are nested more than 500 deep...
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def check(self, data: bytes) -> None:
        """Raise DataError where the brackets of all data so far are nested too deep."""
        marks = self._without_escapes(data).translate(None, _ALL_ELSE)
        if self._in_string:
            marks = b'"' + marks
        outside = _STRING.sub(b"", marks.replace(b'""', b""))
        self._in_string = outside.count(b'"') == 1
        if self._in_string:
            outside = outside[: outside.index(b'"')]
        if not outside:
            return
        depths = self._depth + np.cumsum(_STEP[np.frombuffer(outside, dtype=np.uint8)])
        if depths.max() > MAX_NESTING:
            raise DataError(
                f"{self._path}: refused, because its brackets are nested more than {MAX_NESTING} deep, which would "
                "overflow the parser's stack; write it flat, each node an object of its own that others refer to by @id"
            )
        self._depth = int(depths[-1])

    def _without_escapes(self, data: bytes) -> bytes:
        """The data without what backslashes escape: such a quote ends no string."""
        parts = []
        for number, part in enumerate(data.split(b"\\")):
            if number:
                # Between two backslashes side by side there is nothing: the first escapes the second.
                self._escaped = not self._escaped
            if self._escaped and part:
                part, self._escaped = part[1:], False
            parts.append(part)
        return b"".join(parts)
