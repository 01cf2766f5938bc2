"""Convert the nodes, relations and classes of a graph to RDF terms, and write a graph as an RDF file.

Terms that were read from RDF stay as they are. Plain names (`Switzerland`, `02084071`) become IRIs: a base, "node" or
"relation", and the percent-encoded name. So a node and a relation of the same name stay different, and
`urllib.parse.unquote` returns the name.

    urn:rgcn:node:Switzerland        urn:rgcn:relation:has%20border
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias, cast
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray
from pyoxigraph import BlankNode, Literal, NamedNode, Quad, RdfFormat, Triple, parse, serialize

from rgcn.errors import ConfigError, DataError
from rgcn.graph.knowledge_graph import KnowledgeGraph
from rgcn.graph.vocabulary import NodeKind, Vocabulary
from rgcn.system.atomic_files import replace_atomically
from rgcn.system.compression import compression_from_name, open_compressor, strip_compression_suffix

Term: TypeAlias = NamedNode | Literal | BlankNode

BASE = "urn:rgcn:"
RDF_ENDINGS = {
    "nt": ("nt", "ntriples"),
    "nq": ("nq", "nquads"),
    "ttl": ("ttl", "turtle"),
    "trig": ("trig",),
    "rdf": ("rdf", "owl", "xml", "rdfs", "rdfxml"),
    "jsonld": ("jsonld", "json"),
}

_LITERAL = re.compile(r'"(?:[^"\\\r\n]|\\.)*"(?:@[A-Za-z0-9-]+|\^\^<[^<>\s]*>)?')
_ENDS_IN_XML_NAME = re.compile(r"[^\W\d][\w.-]*$")
_NOT_IN_XML = re.compile(r"[\x00-\x08\x0b-\x1f\ufffe\uffff]")


def rdf_node(graph: KnowledgeGraph, node: int, base: str = BASE) -> Term:
    """Return the RDF term of a node: an IRI, a literal with its datatype or language, or a blank node.

    >>> kg = KnowledgeGraph.from_triples([("Bern", "capital of", "http://example.org/Switzerland")])
    >>> [str(rdf_node(kg, node)) for node in range(2)]
    ['<urn:rgcn:node:Bern>', '<http://example.org/Switzerland>']
    """
    name, kind = graph.nodes[node], graph.kind(node)
    if kind == NodeKind.LITERAL:
        return _literal(name)
    if kind != NodeKind.BLANK:
        return _iri(name, base, "node")
    try:
        return BlankNode(_encodable(name).removeprefix("_:"))
    except ValueError:
        raise DataError(f"the node {name!r} is marked as blank, but its name is not a blank node label") from None


def rdf_relation(graph: KnowledgeGraph, relation: int, base: str = BASE) -> NamedNode:
    """Return the IRI of a relation."""
    return _iri(graph.relations[relation], base, "relation")


def rdf_class(name: str) -> NamedNode | Literal:
    """Return the term of a class: an IRI if its name is one, else a literal.

    >>> str(rdf_class("http://example.org/Person")), str(rdf_class("low income")), str(rdf_class('"faible"@fr'))
    ('<http://example.org/Person>', '"low income"', '"faible"@fr')
    """
    if _LITERAL.fullmatch(name):
        return _literal(name)
    return _absolute_iri(name) or Literal(_encodable(name))


def to_rdf(
    graph: KnowledgeGraph,
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    base: str = BASE,
    split: str = "all",
) -> int:
    """Write the triples of a graph to an RDF file.

    The file appears when it is complete. RDF cannot represent weights, splits, labels and features: they are not
    written.

    Args:
        graph: The graph.
        path: The file. Its ending (graph.nt, graph.ttl.gz, ...) determines the format and the compression.
        format: The format, where the ending does not tell it: nt, nq, ttl, trig, rdf or jsonld.
        base: The prefix of IRIs made of plain names.
        split: "train", "valid", "test" or "all".

    Returns:
        The number of triples written.

    >>> import tempfile
    >>> kg = KnowledgeGraph.from_triples([("Bern", "capital of", "Switzerland")])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     count = to_rdf(kg, Path(folder, "graph.nt"))
    ...     print(Path(folder, "graph.nt").read_text(), end="")
    <urn:rgcn:node:Bern> <urn:rgcn:relation:capital%20of> <urn:rgcn:node:Switzerland> .
    """
    target = Path(path)
    rdf_format = _rdf_format(target, format)
    triples = graph.split_triples(split)
    nodes = _terms(graph.nodes, triples[:, [0, 2]], lambda node: rdf_node(graph, node, base))
    relations = _terms(graph.relations, triples[:, 1], lambda relation: rdf_relation(graph, relation, base))
    literals = triples[graph.is_literal[triples[:, 0]], 0]
    if len(literals):
        name = graph.nodes[int(literals.min())]
        raise DataError(f"the literal {name} is the subject of a triple, which RDF does not allow")
    if rdf_format.name == "RDF/XML":
        _check_for_xml(nodes.values(), relations.values())
    statement: Any = Quad if rdf_format.supports_datasets else Triple

    def statements() -> Iterator[Any]:
        for block in np.array_split(triples, len(triples) // 50_000 + 1):  # lists of ids need much memory
            for s, r, o in block.tolist():
                yield statement(nodes[s], relations[r], nodes[o])

    def write(temporary: Path) -> None:
        with temporary.open("wb") as raw, open_compressor(raw, compression_from_name(target)) as output:
            serialize(statements(), output, rdf_format)

    replace_atomically(target, write)
    return len(triples)


def _terms(names: Vocabulary, used: NDArray[np.int64], term_of: Callable[[int], Any]) -> dict[int, Any]:
    """Make the term of each used id. Raise if two names would have the same term."""
    numbers: dict[Any, int] = {}
    for number in np.unique(used).tolist():
        term = term_of(number)
        other = numbers.setdefault(term, number)
        if other != number:
            both = f"the {names.kind}s {names[other]!r} and {names[number]!r}"
            raise DataError(f"{both} would both be written as {term}; choose another base")
    return {number: term for term, number in numbers.items()}


def _check_for_xml(nodes: Iterable[Any], relations: Iterable[Any]) -> None:
    """Raise for terms that RDF/XML cannot represent: the serializer would write an invalid file."""
    for relation in relations:
        if not _ENDS_IN_XML_NAME.search(relation.value):
            raise DataError(f"RDF/XML cannot name the relation {relation}: use nt or ttl")
    for node in nodes:
        if isinstance(node, Literal) and _NOT_IN_XML.search(node.value):
            raise DataError(f"XML cannot represent a control character of the literal {node}: use nt or ttl")


def _rdf_format(path: Path, format: str | None) -> RdfFormat:
    ending = Path(strip_compression_suffix(path.name)).suffix if format is None else format
    ending = ending.lower().lstrip(".").replace("-", "").replace("/", "")
    for name, endings in RDF_ENDINGS.items():
        if ending in endings:
            return cast(RdfFormat, RdfFormat.from_extension(name))
    source = path.name if format is None else repr(format)
    raise ConfigError(f"{source} names no RDF format; give format=, one of {', '.join(RDF_ENDINGS)}")


def _iri(name: str, base: str, kind: str) -> NamedNode:
    """Return the name itself if it is an absolute IRI, else the base, the kind and the percent-encoded name."""
    if (iri := _absolute_iri(name)) is not None:
        return iri
    separator = ":" if base.endswith(":") else "/"
    try:
        return NamedNode(f"{base}{kind}{separator}{quote(name, safe='')}")
    except ValueError as error:
        raise ConfigError(f"the base {base!r} makes no absolute IRI ({error}); use one such as {BASE!r}") from None


def _absolute_iri(name: str) -> NamedNode | None:
    text = _encodable(name)
    with suppress(ValueError):
        return NamedNode(text)
    return None


def _literal(name: str) -> Literal:
    """Parse a literal in N-Triples form."""
    if _LITERAL.fullmatch(_encodable(name)):
        with suppress(SyntaxError, ValueError):  # not exactly one statement
            [quad] = parse(f"<urn:s> <urn:p> {name} .".encode(), format=RdfFormat.N_TRIPLES)
            if isinstance(quad.object, Literal):
                return quad.object
    raise DataError(f"the node {name!r} is marked as a literal, but its name is not a literal in N-Triples form")


def _encodable(name: str) -> str:
    """Return the name. Raise if it cannot be encoded as UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise DataError(f"the name {name!r} contains half of a surrogate pair, which no RDF file can hold") from None
    return name
