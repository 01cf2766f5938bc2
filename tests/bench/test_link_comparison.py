"""Test the comparison of link models: the file of runs, and answers for a graph that was not trained on."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import rgcn
from rgcn.graph import Vocabulary
from rgcn.nn.scorer import Questions
from rgcn.sampling.known_triples import KnownTriples
from small_models import random_graph

ROOT = Path(__file__).parents[2]


@pytest.fixture
def comparison(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import link_comparison

    yield link_comparison
    sys.modules.pop("link_comparison")


@pytest.fixture(scope="module")
def unseen():
    graph = random_graph(5, nodes=17)
    names = Vocabulary([f"m{i}" for i in range(graph.num_nodes)], kind="node")
    return replace(graph, nodes=names, relations=Vocabulary(["r2", "r0", "r1"], kind="relation"))


def test_a_run_is_written_at_once_and_not_repeated(comparison, tmp_path):
    run = {"dataset": "world", "configuration": "popularity/lp-world", "changes": [], "split": "test", "seed": 0}
    path = tmp_path / "results" / "link-comparison-here.json"
    comparison.Book(path, "").add({**run, "seconds": 1.0})
    book = comparison.Book(path, "")
    assert book.has(run)
    assert not book.has({**run, "seed": 1})
    book.add({**run, "seed": 1, "seconds": 2.0})
    content = json.loads(path.read_text(encoding="utf-8"))
    assert [each["seed"] for each in content["runs"]] == [0, 1]
    assert all({"command", "date", "hardware", "versions", "git"} <= call.keys() for call in content["calls"])
    assert [each["call"] for each in content["runs"]] == [0, 0]


def test_a_path_model_uses_the_new_graph(comparison, unseen):
    settings = {"layers": 2, "width": 4, "steps": 2, "batch_edges": 8, "objective": "softmax", "sampler": "shuffled"}
    found = comparison.on_unseen(rgcn.LinkPredictor("path", **settings).fit(random_graph(4)), unseen, "test")
    assert found["how"] == "as it is"
    assert found["count"] == 2 * len(unseen.split_triples("test"))


def test_popularity_counts_the_new_graph(comparison, unseen):
    model = rgcn.LinkPredictor("popularity", steps=1, edge_dropout=0.0).fit(random_graph(4))
    found = comparison.on_unseen(model, unseen, "test")
    expected = rgcn.LinkPredictor("popularity", steps=1, edge_dropout=0.0).fit(unseen).evaluate(split="test")
    assert found["how"] == "as it is"
    assert found["mrr"] == pytest.approx(expected["mrr"], abs=1e-5)
    assert 0.0 <= found["hits@10_of_50"] <= 1.0


def test_nodes_with_vectors_are_folded_in_and_distmult_cannot_answer(comparison, unseen):
    graph = random_graph(4)
    settings = {"embedding": 8, "steps": 2}
    folded = comparison.on_unseen(rgcn.LinkPredictor("c-rgcn", bottleneck=4, **settings).fit(graph), unseen, "test")
    assert folded["how"] == "folded in"
    assert folded["count"] == 2 * len(unseen.split_triples("test"))
    refused = comparison.on_unseen(rgcn.LinkPredictor(encoder="none", **settings).fit(graph), unseen, "test")
    assert refused["how"] is None
    assert "passes no messages" in refused["why_not"]


def test_among_some_nodes(comparison):
    graph = random_graph(4)
    whole, nodes = (
        rgcn.LinkPredictor(encoder="none", embedding=8, steps=2).fit(graph).scorer(),
        torch.tensor([3, 5, 8, 9]),
    )
    some = comparison.Among(whole, nodes)
    questions = Questions(torch.tensor([0, 2]), torch.tensor([1, 0]), torch.tensor([True, False]))
    expected = whole.scores(questions._replace(node=nodes[questions.node]))
    torch.testing.assert_close(some.scores(questions), expected[:, nodes])
    torch.testing.assert_close(some.scores(questions, torch.tensor([1, 3])), expected[:, [5, 9]])


def test_settings_are_chosen_without_test_triples(comparison):
    graph = random_graph(4)
    kept = comparison.without_test(graph)
    assert not len(kept.split_triples("test"))
    assert len(kept.split_triples("valid")) == len(graph.split_triples("valid"))
    assert not KnownTriples.of_graph(kept).contains(torch.tensor(graph.split_triples("test"))).any()
