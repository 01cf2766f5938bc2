"""Classes of nodes, from tables beside the graph or from one of its relations, and numbers that describe nodes."""

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
from rgcn.data.files import SPLIT_NAMES, PathLike, existing, named_splits, said
from rgcn.data.rdf import node_kinds
from rgcn.data.tables import Column, whole_table
from rgcn.errors import DataError, ParseError, close_matches
from rgcn.graph import SPLITS, KnowledgeGraph, NodeLabels, Vocabulary
from rgcn.graph.splitting import relation_overlaps

USUAL_WORDS = ("node", "entity", "id", "iri", "uri", "name", "subject", "label", "class", "split")  # begin headers

# -- labels from files -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class LabelFiles:
    """Tables (TSV, CSV, Parquet; compressed or not) that give nodes their classes.

    files    one file, or one a split: {"train": ..., "valid": ..., "test": ...}
    node     column of the node names, by name or position (from 0)
    label    column of the class names; None: the one whose name begins with "label" or is "class" if exactly one does,
             else the last but the split's
    split    column saying train, valid or test; None: the column named "split" if there is one, or the last of three or
             more where it says nothing else (a warning tells), else all are train
    header   whether the first line names the columns; None: it does if a column is given by name, or if it names no
             node of the graph and its class occurs in no other line; a warning says so unless its words are usual
    missing  what becomes of a label whose node is not in the graph: "error", "add" (an isolated node) or "drop"

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
            raise DataError(f'missing labels can be an "error", or be "add"ed or "drop"ped; not {self.missing!r}')

    def paths(self) -> dict[str, Path]:
        """The file of each split; where there is only one file it stands under train."""
        if not isinstance(self.files, Mapping):
            return {"train": existing(self.files, "label file")}
        return dict(sorted(named_splits(self.files, "label file"), key=lambda named: SPLITS.index(named[0])))

    def added_to(self, graph: KnowledgeGraph) -> KnowledgeGraph:
        """The graph with the labels of the files; classes are numbered by first appearance, train first.

        >>> import tempfile
        >>> graph = KnowledgeGraph.from_triples([("Bern", "in", "Europe"), ("Lima", "in", "America")])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "size.tsv").write_text("city\\tlabel_size\\nBern\\tsmall\\nLima\\tlarge\\n")
        ...     LabelFiles(Path(folder, "size.tsv")).added_to(graph).labels
        NodeLabels(2 nodes, 2 classes; train 2)
        """
        rows = [row for split, path in self.paths().items() for row in _label_rows(graph, self, split, path)]
        rows = _distinct(sorted(rows, key=lambda row: SPLITS.index(row.split)))
        if not rows:
            raise DataError(f"no labels in {', '.join(str(path) for path in self.paths().values())}")
        unknown = [row for row in rows if row.node not in graph.nodes]
        if unknown and self.missing == "error":
            raise _unknown_nodes(graph, unknown)
        if unknown:
            if self.missing == "add":
                names = [row.node for row in unknown]
                kinds = graph.node_kinds
                kinds = None if kinds is None else np.concatenate([kinds, node_kinds(Vocabulary(names))])
                features = None if graph.features is None else np.pad(graph.features, ((0, len(names)), (0, 0)))
                nodes = Vocabulary([*graph.nodes, *names], kind="node")
                graph = replace(graph, nodes=nodes, node_kinds=kinds, features=features)
            graph = replace(graph, metadata={**graph.metadata, "missing_labels": len(unknown)})
        rows = [row for row in rows if row.node in graph.nodes]
        if not rows:
            raise DataError("no labelled node is in the graph")
        return graph.with_labels(
            {split: {row.node: row.label for row in rows if row.split == split} for split in SPLITS}
        )


class _Label(NamedTuple):
    node: str
    label: str
    split: str
    path: Path
    line: int

    @property
    def where(self) -> str:
        return f"{self.path}, line {self.line}"


def _label_rows(graph: KnowledgeGraph, source: LabelFiles, split: str, path: Path) -> Iterator[_Label]:
    table, frame = whole_table(path, "label", default_format="tsv")
    lines, cells = frame["line"].to_list(), frame.drop("line").fill_null("").rows()
    if table.names is None and cells and _has_header(cells, graph, source, path):
        table.names, cells, lines = list(cells[0]), cells[1:], lines[1:]
    if not cells:
        return
    names = [name.strip("\"' ").lower() for name in table.names or []]
    called = [i for i, name in enumerate(names) if name.startswith("label") or name == "class"]
    last = table.width - 1
    split_column = source.split
    if split_column is None and not isinstance(source.files, Mapping):
        says_splits = last > 1 and {row[last] for row in cells} <= set(SPLIT_NAMES)
        if "split" in names:
            split_column = names.index("split")
        elif says_splits and source.label is None and last not in called:
            split_column, example = last, said("label_columns", [0, last])
            warnings.warn(f"{path}: the last column is read as the split; if it is the class: {example}", stacklevel=4)
    usual = called[0] if len(called) == 1 else -2 if split_column == last or names[-1:] == ["split"] else -1
    node, label = table.position(source.node), table.position(usual if source.label is None else source.label)
    for row, line in zip(cells, lines, strict=True):
        if not row[node] or not row[label]:
            raise ParseError(str(path), line, "\t".join(row), "the node or its class is empty")
        of_split = split if split_column is None else row[table.position(split_column)]
        if of_split not in SPLIT_NAMES:
            raise ParseError(str(path), line, "\t".join(row), f"{of_split!r} is no split: train, valid and test are")
        yield _Label(_called(graph, row[node]), row[label], SPLIT_NAMES[of_split], path, line)


def _has_header(cells: list[tuple[str, ...]], graph: KnowledgeGraph, source: LabelFiles, path: Path) -> bool:
    if source.header is not None:
        return source.header
    if any(isinstance(column, str) for column in (source.node, source.label, source.split)):
        return True
    node = source.node if isinstance(source.node, int) else 0
    label = source.label if isinstance(source.label, int) else -1
    try:
        first = cells[0]
        names_a_node = _called(graph, first[node]) in graph.nodes
        if names_a_node or any(row[label] == first[label] for row in cells[1:]):
            return False
    except IndexError:
        return False
    if not any(cell.strip("\"' ").lower().startswith(USUAL_WORDS) for cell in first):
        warnings.warn(
            f"{path}: the first row ({', '.join(first)}) names no node of the graph, and is taken for a header: call "
            f"its columns node and label, or say {said('label_header', False)}",
            stacklevel=4,
        )
    return True


def _distinct(rows: list[_Label]) -> list[_Label]:
    """Each node once; an error where it has two classes, or stands in two splits (a leak)."""
    first: dict[str, _Label] = {}
    for row in rows:
        other, reason = first.setdefault(row.node, row), None
        if other.label != row.label:
            reason = f"{row.node} has the class {row.label!r} here and {other.label!r} in {other.where}"
        elif other.split != row.split:
            reason = f"{row.node} is in {row.split} here and in {other.split} in {other.where}: the test would leak"
        if reason is not None:
            raise ParseError(str(row.path), row.line, "", reason)
    return list(first.values())


def _called(graph: KnowledgeGraph, name: str) -> str:
    """What the graph calls a node that a label file may write <in brackets>."""
    if name in graph.nodes or not (name.startswith("<") and name.endswith(">")):
        return name
    return name[1:-1] if graph.node_kinds is not None or name[1:-1] in graph.nodes else name


def _unknown_nodes(graph: KnowledgeGraph, unknown: list[_Label]) -> DataError:
    count = f"{len(unknown)} labelled nodes are" if len(unknown) > 1 else "a labelled node is"
    lines = [f"{count} not in the graph:"]
    for row in unknown[:3]:
        near = close_matches(row.node, graph.nodes, limit=1)
        lines.append(f"    {row.node} ({row.where})" + (f"; did you mean {near[0]}?" if near else ""))
    if len(unknown) > 3:
        lines.append(f"    and {len(unknown) - 3} more")
    out = f"{said('missing_labels', 'drop')}, or --skip-unknown, where a command has it"
    lines.append(f"missing_labels='add' makes them isolated nodes; to leave them out, {out}")
    return DataError("\n".join(lines))


# -- labels from a relation ------------------------------------------------------------------------------


@dataclass(frozen=True)
class LabelRelation:
    """A relation of the graph whose objects are the classes of its subjects.

    relation   its name
    inverse    relations that say the same, the other way round or under another name, and would give the answer away;
               a warning names those that stay
    multiple   a node with several classes: "error", or "first" takes the one the file mentions first
    split      fractions of the labels that go to train, valid and test, class by class. By default all are training
               labels: what only asks uses every one, and a training holds out its own share (`data.test`)
    seed       of the draw
    """

    relation: str
    inverse: str | Sequence[str] | None = None
    multiple: str = "error"
    split: tuple[float, float, float] = (1.0, 0.0, 0.0)
    seed: int = 0

    def __post_init__(self) -> None:
        if self.multiple not in ("error", "first"):
            raise DataError(f'multiple classes can be an "error" or give the "first"; not {self.multiple!r}')

    def added_to(self, graph: KnowledgeGraph) -> KnowledgeGraph:
        """The graph without the relation (and its inverse), whose objects have become classes; all nodes stay.

        >>> graph = KnowledgeGraph.from_triples(
        ...     [("Ada", "works_at", "KIT"), ("Max", "works_at", "ETH"), ("Ada", "knows", "Max")]
        ... )
        >>> LabelRelation("works_at").added_to(graph)
        KnowledgeGraph(4 nodes, 1 relation, 1 triple, 2 labels in 2 classes)
        """
        also = [self.inverse] if isinstance(self.inverse, str) else self.inverse or ()
        given = [self.relation, *also]
        gone = [graph.relations[graph.names.relation(name)] for name in given]
        relation = graph.relations.id(gone[0])
        pairs = graph.triples[graph.triples[:, 1] == relation][:, [0, 2]]
        nodes, first = np.unique(pairs[:, 0], return_index=True)
        if self.multiple == "error":
            _refuse_multiple(graph, self.relation, pairs)
        _warn_of_leaks(graph, relation, set(graph.relations.ids(gone).tolist()))
        in_file_order = np.argsort(first, kind="stable")
        nodes, class_nodes = nodes[in_file_order], pairs[first[in_file_order], 1]
        names: dict[int, int] = {}
        classes = np.array([names.setdefault(node, len(names)) for node in class_nodes.tolist()], dtype=np.int64)
        called, splits = graph.nodes.take(names), stratified_split(classes, self.split, self.seed)
        labels = NodeLabels(nodes, classes, Vocabulary(called, kind="class"), splits)
        metadata = {**graph.metadata, "labels_from": gone}
        return replace(graph.without_relations(gone), labels=labels, metadata=metadata)


def _warn_of_leaks(graph: KnowledgeGraph, relation: int, gone: set[int]) -> None:
    """Where another relation tells more than half of the labels, a model reads them there and learns nothing."""
    found = relation_overlaps(graph.triples, graph.num_relations, of=[relation])
    telling = {one.other: one for one in reversed(found) if one.other not in gone}.values()
    ways = [f"{graph.relations[o.other]} ({o.share:.0%}{', the other way round' * o.inverse})" for o in telling]
    names = [graph.relations[other] for other in (*sorted(gone - {relation}), *(one.other for one in telling))]
    if telling:
        warnings.warn(
            f"the labels, which are from {graph.relations[relation]}, also stand in {', '.join(ways)}, which stays in "
            f"the graph and gives the classes away. inverse=[{', '.join(names)}] (`data.inverse` in a configuration) "
            "removes it",
            stacklevel=4,
        )


def _refuse_multiple(graph: KnowledgeGraph, relation: str, pairs: NDArray[np.int64]) -> None:
    nodes, counts = np.unique(np.unique(pairs, axis=0)[:, 0], return_counts=True)
    several = nodes[counts > 1]
    if not len(several):
        return
    example = several[0]
    values = [graph.nodes[int(o)] for o in dict.fromkeys(pairs[pairs[:, 0] == example, 1].tolist())]
    raise DataError(
        f"{len(several)} of {len(nodes)} nodes have several values of {relation}, e.g. {graph.nodes[int(example)]} has "
        f"{', '.join(values[:3])}; a node has one class here: to take the first, {said('multiple', 'first')}"
    )


def stratified_split(classes: NDArray[Any], fractions: Sequence[float], seed: int) -> NDArray[np.int8]:
    """Draw a split for each label, int8 [L], index into ("train", "valid", "test"), alike in every class.

    Every class has at least one member in train; the same seed gives the same split.

    >>> stratified_split(np.array([0, 0, 0, 0, 0, 1]), (0.8, 0.0, 0.2), seed=0).tolist().count(2)
    1
    """
    shares = np.asarray(fractions, dtype=np.float64)
    if shares.shape != (3,) or not np.isfinite(shares).all() or (shares < 0).any() or abs(shares.sum() - 1) > 1e-6:
        raise DataError(f"split fractions must be three numbers of at least 0 that sum to 1, not {tuple(fractions)}")
    if not shares[0] > 0:
        raise DataError("a share of the labels must go to train")
    rng = np.random.default_rng(seed)
    splits = np.zeros(len(classes), dtype=np.int8)
    for class_id in np.unique(classes):
        members = rng.permutation(np.flatnonzero(classes == class_id))
        sizes = _apportioned(len(members), shares)
        splits[members] = np.repeat(np.arange(3, dtype=np.int8), sizes)
    return splits


def _apportioned(count: int, shares: NDArray[np.float64]) -> NDArray[np.int64]:
    """Whole sizes [3] that sum to `count`, the largest remainders rounded up, and at least one for train."""
    exact = count * shares
    sizes = np.floor(exact + 1e-9).astype(np.int64)
    for i in np.argsort(sizes - exact, kind="stable")[: count - sizes.sum()]:
        sizes[i] += 1
    if count and not sizes[0]:
        sizes[np.argmax(sizes)] -= 1
        sizes[0] = 1
    return sizes


# -- numbers of nodes --------------------------------------------------------------------------------------


class TableAttributes(AttributeSource):
    """A TSV, CSV or Parquet table: a node's name, then F numbers.

    The first line is a header if it holds no numbers and names no node.

    >>> import tempfile
    >>> from rgcn.data.attributes import with_features
    >>> graph = KnowledgeGraph.from_triples([("Bern", "in", "Europe")])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "size.csv").write_text("city,km2,people\\nBern,51.6,134000\\n")
    ...     with_features(graph, Path(folder, "size.csv")).features.tolist()
    [[51.599..., 134000.0], [0.0, 0.0]]
    """

    def columns(self, graph: KnowledgeGraph) -> Iterator[AttributeColumn]:
        table, frame = whole_table(self.path, "feature")
        if table.width < 2:
            raise DataError(f"{self.path}: a node's name and at least one number are needed in each row")
        numbers = frame.drop("0", "line").select(pl.all().cast(pl.Float32, strict=False))
        holds_numbers = any(number is not None for number in numbers.row(0))
        if table.names is None and not holds_numbers and frame[0, "0"] not in graph.nodes:
            frame, numbers = frame[1:], numbers[1:]
        names, values = frame["0"].to_list(), numbers.fill_null(float("nan")).to_numpy()
        if None in names:
            raise self._wrong(frame, names.index(None), "the node's name is empty")
        if len(wrong := np.argwhere(~np.isfinite(values))):
            row, column = wrong[0].tolist()
            reason = f"feature {column + 1} of {names[row]} is no finite number: {frame[row, column + 1]!r}"
            raise self._wrong(frame, row, reason)
        twice = (~frame["0"].is_first_distinct()).arg_true().to_list()
        for row in (row for row in twice if names[row] in graph.nodes):
            raise self._wrong(frame, row, f"the features of {names[row]} are given twice")
        yield from (AttributeColumn(str(at), names, column) for at, column in enumerate(values.T))

    def _wrong(self, frame: pl.DataFrame, row: int, reason: str) -> ParseError:
        return ParseError(str(self.path), frame[row, "line"], "", reason)
