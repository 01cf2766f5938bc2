"""Read the classes of nodes from tables or from a relation of the graph, and numbers that describe nodes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rgcn.data.attributes import AttributeColumn, AttributeSource
from rgcn.data.files import SPLIT_NAMES, PathLike, existing_path, option_hint, split_paths
from rgcn.data.rdf import node_kinds
from rgcn.data.tables import Column, read_table
from rgcn.errors import DataError, ParseError, close_matches
from rgcn.graph import SPLITS, KnowledgeGraph, NodeLabels, Vocabulary
from rgcn.graph.splitting import find_relation_overlaps

# Column names that begin so are usual; other headers are reported by a warning.
HEADER_PREFIXES = ("node", "entity", "id", "iri", "uri", "name", "subject", "label", "class", "split")

# -- labels from files -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class LabelFiles:
    """Tables (TSV, CSV or Parquet, compressed or not) of nodes and their classes.

    Attributes:
        files: One file, or one for each split: {"train": file, "valid": file, "test": file}.
        node: The column of node names, by name or position (from 0).
        label: The column of class names. None: the only one whose name begins with "label" or is "class", else the last
            one that is not the split.
        split: The column that says train, valid or test. None: the one called "split", or the last of three or more if
            it holds nothing else (with a warning); without such a column, all nodes are in train.
        header: Whether the first line names the columns. None: if a column is given by name, or if the line has no node
            of the graph and a class that occurs in no other line. A warning says so if its words are unusual.
        missing: What to do with a label whose node is not in the graph: "error", "add" an isolated node, or "drop" the
            label.

    >>> LabelFiles({"train": "trainingSet.tsv", "test": "testSet.tsv"}, node="person").missing
    'error'
    """

    files: PathLike | Mapping[str, PathLike]
    node: Column = 0
    label: Column | None = None
    split: Column | None = None
    header: bool | None = None
    missing: str = "error"

    def __post_init__(self) -> None:
        if self.missing not in ("error", "add", "drop"):
            raise DataError(f'missing= can be "error", "add" or "drop", not {self.missing!r}')

    def paths(self) -> dict[str, Path]:
        """Return the file of each split; a single file is that of train."""
        if not isinstance(self.files, Mapping):
            return {"train": existing_path(self.files, "label file")}
        return dict(sorted(split_paths(self.files, "label file"), key=lambda item: SPLITS.index(item[0])))

    def add_to(self, graph: KnowledgeGraph) -> KnowledgeGraph:
        r"""Return the graph with the labels of the files; classes are numbered by first appearance, train first.

        Raises:
            DataError: A file is malformed, a node has two classes or is in two splits, or it is not in the graph.

        >>> import tempfile
        >>> graph = KnowledgeGraph.from_triples([("Bern", "in", "Europe"), ("Lima", "in", "America")])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "size.tsv").write_text("city\tlabel_size\nBern\tsmall\nLima\tlarge\n")
        ...     LabelFiles(Path(folder, "size.tsv")).add_to(graph).labels
        NodeLabels(2 nodes, 2 classes; train 2)
        """
        rows = [row for split, path in self.paths().items() for row in _read_labels(graph, self, split, path)]
        rows = _distinct(sorted(rows, key=lambda row: SPLITS.index(row.split)))
        if not rows:
            raise DataError(f"no labels in {', '.join(str(path) for path in self.paths().values())}")
        unknown = [row for row in rows if row.node not in graph.nodes]
        if unknown and self.missing == "error":
            raise _unknown_nodes(graph, unknown)
        if unknown and self.missing == "add":
            names, kinds, features = [row.node for row in unknown], graph.node_kinds, graph.features
            kinds = None if kinds is None else np.concatenate([kinds, node_kinds(Vocabulary(names))])
            features = None if features is None else np.pad(features, ((0, len(names)), (0, 0)))
            nodes = Vocabulary([*graph.nodes, *names], kind="node")
            graph = replace(graph, nodes=nodes, node_kinds=kinds, features=features)
        if unknown:
            graph = replace(graph, metadata={**graph.metadata, "missing_labels": len(unknown)})
        rows = [row for row in rows if row.node in graph.nodes]
        if not rows:
            raise DataError("no labeled node is in the graph: write their names as the graph does")
        return graph.with_labels(
            {split: {row.node: row.label for row in rows if row.split == split} for split in SPLITS}
        )


class _Label(NamedTuple):
    node: str
    label: str
    split: str
    path: Path
    line: int


def _read_labels(graph: KnowledgeGraph, source: LabelFiles, split: str, path: Path) -> Iterator[_Label]:
    table, frame = read_table(path, "label", default_format="tsv")
    lines, rows = frame["line"].to_list(), frame.drop("line").fill_null("").rows()
    if table.names is None and rows and _has_header(rows, graph, source, path):
        table.names, rows, lines = list(rows[0]), rows[1:], lines[1:]
    if not rows:
        return
    names = [_plain_word(name) for name in table.names or []]
    label_columns = [i for i, name in enumerate(names) if name.startswith("label") or name == "class"]
    last = table.width - 1
    split_column = source.split
    if split_column is None and not isinstance(source.files, Mapping):
        holds_splits = last > 1 and {row[last] for row in rows} <= set(SPLIT_NAMES)
        if "split" in names:
            split_column = names.index("split")
        elif holds_splits and source.label is None and last not in label_columns:
            split_column, hint = last, option_hint("label_columns", [0, last])
            warnings.warn(f"{path}: the last column is read as the split; if it is the class: {hint}", stacklevel=4)
    default = -2 if split_column == last or names[-1:] == ["split"] else -1
    if len(label_columns) == 1:
        default = label_columns[0]
    node, label = table.position(source.node), table.position(default if source.label is None else source.label)
    for row, line in zip(rows, lines, strict=True):
        if not row[node] or not row[label]:
            raise ParseError(str(path), line, "\t".join(row), "the node or its class is empty")
        name = split if split_column is None else row[table.position(split_column)]
        if name not in SPLIT_NAMES:
            raise ParseError(str(path), line, "\t".join(row), f"{name!r} is not a split: use train, valid or test")
        yield _Label(_name_in_graph(graph, row[node]), row[label], SPLIT_NAMES[name], path, line)


def _has_header(rows: list[tuple[str, ...]], graph: KnowledgeGraph, source: LabelFiles, path: Path) -> bool:
    if source.header is not None:
        return source.header
    if any(isinstance(column, str) for column in (source.node, source.label, source.split)):
        return True
    first, node, label = rows[0], int(source.node), -1 if source.label is None else int(source.label)
    try:
        if _name_in_graph(graph, first[node]) in graph.nodes or any(row[label] == first[label] for row in rows[1:]):
            return False
    except IndexError:
        return False
    if not any(_plain_word(cell).startswith(HEADER_PREFIXES) for cell in first):
        warnings.warn(
            f"{path}: the first row ({', '.join(first)}) names no node of the graph, and is taken for a header: call "
            f"its columns node and label, or set {option_hint('label_header', False)}",
            stacklevel=4,
        )
    return True


def _plain_word(cell: str) -> str:
    return cell.strip("\"' ").lower()


def _distinct(rows: list[_Label]) -> list[_Label]:
    """Return each node once; ParseError if it has two classes, or is in two splits (a leak)."""
    first: dict[str, _Label] = {}
    for row in rows:
        other = first.setdefault(row.node, row)
        if (other.label, other.split) != (row.label, row.split):
            where = f"in {other.path}, line {other.line}"
            reason = f"{row.node} is in {row.split} here and in {other.split} {where}: the test would leak"
            if other.label != row.label:
                reason = f"{row.node} has the class {row.label!r} here and {other.label!r} {where}"
            raise ParseError(str(row.path), row.line, "", reason)
    return list(first.values())


def _name_in_graph(graph: KnowledgeGraph, name: str) -> str:
    """Return the graph's name for a node, which label files may write in angle brackets."""
    if name in graph.nodes or not (name.startswith("<") and name.endswith(">")):
        return name
    return name[1:-1] if graph.node_kinds is not None or name[1:-1] in graph.nodes else name


def _unknown_nodes(graph: KnowledgeGraph, unknown: list[_Label]) -> DataError:
    count = f"{len(unknown)} labeled nodes are" if len(unknown) > 1 else "a labeled node is"
    lines = [f"{count} not in the graph:"]
    for row in unknown[:3]:
        near = "".join(f"; did you mean {name}?" for name in close_matches(row.node, graph.nodes, limit=1))
        lines.append(f"    {row.node} ({row.path}, line {row.line}){near}")
    if len(unknown) > 3:
        lines.append(f"    and {len(unknown) - 3} more")
    hint = f"{option_hint('missing_labels', 'drop')}, or --skip-unknown, if the command has it"
    lines.append(f"missing_labels='add' makes them isolated nodes; to leave them out, {hint}")
    return DataError("\n".join(lines))


# -- labels from a relation ------------------------------------------------------------------------------


@dataclass(frozen=True)
class LabelRelation:
    """A relation of the graph whose objects are the classes of its subjects.

    Attributes:
        relation: Its name.
        inverse: Relations that say the same, in the other direction or under another name, and would give the labels
            away. A warning names those that stay in the graph.
        multiple: What to do with a node that has several classes: "error", or take the "first" in the file.
        split: Fractions of the labels of each class that go to train, valid and test. By default all are training
            labels: queries use all of them, and a training holds out its own share (`data.test`).
        seed: Seed of the random split.
    """

    relation: str
    inverse: str | Sequence[str] | None = None
    multiple: str = "error"
    split: tuple[float, float, float] = (1.0, 0.0, 0.0)
    seed: int = 0

    def __post_init__(self) -> None:
        if self.multiple not in ("error", "first"):
            raise DataError(f'multiple= can be "error" or "first", not {self.multiple!r}')

    def add_to(self, graph: KnowledgeGraph) -> KnowledgeGraph:
        """Return the graph without the relation, whose objects have become classes; all nodes stay.

        Raises:
            DataError: A node has several classes, and `multiple` is "error".

        >>> graph = KnowledgeGraph.from_triples(
        ...     [("Ada", "works_at", "KIT"), ("Max", "works_at", "ETH"), ("Ada", "knows", "Max")]
        ... )
        >>> LabelRelation("works_at").add_to(graph)
        KnowledgeGraph(4 nodes, 1 relation, 1 triple, 2 labels in 2 classes)
        """
        inverse = [self.inverse] if isinstance(self.inverse, str) else self.inverse or ()
        removed = [graph.relations[graph.names.relation(name)] for name in (self.relation, *inverse)]
        relation = graph.relations.id(removed[0])
        pairs = graph.triples[graph.triples[:, 1] == relation][:, [0, 2]]
        nodes, first = np.unique(pairs[:, 0], return_index=True)
        if self.multiple == "error":
            _refuse_multiple(graph, self.relation, pairs)
        _warn_of_leaks(graph, relation, set(graph.relations.ids(removed).tolist()))
        file_order = np.argsort(first, kind="stable")
        nodes, class_nodes = nodes[file_order], pairs[first[file_order], 1]
        ids: dict[int, int] = {}
        classes = np.array([ids.setdefault(node, len(ids)) for node in class_nodes.tolist()], dtype=np.int64)
        names, splits = graph.nodes.take(ids), stratified_split(classes, self.split, self.seed)
        labels = NodeLabels(nodes, classes, Vocabulary(names, kind="class"), splits)
        metadata = {**graph.metadata, "labels_from": removed}
        return replace(graph.without_relations(removed), labels=labels, metadata=metadata)


def _warn_of_leaks(graph: KnowledgeGraph, relation: int, removed: set[int]) -> None:
    """Warn if another relation gives away more than half of the labels, so that a model reads them there."""
    overlaps = find_relation_overlaps(graph.triples, graph.num_relations, of=[relation])
    leaks = {overlap.other: overlap for overlap in reversed(overlaps) if overlap.other not in removed}
    if leaks:
        relations = graph.relations
        found = [f"{relations[o.other]} ({o.share:.0%}{', the other way round' * o.inverse})" for o in leaks.values()]
        names = [relations[other] for other in (*sorted(removed - {relation}), *leaks)]
        warnings.warn(
            f"the labels, which are from {relations[relation]}, also stand in {', '.join(found)}, which stays in the "
            f"graph and gives the classes away. inverse=[{', '.join(names)}] (`data.inverse` in a configuration) "
            "removes it",
            stacklevel=4,
        )


def _refuse_multiple(graph: KnowledgeGraph, relation: str, pairs: NDArray[np.int64]) -> None:
    nodes, counts = np.unique(np.unique(pairs, axis=0)[:, 0], return_counts=True)
    multiple = nodes[counts > 1]
    if not len(multiple):
        return
    example = multiple[0]
    values = [graph.nodes[int(o)] for o in dict.fromkeys(pairs[pairs[:, 0] == example, 1].tolist())]
    raise DataError(
        f"{len(multiple)} of {len(nodes)} nodes have several values of {relation}, e.g. {graph.nodes[int(example)]} "
        f"has {', '.join(values[:3])}, but need one class: to take the first, set {option_hint('multiple', 'first')}"
    )


def stratified_split(classes: NDArray[Any], fractions: Sequence[float], seed: int) -> NDArray[np.int8]:
    """Draw a split for each label, with the same fractions in every class.

    Args:
        classes: Class of each label, [num_labels].
        fractions: Fractions of train, valid and test. Every class has at least one label in train.
        seed: The same seed gives the same split.

    Returns:
        Index into ("train", "valid", "test") of each label, int8 [num_labels].

    Raises:
        DataError: The fractions are negative, do not sum to 1, or leave nothing for train.

    >>> stratified_split(np.array([0, 0, 0, 0, 0, 1]), (0.8, 0.0, 0.2), seed=0).tolist().count(2)
    1
    """
    shares = np.asarray(fractions, dtype=np.float64)
    if shares.shape != (3,) or not np.isfinite(shares).all() or (shares < 0).any() or abs(shares.sum() - 1) > 1e-6:
        raise DataError(f"split fractions must be three numbers of at least 0 that sum to 1, not {tuple(fractions)}")
    if not shares[0] > 0:
        raise DataError("a share of the labels must go to train")
    rng, splits = np.random.default_rng(seed), np.zeros(len(classes), dtype=np.int8)
    for class_id in np.unique(classes):
        members = rng.permutation(np.flatnonzero(classes == class_id))
        exact = len(members) * shares
        sizes = np.floor(exact + 1e-9).astype(np.int64)
        sizes[np.argsort(sizes - exact, kind="stable")[: len(members) - sizes.sum()]] += 1  # the largest remainders
        if not sizes[0]:
            sizes[np.argmax(sizes)] -= 1
            sizes[0] = 1
        splits[members] = np.repeat(np.arange(3, dtype=np.int8), sizes)
    return splits


# -- numbers of nodes --------------------------------------------------------------------------------------


class TableAttributes(AttributeSource):
    r"""A TSV, CSV or Parquet table whose rows have a node's name, then numbers.

    The first line is a header if it holds no numbers and names no node.

    >>> import tempfile
    >>> from rgcn.data.attributes import with_features
    >>> graph = KnowledgeGraph.from_triples([("Bern", "in", "Europe")])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "size.csv").write_text("city,km2,people\nBern,51.6,134000\n")
    ...     with_features(graph, Path(folder, "size.csv")).features.tolist()
    [[51.599..., 134000.0], [0.0, 0.0]]
    """

    def columns(self, graph: KnowledgeGraph) -> Iterator[AttributeColumn]:
        """Yield the columns; ParseError for a missing or repeated node, or a cell that is not a finite number."""
        table, frame = read_table(self.path, "feature")
        if table.width < 2:
            raise DataError(f"{self.path}: a node's name and at least one number are needed in each row")
        numbers = frame.drop("0", "line").select(pl.all().cast(pl.Float32, strict=False))
        has_numbers = any(number is not None for number in numbers.row(0))
        if table.names is None and not has_numbers and frame[0, "0"] not in graph.nodes:
            frame, numbers = frame[1:], numbers[1:]
        names, values = frame["0"].to_list(), numbers.fill_null(float("nan")).to_numpy()
        if None in names:
            raise self._error(frame, names.index(None), "the node's name is empty")
        if len(wrong := np.argwhere(~np.isfinite(values))):
            row, column = wrong[0].tolist()
            reason = f"feature {column + 1} of {names[row]} is not a finite number: {frame[row, column + 1]!r}"
            raise self._error(frame, row, reason)
        repeated = (~frame["0"].is_first_distinct()).arg_true().to_list()
        for row in (row for row in repeated if names[row] in graph.nodes):
            raise self._error(frame, row, f"the features of {names[row]} are given twice")
        yield from (AttributeColumn(str(at), names, column) for at, column in enumerate(values.T))

    def _error(self, frame: pl.DataFrame, row: int, reason: str) -> ParseError:
        return ParseError(str(self.path), frame[row, "line"], "", reason)
