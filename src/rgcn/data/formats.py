"""Which reader a file's ending, or a word for its format, stands for."""

from __future__ import annotations

import warnings
from functools import cache

from rgcn.axis_tables import READERS
from rgcn.errors import ConfigError


def reader_of_ending(ending: str) -> str | None:
    """The name of the reader of files that end so, "nt"; None where there is none.

    Built-in readers come first: installed ones are only loaded for an ending that those do not know.

    >>> reader_of_ending("owl"), reader_of_ending("doc")
    ('rdf', None)
    """
    found = _built_in().get(ending)
    if found is not None:
        return found
    installed = [name for name in READERS.names() if name not in READERS.built_in]
    return next((name for name in installed if ending in _endings(name)), None)


@cache
def _built_in() -> dict[str, str]:
    return {ending: name for name in READERS.built_in for ending in READERS.find(name).endings}


def _endings(name: str) -> tuple[str, ...]:
    try:
        return READERS.find(name).endings
    except ConfigError as error:  # somebody else's broken package should not keep a user from their files
        warnings.warn(str(error), stacklevel=4)
        return ()
