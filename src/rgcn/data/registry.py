"""The registry: known data sets by name, fetched once, checked always."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rgcn.data.catalog import CATALOG, Dataset, find
from rgcn.data.files import broken_link
from rgcn.data.sources import Located, Sources, read_checked
from rgcn.errors import ConfigError, DataError, close_matches

if TYPE_CHECKING:
    from rgcn.graph import KnowledgeGraph

DATASET = "dataset:"  # before a name that is also a file's


def datasets() -> tuple[Dataset, ...]:
    """Every data set that can be loaded by name.

    >>> [dataset.name for dataset in datasets()][:4]
    ['world', 'aifb', 'mutag', 'bgs']
    """
    return tuple(CATALOG.values())


def load(
    name: str, *, mirror: str | Path | None = None, cache: str | Path | None = None, offline: bool = False
) -> KnowledgeGraph:
    """A data set by name, fetched if it is not on this machine yet.

    mirror   a folder <name>/<file> to copy from (else the variable RGCN_MIRROR)
    cache    where fetched data sets are kept (else RGCN_CACHE, else the user's cache folder)
    offline  never use the network

    >>> load("world")
    KnowledgeGraph('world', ...)
    """
    located = get(name, mirror=mirror, cache=cache, offline=offline)
    return located.graph if located.graph is not None else read_checked(find(name), located.files)


def named_or_read(
    source: str, *, mirror: str | Path | None = None, offline: bool = False, **reading: Any
) -> KnowledgeGraph:
    """The graph a path or a data set's name stands for (`path_or_dataset`).

    reading  options of `rgcn.read`, for files

    >>> named_or_read("world").name
    'world'
    """
    from rgcn.data.reading import read

    place = path_or_dataset(source)
    if isinstance(place, Path):
        return read(place, **reading)
    if reading:
        raise ConfigError(f"{', '.join(reading)} are for files; {source!r} is a data set's name")
    return load(place.name, mirror=mirror, offline=offline)


def path_or_dataset(source: str | Path) -> Path | Dataset:
    """What is meant: a path that is there, or else a data set by its name. What may be either is refused.

    A `Path` is never a data set. `./world` is a path and `dataset:world` a data set, whatever there is.

    >>> path_or_dataset("dataset:world").name
    'world'
    """
    path, text = Path(source), str(source)
    bare = text.removeprefix(DATASET)
    named = CATALOG.get(bare.lower()) if isinstance(source, str) else None
    if named is not None and bare == text and path.exists():
        what = "folder" if path.is_dir() else "file"
        raise ConfigError(
            f"{text!r} may be the {what} that is here or the data set of this name: write ./{text} for the {what}, "
            f"{DATASET}{named.name} for the data set"
        )
    if named is not None or path.exists():
        return named or path
    beside = sorted(entry.name for entry in path.parent.iterdir()) if path.parent.is_dir() else []
    near = [str(path.parent / name) for name in close_matches(path.name, beside)] + close_matches(bare, CATALOG)
    link = broken_link(path)
    hint = f" {link}." if link else f" Did you mean {', '.join(map(repr, near))}?" if near else ""
    raise DataError(
        f"{text}: there is no such file or folder, and no data set of this name.{hint} "
        "`rgcn runs` lists runs, `rgcn data list` data sets"
    )


def get(
    name: str, *, mirror: str | Path | None = None, cache: str | Path | None = None, offline: bool = False
) -> Located:
    """Have a data set's files on this machine, and say where they are and where they came from."""
    from rgcn.data.catalog import load_world

    dataset = find(name)
    if dataset.embedded:
        return Located(dataset.name, Path(__file__).parent, "embedded in the package", graph=load_world())
    return sources(mirror=mirror, cache=cache, offline=offline).obtain(dataset)


def sources(*, mirror: str | Path | None = None, cache: str | Path | None = None, offline: bool = False) -> Sources:
    """The places a data set is looked for, as the arguments and the environment say."""
    return Sources(mirror_folder(mirror), cache_folder(cache), offline)


def cache_folder(cache: str | Path | None = None) -> Path:
    """Where fetched data sets are kept: `cache`, else RGCN_CACHE, else the user's cache folder."""
    chosen = cache or os.environ.get("RGCN_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    if os.name == "nt" and os.environ.get("LOCALAPPDATA"):
        return Path(os.environ["LOCALAPPDATA"]) / "rgcn" / "Cache"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "rgcn"


def mirror_folder(mirror: str | Path | None = None) -> Path | None:
    """The folder of data sets to copy from: `mirror`, else RGCN_MIRROR, else none."""
    chosen = mirror or os.environ.get("RGCN_MIRROR")
    return Path(chosen).expanduser().absolute() if chosen else None
