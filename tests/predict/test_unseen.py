"""Files of new triples: how their names meet the known ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import rgcn
from rgcn.errors import DataError
from rgcn.graph import KnowledgeGraph, NodeKind
from rgcn.predict import open_model
from rgcn.predict.unseen import joined, with_new_triples


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    rgcn.LinkPredictor("c-rgcn", embedding=8, bottleneck=4, epochs=3).fit(rgcn.load("world")).save(str(folder))
    return open_model(folder)


def test_answers_for_a_country_that_is_new(opened, tmp_path):
    new = tmp_path / "new.tsv"
    new.write_text("Atlantis\tborders\tPortugal\nAtlantis\tmember_of\tCERN\nLemuria\tborders\tAtlantis\n")
    larger = with_new_triples(opened, new)
    assert [larger.titles.of(node) for node in larger.new_nodes] == ["Atlantis", "Lemuria"]
    assert len(larger.predictor.predict(subject="Atlantis", relation="borders", k=3)) == 3
    assert larger.calibration is opened.calibration
    assert not opened.new_nodes
    assert "Atlantis" not in opened.graph.nodes


def test_our_own_iris_are_the_plain_names_they_stand_for(opened, tmp_path):
    new = tmp_path / "new.nt"
    new.write_text("<urn:rgcn:node:Atlantis> <urn:rgcn:relation:borders> <urn:rgcn:node:Cabo%20Verde> .\n")
    graph = joined(opened.graph, rgcn.read(new), "new.nt")
    assert graph.named()[-1] == ("Atlantis", "borders", "Cabo Verde")
    assert graph.num_nodes == opened.graph.num_nodes + 1


def test_unknown_relations_and_empty_files_are_refused(opened, tmp_path):
    new = tmp_path / "new.tsv"
    new.write_text("Atlantis\tborderz\tPortugal\n")
    with pytest.raises(DataError, match=r"unknown relation 'borderz'. Did you mean 'borders'.*train anew"):
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
    graph = joined(known, new, "new.nt")
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
    graph = joined(known, KnowledgeGraph.from_triples([("d", "r", "a")]), "new")
    assert graph.triple_splits.tolist() == [0, 2, 0]
    assert graph.edge_weights.tolist() == [0.5, 2.0, 1.0]


def test_a_model_of_features_asks_for_them(tmp_path):
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
    (tmp_path / "features.csv").write_text("e,1,0,0,0\n")
    larger = with_new_triples(opened, tmp_path / "new.tsv", tmp_path / "features.csv")
    assert larger.graph.features[-1].tolist() == [1, 0, 0, 0]
    assert larger.graph.features[:4].tolist() == features.tolist()
