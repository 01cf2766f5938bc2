"""Test vectors of nodes and relations, and their tables."""

import numpy as np
import polars as pl
import pytest

import rgcn
from rgcn.errors import ConfigError, DataError
from rgcn.predict import open_model
from rgcn.visualization import vectors
from rgcn.visualization.vectors import NodeVectors, node_table, relation_table, relation_vectors


def every(opened):
    return np.arange(opened.graph.num_nodes)


def test_the_last_hidden_layer_unless_another_is_named(classifier):
    hidden, logits = NodeVectors.of(classifier), NodeVectors.of(classifier, -1)
    assert (hidden.layer, hidden.width, logits.width) == (-2, 6, 2)
    np.testing.assert_array_equal(hidden.take(every(classifier)), classifier.model.embeddings(layer=-2))
    np.testing.assert_array_equal(logits.take(every(classifier)), classifier.model.embeddings(layer=-1))


@pytest.mark.parametrize("layer", [2, -3])
def test_a_layer_that_is_not_there_is_refused(classifier, layer):
    with pytest.raises(ConfigError, match="the network has 2 layers"):
        NodeVectors.of(classifier, layer)


def test_a_link_predictor_has_no_layers_to_choose(predictor):
    with pytest.raises(ConfigError, match="one vector for each node"):
        NodeVectors.of(predictor, -1)


def test_biases_are_not_part_of_a_nodes_vector(predictor):
    found = NodeVectors.of(predictor)
    assert predictor.model.scorer().nodes.shape[1] == 10
    assert found.take(np.array([3, 1])).tolist() == predictor.model.scorer().nodes[[3, 1], :8].tolist()


def test_parts_give_what_the_whole_gives(classifier, monkeypatch):
    whole = NodeVectors.of(classifier).take(every(classifier))
    monkeypatch.setattr(vectors, "BLOCK_NODES", 7)
    seen = []
    np.testing.assert_allclose(NodeVectors.of(classifier).gather(every(classifier)), whole, rtol=1e-6)
    assert len(list(node_table(NodeVectors.of(classifier), every(classifier), seen.append))) == len(seen)
    assert sum(seen) == classifier.graph.num_nodes
    assert max(seen) == 7


def test_the_table_says_what_is_known_of_each_node(classifier):
    table = pl.concat(node_table(NodeVectors.of(classifier), np.array([2, 1])))
    assert table.columns == ["name", "title", "class", "split", "predicted", "score", "probability", "vector"]
    assert table["vector"].dtype == pl.Array(pl.Float32, 6)
    # Node 2 is the type, which has no label; node 1 a book.
    assert table["title"].to_list() == ["Reader", "book0-0"]
    assert table["class"].to_list() == [None, None]
    labeled = pl.concat(node_table(NodeVectors.of(classifier), classifier.graph.labels.nodes))
    assert set(labeled["split"]) == {"train", "valid", "test"}
    assert labeled["class"].null_count() == 0
    predicted = classifier.model.predict_frame(labeled["name"].to_list())
    assert labeled["predicted"].to_list() == predicted["class"].to_list()
    assert labeled["score"].to_list() == pytest.approx(predicted["score"].to_list(), rel=1e-4)
    assert labeled["probability"].to_list() == [None] * len(labeled)  # too few validation nodes to calibrate on


def test_a_link_predictors_table_has_no_predictions(predictor):
    table = next(node_table(NodeVectors.of(predictor), np.array([0])))
    assert table.columns == ["name", "title", "class", "split", "vector"]


def test_relations_of_a_classifier_have_weights_in_both_directions(classifier):
    (forward, inverse), _ = relation_vectors(classifier)
    dense = classifier.model.network_.layers[-1].dense_weight().detach().numpy()
    np.testing.assert_array_equal(forward, dense[:3].reshape(3, -1))
    np.testing.assert_array_equal(inverse, dense[3:6].reshape(3, -1))
    table = relation_table(classifier)
    assert table["inverse"].to_list() == [False] * 3 + [True] * 3
    assert table["title"].to_list()[:3] == ["reads", "type", "wrote"]
    assert table["triples"].to_list()[:3] == [24, 24, 24]


def test_relations_of_a_link_predictor_are_its_decoders(predictor):
    (found,), _ = relation_vectors(predictor)
    np.testing.assert_array_equal(found, predictor.model.network_.decoder.relation.detach().numpy())
    assert relation_table(predictor).columns == ["name", "title", "triples", "vector"]


def test_a_single_layer_on_nodes_without_features_compares_no_relations(classifier, tmp_path):
    rgcn.NodeClassifier(layers=1, epochs=1).fit(classifier.graph).save(str(tmp_path))
    opened = open_model(tmp_path)
    assert NodeVectors.of(opened).layer == -1
    with pytest.raises(DataError, match="two layers"):
        relation_vectors(opened)
