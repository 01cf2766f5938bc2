"""RDF: a graph's nodes, relations and classes as terms, and a whole graph as a file.

What was read from RDF keeps its terms. Plain names (`Switzerland`, `02084071`) become IRIs: the base, what the name
stands for, and the name percent-encoded, so that a node and a relation of the same name stay two things and
`urllib.parse.unquote` gives the name back.

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
from rgcn.system.compression import compressing, compression_of, without_compression

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
    """The RDF term of a node: an IRI, a literal with its datatype or language, or a blank node.

    >>> kg = KnowledgeGraph.from_triples([("Bern", "capital of", "http://example.org/Switzerland")])
    >>> [str(rdf_node(kg, node)) for node in range(2)]
    ['<urn:rgcn:node:Bern>', '<http://example.org/Switzerland>']
    """
    name, kind = graph.nodes[node], graph.kind(node)
    if kind == NodeKind.LITERAL:
        return _literal(name)
    return _blank_node(name) if kind == NodeKind.BLANK else _iri(name, base, "node")


def rdf_relation(graph: KnowledgeGraph, relation: int, base: str = BASE) -> NamedNode:
    """The IRI of a relation."""
    return _iri(graph.relations[relation], base, "relation")


def rdf_class(name: str) -> NamedNode | Literal:
    """The term of a class: an IRI where its name is one, else a literal.

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
    """Write a graph's triples to an RDF file, and say how many.

    The format is told by the name (graph.nt, graph.ttl.gz, ...) or by `format`: nt, nq, ttl, trig, rdf or jsonld. The
    file appears when it is whole. RDF has no place for weights, splits, labels and features: `split` chooses which
    triples are written, and the rest stays behind.

    >>> import tempfile
    >>> kg = KnowledgeGraph.from_triples([("Bern", "capital of", "Switzerland")])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     count = to_rdf(kg, Path(folder, "graph.nt"))
    ...     print(Path(folder, "graph.nt").read_text(), end="")
    <urn:rgcn:node:Bern> <urn:rgcn:relation:capital%20of> <urn:rgcn:node:Switzerland> .
    """
    target = Path(path)
    chosen = _serializer(target, format)
    triples = graph.split_triples(split)
    nodes = _terms(graph.nodes, triples[:, [0, 2]], lambda node: rdf_node(graph, node, base))
    relations = _terms(graph.relations, triples[:, 1], lambda relation: rdf_relation(graph, relation, base))
    literals = triples[graph.is_literal[triples[:, 0]], 0]
    if len(literals):
        name = graph.nodes[int(literals.min())]
        raise DataError(f"the literal {name} is the subject of a triple, which RDF does not allow")
    if chosen.name == "RDF/XML":
        _refuse_what_xml_cannot_hold(nodes.values(), relations.values())
    statement: Any = Quad if chosen.supports_datasets else Triple

    def statements() -> Iterator[Any]:
        for block in np.array_split(triples, len(triples) // 50_000 + 1):  # lists of ids are large
            for s, r, o in block.tolist():
                yield statement(nodes[s], relations[r], nodes[o])

    def write(temporary: Path) -> None:
        with temporary.open("wb") as raw, compressing(raw, compression_of(target)) as output:
            serialize(statements(), output, chosen)

    replace_atomically(target, write)
    return len(triples)


def _terms(names: Vocabulary, used: NDArray[np.int64], term_of: Callable[[int], Any]) -> dict[int, Any]:
    """The terms of those that are used, each made once; two names with one term would become one thing."""
    terms: dict[int, Any] = {}
    first: dict[Any, int] = {}
    for number in np.unique(used).tolist():
        terms[number] = term_of(number)
        other = first.setdefault(terms[number], number)
        if other != number:
            both = f"the {names.kind}s {names[other]!r} and {names[number]!r}"
            raise DataError(f"{both} would both be written as {terms[number]}; choose another base")
    return terms


def _refuse_what_xml_cannot_hold(nodes: Iterable[Any], relations: Iterable[Any]) -> None:
    """The serializer would write a file that only itself can read."""
    for relation in relations:
        if not _ENDS_IN_XML_NAME.search(relation.value):
            raise DataError(f"RDF/XML cannot name the relation {relation}: use nt or ttl")
    for node in nodes:
        if isinstance(node, Literal) and _NOT_IN_XML.search(node.value):
            raise DataError(f"XML cannot hold a control character of the literal {node}: use nt or ttl")


def _serializer(path: Path, format: str | None) -> RdfFormat:
    ending = Path(without_compression(path.name)).suffix if format is None else format
    word = ending.lower().lstrip(".").replace("-", "").replace("/", "")
    name = next((name for name, endings in RDF_ENDINGS.items() if word in endings), None)
    if name is None:
        raise ConfigError(
            f"{path.name if format is None else repr(format)} names no RDF format; give format=, one of "
            f"{', '.join(RDF_ENDINGS)}"
        )
    return cast(RdfFormat, RdfFormat.from_extension(name))


def _iri(name: str, base: str, what: str) -> NamedNode:
    """The name itself where it is an absolute IRI, else the base, `what` and the name percent-encoded."""
    if (iri := _absolute_iri(name)) is not None:
        return iri
    separator = ":" if base.endswith(":") else "/"
    try:
        return NamedNode(f"{base}{what}{separator}{quote(name, safe='')}")
    except ValueError as error:
        raise ConfigError(f"the base {base!r} makes no absolute IRI ({error}); one that does is {BASE!r}") from None


def _absolute_iri(name: str) -> NamedNode | None:
    text = _encodable(name)
    with suppress(ValueError):
        return NamedNode(text)
    return None


def _literal(name: str) -> Literal:
    """The literal that a name in N-Triples form stands for."""
    if _LITERAL.fullmatch(_encodable(name)):
        with suppress(SyntaxError, ValueError):  # no statement, or not one
            [quad] = parse(f"<urn:s> <urn:p> {name} .".encode(), format=RdfFormat.N_TRIPLES)
            if isinstance(quad.object, Literal):
                return quad.object
    raise DataError(f"the node {name!r} is marked as a literal, but its name is no literal in N-Triples form")


def _blank_node(name: str) -> BlankNode:
    label = _encodable(name).removeprefix("_:")
    try:
        return BlankNode(label)
    except ValueError:
        raise DataError(f"the node {name!r} is marked as blank, but its name is no blank node's label") from None


def _encodable(name: str) -> str:
    """The name, if it is text that can be written at all."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise DataError(f"the name {name!r} holds half of a surrogate pair, which no RDF file can hold") from None
    return name
