"""Test the link predictor: training, evaluation, prediction, saving, and errors."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

import rgcn
from rgcn.data.catalog import load_world
from rgcn.errors import ConfigError, DataError, NotFittedError, UnknownNameError
from rgcn.graph import KnowledgeGraph
from rgcn.links.relation_constraints import ALLOW_ALL
from rgcn.models import LinkPredictor
from rgcn.sampling.known_triples import repeated_across_splits
from small_models import named_rows

TRAIN, VALID, TEST = 0, 1, 2
SMALL = {"embedding": 8, "bottleneck": 4, "device": "cpu"}
MODELS = [
    {"model": "rgcn"},
    {"model": "rgcn", "batch_edges": 20, "decomposition": "block", "blocks": 4, "self_loop_dropout_on": "message"},
    {"model": "rgcn", "batch_edges": 20, "sampler": "uniform", "decomposition": "basis", "bases": 2, "layers": 2},
    {"model": "rgcn", "input": "one-hot", "decoder_biases": True},
    {"model": "c-rgcn", "clip": 1.0, "filtered_negatives": True, "normalization": "direction"},
    {"encoder": "none", "batch_edges": 15, "schedule": "cosine", "warmup": 2},
]


def clubs(unseen=False):
    """Members of four clubs know each other; a held-out triple follows from the rest."""
    rows = []
    for club in range(4):
        people = [f"p{club}{i}" for i in range(5)]
        rows += [(a, "member_of", f"club{club}") for a in people]
        rows += [(a, "knows", b) for a in people for b in people if a != b]
    splits = [TEST if i % 11 == 10 else VALID if i % 11 == 4 else TRAIN for i in range(len(rows))]
    if unseen:
        rows.append(("stranger", "knows", "p00"))
        splits.append(TEST)
    return KnowledgeGraph.from_triples(rows, triple_splits=splits)


@pytest.fixture(scope="module")
def fitted():
    return LinkPredictor("c-rgcn", steps=60, learning_rate=0.05, seed=1, **SMALL).fit(clubs())


def weights(predictor):
    return {name: value.clone() for name, value in predictor.network_.state_dict().items()}


def same(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


# -- learning ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", MODELS, ids=str)
def test_the_same_seed_learns_the_same_weights_bit_for_bit_and_another_seed_others(settings):
    kg = clubs()
    torch.manual_seed(1)
    first = LinkPredictor(seed=5, steps=6, **SMALL, **settings).fit(kg)
    torch.manual_seed(2)  # the global random state has no influence
    state = torch.get_rng_state()
    again = LinkPredictor(seed=5, steps=6, **SMALL, **settings).fit(kg)
    assert torch.equal(torch.get_rng_state(), state)  # and is not changed
    other = LinkPredictor(seed=6, steps=6, **SMALL, **settings).fit(kg)
    assert same(weights(first), weights(again))
    assert not same(weights(first), weights(other))
    assert [e.loss for e in first.history_] == [e.loss for e in again.history_]
    assert same(weights(first), weights(first.fit(kg)))


@pytest.mark.parametrize("settings", MODELS, ids=str)
def test_test_triples_are_never_trained_on(settings):
    kg = clubs()
    triples = np.array(kg.triples)
    rows = kg.triple_splits == TEST
    triples[rows] = triples[rows][:, [2, 1, 0]] * [1, 0, 1]  # other triples in their place
    other = replace(kg, triples=triples)
    first, second = (LinkPredictor(steps=5, **SMALL, **settings).fit(graph) for graph in (kg, other))
    assert same(weights(first), weights(second))


def test_validation_triples_are_never_trained_on():
    kg = clubs()
    without = replace(kg, triples=kg.split_triples("train"), triple_splits=None)
    first, second = (LinkPredictor(steps=5, **SMALL).fit(graph) for graph in (kg, without))
    assert same(weights(first), weights(second))


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "rgcn", "steps": 150},
        {"model": "rgcn", "steps": 200, "batch_edges": 60},
        {"model": "c-rgcn", "steps": 150, "gain": 0.3},
        {"encoder": "none", "steps": 150},
    ],
    ids=str,
)
def test_the_loss_falls_and_training_triples_rank_high(settings):
    kg = clubs()
    settings = {**settings, "evaluate_every": 0}  # the last weights, which have memorized the training triples
    predictor = LinkPredictor(embedding=24, bottleneck=8, learning_rate=0.03, device="cpu", **settings).fit(kg)
    losses = [epoch.loss for epoch in predictor.history_]
    assert losses[-1] < 0.6 * losses[0]
    assert predictor.evaluate(split="train")["mrr"] > 0.85
    assert predictor.evaluate(split="test")["mrr"] > 0.4


def test_reports_come_about_a_hundred_times_and_each_is_the_mean_since_the_last():
    kg, calls = clubs(), []
    predictor = LinkPredictor(encoder="none", steps=250, evaluate_every=0, **SMALL).fit(kg, calls.append)
    assert calls == predictor.history_
    assert [epoch.number for epoch in calls] == [*range(2, 251, 2)]
    assert all(epoch["valid_mrr"] is None for epoch in calls)
    trainer = LinkPredictor(encoder="none", steps=250, **SMALL).prepare(kg).trainer()
    losses = [float(loss) for loss in trainer.losses()]
    for epoch in calls[:3]:
        assert epoch.loss == pytest.approx(sum(losses[epoch.number - 2 : epoch.number]) / 2, rel=1e-5)


def test_the_best_weights_on_validation_are_the_ones_kept(monkeypatch):
    # a sequence of MRRs with the best in the middle
    script = iter([0.1, 0.5, 0.9, 0.4, 0.3, 0.2])
    states = []

    def validated(self, at_most):
        states.append(weights(self))
        self.network_.eval()
        return {"mrr": next(script)}

    monkeypatch.setattr(LinkPredictor, "validate", validated)
    predictor = LinkPredictor(epochs=11, evaluate_every=2, **SMALL).fit(clubs())
    assert [e.number for e in predictor.history_ if e["valid_mrr"] is not None] == [2, 4, 6, 8, 10, 11]
    assert same(weights(predictor), states[2])
    assert not same(weights(predictor), states[-1])


@pytest.mark.parametrize("model", ["rgcn", "c-rgcn", "distmult", "path", "universal"])
def test_where_there_is_a_validation_split_it_is_measured_and_the_best_weights_are_kept(model):
    small = {"width": 8, "layers": 2, "device": "cpu"} if model == "path" else SMALL
    small = {"width": 8, "layers": 2, "device": "cpu", "start": "random"} if model == "universal" else small
    predictor = LinkPredictor(model, steps=20, learning_rate=0.5, **small).fit(clubs())
    measured = {epoch.number: epoch["valid_mrr"] for epoch in predictor.history_ if epoch["valid_mrr"] is not None}
    assert list(measured) == [10, 20]
    assert predictor.evaluate(split="valid")["mrr"] == pytest.approx(max(measured.values()))


def test_a_share_of_the_triples_is_held_out_for_validation_where_the_graph_has_none():
    whole = replace(clubs(), triple_splits=None)
    predictor = LinkPredictor(encoder="none", steps=2, validation=0.2, **SMALL).fit(whole)
    assert np.array_equal(predictor.graph_.triple_splits, whole.split(0.2, 0.0, seed=0).triple_splits)
    assert set(predictor.measure()) == {"valid"}
    assert set(LinkPredictor(encoder="none", steps=2, **SMALL).fit(whole).measure()) == {"train"}


def test_the_kept_weights_have_the_recorded_metrics():
    kg = clubs()
    predictor = LinkPredictor(encoder="none", steps=40, evaluate_every=5, learning_rate=0.3, **SMALL).fit(kg)
    measured = [epoch["valid_mrr"] for epoch in predictor.history_ if epoch["valid_mrr"] is not None]
    assert len(measured) == 8
    assert predictor.evaluate(split="valid")["mrr"] == max(measured)


def test_patience_counts_measurements_without_a_better_one(monkeypatch):
    script = iter([0.3, 0.2, 0.4, 0.4, 0.1, 0.9])
    monkeypatch.setattr(LinkPredictor, "validate", lambda self, _: {"mrr": next(script)})
    predictor = LinkPredictor(epochs=100, evaluate_every=3, patience=2, **SMALL).fit(clubs())
    assert predictor.history_[-1].number == 15
    assert [e["valid_mrr"] for e in predictor.history_ if e["valid_mrr"] is not None] == [0.3, 0.2, 0.4, 0.4, 0.1]


@pytest.mark.parametrize("batch", [None, 20])
def test_a_loss_that_is_not_finite_stops_with_advice(batch):
    with pytest.raises(DataError, match=r"not finite at step .* learning rate"):
        LinkPredictor(encoder="none", steps=20, learning_rate=1e30, batch_edges=batch, **SMALL).fit(clubs())


def test_a_graph_without_splits_is_trained_on_completely():
    kg = replace(clubs(), triple_splits=None)
    predictor = LinkPredictor(steps=2, **SMALL).fit(kg)
    assert predictor.evaluate(split="train")["count"] == 2 * len(kg)
    with pytest.raises(DataError, match="no test triples"):
        predictor.evaluate(split="test")


# -- measuring -----------------------------------------------------------------------------------------


def naive_ranks(predictor, kg, split, filtered, ties="realistic"):
    """[(relation, direction, rank)] by comparing every node's score, one query after another."""
    known = set(map(tuple, kg.triples.tolist()))
    name = lambda s, r, o: (kg.nodes[s], kg.relations[r], kg.nodes[o])  # noqa: E731
    found = []
    for s, r, o in kg.split_triples(split).tolist():
        for direction in ("object", "subject"):
            place = (lambda n: (s, r, n)) if direction == "object" else (lambda n: (n, r, o))  # noqa: B023
            candidates = [place(n) for n in range(kg.num_nodes)]
            scores = [t.score for t in named_rows(predictor.triples_frame([name(*c) for c in candidates]))]
            own = scores[candidates.index((s, r, o))]
            rivals = [
                score
                for c, score in zip(candidates, scores, strict=True)
                if c != (s, r, o) and not (filtered and c in known)
            ]
            near = 1e-5 * max(1.0, abs(own))
            above, equal = sum(x > own + near for x in rivals), sum(abs(x - own) <= near for x in rivals)
            share = {"optimistic": 0.0, "realistic": 0.5, "pessimistic": 1.0}[ties]
            found.append((r, direction, 1 + above + share * equal))
    return found


@pytest.mark.parametrize("filtered", [True, False])
@pytest.mark.parametrize("ties", ["realistic", "optimistic", "pessimistic"])
def test_evaluate_equals_a_ranking_written_out(filtered, ties):
    kg = clubs(unseen=True)
    predictor = LinkPredictor("rgcn", steps=10, decoder_biases=True, **SMALL).fit(kg)
    ranks = naive_ranks(predictor, kg, "test", filtered, ties)
    result = predictor.evaluate(kg, split="test", filtered=filtered, ties=ties)

    def metrics_of(part):
        values = np.array([rank for _, _, rank in part])
        hits = {f"hits@{k}": float((values <= k).mean()) for k in (1, 3, 10)}
        return {"mrr": float((1 / values).mean()), **hits, "mean_rank": float(values.mean()), "count": len(part)}

    flat = {key: value for key, value in result.items() if not isinstance(value, dict)}
    assert flat == pytest.approx(metrics_of(ranks))
    for direction in ("object", "subject"):
        assert result["by_direction"][direction] == pytest.approx(metrics_of([x for x in ranks if x[1] == direction]))
    assert result["by_relation"].keys() == {"knows", "member_of"}
    for relation, metrics in result["by_relation"].items():
        assert metrics == pytest.approx(metrics_of([x for x in ranks if x[0] == kg.relations[relation]]))


def test_memory_budget_changes_no_metric(fitted):
    assert fitted.evaluate(split="test", memory_budget=1000) == fitted.evaluate(split="test")


def test_the_filter_leaves_out_known_triples_of_every_split():
    # n0 --r--> n1 (train), n2 (valid), n3 (test); n1 and n2 score above n3 but are known
    rows = [("n0", "r", "n1"), ("n0", "r", "n2"), ("n0", "r", "n3"), ("n0", "r", "n4")]
    kg = KnowledgeGraph.from_triples(rows, triple_splits=[TRAIN, VALID, TEST, TEST])
    predictor = LinkPredictor(encoder="none", embedding=1, steps=1, device="cpu").prepare(kg)
    with torch.no_grad():
        predictor.network_.encoder.source.rows.trained.copy_(torch.tensor([[1.0], [9.0], [8.0], [5.0], [7.0]]))
        predictor.network_.decoder.relation.fill_(1.0)
    by_direction = predictor.evaluate(split="test")["by_direction"]["object"]
    assert by_direction["mrr"] == 1.0  # n3: n1, n2 and n4 are left out, n0 scores lower
    assert predictor.evaluate(split="test", filtered=False)["by_direction"]["object"]["mean_rank"] == (4 + 3) / 2


def test_entities_that_training_never_saw_stay_in_the_ranking():
    kg = clubs(unseen=True)
    stranger = kg.nodes["stranger"]
    assert stranger not in kg.split_triples("train")[:, [0, 2]]
    predictor = LinkPredictor("rgcn", steps=3, **SMALL).fit(kg)
    assert predictor.evaluate(split="test")["count"] == 2 * len(kg.split_triples("test"))
    assert predictor.scorer().nodes.shape[0] == kg.num_nodes
    query = {"subject": "p00", "relation": "knows", "k": 1000}
    assert "stranger" in [t.object for t in named_rows(predictor.predict_frame(**query, answer_filter=ALLOW_ALL))]
    assert "stranger" not in [t.object for t in named_rows(predictor.predict_frame(**query))]  # it does not occur there


@pytest.mark.parametrize("settings", MODELS, ids=str)
def test_the_graph_is_encoded_once_for_all_questions(settings):
    predictor = LinkPredictor(steps=2, **SMALL, **settings).fit(clubs())
    calls = []
    predictor.network_.encoder.register_forward_hook(lambda *_: calls.append(1))
    predictor.evaluate(split="test", memory_budget=100)
    predictor.evaluate(split="valid")
    named_rows(predictor.predict_frame(subject="p00", relation="knows"))
    named_rows(predictor.triples_frame([("p00", "knows", "p11")]))
    named_rows(predictor.least_likely())
    assert len(calls) == 1
    assert not predictor.network_.training


def test_training_again_drops_cached_encodings():
    kg = clubs()
    predictor = LinkPredictor(steps=3, **SMALL).fit(kg)
    before = predictor.scorer().nodes.clone()
    predictor.set_params(steps=5)
    with pytest.raises(NotFittedError):
        predictor.scorer()
    assert not torch.equal(predictor.fit(kg).scorer().nodes, before)


def test_a_graph_with_other_names_is_refused(fitted):
    with pytest.raises(DataError, match="other nodes or relations"):
        fitted.evaluate(load_world())
    with pytest.raises(DataError, match="other nodes or relations"):
        named_rows(fitted.least_likely(load_world()))
    assert fitted.evaluate(clubs(), split="test") == fitted.evaluate(split="test")


# -- asking --------------------------------------------------------------------------------------------


def test_predictions_are_all_scores_best_first(fitted):
    kg = fitted.graph_
    objects = named_rows(fitted.predict_frame(subject="p00", relation="knows", k=kg.num_nodes, answer_filter=ALLOW_ALL))
    subjects = named_rows(fitted.predict_frame(relation="knows", object="p00", k=kg.num_nodes, answer_filter=ALLOW_ALL))
    # In the training triples no person knows themself or a club.
    sensible = [t for t in objects if t.object.startswith("p") and t.object != "p00"]
    assert named_rows(fitted.predict_frame(subject="p00", relation="knows", k=kg.num_nodes)) == sensible
    trained = set(kg.named(kg.split_triples("train")))
    for answers in (objects, subjects):
        assert len(answers) == kg.num_nodes
        assert [t.score for t in answers] == sorted((t.score for t in answers), reverse=True)
        scored = named_rows(fitted.triples_frame([t[:3] for t in answers]))
        assert [t[:3] for t in scored] == [t[:3] for t in answers]
        assert [t.known for t in scored] == [t.known for t in answers]
        assert [t.score for t in scored] == pytest.approx([t.score for t in answers], rel=1e-4, abs=1e-5)
        for t in answers:
            assert t.probability is None  # too few validation triples to calibrate on
            assert t.known == (t[:3] in trained)
    assert {t.subject for t in objects} == {"p00"}
    assert {t.object for t in objects} == set(kg.nodes)
    assert {t.object for t in subjects} == {"p00"}


def test_training_triples_are_marked_or_dropped_and_held_out_ones_are_not(fitted):
    kg = fitted.graph_
    s, r, o = kg.named(kg.split_triples("test"))[0]
    held_out = named_rows(fitted.predict_frame(subject=s, relation=r, k=100, known="drop"))
    assert [t.known for t in held_out if t.object == o] == [False]
    s, r, o = kg.named(kg.split_triples("train"))[0]
    shown = named_rows(fitted.predict_frame(subject=s, relation=r, k=100))
    assert next(t for t in shown if t.object == o).known
    new = named_rows(fitted.predict_frame(subject=s, relation=r, k=100, known="drop"))
    assert not any(t.known for t in new)
    assert [t[:4] for t in new] == [t[:4] for t in shown if not t.known]
    new = named_rows(fitted.predict_frame(relation=r, object=o, k=3, known="drop"))
    assert len(new) == 3
    assert not any(t.known for t in new)
    marked = named_rows(
        fitted.predict_frame(subject=s, relation=r, k=100)
    )  # dropping changed nothing for later questions
    assert marked == shown


def test_if_all_answers_are_known_and_dropped_the_result_is_empty():
    kg = KnowledgeGraph.from_triples([("a", "r", "a"), ("a", "r", "b")])
    predictor = LinkPredictor(epochs=1, **SMALL).fit(kg)
    assert named_rows(predictor.predict_frame(subject="a", relation="r", known="drop")) == []


def test_numbers_are_accepted_as_names(fitted):
    kg = fitted.graph_
    by_id = named_rows(fitted.predict_frame(subject=kg.nodes["p00"], relation=kg.relations["knows"], k=3))
    assert by_id == named_rows(fitted.predict_frame(subject="p00", relation="knows", k=3))
    first = named_rows(
        fitted.predict_frame(subject=0, relation=0, k=1)
    )  # node 0 is an answerable question, not "none given"
    assert first[0].subject == kg.nodes[0]


def test_doubtful_are_the_known_triples_of_lowest_score(fitted):
    kg = fitted.graph_
    everything = sorted(named_rows(fitted.triples_frame(kg.named())), key=lambda t: t.score)
    doubtful = named_rows(fitted.least_likely(kg, k=5))
    assert [t.score for t in doubtful] == pytest.approx([t.score for t in everything[:5]])
    assert all(t.known for t in doubtful)
    assert {t[:3] for t in named_rows(fitted.least_likely(k=10**6))} == set(kg.named())


def test_a_planted_false_triple_is_among_the_least_likely():
    kg = clubs()
    rows = [*kg.named(kg.split_triples("all")), ("p00", "member_of", "club3")]
    predictor = LinkPredictor(encoder="none", embedding=16, steps=100, learning_rate=0.03, device="cpu", penalty=0.1)
    predictor.fit(KnowledgeGraph.from_triples(rows))
    assert ("p00", "member_of", "club3") in [t[:3] for t in named_rows(predictor.least_likely(k=8))]


# -- keeping -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", MODELS, ids=str)
def test_a_loaded_predictor_gives_the_same_answers_bit_for_bit(settings, tmp_path):
    kg = clubs()
    predictor = LinkPredictor(seed=3, steps=3, evaluate_every=2, **SMALL, **settings).fit(kg)
    predictor.save(tmp_path / "model")
    loaded = LinkPredictor.load(tmp_path / "model")
    assert torch.equal(loaded.scorer().nodes.cpu(), predictor.scorer().nodes)
    for question in ({"subject": "p00"}, {"object": "p13"}):
        query = {"relation": "knows", "k": 7, **question}
        assert named_rows(loaded.predict_frame(**query)) == named_rows(predictor.predict_frame(**query))
    assert loaded.evaluate(kg) == predictor.evaluate(kg)
    assert loaded.settings_ == {**predictor.settings_, "device": "auto"}
    assert loaded.num_parameters_ == predictor.num_parameters_


def test_the_wrong_kind_of_model_is_named(tmp_path, fitted):
    fitted.save(tmp_path / "link")
    with pytest.raises(DataError, match="holds a model of link-prediction, not of node-classification"):
        rgcn.NodeClassifier.load(tmp_path / "link")
    kg = KnowledgeGraph.from_triples([("a", "r", "b")], labels={"a": "x", "b": "y"})
    rgcn.NodeClassifier(epochs=1, device="cpu").fit(kg).save(tmp_path / "node")
    with pytest.raises(DataError, match="holds a model of node-classification, not of link-prediction"):
        LinkPredictor.load(tmp_path / "node")


def test_settings_come_back_as_given():
    predictor = LinkPredictor("c-rgcn", seed=4, bottleneck=3, steps=7)
    assert LinkPredictor(**predictor.get_params()).get_params() == predictor.get_params()
    assert predictor.settings_["encoder"] == "c-rgcn"
    assert predictor.set_params(model="distmult").settings_["encoder"] == "none"
    assert "not fitted" in repr(predictor)
    with pytest.raises(NotFittedError, match="fit"):
        named_rows(predictor.predict_frame(subject="a", relation="r"))
    with pytest.raises(NotFittedError, match="fit"):
        predictor.evaluate()


# -- bad input -----------------------------------------------------------------------------------------


def test_an_unknown_name_is_answered_with_the_closest(fitted):
    with pytest.raises(UnknownNameError, match="Did you mean 'club1'"):
        named_rows(fitted.predict_frame(subject="clob1", relation="knows"))
    with pytest.raises(UnknownNameError, match=r"unknown relation 'nows'.*'knows'"):
        named_rows(fitted.predict_frame(subject="p00", relation="nows"))
    with pytest.raises(UnknownNameError, match="'club2'"):
        named_rows(fitted.triples_frame([("p00", "member_of", "Clubb2")]))
    assert named_rows(fitted.triples_frame([("p00", "Member of", "Club2")]))[0].object == "club2"
    with pytest.raises(DataError, match="outside"):
        named_rows(fitted.predict_frame(subject=10_000, relation="knows"))


def test_invalid_questions_are_refused(fitted):
    with pytest.raises(ConfigError, match="either a subject or an object"):
        named_rows(fitted.predict_frame(relation="knows"))
    with pytest.raises(ConfigError, match="either a subject or an object"):
        named_rows(fitted.predict_frame(subject="p00", relation="knows", object="p01"))
    for k in (0, -1):
        with pytest.raises(ConfigError, match=r"k (is|must be) at least 1"):
            named_rows(fitted.predict_frame(subject="p00", relation="knows", k=k))
        with pytest.raises(ConfigError, match=r"k (is|must be) at least 1"):
            named_rows(fitted.least_likely(k=k))
    with pytest.raises(ConfigError, match="known"):
        named_rows(fitted.predict_frame(subject="p00", relation="knows", known="hide"))
    with pytest.raises(DataError, match="list of triples is empty"):
        named_rows(fitted.triples_frame([]))
    with pytest.raises(DataError, match="unknown split"):
        fitted.evaluate(split="tset")
    with pytest.raises(ConfigError, match="ties"):
        fitted.evaluate(ties="kind")


def test_a_relation_that_training_never_saw_is_ranked_like_any_other():
    rows = [("a", "r", "b"), ("b", "r", "c"), ("a", "new", "c")]
    kg = KnowledgeGraph.from_triples(rows, triple_splits=[TRAIN, TRAIN, TEST])
    result = LinkPredictor(steps=2, **SMALL).fit(kg).evaluate(kg, split="test")
    assert set(result["by_relation"]) == {"new"}
    assert 0 < result["mrr"] <= 1


def test_a_split_with_an_unknown_relation_is_read_with_one_numbering(tmp_path):
    (tmp_path / "train.txt").write_text("a\tr\tb\nb\tr\tc\n")
    (tmp_path / "test.txt").write_text("a\tnew\td\n")
    kg = rgcn.read(tmp_path)
    assert list(kg.relations) == ["r", "new"]
    predictor = LinkPredictor(steps=2, **SMALL).fit(kg)
    assert predictor.evaluate(split="test")["count"] == 2
    assert {t.object for t in named_rows(predictor.predict_frame(subject="a", relation="new"))} == {"b", "c", "d"}


def test_an_empty_split_is_reported():
    rows = [("a", "r", "b"), ("b", "r", "c")]
    only_test = KnowledgeGraph.from_triples(rows, triple_splits=[TEST, TEST])
    with pytest.raises(DataError, match="no training triples"):
        LinkPredictor(**SMALL).fit(only_test)
    only_train = KnowledgeGraph.from_triples(rows, triple_splits=[TRAIN, TRAIN])
    predictor = LinkPredictor(steps=1, **SMALL).fit(only_train)
    for split in ("valid", "test"):
        with pytest.raises(DataError, match=f"no {split} triples"):
            predictor.evaluate(split=split)
    with pytest.raises(DataError, match="evaluate_every needs validation data"):
        LinkPredictor(evaluate_every=1, **SMALL).fit(only_train)
    with pytest.raises(DataError, match="no training triples"):
        LinkPredictor(**SMALL).fit(KnowledgeGraph.from_triples([]))


@pytest.mark.parametrize(
    ("splits", "count"), [([0, 2, 0, 0], 1), ([0, 2, 0, 1], 2), ([0, 0, 1, 1], 0), ([1, 2, 0, 0], 1)]
)
def test_triples_in_more_than_one_split_are_counted_and_warned_of(splits, count):
    rows = [("a", "r", "b"), ("a", "r", "b"), ("b", "q", "c"), ("b", "q", "c")]
    rows.append(("c", "r", "a"))
    kg = KnowledgeGraph.from_triples(rows, triple_splits=[*splits, TRAIN])
    assert repeated_across_splits(kg) == count
    predictor = LinkPredictor(steps=1, **SMALL)
    if count:
        with pytest.warns(UserWarning, match=f"^{count} triples? (is|are) in more than one split"):
            predictor.fit(kg)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            predictor.fit(kg)
    assert repeated_across_splits(replace(kg, triple_splits=None)) == 0


def test_a_graph_with_one_relation_is_enough_and_with_one_node_is_not():
    kg = KnowledgeGraph.from_triples([(f"n{i}", "r", f"n{i + 1}") for i in range(6)])
    for settings in MODELS:
        predictor = LinkPredictor(epochs=2, **SMALL, **settings).fit(kg)
        assert len(named_rows(predictor.predict_frame(subject="n0", relation="r", k=99, answer_filter=ALLOW_ALL))) == 7
        assert "n0" not in [t.object for t in named_rows(predictor.predict_frame(subject="n0", relation="r", k=99))]
    with pytest.raises(DataError, match="at least two nodes"):
        LinkPredictor(**SMALL).fit(KnowledgeGraph.from_triples([("a", "r", "a")]))


def test_edge_weights_are_used_or_refused():
    kg = clubs()
    weighted = replace(kg, edge_weights=np.linspace(0.1, 2.0, len(kg)))
    whole, plain = (LinkPredictor(steps=2, normalization="none", **SMALL).fit(g) for g in (weighted, kg))
    assert not torch.equal(whole.scorer().nodes, plain.scorer().nodes)
    with pytest.raises(DataError, match="edge weights"):
        LinkPredictor(steps=2, batch_edges=10, **SMALL).fit(weighted)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"model": "transr"}, "transe"),
        ({"embeding": 4}, "did you mean 'embedding'"),
        ({"bases": 4}, "decomposition: basis"),
        ({"decomposition": "basis"}, "bases"),
        ({"decomposition": "block", "blocks": 3, "embedding": 8}, "does not divide"),
        ({"model": "c-rgcn", "decomposition": "block", "blocks": 3, "bottleneck": 16}, "width of 16"),
        ({"separate_inverse_bases": True}, "separate_inverse_bases"),
        ({"separate_inverse_bases": True, "decomposition": "basis", "bases": 2, "inverse": False}, "inverse: true"),
        ({"model": "c-rgcn", "input": "one-hot"}, "goes with rgcn"),
        ({"patience": 3}, "evaluate_every"),
        ({"steps": -1}, "steps"),
        ({"negatives": 0}, "negatives"),
        ({"edge_dropout": 1.0}, "edge_dropout"),
        ({"batch_edges": 0}, "batch_edges"),
        ({"device": "gpu"}, "unknown device"),
        ({"schedule": "exponential"}, "schedule"),
    ],
    ids=str,
)
def test_settings_that_do_not_go_together_are_refused_when_given(settings, words):
    with pytest.raises(ConfigError, match=words):
        LinkPredictor().set_params(**settings)
    with pytest.raises((ConfigError, TypeError)):
        LinkPredictor(**settings)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("settings", MODELS, ids=str)
def test_a_model_trained_on_a_gpu_loads_on_a_cpu(settings, tmp_path):
    kg = clubs()
    small = {**SMALL, "device": "cuda"}
    predictor = LinkPredictor(steps=30, learning_rate=0.05, **small, **settings).fit(kg)
    losses = [epoch.loss for epoch in predictor.history_]
    assert losses[-1] < losses[0]
    predictor.save(tmp_path / "model")
    on_cpu = LinkPredictor(**{**predictor.get_params(), "device": "cpu"}).prepare(kg)
    on_cpu.network_.load_state_dict({k: v.cpu() for k, v in predictor.network_.state_dict().items()})
    torch.testing.assert_close(on_cpu.scorer().nodes, predictor.scorer().nodes.cpu(), rtol=1e-3, atol=1e-4)
    assert on_cpu.evaluate()["mrr"] == pytest.approx(predictor.evaluate()["mrr"], abs=0.02)
