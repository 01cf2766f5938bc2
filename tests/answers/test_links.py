"""The best answers to questions: exact, in any order of work, known ones marked or left out."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from naive_rules import NaiveRules, ruled_out
from rgcn.answers import links as module
from rgcn.answers.links import level_of, triple_probabilities
from rgcn.answers.relation_rules import EVERYTHING, FINISHED, OPEN, SENSELESS, Marks, Permitted
from rgcn.errors import ConfigError, DataError
from rgcn.known import KnownTriples
from small_models import Turning, answers_to, every_score, graph_of_kinds, mask, random_graph, with_whole_numbers


def by_definition(scores, there, out, given, relation, for_objects, k, keys):
    """[(node, score, is known)] of one question: score everything, leave out, sort; equal ones by their names' keys."""
    of = (given, relation) if for_objects else (slice(None), relation, given)
    rows = zip(range(len(scores)), scores[of].tolist(), there[of].tolist(), strict=True)
    return sorted((row for row in rows if not out[of][row[0]]), key=lambda row: (-row[1], keys[row[0]]))[:k]


def as_rows(answers, i):
    node, score, known = answers.node[i].tolist(), answers.score[i].tolist(), answers.known[i].tolist()
    return [row for row in zip(node, score, known, strict=True) if row[0] >= 0]


PERMITTED = [Permitted(), Permitted("fitting", False), Permitted("seen"), Permitted("any"), EVERYTHING]


@pytest.mark.parametrize("known", ["mark", "drop"])
@pytest.mark.parametrize("permitted", PERMITTED)
@pytest.mark.parametrize(("decoder", "k"), [(None, 1), ("biases", 5), (Turning, 100)])
@pytest.mark.parametrize("make", [random_graph, graph_of_kinds])
def test_answers_are_those_of_the_definition(known, permitted, decoder, k, make):
    graph = make(k)
    biases = decoder == "biases"
    opened = with_whole_numbers(graph, biases=biases, decoder=None if biases else decoder)
    given = torch.arange(graph.num_nodes).repeat(2)
    relation = given % graph.num_relations
    sides = torch.arange(len(given)) % 2 == 0
    answers = answers_to(opened, given, relation, sides, k, known, permitted=permitted)
    assert answers.node.shape == (len(given), min(k, graph.num_nodes))
    scores, there, rules = every_score(opened), mask(graph, "train"), NaiveRules(graph)
    out = [ruled_out(graph, there, permitted, side) | (there & (known == "drop")) for side in (False, True)]
    keys = graph.nodes.keys(np.arange(graph.num_nodes)).tolist()
    for i in range(len(given)):
        node, of, side = int(given[i]), int(relation[i]), bool(sides[i])
        assert as_rows(answers, i) == by_definition(scores, there, out[side], node, of, side, k, keys)
        expected = rules.expectation(
            node, (of, int(not side)), int((there[node, of] if side else there[:, of, node]).sum())
        )
        assert answers.expected[i] == (expected if permitted.nodes != "any" else OPEN)
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


@pytest.mark.parametrize("graph", [random_graph(11, triples=200), graph_of_kinds(2)], ids=["drawn", "kinds"])
def test_given_triples_have_the_probabilities_of_answers(graph):
    opened = with_whole_numbers(graph, folder="/nonexistent")
    given = torch.arange(graph.num_nodes).repeat_interleave(graph.num_relations)
    relation = torch.arange(graph.num_relations).repeat(graph.num_nodes)
    answers = answers_to(opened, given, relation, True, graph.num_nodes)
    row, column = torch.nonzero(answers.node >= 0, as_tuple=True)
    triples = torch.stack([given[row], relation[row], answers.node[row, column]], dim=1)
    found, known = triple_probabilities(opened, triples, answers.score[row, column]), answers.known[row, column]
    torch.testing.assert_close(found, answers.probability[row, column], rtol=0, atol=0, equal_nan=True)
    assert torch.equal(found.isnan(), known)  # what is in the data has none
    assert 0 < known.sum() < len(known)
    out = torch.nonzero(ruled_out(graph, mask(graph, "train")))
    assert len(out)
    scores = torch.full((len(out),), 50.0)
    assert bool((triple_probabilities(opened, out, scores) == opened.calibration.ruled_out_share).all())


@pytest.mark.parametrize("for_objects", [True, False])
def test_the_level_of_a_question_is_over_what_may_be_a_new_answer(for_objects):
    graph = graph_of_kinds(3)
    opened = with_whole_numbers(graph)
    given = torch.arange(graph.num_nodes).repeat_interleave(graph.num_relations)
    relation = torch.arange(graph.num_relations).repeat(graph.num_nodes)
    scores, there = every_score(opened), mask(graph, "train")
    nothing = there | ruled_out(graph, there, for_objects=for_objects)
    index = KnownTriples.of_graph(graph, "train")
    marks = Marks.of(graph, index, given, relation, for_objects)
    sides = scores if for_objects else scores.permute(2, 1, 0)
    levels = level_of(sides.reshape(len(given), -1), marks)
    empty = 0
    for node, r, level in zip(given.tolist(), relation.tolist(), levels.tolist(), strict=True):
        of = (node, r) if for_objects else (slice(None), r, node)
        new = [math.exp(score) for score, no in zip(scores[of].tolist(), nothing[of].tolist(), strict=True) if not no]
        empty += not new
        assert level == pytest.approx(math.log(sum(new)) if new else 0.0)
    assert 0 < empty < len(given)


@pytest.mark.parametrize("for_objects", [True, False])
@pytest.mark.parametrize("permitted", [*PERMITTED, Permitted(new=(3, 20, 34))])
def test_marks_of_some_candidates_are_those_of_all_selected(permitted, for_objects):
    graph = graph_of_kinds(4)
    index = KnownTriples.of_graph(graph, "train")
    given, relation = torch.arange(35), torch.arange(35) % 8
    whole = Marks.of(graph, index, given, relation, for_objects, permitted)
    assert whole.out.shape == (35, 35)
    for candidates in (torch.arange(0, 35, 3), torch.tensor([34]), torch.arange(35), torch.empty(0, dtype=torch.int64)):
        some = Marks.of(graph, index, given, relation, for_objects, permitted, candidates)
        assert torch.equal(some.out, whole.out[:, candidates])


@pytest.mark.parametrize("seed", range(3))
def test_no_answer_is_a_known_triple_turned_round_nor_a_node_with_itself_where_that_never_is(seed):
    graph = graph_of_kinds(seed)
    opened, rules = with_whole_numbers(graph, seed), NaiveRules(graph)
    for side in (True, False):
        for r in rules.relations:
            answers = answers_to(opened, torch.arange(35), torch.full((35,), r), side, 35)
            for node, row, known in zip(range(35), answers.node.tolist(), answers.known.tolist(), strict=True):
                new = [one for one, there in zip(row, known, strict=True) if one >= 0 and not there]
                if rules.is_without_loops(r):
                    assert node not in new
                if rules.is_one_way(r):
                    turned = {(one, r, node) if side else (node, r, one) for one in new}
                    assert not turned & rules.train


def test_new_nodes_are_not_bound_by_what_was_only_seen():
    graph = graph_of_kinds(1)
    opened, stranger = with_whole_numbers(graph), 34
    in_, capital = graph.relations["in"], graph.relations["capital"]
    asked = torch.tensor([stranger]), torch.tensor([in_])
    assert answers_to(opened, *asked).expected.tolist() == [SENSELESS]
    assert not (answers_to(opened, *asked).node >= 0).any()
    assert stranger not in answers_to(opened, torch.tensor([12]), torch.tensor([capital]), k=35).node
    opened = replace(opened, new_nodes=(stranger,))
    assert answers_to(opened, *asked).expected.tolist() == [OPEN]
    assert (answers_to(opened, *asked).node >= 0).any()
    assert stranger in answers_to(opened, torch.tensor([12]), torch.tensor([capital]), k=35).node
    loop = answers_to(opened, torch.tensor([stranger]), torch.tensor([capital]), k=35).node
    assert stranger not in loop  # which way a relation goes binds it all the same


def test_who_has_the_only_answer_is_told_it_and_no_other():
    graph = graph_of_kinds(1)
    opened, capital = with_whole_numbers(graph), graph.relations["capital"]
    answers = answers_to(
        opened, torch.tensor([2, 16, 12]), torch.tensor([capital] * 3), torch.tensor([True, False, True]), 35
    )
    assert answers.expected.tolist() == [FINISHED, FINISHED, OPEN]
    assert [row[row >= 0].tolist() for row in answers.node[:2]] == [[16], [2]]
    taken = set(range(14, 26))
    assert not taken & set(answers.node[2].tolist())
    assert {26, 27} <= set(answers.node[2].tolist())
    plain = answers_to(opened, torch.tensor([2]), torch.tensor([capital]), k=35, permitted=EVERYTHING)
    assert plain.expected.tolist() == [OPEN]
    assert (plain.node >= 0).all()
