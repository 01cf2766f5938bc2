"""Read numeric attributes of nodes, which become the features of a graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from rgcn.data.files import PathLike, component_for_suffix, existing_path, file_suffix
from rgcn.errors import DataError
from rgcn.graph import KnowledgeGraph, Vocabulary
from rgcn.plugins import ATTRIBUTE_SOURCES


class AttributeColumn(NamedTuple):
    """A number for each of some nodes.

    Attributes:
        name: What the number is; columns of the same name, from several files, become one feature.
        nodes: Names of nodes, [num_values], each once.
        values: Their numbers, [num_values], all finite.
    """

    name: str
    nodes: Sequence[str]
    values: Sequence[float] | NDArray[Any]


class AttributeSource(ABC):
    """A file of numbers that describe nodes: `rgcn.read(path, features=...)`.

    To read another format, write a subclass and pass `features=MySource("people.db")`. `features="people.db"` works
    too, once a package registers the subclass under the entry points `rgcn.attribute_sources`. A reader whose files
    hold both triples and numbers needs no source: it calls `reading.add_attribute`.

    Attributes:
        suffixes: Suffixes of such files: lower case, without dot.
        path: The file.

    >>> class Ages(AttributeSource):
    ...     '''Lines like "Ada is 36".'''
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

    suffixes: ClassVar[tuple[str, ...]] = ()

    def __init__(self, path: PathLike) -> None:
        self.path = existing_path(path, "feature file")

    @abstractmethod
    def columns(self, graph: KnowledgeGraph) -> Iterable[AttributeColumn]:
        """Yield the columns of the file, which may have nodes that are not in the graph."""


def attribute_source(source: PathLike | AttributeSource) -> AttributeSource:
    """Return the attribute source for a file, chosen by its suffix; files with other suffixes are read as tables."""
    if isinstance(source, AttributeSource):
        return source
    kind = component_for_suffix(ATTRIBUTE_SOURCES, file_suffix(source)) or "table"
    return cast(AttributeSource, ATTRIBUTE_SOURCES.resolve(kind)(source))


def with_features(graph: KnowledgeGraph, source: PathLike | AttributeSource) -> KnowledgeGraph:
    """Return the graph with the columns of a source as further features.

    Nodes that the source does not have get zeros, and nodes that are not in the graph are left out. The metadata count
    both.

    Raises:
        DataError: The file is malformed, or none of its nodes is in the graph.
    """
    source = attribute_source(source)
    columns = list(source.columns(graph))
    features, has_features = feature_matrix(columns, graph.nodes)
    if not has_features.any():
        raise DataError(f"none of the nodes in {source.path} is in the graph: write their names as the graph does")
    names = {id(column.nodes): column.nodes for column in columns}.values()
    counts = {
        "nodes_without_features": int((~has_features).sum()),
        "features_of_unknown_nodes": len({name for nodes in names for name in nodes if name not in graph.nodes}),
    }
    if graph.features is not None:
        features = np.hstack([graph.features, features])
    return replace(graph, features=features, metadata={**graph.metadata, **counts})


def feature_matrix(columns: list[AttributeColumn], nodes: Vocabulary) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return the columns as features.

    Args:
        columns: The columns; those of the same name are merged.
        nodes: The nodes of the graph; others are left out.

    Returns:
        Features, float32 [num_nodes, num_features], zero for nodes without a number; and which nodes have one, bool
        [num_nodes].

    Raises:
        DataError: A column has not exactly one finite number for each of its nodes.
    """
    position = {name: at for at, name in enumerate(dict.fromkeys(column.name for column in columns))}
    features = np.zeros((len(nodes), len(position)), dtype=np.float32)
    has_features, ids_of = np.zeros(len(nodes), dtype=bool), dict[int, NDArray[np.int64]]()
    for name, names, values in columns:
        if id(names) not in ids_of:  # columns of a table share one list of nodes
            ids_of[id(names)] = np.array([-1 if (i := nodes.get(n)) is None else i for n in names], dtype=np.int64)
        ids, numbers = ids_of[id(names)], np.asarray(values, dtype=np.float32)
        if numbers.shape != ids.shape or not np.isfinite(numbers).all():
            raise DataError(f"the attribute {name!r} needs a finite number for each of its {len(ids):,} nodes")
        known = ids >= 0
        features[ids[known], position[name]] = numbers[known]
        has_features[ids[known]] = True
    return features, has_features
