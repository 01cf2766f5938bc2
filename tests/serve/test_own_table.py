"""Test a user's own table, trained, served and reported: pages and answers contain no folder names."""

from __future__ import annotations

import numpy as np
import pytest
from servers import asking

import rgcn
from rgcn.config import NodeClassificationRun
from rgcn.pages import make_report
from rgcn.pages.node_report import confusion_chart
from rgcn.pages.run_comparison import compare_runs, comparison_page
from rgcn.pages.run_report import model_card
from rgcn.predict import open_model
from rgcn.predict.answer_tables import nodes_like_labeled, nodes_to_classify
from rgcn.runs import RunFolder, load_data, train
from rgcn.serve import create_app, load_models
from rgcn.serve.answer_endpoints import ClassEndpoints
from rgcn.serve.served_model import ServedModel

PEOPLE, TOWNS = 12, 3


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A graph, labels of half of its people, and a run."""
    folder = tmp_path_factory.mktemp("secret-place")
    rows = [f"p{i},lives_in,town{i % TOWNS}\np{i},knows,p{(i + 1) % PEOPLE}\n" for i in range(PEOPLE)]
    (folder / "mine.csv").write_text("subject,relation,object\n" + "".join(rows) + "town0,in,land\ntown1,in,land\n")
    for name in ("people", "others"):
        label_rows = [f"p{i},{'odd' if i % 2 else 'even'},{'test' if i > 3 else 'train'}\n" for i in range(6)]
        (folder / f"{name}.csv").write_text("node,label,split\n" + "".join(label_rows))
    for name, labels in (("one", "people.csv"), ("two", {"train": "people.csv"}), ("three", "others.csv")):
        given = {k: str(folder / v) for k, v in labels.items()} if isinstance(labels, dict) else str(folder / labels)
        data = {"path": str(folder / "mine.csv"), "labels": given}
        config = NodeClassificationRun(data=data, model={"hidden": 4}, training={"epochs": 1})
        train(config, load_data(config.data), folder / name)
    return folder


def test_no_page_or_answer_contains_a_folder_name(place):
    hidden = str(place.parent)
    with asking(create_app(load_models([place / "one", place / "mine.csv"], device="cpu"))) as client:
        for model in ("one", "mine.csv"):
            paths = (
                "",
                "/card",
                "/search?q=p1",
                "/neighbors?node=p1",
                "/class?node=p1",
                "/links?subject=p1&relation=in",
            )
            for path in paths:
                assert hidden not in client.get(f"/api/models/{model}{path}").text
        assert client.get("/api/models/one").json()["dataset"] == "mine.csv"
        for path in ("/api/models", "/api/health", "/openapi.json", "/metrics"):
            assert hidden not in client.get(path).text
    report = make_report(place / "one").html
    assert hidden not in report
    assert "mine.csv" in report
    assert hidden not in model_card(RunFolder(place / "one"))
    page = comparison_page(compare_runs([place / "one", place / "two"]))
    assert hidden not in page


def test_a_comparison_shows_labels_whatever_their_form(place):
    for other in ("two", "three"):
        shown = compare_runs([place / "one", place / other]).settings()["data.labels"]
        assert shown[0].endswith("/people.csv")
        assert shown[0] != shown[1]


def test_classes_are_offered_for_the_kind_that_has_labels(place):
    opened = open_model(place / "one", device="cpu")
    names = {opened.graph.nodes[node] for node in nodes_to_classify(opened)}
    assert names == {f"p{i}" for i in range(PEOPLE)}
    assert len(nodes_to_classify(opened, every=True)) == opened.graph.num_nodes
    untrained = open_model(place / "mine.csv", device="cpu", classes=True, labels=str(place / "people.csv"))
    assert {untrained.graph.nodes[node] for node in nodes_to_classify(untrained)} == {f"p{i}" for i in range(4, PEOPLE)}
    # Those who are typed alike are of a kind, though all kinds have a type.
    rows = [(f"{kind}{i}", "type", kind) for kind in "ab" for i in range(6)]
    graph = rgcn.KnowledgeGraph.from_triples(rows, labels={"a0": "x", "a1": "y"})
    assert [graph.nodes[node] for node in nodes_like_labeled(graph)] == [f"a{i}" for i in range(6)]
    alone = rgcn.KnowledgeGraph.from_triples([("a", "r", "b"), ("c", "s", "d")], labels={"a": "x", "d": "y"})
    assert len(nodes_like_labeled(alone)) == 4  # they share no trait, so all nodes are classified


def test_a_path_network_computes_classes_on_request(place, monkeypatch):
    calls = []
    [served] = load_models([place / "mine.csv"], device="cpu", classes=True, labels=str(place / "people.csv"))
    whole, logits = np.asarray(served.opened.logits(range(PEOPLE))), type(served.opened).logits
    monkeypatch.setattr(type(served.opened), "logits", lambda self, nodes: calls.extend(nodes) or logits(self, nodes))
    group = ClassEndpoints(served, lambda words: None)
    assert calls == []
    with asking(create_app([served])) as client:
        calls.clear()
        one = client.get("/api/models/mine.csv/class", params={"node": "p7"}).json()
        many = client.post("/api/models/mine.csv/classes", json={"nodes": ["p7", "p2"]}).json()["predictions"]
        number = served.names.node("p7")
        assert calls == [number, number, served.names.node("p2")]
    assert one["class"] == many[0]["class"]
    np.testing.assert_allclose(one["score"], whole[number].max(), rtol=1e-4)
    assert group.answers([number])[0].class_.name == one["class"]["name"]


def test_the_explorer_begins_with_well_described_things_that_are_no_hubs():
    rows = [(f"thing{i}", "is in", "everything") for i in range(60)]
    rows += [(f"thing{i}", f"r{k}", f"value{i}-{k}") for i in range(6) for k in range(4)]
    graph = rgcn.KnowledgeGraph.from_triples(rows, name="hub")
    served = ServedModel(open_model(graph, device="cpu"))
    assert {graph.nodes[node] for node in served.entities.nodes} <= {f"thing{i}" for i in range(6)}


def test_every_pair_of_classes_that_is_mixed_up_is_listed():
    names, rng = [f"class {i}" for i in range(60)], np.random.default_rng(0)
    counts = rng.integers(0, 2, (60, 60)) * rng.integers(1, 9, (60, 60))
    shown = str(confusion_chart(counts.tolist(), names))
    wrong = counts - np.diag(np.diag(counts))
    assert f"All {np.count_nonzero(wrong):,} confused pairs" in shown
    listed = shown[shown.index("<details>") :]
    assert listed.count("<tr>") == np.count_nonzero(wrong) + 1
    first = np.unravel_index(wrong.argmax(), wrong.shape)
    assert listed.index(names[first[0]]) < listed.index(names[first[1]], listed.index(names[first[0]]) + 1)
