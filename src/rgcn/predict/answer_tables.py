"""Write predictions as tables and files: classes of nodes, and scored triples.

Formats are CSV, TSV, Parquet, JSON Lines and N-Triples. A file is replaced atomically when it is complete.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from rgcn.errors import ConfigError, DataError
from rgcn.graph import SPLITS, KnowledgeGraph
from rgcn.links.top_k import ScoredTriples
from rgcn.models.answer_kind import AnswerKind, ClassKind
from rgcn.system.atomic_files import disk_error_message, replace_atomically
from rgcn.system.compression import compression_from_name, open_compressor

if TYPE_CHECKING:
    import polars as pl

    from rgcn.predict import OpenModel

Ids = NDArray[np.int64]
Numbers = NDArray[np.float32]

CHUNK_ROWS = 1 << 16
# Labeled nodes share a trait if this share of them has it. A node is like them if it has this share of these traits.
SHARED_TRAIT, SHARED_TRAITS = 0.9, 0.8
# Predicate of predictions as RDF, if the relation that the labels came from is unknown.
PREDICATE = "urn:rgcn:predictedClass"
Format = Literal["csv", "tsv", "parquet", "jsonl", "nt"]

SUFFIXES: dict[str, Format] = {**{f".{format}": format for format in get_args(Format)}, ".nt.gz": "nt"}
NAME_COLUMNS = ("subject", "relation", "object", "subject_title", "relation_title", "object_title")


@dataclass(frozen=True, eq=False)
class ClassAnswers:
    """Predicted classes of n nodes.

    Args:
        node: int64 [n].
        class_: int64 [n]: the most likely class.
        scores: [n, C]: raw scores of all classes.
        probabilities: [n, C]: calibrated; None if the model is not calibrated.
    """

    node: Ids
    class_: Ids
    scores: Numbers
    probabilities: Numbers | None

    def __len__(self) -> int:
        """Return the number of nodes."""
        return len(self.node)

    @property
    def score(self) -> Numbers:
        """Score of the most likely class, [n]."""
        return self.scores[np.arange(len(self)), self.class_]

    @property
    def probability(self) -> Numbers | None:
        """Probability of the most likely class, [n]."""
        return None if self.probabilities is None else self.probabilities[np.arange(len(self)), self.class_]


class NodeTables(ABC):
    """Tables of answers about nodes, as `rgcn predict` writes and prints them; the interface for kinds of answers."""

    answer: ClassVar[str]  # the column that is printed

    def __init__(self, kind: AnswerKind) -> None:
        """Set the kind of answers."""
        self.kind = kind

    @abstractmethod
    def frame(self, opened: OpenModel, ids: Ids, nested: bool = False) -> pl.DataFrame:
        """Return a table with one row per node: `known_columns`, the answer, score and probability if there are any.

        Args:
            opened: The model.
            ids: Node ids.
            nested: Put numbers per class into one column of {class: number}, for JSON.
        """

    def words(self, opened: OpenModel, value: Any) -> str:
        """Return an answer or a label as text."""
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    def lines(self, opened: OpenModel, ids: Ids, frame: pl.DataFrame, predicate: str) -> Iterator[str]:
        """Yield the answers as N-Triples.

        Raises:
            ConfigError: If they are no triples.
        """
        raise ConfigError(f"a model that {self.kind.ability} gives no triples: name a file of another format")


class ClassTables(NodeTables):
    """Tables of the class of each node, with scores and probabilities of all classes."""

    answer = "class"

    def frame(self, opened: OpenModel, ids: Ids, nested: bool = False) -> pl.DataFrame:
        """Return a table of the classes.

        The columns are node, title, class, class_title, score, probability, label and label_split. Every class has a
        column score(...) and, if the model is calibrated, p(...).
        """
        import polars as pl

        answers, names, known = next(predict_classes(opened, ids, len(ids))), opened.classes, known_columns(opened, ids)
        titles = [opened.titles.class_(number) for number in range(len(names))]
        frame = pl.DataFrame(
            {
                "node": known.pop("node"),
                "title": known.pop("title"),
                "class": [names[number] for number in answers.class_.tolist()],
                "class_title": [titles[number] for number in answers.class_.tolist()],
                "score": answers.score,
                "probability": _optional_shares(answers.probability, len(ids)),
                **known,
            },
            schema_overrides={"label": pl.String, "label_split": pl.String, "probability": pl.Float32},
        )
        parts = (("scores", "score", answers.scores), ("probabilities", "p", answers.probabilities))
        for column, prefix, table in parts:
            series = [] if table is None else [pl.Series(name, table[:, i]) for i, name in enumerate(names)]
            numbers: Any = [one.alias(f"{prefix}({one.name})") for one in series]
            if nested:
                numbers = pl.DataFrame(series).to_struct(column) if series else pl.lit(None).alias(column)
            frame = frame.with_columns(numbers)
        return frame

    def words(self, opened: OpenModel, value: Any) -> str:
        """Return the title of a class."""
        return opened.titles.class_(opened.titles.classes[value])

    def lines(self, opened: OpenModel, ids: Ids, frame: pl.DataFrame, predicate: str) -> Iterator[str]:
        """Yield (node, predicate, class) as N-Triples. Literals cannot be subjects and are skipped."""
        from rgcn.graph.rdf_terms import rdf_class

        classes, (node_term, _) = {name: str(rdf_class(name)) for name in opened.classes}, _terms(opened.graph)
        pairs = zip(ids.tolist(), frame["class"], strict=True)
        rows = ((node, f"{node_term(node)} {predicate} {classes[name]}") for node, name in pairs)
        return _statements(opened.graph, rows, frame["score"].to_list(), frame["probability"].to_list())


def known_columns(opened: OpenModel, ids: Ids) -> dict[str, list[Any]]:
    """Return the columns node, title, label and label_split."""
    graph, labels = opened.graph, opened.graph.labels
    index = np.full(graph.num_nodes, -1, dtype=np.int64)
    if labels is not None:
        index[labels.nodes] = np.arange(len(labels))
    rows = index[ids].tolist()
    return {
        "node": [graph.nodes[node] for node in ids.tolist()],
        "title": [opened.titles.of(node) for node in ids.tolist()],
        "label": [labels.names[int(labels.classes[row])] if labels and row >= 0 else None for row in rows],
        "label_split": [SPLITS[labels.splits[row]] if labels and row >= 0 else None for row in rows],
    }


def nodes_to_classify(opened: OpenModel, every: bool = False) -> Ids:
    """Return the nodes to classify: those of the kind that has labels. A pretrained model skips labeled nodes.

    Args:
        opened: The model.
        every: All nodes except literals.
    """
    graph = opened.graph if opened.zero_shot_graph is None else opened.zero_shot_graph
    labels = graph.labels
    assert labels is not None
    if (relation := getattr(opened.model, "class_relation_", graph.num_relations)) < graph.num_relations:
        # The relation of the labels describes labeled nodes only.
        graph = graph.without_relations([graph.relations[relation]])
    result = np.flatnonzero(~graph.is_literal) if every else nodes_like_labeled(graph)
    return result if opened.zero_shot_graph is None else np.setdiff1d(result, labels.of("train")[0])


def nodes_like_labeled(graph: KnowledgeGraph) -> Ids:
    """Return the labeled nodes and nodes that have most of their shared traits, ascending, without literals.

    Traits of a node are: being a subject of a relation, being an object of it, and having a certain object in it. If
    the labeled nodes share no traits, all nodes are returned.

    >>> people = [("Ada", "lives_in", "London"), ("Bob", "lives_in", "Rome"), ("Eve", "lives_in", "Rome")]
    >>> graph = KnowledgeGraph.from_triples(people, labels={"Ada": "old", "Bob": "young"})
    >>> [graph.nodes[node] for node in nodes_like_labeled(graph)]
    ['Ada', 'Bob', 'Eve']
    """
    assert graph.labels is not None
    (subject, relation, object_), relations, nodes = graph.triples.T, graph.num_relations, graph.num_nodes
    traits = np.concatenate([relation, relation + relations, 2 * relations + relation * nodes + object_])
    names, trait = np.unique(traits, return_inverse=True)
    pairs = np.unique(np.concatenate([subject, object_, subject]) * len(names) + trait)
    node, trait = pairs // max(1, len(names)), pairs % max(1, len(names))
    labeled = np.isin(np.arange(nodes), graph.labels.nodes)
    shared = np.bincount(trait[labeled[node]], minlength=len(names)) >= SHARED_TRAIT * labeled.sum()
    has = np.bincount(node[shared[trait]], minlength=nodes)
    return np.flatnonzero((labeled | (has >= SHARED_TRAITS * shared.sum())) & ~graph.is_literal)


def predict_classes(opened: OpenModel, ids: Sequence[int] | Ids, chunk: int = CHUNK_ROWS) -> Iterator[ClassAnswers]:
    """Yield the predicted classes of nodes in the given order, `chunk` nodes at a time.

    Raises:
        DataError: If the model predicts no classes.
    """
    opened.require_kind(ClassKind)
    nodes = np.asarray(ids, dtype=np.int64)
    for first in range(0, len(nodes), chunk):
        part = nodes[first : first + chunk]
        logits, calibration = opened.logits(part.tolist()), opened.calibration
        shares = calibration.class_probabilities(logits).float().numpy() if calibration.fitted else None
        yield ClassAnswers(part, logits.argmax(1).numpy(), logits.float().numpy(), shares)


def label_relation(opened: OpenModel) -> str | None:
    """Return the relation that the labels were taken from, if it is known."""
    whole_name = opened.graph.metadata.get("labels_from")  # a configuration may have a short name
    return str(whole_name[0]) if whole_name else None if opened.data is None else opened.data.labels_from


def link_frames(opened: OpenModel, rows: ScoredTriples) -> Iterator[pl.DataFrame]:
    """Yield tables of triples: subject, relation, object, their titles, score, probability, known; at least one table.

    Answers to questions also have a column note.
    """
    import polars as pl

    nodes, relations, titles = opened.graph.nodes, opened.graph.relations, opened.titles
    written = [names.__getitem__ for names in (nodes, relations, nodes)] + [titles.of, titles.relation, titles.of]
    for part in _parts(rows):
        columns = part.triples.T.tolist() * 2 if len(part) else [[]] * len(NAME_COLUMNS)
        names = zip(NAME_COLUMNS, map(map, written, columns), strict=True)
        yield pl.DataFrame(
            {
                **{name: list(texts) for name, texts in names},
                "score": part.score,
                "probability": _optional_shares(part.probability, len(part)),
                "known": part.known,
                **({} if part.note is None else {"note": part.note.tolist()}),
            },
            schema_overrides={**dict.fromkeys((*NAME_COLUMNS, "note"), pl.String), "probability": pl.Float32},
        )


def link_triples(opened: OpenModel, rows: ScoredTriples) -> Iterator[str]:
    """Yield N-Triples with score and probability in a comment. Literals cannot be subjects and are skipped."""
    node_term, relation_term = _terms(opened.graph)
    for part in _parts(rows):
        lines = ((s, f"{node_term(s)} {relation_term(r)} {node_term(o)}") for s, r, o in part.triples.tolist())
        yield from _statements(opened.graph, lines, part.score.tolist(), _optional_shares(part.probability, len(part)))


def _parts(rows: ScoredTriples) -> Iterator[ScoredTriples]:
    """Yield blocks of `CHUNK_ROWS` rows, at least one."""
    return (rows[first : first + CHUNK_ROWS] for first in range(0, max(len(rows), 1), CHUNK_ROWS))


def _statements(
    graph: KnowledgeGraph, rows: Iterable[tuple[int, str]], scores: list[float], shares: list[float | None]
) -> Iterator[str]:
    """Yield a line for each (subject, triple in N-Triples) whose subject is not a literal."""
    for (subject, triple), score, p in zip(rows, scores, shares, strict=True):
        if not graph.is_literal[subject]:
            yield f"{triple} . # score {score:.4g}" + ("" if p is None else f", probability {p:.4g}")


def _optional_shares(shares: Numbers | None, size: int) -> list[float | None]:
    if shares is None:
        return [None] * size
    return [None if share != share else share for share in shares.tolist()]  # NaN for known answers


def _terms(graph: KnowledgeGraph) -> tuple[Callable[[int], str], Callable[[int], str]]:
    """Return cached functions from node and relation ids to N-Triples terms."""
    from rgcn.graph.rdf_terms import rdf_node, rdf_relation

    return cache(lambda node: str(rdf_node(graph, node))), cache(lambda relation: str(rdf_relation(graph, relation)))


def predicate_term(name: str) -> str:
    """Return any relation as an N-Triples term: an IRI as it is, a plain name under urn:rgcn:relation.

    >>> predicate_term("http://example.org/worksAt"), predicate_term("works at")
    ('<http://example.org/worksAt>', '<urn:rgcn:relation:works%20at>')
    """
    from pyoxigraph import NamedNode

    bare = name[1:-1] if name.startswith("<") and name.endswith(">") else name
    try:
        return str(NamedNode(bare))
    except ValueError:
        return str(NamedNode(f"urn:rgcn:relation:{quote(bare, safe='')}"))


def format_of(path: Path) -> Format:
    """Return the format for a file name; call it before anything is computed.

    Raises:
        ConfigError: If the suffix is unknown.
        DataError: If the path is a folder.

    >>> format_of(Path("new.nt.gz"))
    'nt'
    """
    name = path.name.lower()
    for suffix, format in SUFFIXES.items():
        if name.endswith(suffix) and name != suffix:
            if path.is_dir():
                raise DataError(f"{path} is a folder; name a file to write")
            return format
    raise ConfigError(f"{path}: the suffix chooses the format, and must be one of {', '.join(SUFFIXES)}")


def write_table(path: Path, frames: Iterable[pl.DataFrame], keep_formulas: bool = False) -> int:
    """Write tables with the same columns to one file, and return the number of rows.

    Args:
        path: The file; its suffix chooses the format.
        frames: The tables. They are written one by one; only Parquet needs all of them at once.
        keep_formulas: Do not escape cells of CSV and TSV files that spreadsheets would run as formulas.

    Raises:
        DataError: If the file cannot be written.
    """
    import polars as pl

    from rgcn.data.tables import escape_formulas

    format, rows = format_of(path), list[int]()

    def write(temporary: Path) -> None:
        whole = [pl.concat(list(frames), how="vertical_relaxed")] if format == "parquet" else frames
        with temporary.open("wb") as file:
            for frame in whole:
                if format == "parquet":
                    frame.write_parquet(file)
                elif format == "jsonl":
                    frame.write_ndjson(file)
                else:
                    written = frame if keep_formulas else escape_formulas(frame)
                    written.write_csv(file, separator="," if format == "csv" else "\t", include_header=not rows)
                rows.append(frame.height)

    _replace(path, write)
    return sum(rows)


def write_lines(path: Path, lines: Iterable[str]) -> int:
    """Write lines of text, compressed if the name ends in .gz, and return their number.

    Raises:
        DataError: If the file cannot be written.
    """
    count = 0

    def write(temporary: Path) -> None:
        nonlocal count
        with temporary.open("wb") as raw, open_compressor(raw, compression_from_name(path)) as file:
            for line in lines:
                file.write(f"{line}\n".encode())
                count += 1

    _replace(path, write)
    return count


def _replace(path: Path, write: Callable[[Path], None]) -> None:
    try:
        replace_atomically(path, write)
    except OSError as error:
        raise DataError(
            disk_error_message(error, path) or f"{path}: cannot be written: {error.strerror or error}"
        ) from None
