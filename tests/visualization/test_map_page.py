"""Test the page of the map: its content, and that data are escaped."""

import base64
import hashlib
import html
import json
import re
import shutil
import subprocess

import numpy as np
import pytest

import rgcn
from rgcn.errors import DataError
from rgcn.predict import open_model
from rgcn.visualization import node_map, vectors
from rgcn.visualization.map_page import clustered_order, cosines, map_page, most_similar_pairs
from rgcn.visualization.node_map import NodeMap
from rgcn.visualization.vectors import NodeVectors

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def page_of(opened, split=None, nodes=None, **settings):
    nodes = np.arange(opened.graph.num_nodes) if nodes is None else nodes
    settings = {"method": "pca", **settings}
    return map_page(NodeMap(NodeVectors.of(opened), nodes, split=split, **settings), split)


def data_in(page):
    (text,) = re.findall(r'<script type="application/json" id="map-data">(.*?)</script>', page, re.DOTALL)
    return json.loads(text)


def test_names_from_the_data_stay_where_they_are(classifier):
    page = page_of(classifier)
    assert "<script>alert" not in page
    hostile = classifier.graph.nodes[0]
    assert "</script>" in hostile
    assert hostile in data_in(page)["title"]
    (raw,) = re.findall(r'id="map-data">(.*?)</script>', page, re.DOTALL)
    assert not set(raw) & set("<>&\u2028")
    assert page.count("<script") == 3  # the data and the page's own two


def test_only_the_pages_own_scripts_may_run(classifier):
    page = page_of(classifier)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert len(digests) == 2
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    assert html.unescape(policy).endswith(f"script-src {allowed}")
    assert "default-src 'none'" in html.unescape(policy)
    assert not re.search(r'(?:src|href)="(?!#)', page)


def test_the_same_seed_gives_the_same_page(classifier):
    assert page_of(classifier, method="tsne") == page_of(classifier, method="tsne")


def test_it_says_how_many_of_how_many_are_shown(classifier):
    page = page_of(classifier, most=25)
    assert f"25 of {classifier.graph.num_nodes} nodes: the labeled ones, then those in the most triples" in page
    assert len(data_in(page)["x"]) == 25


def test_of_too_many_labeled_nodes_a_sample_is_shown_and_the_page_says_so(classifier):
    page = page_of(classifier, most=9, seed=3)
    assert f"9 of {classifier.graph.num_nodes} nodes: drawn evenly by class from the 24 labeled ones" in page
    assert "seed 3)" in page
    assert len(data_in(page)["x"]) == 9
    assert sorted(count for _, count, _ in data_in(page)["colorings"][0]["groups"]) == [3, 3, 3]


def test_a_map_asks_the_classifier_once(classifier, monkeypatch):
    calls = []

    def counting(*arguments):
        calls.append(arguments)
        return vectors.predictions(*arguments)

    monkeypatch.setattr(node_map, "predictions", counting)
    made = NodeMap(NodeVectors.of(classifier), np.arange(12), method="pca")
    assert len(calls) == 1
    (by_prediction,) = (one for one in made.colorings if one.key == "predicted")
    titles = [by_prediction.groups[group].title for group in by_prediction.group_of]
    assert titles == [classifier.titles.class_(number) for number in made.answers.class_.tolist()]


def test_mistakes_are_shown_on_validation_nodes_unless_test_is_asked_for(classifier):
    usual, with_test = page_of(classifier), page_of(classifier, "test")
    assert "has the validation nodes" in usual
    assert "of 5 validation nodes" in usual
    assert "has the test nodes" in with_test
    assert "of 5 test nodes" in with_test
    shown = [title for title, _, _ in data_in(usual)["colorings"][0]["groups"]]
    assert "test nodes, class not shown" in shown


def test_without_validation_nodes_training_nodes_are_shown_and_the_page_says_so(classifier, tmp_path):
    labels = classifier.graph.labels
    rows = zip(labels.nodes, labels.classes, strict=True)
    train = {classifier.graph.nodes[int(node)]: labels.names[int(number)] for node, number in rows}
    rgcn.NodeClassifier(hidden=2, epochs=1).fit(classifier.graph.with_labels({"train": train})).save(str(tmp_path))
    opened = open_model(tmp_path)
    page = page_of(opened)
    assert "has the training nodes" in page
    assert "was trained on these nodes" in page
    with pytest.raises(DataError, match="no labels in split 'test'"):
        page_of(opened, "test")


def test_a_link_predictor_has_no_mistakes_to_show(predictor):
    page = page_of(predictor)
    assert "Confusion matrix" not in page
    assert "Similar relations" in page
    assert "The most similar pairs" in page


def test_the_map_is_also_a_table(classifier):
    page = page_of(classifier)
    assert "The map as a table" in page
    assert 'role="application"' in page
    assert 'role="status"' in page
    assert "<noscript>" in page


def test_near_means_near_by_vectors(predictor):
    vectors = NodeVectors.of(predictor).take(np.arange(predictor.graph.num_nodes))
    made = NodeMap(NodeVectors.of(predictor), np.arange(predictor.graph.num_nodes), method="pca")
    distance = ((vectors[made.nodes][:, None] - vectors[made.nodes][None]) ** 2).sum(axis=2)
    np.fill_diagonal(distance, np.inf)
    np.testing.assert_array_equal(made.near[:, 0], distance.argmin(axis=1))


@pytest.mark.parametrize("count", [1, 2, 9])
def test_a_map_of_few_nodes(predictor, count):
    assert len(data_in(page_of(predictor, nodes=np.arange(count), method="tsne"))["x"]) == count


def test_a_graph_with_a_single_relation(tmp_path):
    graph = rgcn.KnowledgeGraph.from_triples([("a", "r", "b"), ("b", "r", "c")])
    rgcn.LinkPredictor(encoder="none", embedding=2, steps=1).fit(graph).save(str(tmp_path))
    assert "only one relation" in page_of(open_model(tmp_path))


def test_a_network_whose_relations_cannot_be_compared_says_so(classifier, tmp_path):
    rgcn.NodeClassifier(layers=1, epochs=1).fit(classifier.graph).save(str(tmp_path))
    page = page_of(open_model(tmp_path))
    assert "a single layer on nodes without features" in page
    assert "train with two layers" in page
    assert str(tmp_path.parent) not in page


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_a_browser_draws_it(classifier, tmp_path):
    """The script runs under the page's own policy: it fills the legend and the line below the map."""
    path = tmp_path / "map.html"
    path.write_text(page_of(classifier), encoding="utf-8")
    quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    quiet += ["--disable-component-update", "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}"]
    command = [CHROMIUM, *quiet, "--virtual-time-budget=2000", "--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.count('aria-pressed="true"') == 4  # two classes, test nodes, nodes without a class
    assert "Point at a node to see its name" in done.stdout


# -- relations that are alike ------------------------------------------------------------------------------


def test_a_zero_vector_is_similar_to_nothing():
    assert cosines(np.array([[0, 0], [1, 0]], np.float32)).tolist() == [[0, 0], [0, 1]]


@pytest.mark.parametrize("seed", range(5))
def test_similar_relations_are_adjacent(seed):
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.repeat(np.arange(4), 5))
    vectors = (np.eye(4)[group] + 0.1 * rng.normal(size=(20, 4))).astype(np.float32)
    order = clustered_order(cosines(vectors))
    assert sorted(order.tolist()) == list(range(20))
    assert (np.diff(group[order]) != 0).sum() == 3


def test_the_order_of_one_and_of_none():
    assert clustered_order(np.ones((1, 1))).tolist() == [0]
    assert clustered_order(np.ones((0, 0))).tolist() == []


def test_pairs_are_sorted_by_similarity():
    similarity = cosines(np.array([[1, 0], [1, 0.1], [0, 1]], np.float32))
    pairs = most_similar_pairs(similarity, 2)
    assert [(one, other) for one, other, _ in pairs] == [(0, 1), (1, 2)]
    assert most_similar_pairs(np.ones((1, 1)), 5) == []
