"""Test the best answers: exact for any block size, with known answers marked or left out."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import rgcn
from naive_rules import NaiveRules, ruled_out
from rgcn.errors import ConfigError, DataError
from rgcn.graph import Vocabulary
from rgcn.kernels import dispatch
from rgcn.links import top_k as module
from rgcn.links.relation_constraints import ALLOW_ALL, ANSWERED, IMPLAUSIBLE, OPEN, AnswerFilter
from rgcn.links.top_k import AnswerMask, best_of, question_normalizer, rate_triples, score_both_directions
from rgcn.nn.scorer import Questions
from rgcn.sampling.known_triples import KnownTriples
from small_models import Turning, answers_to, every_score, graph_of_kinds, mask, random_graph, with_whole_numbers


def by_definition(scores, there, out, given, relation, for_objects, k, keys):
    """Return [(node, score, is_known)] of one question by scoring, filtering and sorting; ties by hashes of names."""
    of = (given, relation) if for_objects else (slice(None), relation, given)
    rows = zip(range(len(scores)), scores[of].tolist(), there[of].tolist(), strict=True)
    return sorted((row for row in rows if not out[of][row[0]]), key=lambda row: (-row[1], keys[row[0]]))[:k]


def as_rows(answers, i):
    node, score, known = answers.node[i].tolist(), answers.score[i].tolist(), answers.known[i].tolist()
    return [row for row in zip(node, score, known, strict=True) if row[0] >= 0]


PERMITTED = [AnswerFilter(), AnswerFilter("fitting", False), AnswerFilter("seen"), AnswerFilter("any"), ALLOW_ALL]


@pytest.mark.parametrize("known", ["mark", "drop"])
@pytest.mark.parametrize("answer_filter", PERMITTED)
@pytest.mark.parametrize(("decoder", "k"), [(None, 1), ("biases", 5), (Turning, 100)])
@pytest.mark.parametrize("make", [random_graph, graph_of_kinds])
def test_answers_are_those_of_the_definition(known, answer_filter, decoder, k, make):
    graph = make(k)
    biases = decoder == "biases"
    opened = with_whole_numbers(graph, biases=biases, decoder=None if biases else decoder)
    given = torch.arange(graph.num_nodes).repeat(2)
    relation = given % graph.num_relations
    sides = torch.arange(len(given)) % 2 == 0
    answers = answers_to(opened, given, relation, sides, k, known, answer_filter=answer_filter)
    assert answers.node.shape == (len(given), min(k, graph.num_nodes))
    scores, there, rules = every_score(opened), mask(graph, "train"), NaiveRules(graph)
    out = [ruled_out(graph, there, answer_filter, side) | (there & (known == "drop")) for side in (False, True)]
    keys = graph.nodes.hashes(np.arange(graph.num_nodes)).tolist()
    for i in range(len(given)):
        node, of, side = int(given[i]), int(relation[i]), bool(sides[i])
        assert as_rows(answers, i) == by_definition(scores, there, out[side], node, of, side, k, keys)
        expected = rules.question_status(
            node, (of, int(not side)), int((there[node, of] if side else there[:, of, node]).sum())
        )
        assert answers.status[i] == (expected if answer_filter.nodes != "any" else OPEN)
    empty = answers.node < 0
    assert bool((answers.score[empty] == -torch.inf).all())
    assert not answers.known[empty].any()
    if answers.probability is not None:
        assert not answers.probability[empty].any()


def test_reference_and_blockwise_top_k_are_equal(monkeypatch):
    graph = random_graph(7, nodes=70, triples=700)
    opened = with_whole_numbers(graph)
    given, relation = torch.arange(70), torch.arange(70) % 3
    fast = answers_to(opened, given, relation, True, 6)
    single = [answers_to(opened, given[i : i + 1], relation[i : i + 1], True, 6).node[0] for i in range(70)]
    assert torch.equal(torch.stack(single), fast.node)
    monkeypatch.setattr("rgcn.links.top_k.BLOCK_BYTES", 4 * 70 * 9)
    assert torch.equal(answers_to(opened, given, relation, True, 6).node, fast.node)
    monkeypatch.setattr(dispatch, "_load", lambda name: None)
    plain = answers_to(opened, given, relation, True, 6)
    assert torch.equal(plain.node, fast.node)
    assert torch.equal(plain.score, fast.score)
    assert torch.equal(plain.known, fast.known)


def test_several_threads_give_the_same_answers(monkeypatch, restore_threads):
    opened = with_whole_numbers(random_graph(3, nodes=50, triples=300))
    given, relation = torch.arange(50), torch.arange(50) % 3
    alone = answers_to(opened, given, relation, False, 4, "drop")
    torch.set_num_threads(3)
    monkeypatch.setattr(module, "MIN_SCORES_FOR_THREADS", 1)
    assert torch.equal(answers_to(opened, given, relation, False, 4, "drop").node, alone.node)


def test_no_questions_give_no_answers():
    opened = with_whole_numbers(random_graph(0))
    nothing = torch.empty(0, dtype=torch.int64)
    assert answers_to(opened, nothing, nothing, True, 3).node.shape == (0, 3)


def test_invalid_questions_raise_an_error():
    opened = with_whole_numbers(random_graph(0))
    one = torch.tensor([1])
    with pytest.raises(ConfigError, match="k must be at least 1"):
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
def test_nan_scores_are_refused(compiled, monkeypatch):
    opened = with_whole_numbers(random_graph(0))
    opened.model.scorer().nodes[5] = torch.nan
    if not compiled:
        monkeypatch.setattr(dispatch, "_load", lambda name: None)
    with pytest.raises(DataError, match="NaN"):
        answers_to(opened, torch.tensor([1]), torch.tensor([0]), True, 3)


@pytest.mark.parametrize("graph", [random_graph(11, triples=200), graph_of_kinds(2)], ids=["drawn", "kinds"])
def test_given_triples_have_the_mean_probability_of_answers_in_both_directions(graph):
    opened = with_whole_numbers(graph, folder="/nonexistent")
    given = torch.arange(graph.num_nodes).repeat_interleave(graph.num_relations)
    relation = torch.arange(graph.num_relations).repeat(graph.num_nodes)
    shares = torch.full((2, *mask(graph).shape), torch.nan)  # [direction, subject, relation, object]
    answered = torch.zeros(shares.shape, dtype=torch.bool)
    for side in (True, False):
        answers = answers_to(opened, given, relation, side, graph.num_nodes)
        row, column = torch.nonzero(answers.node >= 0, as_tuple=True)
        ends = (given[row], answers.node[row, column])
        at = (int(not side), *((ends[0], relation[row], ends[1]) if side else (ends[1], relation[row], ends[0])))
        shares[at], answered[at] = answers.probability[row, column], True
    triples = torch.cartesian_prod(*map(torch.arange, shares.shape[1:]))
    scores, found = rate_triples(opened, triples)
    torch.testing.assert_close(scores, every_score(opened).flatten())
    known = mask(graph, "train").flatten()
    assert torch.equal(found.isnan(), known)  # known triples have no probability
    assert 0 < known.sum() < len(known)
    new, times = ~known, answered.flatten(1).sum(0)
    assert set(times[new].tolist()) == {0, 1, 2}  # only one direction has answers
    mean = shares.masked_fill(~answered, 0.0).flatten(1).sum(0) / times
    torch.testing.assert_close(found[new & (times > 0)], mean[new & (times > 0)])
    out = new & (times == 0)
    assert bool((found[out] == opened.calibration.ruled_out_share).all())
    directions = score_both_directions(opened, triples)
    assert torch.equal(directions.ruled_out, out)
    assert torch.equal(directions.is_excluded, ~answered.flatten(1) & new)


@pytest.mark.parametrize("for_objects", [True, False])
def test_the_normalizer_of_a_question_covers_possible_new_answers(for_objects):
    graph = graph_of_kinds(3)
    opened = with_whole_numbers(graph)
    given = torch.arange(graph.num_nodes).repeat_interleave(graph.num_relations)
    relation = torch.arange(graph.num_relations).repeat(graph.num_nodes)
    scores, there = every_score(opened), mask(graph, "train")
    nothing = there | ruled_out(graph, there, for_objects=for_objects)
    index = KnownTriples.of_graph(graph, "train")
    marks = AnswerMask.of(graph, index, Questions(given, relation, for_objects))
    sides = scores if for_objects else scores.permute(2, 1, 0)
    levels = question_normalizer(sides.reshape(len(given), -1), marks)
    empty = 0
    for node, r, level in zip(given.tolist(), relation.tolist(), levels.tolist(), strict=True):
        of = (node, r) if for_objects else (slice(None), r, node)
        new = [math.exp(score) for score, no in zip(scores[of].tolist(), nothing[of].tolist(), strict=True) if not no]
        empty += not new
        assert level == pytest.approx(math.log(sum(new)) if new else 0.0)
    assert 0 < empty < len(given)


@pytest.mark.parametrize("for_objects", [True, False])
@pytest.mark.parametrize("answer_filter", [*PERMITTED, AnswerFilter(new=(3, 20, 34))])
def test_the_mask_of_some_candidates_is_a_selection_of_the_whole_mask(answer_filter, for_objects):
    graph = graph_of_kinds(4)
    index = KnownTriples.of_graph(graph, "train")
    given, relation = torch.arange(35), torch.arange(35) % 8
    questions = Questions(given, relation, for_objects)
    whole = AnswerMask.of(graph, index, questions, answer_filter)
    assert whole.is_excluded.shape == (35, 35)
    for candidates in (torch.arange(0, 35, 3), torch.tensor([34]), torch.arange(35), torch.empty(0, dtype=torch.int64)):
        some = AnswerMask.of(graph, index, questions, answer_filter, candidates)
        assert torch.equal(some.is_excluded, whole.is_excluded[:, candidates])


@pytest.mark.parametrize("seed", range(3))
def test_inverse_triples_and_loops_are_excluded_if_the_relation_has_none(seed):
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


def test_constraints_observed_in_data_do_not_apply_to_new_nodes():
    graph = graph_of_kinds(1)
    opened, stranger = with_whole_numbers(graph), 34
    in_, capital = graph.relations["in"], graph.relations["capital"]
    question = torch.tensor([stranger]), torch.tensor([in_])
    assert answers_to(opened, *question).status.tolist() == [IMPLAUSIBLE]
    assert not (answers_to(opened, *question).node >= 0).any()
    assert stranger not in answers_to(opened, torch.tensor([12]), torch.tensor([capital]), k=35).node
    opened = replace(opened, new_nodes=(stranger,))
    assert answers_to(opened, *question).status.tolist() == [OPEN]
    assert (answers_to(opened, *question).node >= 0).any()
    assert stranger in answers_to(opened, torch.tensor([12]), torch.tensor([capital]), k=35).node
    loop = answers_to(opened, torch.tensor([stranger]), torch.tensor([capital]), k=35).node
    assert stranger not in loop  # which way a relation goes binds it all the same


def test_a_functional_question_with_a_known_answer_gets_no_other():
    graph = graph_of_kinds(1)
    opened, capital = with_whole_numbers(graph), graph.relations["capital"]
    answers = answers_to(
        opened, torch.tensor([2, 16, 12]), torch.tensor([capital] * 3), torch.tensor([True, False, True]), 35
    )
    assert answers.status.tolist() == [ANSWERED, ANSWERED, OPEN]
    assert [row[row >= 0].tolist() for row in answers.node[:2]] == [[16], [2]]
    taken = set(range(14, 26))
    assert not taken & set(answers.node[2].tolist())
    assert {26, 27} <= set(answers.node[2].tolist())
    plain = answers_to(opened, torch.tensor([2]), torch.tensor([capital]), k=35, answer_filter=ALLOW_ALL)
    assert plain.status.tolist() == [OPEN]
    assert (plain.node >= 0).all()


# -- known answers of a model that can hide them --------------------------------------------------------------------


def walking(graph):
    """A path network, which reads the edge of a known triple unless it is hidden."""
    torch.manual_seed(0)
    model = rgcn.LinkPredictor("path", width=6, layers=2, device="cpu", seed=1).prepare(graph)
    model.network_.double().eval()
    return model


@pytest.mark.parametrize("k", [1, 4, 40])
def test_known_answers_are_ranked_by_their_scores_when_hidden(k):
    graph = random_graph(5, nodes=12, triples=90)
    model, there = walking(graph), mask(graph, "train")
    scorer, moved = model.scorer(), 0
    given = torch.arange(graph.num_nodes).repeat_interleave(2 * graph.num_relations)
    relation = torch.arange(graph.num_relations).repeat(2 * graph.num_nodes)
    sides = torch.arange(len(given)) % 2 == 0
    answers = answers_to(model, given, relation, sides, k, answer_filter=ALLOW_ALL)
    new = answers_to(model, given, relation, sides, k, "drop", answer_filter=ALLOW_ALL)
    for i, (node, of, side) in enumerate(zip(given.tolist(), relation.tolist(), sides.tolist(), strict=True)):
        questions = Questions(given[i : i + 1], relation[i : i + 1], side)
        unhidden, is_known = scorer.scores(questions)[0], there[node, of] if side else there[:, of, node]
        scores = unhidden.clone()
        for answer in torch.nonzero(is_known).flatten().tolist():
            scores[answer] = scorer.scores_hiding_answers(questions, torch.tensor([answer]))[0, answer]
        wanted = sorted(zip(range(len(scores)), scores.tolist(), is_known.tolist(), strict=True), key=lambda x: -x[1])
        found = as_rows(answers, i)
        assert [(row[0], row[2]) for row in found] == [(row[0], row[2]) for row in wanted[:k]]
        assert [row[1] for row in found] == pytest.approx([row[1] for row in wanted[:k]], rel=1e-9)
        rest = [row[0] for row in found if not row[2]]
        assert as_rows(new, i)[: len(rest)] == [row for row in found if not row[2]]  # in the order they always had
        moved += [row[0] for row in found] != torch.argsort(-unhidden)[: len(found)].tolist()
    assert moved
    assert not answers.num_omitted.any()


def test_only_few_of_many_known_answers_are_scored_again(monkeypatch):
    rows = [("hub", "has", f"n{i}") for i in range(300)] + [(f"n{i}", "next", f"n{i + 1}") for i in range(400)]
    graph = rgcn.KnowledgeGraph.from_triples(rows)
    model, calls = walking(graph), []
    scorer = model.scorer()
    assert model.calibration_.fitted  # before anything is counted
    hiding = type(scorer)._score_hiding
    monkeypatch.setattr(
        type(scorer), "_score_hiding", lambda self, batch, which: calls.append(batch.size) or hiding(self, batch, which)
    )
    hub = torch.tensor([graph.nodes["hub"]])
    rows = []
    for k, left_out in ((3, 0), (20, 0), (200, 280)):
        answers = answers_to(model, hub, torch.tensor([0]), True, k)
        assert (sum(calls), len(calls)) == (20, math.ceil(20 / scorer.questions_per_batch))
        assert answers.num_omitted.tolist() == [left_out]
        assert as_rows(answers, 0)[: len(rows)] == rows  # a longer list begins with the shorter list
        rows = as_rows(answers, 0)
        calls.clear()
    assert sum(row[2] for row in rows) == 20
    answers_to(model, hub, torch.tensor([0]), True, 200, "drop")
    assert not calls
    for questions, most in ((3.5, 3), (0.5, 1)):  # questions over a large graph cost more, so fewer are scored again
        monkeypatch.setattr("rgcn.links.top_k.MAX_KNOWN_WORK", questions * scorer.work)
        answers = answers_to(model, hub, torch.tensor([0]), True, 200)
        assert (sum(calls), int(answers.known.sum()), answers.num_omitted.tolist()) == (most, most, [300 - most])
        calls.clear()


# -- equal scores ----------------------------------------------------------------------------------------------------

NODES = 40
NAMES = Vocabulary([f"n{i}" for i in range(NODES)])
KEYS = NAMES.hashes(np.arange(NODES)).tolist()


def all_may_be_answers(rows):
    """Return the mask of questions without known or excluded answers."""
    nothing = torch.zeros(rows, dtype=torch.int64)
    return AnswerMask(
        torch.empty(0, dtype=torch.int64),
        nothing,
        nothing,
        torch.zeros(rows, NODES, dtype=torch.bool),
        torch.arange(NODES),
    )


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("k", [1, 4, 39, 40])
@pytest.mark.parametrize("seed", range(4))
def test_the_best_are_those_of_the_definition_however_nodes_are_numbered(k, seed, compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr(dispatch, "_load", lambda name: None)
    rng = np.random.default_rng(seed)
    exact = rng.integers(0, 6, (5, NODES)) - 8.0
    exact[rng.random((5, NODES)) < 0.3] = -np.inf
    exact[4] = rng.permutation(NODES)  # a row without ties
    for noise in (0.0, 1e-6):
        scores = torch.from_numpy(exact + rng.uniform(-noise, noise, exact.shape))
        rounding = 4e-6 if noise else 0.0
        node, score, known = best_of(scores, k, all_may_be_answers(5), False, NAMES, rounding=rounding)
        assert not known.any()
        for row in range(5):
            there = [n for n in range(NODES) if np.isfinite(exact[row, n])]
            wanted = sorted(there, key=lambda n: (-exact[row, n], KEYS[n]))[:k]
            assert node[row].tolist() == [*wanted, *[-1] * (k - len(wanted))]
            assert score[row].tolist() == [*scores[row, wanted].tolist(), *[-np.inf] * (k - len(wanted))]


def test_scores_that_differ_by_more_than_rounding_keep_their_order():
    scores = -torch.arange(NODES, dtype=torch.float32)[None] * 1e-4 - 5.0
    node, _, _ = best_of(scores, 5, all_may_be_answers(1), False, NAMES, rounding=4e-6)
    assert node[0].tolist() == [0, 1, 2, 3, 4]
