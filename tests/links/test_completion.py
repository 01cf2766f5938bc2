"""Compare completion with a definition that scores and sorts all triples."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from naive_rules import NaiveRules, ruled_out
from rgcn.errors import ConfigError, DataError
from rgcn.graph import KnowledgeGraph
from rgcn.links import completion
from rgcn.links.completion import CompletionSession
from rgcn.links.relation_constraints import ALLOW_ALL, AnswerFilter, relation_constraints
from rgcn.nn.scorer import Scorer
from small_models import Turning, every_score, graph_of_kinds, mask, random_graph, with_whole_numbers


def subjects_of(rules, relation, nodes):
    """Return the subjects to score; in a functional relation, only subjects without an object."""
    done = rules.seen((relation, 0)) if nodes != "any" and rules.is_single((relation, 0)) else set()
    return sorted(rules.subjects(relation, nodes) - done)


def by_definition(opened, relations, k, limit, answer_filter, known=()):
    """Return [(subject, relation, object, score, probability)]: the best k unknown objects of all pairs.

    The probability is that of the calibration curve times the probability that a triple is missing. Of a triple and its
    reversal in a one-way relation, only the better one is kept.
    """
    graph, scores, there = opened.graph, every_score(opened), mask(opened.graph, *known)
    out = there | ruled_out(graph, there, answer_filter._replace(nodes="any"))
    rules, found, curve, size = NaiveRules(graph), [], opened.calibration.curve, graph.num_relations
    chance, learned = relation_constraints(graph).probability_of_more, mask(graph, "train")
    keys = graph.nodes.hashes(np.arange(graph.num_nodes)).tolist()
    for r in range(graph.num_relations) if relations is None else relations:
        objects = sorted(rules.answers((r, 1), answer_filter.nodes))
        for s in subjects_of(rules, r, answer_filter.nodes):
            row = [(s, r, o, float(scores[s, r, o])) for o in objects if not out[s, r, o]]
            best = sorted(row, key=lambda t: (-t[3], keys[t[2]]))[:k]
            if curve is None:
                found += [(*t, t[3]) for t in best]
                continue
            level, count = math.log(sum(math.exp(t[3]) for t in row)) if row else 0.0, int(learned[s, r].sum())
            for t in best:
                u = max(t[3] - level, -30.0)
                z = float(np.dot(curve.weights, [u, math.exp(u), math.log1p(count)])) + curve.bias
                z += curve.offset[r + size] + curve.slope[r + size] * u
                found.append((*t, chance(r, count) / (1 + math.exp(-z))))
    kept = {}
    for s, r, o, score, value in sorted(found, key=lambda t: (-t[4], -t[3], *t[:3])):
        if not (answer_filter.directions and rules.is_one_way(r) and (o, r, s) in kept):
            kept[s, r, o] = score, value
    return [(*triple, *values) for triple, values in kept.items()][:limit]


def assert_defined(found, opened, *of):
    """Compare triples, scores and probabilities; a triple and its reverse of equal score may replace each other."""
    expected, values = by_definition(opened, *of), found.score if found.probability is None else found.probability
    assert (np.diff(values) <= 0).all()
    np.testing.assert_allclose(values, sorted((row[4] for row in expected), reverse=True), rtol=2e-5, atol=1e-7)
    last = values[-1] if len(values) else 0.0
    theirs = {row[:3]: row[3:] for row in expected}
    for (s, r, o, score), value in zip(rows(found), values.tolist(), strict=True):
        if value > last + 1e-4 * abs(last):  # ties at the end of the list may be cut differently
            wanted = theirs.get((s, r, o)) or (score, theirs[o, r, s][1])
            assert wanted == (score, pytest.approx(value, rel=1e-4, abs=1e-6))


ANY = AnswerFilter("any")


def complete(opened, *relations, **settings):
    """Keep triples of any probability, unless the test sets a minimum."""
    least = {"min_probability": 0.0} if opened.calibration.fitted else {}
    names = [field.name for field in fields(CompletionSession)]
    session = CompletionSession(**{name: settings.pop(name) for name in names if name in settings})
    return completion.complete(opened, *relations, **{**least, **settings}, session=session)


def rows(completion):
    return [(*t, s) for t, s in zip(completion.triples.tolist(), completion.score.tolist(), strict=True)]


@pytest.mark.parametrize("nodes", ["any", "fitting", "seen"])
@pytest.mark.parametrize("decoder", [None, Turning])
@pytest.mark.parametrize(("k", "limit"), [(3, 10_000), (50, 40), (2, 7), (1, 1), (4, 10_000)])
def test_completion_is_that_of_the_definition(nodes, decoder, k, limit):
    opened = with_whole_numbers(random_graph(k, literals=3, triples=60 if k == 3 else 400), decoder=decoder)
    assert opened.calibration.fitted == (k != 3)
    for directions in (True, False):
        answer_filter = AnswerFilter(nodes, directions)
        found = complete(opened, k=k, limit=limit, answer_filter=answer_filter, memory_budget=4 * 23 * 5)
        assert (found.probability is not None) == opened.calibration.fitted
        assert_defined(found, opened, None, k, limit, answer_filter)


def test_some_relations_and_hidden_splits():
    opened = with_whole_numbers(random_graph(5), biases=True)
    found = complete(opened, [2, 0, 2], k=4, known=("train", "valid"), answer_filter=ANY)
    assert_defined(found, opened, [0, 2], 4, 10**6, ANY, ("train", "valid"))
    assert found.num_asked == 2 * opened.graph.num_nodes


def test_a_limit_cuts_the_list_and_changes_no_probability():
    opened = with_whole_numbers(random_graph(6, triples=400))
    everything = complete(opened, answer_filter=ANY, k=23)
    assert everything.calibration.kind == "completion"
    for limit in (1, 7, 60):
        few = complete(opened, answer_filter=ANY, k=23, limit=limit, memory_budget=4 * 23 * 5)
        assert rows(few) == rows(everything)[:limit]
        np.testing.assert_allclose(few.probability, everything.probability[:limit], rtol=1e-6)
        assert (
            few.num_found >= everything.num_found > limit
        )  # a triple that the pool did not keep cannot remove its reversal


def test_min_probability_is_respected():
    opened = with_whole_numbers(random_graph(6, triples=400))
    everything = complete(opened, answer_filter=ANY, k=23)
    least = float(np.median(everything.probability))
    found = complete(opened, min_probability=least, answer_filter=ANY, k=23)
    assert rows(found) == [row for row, p in zip(rows(everything), everything.probability, strict=True) if p >= least]
    assert found.num_found == len(found)
    impossible = complete(opened, min_probability=1.0, answer_filter=ANY)
    assert len(impossible) == 0
    assert impossible.best == everything.probability[0]


def test_progress_counts_every_pair():
    opened = with_whole_numbers(random_graph(1))
    reports = []
    found = complete(opened, answer_filter=ANY, memory_budget=1, on_progress=lambda *counts: reports.append(counts))
    assert {total for _, total in reports} == {found.num_asked} == {3 * 23}
    assert reports == sorted(reports)
    assert reports[-1] == (found.num_asked, found.num_asked)


def test_literals_are_objects_but_never_subjects():
    opened = with_whole_numbers(random_graph(2, literals=5))
    found = complete(opened, k=23, answer_filter=ANY)
    assert found.triples[:, 0].max() < 18 <= found.triples[:, 2].max()


def test_a_graph_without_a_split_and_with_everything_known():
    everything = [(s, "r", o) for s in "abc" for o in "abc"]
    opened = with_whole_numbers(KnowledgeGraph.from_triples(everything))
    found = complete(opened, answer_filter=ANY)
    assert len(found) == 0
    assert found.best == -np.inf


def test_invalid_options_are_refused():
    opened = with_whole_numbers(random_graph(0, triples=60))
    for wrong in ({"k": 0}, {"limit": 0}):
        with pytest.raises(ConfigError, match="at least 1"):
            complete(opened, **wrong)
    with pytest.raises(ConfigError, match=r"leave it out\. No probabilities, only scores"):
        complete(opened, min_probability=0.5)
    with pytest.raises(ConfigError, match="between 0 and 1"):
        complete(with_whole_numbers(random_graph(0, triples=400)), min_probability=-0.1)
    opened.model.scorer().nodes[3] = torch.nan
    with pytest.raises(DataError, match="NaN"):
        complete(opened, answer_filter=ANY)


@pytest.mark.parametrize("answer_filter", [AnswerFilter(), AnswerFilter("seen"), ANY, ALLOW_ALL])
@pytest.mark.parametrize("limit", [30, 10_000])
def test_node_types_constrain_answers(answer_filter, limit):
    opened = with_whole_numbers(graph_of_kinds(limit % 7), biases=True)
    found = complete(opened, k=4, limit=limit, answer_filter=answer_filter, memory_budget=4 * 35 * 6)
    assert_defined(found, opened, None, 4, limit, answer_filter)
    assert found.num_found >= len(found)


def test_one_way_relations_are_completed_in_one_direction_only():
    graph = graph_of_kinds(5)
    # DistMult gives both directions the same score.
    opened, rules, twice = with_whole_numbers(graph), NaiveRules(graph), 0
    for answer_filter in (AnswerFilter(), ANY, ALLOW_ALL):
        there = {tuple(t) for t in complete(opened, k=35, answer_filter=answer_filter).triples.tolist()}
        both = [(s, r, o) for s, r, o in there if s != o and rules.is_one_way(r) and (o, r, s) in there]
        loops = [t for t in there if t[0] == t[2] and rules.is_without_loops(t[1])]
        assert bool(both) == bool(loops) == (answer_filter is ALLOW_ALL)
        twice += sum((o, r, s) in there for s, r, o in there if s != o)
    assert twice  # of others both may be proposed


def test_new_nodes_are_subjects_and_answers_of_completions():
    opened = with_whole_numbers(graph_of_kinds(2))
    assert 34 not in complete(opened, k=35).triples[:, [0, 2]]
    opened = replace(opened, new_nodes=(34,))
    found = complete(opened, k=35).triples
    assert 34 in found[:, 0]
    assert 34 in found[:, 2]


# -- stopped, and gone on with ----------------------------------------------------------------------------


class Dear(Scorer):
    """A scorer that passes a few questions at a time to another scorer and counts them."""

    questions_per_batch = 4

    def __init__(self, scorer):
        self.scorer, self.num_nodes, self.device, self.num_questions = scorer, scorer.num_nodes, scorer.device, 0

    def scores(self, questions, candidates=None, out=None):
        assert questions.size <= 4
        self.num_questions += questions.size
        return self.scorer.scores(questions, candidates, out)


CALIBRATIONS = {}


def with_dear_questions(seed=6):
    opened = with_whole_numbers(random_graph(seed, triples=400))
    # Calibrate before questions are counted.
    if seed not in CALIBRATIONS:
        CALIBRATIONS[seed] = opened.calibration
    opened.__dict__["calibration"] = opened.model.calibration_ = CALIBRATIONS[seed]
    opened.model.network_._scorer = Dear(opened.model.scorer())
    return opened


def same(one, other):
    assert rows(one) == rows(other)
    np.testing.assert_array_equal(one.probability, other.probability)
    assert (one.calibration, one.num_asked, one.num_skipped, one.num_found, one.best) == (
        other.calibration, other.num_asked, other.num_skipped, other.num_found, other.best
    )  # fmt: skip


@pytest.mark.parametrize("limit", [10_000, 10])
def test_a_completion_stopped_anywhere_is_resumed_to_the_same_result(tmp_path, limit):
    how = {"k": 5, "limit": limit, "answer_filter": ANY}
    whole = complete(with_dear_questions(), **how)
    assert whole.num_skipped == 0
    file = tmp_path / "new.unfinished"
    for _ in range(30):
        opened, begin = with_dear_questions(), []
        found = complete(opened, **how, resume=file, on_progress=lambda n, _, b=begin: b.append(n) or n == b[0])
        assert opened.scorer().num_questions <= 4  # no question is scored twice
        assert (found.num_asked, found.num_skipped) == (begin[-1], whole.num_asked - begin[-1])
        if not found.num_skipped:
            break
    assert not found.num_skipped
    same(found, whole)
    again = with_dear_questions()
    same(complete(again, **how, resume=file), whole)  # the file stays until the user removes it
    assert again.scorer().num_questions == 0


def test_a_killed_completion_is_resumed_from_the_last_stored_progress(tmp_path, monkeypatch):
    monkeypatch.setattr("rgcn.links.completion.SAVE_INTERVAL", 0.0)
    monkeypatch.setattr("rgcn.links.completion.MAX_SAVE_SHARE", 1e9)
    file, whole = tmp_path / "new.unfinished", complete(with_dear_questions(), answer_filter=ANY)

    done = []

    def killed(pairs, _):
        done.append(pairs)
        if pairs > 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        complete(with_dear_questions(), answer_filter=ANY, resume=file, on_progress=killed)
    opened = with_dear_questions()
    same(complete(opened, answer_filter=ANY, resume=file), whole)
    assert opened.scorer().num_questions == whole.num_asked - done[-2]


def test_the_time_limit_is_respected_after_at_least_one_block(monkeypatch):
    clock = iter(range(0, 10_000, 30))  # each reading of the clock advances it by half a minute
    monkeypatch.setattr("rgcn.links.completion.time.monotonic", lambda: next(clock))
    one = complete(with_dear_questions(), answer_filter=ANY, minutes=0.01)
    assert one.num_asked == 4
    some = complete(with_dear_questions(), answer_filter=ANY, minutes=5)
    assert 4 < some.num_asked <= 40
    assert some.num_skipped == 3 * 23 - some.num_asked
    assert len(some) > 0


def test_resuming_with_another_model_or_other_options_is_refused(tmp_path):
    file, stop = tmp_path / "new.unfinished", {"on_progress": lambda pairs, _: pairs < 8}
    complete(with_dear_questions(), resume=file, **stop)
    kept = file.read_bytes()
    with pytest.raises(DataError, match=r"with other options \(k was 10, now 3; nodes was \"fitting\", now \"any\"\)"):
        complete(with_dear_questions(), resume=file, k=3, answer_filter=ANY)
    with pytest.raises(DataError, match=r"of another model, or over another graph: .*--restart"):
        complete(with_dear_questions(7), resume=file)
    other = with_dear_questions()
    other.model.network_.decoder.relation.data[0, 0] += 1
    with pytest.raises(DataError, match="of another model"):
        complete(other, resume=file)
    assert file.read_bytes() == kept
    # The minimum filters results and changes no question.
    complete(with_dear_questions(), resume=tmp_path / "other", min_probability=0.5, **stop)
    complete(with_dear_questions(), resume=tmp_path / "other", min_probability=0.1)
    for damage in (b"", kept[:100], b"something else"):
        file.write_bytes(damage)
        with pytest.raises(DataError, match="damaged, or not an unfinished completion"):
            complete(with_dear_questions(), resume=file)
    with pytest.raises(ConfigError, match="minutes must be above 0"):
        complete(with_dear_questions(), minutes=0)


def test_a_short_completion_stores_no_progress(tmp_path):
    complete(with_whole_numbers(random_graph(1)), resume=tmp_path / "new.unfinished")
    assert not list(tmp_path.iterdir())


def test_the_most_promising_questions_are_scored_first():
    triples = [(f"c{i}", "capital", f"t{i}") for i in range(9)]
    triples += [(f"c{i}", "exports_to", f"c{j}") for i in range(8) for j in range(8) if i != j]
    triples += [(f"t{i}", "located_in", f"c{i}") for i in range(10)] + [("c9", "exports_to", "c0")]
    graph = KnowledgeGraph.from_triples(triples)
    questions = completion._questions(graph, range(graph.num_relations), AnswerFilter())
    kinds = [
        (graph.relations[q.relation], len(q.subjects), q.expected_answers)
        for q in questions
        if graph.relations[q.relation] != "located_in"
    ]
    # Nine countries have one capital each, c9 has none. Exporters have many objects.
    assert kinds[:2] == [("capital", 1, 9.0), ("exports_to", 9, 56 / 9)]
    assert kinds[-1] == ("capital", 9, 0.0)
    by_pair = sorted((q.relation, s) for q in questions for s in q.subjects.tolist())
    rules = NaiveRules(graph)
    assert by_pair == [(r, s) for r in range(3) for s in subjects_of(rules, r, "fitting")]


def test_subjects_without_missing_answers_are_skipped():
    graph = random_graph(6, triples=400)
    chance, learned, all_ = (
        relation_constraints(graph).probability_of_more,
        mask(graph, "train"),
        range(graph.num_relations),
    )
    questions = {
        (q.relation, s) for q in completion._questions(graph, all_, AnswerFilter()) for s in q.subjects.tolist()
    }
    chances = {(r, s): chance(r, int(learned[s, r].sum())) for r, s in questions}
    least = float(np.median(list(chances.values())))
    few = completion._questions(graph, all_, AnswerFilter(), least)
    assert {(q.relation, s) for q in few for s in q.subjects.tolist()} == {
        pair for pair in questions if chances[pair] >= least
    }
    assert len(few) > 0
