"""Numbers that describe nodes and stand beside the triples: what yields them, and the features they become."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rgcn.data.files import PathLike, by_ending, ending_of, existing
from rgcn.errors import DataError
from rgcn.graph import KnowledgeGraph, Vocabulary
from rgcn.plugins import ATTRIBUTE_SOURCES


class AttributeColumn(NamedTuple):
    """One number for each of some nodes.

    name    what the number is; columns of one name, from several files, become one feature
    nodes   names of n nodes, each once
    values  [n]: their numbers, all finite
    """

    name: str
    nodes: Sequence[str]
    values: Sequence[float] | NDArray[Any]


class AttributeSource(ABC):
    """A file of numbers that describe the nodes of a graph: `rgcn.read(path, features=...)`.

    A source of your own is a subclass. `features=Mine("people.db")` reads with it, and so does `features="people.db"`
    once a package registers it under the entry points `rgcn.attribute_sources` and it has the ending of the file. A
    reader whose files hold triples and numbers needs no source: it calls `reading.add_attribute`.

    endings  what names of such files end with: lower case, no dot

    >>> class Ages(AttributeSource):
    ...     '''A line "Ada is 36" each.'''
    ...
    ...     def columns(self, graph: KnowledgeGraph) -> Iterable[AttributeColumn]:
    ...         names, ages = zip(*(line.split(" is ") for line in self.path.read_text().splitlines()))
    ...         yield AttributeColumn("age", names, [float(age) for age in ages])
    >>> import tempfile
    >>> from pathlib import Path
    >>> graph = KnowledgeGraph.from_triples([("Ada", "knows", "Max")])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "ages.txt").write_text("Ada is 36")
    ...     with_features(graph, Ages(Path(folder, "ages.txt"))).features.tolist()
    [[36.0], [0.0]]
    """

    endings: ClassVar[tuple[str, ...]] = ()

    def __init__(self, path: PathLike) -> None:
        self.path = existing(path, "feature file")

    @abstractmethod
    def columns(self, graph: KnowledgeGraph) -> Iterable[AttributeColumn]:
        """Yield the columns of the file; nodes that are not in the graph may be among them."""


def attribute_source(given: PathLike | AttributeSource) -> AttributeSource:
    """The source for a file, by the ending of its name; any other file is a table."""
    if isinstance(given, AttributeSource):
        return given
    kind = ATTRIBUTE_SOURCES.find(by_ending(ATTRIBUTE_SOURCES, ending_of(given)) or "table")
    source: AttributeSource = kind(given)
    return source


def with_features(graph: KnowledgeGraph, given: PathLike | AttributeSource) -> KnowledgeGraph:
    """The graph with the columns of a source as features, behind those that it has.

    Nodes that the source does not know get zeros, and those that are not in the graph are left out; the metadata count
    both.
    """
    source = attribute_source(given)
    columns = list(source.columns(graph))
    features, described = feature_matrix(columns, graph.nodes)
    if not described.any():
        raise DataError(f"none of the nodes in {source.path} is in the graph")
    names = {id(column.nodes): column.nodes for column in columns}.values()
    counted = {
        "nodes_without_features": int((~described).sum()),
        "features_of_unknown_nodes": len({name for nodes in names for name in nodes if name not in graph.nodes}),
    }
    if graph.features is not None:
        features = np.hstack([graph.features, features])
    return replace(graph, features=features, metadata={**graph.metadata, **counted})


def feature_matrix(
    columns: Iterable[AttributeColumn], nodes: Vocabulary
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """The columns as features float32 [N, F], zero where nothing is said; and which nodes are described, bool [N]."""
    columns = list(columns)
    place = {name: at for at, name in enumerate(dict.fromkeys(column.name for column in columns))}
    features = np.zeros((len(nodes), len(place)), dtype=np.float32)
    described, ids_of = np.zeros(len(nodes), dtype=bool), dict[int, NDArray[np.int64]]()
    for name, named, values in columns:
        if id(named) not in ids_of:  # columns of a table share one list of nodes
            ids_of[id(named)] = np.array([-1 if (i := nodes.get(one)) is None else i for one in named], dtype=np.int64)
        ids, numbers = ids_of[id(named)], np.asarray(values, dtype=np.float32)
        if numbers.shape != ids.shape or not np.isfinite(numbers).all():
            raise DataError(f"the attribute {name!r} takes a finite number for each of its {len(ids):,} nodes")
        known = ids >= 0
        features[ids[known], place[name]] = numbers[known]
        described[ids[known]] = True
    return features, described
