"""Test explanations with a time limit: the work limit decides what is left out, and the clock is an upper bound."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
import torch
from explained_models import opened

import rgcn
from fake_clock import FakeClock
from rgcn.explain import explain_link
from rgcn.explain.methods import MORE_TIME_HINT
from rgcn.explain.question import LinkQuestion
from rgcn.graph import KnowledgeGraph
from rgcn.nn.universal_network import RelationNetwork
from rgcn.predict import open_model
from rgcn.system.progress import Budget


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """A path network over a hub: every node is within reach of every other."""
    rows = [("hub", f"r{i % 2}", f"leaf{i}") for i in range(14)]
    rows += [(f"leaf{i}", "likes", f"leaf{i + 1}") for i in range(9)]
    model = rgcn.LinkPredictor("path", layers=3, width=4, steps=1, device="cpu").fit(KnowledgeGraph.from_triples(rows))
    return opened(model, tmp_path_factory.mktemp("hub"))


@pytest.fixture
def explain_timed(hub, monkeypatch):
    """Return a function that explains one triple; each question takes a second, and `.num_questions` counts them."""
    clock, output = FakeClock(), LinkQuestion.output

    def slow(question, field):
        clock.seconds += 1
        return output(question, field)

    monkeypatch.setattr(LinkQuestion, "output", slow)

    def explain(budget, method="paths", draws=20):
        before = clock.seconds
        why = explain_link(hub, 0, 0, 2, method=method, draws=draws, edges=3, budget=replace(budget, clock=clock))
        explain.num_questions = clock.seconds - before
        return why

    return explain


def test_whole_draws_are_skipped_when_the_time_is_over(explain_timed):
    why = explain_timed(Budget(seconds=20.0))
    # One question for the answer, one with gradients, one without triples, two for the fidelity, and four for each
    # draw.
    assert explain_timed.num_questions == 5 + 4 * 3
    assert why.fidelity.draws == 3
    assert why.left_out == ("Only 3 of 20 random sets of triples were compared.", MORE_TIME_HINT)
    assert why.fidelity.strength.without.random is not None
    for written in (why.as_text(), why.as_page()):
        assert "Only 3 of 20 random sets" in written
    assert explain_timed(Budget(), draws=3).left_out == ()


def test_the_work_limit_applies_before_the_time_limit(explain_timed, hub):
    # The question is asked in both directions.
    work = 2 * hub.model.network_.question_work(hub.graph.num_nodes, hub.model.adjacency_.num_edges)
    why = explain_timed(Budget(work=4.5 * 2 * work, seconds=1000.0))
    assert (why.fidelity.draws, explain_timed.num_questions) == (2, 5 + 4 * 2)
    why = explain_timed(Budget(work=work), "integrated-gradients")
    assert explain_timed.num_questions <= 12
    assert why.left_out[:2] == (
        "The integral was taken at 4 steps instead of 32.",
        "The triples were not compared with random ones.",
    )
    why = explain_timed(Budget(work=work), "edge-mask", draws=1)
    assert "The mask was learned in 12 steps instead of 60." in why.left_out
    assert explain_timed(Budget(), "integrated-gradients", draws=1).left_out == ()


def test_without_any_draw_the_listed_triples_are_still_measured(explain_timed):
    why = explain_timed(Budget(seconds=0.0))
    assert explain_timed.num_questions == 5
    assert (why.fidelity.draws, why.left_out[0]) == (0, "The triples were not compared with random ones.")
    change = why.fidelity.strength.without
    assert (change.random, change.random_near) == (None, None)
    assert change.named != 0
    assert "at random" not in why.fidelity.words
    assert re.search("With only these . triples", why.fidelity.words)
    assert "random" not in why.as_page().split("</style>")[-1].replace(why.left_out[0], "")
    result = json.loads(json.dumps(why.as_dict()))
    assert result["left_out"] == list(why.left_out)
    assert result["fidelity"]["strength"]["without"]["random"] is None


def test_the_reason_for_a_missing_probability_is_given(explain_timed, hub, monkeypatch):
    none = replace(hub.calibration, fitted=False, words="No probabilities, only scores: asking takes too long.")
    monkeypatch.setitem(hub.__dict__, "calibration", none)
    why = explain_timed(Budget(), draws=1)
    assert (why.probability, why.question["known"]) == (None, False)
    assert "no probability" in why.as_text()
    assert why.as_dict()["calibration"] == none.words
    for written in (why.as_text(), why.as_page()):
        assert none.words in written


def test_relation_vectors_are_computed_once_for_all_questions(monkeypatch):
    graph = KnowledgeGraph.from_triples([("a", "r", "b"), ("b", "s", "c"), ("a", "s", "c"), ("c", "r", "d")])
    calls, forward = [], RelationNetwork.forward
    known = open_model(graph, device="cpu")
    assert not known.calibration.fitted

    def counted(self, meetings, relations):
        calls.append(relations.tolist())
        return forward(self, meetings, relations)

    monkeypatch.setattr(RelationNetwork, "forward", counted)
    why = explain_link(known, 0, 0, 3, draws=5, edges=2)
    assert why.fidelity.draws == 5
    assert len(calls) <= 4  # by the scorer, and by the frozen copy that is evaluated with some triples removed
    assert why.score == pytest.approx(float(known.scorer().triple_scores(torch.tensor([[0, 0, 3]]))[0]), rel=1e-5)
