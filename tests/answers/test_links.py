"""The best answers to questions: exact, in any order of work, known ones marked or left out."""

import pytest
import torch

from rgcn.answers import links as module
from rgcn.answers.links import triple_probabilities
from rgcn.errors import ConfigError, DataError
from small_models import Turning, answers_to, every_score, mask, random_graph, ruled_out, with_whole_numbers


def by_definition(opened, given, relation, for_objects, k, known, by_example):
    """[(node, score, is known)] of one question: score everything, leave out, sort."""
    scores, there = every_score(opened), mask(opened.graph, "train")
    out = ruled_out(opened.graph, there) if by_example else torch.zeros_like(there)
    if known == "drop":
        out |= there
    of = (given, relation) if for_objects else (slice(None), relation, given)
    rows = [
        (node, score, bool(there[of][node]))
        for node, score in enumerate(scores[of].tolist())
        if not out[of][node]
    ]  # fmt: skip
    return sorted(rows, key=lambda row: (-row[1], row[0]))[:k]


def as_rows(answers, i):
    node, score, known = answers.node[i].tolist(), answers.score[i].tolist(), answers.known[i].tolist()
    return [row for row in zip(node, score, known, strict=True) if row[0] >= 0]


@pytest.mark.parametrize("known", ["mark", "drop"])
@pytest.mark.parametrize("by_example", [True, False])
@pytest.mark.parametrize("decoder", [None, "biases", Turning])
@pytest.mark.parametrize("k", [1, 5, 100])
def test_answers_are_those_of_the_definition(known, by_example, decoder, k):
    graph = random_graph(k)
    biases = decoder == "biases"
    opened = with_whole_numbers(graph, biases=biases, decoder=None if biases else decoder)
    given = torch.arange(graph.num_nodes).repeat(2)
    relation = given % graph.num_relations
    sides = torch.arange(len(given)) % 2 == 0
    answers = answers_to(opened, given, relation, sides, k, known, by_example=by_example)
    assert answers.node.shape == (len(given), min(k, graph.num_nodes))
    for i in range(len(given)):
        question = (int(given[i]), int(relation[i]), bool(sides[i]))
        assert as_rows(answers, i) == by_definition(opened, *question, k, known, by_example)
    empty = answers.node < 0
    assert bool((answers.score[empty] == -torch.inf).all())
    assert not answers.known[empty].any()
    if answers.probability is not None:
        assert not answers.probability[empty].any()


def test_one_at_a_time_in_plain_torch_and_in_blocks_it_is_the_same(monkeypatch):
    graph = random_graph(7, nodes=70, triples=700)
    opened = with_whole_numbers(graph)
    given, relation = torch.arange(70), torch.arange(70) % 3
    fast = answers_to(opened, given, relation, True, 6)
    single = [answers_to(opened, given[i : i + 1], relation[i : i + 1], True, 6).node[0] for i in range(70)]
    assert torch.equal(torch.stack(single), fast.node)
    monkeypatch.setattr(module, "BLOCK", 4 * 70 * 9)
    assert torch.equal(answers_to(opened, given, relation, True, 6).node, fast.node)
    monkeypatch.setattr(module, "_compiled", lambda: None)
    plain = answers_to(opened, given, relation, True, 6)
    assert torch.equal(plain.node, fast.node)
    assert torch.equal(plain.score, fast.score)
    assert torch.equal(plain.known, fast.known)


def test_several_threads_find_the_same(monkeypatch, restore_threads):
    opened = with_whole_numbers(random_graph(3, nodes=50, triples=300))
    given, relation = torch.arange(50), torch.arange(50) % 3
    alone = answers_to(opened, given, relation, False, 4, "drop")
    torch.set_num_threads(3)
    monkeypatch.setattr(module, "WORTH_A_THREAD", 1)
    assert torch.equal(answers_to(opened, given, relation, False, 4, "drop").node, alone.node)


def test_no_questions_no_answers():
    opened = with_whole_numbers(random_graph(0))
    nothing = torch.empty(0, dtype=torch.int64)
    assert answers_to(opened, nothing, nothing, True, 3).node.shape == (0, 3)


def test_what_cannot_be_asked():
    opened = with_whole_numbers(random_graph(0))
    one = torch.tensor([1])
    with pytest.raises(ConfigError, match="k is at least 1"):
        answers_to(opened, one, one, True, 0)
    with pytest.raises(ConfigError, match='"mark" or "drop"'):
        answers_to(opened, one, one, True, 1, "hide")
    with pytest.raises(DataError, match="a node and a relation each"):
        answers_to(opened, one, torch.tensor([1, 2]), True, 1)
    with pytest.raises(DataError, match=r"a relation outside 0\.\.2"):
        answers_to(opened, one, torch.tensor([3]), True, 1)
    with pytest.raises(DataError, match=r"a node outside 0\.\.22"):
        answers_to(opened, torch.tensor([-1]), one, True, 1)


@pytest.mark.parametrize("compiled", [True, False])
def test_scores_that_are_no_numbers_are_refused(compiled, monkeypatch):
    opened = with_whole_numbers(random_graph(0))
    opened.model.scorer().nodes[5] = torch.nan
    if not compiled:
        monkeypatch.setattr(module, "_compiled", lambda: None)
    with pytest.raises(DataError, match="NaN"):
        answers_to(opened, torch.tensor([1]), torch.tensor([0]), True, 3)


def test_given_triples_have_the_probabilities_of_answers():
    graph = random_graph(11, triples=200)
    opened = with_whole_numbers(graph, folder="/nonexistent")
    given = torch.arange(graph.num_nodes)
    relation = given % 3
    answers = answers_to(opened, given, relation, True, graph.num_nodes)
    row, column = torch.nonzero(answers.node >= 0, as_tuple=True)
    triples = torch.stack([given[row], relation[row], answers.node[row, column]], dim=1)
    found = triple_probabilities(opened, triples, answers.score[row, column])
    assert torch.equal(found, answers.probability[row, column])
    out = torch.nonzero(ruled_out(graph, mask(graph, "train")))
    assert len(out)
    scores = torch.full((len(out),), 50.0)
    assert bool((triple_probabilities(opened, out, scores) == opened.calibration.ruled_out_share).all())
