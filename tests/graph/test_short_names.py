"""Short names of IRIs, for relations as for nodes, wherever a person types one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rgcn
from rgcn.data.graph_store import load_graph, save_graph
from rgcn.data.node_tables import LabelRelation
from rgcn.errors import AmbiguousNameError, DataError, UnknownNameError
from rgcn.graph import KnowledgeGraph
from rgcn.graph.titles import WELL_KNOWN

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
    ("typed", "meant"),
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
def test_a_relation_by_what_people_type(typed: str, meant: int | None) -> None:
    if meant is not None:
        assert KG.names.relation(typed) == meant
    else:
        with pytest.raises(UnknownNameError):
            KG.names.relation(typed)


def test_nodes_alike_and_what_several_are_called_is_named() -> None:
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


def test_two_files_that_declare_one_prefix_otherwise(tmp_path: Path) -> None:
    for number in range(2):
        text = f"@prefix my: <http://x.org/{number}#> . my:a my:knows my:b{number} ."
        (tmp_path / f"{number}.ttl").write_text(text)
    names = rgcn.read(tmp_path).names
    assert names.node("my:b0") != names.node("my:b1")
    with pytest.raises(AmbiguousNameError, match=r"0#knows.*1#knows"):
        names.relation("my:knows")


def test_models_and_labels_take_short_names() -> None:
    model = rgcn.LinkPredictor("distmult", embedding=4, epochs=1).fit(KG)
    assert model.predict(subject="sensor1", relation="brick:hasQuantity", k=1)[0].relation == f"{BRICK}hasQuantity"
    assert model.score([("sensor1", "hasquantity", "Temperature")])[0].object == f"{BRICK}Temperature"
    labelled = LabelRelation("brick:hasQuantity", inverse="feeds").added_to(KG)
    assert list(labelled.labels.names) == [f"{BRICK}Temperature"]
    assert labelled.metadata["labels_from"] == [f"{BRICK}hasQuantity", "ex:feeds"]
    assert labelled.num_relations == 2
    with pytest.raises(AmbiguousNameError):
        LabelRelation("type").added_to(KG)
