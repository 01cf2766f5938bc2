"""What can go wrong, in words a user can act on."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

MOST_MEANT = 5


class RgcnError(Exception):
    """Base of every error this package raises on purpose; the command line prints it without a traceback."""


class DataError(RgcnError, ValueError):
    """The data are malformed, inconsistent, or lack something the request needs."""


class NothingToHoldOutError(DataError):
    """Every triple, or every label, is needed to learn from: none can be held out."""


class ParseError(DataError):
    """A file could not be read: carries the file, the line number (from 1) and the offending text."""

    def __init__(self, path: str, line: int | None, text: str, reason: str) -> None:
        where = path if line is None else f"{path}, line {line}"
        excerpt = f"\n    {text[:200].rstrip()}" if text else ""
        super().__init__(f"{where}: {reason}{excerpt}")
        self.path, self.line, self.text, self.reason = path, line, text, reason


class ConfigError(RgcnError, ValueError):
    """A setting is unknown, of the wrong type, or at odds with another."""


class UnknownNameError(RgcnError, KeyError):
    """A name that is not there, with the closest ones that are."""

    def __init__(self, kind: str, name: str, known: Iterable[str], suggestions: list[str] | None = None) -> None:
        """suggestions: where somebody knows better than to compare letters."""
        self.kind, self.name = kind, name
        self.suggestions = close_matches(name, known) if suggestions is None else suggestions
        self.hint = f" Did you mean {', '.join(repr(s) for s in self.suggestions)}?" if self.suggestions else ""
        super().__init__(f"unknown {kind} {name!r}.{self.hint}")

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0])


class EmptyNameError(UnknownNameError, DataError):
    """Nothing but spaces where a name should be."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(kind, name, (), [])
        self.args = (f"an empty name is no {kind}'s",)


class AmbiguousNameError(DataError):
    """What several are called; `names` are theirs, by which they can be told apart."""

    def __init__(self, kind: str, name: str, names: list[str]) -> None:
        self.kind, self.name, self.names = kind, name, names
        shown = ", ".join(map(repr, names[:MOST_MEANT]))
        more = f" and {len(names) - MOST_MEANT:,} more" if len(names) > MOST_MEANT else ""
        super().__init__(f"{name!r} may be any of {len(names):,} {kind}s: give the whole name, {shown}{more}")


class StoppedError(RgcnError):
    """A training that was asked to stop, by a signal that its exit code tells, has saved itself; how to go on."""

    def __init__(self, what: str, advice: str, signal_number: int) -> None:
        super().__init__(f"{what}; {advice}" if advice else what)
        self.what, self.advice, self.signal_number = what, advice, signal_number
        self.exit_code = 128 + signal_number

    def advising(self, advice: str) -> StoppedError:
        """The same, where something larger than this training goes on."""
        return StoppedError(self.what, advice, self.signal_number)


class NotFittedError(RgcnError, RuntimeError):
    """A model was asked for something that only a fitted one can answer."""


def close_matches(name: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """The known names most like `name`, best first.

    Long IRIs differ only in their tails, so the tails are compared as well as the whole names.

    >>> close_matches("Switzerlnd", ["Sweden", "Switzerland", "Spain"])
    ['Switzerland']
    """
    candidates = list(known)
    if len(candidates) > 50_000:  # difflib is quadratic in spirit: look only where the beginning or end agrees
        head, tail = name[:3].lower(), _tail(name)[:3].lower()
        near = [c for c in candidates if c[:3].lower() == head or _tail(c)[:3].lower() == tail]
        candidates = near[:50_000]
    by_folded: dict[str, str] = {}
    for candidate in candidates:
        by_folded.setdefault(candidate.lower(), candidate)
        by_folded.setdefault(_tail(candidate).lower(), candidate)
    found = difflib.get_close_matches(_tail(name).lower(), by_folded, n=limit, cutoff=0.6)
    found += difflib.get_close_matches(name.lower(), by_folded, n=limit, cutoff=0.6)
    return list(dict.fromkeys(by_folded[f] for f in found))[:limit]


def _tail(name: str) -> str:
    """What one IRI of many differs in: the part after its last '#' or '/'."""
    return re.split("[#/]", name.rstrip("#/"))[-1] if "://" in name[:12] else name
