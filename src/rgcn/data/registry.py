"""The registry: known data sets by name, fetched once, checked always."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rgcn.data.catalog import CATALOG, Counts, Dataset, find
from rgcn.data.sources import Located, Sources, cache_folder, mirror_folder
from rgcn.errors import DataError, UnknownNameError

if TYPE_CHECKING:
    from rgcn.graph import KnowledgeGraph


class CountError(DataError):
    """A data set does not hold what it should."""


class PathGivenError(UnknownNameError):
    """A path was given where a data set's name is expected."""

    def __init__(self, name: str, there: str) -> None:
        super().__init__("data set", name, ())
        self.args = (f"{name!r} {there}, not the name of a data set: use rgcn.read({name!r})",)


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
    dataset = _find(name)
    if dataset.embedded:
        return _embedded(dataset)
    located = sources(mirror=mirror, cache=cache, offline=offline).obtain(dataset)
    return located.graph if located.graph is not None else read_checked(dataset, located.files)


def get(
    name: str, *, mirror: str | Path | None = None, cache: str | Path | None = None, offline: bool = False
) -> Located:
    """Have a data set's files on this machine, and say where they are and where they came from."""
    dataset = _find(name)
    if dataset.embedded:
        return Located(dataset.name, Path(__file__).parent, "embedded in the package")
    return sources(mirror=mirror, cache=cache, offline=offline).obtain(dataset)


def sources(*, mirror: str | Path | None = None, cache: str | Path | None = None, offline: bool = False) -> Sources:
    """The places a data set is looked for, as the arguments and the environment say."""
    return Sources(check=read_checked, mirror=mirror_folder(mirror), cache=cache_folder(cache), offline=offline)


def read_checked(dataset: Dataset, files: Mapping[str, Path]) -> KnowledgeGraph:
    """The graph in a data set's files, which must hold what the catalog says."""
    from rgcn.data.reading import read

    labels = {role.removeprefix("labels:"): path for role, path in files.items() if role.startswith("labels:")}
    if "graph" in files:
        graph = read(files["graph"], labels=labels)
        # files put in by hand may be the unstripped ones, whose target relations give the labels away
        telling = [relation for relation in dataset.target_relations if relation in graph.relations]
        if telling:
            graph = graph.without_relations(telling)
    else:
        graph = read(dict(files))
    graph = replace(graph, name=dataset.name)
    check_counts(dataset, graph)
    return graph


def check_counts(dataset: Dataset, graph: KnowledgeGraph) -> None:
    """Raise where a graph's counts differ from those the catalog knows."""
    expected, found = dataset.counts, counts_of(graph)
    pairs = {
        "entities": (expected.entities, found.entities),
        "relations": (expected.relations, found.relations),
        "triples": (expected.triples, found.triples),
        "triples per split": (dict(expected.triples_per_split) or None, dict(found.triples_per_split)),
        "labels per split": (dict(expected.labels_per_split) or None, dict(found.labels_per_split)),
        "classes": (expected.classes, found.classes),
    }
    wrong = [f"{what} {_shown(b)} instead of {_shown(a)}" for what, (a, b) in pairs.items() if a is not None and a != b]
    if wrong:
        raise CountError(f"the files of {dataset.name} do not hold what they should: {'; '.join(wrong)}")


def counts_of(graph: KnowledgeGraph) -> Counts:
    """What a graph holds, in the catalog's terms."""
    splits = {}
    if graph.triple_splits is not None:
        splits = {split: len(graph.split_triples(split)) for split in ("train", "valid", "test")}
    labels = graph.labels
    return Counts(
        graph.num_nodes,
        graph.num_relations,
        graph.num_triples,
        splits,
        {} if labels is None else dict(labels.counts()),
        0 if labels is None else labels.num_classes,
    )


def _shown(value: int | dict[str, int] | None) -> str:
    if isinstance(value, dict):
        return "/".join(f"{count:,}" for count in value.values()) or "none"
    return f"{value:,}"


def _embedded(dataset: Dataset) -> KnowledgeGraph:
    from rgcn.data.world import load_world

    graph = load_world()
    return graph if graph.name == dataset.name else replace(graph, name=dataset.name)


def _find(name: str) -> Dataset:
    """The data set, or an error that says so when a path was meant."""
    try:
        return find(name)
    except UnknownNameError as error:
        looks_like_path = "/" in name or "\\" in name or Path(name).exists()
        if looks_like_path:
            there = "is a path" if Path(name).exists() else "looks like a path"
            raise PathGivenError(name, there) from None
        raise error
