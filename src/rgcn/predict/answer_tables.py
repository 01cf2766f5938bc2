"""Answers in bulk: classes of many nodes and scored triples, as tables and as files.

CSV, TSV, Parquet, JSON Lines, N-Triples. A file appears when it is whole, or not at all.
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
from rgcn.system.atomic_files import full_disk, replace_atomically
from rgcn.system.compression import compressing, compression_of

if TYPE_CHECKING:
    import polars as pl

    from rgcn.predict import OpenModel

Ids = NDArray[np.int64]
Numbers = NDArray[np.float32]

CHUNK = 1 << 16
NEARLY_ALL, MOST = 0.9, 0.8  # of labelled nodes, of what they share
# The predicate of predictions written as RDF, where nobody knows which relation the labels came from.
PREDICATE = "urn:rgcn:predictedClass"
Format = Literal["csv", "tsv", "parquet", "jsonl", "nt"]

SUFFIXES: dict[str, Format] = {**{f".{format}": format for format in get_args(Format)}, ".nt.gz": "nt"}
WORDS = ("subject", "relation", "object", "subject_title", "relation_title", "object_title")


@dataclass(frozen=True, eq=False)
class ClassAnswers:
    """The classes of n nodes."""

    node: Ids  # [n]
    class_: Ids  # [n]: the most likely
    scores: Numbers  # [n, C]: the model's own number for every class
    probabilities: Numbers | None  # [n, C]: calibrated; None where there was nothing to calibrate on

    def __len__(self) -> int:
        return len(self.node)

    @property
    def score(self) -> Numbers:
        """[n]: of the most likely class."""
        return self.scores[np.arange(len(self)), self.class_]

    @property
    def probability(self) -> Numbers | None:
        """[n]: likewise."""
        return None if self.probabilities is None else self.probabilities[np.arange(len(self)), self.class_]


class NodeTables(ABC):
    """Answers about nodes as tables, as `rgcn predict` writes and prints them: each kind of answers brings its own.

    answer  the column that people are shown
    """

    answer: ClassVar[str]

    def __init__(self, kind: AnswerKind) -> None:
        self.kind = kind

    @abstractmethod
    def frame(self, opened: OpenModel, ids: Ids, nested: bool = False) -> pl.DataFrame:
        """A row a node, with the columns of `known_columns` and the answer; score and probability where there are any.

        nested: what has a column for each class is one column of {class: number}, for JSON.
        """

    def words(self, opened: OpenModel, value: Any) -> str:
        """An answer, or a label, as people say it."""
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    def lines(self, opened: OpenModel, ids: Ids, frame: pl.DataFrame, predicate: str) -> Iterator[str]:
        """The same as N-Triples, where they can be said so."""
        raise ConfigError(f"a model that {self.kind.does} gives no triples: name a file of another format")


class ClassTables(NodeTables):
    """The class of each node, and what every class is given."""

    answer = "class"

    def frame(self, opened: OpenModel, ids: Ids, nested: bool = False) -> pl.DataFrame:
        return class_frame(opened, next(predict_classes(opened, ids, len(ids))), nested)

    def words(self, opened: OpenModel, value: Any) -> str:
        return opened.titles.class_(opened.titles.classes[value])

    def lines(self, opened: OpenModel, ids: Ids, frame: pl.DataFrame, predicate: str) -> Iterator[str]:
        return class_triples(opened, ids, frame, predicate)


def known_columns(opened: OpenModel, ids: Ids) -> dict[str, list[Any]]:
    """node, title, and what the graph knows: label, label_split."""
    graph, labels = opened.graph, opened.graph.labels
    place = np.full(graph.num_nodes, -1, dtype=np.int64)
    if labels is not None:
        place[labels.nodes] = np.arange(len(labels))
    rows = place[ids].tolist()
    return {
        "node": [graph.nodes[node] for node in ids.tolist()],
        "title": [opened.titles.of(node) for node in ids.tolist()],
        "label": [labels.names[int(labels.classes[row])] if labels and row >= 0 else None for row in rows],
        "label_split": [SPLITS[labels.splits[row]] if labels and row >= 0 else None for row in rows],
    }


def nodes_to_classify(opened: OpenModel, every: bool = False) -> Ids:
    """Nodes of the kind that has labels; where nothing was trained, without those that have one.

    every  all that are no literals, whatever they are
    """
    graph = opened.graph if opened.untrained is None else opened.untrained
    labels = graph.labels
    assert labels is not None
    if (told := getattr(opened.model, "class_relation_", graph.num_relations)) < graph.num_relations:
        graph = graph.without_relations([graph.relations[told]])  # it tells who has a label, not what has one
    found = np.flatnonzero(~graph.is_literal) if every else of_labelled_kind(graph)
    return found if opened.untrained is None else np.setdiff1d(found, labels.of("train")[0])


def of_labelled_kind(graph: KnowledgeGraph) -> Ids:
    """The labelled nodes, and others that have most of what nearly all of them share, ascending; no literals.

    What nodes share: to be a relation's subject, or its object, or its subject with the same object. Where labelled
    nodes share nothing, all are of their kind.

    >>> people = [("Ada", "lives_in", "London"), ("Bob", "lives_in", "Rome"), ("Eve", "lives_in", "Rome")]
    >>> graph = KnowledgeGraph.from_triples(people, labels={"Ada": "old", "Bob": "young"})
    >>> [graph.nodes[node] for node in of_labelled_kind(graph)]
    ['Ada', 'Bob', 'Eve']
    """
    assert graph.labels is not None
    (subject, relation, object_), relations, nodes = graph.triples.T, graph.num_relations, graph.num_nodes
    traits = np.concatenate([relation, relation + relations, 2 * relations + relation * nodes + object_])
    names, trait = np.unique(traits, return_inverse=True)
    pairs = np.unique(np.concatenate([subject, object_, subject]) * len(names) + trait)
    node, trait = pairs // max(1, len(names)), pairs % max(1, len(names))
    labelled = np.isin(np.arange(nodes), graph.labels.nodes)
    shared = np.bincount(trait[labelled[node]], minlength=len(names)) >= NEARLY_ALL * labelled.sum()
    has = np.bincount(node[shared[trait]], minlength=nodes)
    return np.flatnonzero((labelled | (has >= MOST * shared.sum())) & ~graph.is_literal)


def predict_classes(opened: OpenModel, ids: Sequence[int] | Ids, chunk: int = CHUNK) -> Iterator[ClassAnswers]:
    """The classes of nodes, in the order given, `chunk` of them at a time."""
    opened.must_answer(ClassKind)
    wanted = np.asarray(ids, dtype=np.int64)
    for first in range(0, len(wanted), chunk):
        part = wanted[first : first + chunk]
        logits, calibration = opened.logits(part.tolist()), opened.calibration
        shares = calibration.class_probabilities(logits).float().numpy() if calibration.fitted else None
        yield ClassAnswers(part, logits.argmax(1).numpy(), logits.float().numpy(), shares)


def class_frame(opened: OpenModel, answers: ClassAnswers, nested: bool = False) -> pl.DataFrame:
    """A row a node: node, title, class, class_title, score, probability, label, label_split, and of every class its
    score(...) and, where there are any, its probability p(...).

    nested: the classes' scores and probabilities as columns of {class: number}, for JSON.
    """
    import polars as pl

    names, classes, known = opened.classes, answers.class_.tolist(), known_columns(opened, answers.node)
    titles = [opened.titles.class_(number) for number in range(len(names))]
    frame = pl.DataFrame(
        {
            "node": known["node"],
            "title": known["title"],
            "class": [names[number] for number in classes],
            "class_title": [titles[number] for number in classes],
            "score": answers.score,
            "probability": _or_nothing(answers.probability, len(answers)),
            "label": known["label"],
            "label_split": known["label_split"],
        },
        schema_overrides={"label": pl.String, "label_split": pl.String, "probability": pl.Float32},
    )
    for column, prefix, table in (("scores", "score", answers.scores), ("probabilities", "p", answers.probabilities)):
        series = [] if table is None else [pl.Series(name, table[:, i]) for i, name in enumerate(names)]
        if not nested:
            frame = frame.with_columns([one.alias(f"{prefix}({one.name})") for one in series])
        else:
            frame = frame.with_columns(pl.DataFrame(series).to_struct(column) if series else pl.lit(None).alias(column))
    return frame


def class_triples(opened: OpenModel, ids: Ids, frame: pl.DataFrame, predicate: str) -> Iterator[str]:
    """Lines of N-Triples, with score and probability in a comment; literals, which can be no subject, are left out."""
    from rgcn.graph.rdf_terms import rdf_class

    classes, (node_term, _) = {name: str(rdf_class(name)) for name in opened.classes}, _terms(opened.graph)
    pairs = zip(ids.tolist(), frame["class"], strict=True)
    rows = ((node, f"{node_term(node)} {predicate} {classes[name]}") for node, name in pairs)
    yield from _statements(opened.graph, rows, frame["score"].to_list(), frame["probability"].to_list())


def label_relation(opened: OpenModel) -> str | None:
    """The relation that the labels were taken from, where that is known."""
    found = opened.graph.metadata.get("labels_from")  # a configuration may have a short name
    if found:
        return str(found[0])
    return None if opened.data is None else opened.data.labels_from


def link_frames(opened: OpenModel, rows: ScoredTriples) -> Iterator[pl.DataFrame]:
    """subject, relation, object, their titles, score, probability, known; at least one frame.

    Of answers to questions also note: what is to be said of the question.
    """
    import polars as pl

    nodes, relations, titles = opened.graph.nodes, opened.graph.relations, opened.titles
    written = [names.__getitem__ for names in (nodes, relations, nodes)] + [titles.of, titles.relation, titles.of]
    for part in _parts(rows):
        columns = part.triples.T.tolist() * 2 if len(part) else [[]] * len(WORDS)
        yield pl.DataFrame(
            {
                **{name: [*map(word, column)] for name, word, column in zip(WORDS, written, columns, strict=True)},
                "score": part.score,
                "probability": _or_nothing(part.probability, len(part)),
                "known": part.known,
                **({} if part.note is None else {"note": part.note.tolist()}),
            },
            schema_overrides={**dict.fromkeys((*WORDS, "note"), pl.String), "probability": pl.Float32},
        )


def link_triples(opened: OpenModel, rows: ScoredTriples) -> Iterator[str]:
    """Lines of N-Triples, score and probability in a comment; literals, which can be no subject, are left out."""
    node_term, relation_term = _terms(opened.graph)
    for part in _parts(rows):
        lines = ((s, f"{node_term(s)} {relation_term(r)} {node_term(o)}") for s, r, o in part.triples.tolist())
        yield from _statements(opened.graph, lines, part.score.tolist(), _or_nothing(part.probability, len(part)))


def _parts(rows: ScoredTriples) -> Iterator[ScoredTriples]:
    """`CHUNK` rows at a time; at least one part."""
    return (rows[first : first + CHUNK] for first in range(0, max(len(rows), 1), CHUNK))


def _statements(
    graph: KnowledgeGraph, rows: Iterable[tuple[int, str]], scores: list[float], shares: list[float | None]
) -> Iterator[str]:
    """A line for each answer, given its subject and its triple in N-Triples, where the subject is no literal."""
    for (subject, triple), score, p in zip(rows, scores, shares, strict=True):
        if not graph.is_literal[subject]:
            yield f"{triple} . # {said(score, p)}"


def _or_nothing(shares: Numbers | None, size: int) -> list[float | None]:
    if shares is None:
        return [None] * size
    return [None if share != share else share for share in shares.tolist()]  # what is known has none


def said(score: float, probability: float | None) -> str:
    """What a model says of an answer, for a comment.

    >>> said(1.25, None), said(1.25, 0.5)
    ('score 1.25', 'score 1.25, probability 0.5')
    """
    return f"score {score:.4g}" + ("" if probability is None else f", probability {probability:.4g}")


def _terms(graph: KnowledgeGraph) -> tuple[Callable[[int], str], Callable[[int], str]]:
    """The N-Triples forms of a graph's nodes and of its relations, each made once."""
    from rgcn.graph.rdf_terms import rdf_node, rdf_relation

    return cache(lambda node: str(rdf_node(graph, node))), cache(lambda relation: str(rdf_relation(graph, relation)))


def predicate_term(name: str) -> str:
    """A relation that the graph need not have, in N-Triples: an IRI as it is, a plain name under urn:rgcn:relation.

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
    """The format that a file's name asks for; asked before anything is computed.

    >>> format_of(Path("new.nt.gz"))
    'nt'
    """
    name = path.name.lower()
    for suffix, format in SUFFIXES.items():
        if name.endswith(suffix) and name != suffix:
            if path.is_dir():
                raise DataError(f"{path} is a folder; name a file to write")
            return format
    raise ConfigError(f"{path}: the name says what to write, and must end in {', '.join(SUFFIXES)}")


def write_table(path: Path, frames: Iterable[pl.DataFrame], keep_formulas: bool = False) -> int:
    """Write frames of the same columns one after the other, and say how many rows they had.

    Frames are written as they come; only Parquet needs all of them at once. In CSV and TSV, which spreadsheets open,
    cells that begin like formulas are made text, unless these are kept.
    """
    import polars as pl

    from rgcn.data.tables import without_formulas

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
                    written = frame if keep_formulas else without_formulas(frame)
                    written.write_csv(file, separator="," if format == "csv" else "\t", include_header=not rows)
                rows.append(frame.height)

    _replace(path, write)
    return sum(rows)


def write_lines(path: Path, lines: Iterable[str]) -> int:
    """Write lines of text, compressed where the name ends in .gz, and say how many there were."""
    count = 0

    def write(temporary: Path) -> None:
        nonlocal count
        with temporary.open("wb") as raw, compressing(raw, compression_of(path)) as file:
            for line in lines:
                file.write(f"{line}\n".encode())
                count += 1

    _replace(path, write)
    return count


def _replace(path: Path, write: Callable[[Path], None]) -> None:
    try:
        replace_atomically(path, write)
    except OSError as error:
        raise DataError(full_disk(error, path) or f"{path}: cannot be written: {error.strerror or error}") from None
