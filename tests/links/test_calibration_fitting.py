"""Test that calibration uses validation data or hidden known data, and never the test split."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

import rgcn
from fake_clock import FakeClock, SlowScorer
from naive_rules import NaiveRules, ruled_out
from rgcn.graph import KnowledgeGraph, NodeLabels
from rgcn.links.calibration import (
    MIN_TEMPERATURE,
    NUM_ANSWERS,
    Calibration,
    ReliabilityBin,
    calibration_error,
    class_reliability,
    fit_temperature,
    format_reliability,
    reliability_bins,
)
from rgcn.links.calibration_fitting import (
    MIN_EXAMPLES,
    UNLIMITED_BUDGET,
    calibrate_classes,
    calibrate_links,
    hidden_examples,
    validation_examples,
)
from rgcn.links.top_k import answer_links, rate_triples
from rgcn.nn.scorer import Questions
from rgcn.predict import open_model
from rgcn.predict.opened_model import load_or_fit_calibration
from rgcn.system.progress import Budget
from small_models import answers_to, every_score, graph_of_kinds, mask, named_rows, random_graph, with_whole_numbers
from tabled import TableScorer


def drawn_labels(temperature, count=4000, seed=0):
    """Logits, and classes drawn from softmax(logits / temperature)."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 3, (count, 4))
    p = np.exp(logits / temperature)
    p /= p.sum(1, keepdims=True)
    return logits, (p.cumsum(1) < rng.random((count, 1))).sum(1)


# -- classes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_the_temperature_that_labels_were_drawn_with_is_found(temperature):
    logits, classes = drawn_labels(temperature)
    found = fit_temperature(logits, classes)
    assert found == pytest.approx(temperature, rel=0.1)
    assert found == fit_temperature(logits, classes)
    fit, bins = class_reliability(logits, classes, found)
    assert fit.calibration_error < 0.03
    assert fit.log_loss <= class_reliability(logits, classes, 1.0)[0].log_loss + 1e-9
    assert sum(row.count for row in bins) == len(classes)


def test_temperature_stays_bounded_if_all_labels_are_right_or_wrong():
    logits = np.eye(3)[np.arange(30) % 3] * 4.0
    right, wrong = np.arange(30) % 3, (np.arange(30) + 1) % 3
    assert MIN_TEMPERATURE < fit_temperature(logits, right) < 1.0 < fit_temperature(logits, wrong) <= 20.0


def test_classifiers_with_validation_nodes_without_and_with_few():
    graph = rgcn.load("world")
    model = rgcn.NodeClassifier(hidden=4, epochs=3, validation=0.2).fit(graph)
    fitted = calibrate_classes(model)
    assert fitted.fitted
    assert f"{fitted.examples} validation nodes" in fitted.words
    assert fitted.after.log_loss <= fitted.before.log_loss
    logits = torch.randn(5, 3)
    torch.testing.assert_close(fitted.class_probabilities(logits), torch.softmax(logits / fitted.temperature, 1))
    labels = model.graph_.labels
    train = replace(labels, splits=np.where(labels.splits == 1, 0, labels.splits).astype(np.int8))
    model._graph = replace(model.graph_, labels=train)
    none = calibrate_classes(model)
    assert not none.fitted
    assert none.temperature == 1.0
    assert "--set training.validation=0.1" in none.words
    few = train.splits.copy()
    few[:5] = 1
    model._graph = replace(model.graph_, labels=NodeLabels(train.nodes, train.classes, train.names, few))
    assert "5 validation nodes are too few" in calibrate_classes(model).words


# -- links ------------------------------------------------------------------------------------------------


def first_answers(rows, known, place):
    """Return [(score, normalizer, num_known, slot, is true)] of the best fifty new answers to one question."""
    level = math.log(sum(math.exp(score) for score, _ in rows)) if rows else 0.0
    return [(score, level, known, place, true) for score, true in sorted(rows, key=lambda row: -row[0])[:NUM_ANSWERS]]


def as_found(examples):
    return sorted(zip(*(column.tolist() for column in examples[:4]), examples.true.astype(bool).tolist(), strict=True))


def assert_same(found, expected):
    assert len(found) == len(expected)
    one, other = (np.array(sorted(np.array(of, float).round(3).tolist())) for of in (found, expected))
    np.testing.assert_allclose(one, other, atol=2e-3)


@pytest.mark.parametrize("make", [random_graph, graph_of_kinds])
def test_examples_are_the_first_new_answers_to_the_validation_questions(make, monkeypatch):
    monkeypatch.setattr(
        "rgcn.links.calibration_fitting.NUM_ANSWERS", 100
    )  # ties at the end of the list may be cut differently
    monkeypatch.setattr("test_calibration_fitting.NUM_ANSWERS", 100)
    graph = make(4)
    opened = with_whole_numbers(graph, biases=True)
    triples, size, nodes = graph.split_triples("valid"), graph.num_relations, graph.num_nodes
    found = validation_examples(opened.scorer(), graph, triples)
    scores, train, valid = every_score(opened), mask(graph, "train"), mask(graph, "valid")
    expected, out, out_true = [], 0, 0
    for for_objects in (True, False):
        no = ruled_out(graph, train, for_objects=for_objects)
        for node, r in {(s if for_objects else o, r) for s, r, o in triples.tolist()}:
            of = (node, r) if for_objects else (slice(None), r, node)
            new = [n for n in range(nodes) if not (train | no)[of][n]]
            rows = [(scores[of][n].item(), valid[of][n].item()) for n in new]
            expected += first_answers(rows, int(train[of].sum()), r + size * for_objects)
            out, out_true = out + int(no[of].sum()), out_true + int((no & valid)[of].sum())
    assert_same(as_found(found), expected)
    assert (found.num_excluded, found.num_excluded_true) == (out, out_true)


def test_only_the_first_answers_are_examples():
    graph = random_graph(4, nodes=140, triples=900)
    found = validation_examples(with_whole_numbers(graph).scorer(), graph, graph.split_triples("valid")[:1])
    for question in np.unique(found.slot):
        scores = found.score[found.slot == question]
        assert len(scores) == NUM_ANSWERS < graph.num_nodes
        assert (np.diff(scores) <= 0).all()


def test_test_triples_do_not_influence_the_calibration():
    graph = random_graph(8, triples=300)
    rng = np.random.default_rng(0)
    nonsense = graph.triples.copy()
    test = graph.triple_splits == 2
    nonsense[test] = rng.integers(0, (23, 3, 23), (int(test.sum()), 3))
    one, other = (with_whole_numbers(kg).model for kg in (graph, replace(graph, triples=nonsense)))
    assert calibrate_links(one) == calibrate_links(other)
    assert calibrate_links(one).fitted


def test_without_validation_triples_there_are_no_probabilities():
    opened = with_whole_numbers(random_graph(0, splits=False))
    assert not opened.calibration.fitted
    assert "the graph has none" in opened.calibration.words
    answers = answers_to(opened, torch.tensor([1]), torch.tensor([0]))
    assert answers.probability is None
    assert rate_triples(opened, torch.tensor([[0, 0, 1]]))[1] is None


def test_examples_do_not_depend_on_how_the_scorer_computes():
    graph = random_graph(4, triples=250)
    opened = with_whole_numbers(graph)
    triples = graph.split_triples("valid")
    ours = validation_examples(opened.scorer(), graph, triples)
    theirs = validation_examples(TableScorer(every_score(opened).float()), graph, triples)
    assert_same(as_found(ours), as_found(theirs))
    assert ours[5:] == theirs[5:]


# -- on what is known, hidden ----------------------------------------------------------------------------


def walking(graph, **settings):
    """A path model that learned nothing, and elsewhere."""
    model = rgcn.LinkPredictor("path", layers=2, width=4, **settings).prepare(graph)
    model.network_.eval()
    return model.over(graph)


def test_hidden_triples_are_counted_one_by_one(monkeypatch):
    monkeypatch.setattr("rgcn.links.calibration_fitting.NUM_ANSWERS", 100)
    graph = random_graph(5, splits=False)
    model, rules = walking(graph), NaiveRules(graph)
    chosen, train, expected = graph.triples[graph.triples[:, 0] != graph.triples[:, 2]][::7], mask(graph), []
    found = hidden_examples(model.scorer(), graph, chosen)
    for number, (s, r, o) in enumerate(chosen.tolist()):
        for_objects = number % 2 == 0
        without = walking(replace(graph, triples=graph.triples[(graph.triples != (s, r, o)).any(1)]))
        without.network_.load_state_dict(model.network_.state_dict())
        questions = Questions(torch.tensor([s if for_objects else o]), torch.tensor([r]), for_objects)
        scores, there = without.scorer().scores(questions)[0].tolist(), train[s, r] if for_objects else train[:, r, o]
        hidden, may = o if for_objects else s, rules.seen((r, int(for_objects)))
        new = [n for n in range(graph.num_nodes) if n == hidden or (n in may and not there[n])]
        rows = [(scores[n], n == hidden) for n in new]
        expected += first_answers(rows, int(there.sum()) - 1, r + graph.num_relations * for_objects)
    assert found.true.sum() == len(chosen)
    assert_same(as_found(found), expected)


def test_models_that_hide_the_query_are_calibrated_on_training_triples():
    graph = random_graph(5, splits=False)
    elsewhere = walking(graph)
    found = elsewhere.calibration_
    assert found.fitted
    assert found.hidden
    assert f"{(graph.triples[:, 0] != graph.triples[:, 2]).sum()} triples of the graph, each hidden" in found.words
    assert "learned from these" not in found.words
    assert "hidden triples of the graph" in found.meaning
    assert walking(graph).calibration_ == found
    assert named_rows(elsewhere.predict_frame(subject=0, relation=0))[0].probability is not None
    assert Calibration.from_dict(json.loads(json.dumps(found.as_dict()))) == found
    trained = rgcn.LinkPredictor("path", layers=2, width=4, steps=2).fit(graph)
    assert "learned from these" in trained.calibration_.words
    assert not rgcn.LinkPredictor("c-rgcn", embedding=4, bottleneck=2, steps=1).fit(graph).calibration_.fitted
    with_valid = walking(random_graph(8, triples=300)).calibration_
    assert with_valid.fitted
    assert not with_valid.hidden
    few = replace(graph, triples=graph.triples[:15])
    assert not walking(few).calibration_.fitted


def test_the_number_of_hidden_triples_depends_on_the_cost_of_a_question(monkeypatch):
    graph = random_graph(5, splits=False)
    work = walking(graph).scorer().work
    assert work > 1000
    monkeypatch.setattr("rgcn.links.calibration_fitting.DEFAULT_BUDGET", Budget(30 * work))
    found = walking(graph).calibration_
    assert (found.examples, found.is_cut) == (30, False)
    monkeypatch.setattr("rgcn.links.calibration_fitting.DEFAULT_BUDGET", Budget(3 * work))
    assert not walking(graph).calibration_.fitted
    assert calibrate_links(walking(graph), "", UNLIMITED_BUDGET).examples == MIN_EXAMPLES


def shuffled(rows, number):
    return [rows[place] for place in np.random.default_rng(number).permutation(len(rows))]


def some_rows():
    """The graph has more triples than are drawn, so the choice matters."""
    drawn = np.random.default_rng(3).integers(0, (90, 4, 6), (900, 3)).tolist()
    return [(f"n{s}", f"r{r}", f"n{(7 * s + o) % 90}") for s, r, o in dict.fromkeys(map(tuple, drawn))]


def test_the_order_of_the_rows_changes_no_score_and_no_probability():
    rows, found = some_rows(), []
    for number in range(2):
        graph = KnowledgeGraph.from_triples(shuffled(rows, number) if number else rows)
        opened = open_model(graph, device="cpu")
        questions = [(graph.nodes[f"n{i}"], graph.relations[f"r{i % 4}"]) for i in range(40)]
        answers = answer_links(opened, Questions(*torch.tensor(questions).T, torch.arange(40) % 2 == 0), 10)
        assert 200 <= opened.calibration.examples < len(rows)
        names = [[graph.nodes[node] for node in row if node >= 0] for row in answers.node.tolist()]
        found.append((names, answers.score, answers.probability))
    for names, score, probability in found[1:]:
        assert names == found[0][0]
        torch.testing.assert_close(score, found[0][1], rtol=2e-6, atol=1e-6)
        torch.testing.assert_close(probability, found[0][2], rtol=1e-4, atol=1e-6, equal_nan=True)


def test_the_order_of_the_labels_changes_no_class_and_no_probability():
    """The graph has more labels than are drawn, and classes are numbered by first appearance."""
    rows = some_rows()
    labels = {f"n{i}": f"kind {'ab'[i % 2 if i % 7 else 0]}" for i in range(0, 90)}
    found = []
    for number in range(3):
        mixed = dict(shuffled(list(labels.items()), number) if number else labels.items())
        graph = KnowledgeGraph.from_triples(shuffled(rows, number) if number else rows, labels=mixed)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("rgcn.models.link_classifier.NORMALIZER_LABELS", 30)
            patch.setattr("rgcn.links.calibration_fitting.MAX_HIDDEN", 40)
            opened = open_model(graph, device="cpu", classes=True)
            assert opened.calibration.examples == 40
        class_logits = opened.logits([f"n{i}" for i in range(90)])
        order = np.argsort(opened.model.classes_)
        found.append([part[:, order] for part in (class_logits, opened.calibration.class_probabilities(class_logits))])
    for of in found[1:]:
        for one, other in zip(of, found[0], strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_the_order_of_validation_triples_does_not_influence_the_examples(monkeypatch):
    monkeypatch.setattr("rgcn.links.calibration_fitting.MAX_TRIPLES", 25)
    monkeypatch.setattr("rgcn.links.calibration_fitting.MIN_TRIPLES", 25)
    rows = some_rows()
    found = []
    for number in range(2):
        valid = shuffled(rows[:60], number) if number else rows[:60]
        splits = np.repeat(np.array([0, 1], dtype=np.int8), [len(rows) - 60, 60])
        graph = KnowledgeGraph.from_triples(rows[60:] + valid, triple_splits=splits)
        queried, examples = [], validation_examples

        def recorded(scorer, graph, triples, *more):
            queried.extend(graph.named(triples))  # noqa: B023
            return examples(scorer, graph, triples, *more)  # noqa: B023

        monkeypatch.setattr("rgcn.links.calibration_fitting.validation_examples", recorded)
        assert calibrate_links(with_whole_numbers(graph).model).examples == 25
        monkeypatch.setattr("rgcn.links.calibration_fitting.validation_examples", examples)
        found.append(queried)
    assert sorted(found[0]) == sorted(found[1])


def test_fewer_than_twenty_triples_give_no_probability_and_the_reason_is_given(tmp_path, monkeypatch):
    monkeypatch.setenv("RGCN_CACHE", str(tmp_path))  # which may hold the calibration of another version
    graph = KnowledgeGraph.from_triples([(f"a{i}", "r", f"b{i % 4}") for i in range(19)] + [("a0", "r", "a0")])
    opened = open_model(graph, device="cpu")
    assert not opened.calibration.fitted
    too_few = "19 known triples between two nodes are too few to calibrate on; at least 20 are needed"
    assert too_few in opened.calibration.words
    assert answers_to(opened, torch.tensor([0]), torch.tensor([0])).probability is None


# -- how long it may take ---------------------------------------------------------------------------------


@pytest.fixture
def slow():
    """Return a model, its clock, and its scorer, which counts questions and advances the clock."""
    model, clock = walking(random_graph(5, splits=False)), FakeClock()
    scorer = SlowScorer(model.scorer(), clock, 0.1, questions_per_batch=4)
    model.network_._scorer = scorer
    return model, clock, scorer


def test_the_time_limit_is_checked_after_whole_blocks(slow):
    model, clock, scorer = slow
    budget = Budget(seconds=5.0, clock=clock)
    found = calibrate_links(model, "", budget)
    assert (found.fitted, found.is_cut, found.examples) == (True, True, 40)  # of 20 each; the third was not finished
    assert 50 <= scorer.num_questions <= 55
    assert re.search(r"Only 40 of \d+ sampled [a-z ]+ were scored in 5 s. Run `rgcn predict", found.words)
    clock.seconds += 1000  # the examples do not depend on the time
    assert calibrate_links(model, "", budget) == found
    scorer.num_questions = 0
    whole = calibrate_links(model, "", UNLIMITED_BUDGET)
    assert not whole.is_cut
    assert scorer.num_questions == whole.examples > 60


def test_no_probability_without_time_for_twenty_examples(slow):
    model, clock, scorer = slow
    scorer.seconds_per_question = 1.0
    found = calibrate_links(model, "", Budget(seconds=5.0, clock=clock))
    assert (found.fitted, found.is_cut) == (False, True)
    assert scorer.num_questions <= 8
    assert "needs at least 20 known triples" in found.words
    assert "scoring these took over 5 s" in found.words
    assert "Run `rgcn predict --reliability` once" in found.words


def test_a_calibration_that_exceeds_the_work_limit_is_not_started(slow):
    model, _, scorer = slow
    scorer.changes["work"] = 1e11
    assert not model.calibration_.fitted
    assert scorer.num_questions == 0
    assert "takes too long on a graph of this size" in model.calibration_.words
    assert calibrate_links(model, "", UNLIMITED_BUDGET).examples == MIN_EXAMPLES == scorer.num_questions


def test_classes_have_the_same_bounds():
    graph = random_graph(3, nodes=60, triples=300, splits=False)
    graph = graph.with_labels({"train": {name: str(i % 2) for i, name in enumerate(graph.nodes)}})
    model, clock = rgcn.LinkClassifier("path", layers=2, width=4, steps=1).fit(graph), FakeClock()
    scorer = SlowScorer(model.scorer(), clock, 0.1, questions_per_batch=4)
    model.network_._scorer = scorer
    found = calibrate_classes(model, "", Budget(seconds=5.0, clock=clock))
    assert (found.examples, found.is_cut) == (40, True)
    assert 50 <= scorer.num_questions <= 55
    assert "Only 40 of 60 sampled labeled nodes" in found.words
    scorer.changes["work"], scorer.num_questions = 1e11, 0
    found = calibrate_classes(model, "")
    assert (found.fitted, found.is_cut, scorer.num_questions) == (False, True, 0)
    assert "needs at least 20 labeled nodes" in found.words


def test_a_cut_calibration_is_kept_until_an_unlimited_one_replaces_it(tmp_path, monkeypatch, slow):
    monkeypatch.setenv("RGCN_CACHE", str(tmp_path / "cache"))
    model, clock, scorer = slow
    cut = load_or_fit_calibration(model, None, Budget(seconds=5.0, clock=clock))
    num_before = scorer.num_questions
    assert load_or_fit_calibration(model, None) == cut
    assert scorer.num_questions == num_before
    whole = load_or_fit_calibration(model, None, UNLIMITED_BUDGET)
    assert whole.examples > cut.examples
    num_before = scorer.num_questions
    assert load_or_fit_calibration(model, None) == load_or_fit_calibration(model, None, UNLIMITED_BUDGET) == whole
    assert scorer.num_questions == num_before


def test_classes_are_calibrated_on_labels_hidden_in_turn():
    graph = random_graph(3, nodes=60, triples=300, splits=False)
    labels = {name: "low" if number < 30 else "high" for number, name in enumerate(graph.nodes[:50])}
    graph = graph.with_labels({"train": labels})
    model = rgcn.LinkClassifier("path", layers=2, width=4, steps=1).fit(graph)
    found = model.calibration_
    assert (found.fitted, found.hidden, found.examples) == (True, True, 50)
    assert "50 labeled nodes, the label of each hidden" in found.words
    assert "learned from these" in found.words
    few = graph.with_labels({"train": dict(list(labels.items())[20:35])})
    assert "15 labeled nodes are too few" in rgcn.LinkClassifier("path", layers=2, steps=1).fit(few).calibration_.words


def test_without_a_folder_the_calibration_is_stored_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RGCN_CACHE", str(tmp_path / "cache"))
    graph = random_graph(5, splits=False)
    first = load_or_fit_calibration(walking(graph), None)
    (kept,) = (tmp_path / "cache" / "calibrations").iterdir()
    whole = kept.read_bytes()
    monkeypatch.setattr("rgcn.links.calibration_fitting.hidden_examples", None)  # would fail if it were measured again
    assert load_or_fit_calibration(walking(graph), None) == first
    monkeypatch.undo()
    monkeypatch.setenv("RGCN_CACHE", str(tmp_path / "cache"))
    kept.write_bytes(whole[:100])
    assert load_or_fit_calibration(walking(graph), None) == first
    assert kept.read_bytes() == whole
    other = replace(graph, triples=graph.triples[1:])
    load_or_fit_calibration(walking(other), None)
    assert len(list(kept.parent.iterdir())) == 2


# -- kept -------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    graph = random_graph(8, triples=300)
    rgcn.LinkPredictor(encoder="none", embedding=4, steps=2).fit(graph).save(str(tmp_path))
    return tmp_path


def test_the_calibration_is_stored_with_the_model(folder, monkeypatch):
    first = open_model(folder).calibration
    kept = json.loads((folder / "calibration.json").read_text())
    assert kept["temperature"] == first.temperature
    assert kept["meaning"] == first.meaning
    monkeypatch.setattr("rgcn.links.calibration_fitting.calibrate_links", None)  # would fail if it were fitted again
    assert open_model(folder).calibration == first


@pytest.mark.parametrize("damage", [b"", b"\xff\xfe", b"[]", b'{"of": "?"}', b'{"of": 3'])
def test_a_damaged_calibration_is_computed_again(folder, damage):
    first = open_model(folder).calibration
    whole = (folder / "calibration.json").read_bytes()
    (folder / "calibration.json").write_bytes(damage)
    assert open_model(folder).calibration == first
    assert (folder / "calibration.json").read_bytes() == whole


def test_invalid_calibrations_and_those_of_other_weights_are_ignored(folder):
    first = open_model(folder).calibration
    values = json.loads((folder / "calibration.json").read_text())
    (folder / "calibration.json").write_text(json.dumps({**values, "temperature": -1.0}))
    assert open_model(folder).calibration == first
    opened = open_model(folder)
    opened.model.network_.decoder.relation.data += 0.5
    opened.model.network_.train().eval()
    assert load_or_fit_calibration(opened.model, folder) != first


def test_a_read_only_or_missing_folder_does_not_prevent_calibration(tmp_path):
    for folder in ("/proc/nowhere", tmp_path / "gone"):
        assert with_whole_numbers(random_graph(8, triples=300), folder=folder).calibration.fitted
    assert not (tmp_path / "gone").exists()


# -- reliability ------------------------------------------------------------------------------------------


def test_bins_contain_all_examples_and_bars_show_them():
    bins = reliability_bins(np.array([0.0, 0.05, 0.95, 1.0]), np.array([0.0, 1, 1, 1]), np.ones(4))
    assert [row.count for row in bins] == [2, 2]
    assert calibration_error(bins) == pytest.approx((abs(0.025 - 0.5) + abs(0.975 - 1.0)) / 2)
    assert calibration_error([]) == 0.0
    text = format_reliability([*bins, ReliabilityBin(0.0, 0.001, 10**8, 1e-5, 2e-6)])
    assert "100,000,000" in text
    assert len({len(line) for line in text.splitlines()[1:]}) == 1
