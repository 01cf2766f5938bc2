"""Predictions as files: CSV, TSV, Parquet, JSON Lines, N-Triples. A file appears when it is whole, or not at all."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from rgcn.atomic import replace_atomically
from rgcn.errors import ConfigError, DataError
from rgcn.graph import KnowledgeGraph

if TYPE_CHECKING:
    import polars as pl

Format = Literal["csv", "tsv", "parquet", "jsonl", "nt"]

SUFFIXES: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".nt": "nt",
    ".nt.gz": "nt",
}


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


def write_table(path: Path, frames: Iterable[pl.DataFrame]) -> int:
    """Write frames of the same columns one after the other, and say how many rows they had.

    Frames are written as they come; only Parquet needs all of them at once.
    """
    format, rows = format_of(path), 0

    def write(temporary: Path) -> None:
        nonlocal rows
        if format == "parquet":
            import polars as pl

            table = pl.concat(list(frames), how="vertical_relaxed")
            rows = table.height
            table.write_parquet(temporary)
            return
        with temporary.open("wb") as file:
            for number, frame in enumerate(frames):
                _append(file, frame, format, header=number == 0)
                rows += frame.height

    _replace(path, write)
    return rows


def _append(file: io.BufferedWriter, frame: pl.DataFrame, format: Format, header: bool) -> None:
    if format == "jsonl":
        frame.write_ndjson(file)
    else:
        frame.write_csv(file, separator="," if format == "csv" else "\t", include_header=header)


def write_lines(path: Path, lines: Iterable[str]) -> int:
    """Write lines of text, compressed where the name ends in .gz, and say how many there were."""
    count = 0

    def write(temporary: Path) -> None:
        nonlocal count
        with temporary.open("wb") as raw:
            # No name and no time inside: the same lines give the same bytes.
            file: Any = gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if path.name.lower().endswith(".gz") else raw
            with io.TextIOWrapper(file, encoding="utf-8", newline="\n") as text:
                for line in lines:
                    text.write(line + "\n")
                    count += 1

    _replace(path, write)
    return count


def _replace(path: Path, write: Any) -> None:
    try:
        replace_atomically(path, write)
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror or error}") from None


def said(score: float, probability: float | None) -> str:
    """What a model says of an answer, for a comment.

    >>> said(1.25, None), said(1.25, 0.5)
    ('score 1.25', 'score 1.25, probability 0.5')
    """
    return f"score {score:.4g}" + ("" if probability is None else f", probability {probability:.4g}")


class Terms:
    """The N-Triples forms of a graph's nodes and relations, each made once."""

    def __init__(self, graph: KnowledgeGraph) -> None:
        self._graph = graph
        self._nodes: dict[int, str] = {}
        self._relations: dict[int, str] = {}
        self._is_literal = graph.is_literal

    def can_be_subject(self, node: int) -> bool:
        """RDF allows no literal there."""
        return not self._is_literal[node]

    def node(self, node: int) -> str:
        from rgcn.graph.interop.rdf_terms import rdf_node

        found = self._nodes.get(node)
        if found is None:
            found = self._nodes[node] = str(rdf_node(self._graph, node))
        return found

    def relation(self, relation: int) -> str:
        from rgcn.graph.interop.rdf_terms import rdf_relation

        found = self._relations.get(relation)
        if found is None:
            found = self._relations[relation] = str(rdf_relation(self._graph, relation))
        return found


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
