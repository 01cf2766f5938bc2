"""Test training steps of networks that hide the queried triples, and of objectives over all nodes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from test_link_training import edges_of

import rgcn
from naive import SmallGraph, naive_adjacency
from rgcn.errors import ConfigError, DataError
from rgcn.graph import KnowledgeGraph
from rgcn.models import LinkPredictor
from rgcn.models.growth import extended
from rgcn.nn.encoders import Encoder
from strangers.stranger_models import WalkNetwork


class HidingWalk(WalkNetwork):
    must_hide_triples = True


class HidingWalks(Encoder):
    @classmethod
    def build_link_network(cls, plan):
        return HidingWalk(plan)


def parallel(length=20, weighted=False):
    """Return a ring of three relations; every fourth triple also occurs twice, reversed, and with another relation."""
    triples = [(i, i % 3, (i + 1) % length) for i in range(length)]
    for s, r, o in triples[::4]:
        triples += [(s, r, o), (o, r, s), (s, (r + 1) % 3, o)]
    named = [(f"n{s}", f"r{r}", f"n{o}") for s, r, o in triples]
    weights = np.linspace(0.5, 2.0, len(named)) if weighted else None
    return KnowledgeGraph.from_triples(named, edge_weights=weights)


def hiding(kg, **settings):
    settings = {"embedding": 4, "layers": 2, "steps": 3, "device": "cpu", "batch_edges": 5, **settings}
    return LinkPredictor(encoder=HidingWalks, **settings).prepare(kg).trainer()


def hidden_by(positives, hidden):
    positive_set = {tuple(t) for t in positives.tolist()}
    pairs = {frozenset((s, o)) for s, _, o in positive_set}
    return lambda s, r, o: (s, r, o) in positive_set if hidden == "triple" else frozenset((s, o)) in pairs


@pytest.mark.parametrize("hidden", ["triple", "pair"])
@pytest.mark.parametrize("sampler", ["uniform", "shuffled", "neighborhood"])
def test_messages_pass_along_all_triples_except_the_queried_ones(hidden, sampler):
    kg = parallel()
    trainer = hiding(kg, hidden=hidden, sampler=sampler, edge_dropout=0.0, self_loop_dropout=0.0)
    with trainer.running():
        for _ in range(6):
            positives = next(trainer._batches)
            adjacency, is_hidden = trainer.message_graph(positives), hidden_by(positives, hidden)
            left = sorted(t for t in map(tuple, kg.triples.tolist()) if not is_hidden(*t))
            along, inverse, loops = edges_of(adjacency)
            assert along == inverse == left
            assert loops == list(range(kg.num_nodes))
            expected = naive_adjacency(SmallGraph(left, kg.num_nodes, kg.num_relations))
            torch.testing.assert_close(adjacency.to_dense().double(), expected, rtol=1e-6, atol=1e-6)


def test_other_triples_are_dropped_at_the_given_rate_and_hidden_ones_stay_hidden():
    kg = parallel(100)
    trainer = hiding(kg, edge_dropout=0.3, self_loop_dropout=0.0)
    positives, shares = trainer.triples[:5], []
    is_hidden = hidden_by(positives, "triple")
    left = [t for t in map(tuple, kg.triples.tolist()) if not is_hidden(*t)]
    for _ in range(20):
        along, inverse, _ = edges_of(trainer.message_graph(positives))
        assert along == inverse
        assert set(along) <= set(left)
        shares.append(len(along) / len(left))
    assert np.mean(shares) == pytest.approx(0.7, abs=0.04)
    assert len(set(shares)) > 1


def test_edge_weights_stay_where_messages_pass_over_the_whole_graph():
    kg = parallel(weighted=True)
    trainer = hiding(kg, edge_dropout=0.0, self_loop_dropout=0.0, normalization="none")
    adjacency = trainer.message_graph(trainer.triples[:2])
    hidden = hidden_by(trainer.triples[:2], "triple")
    kept = [w for t, w in zip(kg.triples.tolist(), kg.edge_weights.tolist(), strict=True) if not hidden(*t)]
    assert float(adjacency.weight.sum()) == pytest.approx(2 * sum(kept) + kg.num_nodes, rel=1e-5)
    with pytest.raises(DataError, match="carry no weights"):
        LinkPredictor("rgcn", embedding=4, batch_edges=5, device="cpu").prepare(kg)


@pytest.mark.parametrize(("batch", "size"), [(None, 17), (1000, 17), (7, 7), (1, 1)])
def test_some_edges_remain_for_messages(batch, size):
    kg = parallel(20)
    assert len(kg) == 35
    assert hiding(kg, batch_edges=batch).sampler.size == size


def test_a_network_that_hides_trains_resumes_and_learns():
    kg = parallel(30)
    settings = {"sampler": "shuffled", "objective": "softmax", "learning_rate": 0.02, "steps": 60, "batch_edges": 16}
    whole, first, second = (hiding(kg, **settings) for _ in range(3))
    losses = [float(loss) for loss in whole.losses()]
    assert np.mean(losses[-10:]) < np.mean(losses[:10])
    assert losses == [float(loss) for loss in first.losses()]
    second.restore(0, {**second.state(), "batches": 3})
    with second.running():
        batch = next(second._batches)
    third = hiding(kg, **settings)
    with third.running():
        assert torch.equal([next(third._batches) for _ in range(4)][-1], batch)


# -- objectives that look at all nodes, and the encoders there are -------------------------------------


@pytest.mark.parametrize("encoder", ["none", "rgcn", "c-rgcn"])
@pytest.mark.parametrize("objective", ["softmax", "softmax-unfiltered", "bce", "self-adversarial"])
def test_every_encoder_learns_with_every_objective(encoder, objective):
    kg = parallel(30)
    settings = {"embedding": 8, "steps": 40, "batch_edges": 40, "edge_dropout": 0.0, "device": "cpu", "bottleneck": 4}
    options = {"objective": objective, "sampler": "shuffled", "penalty": 0.0}
    predictor = LinkPredictor(encoder=encoder, **options, **settings).fit(kg)
    losses = [epoch.loss for epoch in predictor.history_]
    assert np.isfinite(losses).all()
    assert np.mean(losses[-5:]) < np.mean(losses[:5])


def test_distmult_with_softmax_learns_world():
    kg = rgcn.load("world")
    settings = {"embedding": 32, "batch_edges": 512, "sampler": "shuffled", "learning_rate": 0.05, "steps": 40}
    predictor = LinkPredictor(encoder="none", objective="softmax", device="cpu", **settings)
    untrained = predictor.prepare(kg).evaluate(split="valid")["mrr"]
    assert predictor.fit(kg).evaluate(split="valid")["mrr"] > 10 * untrained


def test_scores_that_exceed_the_memory_are_refused_before_training(monkeypatch):
    monkeypatch.setattr("rgcn.training.objectives.MAX_SCORES_PER_STEP", 200)
    predictor = LinkPredictor(encoder="none", embedding=4, objective="softmax", device="cpu")
    with pytest.raises(ConfigError, match=r"20 nodes for each of 35 triples.*batch_edges to 10 or less"):
        predictor.prepare(parallel()).trainer()
    LinkPredictor(encoder="none", embedding=4, objective="softmax", batch_edges=10, device="cpu").prepare(
        parallel()
    ).trainer()


@pytest.mark.parametrize("most", [1 << 30, 100])
def test_new_nodes_are_fitted_with_an_objective_over_all_nodes(most, monkeypatch):
    """New triples are fitted in batches if they are too many for one step."""
    kg = parallel(30)
    settings = {"embedding": 8, "bottleneck": 4, "steps": 5, "batch_edges": 3, "device": "cpu"}
    predictor = LinkPredictor("c-rgcn", objective="softmax", **settings).fit(kg)
    names = [(kg.nodes[s], kg.relations[r], kg.nodes[o]) for s, r, o in kg.triples.tolist()]
    larger = KnowledgeGraph.from_triples([*names, *[(f"new{i}", f"r{i % 3}", f"n{i}") for i in range(6)]])
    monkeypatch.setattr("rgcn.training.objectives.MAX_SCORES_PER_STEP", most)
    found = extended(predictor, larger, steps=3)
    rows = found.network_.source.rows.values()
    assert torch.isfinite(rows).all()
    assert torch.equal(rows[: kg.num_nodes], predictor.network_.source.rows.values())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("objective", ["softmax", "bce", "self-adversarial"])
def test_steps_over_all_nodes_are_recorded_on_a_gpu(objective):
    settings = {"objective": objective, "batch_edges": 16, "sampler": "shuffled", "steps": 8, "device": "cuda"}

    def trainer():
        return LinkPredictor("rgcn", embedding=4, **settings).prepare(parallel()).trainer()

    recorded, plain = trainer(), trainer()
    plain.recording = None
    ours = [(float(loss), recorded.recording.graph is not None) for loss in recorded.losses()]
    theirs = [float(loss) for loss in plain.losses()]
    assert ours[-1][1]
    assert [loss for loss, _ in ours] == pytest.approx(theirs, rel=1e-3)
