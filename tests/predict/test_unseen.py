"""Test files of new triples: how their names are matched with known names."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import rgcn
from rgcn.errors import DataError
from rgcn.graph import KnowledgeGraph, NodeKind
from rgcn.predict import open_model
from rgcn.predict.opened_model import merge_new_triples, with_new_triples
from small_models import named_rows


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    rgcn.LinkPredictor("c-rgcn", embedding=8, bottleneck=4, steps=3).fit(rgcn.load("world")).save(str(folder))
    return open_model(folder)


def test_answers_for_a_new_country(opened, tmp_path):
    new = tmp_path / "new.tsv"
    new.write_text("Atlantis\tborders\tPortugal\nAtlantis\tmember_of\tCERN\nLemuria\tborders\tAtlantis\n")
    larger = with_new_triples(opened, new)
    assert [larger.titles.of(node) for node in larger.new_nodes] == ["Atlantis", "Lemuria"]
    assert len(named_rows(larger.model.predict_frame(subject="Atlantis", relation="borders", k=3))) == 3
    assert larger.calibration is opened.calibration
    assert not opened.new_nodes
    assert "Atlantis" not in opened.graph.nodes


def test_our_own_iris_are_the_plain_names_they_stand_for(opened, tmp_path):
    new = tmp_path / "new.nt"
    new.write_text("<urn:rgcn:node:Atlantis> <urn:rgcn:relation:borders> <urn:rgcn:node:Cabo%20Verde> .\n")
    graph = merge_new_triples(opened.graph, rgcn.read(new), "new.nt")
    assert graph.named()[-1] == ("Atlantis", "borders", "Cabo Verde")
    assert graph.num_nodes == opened.graph.num_nodes + 1


def test_a_model_of_what_we_wrote_ourselves_takes_its_own_names(tmp_path):
    kg = KnowledgeGraph.from_triples([("a b", "r", "c"), ("c", "r", "d")])
    kg.to_rdf(tmp_path / "graph.nt")
    rgcn.LinkPredictor("c-rgcn", embedding=4, bottleneck=2, steps=1).fit(rgcn.read(tmp_path / "graph.nt")).save(
        str(tmp_path / "model")
    )
    (tmp_path / "new.nt").write_text("<urn:rgcn:node:new> <urn:rgcn:relation:r> <urn:rgcn:node:a%20b> .\n")
    larger = with_new_triples(open_model(tmp_path / "model"), tmp_path / "new.nt")
    assert len(larger.new_nodes) == 1
    assert larger.graph.named()[-1][2] == "urn:rgcn:node:a%20b"


def test_of_data_with_splits_only_the_training_triples_are_used(opened, tmp_path):
    for split, line in (
        ("train", "Atlantis\tborders\tSpain"),
        ("valid", "Lemuria\tborders\tSpain"),
        ("test", "Mu\tborders\tPeru"),
    ):
        (tmp_path / f"{split}.txt").write_text(line + "\n")
    graph = merge_new_triples(opened.graph, rgcn.read(tmp_path), "new")
    assert list(graph.nodes[opened.graph.num_nodes :]) == ["Atlantis"]
    assert len(graph) == len(opened.graph) + 1


def test_known_triples_are_not_added_twice(opened):
    known = opened.graph.named(opened.graph.split_triples("train"))[:2]
    new = KnowledgeGraph.from_triples([*known, ("Atlantis", "borders", "Spain"), ("Atlantis", "borders", "Spain")])
    assert merge_new_triples(opened.graph, new, "new").named()[len(opened.graph) :] == [
        ("Atlantis", "borders", "Spain")
    ]
    with pytest.raises(DataError, match="no new triples"):
        merge_new_triples(opened.graph, KnowledgeGraph.from_triples(known), "new")


def test_unknown_relations_and_empty_files_are_refused(opened, tmp_path):
    new = tmp_path / "new.tsv"
    new.write_text("Atlantis\tborderz\tPortugal\n")
    with pytest.raises(DataError, match=r"unknown relation 'borderz'. Did you mean 'borders'.*train again"):
        with_new_triples(opened, new)
    new.write_text("")
    with pytest.raises(DataError, match="no triples"):
        with_new_triples(opened, new)


def test_blank_nodes_of_two_files_are_two_nodes_and_kinds_stay():
    known = replace(KnowledgeGraph.from_triples([("_:b0", "r", '"text"')]), node_kinds=np.array([2, 1], dtype=np.uint8))
    new = replace(
        KnowledgeGraph.from_triples([("_:b0", "r", '"text"'), ("x", "r", '"more"')]),
        node_kinds=np.array([2, 1, 0, 1], dtype=np.uint8),
    )
    graph = merge_new_triples(known, new, "new.nt")
    assert list(graph.nodes) == ["_:b0", '"text"', "_:b0'", "x", '"more"']
    assert [graph.kind(i) for i in range(5)] == [
        NodeKind.BLANK,
        NodeKind.LITERAL,
        NodeKind.BLANK,
        NodeKind.IRI,
        NodeKind.LITERAL,
    ]


def test_new_triples_are_training_triples_of_weight_one():
    known = KnowledgeGraph.from_triples(
        [("a", "r", "b"), ("b", "r", "c")], triple_splits=np.array([0, 2]), edge_weights=np.array([0.5, 2.0])
    )
    graph = merge_new_triples(known, KnowledgeGraph.from_triples([("d", "r", "a")]), "new")
    assert graph.triple_splits.tolist() == [0, 2, 0]
    assert graph.edge_weights.tolist() == [0.5, 2.0, 1.0]


def test_triples_may_join_a_graph_with_times():
    known = KnowledgeGraph.from_triples([("a", "r", "b")])
    timed = replace(known, triple_times=np.array([1.0]))
    assert merge_new_triples(timed, KnowledgeGraph.from_triples([("d", "r", "a")]), "new").named()[1] == ("d", "r", "a")


def test_a_model_of_features_requires_them_for_new_nodes(tmp_path):
    features = np.eye(4, dtype=np.float32)
    kg = KnowledgeGraph.from_triples(
        [("a", "r", "b"), ("c", "r", "d")], labels={"a": "A", "b": "B", "c": "A", "d": "B"}, features=features
    )
    rgcn.NodeClassifier("rgcn", epochs=2).fit(kg).save(str(tmp_path / "model"))
    opened = open_model(tmp_path / "model")
    (tmp_path / "new.tsv").write_text("e\tr\ta\n")
    with pytest.raises(DataError, match="'e' has none: give a table"):
        with_new_triples(opened, tmp_path / "new.tsv")
    (tmp_path / "narrow.csv").write_text("e,1,2\n")
    with pytest.raises(DataError, match="2 features a node, where the model reads 4"):
        with_new_triples(opened, tmp_path / "new.tsv", tmp_path / "narrow.csv")
    (tmp_path / "other.csv").write_text("a,1,0,0,0\n")
    with pytest.warns(UserWarning, match="no features, or only zeros, for 'e'"):
        with_new_triples(opened, tmp_path / "new.tsv", tmp_path / "other.csv")
    (tmp_path / "old.tsv").write_text("b\tr\ta\n")
    assert with_new_triples(opened, tmp_path / "old.tsv").new_nodes == ()
    (tmp_path / "features.csv").write_text("e,1,0,0,0\n")
    larger = with_new_triples(opened, tmp_path / "new.tsv", tmp_path / "features.csv")
    assert larger.graph.features[-1].tolist() == [1, 0, 0, 0]
    assert larger.graph.features[:4].tolist() == features.tolist()
