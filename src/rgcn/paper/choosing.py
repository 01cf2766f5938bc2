"""Which of the paper's figures are asked for, from names as people type them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rgcn.errors import ConfigError, UnknownNameError
from rgcn.paper.trainings import CONFIGURATIONS


def configurations(
    task: str,
    names: Iterable[str] | None = None,
    datasets: Iterable[str] | None = None,
    models: Iterable[str] | None = None,
) -> list[str]:
    """The shipped configurations of a task that belong to the named data sets and models; all where none is named.

    >>> configurations(next(iter(CONFIGURATIONS)), ["e-rgcn"], ["aifb"])
    ['e-rgcn/nc-aifb']
    """
    pairs = {name: (name.split("/nc-")[-1].split("/lp-")[-1], name.split("/")[0]) for name in CONFIGURATIONS[task]}
    known = [list(dict.fromkeys(part)) for part in zip(*pairs.values(), strict=True)]
    wanted = sorted_out(names, datasets, models, *known)
    chosen = [name for name, pair in pairs.items() if all(not w or p in w for p, w in zip(pair, wanted, strict=True))]
    if not chosen:
        raise ConfigError(f"the paper has no figure of {' on '.join(' and '.join(w) for w in reversed(wanted) if w)}")
    return chosen


def sorted_out(
    names: Iterable[str] | None,
    datasets: Iterable[str] | None,
    models: Iterable[str] | None,
    known_datasets: Sequence[str],
    known_models: Sequence[str] = (),
) -> tuple[list[str], list[str]]:
    """Data sets and models that were asked for.

    An option takes one value, so that of `--datasets aifb mutag` the second arrives as a bare name, and what it names
    tells where it belongs.

    >>> sorted_out(["mutag"], ["aifb"], None, ["aifb", "mutag"], ["rgcn"])
    (['aifb', 'mutag'], [])
    """
    everything = (*known_datasets, *known_models)
    found: tuple[list[str], list[str]] = ([], [])
    for kind, given, allowed in (
        ("data set", datasets, known_datasets),
        ("model", models, known_models),
        ("name" if known_models else "data set", names, everything),
    ):
        for name in (part.strip().lower() for text in given or () for part in text.split(",")):
            if not name:
                raise ConfigError(f"a {kind} without a name; there are {', '.join(allowed)}")
            if name not in allowed:
                raise UnknownNameError(kind, name, allowed)
            found[name in known_models].append(name)
    return found
