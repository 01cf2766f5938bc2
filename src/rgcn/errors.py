"""The exceptions of the package. Each message says what is wrong, where, and what to do."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

MAX_NAMES_SHOWN = 5  # in the message of an ambiguous name
MAX_CANDIDATES = 50_000  # names that are compared to make a suggestion


class RgcnError(Exception):
    """Base class of all errors that the package raises. The command line prints them without a traceback."""


class DataError(RgcnError, ValueError):
    """The data are malformed or inconsistent, or something that is needed is missing in them."""


class NothingToHoldOutError(DataError):
    """No triple or label can be held out for validation or test, because all are needed for training."""


class ParseError(DataError):
    """A file is malformed.

    Args:
        path: The file.
        line: The line number, from 1, if there is one.
        text: The text that cannot be read; may be empty.
        reason: What is wrong with it.
    """

    def __init__(self, path: str, line: int | None, text: str, reason: str) -> None:
        where = path if line is None else f"{path}, line {line}"
        excerpt = f"\n    {text[:200].rstrip()}" if text else ""
        super().__init__(f"{where}: {reason}{excerpt}")
        self.path, self.line, self.text, self.reason = path, line, text, reason


class ConfigError(RgcnError, ValueError):
    """A setting is unknown, has a wrong value, or contradicts another setting."""


class UnknownNameError(RgcnError, KeyError):
    """There is nothing of this name. The message suggests similar names.

    Args:
        kind: What was looked for, for example "node".
        name: The name that does not exist.
        known: The names that exist.
        suggestions: Names to suggest; by default those of `known` with a similar spelling.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str], suggestions: list[str] | None = None) -> None:
        self.kind, self.name = kind, name
        self.suggestions = close_matches(name, known) if suggestions is None else suggestions
        self.hint = f" Did you mean {', '.join(repr(s) for s in self.suggestions)}?" if self.suggestions else ""
        super().__init__(f"unknown {kind} {name!r}.{self.hint}")

    __str__ = Exception.__str__  # that of KeyError puts the message in quotes


class EmptyNameError(UnknownNameError, DataError):
    """A name is empty or consists of spaces."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(kind, name, (), [])
        self.args = (f"an empty name is no {kind}'s",)


class AmbiguousNameError(DataError):
    """Several nodes or relations have this title; `names` lists their unique names."""

    def __init__(self, kind: str, name: str, names: list[str]) -> None:
        self.kind, self.name, self.names = kind, name, names
        shown = ", ".join(map(repr, names[:MAX_NAMES_SHOWN]))
        more = f" and {len(names) - MAX_NAMES_SHOWN:,} more" if len(names) > MAX_NAMES_SHOWN else ""
        super().__init__(f"{name!r} may be any of {len(names):,} {kind}s: give the whole name, {shown}{more}")


class StoppedError(RgcnError):
    """A training was stopped by a signal, and has saved its state.

    Args:
        reason: What stopped it.
        advice: How to resume it; may be empty.
        signal_number: The signal, which also determines the exit code of the process.
    """

    def __init__(self, reason: str, advice: str, signal_number: int) -> None:
        super().__init__(f"{reason}; {advice}" if advice else reason)
        self.reason, self.signal_number = reason, signal_number
        self.exit_code = 128 + signal_number

    def with_advice(self, advice: str) -> StoppedError:
        """Return the same error with other advice, for a study or series that the training is part of."""
        return StoppedError(self.reason, advice, self.signal_number)


class NotFittedError(RgcnError, RuntimeError):
    """A model was used that has not been fitted."""


def close_matches(name: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """Return the known names that are most similar to `name`, best first.

    IRIs often differ only in the part after the last "#" or "/", so this part is compared as well as the whole name.

    >>> close_matches("Switzerlnd", ["Sweden", "Switzerland", "Spain"])
    ['Switzerland']
    """
    candidates = list(known)
    if len(candidates) > MAX_CANDIDATES:  # difflib is slow: compare only names whose first three letters agree
        head, tail = name[:3].lower(), _tail(name)[:3].lower()
        near = [c for c in candidates if c[:3].lower() == head or _tail(c)[:3].lower() == tail]
        candidates = near[:MAX_CANDIDATES]
    by_folded: dict[str, str] = {}
    for candidate in candidates:
        by_folded.setdefault(candidate.lower(), candidate)
        by_folded.setdefault(_tail(candidate).lower(), candidate)
    matches = [
        match
        for text in (_tail(name), name)
        for match in difflib.get_close_matches(text.lower(), by_folded, n=limit, cutoff=0.6)
    ]
    return list(dict.fromkeys(by_folded[match] for match in matches))[:limit]


def _tail(name: str) -> str:
    """The part of an IRI after the last '#' or '/'; any other name as it is."""
    return re.split("[#/]", name.rstrip("#/"))[-1] if "://" in name[:12] else name
