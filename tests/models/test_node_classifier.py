"""Test the node classifier: training, inputs, determinism, and errors."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from rgcn.adjacency import ReceptiveField
from rgcn.data.catalog import load_world
from rgcn.errors import ConfigError, DataError, NotFittedError, UnknownNameError
from rgcn.graph import SPLITS, KnowledgeGraph
from rgcn.models import NodeClassifier

CLASSES = ("fruit", "stone")


def shelf(num_items=40, **attributes):
    """Return items of two classes, which differ in material and place; a third are in test."""
    triples, train, test = [], {}, {}
    for i in range(num_items):
        kind = CLASSES[i % 2]
        triples.append((f"item{i}", "made_of", f"{kind} stuff"))
        triples.append((f"item{i}", "lies_on", f"board{i // 4}"))
        triples.append((f"board{i // 4}", "holds", f"item{i}"))
        (test if i % 3 == 0 else train)[f"item{i}"] = kind
    return KnowledgeGraph.from_triples(triples, labels=train, test_labels=test, **attributes)


def fitted(kg=None, model="rgcn", **settings):
    settings = {"epochs": 15, "seed": 3, **settings}
    return NodeClassifier(model, **settings).fit(shelf() if kg is None else kg)


def weights(classifier):
    return classifier.network_.state_dict()


def same_bits(one, other):
    one, other = weights(one), weights(other)
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


MODELS = {
    "full": {},
    "basis": {"decomposition": "basis", "bases": 3},
    "block": {"decomposition": "block", "blocks": 4},
    "three layers": {"layers": 3},
    "mean of nodes": {"normalization": "node", "aggregation": "mean", "learning_rate": 0.05},
    "dropout": {"dropout": 0.2, "edge_dropout": 0.2, "self_loop_dropout": 0.1},
    "pruned": {"prune": True},
    "decayed": {"weight_decay": 5e-4},
    "e-rgcn": {"model": "e-rgcn"},
    "e-rgcn, pruned": {"model": "e-rgcn", "prune": True, "embedding": 8},
}


@pytest.mark.parametrize("name", MODELS)
def test_learns_a_graph_in_which_a_neighbor_tells_the_class(name):
    classifier = fitted(epochs=40, **MODELS[name])
    assert classifier.score(split="train") == 1.0
    assert classifier.score(split="test") == 1.0
    assert classifier.score(shelf()) == 1.0
    assert classifier.history_[-1].loss < classifier.history_[0].loss


@pytest.mark.parametrize("name", ["full", "basis", "block", "dropout", "e-rgcn"])
def test_the_same_seed_gives_the_same_bits_and_another_seed_others(name):
    kg = shelf()
    one, same, other = (fitted(kg, seed=seed, **MODELS[name]) for seed in (3, 3, 4))
    assert same_bits(one, same)
    assert not same_bits(one, other)
    names = list(kg.nodes)
    assert torch.equal(one.logits(names), same.logits(names))
    assert [e.loss for e in one.history_] == [e.loss for e in same.history_]


def test_fitting_neither_uses_nor_changes_pytorchs_own_random_state():
    torch.manual_seed(0)
    one = fitted(dropout=0.5)
    after = torch.rand(1)
    torch.manual_seed(0)
    assert torch.equal(torch.rand(1), after)
    torch.manual_seed(99)
    assert same_bits(fitted(dropout=0.5), one)


@pytest.mark.parametrize("settings", [{}, {"validation": 0.3, "patience": 3}, {"prune": True}], ids=str)
def test_classes_of_test_nodes_are_never_read_while_fitting(settings):
    kg = shelf()
    honest = fitted(kg, **settings)
    testing = kg.labels.splits == SPLITS.index("test")
    garbage = kg.labels.classes.copy()
    garbage[testing] = np.random.default_rng(0).integers(0, 2, testing.sum())
    assert not np.array_equal(garbage, kg.labels.classes)
    other = fitted(replace(kg, labels=replace(kg.labels, classes=garbage)), **settings)
    assert same_bits(honest, other)
    assert [e["valid_loss"] for e in honest.history_] == [e["valid_loss"] for e in other.history_]


def test_fits_the_world():
    kg = load_world()
    classifier = NodeClassifier(seed=0, epochs=25).fit(kg)
    assert classifier.score(kg, split="test") > 0.5  # eleven regions
    assert classifier.predict_frame(["Switzerland"])["node"].to_list() == ["Switzerland"]


# -- asking --------------------------------------------------------------------------------------------


def test_predictions_carry_the_node_its_class_and_its_score():
    classifier = fitted()
    frame, logits = classifier.predict_frame(["item0", 2]), classifier.logits(["item0", 2])
    assert frame["node"].to_list() == ["item0", classifier.graph_.nodes[2]]
    assert classifier.classes_ == list(shelf().labels.names)
    assert frame["class"].to_list() == [classifier.classes_[number] for number in logits.argmax(1)]
    assert frame["score"].to_list() == logits.max(1).values.tolist()
    assert frame["probability"].to_list() == [None, None]  # nothing was held out to calibrate on
    classes = classifier.predict(["item0", 2])
    assert isinstance(classes, np.ndarray)
    assert classes.tolist() == frame["class"].to_list()


def test_probabilities_are_refused_where_there_is_nothing_to_calibrate_on():
    with pytest.raises(DataError, match="No probabilities"):
        fitted(epochs=1).predict_proba(["item0"])


def test_probabilities_are_calibrated_on_validation_labels():
    classifier = NodeClassifier(epochs=5).fit(load_world())
    frame, (shares,) = classifier.predict_frame(["Peru"]), classifier.predict_proba(["Peru"])
    assert classifier.calibration_.fitted
    logits = classifier.logits(["Peru"])[0].numpy() / classifier.calibration_.temperature
    expected = np.exp(logits - logits.max())
    assert shares.tolist() == pytest.approx(list(expected / expected.sum()), rel=1e-4)
    assert frame["probability"][0] == shares[classifier.classes_.index(frame["class"][0])]


def test_probabilities_sum_to_one_in_the_order_of_the_classes():
    classifier = NodeClassifier(epochs=5).fit(load_world())
    nodes = classifier.graph_.labels.of("train")[0].tolist()
    table = classifier.predict_proba(nodes)
    assert table.shape == (len(nodes), len(classifier.classes_))
    np.testing.assert_allclose(table.sum(1), 1, rtol=1e-5)
    assert np.array_equal(table.argmax(1), classifier.logits(nodes).argmax(1))
    shelved = fitted()
    nodes, classes = shelved.graph_.labels.of("train")
    assert np.array_equal(shelved.logits(nodes.tolist()).argmax(1), classes)


def test_the_answer_for_a_node_does_not_depend_on_the_other_nodes_of_the_query():
    classifier = fitted()
    everyone = classifier.logits(range(classifier.graph_.num_nodes))
    repeated = classifier.logits(["item5", "item1", "item5"])
    ids = classifier.graph_.nodes.ids(["item5", "item1", "item5"])
    np.testing.assert_allclose(repeated, everyone[ids], rtol=1e-5, atol=1e-6)


def test_without_nodes_all_nodes_except_literals_are_classified():
    kg = shelf()
    kinds = np.zeros(kg.num_nodes)
    kinds[[1, 2]] = 1
    predictions = fitted(replace(kg, node_kinds=kinds), epochs=2).predict_frame()
    assert predictions["node"].to_list() == [n for i, n in enumerate(kg.nodes) if i not in (1, 2)]


def test_an_unknown_node_is_answered_with_close_names():
    with pytest.raises(UnknownNameError, match="Did you mean 'fruit stuff'"):
        fitted(epochs=1).predict(["fruit stuf"])


def test_a_single_name_instead_of_a_list_is_refused():
    with pytest.raises(DataError, match="list of names"):
        fitted(epochs=1).predict("item0")


def test_score_is_the_share_of_right_answers_by_class_name():
    classifier = fitted()
    kg = shelf()
    swapped = replace(kg, labels=replace(kg.labels, classes=1 - kg.labels.classes))
    assert classifier.score(kg) == 1.0
    assert classifier.score(swapped) == 0.0
    renamed = kg.with_labels({"test": {"item0": "fruit", "item3": "stone", "item6": "water", "item9": "fruit"}})
    assert classifier.score(renamed) == 0.5


def test_embeddings_are_the_states_of_a_layer():
    classifier = fitted(layers=3, hidden=6)
    count = classifier.graph_.num_nodes
    assert classifier.embeddings().shape == (count, 6)
    assert classifier.embeddings(["item1", "item0"], layer=0).shape == (2, 6)
    assert (classifier.embeddings(layer=-2) >= 0).all()
    logits = classifier.embeddings(layer=-1)
    assert logits.shape == (count, 2)
    np.testing.assert_allclose(classifier.logits(range(count)), logits, rtol=1e-5, atol=1e-6)
    with pytest.raises(ConfigError, match="3 layers"):
        classifier.embeddings(layer=3)


def test_epochs_are_reported_as_they_pass():
    seen = []
    classifier = NodeClassifier(epochs=3).fit(shelf(), on_report=seen.append)
    assert seen == classifier.history_
    assert [e.number for e in seen] == [1, 2, 3]
    assert seen[0]["valid_loss"] is None


# -- settings ------------------------------------------------------------------------------------------


def test_settings_come_back_as_they_went_in():
    classifier = NodeClassifier("e-rgcn", seed=5, prune=True, embedding=12, epochs=7, weight_decay=0.1)
    params = classifier.get_params()
    assert (params["model"], params["seed"], params["prune"], params["embedding"]) == ("e-rgcn", 5, True, 12)
    assert NodeClassifier(**params).get_params() == params
    assert (classifier.settings_["encoder"], classifier.settings_["embedding"]) == ("e-rgcn", 12)
    changed = classifier.set_params(epochs=9, model="rgcn")
    assert changed is classifier
    assert changed.get_params() == {**params, "epochs": 9, "model": "rgcn"}
    assert changed.model.encoder == "rgcn"


def test_changed_settings_need_a_new_fit():
    classifier = fitted(epochs=2)
    classifier.set_params(hidden=4)
    with pytest.raises(NotFittedError):
        classifier.predict(["item0"])
    assert "not fitted" in repr(classifier)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"hiden": 3}, "no parameter 'hiden'; did you mean 'hidden'"),
        ({"modell": "rgcn"}, "did you mean 'model'"),
        ({"learnin_rate": 3}, "did you mean 'learning_rate'"),
        ({"name": "e-rgcn"}, "no parameter 'name'"),
        ({"hidden": 0}, "hidden"),
        ({"model": "gcn"}, "'rgcn' or 'e-rgcn'"),
        ({"decomposition": "basis"}, "`bases` goes with"),
    ],
    ids=str,
)
def test_unknown_and_impossible_settings_are_refused(settings, words):
    with pytest.raises(ConfigError, match=words):
        NodeClassifier().set_params(**settings)
    with pytest.raises((ConfigError, TypeError)):
        NodeClassifier(**settings)


def test_a_setting_at_odds_with_the_graph_is_refused():
    with pytest.raises(ConfigError, match="the graph has none"):
        NodeClassifier(input="features").fit(shelf())
    with pytest.raises(ConfigError, match="diagonal"):
        NodeClassifier(decomposition="diagonal").fit(shelf())
    with pytest.raises(ConfigError, match="patience needs a validation split"):
        NodeClassifier(patience=3).fit(shelf())
    alone = KnowledgeGraph.from_triples([("a", "r", "b")], labels={"a": "x", "b": "y"})
    with pytest.raises(DataError, match="each of 2 is the only one of its class"):
        NodeClassifier(validation=0.1).fit(alone)


def test_where_there_is_a_validation_split_the_best_weights_are_kept():
    classifier = NodeClassifier(hidden=4, epochs=12, learning_rate=0.5, validation=0.2, watch="accuracy", seed=1)
    history = classifier.fit(shelf()).history_
    best = max(epoch["valid_accuracy"] for epoch in history)
    assert classifier.score(classifier.graph_, "valid") == pytest.approx(best)


def test_unusable_labels_are_refused():
    bare = replace(shelf(), labels=None)
    with pytest.raises(DataError, match="no labels"):
        NodeClassifier().fit(bare)
    with pytest.raises(DataError, match="no training labels"):
        NodeClassifier().fit(bare.with_labels({"test": {"item0": "fruit"}}))
    with pytest.raises(DataError, match="one class, 'fruit'"):
        NodeClassifier().fit(bare.with_labels({"train": {"item0": "fruit"}, "test": {"item1": "stone"}}))
    with pytest.raises(DataError, match="no labels to measure accuracy on"):
        fitted(epochs=1).score(bare)
    with pytest.raises(DataError, match="no labels in split 'valid'"):
        fitted(epochs=1).score(split="valid")
    with pytest.raises(DataError, match="unknown split"):
        fitted(epochs=1).score(split="dev")
    with pytest.raises(DataError, match="list of nodes is empty"):
        fitted(epochs=1).predict([])


@pytest.mark.parametrize("ask", ["predict", "predict_proba", "embeddings"])
def test_a_classifier_that_was_not_fitted_says_so(ask):
    with pytest.raises(NotFittedError, match=r"fit\(kg\) first"):
        getattr(NodeClassifier(), ask)(["item0"])
    with pytest.raises(NotFittedError):
        NodeClassifier().score()


# -- validation and early stopping ---------------------------------------------------------------------


def splits_of(classifier):
    labels = classifier.graph_.labels
    return {split: labels.of(split) for split in SPLITS}


def test_validation_labels_are_held_out_class_by_class_and_never_from_the_test_split():
    kg = shelf(120)
    before, after = kg.labels, splits_of(fitted(kg, epochs=1, validation=0.25))
    assert np.array_equal(before.of("test")[0], after["test"][0])
    together = np.concatenate([after["train"][0], after["valid"][0]])
    assert sorted(together) == sorted(before.of("train")[0])
    for label in (0, 1):
        total = (before.of("train")[1] == label).sum()
        assert (after["valid"][1] == label).sum() == round(0.25 * total)


def test_the_validation_split_of_the_data_is_used_as_it_is():
    kg = load_world()
    classifier = NodeClassifier(epochs=1, validation=0.5).fit(kg)
    assert classifier.graph_.labels.counts() == kg.labels.counts()
    assert classifier.history_[0]["valid_loss"] is not None


def test_every_class_keeps_a_label_to_learn_from():
    after = splits_of(fitted(shelf(12), epochs=1, validation=0.95))
    assert set(after["train"][1]) == {0, 1}


def test_early_stopping_goes_back_to_the_best_epoch():
    kg = load_world()
    settings = {"seed": 1, "learning_rate": 0.05}
    classifier = NodeClassifier(epochs=60, patience=4, **settings).fit(kg)
    losses = [e["valid_loss"] for e in classifier.history_]
    best = int(np.argmin(losses))
    assert len(losses) < 60
    assert len(losses) == best + 1 + 4
    # The validation loss of an epoch is taken after its step: training for just so many epochs gives the same weights.
    straight = NodeClassifier(epochs=best + 1, **settings).fit(kg)
    assert same_bits(classifier, straight)
    table = torch.softmax(classifier.logits(kg.labels.of("valid")[0].tolist()), dim=1)
    loss = F.nll_loss(table.log(), torch.from_numpy(kg.labels.of("valid")[1].copy()))
    assert float(loss) == pytest.approx(min(losses), rel=1e-4)


# -- what enters the loss ------------------------------------------------------------------------------


def by_hand(classifier, kg, steps, compute_loss, **adam):
    """Take steps of plain Adam in float64 on an explicit loss, with a prepared classifier."""
    network = classifier.prepare(kg).network_.double()
    nodes, classes = (torch.from_numpy(a.copy()) for a in kg.labels.of("train"))
    field = ReceptiveField.of(classifier._adjacency, nodes, classifier.model.layers)
    optimizer = torch.optim.Adam(network.parameters(), lr=classifier.training.learning_rate, **adam)
    for _ in range(steps):
        optimizer.zero_grad()
        compute_loss(network, network(field), classes).backward()
        optimizer.step()
    return network.state_dict()


def by_the_library(classifier, kg, steps):
    network = classifier.prepare(kg).network_.double()
    step = classifier.trainer().step_with_logits
    for _ in range(steps):
        step()
    return network.state_dict()


def assert_same_weights(one, other, tolerance=1e-8):
    assert one.keys() == other.keys()
    for key in one:
        torch.testing.assert_close(one[key], other[key], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("settings", [{}, {"decomposition": "basis", "bases": 3}, {"model": "e-rgcn"}], ids=str)
@pytest.mark.parametrize("steps", [1, 10])
def test_l2_penalty_is_this_times_the_sum_of_squares_of_the_first_layers_weights(settings, steps):
    kg = shelf()
    # So large that it matters after a few steps.
    classifier = NodeClassifier(l2_penalty=0.05, **settings)

    def compute_loss(network, logits, classes):
        first = network.layers[0]
        squares = sum(p.square().sum() for name, p in first.named_parameters() if name != "bias")
        return F.cross_entropy(logits, classes) + 0.05 * squares

    penalized = by_the_library(classifier, kg, steps)
    assert_same_weights(penalized, by_hand(classifier, kg, steps, compute_loss))
    plain = by_the_library(NodeClassifier(weight_decay=1e-12, **settings), kg, steps)
    assert any(not torch.allclose(plain[k], penalized[k], atol=1e-6) for k in plain)


def test_weight_decay_is_adams_own_on_every_parameter():
    kg = shelf()
    classifier = NodeClassifier("e-rgcn", weight_decay=0.005)

    def compute_loss(network, logits, classes):
        return F.cross_entropy(logits, classes)

    assert_same_weights(by_the_library(classifier, kg, 5), by_hand(classifier, kg, 5, compute_loss, weight_decay=0.005))


def test_decay_reaches_every_row_also_those_no_training_edge_touches():
    kg = KnowledgeGraph.from_triples(
        [("a", "r", "b"), ("c", "r", "b"), ("far", "r", "away")], labels={"a": "x", "b": "y"}
    )
    decayed = NodeClassifier(l2_penalty=0.1, epochs=5).fit(kg)
    start = NodeClassifier(l2_penalty=0.1, epochs=5).prepare(kg)
    moved = (decayed.network_.layers[0].dense_weight() - start.network_.layers[0].dense_weight()).abs().sum(2)
    occurs = start.network_.layers[0].dense_weight().abs().sum(2) > 0
    assert (moved[occurs] > 0).all()


def test_balanced_classes_weigh_n_over_classes_times_count():
    kg = shelf()
    unbalanced = {f"item{i}": CLASSES[i % 2] for i in range(20) if i % 2 or i < 6}
    kg = kg.with_labels({"train": unbalanced, "test": {"item30": "fruit", "item31": "water"}})
    classifier = NodeClassifier(class_weights="balanced", weight_decay=1e-9)

    def compute_loss(network, logits, classes):
        counts = torch.bincount(classes, minlength=3)
        assert counts.tolist() == [3, 10, 0]
        weight = torch.tensor([13 / (3 * 3), 13 / (3 * 10), 0.0], dtype=torch.float64)
        losses = F.cross_entropy(logits, classes, reduction="none")
        return (losses * weight[classes]).sum() / weight[classes].sum()

    # the library's class weights are float32 constants: the network is trained in float32 there
    network = classifier.prepare(kg).network_
    step = classifier.trainer().step_with_logits
    for _ in range(5):
        step()
    ours = {k: v.double() if v.is_floating_point() else v for k, v in network.state_dict().items()}
    assert_same_weights(ours, by_hand(classifier, kg, 5, compute_loss, weight_decay=1e-9), tolerance=1e-3)


# -- other inputs --------------------------------------------------------------------------------------


def test_features_are_the_input_of_the_first_layer():
    kg = shelf()
    rng = np.random.default_rng(0)
    features = rng.normal(size=(kg.num_nodes, 5)).astype(np.float32)
    kg = replace(kg, features=features)
    classifier = fitted(kg, epochs=40)
    assert classifier.network_.layers[0].in_features == 5
    assert classifier.score(split="train") > 0.9
    assert not same_bits(classifier, fitted(replace(kg, features=features + 1), epochs=40))
    assert fitted(kg, epochs=1, input="one-hot").network_.layers[0].is_one_hot


def test_edge_weights_change_the_output():
    kg = shelf()
    weights_ = np.random.default_rng(0).uniform(0.1, 2, len(kg))
    plain, ones, weighted = (fitted(replace(kg, edge_weights=w)) for w in (None, np.ones(len(kg)), weights_))
    assert same_bits(plain, ones)
    assert not same_bits(plain, weighted)


def test_an_edge_of_weight_zero_is_as_if_it_were_not_there():
    kg = shelf()
    features = np.random.default_rng(0).normal(size=(kg.num_nodes, 5))
    mute = kg.triples[:, 1] == kg.relations["made_of"]
    silent = replace(kg, features=features, edge_weights=np.where(mute, 0.0, 1.0))
    moved = silent.triples.copy()
    moved[mute, 2] = moved[mute, 2][::-1]
    nodes = [f"item{i}" for i in range(40)]
    one, other = (fitted(graph).logits(nodes) for graph in (silent, replace(silent, triples=moved)))
    np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)
    unweighted = fitted(replace(silent, edge_weights=None)).logits(nodes)
    assert np.abs(one - unweighted).max() > 0.01


def test_number_of_parameters_as_published_is_that_of_a_network_with_all_rows():
    kg = shelf()
    nodes, relations = kg.num_nodes, 2 * 3 + 1
    full = NodeClassifier().prepare(kg)
    assert full.num_parameters_as_published_ == relations * nodes * 16 + 16 + relations * 16 * 2 + 2
    assert full.num_parameters_ < full.num_parameters_as_published_
    basis = NodeClassifier(decomposition="basis", bases=3, l2_penalty=1e-9).prepare(kg)
    assert basis.num_parameters_as_published_ == basis.num_parameters_
    for settings in ({}, {"layers": 3}, {"inverse": False}, {"bias": False}):
        embedded = NodeClassifier("e-rgcn", weight_decay=1e-9, **settings).prepare(kg)
        assert embedded.num_parameters_as_published_ == embedded.num_parameters_
    featured = replace(kg, features=np.ones((nodes, 16)))
    for settings in (
        {},
        {"decomposition": "diagonal"},
        {"decomposition": "block", "blocks": 4},
        {"decomposition": "block", "blocks": 2, "self_loops": False},
    ):
        with_features = NodeClassifier(**settings).prepare(featured)
        assert with_features.num_parameters_as_published_ == with_features.num_parameters_


# -- e-RGCN as published -----------------------------------------------------------------------------------


@pytest.mark.parametrize("layers", [2, 3])
def test_the_diagonal_layer_of_e_rgcn_has_no_bias_and_the_others_have(layers):
    network = NodeClassifier("e-rgcn", layers=layers).prepare(shelf()).network_
    assert [layer.bias is None for layer in network.layers] == [True] + [False] * (layers - 1)
    assert [name for name, _ in network.layers[0].named_parameters()] == ["weights.scale"]


def test_only_the_diagonal_layer_of_e_rgcn_goes_without():
    kg = shelf()
    # Full matrices, because no layer after it mixes the features.
    single = NodeClassifier("e-rgcn", layers=1).prepare(kg)
    assert single.network_.layers[0].bias is not None
    featured = replace(kg, features=np.ones((kg.num_nodes, 16)))
    scaled = NodeClassifier(decomposition="diagonal").prepare(featured)
    assert all(layer.bias is not None for layer in scaled.network_.layers)


@pytest.mark.parametrize("width", [32, 50])
def test_the_embeddings_of_e_rgcn_begin_as_torch_draws_kaiming_normal_by_fan_in(width):
    network = NodeClassifier("e-rgcn", embedding=width, seed=3).prepare(load_world()).network_
    ours = network.source.rows.values().detach()
    theirs = torch.nn.init.kaiming_normal_(torch.empty_like(ours), mode="fan_in")
    expected = math.sqrt(2) / math.sqrt(width)
    few = 5 / math.sqrt(2 * ours.numel())  # five standard errors of a standard deviation
    assert float(ours.std()) == pytest.approx(expected, rel=few)
    assert float(theirs.std()) == pytest.approx(expected, rel=few)


def test_the_gain_of_the_embeddings_can_be_chosen():
    one, two = (
        NodeClassifier("e-rgcn", embedding_gain=gain).prepare(shelf()).network_.source.rows.values() for gain in (1, 2)
    )
    torch.testing.assert_close(2 * one, two)


def test_e_rgcn_is_the_equation_of_the_paper_and_learns_as_it_does():
    kg = shelf()
    classifier = NodeClassifier("e-rgcn", weight_decay=0.005)
    network = classifier.prepare(kg).network_.double()
    first, second = network.layers
    begin = network.source.rows.values(), first.weights.scale, second.dense_weight(), second.bias
    rows, scale, weight, bias = parameters = [value.detach().clone().requires_grad_() for value in begin]
    adjacency = classifier._adjacency.to_dense().double()  # [relations, nodes, nodes]
    nodes, classes = (torch.from_numpy(a.copy()) for a in kg.labels.of("train"))
    optimizer = torch.optim.Adam(parameters, lr=0.01, weight_decay=0.005)
    step = classifier.trainer().step_with_logits
    for _ in range(20):
        # H = ReLU(Σ_r A_r E diag(w_r)), Y = Σ_r A_r H W_r + b
        hidden = torch.relu(torch.einsum("rij, jd, rd -> id", adjacency, rows, scale))
        logits = torch.einsum("rij, jd, rdc -> ic", adjacency, hidden, weight) + bias
        loss = F.cross_entropy(logits[nodes], classes)
        assert float(step()[0]) == pytest.approx(float(loss.detach()), rel=1e-9)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


# ----------------------------------------------------------------------------------------------------------


def test_labeled_nodes_without_messages_can_still_be_trained_on():
    kg = KnowledgeGraph.from_triples([("a", "r", "b"), ("c", "r", "b")], labels={"a": "x", "c": "y"})
    for settings in ({}, {"decomposition": "basis", "bases": 2}, {"decomposition": "block", "blocks": 2}):
        classifier = NodeClassifier(inverse=False, self_loops=False, epochs=2, **settings).fit(kg)
        assert classifier.logits(["a", "b", "c"]).shape == (3, 2)


def test_after_a_failed_fit_predict_raises_an_error():
    classifier = fitted(replace(shelf(), features=np.ones((shelf().num_nodes, 16))), decomposition="diagonal")
    with pytest.raises(ConfigError, match="diagonal"):
        classifier.fit(shelf(20))  # no features: diagonal weights have nothing to scale
    with pytest.raises(NotFittedError):
        classifier.predict(["item0"])
