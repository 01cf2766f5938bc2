"""Test for mistakes in link prediction that published implementations made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rgcn.adjacency import RelationalAdjacency
from rgcn.graph import KnowledgeGraph
from rgcn.graph.titles import Titles
from rgcn.models import LinkPredictor
from rgcn.nn.link_network import VectorNetwork
from rgcn.pages.link_report import evaluate_links
from rgcn.predict import OpenModel

TRAIN, VALID, TEST = 0, 1, 2
SMALL = {"embedding": 6, "device": "cpu"}


def ring(length=30, splits=True):
    rows = [(f"n{i}", f"r{i % 2}", f"n{(i + 1) % length}") for i in range(length)]
    rows += [(f"n{i}", "r0", f"n{(i + 7) % length}") for i in range(length)]
    return KnowledgeGraph.from_triples(
        rows, triple_splits=[(TRAIN, TRAIN, VALID, TRAIN, TEST)[i % 5] for i in range(len(rows))] if splits else None
    )


@pytest.mark.parametrize("batch", [None, 20])
def test_forward_edges_are_counted_once_in_the_graph_of_a_step(batch):
    kg = ring(splits=False)
    settings = {"batch_edges": batch, "edge_dropout": 0.0, "self_loop_dropout": 0.0, "normalization": "none"}
    trainer = LinkPredictor(steps=1, **SMALL, **settings).prepare(kg).trainer()
    batches = trainer.batches()
    positives = next(batches)
    batches.close()
    adjacency = trainer.message_graph(positives)
    assert adjacency.num_edges == 2 * len(positives) + kg.num_nodes
    assert float(adjacency.weight.sum()) == 2 * len(positives) + kg.num_nodes


@pytest.mark.parametrize("rate", [0.1, 0.25, 0.8])
def test_a_step_drops_the_given_share_and_not_the_rest(rate):
    kg = ring(200, splits=False)
    for batch, tolerance in ((100, 0.0), (None, 0.06)):
        settings = {"batch_edges": batch, "edge_dropout": rate, "self_loop_dropout": 0.0}
        trainer = LinkPredictor(steps=1, **SMALL, **settings).prepare(kg).trainer()
        positives = trainer.triples if batch is None else trainer.triples[:batch]
        adjacency = trainer.message_graph(positives)
        along = int(((adjacency.structure.direction == 0) & (adjacency.weight > 0)).sum())
        assert along / len(positives) == pytest.approx(1 - rate, abs=tolerance + 1e-9)


def test_the_kept_edges_are_a_random_part_and_not_the_first_of_the_batch():
    kg = ring(100, splits=False)
    trainer = LinkPredictor(steps=1, batch_edges=50, edge_dropout=0.5, **SMALL).prepare(kg).trainer()
    positives = trainer.triples[:50]
    counts = np.zeros(50)
    for _ in range(200):
        structure = trainer.message_graph(positives).structure
        kept = zip(structure.source.tolist(), structure.target.tolist(), structure.direction.tolist(), strict=True)
        kept = {(s, t) for s, t, d in kept if d == 0}
        counts += [(s, o) in kept for s, _, o in positives.tolist()]
    assert counts.min() > 60
    assert counts.max() < 140


@pytest.mark.parametrize("batch", [None, 20])
def test_edge_dropout_changes_training_and_answers_drop_nothing(batch, monkeypatch):
    kg = ring()
    dropping, whole = (
        LinkPredictor(steps=2, edge_dropout=rate, self_loop_dropout=0.0, batch_edges=batch, **SMALL)
        for rate in (0.5, 0.0)
    )
    assert dropping.fit(kg).history_[0].loss != whole.fit(kg).history_[0].loss

    def refuse(*arguments, **options):
        raise AssertionError("dropped while asking")

    monkeypatch.setattr(RelationalAdjacency, "draw_mask", refuse)
    monkeypatch.setattr(RelationalAdjacency, "masked", refuse)
    assert dropping.evaluate(split="test") == dropping.evaluate(split="test")


def test_a_dropped_edge_reaches_no_output_by_its_inverse():
    # n0 gets messages of n1 only through the edge between them: without it, its vector depends on n0 only
    kg = KnowledgeGraph.from_triples([("n0", "r", "n1"), ("n2", "r", "n3")])
    predictor = LinkPredictor(steps=1, batch_edges=2, edge_dropout=0.5, self_loop_dropout=0.0, **SMALL).prepare(kg)
    trainer, network = predictor.trainer(), predictor.network_
    for _ in range(4):
        adjacency = trainer.message_graph(trainer.triples)
        before = network.encode(adjacency).detach()
        kept = {int(n) for n in adjacency.structure.source[adjacency.structure.direction == 0]}
        (silent,) = {0, 2} - kept  # the subject of the edge that was dropped
        with torch.no_grad():
            network.encoder.source.rows.trained[silent + 1] += 5.0
        changed = (network.encode(adjacency).detach() != before).any(1)
        assert torch.nonzero(changed).flatten().tolist() == [silent + 1]


def test_messages_come_from_training_triples_only():
    kg = ring()
    predictor = LinkPredictor(steps=1, **SMALL).prepare(kg)
    structure = predictor.trainer().adjacency.structure
    along = structure.direction == 0
    rows = torch.stack([structure.source, structure.relation, structure.target], 1)[along]
    assert sorted(rows.tolist()) == sorted(kg.split_triples("train").tolist())


def test_the_graph_is_not_encoded_again_for_every_evaluation_batch(monkeypatch):
    predictor = LinkPredictor(steps=4, evaluate_every=2, **SMALL).prepare(ring())
    calls = []
    predictor.network_.encoder.register_forward_hook(lambda *_: calls.append(predictor.network_.training))
    predictor.evaluate(split="test", memory_budget=1)
    assert calls == [False]
    encodings, make = [], VectorNetwork.make_scorer
    monkeypatch.setattr(VectorNetwork, "make_scorer", lambda *given: encodings.append(1) or make(*given))
    LinkPredictor(steps=4, evaluate_every=2, **SMALL).fit(ring())
    assert len(encodings) == 2  # once for each measurement


def test_ids_of_entities_and_relations_follow_the_triples_and_not_a_set():
    kg = ring()
    assert list(kg.relations) == ["r0", "r1"]
    assert list(kg.nodes)[:3] == ["n0", "n1", "n2"]


def test_validation_triples_are_in_the_filter_and_unseen_entities_in_the_ranking():
    rows = [("a", "r", "b"), ("a", "r", "valid"), ("a", "r", "unseen"), ("c", "r", "b")]
    kg = KnowledgeGraph.from_triples(rows, triple_splits=[TRAIN, VALID, TEST, TRAIN])
    predictor = LinkPredictor(encoder="none", steps=1, **SMALL).prepare(kg)
    vectors = {"a": 1.0, "b": 4.0, "valid": 3.0, "unseen": 2.0, "c": 0.5}
    with torch.no_grad():
        table = torch.tensor([[vectors[name]] for name in kg.nodes]).expand(-1, 6)
        predictor.network_.encoder.source.rows.trained.copy_(table)
        predictor.network_.decoder.relation.fill_(1.0)
    report = predictor.evaluate(split="test")
    assert report["by_direction"]["object"]["mrr"] == 1.0
    assert predictor.evaluate(split="test", filtered=False)["by_direction"]["object"]["mrr"] == pytest.approx(1 / 3)


def validation_figures(predictor):
    """Return every metric on validation triples that can select a model."""
    ranks = predictor.ranks(split="valid")
    report = evaluate_links(predictor, "valid")
    calibration = OpenModel(Path("nowhere"), "small", predictor, Titles(predictor.graph_)).calibration
    return {
        "history": [epoch["valid_mrr"] for epoch in predictor.history_],
        "evaluate": predictor.evaluate(split="valid"),
        "ranks": [ranks.rank(side).tolist() for side in ("object", "subject")],
        "after training": predictor.measure()["valid"],
        "report": {name: value for name, value in report.items() if name != "repeated_across_splits"},
        "calibration": calibration.as_dict(),
    }


def test_no_validation_metric_depends_on_test_triples():
    kg = ring()
    is_test = kg.triple_splits == TEST
    # Replace test triples by answers to the questions of validation triples: a filter with test triples would drop
    # them.
    triples_of_valid = np.resize(kg.split_triples("valid"), (int(is_test.sum()), 3))
    triples = np.array(kg.triples)
    triples[is_test] = np.stack(
        [triples_of_valid[:, 0], triples_of_valid[:, 1], (triples_of_valid[:, 2] + 11) % kg.num_nodes], axis=1
    )
    other = replace(kg, triples=triples)
    first, second = (LinkPredictor(steps=6, evaluate_every=2, **SMALL).fit(graph) for graph in (kg, other))
    assert validation_figures(first) == validation_figures(second)
    every = [predictor.ranks(split="valid", known=("train", "valid", "test")) for predictor in (first, second)]
    assert not torch.equal(every[0].rank("object"), every[1].rank("object"))  # it would have been seen
    assert first.evaluate(split="test") == first.evaluate(split="test", kg=kg)
    whole, filtered = first.ranks(split="test"), first.ranks(split="test", known=("train", "valid", "test"))
    assert torch.equal(whole.rank("object"), filtered.rank("object"))


@pytest.mark.parametrize("sampling", ["neighborhood", "uniform"])
def test_a_sampler_returns_when_the_graph_is_smaller_than_the_batch(sampling):
    rows = [("a", "r", "b"), ("c", "r", "d"), ("e", "r", "e")]  # disconnected, and one node alone with itself
    kg = KnowledgeGraph.from_triples(rows)
    predictor = LinkPredictor(steps=3, batch_edges=30_000, sampler=sampling, **SMALL).fit(kg)
    assert all(np.isfinite(epoch.loss) for epoch in predictor.history_)
