"""Keys that configurations of earlier versions have and today's do not: where each went, or why it is gone.

Whoever renames, moves or removes a key of `rgcn.config` adds a line to CHANGED_KEYS. A key that moved keeps working,
with a warning; one that is gone is refused in exact words, unless its value is the one that now always holds. A key
that is new needs no line: an old configuration gets its default.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rgcn.config_section import Origin, Path, Problem, origin_of


@dataclass(frozen=True)
class ChangedKey:
    """A key as it was, and what became of it.

    key        as it was written, for example "training.lr"
    version    the first version without it
    now        where its value goes, or None where it is gone
    words      of a key that is gone: why, and what to do instead
    ignorable  values of a key that is gone that may be left out, as what they ask for is now always so
    task       only in configurations of this task; None: in all
    """

    key: str
    version: str
    now: str | None = None
    words: str = ""
    ignorable: tuple[Any, ...] = ()
    task: str | None = None


# No key has been renamed, moved or removed so far: configurations of every version load. (data.prune, once true or
# false, takes a number of hops too.)
CHANGED_KEYS: tuple[ChangedKey, ...] = ()


def bring_up_to_date(
    values: dict[str, Any], origins: dict[Path, Origin], task: str, changed: Iterable[ChangedKey] | None = None
) -> list[Problem]:
    """Move what was renamed, with a warning, and leave out what no longer matters; return what cannot be kept."""
    problems = []
    for entry in CHANGED_KEYS if changed is None else changed:
        path = tuple(entry.key.split("."))
        if entry.task not in (None, task) or not _has(values, path):
            continue
        origin, value = origin_of(path, origins), _take(values, path)
        if entry.now is not None:
            target = tuple(entry.now.split("."))
            if _has(values, target):
                words = f"is called {entry.now} since {entry.version}, which is given too: remove the old one"
                problems.append(Problem(entry.key, words, origin))
            elif not _put(values, target, value):
                words = f"is called {entry.now} since {entry.version}, and {target[0]} is no section here"
                problems.append(Problem(entry.key, words, origin))
            else:
                for known in [known for known in origins if known[: len(path)] == path]:
                    moved: Path = target + known[len(path) :]
                    origins[moved] = origins.pop(known)
                words = f"is called {entry.now} since {entry.version}; it was read as such"
                warnings.warn(str(Problem(entry.key, words, origin)), stacklevel=3)
        elif any(value == known and type(value) is type(known) for known in entry.ignorable):
            words = f"is gone since {entry.version}, and {value!r} is what always holds now; it was left out"
            warnings.warn(str(Problem(entry.key, words, origin)), stacklevel=3)
        else:
            problems.append(Problem(entry.key, f"is gone since {entry.version}: {entry.words}", origin))
    return problems


def _has(values: Any, path: Path) -> bool:
    for part in path:
        if not isinstance(values, dict) or part not in values:
            return False
        values = values[part]
    return True


def _take(values: dict[str, Any], path: tuple[str, ...]) -> Any:
    """Take a value out, and with it the section that is empty without it: it may be gone too."""
    if len(path) == 1:
        return values.pop(path[0])
    inner = values[path[0]]
    value = _take(inner, path[1:])
    if not inner:
        del values[path[0]]
    return value


def _put(values: dict[str, Any], path: tuple[str, ...], value: Any) -> bool:
    for part in path[:-1]:
        inner = values.setdefault(part, {})
        if not isinstance(inner, dict):
            return False
        values = inner
    values[path[-1]] = value
    return True
