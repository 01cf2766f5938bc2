"""Every RDF format, plain and compressed, gives the same graph."""

from __future__ import annotations

import bz2
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyoxigraph as ox
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from rgcn.data.reading import read
from rgcn.errors import DataError, ParseError
from rgcn.graph import NodeKind

INTEGER = "http://www.w3.org/2001/XMLSchema#integer"
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": lambda data: zstandard.ZstdCompressor().compress(data),
}
FORMATS = {
    "nt": ox.RdfFormat.N_TRIPLES,
    "nq": ox.RdfFormat.N_QUADS,
    "ttl": ox.RdfFormat.TURTLE,
    "trig": ox.RdfFormat.TRIG,
    "rdf": ox.RdfFormat.RDF_XML,
    "jsonld": ox.RdfFormat.JSON_LD,
}


def iri(name: str) -> ox.NamedNode:
    return ox.NamedNode(f"http://example.org/{name}")


def some_triples() -> list[ox.Triple]:
    return [
        ox.Triple(iri("ada"), iri("born"), ox.Literal("1815", datatype=ox.NamedNode(INTEGER))),
        ox.Triple(iri("ada"), iri("name"), ox.Literal('Ada "the\nfirst"\t', language="en")),
        ox.Triple(iri("ada"), iri("knows"), ox.BlankNode("someone")),
        ox.Triple(ox.BlankNode("someone"), iri("name"), ox.Literal("http://example.org/ada")),
    ]


EXPECTED = {
    ("http://example.org/ada", "http://example.org/born", f'"1815"^^<{INTEGER}>'),
    ("http://example.org/ada", "http://example.org/name", '"Ada \\"the\\nfirst\\"\\t"@en'),
    ("http://example.org/ada", "http://example.org/knows", "_:b0"),
    ("_:b0", "http://example.org/name", '"http://example.org/ada"'),
}


@pytest.mark.parametrize("compression", COMPRESS)
@pytest.mark.parametrize("format_name", FORMATS)
def test_every_format_and_compression(tmp_path: Path, format_name: str, compression: str) -> None:
    data = ox.serialize(some_triples(), format=FORMATS[format_name])
    assert data is not None
    file = tmp_path / f"graph.{format_name}{compression}"
    file.write_bytes(COMPRESS[compression](data))
    graph = read(file)
    blank = "_:someone" if format_name in ("nt", "nq") else "_:b0"
    assert {tuple(name.replace(blank, "_:b0") for name in triple) for triple in graph.named()} == EXPECTED
    assert graph.kind("http://example.org/ada") is NodeKind.IRI
    assert graph.kind('"http://example.org/ada"') is NodeKind.LITERAL
    assert graph.kind(blank) is NodeKind.BLANK
    assert graph.metadata["format"] == format_name
    assert graph.fingerprint == read(file).fingerprint


def test_numbered_by_first_appearance_subject_before_object(tmp_path: Path) -> None:
    file = tmp_path / "graph.nt"
    file.write_text("<x:z> <x:q> <x:y> .\n<x:a> <x:p> <x:z> .\n<x:z> <x:q> <x:y> .\n")
    graph = read(file)
    assert list(graph.nodes) == ["x:z", "x:y", "x:a"]
    assert list(graph.relations) == ["x:q", "x:p"]
    assert graph.triples.tolist() == [[0, 0, 1], [2, 1, 0]]
    assert graph.metadata == {"source": ["graph.nt"], "format": "nt", "duplicates": 1, "skipped_lines": 0}


@pytest.mark.parametrize("format_name", ["nq", "trig"])
def test_graph_names_are_dropped(tmp_path: Path, format_name: str) -> None:
    statement = {"nq": "<x:a> <x:p> {} <x:{}> .\n", "trig": "<x:{1}> {{ <x:a> <x:p> {0} }}\n"}[format_name]
    objects = ["<x:b>", '"a > . \\" b"', '"a > . \\" b"@en', "_:n"]
    file = tmp_path / f"graph.{format_name}"
    file.write_text("".join(statement.format(o, g) for o in objects for g in ("g1", "g2")))
    graph = read(file)
    blanks = 1 if format_name == "nq" else len(set(graph.nodes)) - 4
    assert graph.num_nodes == 4 + blanks
    assert graph.metadata["duplicates"] >= 3
    assert {"x:b", '"a > . \\" b"', '"a > . \\" b"@en'} < set(graph.nodes)


def test_blank_nodes_the_parser_invents_get_the_same_names_every_time(tmp_path: Path) -> None:
    file = tmp_path / "graph.ttl"
    file.write_text("<x:a> <x:p> [ <x:q> [ <x:q> 1 ] ], (1 2), _:mine .")
    first, second = read(file), read(file)
    assert first.fingerprint == second.fingerprint
    blanks = [name for name in first.nodes if name.startswith("_:")]
    assert blanks == [f"_:b{i}" for i in range(5)]


@pytest.mark.parametrize("format_name", ["rdf", "jsonld"])
def test_order_of_tree_formats_does_not_vary(tmp_path: Path, format_name: str) -> None:
    triples = [ox.Triple(iri(f"s{i % 5}"), iri(f"p{i % 3}"), ox.BlankNode(f"o{i}")) for i in range(40)]
    file = tmp_path / f"graph.{format_name}"
    file.write_bytes(ox.serialize(triples, format=FORMATS[format_name]) or b"")
    assert len({read(file).fingerprint for _ in range(4)}) == 1


def test_blank_nodes_of_different_files_are_different_nodes(tmp_path: Path) -> None:
    for name in ("a.nt", "b.nt"):
        (tmp_path / name).write_text("_:x <x:p> <x:o> .\n")
    graph = read(tmp_path)
    assert list(graph.nodes) == ["_:f0_x", "x:o", "_:f1_x"]


def test_literals_can_be_dropped(tmp_path: Path) -> None:
    file = tmp_path / "graph.nt"
    file.write_text('<x:a> <x:p> "text" .\n<x:a> <x:q> <x:b> .\n')
    graph = read(file, literals="drop")
    assert graph.named() == [("x:a", "x:q", "x:b")]
    with pytest.raises(DataError, match="keep"):
        read(file, literals="maybe")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("g.nt", "<x:a> <x:p> <<( <x:a> <x:p> <x:b> )>> .\n"),
        ("g.ttl", "<x:a> <x:p> <<( <x:a> <x:p> <x:b> )>> ."),
        ("g.ttl", "<x:a> <x:p> << <x:a> <x:p> <x:b> >> ."),
    ],
)
def test_triple_terms_are_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ParseError, match="RDF-star"):
        read(tmp_path / name)


def test_brackets_inside_a_literal_are_no_triple_terms(tmp_path: Path) -> None:
    text = '<x:a> <x:p> "cout <<( \\" <<( x )>> )>>" .\n# << a comment\n'
    for name in ("g.nt", "g.ttl"):
        (tmp_path / name).write_text(text)
        assert read(tmp_path / name).nodes[1] == '"cout <<( \\" <<( x )>> )>>"'


def test_byte_order_mark_is_no_part_of_the_first_term(tmp_path: Path) -> None:
    for name in ("g.nt", "g.ttl", "g.jsonld"):
        text = json.dumps({"@id": "x:a", "x:p": {"@id": "x:b"}}) if name == "g.jsonld" else "<x:a> <x:p> <x:b> ."
        (tmp_path / name).write_text("\ufeff" + text)
        assert read(tmp_path / name).named() == [("x:a", "x:p", "x:b")]


def test_namespace_entities_of_ontologies_are_understood(tmp_path: Path) -> None:
    file = tmp_path / "g.owl"
    file.write_text(
        '<?xml version="1.0"?><!DOCTYPE r [<!ENTITY e "http://e/">]>'
        '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:e="http://e/">'
        '<rdf:Description rdf:about="&e;a"><e:p rdf:resource="&e;b"/></rdf:Description></rdf:RDF>'
    )
    assert read(file).named() == [("http://e/a", "http://e/p", "http://e/b")]


def test_many_blocks_agree_with_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 50, (400, 3)).tolist()
    file = tmp_path / "g.nt"
    file.write_text("".join(f"<x:{s}> <x:r{r % 7}> <x:{o}> .\n" for s, r, o in rows))
    whole = read(file)
    monkeypatch.setattr("rgcn.data.files.BLOCK_BYTES", 100)
    monkeypatch.setattr("rgcn.data.triple_collector.TripleCollector.BATCH_ROWS", 30)
    assert read(file).fingerprint == whole.fingerprint


text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


@settings(max_examples=60, deadline=None)
@given(values=st.lists(text, min_size=1, max_size=6), format_name=st.sampled_from(["nt", "nq", "ttl", "trig"]))
def test_any_literal_survives(tmp_path_factory: pytest.TempPathFactory, values: list[str], format_name: str) -> None:
    literals = [ox.Literal(value) for value in values]
    file = tmp_path_factory.mktemp("rdf") / f"g.{format_name}"
    triples = [ox.Triple(iri("s"), iri(f"p{i}"), literal) for i, literal in enumerate(literals)]
    file.write_bytes(ox.serialize(triples, format=FORMATS[format_name]) or b"")
    graph = read(file)
    assert [o for _, _, o in graph.named()] == [str(literal) for literal in literals]
