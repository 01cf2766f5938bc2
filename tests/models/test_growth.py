"""Test nodes added after training: unchanged answers, estimated vectors, and unsupported models."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import rgcn
from rgcn.errors import DataError
from rgcn.graph import KnowledgeGraph
from rgcn.models.growth import estimated_rows, extended
from rgcn.predict.opened_model import merge_new_triples
from small_models import named_rows

TRIPLES = [(f"p{i}", "works_at", f"firm{i % 3}") for i in range(12)] + [
    (f"p{i}", "knows", f"p{(i + 3) % 12}") for i in range(12)
]
LABELS = {f"p{i}": f"class {i % 3}" for i in range(12)}
NEW = KnowledgeGraph.from_triples([("new", "works_at", "firm1"), ("new", "knows", "p4"), ("newer", "knows", "new")])


def known(**attributes) -> KnowledgeGraph:
    return KnowledgeGraph.from_triples(TRIPLES, labels=LABELS, **attributes)


@pytest.fixture(scope="module")
def classifier() -> rgcn.NodeClassifier:
    return rgcn.NodeClassifier("e-rgcn", embedding=8, epochs=60, seed=0).fit(known())


@pytest.fixture(scope="module")
def predictor() -> rgcn.LinkPredictor:
    return rgcn.LinkPredictor("c-rgcn", embedding=8, bottleneck=4, steps=60, seed=0).fit(known())


def test_an_estimate_is_the_mean_over_triples_of_companions_means():
    kg, larger = known(), merge_new_triples(known(), NEW, "new")
    rows = torch.randn(kg.num_nodes, 5, generator=torch.Generator().manual_seed(0))
    found = estimated_rows(rows, kg, larger)
    assert torch.equal(found[: kg.num_nodes], rows)

    def mean(names):
        return rows[torch.from_numpy(kg.nodes.ids(names))].double().mean(0)

    # (new, works_at, firm1): those who work at firm1. (new, knows, p4): p1, who knows p4. (newer, knows, new): no one
    # is known by `new`'s acquaintances, so those who are known by anybody.
    company = [mean(["p1", "p4", "p7", "p10"]), mean(["p1"]), mean([f"p{i}" for i in range(12)])]
    assert torch.allclose(found[larger.nodes["new"]].double(), torch.stack(company).mean(0), atol=1e-6)
    assert torch.allclose(found[larger.nodes["newer"]].double(), company[2], atol=1e-6)


def test_a_node_in_no_training_triple_gets_the_mean_of_all():
    kg = known()
    from dataclasses import replace

    larger = replace(kg, nodes=rgcn.graph.Vocabulary([*kg.nodes, "alone"], kind="node"))
    rows = torch.arange(float(kg.num_nodes)).unsqueeze(1)
    assert float(estimated_rows(rows, kg, larger)[-1]) == pytest.approx(float(rows.mean()))


def test_a_new_node_is_classified_like_its_neighbors_and_trained_weights_stay(classifier):
    before = {name: value.clone() for name, value in classifier.network_.state_dict().items()}
    larger = extended(classifier, merge_new_triples(classifier.graph_, NEW, "new"))
    assert larger.predict(["new"])[0] == "class 1"
    for name, value in classifier.network_.state_dict().items():
        assert torch.equal(value, before[name])
    for name, value in larger.network_.state_dict().items():
        if "source.rows" not in name:
            assert torch.equal(value, before[name])
    assert torch.equal(
        larger.network_.source.rows.values()[: classifier.graph_.num_nodes], classifier.network_.source.rows.values()
    )


def test_known_nodes_far_from_the_new_ones_keep_their_answers(classifier, predictor):
    far = ["p0", "p3"]  # two layers read two hops: nothing of p4, firm1 and their neighbors
    larger = extended(classifier, merge_new_triples(classifier.graph_, NEW, "new"))
    assert torch.allclose(larger.logits(far), classifier.logits(far), atol=1e-6)
    links = extended(predictor, merge_new_triples(predictor.graph_, NEW, "new"))
    ids = predictor.graph_.nodes.ids(far)
    assert torch.allclose(links.scorer().nodes[ids], predictor.scorer().nodes[ids], atol=1e-6)


def margin(model: rgcn.LinkPredictor) -> float:
    """Return how much higher the new triples score than the same triples with other objects."""
    known = set(model.graph_.named())
    margins = []
    for s, r, o in NEW.named():
        others = [(s, r, other) for other in model.graph_.nodes if (s, r, other) not in known]
        own, *rest = (scored.score for scored in named_rows(model.triples_frame([(s, r, o), *others])))
        margins.append(own - float(np.mean(rest)))
    return float(np.mean(margins))


def test_folding_in_moves_new_rows_alone_and_makes_their_triples_likelier(predictor):
    graph = merge_new_triples(predictor.graph_, NEW, "new")
    estimated, fitted = extended(predictor, graph, steps=0), extended(predictor, graph)
    size = predictor.graph_.num_nodes
    old, new = (model.network_.encoder.source.rows.values() for model in (estimated, fitted))
    assert torch.equal(old[:size], new[:size])
    assert not torch.equal(old[size:], new[size:])
    assert margin(fitted) > margin(estimated)
    again = extended(predictor, graph)
    assert torch.equal(again.network_.encoder.source.rows.values(), new)  # same seed, same bits
    assert all(parameter.requires_grad for parameter in fitted.network_.parameters())


def test_held_out_triples_of_the_known_graph_are_not_used_when_folding_in():
    """Other validation and test triples give bit for bit the same embeddings of new nodes."""

    def rows(held_out):
        triples = TRIPLES + [("p0", "knows", other) for other in held_out]
        splits = [0] * len(TRIPLES) + [1 + i % 2 for i in range(len(held_out))]
        graph = KnowledgeGraph.from_triples(triples, triple_splits=np.array(splits))
        model = rgcn.LinkPredictor("c-rgcn", embedding=8, bottleneck=4, epochs=10, seed=0).fit(graph)
        return extended(model, merge_new_triples(graph, NEW, "new")).network_.encoder.source.rows.values()

    assert torch.equal(rows(["p4", "p5"]), rows(["p7", "p8"]))


def test_folding_in_sees_the_new_triples_and_no_others(predictor, monkeypatch):
    seen = []
    monkeypatch.setattr("rgcn.models.link_predictor.fold_in", lambda *given, **_: seen.append(given[2]))
    graph = merge_new_triples(predictor.graph_, NEW, "new")
    extended(predictor, graph)
    assert seen[0].tolist() == graph.triples[len(predictor.graph_) :].tolist()


def test_edges_are_dropped_while_folding_in(predictor, monkeypatch):
    rates = []
    real = rgcn.RelationalAdjacency.draw_mask
    monkeypatch.setattr(
        rgcn.RelationalAdjacency,
        "draw_mask",
        lambda self, rate, *a, **k: rates.append(rate) or real(self, rate, *a, **k),
    )
    extended(predictor, merge_new_triples(predictor.graph_, NEW, "new"), steps=3)
    assert rates == [predictor.training.edge_dropout] * 3


def test_a_pruned_model_takes_nodes_far_from_the_labeled_ones():
    few = {name: LABELS[name] for name in ("p0", "p1", "p2")}
    graph = KnowledgeGraph.from_triples(TRIPLES, labels=few)
    model = rgcn.NodeClassifier("e-rgcn", embedding=8, epochs=5, seed=0, prune=True).fit(graph)
    far = [("far", "knows", "further"), ("further", "knows", "furthest"), ("furthest", "knows", "p0")]
    larger = extended(model, merge_new_triples(model.graph_, KnowledgeGraph.from_triples(far), "far"))
    assert len(larger.predict(["far", "further"])) == 2


def test_many_known_triples_are_processed_in_blocks(monkeypatch):
    kg, larger = known(), merge_new_triples(known(), NEW, "new")
    rows = torch.randn(kg.num_nodes, 5, generator=torch.Generator().manual_seed(0))
    whole = estimated_rows(rows, kg, larger)
    monkeypatch.setattr("rgcn.models.growth.TRIPLES_PER_BLOCK", 2)
    assert torch.allclose(estimated_rows(rows, kg, larger), whole, atol=1e-7)


def test_feature_models_take_the_new_nodes_features():
    features = np.zeros((15, 3), dtype=np.float32)
    for i in range(12):
        features[known().nodes[f"p{i}"], i % 3] = 1.0
    classifier = rgcn.NodeClassifier("rgcn", hidden=8, epochs=60, seed=0).fit(known(features=features))
    from dataclasses import replace

    larger = merge_new_triples(classifier.graph_, KnowledgeGraph.from_triples([("new", "knows", "new")]), "new")
    changed = larger.features.copy()
    changed[-1] = [0, 0, 1]
    assert extended(classifier, replace(larger, features=changed)).predict(["new"])[0] == "class 2"


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lambda: rgcn.NodeClassifier("rgcn", epochs=1).fit(known()), "a row for every .relation, node.*Train e-rgcn"),
        (lambda: rgcn.LinkPredictor(encoder="none", embedding=4, steps=1).fit(known()), "passes no messages"),
        (
            lambda: rgcn.LinkPredictor("rgcn", input="one-hot", embedding=4, steps=1, edge_dropout=0.1).fit(known()),
            "a row for every",
        ),
    ],
)
def test_models_that_do_not_support_new_nodes_state_why(model, words):
    fitted = model()
    with pytest.raises(DataError, match=words):
        extended(fitted, merge_new_triples(fitted.graph_, NEW, "new"))


def test_decoder_biases_of_known_nodes_stay():
    predictor = rgcn.LinkPredictor("c-rgcn", embedding=8, bottleneck=4, epochs=20, decoder_biases=True).fit(known())
    larger = extended(predictor, merge_new_triples(predictor.graph_, NEW, "new"))
    old, new = (each.network_.decoder.node_bias.trained for each in (predictor, larger))
    assert torch.equal(new[: len(old)], old)
    assert not new[len(old) :].any()


def test_another_graph_is_refused(classifier):
    with pytest.raises(DataError, match="the known nodes and triples first"):
        extended(classifier, NEW)
