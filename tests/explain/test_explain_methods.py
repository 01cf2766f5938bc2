"""Test integrated gradients and the edge mask: sums of importances, and known important triples."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from explained_models import class_question, classifier, link_question, predictor, readers

from rgcn.explain.methods import EdgeMask, IntegratedGradients
from rgcn.explain.question import frozen_copy

CLASSIFIERS = {
    "one-hot nodes": {"model": "rgcn", "hidden": 8},
    "basis": {"model": "rgcn", "hidden": 8, "decomposition": "basis", "bases": 3},
    "embeddings": {"model": "e-rgcn"},
    "mean over relations": {"model": "e-rgcn", "normalization": "node", "aggregation": "mean"},
}
PREDICTORS = {
    "one layer": {"model": "rgcn", "layers": 1},
    "two layers": {"model": "rgcn", "layers": 2},
    "one-hot": {"model": "rgcn", "input": "one-hot"},
    "compression": {"model": "c-rgcn"},
}


def question_of(name):
    if name in CLASSIFIERS:
        return class_question(classifier(**CLASSIFIERS[name], epochs=10), 3)
    return link_question(predictor(**PREDICTORS[name]), 0, 1, 5)


def difference_all_triples_make(question):
    subgraph = question.subgraph
    nothing = torch.zeros(len(subgraph), dtype=torch.float64)
    with torch.no_grad():
        return float(question.strength_with(subgraph.field) - question.strength_with(subgraph.scale_messages(nothing)))


@pytest.mark.parametrize("name", [*CLASSIFIERS, *PREDICTORS])
def test_importances_sum_to_the_effect_of_all_triples(name):
    question = question_of(name)
    wanted = difference_all_triples_make(question)
    found = IntegratedGradients().attribute(question, steps=256)
    assert abs(wanted) > 1e-3
    # A ReLU that becomes active on the integration path is a kink: the quadrature needs many steps and is not exact.
    assert found.triples.sum() == pytest.approx(wanted, rel=2e-3, abs=2e-4)


def test_a_smooth_network_needs_few_steps():
    question = link_question(predictor(layers=1), 0, 1, 5)
    found = IntegratedGradients().attribute(question, steps=4)
    assert found.triples.sum() == pytest.approx(difference_all_triples_make(question), rel=1e-12, abs=1e-12)


LINKS = {
    **PREDICTORS,
    "biases": {"model": "rgcn", "layers": 2, "decoder_biases": True, "bias": True},
    "compression, two layers": {"model": "c-rgcn", "layers": 2, "bias": False},
    "compression with biases": {"model": "c-rgcn", "decoder_biases": True, "bias": False},
    "compression without self-loops": {"model": "c-rgcn", "self_loops": False, "bias": False},
}


@pytest.mark.parametrize("name", LINKS)
def test_contributions_of_the_two_nodes_exclude_triples_and_constants(name):
    model = predictor(**LINKS[name])
    with torch.no_grad():
        decoder = model.network_.decoder
        if decoder.node_bias is not None:
            for parameter in (decoder.node_bias.trained, decoder.relation_bias):
                parameter.copy_(torch.arange(parameter.numel()).view_as(parameter) / 7)
    question = link_question(model, 0, 1, 5)
    network = question.network
    found = IntegratedGradients().attribute(question)
    # For a node without input, the network output depends only on the constants added to every vector.
    last = network.encoder.layers[-1].bias
    constant = torch.zeros(model.model.embedding, dtype=torch.float64) if last is None else last
    if LINKS[name]["model"] == "c-rgcn":
        constant = network.encoder.up.T @ torch.relu(last) if last is not None else constant
    nothing = float((constant**2 * network.decoder.relation[1]).sum())
    if network.decoder.relation_bias is not None:
        nothing += float(network.decoder.relation_bias[1])
    with torch.no_grad():
        score = float(question.strength_with(question.subgraph.field))
    assert abs(found.own) > 1e-6
    assert found.own == pytest.approx(score - difference_all_triples_make(question) - nothing, rel=1e-9)
    assert 0 < found.own_share < 1


def test_contributions_of_nodes_and_triples_sum_to_the_total():
    question = class_question(classifier(epochs=10), 3)
    subgraph = question.subgraph
    with torch.no_grad():
        nothing = torch.zeros(len(subgraph), dtype=torch.float64)
        silent = question.strength_with(subgraph.scale_messages(nothing, loops=0.0))
        full = question.strength_with(subgraph.field)
    found = IntegratedGradients().attribute(question, steps=256)
    assert found.own + found.triples.sum() == pytest.approx(float(full - silent), rel=2e-3)
    assert 0 < found.own_share < 1


@pytest.mark.parametrize("name", ["embeddings", "two layers", "compression"])
def test_gradients_of_edges_agree_with_finite_differences(name):
    question = question_of(name)
    layers = question.subgraph.field.layers
    weights = [layer.weight.clone().requires_grad_() for layer in layers]

    def strength(values):
        fields = tuple(replace(layer, weight=value) for layer, value in zip(layers, values, strict=True))
        return question.strength_with(replace(question.subgraph.field, layers=fields))

    gradients = torch.autograd.grad(strength(weights), weights)
    step = 1e-6
    for depth, gradient in enumerate(gradients):
        for edge in range(0, len(gradient), 5):
            moved = []
            for sign in (1, -1):
                values = [weight.detach().clone() for weight in weights]
                values[depth][edge] += sign * step
                moved.append(float(strength(values)))
            assert (moved[0] - moved[1]) / (2 * step) == pytest.approx(float(gradient[edge]), rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("method", [IntegratedGradients, EdgeMask])
@pytest.mark.parametrize("model", ["rgcn", "e-rgcn"])
def test_the_decisive_triple_comes_first(method, model):
    graph = readers(80)  # so many that no model can memorize them all
    fitted = classifier(model, graph, epochs=60)
    assert fitted.score(graph, "train") == 1.0
    relation = graph.relations.id("reads")
    right = 0
    for person in range(8):
        node = graph.nodes.id(f"p{person}")
        question = class_question(fitted, node, fitted.classes_.index(f"reader{person % 2}"), torch.float32)
        found = method().attribute(question)
        first = question.subgraph.triples[found.supporting(1)[0]].tolist()
        right += first == [node, relation, graph.nodes.id(f"book{person % 2}")]
    assert right >= 7


def test_the_importance_of_a_triple_sums_its_edges_over_all_layers():
    question = class_question(classifier(epochs=10), 3)
    found = IntegratedGradients().attribute(question)
    for place in range(0, len(question.subgraph), 7):
        edges = zip(found.edges, question.subgraph.edge_triples, strict=True)
        assert found.triples[place] == pytest.approx(sum(float(e[p.numpy() == place].sum()) for e, p in edges))
    for importance, place in zip(found.edges, question.subgraph.edge_triples, strict=True):
        assert not importance[place.numpy() == len(question.subgraph)].any()


def test_the_mask_has_a_deterministic_initial_value():
    fitted = classifier(epochs=10)
    one, other = (EdgeMask().attribute(class_question(fitted, 3, dtype=torch.float32)).triples for _ in range(2))
    assert (one == other).all()


def test_a_frozen_network_shares_its_weights_and_leaves_the_original_alone():
    model = predictor()
    model.scorer()
    cold = frozen_copy(model.network_)
    pairs = list(zip(cold.parameters(), model.network_.parameters(), strict=True))
    assert all(one.data_ptr() == other.data_ptr() for one, other in pairs)
    assert all(not one.requires_grad and other.requires_grad for one, other in pairs)
    assert model.network_._scorer is not None
    assert cold._scorer is None
