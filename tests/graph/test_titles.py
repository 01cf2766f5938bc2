"""Test display names and their sources."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rgcn
from rgcn.data.graph_store import load_graph, save_graph
from rgcn.data.node_tables import LabelRelation
from rgcn.errors import AmbiguousNameError, DataError, UnknownNameError
from rgcn.graph import KnowledgeGraph, NodeKind, Vocabulary
from rgcn.graph.titles import (
    MAX_TITLE_LENGTH,
    MAX_URL_BYTES,
    WELL_KNOWN,
    NameLookup,
    Titles,
    addressable_name,
    literal_text,
)
from rgcn.graph.vocabulary import StoredNames
from small_models import named_rows

LABEL = "http://www.w3.org/2000/01/rdf-schema#label"


def rdf(*triples: tuple[str, str, str]) -> KnowledgeGraph:
    from dataclasses import replace

    import numpy as np

    kg = KnowledgeGraph.from_triples(triples)
    kinds = [NodeKind.LITERAL if name.startswith('"') else NodeKind.IRI for name in kg.nodes]
    return replace(kg, node_kinds=np.array(kinds, dtype=np.uint8))


def test_a_label_in_the_graph_comes_before_the_tail_of_an_iri_and_english_before_other_languages():
    kg = rdf(
        ("http://x.org/7", LABEL, '"Schweiz"@de'),
        ("http://x.org/7", LABEL, '"Switzerland"@en'),
        ("http://x.org/7", "http://x.org/name", '"CH"'),
        ("http://x.org/8", "http://x.org/name", '"Norway"'),
        ("http://x.org/9", "http://x.org/near", "http://x.org/8"),
    )
    titles = Titles(kg)
    of = {name: titles.of(i) for i, name in enumerate(kg.nodes)}
    assert of["http://x.org/7"] == "Switzerland"  # rdfs:label before name, English before German
    assert of["http://x.org/8"] == "Norway"
    assert of["http://x.org/9"] == "9"
    assert of['"Schweiz"@de'] == "Schweiz"
    assert NameLookup(titles).node("norway") == kg.nodes["http://x.org/8"]


def test_given_titles_come_before_titles_in_the_graph():
    kg = rdf(("http://x.org/7", LABEL, '"Switzerland"@en'))
    titles = Titles(kg, {0: "Helvetia"}, {0: "a country"})
    assert (titles.of(0), titles.description(0), titles.description(1)) == ("Helvetia", "a country", None)


def test_classes_and_their_absence():
    kg = KnowledgeGraph.from_triples([("a", "r", "b")], labels={"a": "http://x.org/Big", "b": "http://x.org/Small"})
    titles = Titles(kg)
    assert (titles.class_(0), NameLookup(titles).class_("small")) == ("Big", 1)
    with pytest.raises(DataError, match="none of its nodes is labeled"):
        NameLookup(Titles(KnowledgeGraph.from_triples([("a", "r", "b")]))).class_("small")


def test_a_class_that_is_a_node_is_called_as_the_node():
    kg = KnowledgeGraph.from_triples([("a", "in", "http://x.org/id3")], labels={"a": "http://x.org/id3"})
    assert Titles(kg, {1: "Knowledge management"}).class_(0) == "Knowledge management"


def test_unusual_names_are_supported():
    kg = rdf(("http://x.org/Seven", LABEL, '"Siebtes"@de'), ("http://x.org/Seven", LABEL, '"Seventh"@en-GB'))
    assert Titles(kg).of(0) == "Seventh"
    # In upper or lower case, also if the node has a title.
    assert NameLookup(Titles(kg)).node("HTTP://X.ORG/SEVEN") == 0
    with pytest.raises(DataError, match="an empty name is no node's"):
        NameLookup(Titles(kg)).node(" ")
    from dataclasses import replace

    import numpy as np

    bare = replace(KnowledgeGraph.from_triples([("a", LABEL, "plain")]), node_kinds=np.array([0, 1], dtype=np.uint8))
    assert Titles(bare).of(0) == "plain"  # a literal without quotes


def test_literals_are_read_and_long_ones_cut():
    assert literal_text('"say \\"hi\\"\\nthere"@en') == 'say "hi" there'
    assert literal_text('"C:\\\\new"') == "C:\\new"
    kg = rdf(("a", "r", '"' + "word " * 200 + '"'))
    assert len(Titles(kg).of(1)) <= MAX_TITLE_LENGTH


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("libstdc%2B%2B6", "libstdc++6"),
        ("in%20section", "in section"),
        ("http://x.org/%C3%9Cberlingen", "Überlingen"),
        ("http://x.org/AC%2FDC", "AC/DC"),
        ("50%off", "50%off"),  # begins no escape
        ("5%50", "5%50"),  # a P needs no escape
        ("up 20%25 in May", "up 20%25 in May"),  # a space would be escaped too
        ("caf%E9", "caf%E9"),  # not UTF-8
        ("a%0Ab", "a%0Ab"),  # a line break
        ("a%E2%80%AEb", "a%E2%80%AEb"),  # reverses the writing direction
        ("a%20", "a%20"),  # the space would be invisible
        ('"100%25"', '"100%25"'),  # text, as it was written
    ],
)
def test_percent_encoded_names_are_decoded_where_that_is_clear(name: str, title: str) -> None:
    kg = KnowledgeGraph.from_triples([(name, name, "other")], labels={"other": name})
    titles = Titles(kg)
    assert (titles.of(0), titles.relation(0), titles.class_(0)) == (title, title, title)
    names = NameLookup(titles)
    for spelling in (name, title, name.lower(), title.upper()):
        assert (names.node(spelling), names.relation(spelling), names.class_(spelling)) == (0, 0, 0)


def test_an_encoded_name_whose_text_is_another_name_stays_encoded() -> None:
    kg = KnowledgeGraph.from_triples([("a%20b", "r", "a b"), ("http://x.org/%C3%BC", "r", "http://x.org/ü")])
    titles, names = Titles(kg), NameLookup(Titles(kg))
    assert [titles.of(node) for node in range(4)] == ["a%20b", "a b", "%C3%BC", "ü"]
    assert [names.node(text) for text in ("a%20b", "a b", "%C3%BC", "Ü")] == [0, 1, 2, 3]


def test_either_spelling_of_a_whole_name_is_found() -> None:
    kg = rdf(("http://x.org/%C3%9Cber", LABEL, '"Above"@en'), ("http://x.org/Köln", "r", "ex:a%20b"))
    names = NameLookup(Titles(kg))
    for spelling in ("http://x.org/Über", "über", "above", "%c3%9cber"):
        assert kg.nodes[names.node(spelling)] == "http://x.org/%C3%9Cber"
    assert kg.nodes[names.node("http://x.org/K%C3%B6ln")] == "http://x.org/Köln"
    assert kg.nodes[names.node("ex:a b")] == "ex:a%20b"


def test_long_names_are_cut_in_the_middle_and_found_whole() -> None:
    long = ["package-" * 30 + str(number) for number in range(2)]
    kg = KnowledgeGraph.from_triples([(long[0], "r", long[1])])
    titles = [Titles(kg).of(node) for node in range(2)]
    assert [len(title) for title in titles] == [MAX_TITLE_LENGTH] * 2
    assert [(title[:8], title[-1]) for title in titles] == [("package-", "0"), ("package-", "1")]
    assert [NameLookup(Titles(kg)).node(text) for text in (*long, *titles)] == [0, 1, 0, 1]


@pytest.mark.parametrize("stored", [False, True])
def test_a_name_too_long_for_a_url_is_addressed_by_a_checksum(stored: bool) -> None:
    text = ['"' + "POLYGON ((7.1 46.9, " * 1000 + f'{number}))"' for number in range(2)]
    nodes = Vocabulary(StoredNames.of([*text, "ü" * 1501, "ü" * 1500]) if stored else [*text, "ü" * 1501, "ü" * 1500])
    kg = KnowledgeGraph(np.array([[0, 0, 1], [2, 0, 3]]), nodes, Vocabulary(["x" * 10_000]))
    addressable = [addressable_name(name) for name in kg.nodes]
    assert [len(quote(one, safe="")) <= MAX_URL_BYTES for one in addressable] == [True] * 4
    assert [one == name for one, name in zip(addressable, kg.nodes, strict=True)] == [False, False, False, True]
    names = NameLookup(Titles(kg))
    assert [names.node(one) for one in (*addressable, *kg.nodes)] == [0, 1, 2, 3] * 2
    assert names.relation(addressable_name(kg.relations[0])) == 0
    with pytest.raises(UnknownNameError):
        names.node(addressable[0].replace("[sha256 ", "[sha256 f"))


# -- Short names of IRIs, for relations as for nodes, wherever a person types one.

BRICK, RDF = "https://brickschema.org/schema/Brick#", "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
KG = KnowledgeGraph.from_triples(
    [
        ("http://x.org/a#sensor1", f"{BRICK}hasQuantity", f"{BRICK}Temperature"),
        ("http://x.org/a#sensor1", f"{RDF}type", "http://x.org/b#type"),
        ("http://x.org/a#sensor1", "http://x.org/b#type", "http://x.org/b/Sensor1"),
        ("http://x.org/a#sensor1", "ex:feeds", "ex:Room"),
    ]
)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (f"{BRICK}hasQuantity", 0),
        (f"<{BRICK}hasQuantity>", 0),
        ("brick:hasQuantity", 0),
        ("<brick:hasQuantity>", 0),
        ("Brick:hasquantity", 0),
        ("hasQuantity", 0),
        ("HASQUANTITY", 0),
        ("has_Quantity", None),
        ("rdf:type", 1),
        ("ex:feeds", 3),
        ("feeds", 3),
        ("ex:FEEDS", 3),
        ("nosuch:hasQuantity", None),
        ("brick:", None),
        (":hasQuantity", None),
        ("http://hasQuantity", None),
    ],
)
def test_a_relation_is_found_by_its_title(typed: str, expected: int | None) -> None:
    if expected is not None:
        assert KG.names.relation(typed) == expected
    else:
        with pytest.raises(UnknownNameError):
            KG.names.relation(typed)


def test_ambiguous_titles_are_listed_with_their_nodes() -> None:
    names = KG.names
    assert [KG.nodes[names.node(text)] for text in ("brick:temperature", "Temperature", "ex:room", "room")] == [
        *[f"{BRICK}Temperature"] * 2,
        *["ex:Room"] * 2,
    ]
    with pytest.raises(AmbiguousNameError, match=rf"'type' may be any of 2 relations.*{RDF}type.*x.org/b#type"):
        names.relation("type")
    with pytest.raises(AmbiguousNameError, match="any of 2 nodes"):
        names.node("SENSOR1")
    assert names.node("sensor1") != names.node("Sensor1")
    assert names.relation(2) == 2
    with pytest.raises(DataError, match="outside"):
        names.relation(9)
    with pytest.raises(DataError, match="a list of names"):
        names.node_ids("sensor1")


def test_both_namespaces_of_one_prefix(tmp_path: Path) -> None:
    kg = KnowledgeGraph.from_triples([("a", "https://schema.org/name", "b")])
    assert kg.names.relation("schema:name") == 0
    kg = KnowledgeGraph.from_triples([("a", f"{http}://schema.org/name", "b") for http in ("http", "https")])
    with pytest.raises(AmbiguousNameError, match="any of 2 relations"):
        kg.names.relation("schema:name")


@given(st.sampled_from(WELL_KNOWN), st.text("abcXYZ019_-.", min_size=1, max_size=8))
def test_every_well_known_prefix(known: tuple[str, str], local: str) -> None:
    prefix, space = known
    kg = KnowledgeGraph.from_triples([("a", space + local, "b"), (space + local, "r", "c")])
    assert kg.names.relation(f"{prefix}:{local}") == 0
    assert kg.nodes[kg.names.node(f"{prefix.upper()}:{local}")] == space + local


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("g.ttl", "@prefix my: <http://x.org/v#> . @prefix : <http://x.org/> . :a my:knows :b . :b a my:Person ."),
        ("g.rdf", f'<rdf:RDF xmlns:rdf="{RDF}" xmlns:my="http://x.org/v#" xmlns="http://x.org/"><rdf:Description '
         'rdf:about="http://x.org/a"><my:knows rdf:resource="http://x.org/b"/></rdf:Description></rdf:RDF>'),
    ],
)  # fmt: skip
def test_prefixes_that_a_file_declares_travel_with_the_graph(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    read = rgcn.read(tmp_path / name)
    save_graph(read, tmp_path)
    for kg in (read, load_graph(tmp_path), read.without_relations([])):
        assert kg.relations[kg.names.relation("my:knows")] == "http://x.org/v#knows"
        assert kg.nodes[kg.names.node(":b")] == "http://x.org/b"


def test_two_files_that_declare_one_prefix_differently(tmp_path: Path) -> None:
    for number in range(2):
        text = f"@prefix my: <http://x.org/{number}#> . my:a my:knows my:b{number} ."
        (tmp_path / f"{number}.ttl").write_text(text)
    names = rgcn.read(tmp_path).names
    assert names.node("my:b0") != names.node("my:b1")
    with pytest.raises(AmbiguousNameError, match=r"0#knows.*1#knows"):
        names.relation("my:knows")


def test_models_and_labels_take_short_names() -> None:
    model = rgcn.LinkPredictor(encoder="none", embedding=4, steps=1).fit(KG)
    assert (
        named_rows(model.predict_frame(subject="sensor1", relation="brick:hasQuantity", k=1))[0].relation
        == f"{BRICK}hasQuantity"
    )
    assert (
        named_rows(model.triples_frame([("sensor1", "hasquantity", "Temperature")]))[0].object == f"{BRICK}Temperature"
    )
    labeled = LabelRelation("brick:hasQuantity", inverse="feeds").add_to(KG)
    assert list(labeled.labels.names) == [f"{BRICK}Temperature"]
    assert labeled.metadata["labels_from"] == [f"{BRICK}hasQuantity", "ex:feeds"]
    assert labeled.num_relations == 2
    with pytest.raises(AmbiguousNameError):
        LabelRelation("type").add_to(KG)
