"""A training step of link prediction against the definition: scores, penalty, loss, edges that carry messages."""

from __future__ import annotations

import copy
import math
from functools import partial

import numpy as np
import pytest
import torch

import rgcn.nn.decoders.bilinear
import rgcn.training.objectives
from naive import SmallGraph, naive_adjacency
from rgcn.adjacency import RelationalAdjacency
from rgcn.config import LinkTrainingConfig
from rgcn.errors import ConfigError
from rgcn.graph import KnowledgeGraph
from rgcn.models import LinkPredictor
from rgcn.nn.decoders import BatchScores, Decoder, DistMult
from rgcn.sampling.negatives import Negatives, corrupt, share
from rgcn.training import plan as plans
from rgcn.training.link_trainer import learning_rate_factor
from rgcn.training.objectives import cross_entropy

NODES, RELATIONS, WIDTH = 7, 3, 4


def decoder_and_nodes(biases):
    generator = torch.Generator().manual_seed(1)
    decoder = DistMult(RELATIONS, WIDTH, NODES, biases=biases, generator=generator).double()
    if biases:
        decoder.node_bias.trained.data.normal_(generator=generator)
        decoder.relation_bias.data.normal_(generator=generator)
    vectors = torch.randn(NODES, WIDTH, generator=generator, dtype=torch.float64)
    return decoder, vectors.requires_grad_()


def random_triples(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.stack([torch.randint(n, (count,), generator=generator) for n in (NODES, RELATIONS, NODES)], 1)


def naive_scores(decoder, vectors, triples):
    scores = []
    for s, r, o in triples.tolist():
        score = sum(vectors[s, i] * decoder.relation[r, i] * vectors[o, i] for i in range(WIDTH))
        if decoder.node_bias is not None:
            of_node = decoder.node_bias.trained
            score = score + of_node[s, 0] + decoder.relation_bias[r] + of_node[o, 1]
        scores.append(score)
    return torch.stack(scores)


@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize(("count", "rate", "heads"), [(5, 3, 0.5), (1, 1, 0.5), (4, 2, 0.0), (4, 2, 1.0)])
@pytest.mark.parametrize("large", [0, 1 << 25])
def test_score_batch_equals_the_scores_of_the_triples_written_out(biases, count, rate, heads, large, monkeypatch):
    monkeypatch.setattr(rgcn.nn.decoders.bilinear, "MIN_ONE_PASS_SIZE", large)
    decoder, vectors = decoder_and_nodes(biases)
    positives = random_triples(count)
    generator = torch.Generator().manual_seed(2)
    negatives = corrupt(positives, NODES, rate=rate, head_probability=heads, generator=generator)
    every = torch.cat([positives, negatives.triples(positives)])
    compare_with_triples_written_out(decoder, vectors, positives, negatives, every)


@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize(("count", "rate", "chunk"), [(6, 3, 2), (5, 2, 3), (1, 1, 1), (4, 2, 100)])
def test_shared_negatives_have_the_scores_of_explicit_triples(biases, count, rate, chunk):
    decoder, vectors = decoder_and_nodes(biases)
    positives = random_triples(count)
    negatives = share(positives, NODES, rate=rate, chunk=chunk, generator=torch.Generator().manual_seed(2))
    every = torch.cat([positives, negatives.triples(positives)])
    compare_with_triples_written_out(decoder, vectors, positives, negatives, every)


def compare_with_triples_written_out(decoder, vectors, positives, negatives, every):
    scores = decoder.score_batch(decoder.prepare(vectors), positives, negatives)
    expected = naive_scores(decoder, vectors, every)
    ours = torch.cat([scores.positive, scores.negative])
    torch.testing.assert_close(ours, expected)

    inputs = [vectors, *decoder.parameters()]
    cotangent = torch.randn(len(every), generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    for a, b in zip(
        torch.autograd.grad(ours, inputs, cotangent, retain_graph=True),
        torch.autograd.grad(expected, inputs, cotangent, retain_graph=True),
        strict=True,
    ):
        torch.testing.assert_close(a, b)

    nodes = decoder.prepare(vectors)
    # The generic implementation of every decoder.
    for a, b in zip(Decoder.score_batch(decoder, nodes, positives, negatives), scores, strict=True):
        torch.testing.assert_close(a, b)
    s, r, o = every.unbind(1)
    penalty = decoder.penalty(nodes[s], r, nodes[o])
    torch.testing.assert_close(scores.squares, penalty)
    inputs = [vectors, decoder.relation]
    for a, b in zip(torch.autograd.grad(scores.squares, inputs), torch.autograd.grad(penalty, inputs), strict=True):
        torch.testing.assert_close(a, b)


def test_loss_is_the_mean_over_positives_and_negatives_alike():
    positive, negative = torch.tensor([1.0, -2.0]), torch.tensor([0.5, 3.0, -1.0, 0.0])
    terms = [math.log1p(math.exp(-x)) for x in positive.tolist()] + [math.log1p(math.exp(x)) for x in negative.tolist()]
    assert cross_entropy(BatchScores(positive, negative, torch.zeros(()))).item() == pytest.approx(sum(terms) / 6)


def test_loss_of_many_scores_is_the_same(monkeypatch):
    scores = BatchScores(torch.tensor([1.0, -2.0]), torch.tensor([0.5, 3.0, -1.0, 0.0]), torch.zeros(()))
    few = cross_entropy(scores)
    monkeypatch.setattr(rgcn.training.objectives, "MAX_CONCATENATED", 1)
    torch.testing.assert_close(cross_entropy(scores), few)


# -- learning rates ------------------------------------------------------------------------------------


def factors(numbers, **settings):
    factor = partial(learning_rate_factor, LinkTrainingConfig(**settings))
    return [factor(step) for step in numbers]


def test_schedules():
    assert factors(range(5), steps=5) == [1.0] * 5
    assert factors((0, 1, 2, 3, 4), steps=5, warmup=4) == [0.25, 0.5, 0.75, 1.0, 1.0]
    halves = factors((0, 1, 2, 3, 4, 5), steps=6, schedule="step", step_every=2, step_factor=0.5)
    assert halves == [1, 1, 0.5, 0.5, 0.25, 0.25]
    assert factors((1, 2, 3, 4), steps=6, schedule="step", step_every=2, warmup=2) == [1.0, 1.0, 1.0, 0.5]
    cosine = factors(range(11), steps=10, schedule="cosine")
    assert cosine[0] == 1.0
    assert cosine[5] == pytest.approx(0.5)
    assert cosine[10] == pytest.approx(0.0)
    assert cosine == sorted(cosine, reverse=True)
    assert factors((0, 50), steps=3, schedule="cosine", warmup=100) == [0.01, 0.51]


def test_the_optimizer_is_given_the_scheduled_rate():
    predictor = LinkPredictor(encoder="none", embedding=4, steps=4, schedule="step", step_every=1, learning_rate=0.1)
    trainer = predictor.prepare(chains()).trainer()
    rates = []
    with trainer.running():
        for _ in range(4):
            trainer.step()
            rates.append(float(trainer.optimizer.param_groups[0]["lr"]))
    assert rates == pytest.approx([0.1, 0.05, 0.025, 0.0125])


class SlowNodes(torch.optim.SGD):
    """Trains the first parameter, the node table, at a tenth of the rate of all others."""

    def __init__(self, params, lr, weight_decay):
        first, *others = params
        super().__init__([{"params": [first], "lr": lr / 10}, {"params": others}], lr=lr, weight_decay=weight_decay)


HALVING = {"optimizer": SlowNodes, "schedule": "step", "step_every": 1, "learning_rate": 0.1, "batch_edges": 5}


def test_a_schedule_scales_the_rate_of_each_parameter_group():
    trainer = trainer_of(chains(), "none", epochs=3, **HALVING)
    rates = []
    with trainer.running():
        for _ in range(3):
            trainer.step()
            rates.append([group["lr"] for group in trainer.optimizer.param_groups])
    assert rates == [pytest.approx([rate / 10, rate]) for rate in (0.1, 0.05, 0.025)]


def test_a_resumed_training_gives_each_parameter_group_its_rate():
    fittings = [
        LinkPredictor(encoder="none", embedding=4, steps=4, seed=1, device="cpu", **HALVING).fitting(chains())
        for _ in range(2)
    ]
    first, second = fittings
    with first:
        first.step(), first.step()
        state = copy.deepcopy(first.state())
        first.step(), first.step()
    with second:
        second.restore(state)
        second.step(), second.step()
    assert [group["lr"] for group in second.optimizer.param_groups] == pytest.approx([0.00125, 0.0125])
    for ours, theirs in zip(first.network.parameters(), second.network.parameters(), strict=True):
        assert torch.equal(ours, theirs)


# -- edges that carry messages -------------------------------------------------------------------------


def chains(length=20):
    triples = [(f"n{i}", f"r{i % 3}", f"n{(i * 7 + 1) % length}") for i in range(length)]
    return KnowledgeGraph.from_triples([*triples, ("n0", "r0", "n5"), ("n3", "r1", "n3")])


def trainer_of(kg, encoder="rgcn", **settings):
    settings = {"embedding": 4, "steps": 2, "device": "cpu", **settings}
    return LinkPredictor(encoder=encoder, **settings).prepare(kg).trainer()


def edges_of(adjacency):
    """Return (edges, inverse edges, self-loops), each as a set of triples with weights."""
    s, r = adjacency.structure, adjacency.structure.num_data_relations
    rows = zip(s.source.tolist(), s.relation.tolist(), s.target.tolist(), s.direction.tolist(), strict=True)
    out = [[], [], []]
    for (a, k, b, d), weight in zip(rows, adjacency.weight.tolist(), strict=True):
        if weight:
            out[d].append((a, k, b) if d == 0 else (b, k - r, a) if d == 1 else a)
    return [sorted(part) for part in out]


@pytest.mark.parametrize("sampling", ["neighborhood", "uniform"])
@pytest.mark.parametrize("rate", [0.0, 0.3, 0.5, 0.9])
def test_sampled_messages_pass_over_a_part_of_the_sampled_edges_and_leak_no_other(sampling, rate):
    kg = chains()
    trainer = trainer_of(kg, batch_edges=10, sampler=sampling, edge_dropout=rate, self_loop_dropout=0.0)
    batches = trainer.batches()
    seen = set()
    for _ in range(5):
        positives = next(batches)
        assert positives.shape == (10, 3)
        adjacency = trainer.message_graph(positives)
        along, inverse, loops = edges_of(adjacency)
        assert len(along) == max(1, round(10 * (1 - rate)))
        assert inverse == along  # inverses of dropped edges are dropped too
        remaining = [tuple(row) for row in positives.tolist()]
        for edge in along:
            remaining.remove(edge)  # each is a sampled triple, as often as it was sampled
        assert loops == list(range(kg.num_nodes))
        graph = SmallGraph(along, kg.num_nodes, kg.num_relations)  # normalized over the kept edges only
        torch.testing.assert_close(adjacency.to_dense().double(), naive_adjacency(graph), rtol=1e-6, atol=1e-6)
        seen.add(tuple(along))
    batches.close()
    assert len(seen) > 1


@pytest.mark.parametrize("objective", ["sampled-bce", "softmax-unfiltered"])
@pytest.mark.parametrize("message_edges", ["batch", "graph", "graph-without-batch"])
def test_messages_pass_over_the_edges_that_the_settings_name(objective, message_edges):
    """All edges, those of the batch, or all others; the ends and the direction of a question do not matter."""
    kg = chains()
    nothing_dropped = {"edge_dropout": 0.0, "self_loop_dropout": 0.0, "sampler": "shuffled"}
    trainer = trainer_of(kg, batch_edges=10, objective=objective, message_edges=message_edges, **nothing_dropped)
    positives = next(trainer.batches())
    assert len(positives) == 10
    batch = {(s, r, o) if r < kg.num_relations else (o, r - kg.num_relations, s) for s, r, o in positives.tolist()}
    if objective == "softmax-unfiltered":
        assert any(r >= kg.num_relations for _, r, _ in positives.tolist())
    every = set(map(tuple, kg.triples.tolist()))
    expected = {"batch": batch, "graph": every, "graph-without-batch": every - batch}[message_edges]
    adjacency = trainer.message_graph(positives)
    along, inverse, _ = edges_of(adjacency)
    assert along == inverse
    assert set(along) == expected
    if message_edges != "batch" or objective == "softmax-unfiltered":
        assert len(along) == len(set(along))  # a triple that is asked in both directions is one edge
    graph = SmallGraph(along, kg.num_nodes, kg.num_relations)
    torch.testing.assert_close(adjacency.to_dense().double(), naive_adjacency(graph), rtol=1e-6, atol=1e-6)
    assert np.isfinite(float(trainer.step()))


def test_sampled_steps_drop_self_loops_at_their_own_rate():
    kg = chains(200)
    trainer = trainer_of(kg, batch_edges=50, edge_dropout=0.0, self_loop_dropout=0.2)
    positives = next(trainer.batches())
    kept = [len(edges_of(trainer.message_graph(positives))[2]) for _ in range(20)]
    assert sum(kept) / (20 * 200) == pytest.approx(0.8, abs=0.03)
    apart = {"decomposition": "block", "blocks": 2, "self_loop_dropout_on": "message"}
    trainer = trainer_of(kg, batch_edges=50, self_loop_dropout=0.2, **apart)
    assert len(edges_of(trainer.message_graph(positives))[2]) == 200
    trainer = trainer_of(kg, self_loop_dropout=0.2, edge_dropout=0.0, **apart)
    assert trainer.message_graph(positives) is trainer.adjacency


def test_whole_graph_steps_drop_a_triple_with_its_inverse_and_normalize_again():
    kg = chains(60)
    trainer = trainer_of(kg, edge_dropout=0.3, self_loop_dropout=0.1)
    positives = next(trainer.batches())
    assert positives is trainer.triples
    every = sorted(map(tuple, kg.triples.tolist()))
    shares = []
    for _ in range(10):
        adjacency = trainer.message_graph(positives)
        along, inverse, loops = edges_of(adjacency)
        assert along == inverse
        assert set(along) <= set(every)
        expected = naive_adjacency(SmallGraph(along, kg.num_nodes, kg.num_relations))
        missing = sorted(set(range(60)) - set(loops))
        expected[-1, missing, missing] = 0
        torch.testing.assert_close(adjacency.to_dense().double(), expected, rtol=1e-6, atol=1e-6)
        shares.append((len(along) / len(every), len(loops) / 60))
    assert sum(a for a, _ in shares) / 10 == pytest.approx(0.7, abs=0.08)
    assert sum(b for _, b in shares) / 10 == pytest.approx(0.9, abs=0.06)
    nothing_dropped = trainer_of(kg, edge_dropout=0.0, self_loop_dropout=0.0)
    assert nothing_dropped.message_graph(positives) is nothing_dropped.adjacency


def test_whole_graph_messages_equal_the_naive_operator_of_what_was_kept():
    kg = chains()
    trainer = trainer_of(kg, edge_dropout=0.5, self_loop_dropout=0.0, normalization="direction")
    adjacency = trainer.message_graph(trainer.triples)
    graph = SmallGraph(edges_of(adjacency)[0], kg.num_nodes, kg.num_relations, normalization="direction")
    torch.testing.assert_close(adjacency.to_dense().double(), naive_adjacency(graph), rtol=1e-6, atol=1e-6)


def test_distmult_passes_no_messages():
    trainer = trainer_of(chains(), "none", batch_edges=5)
    assert trainer.message_graph(trainer.triples) is None


def test_a_batch_larger_than_the_graph_is_the_graph():
    kg = chains()
    for sampling in ("uniform", "neighborhood"):
        trainer = trainer_of(kg, batch_edges=10_000, sampler=sampling)
        batches = trainer.batches()
        assert sorted(next(batches).tolist()) == sorted(kg.triples.tolist())
        batches.close()
        assert all(torch.isfinite(loss) for loss in trainer.losses())


# -- a step --------------------------------------------------------------------------------------------


def test_a_step_is_adam_on_loss_and_penalty(monkeypatch):
    """Compute one step by definition: the same random draws, the loss, plain Adam."""
    kg = chains()
    settings = {"edge_dropout": 0.0, "self_loop_dropout": 0.0, "penalty": 0.3, "decoder_biases": True, "clip": 0.05}
    trainer, twin = (trainer_of(kg, **settings) for _ in range(2))
    loss = trainer.step_on(trainer.triples)

    network, positives = twin.network, twin.triples
    negatives = corrupt(positives, kg.num_nodes, rate=10, generator=twin.generator)
    every = torch.cat([positives, negatives.triples(positives)])
    s, r, o = every.unbind(1)
    nodes = network.encode(twin.adjacency)
    scores = network.decoder.score(nodes[s], r, nodes[o])
    truth = (torch.arange(len(every)) < len(positives)).float()
    expected = torch.nn.functional.binary_cross_entropy_with_logits(scores, truth)
    expected = expected + 0.3 * network.decoder.penalty(nodes[s], r, nodes[o])
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    expected.backward()
    norm = torch.stack([p.grad.norm() for p in network.parameters()]).norm()
    assert norm > 0.05
    for (name, ours), parameter in zip(trainer.network.named_parameters(), network.parameters(), strict=True):
        clipped = parameter.grad * (0.05 / norm)
        torch.testing.assert_close(ours.grad, clipped, rtol=1e-3, atol=1e-6, msg=name)
    total = torch.stack([p.grad.norm() for p in trainer.network.parameters()]).norm()
    assert float(total) == pytest.approx(0.05, rel=1e-3)


def test_filtered_negatives_are_no_training_triples(monkeypatch):
    kg = chains()
    trainer = trainer_of(kg, filtered_negatives=True)
    known = set(map(tuple, kg.triples.tolist()))
    drawn = []

    def spy(*arguments, **options):
        drawn.append(corrupt(*arguments, **options))
        return drawn[-1]

    monkeypatch.setattr("rgcn.training.objectives.corrupt", spy)
    trainer.step_on(trainer.triples)
    (negatives,) = drawn
    assert isinstance(negatives, Negatives)
    assert not known & set(map(tuple, negatives.triples(trainer.triples).tolist()))


def test_a_step_after_an_evaluation_is_in_training_mode_and_drops_cached_encodings():
    kg = chains()
    predictor = LinkPredictor("rgcn", embedding=4, steps=5, device="cpu").prepare(kg)
    trainer = predictor.trainer()
    trainer.step_on(trainer.triples)
    before = predictor.scorer().nodes
    assert not predictor.network_.training
    trainer.step_on(trainer.triples)
    assert predictor.network_.training
    assert not torch.equal(predictor.scorer().nodes, before)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("batch", [None, 10])
def test_captured_steps_on_a_gpu_equal_uncaptured_ones(batch):
    kg = chains()
    settings = {"batch_edges": batch, "steps": 8, "device": "cuda", "schedule": "cosine"}
    recorded, plain = (trainer_of(kg, **settings) for _ in range(2))
    plain.recording = None
    ours = [(float(loss), recorded.recording.graph is not None) for loss in recorded.losses()]
    theirs = [float(loss) for loss in plain.losses()]
    assert ours[-1][1]
    assert [loss for loss, _ in ours] == pytest.approx(theirs, rel=1e-3)


def test_the_operator_of_a_step_is_marked_as_passing():
    trainer = trainer_of(chains(), batch_edges=10)
    adjacency = trainer.message_graph(trainer.triples[:10])
    assert isinstance(adjacency, RelationalAdjacency)
    assert adjacency.structure.transient
    assert not trainer.adjacency.structure.transient


def test_a_step_does_not_check_its_rows_again(monkeypatch):
    """The check synchronizes with the device, and a step that synchronizes cannot be captured."""
    trainer = trainer_of(chains(), batch_edges=10)

    def fail(*_):
        raise AssertionError("the numbers were checked in a step")

    monkeypatch.setattr("rgcn.adjacency.operator.check_triple_ids", fail)
    trainer.step_on(trainer.triples[:10])
    with pytest.raises(AssertionError):
        RelationalAdjacency.from_triples(trainer.triples, 1000, 1000, transient=True)


# -- rows that a batch touched -------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["lazy-adam", "row-adagrad"])
@pytest.mark.parametrize("encoder", ["none", "c-rgcn", "rgcn"])
@pytest.mark.parametrize("shared_by", [None, 2])
def test_only_rows_that_a_batch_touched_move(encoder, optimizer, shared_by):
    settings = {"embedding": 4, "bottleneck": 2, "batch_edges": 3, "negatives": 2, "decoder_biases": True, "clip": 0.5}
    options = {"optimizer": optimizer, "shared_by": shared_by, "sampler": "scattered"}
    predictor = LinkPredictor(encoder=encoder, **options, **settings)
    trainer = predictor.prepare(chains(60)).trainer()
    tables = trainer.network.node_tables()
    assert [len(table.trained) for table in tables] == [60, 60]
    before = [table.trained.detach().clone() for table in tables]
    trainer.step()
    for rows_of_nodes, old in zip(tables, before, strict=True):
        table = rows_of_nodes.trained
        assert table.grad is None
        [(rows, leaf)] = trainer.optimizer.gathered[rows_of_nodes]
        assert leaf.grad.shape == (len(rows), table.shape[1])
        assert 0 < len(rows) < 30
        still = torch.ones(60, dtype=torch.bool).index_fill(0, rows, False)
        assert torch.equal(table.detach()[still], old[still])
        assert not torch.equal(table.detach(), old)
        for state in trainer.optimizer.state[table].values():
            assert not state[still].any()


@pytest.mark.parametrize("encoder", ["none", "c-rgcn", "rgcn"])
def test_the_first_lazy_step_is_that_of_adam(encoder):
    """Moments begin at zero, so rows with a gradient take the same first step in both."""
    settings = {"embedding": 4, "bottleneck": 2, "batch_edges": 8, "decoder_biases": True, "edge_dropout": 0.0}
    settings |= {"self_loop_dropout": 0.0}
    states = []
    for optimizer in ("adam", "lazy-adam"):
        trainer = LinkPredictor(encoder=encoder, optimizer=optimizer, **settings).prepare(chains(40)).trainer()
        trainer.network.double()
        trainer.step()
        states.append(trainer.network.state_dict())
    for name, value in states[0].items():
        torch.testing.assert_close(value, states[1][name], rtol=1e-6, atol=1e-8)


def test_an_external_optimizer_can_be_used():
    predictor = LinkPredictor(encoder="none", embedding=4, epochs=2, optimizer=torch.optim.SGD).fit(chains())
    assert predictor.settings_["optimizer"] == "torch.optim.sgd:SGD"


def test_settings_for_large_graphs(monkeypatch):
    def chosen(kg, free=1 << 40, encoder="none", **settings):
        monkeypatch.setattr(plans, "available_bytes", lambda device: free)
        predictor = LinkPredictor(encoder=encoder, **settings)
        return plans.chosen_at_size(predictor.model, predictor.training, kg)

    kg = chains(50)
    assert chosen(kg) == {}
    monkeypatch.setattr(plans, "MIN_LARGE_TABLE", 50 * 200)
    assert chosen(kg) == {}  # every step sees all of it
    assert chosen(kg, batch_edges=5) == {"optimizer": "lazy-adam"}
    assert chosen(kg, batch_edges=5, encoder="rgcn", input="one-hot", decomposition="basis", bases=2) == {}
    assert chosen(kg, batch_edges=5, optimizer="adam") == {}
    assert chosen(kg, free=3 * 4 * 50 * 200, batch_edges=5) == {"optimizer": "row-adagrad"}
    assert chosen(kg, free=4 * 50 * 200, batch_edges=5) == {"optimizer": "row-adagrad", "tables": "disk"}
    assert chosen(kg, free=4 * 50 * 200, batch_edges=5, tables="memory") == {"optimizer": "row-adagrad"}
    assert chosen(kg, tables="disk") == {"optimizer": "lazy-adam"}
    with pytest.raises(ConfigError, match="lazy-adam or row-adagrad"):
        LinkPredictor(encoder="none", tables="disk", optimizer="adam")
