"""Classes of many nodes at once."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import rgcn
from rgcn.errors import DataError
from rgcn.graph import SPLITS
from rgcn.models.answer_kind import ClassKind
from rgcn.predict import open_model
from rgcn.predict.answer_tables import (
    ClassTables,
    known_columns,
    label_relation,
    nodes_to_classify,
    predicate_term,
    predict_classes,
)

TABLES = ClassTables(ClassKind())


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    rgcn.NodeClassifier(hidden=8, epochs=5, validation=0.2).fit(rgcn.load("world")).save(str(folder))
    return open_model(folder)


def test_chunks_are_the_whole_in_order(opened):
    ids = np.array([5, 3, 3, 900, 17, 0, 2000])
    whole = next(predict_classes(opened, ids))
    parts = list(predict_classes(opened, ids, chunk=3))
    assert [len(part) for part in parts] == [3, 3, 1]
    np.testing.assert_array_equal(np.concatenate([part.node for part in parts]), ids)
    joined = np.concatenate([part.probabilities for part in parts])
    np.testing.assert_allclose(joined, whole.probabilities, rtol=1e-5, atol=1e-6)
    logits = torch.from_numpy(opened.model.embeddings(ids.tolist(), layer=-1))
    expected = torch.softmax(logits / opened.calibration.temperature, 1).numpy()
    np.testing.assert_allclose(whole.probabilities, expected, rtol=1e-5)
    np.testing.assert_array_equal(whole.class_, expected.argmax(1))
    np.testing.assert_allclose(whole.probability, expected.max(1), rtol=1e-5)
    assert list(predict_classes(opened, [])) == []


def test_known_labels_and_their_splits_come_along(opened):
    labels = opened.graph.labels
    ids = nodes_to_classify(opened)
    known = known_columns(opened, ids)
    assert sum(label is not None for label in known["label"]) == len(labels)
    by_node = dict(zip(ids.tolist(), zip(known["label"], known["label_split"], strict=True), strict=True))
    columns = (labels.nodes.tolist(), labels.classes.tolist(), labels.splits.tolist())
    assert all(
        by_node[node] == (labels.names[number], SPLITS[split]) for node, number, split in zip(*columns, strict=True)
    )


def test_rows_for_tables_and_for_json(opened):
    node = opened.node("Switzerland")
    chunk = next(predict_classes(opened, [node, int(np.setdiff1d(np.arange(2363), opened.graph.labels.nodes)[0])]))
    flat, nested = TABLES.frame(opened, chunk.node), TABLES.frame(opened, chunk.node, nested=True)
    names = opened.model.classes_
    first = ["node", "title", "class", "class_title", "score", "probability", "label", "label_split"]
    assert flat.columns == [*first, *[f"score({name})" for name in names], *[f"p({name})" for name in names]]
    row = nested.row(0, named=True)
    assert row["node"] == "Switzerland"
    assert sum(row["probabilities"].values()) == pytest.approx(1.0, abs=1e-5)
    assert row["probabilities"][row["class"]] == pytest.approx(row["probability"])
    assert row["scores"][row["class"]] == row["score"] == max(row["scores"].values())
    assert nested.row(1, named=True)["label"] is None
    assert json.loads(nested.write_ndjson().splitlines()[0])["label_split"] in ("train", "valid", "test")


def test_as_rdf(opened):
    from pyoxigraph import RdfFormat, parse

    chunk = next(predict_classes(opened, nodes_to_classify(opened)[:40]))
    frame, predicate = TABLES.frame(opened, chunk.node), predicate_term("http://example.org/in")
    lines = list(TABLES.lines(opened, chunk.node, frame, predicate))
    triples = list(parse("\n".join(lines).encode(), format=RdfFormat.N_TRIPLES))
    assert len(triples) == 40
    assert triples[0].predicate.value == "http://example.org/in"
    assert lines[0].rsplit("# ", 1)[1] == f"score {chunk.score[0]:.4g}, probability {chunk.probability[0]:.4g}"


def test_without_validation_labels_there_are_scores_and_no_probabilities(tmp_path):
    kg = rgcn.KnowledgeGraph.from_triples([("a", "r", "b"), ("b", "r", "c")], labels={"a": "x", "b": "y"})
    rgcn.NodeClassifier(epochs=1).fit(kg).save(str(tmp_path))
    opened = open_model(tmp_path)
    chunk = next(predict_classes(opened, nodes_to_classify(opened, every=True)))
    assert chunk.probability is chunk.probabilities is None
    assert TABLES.frame(opened, chunk.node)["probability"].to_list() == [None] * 3
    nested = json.loads(TABLES.frame(opened, chunk.node, nested=True).write_ndjson().splitlines()[0])
    assert (nested["probability"], nested["probabilities"], set(nested["scores"])) == (None, None, {"x", "y"})
    assert "probability" not in next(
        iter(TABLES.lines(opened, chunk.node, TABLES.frame(opened, chunk.node), "<urn:p>"))
    )


def test_the_relation_of_labels_is_named_where_it_is_known(opened):
    assert label_relation(opened) is None
    data = SimpleNamespace(labels_from="works_at")
    assert label_relation(replace(opened, data=data)) == "works_at"


def test_a_link_predictor_has_no_classes(tmp_path):
    rgcn.LinkPredictor(encoder="none", embedding=2, steps=1).fit(rgcn.load("world")).save(str(tmp_path))
    with pytest.raises(DataError, match="predicts links"):
        next(predict_classes(open_model(tmp_path), [0]))
