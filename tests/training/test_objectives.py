"""Compare objectives over all nodes and self-adversarial negatives with their definition, loops over Python sets in
float64."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import rgcn.sampling.known_triples
from naive import triple_lists
from rgcn.config import LinkTrainingConfig
from rgcn.nn.decoders import BatchScores
from rgcn.training.objectives import (
    BinaryCrossEntropy,
    ObjectivePlan,
    SampledCrossEntropy,
    SampledSoftmax,
    SelfAdversarial,
    SoftmaxCrossEntropy,
    UnfilteredSoftmax,
    both_directions,
    grouped_cross_entropy,
    without_directions,
)


class Table:
    """A network whose scores are a table [R, N, N], of (relation, subject, object), and which records its queries."""

    def __init__(self, num_nodes, num_relations, seed=0, dtype=torch.float64):
        generator = torch.Generator().manual_seed(seed)
        self.table = 3 * torch.randn(num_relations, num_nodes, num_nodes, generator=generator, dtype=torch.float64)
        self.table = self.table.to(dtype).requires_grad_()

    def score_nodes(self, adjacency, questions):
        self.questions = questions
        queries = zip(
            questions.node.tolist(), questions.relation.tolist(), questions.is_for_objects().tolist(), strict=True
        )
        return torch.stack([self.table[r, v] if for_objects else self.table[r, :, v] for v, r, for_objects in queries])

    def score_batch(self, adjacency, positives, negatives):
        def scored(triples):
            return self.table[triples[:, 1], triples[:, 0], triples[:, 2]]

        return BatchScores(scored(positives), scored(negatives.triples(positives)), self.table.square().mean())


def built(kind, triples, num_nodes, num_relations, **settings):
    rows = torch.tensor(triples, dtype=torch.int64).reshape(-1, 3)
    return kind.build(ObjectivePlan(LinkTrainingConfig(**settings), rows, num_nodes, num_relations))


def softplus(x):
    return torch.log1p(torch.exp(x))


def weighted(positive, negatives, temperature):
    """(-log σ(positive) - Σ w log σ(-negative)) / 2, written out."""
    total = sum(math.exp(temperature * x.item()) for x in negatives)
    parts = [math.exp(temperature * x.item()) / total * softplus(x) for x in negatives]
    return (softplus(-positive) + sum(parts)) / 2


def wrong_answers(triples, num_nodes, positive, asks_object):
    """Return the nodes that are not known answers to the question of a positive."""
    s, r, o = positive
    known = set(triples)
    return [v for v in range(num_nodes) if ((s, r, v) if asks_object else (v, r, o)) not in known]


def naive_among_all(kind, table, triples, num_nodes, positives, is_for_objects, temperature):
    losses = []
    for (s, r, o), asks_object in zip(positives, is_for_objects, strict=True):
        wrong = wrong_answers(triples, num_nodes, (s, r, o), asks_object)
        negatives = [table[r, s, v] if asks_object else table[r, v, o] for v in wrong]
        positive = table[r, s, o]
        if kind is SoftmaxCrossEntropy:
            losses.append(torch.log(sum(torch.exp(x) for x in [positive, *negatives])) - positive)
        else:
            losses.append(weighted(positive, negatives, temperature))
    return torch.stack(losses).mean()


def assert_same_value_and_gradient(ours, expected, table):
    torch.testing.assert_close(ours, expected)
    both = [torch.autograd.grad(loss, table, retain_graph=True)[0] for loss in (ours, expected)]
    torch.testing.assert_close(*both)


@pytest.mark.parametrize("kind", [SoftmaxCrossEntropy, BinaryCrossEntropy])
@given(
    triple_lists(max_triples=30),
    st.data(),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.sampled_from([0.0, 0.5, 2.0]),
    st.sampled_from([1, 3, 1 << 22]),
)
def test_other_known_answers_are_excluded_from_the_loss(kind, graph, data, heads, temperature, most_places):
    triples, num_nodes, num_relations = graph
    positives = data.draw(st.lists(st.sampled_from(triples), min_size=1, max_size=5)) if triples else [(0, 0, 0)]
    objective = built(
        kind, triples or positives, num_nodes, num_relations, head_probability=heads, temperature=temperature
    )
    network, rows = Table(num_nodes, num_relations), torch.tensor(positives)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rgcn.sampling.known_triples, "MAX_PADDED", most_places)  # in one block, and in many
        drawn = objective.draw(rows, torch.Generator().manual_seed(1))
        ours = objective.loss(network, None, rows, drawn)
    is_for_objects = network.questions.for_objects.tolist()
    if heads in (0.0, 1.0):
        assert is_for_objects == [heads == 0.0] * len(positives)
    expected = naive_among_all(
        kind, network.table, triples or positives, num_nodes, positives, is_for_objects, temperature
    )
    assert_same_value_and_gradient(ours, expected, network.table)


@given(triple_lists(max_triples=30), st.data(), st.sampled_from([0.0, 0.5, 2.0]), st.booleans())
def test_self_adversarial_negatives(graph, data, temperature, filtered):
    triples, num_nodes, num_relations = graph
    positives = data.draw(st.lists(st.sampled_from(triples), min_size=1, max_size=5)) if triples else [(0, 0, 0)]
    settings = {"negatives": 4, "temperature": temperature, "filtered_negatives": filtered, "penalty": 0.3}
    objective = built(SelfAdversarial, triples or positives, num_nodes, num_relations, **settings)
    network, rows = Table(num_nodes, num_relations), torch.tensor(positives)
    drawn = objective.draw(rows, torch.Generator().manual_seed(data.draw(st.integers(0, 99))))
    assert drawn.is_one_sided
    sides = drawn.is_subject.view(-1, 4)
    assert (sides == sides[:, :1]).all()
    ours = objective.loss(network, None, rows, drawn)
    known, losses = set(triples or positives), []
    corrupted = [tuple(t) for t in drawn.triples(rows).tolist()]
    for number, (s, r, o) in enumerate(positives):
        wrong = [t for t in corrupted[4 * number : 4 * number + 4] if t not in known]
        losses.append(weighted(network.table[r, s, o], [network.table[r, s, o] for s, r, o in wrong], temperature))
    expected = torch.stack(losses).mean() + 0.3 * network.table.square().mean()
    assert_same_value_and_gradient(ours, expected, network.table)


@pytest.mark.parametrize("kind", [SampledCrossEntropy, SelfAdversarial, SampledSoftmax])
@given(triple_lists(max_triples=30), st.data(), st.booleans(), st.integers(1, 6))
def test_shared_negatives(kind, graph, data, filtered, chunk):
    triples, num_nodes, num_relations = graph
    triples = triples or [(0, 0, 0)]
    positives = data.draw(st.lists(st.sampled_from(triples), min_size=1, max_size=5))
    settings = {"negatives": 3, "shared_by": chunk, "filtered_negatives": filtered, "penalty": 0.3}
    objective = built(kind, triples, num_nodes, num_relations, **settings)
    network, rows = Table(num_nodes, num_relations), torch.tensor(positives)
    drawn = objective.draw(rows, torch.Generator().manual_seed(data.draw(st.integers(0, 99))))
    ours = objective.loss(network, None, rows, drawn)
    table, losses, counted = network.table, [], []
    for number, (s, r, o) in enumerate(positives):
        for side in (0, 1):
            nodes = drawn.shared[side, number // drawn.chunk].tolist()
            wrong = [(s, r, v) if side == 0 else (v, r, o) for v in nodes]
            wrong = [table[q, a, b] for a, q, b in wrong if not (filtered and (a, q, b) in set(triples))]
            positive = table[r, s, o]
            if kind is SelfAdversarial:
                losses.append(weighted(positive, wrong, 1.0))
            elif kind is SampledSoftmax:
                losses.append(torch.log(sum(torch.exp(x) for x in [positive, *wrong])) - positive)
            else:  # excluded answers add no loss, and the mean is over all drawn ones
                losses += [softplus(x) for x in wrong]
        counted += [softplus(-table[r, s, o])]
    if kind is SampledCrossEntropy:
        expected = (sum(losses) + sum(counted)) / (len(positives) * (1 + 2 * 3))
    else:
        expected = torch.stack(losses).mean()
    assert_same_value_and_gradient(ours, expected + 0.3 * table.square().mean(), table)


@given(triple_lists(max_triples=30), st.data())
def test_softmax_over_drawn_answers(graph, data):
    triples, num_nodes, num_relations = graph
    positives = data.draw(st.lists(st.sampled_from(triples), min_size=1, max_size=5)) if triples else [(0, 0, 0)]
    objective = built(SampledSoftmax, triples or positives, num_nodes, num_relations, negatives=4, penalty=0.0)
    network, rows = Table(num_nodes, num_relations), torch.tensor(positives)
    drawn = objective.draw(rows, torch.Generator().manual_seed(5))
    ours = objective.loss(network, None, rows, drawn)
    corrupted, losses = drawn.triples(rows).tolist(), []
    for number, (s, r, o) in enumerate(positives):
        wrong = [network.table[q, a, b] for a, q, b in corrupted[4 * number : 4 * number + 4]]
        positive = network.table[r, s, o]
        losses.append(torch.log(sum(torch.exp(x) for x in [positive, *wrong])) - positive)
    assert_same_value_and_gradient(ours, torch.stack(losses).mean(), network.table)


def test_sides_follow_the_generator_and_the_probability():
    triples = [(0, 0, 1), (1, 0, 2), (2, 0, 0)] * 500
    objective = built(SoftmaxCrossEntropy, triples, 3, 1, head_probability=0.2)
    rows = torch.tensor(triples)
    first, second = (objective.draw(rows, torch.Generator().manual_seed(4)) for _ in range(2))
    assert torch.equal(first.questions.for_objects, second.questions.for_objects)
    assert first.questions.for_objects.float().mean().item() == pytest.approx(0.8, abs=0.04)
    asks = first.questions.for_objects
    assert torch.equal(first.questions.node, torch.where(asks, rows[:, 0], rows[:, 2]))
    assert torch.equal(first.answer, torch.where(asks, rows[:, 2], rows[:, 0]))


@pytest.mark.parametrize("kind", [SoftmaxCrossEntropy, BinaryCrossEntropy, SelfAdversarial])
def test_losses_of_half_precision_scores_are_computed_in_float32(kind):
    triples = [(s, 0, (s * 3 + 1) % 50) for s in range(50)]
    objective, rows = built(kind, triples, 50, 1, negatives=20, penalty=0.0), torch.tensor(triples)
    half = Table(50, 1, dtype=torch.bfloat16)
    whole = Table(50, 1)
    whole.table = half.table.detach().double().requires_grad_()
    losses = []
    for network in (half, whole):
        drawn = objective.draw(rows, torch.Generator().manual_seed(0))
        losses.append(objective.loss(network, None, rows, drawn))
    assert losses[0].dtype == torch.float32
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-5)


@pytest.mark.parametrize("kind", [SoftmaxCrossEntropy, BinaryCrossEntropy, SelfAdversarial])
def test_a_question_that_every_node_answers_has_a_finite_loss(kind):
    triples = [(0, 0, v) for v in range(4)]
    objective, rows = built(kind, triples, 4, 1, head_probability=0.0, negatives=3), torch.tensor(triples[:1])
    network = Table(4, 1)
    loss = objective.loss(network, None, rows, objective.draw(rows, torch.Generator()))
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(network.table.grad).all()


@pytest.mark.parametrize("kind", [SoftmaxCrossEntropy, BinaryCrossEntropy, SelfAdversarial])
def test_losses_do_not_synchronize_with_the_device(kind, monkeypatch):
    """Operations that synchronize with the device cannot be captured."""
    triples = [(s, 0, (s * 3 + 1) % 20) for s in range(20)]
    objective, rows = built(kind, triples, 20, 1, temperature=0.5), torch.tensor(triples)
    table = torch.randn(20, 20, requires_grad=True)

    class Recorded(Table):
        def score_nodes(self, adjacency, questions):
            return torch.where(questions.for_objects[:, None], table[questions.node], table.T[questions.node])

    network = Recorded(20, 1)

    def fail(*_, **__):
        raise AssertionError("a number was asked for")

    for name in ("item", "tolist", "nonzero", "__bool__", "__int__", "__index__", "cpu", "numpy"):
        monkeypatch.setattr(torch.Tensor, name, fail)
    for name in ("nonzero", "masked_select", "unique"):
        monkeypatch.setattr(torch, name, fail)
    drawn = objective.draw(rows, torch.Generator().manual_seed(0))
    objective.loss(network, None, rows, drawn)


def test_directed_triples_are_both_directions_and_come_back():
    triples = torch.tensor([[0, 1, 2], [3, 0, 3]])
    directed = both_directions(triples, 2)
    assert directed.tolist() == [[0, 1, 2], [3, 0, 3], [2, 3, 0], [3, 2, 3]]
    assert without_directions(directed, 2).tolist() == [*triples.tolist(), *triples.tolist()]


@given(triple_lists(max_nodes=5, max_relations=3), st.data())
def test_the_unfiltered_softmax_is_over_all_nodes(graph, data):
    """Each directed triple is a question; equal questions are computed once, and the loss and its gradient stay."""
    triples, num_nodes, num_relations = graph
    if not triples:
        return
    rows = both_directions(torch.tensor(triples), num_relations)
    picked = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=8))
    network = Table(num_nodes, num_relations)
    objective = built(UnfilteredSoftmax, triples, num_nodes, num_relations, penalty=0.0)
    loss = objective.loss(network, None, rows[picked], None)
    losses = []
    for v, r, answer in rows[picked].tolist():
        scores = network.table[r, v] if r < num_relations else network.table[r - num_relations, :, v]
        losses.append(torch.log(sum(torch.exp(x) for x in scores)) - scores[answer])
    expected = sum(losses) / len(losses)
    torch.testing.assert_close(loss, expected)
    gradients = [torch.autograd.grad(value, network.table, retain_graph=True)[0] for value in (loss, expected)]
    torch.testing.assert_close(*gradients)


def test_grouped_and_ungrouped_losses_are_equal():
    scores = torch.randn(3, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    group, answer = torch.tensor([0, 2, 0, 1, 2]), torch.tensor([6, 0, 6, 3, 1])
    grouped, apart = grouped_cross_entropy(scores, answer, group), grouped_cross_entropy(scores[group], answer)
    torch.testing.assert_close(grouped, apart)
    gradients = [torch.autograd.grad(loss, scores, retain_graph=True)[0] for loss in (grouped, apart)]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize(("regularizer", "power"), [("l2", 2), ("n3", 3)])
def test_the_penalty_is_on_the_factors_of_the_batch(regularizer, power):
    """Grouping does not change it: each directed triple counts with its node, its relation and its answer."""
    from rgcn.nn import NodeEmbedding, VectorNetwork
    from rgcn.nn.decoders import ComplEx
    from rgcn.nn.initialization import Initializer
    from rgcn.nn.relational_encoder import RelationalEncoder

    generator = torch.Generator().manual_seed(0)
    embedding = NodeEmbedding(5, 4, Initializer("normal"), generator)
    decoder = ComplEx(2, 4, generator=generator, reciprocal=True)
    network = VectorNetwork(RelationalEncoder(embedding, []), decoder).double()
    triples = [(0, 1, 2), (0, 1, 3), (4, 0, 0)]
    rows = both_directions(torch.tensor(triples), 2)[[0, 1, 1, 5]]
    settings = {"regularizer": regularizer, "objective": "softmax-unfiltered"}
    with_penalty = built(UnfilteredSoftmax, triples, 5, 2, penalty=0.5, **settings)
    without = built(UnfilteredSoftmax, triples, 5, 2, penalty=0.0, **settings)
    penalty = with_penalty.loss(network, None, rows, None) - without.loss(network, None, rows, None)
    expected, nodes = 0.0, embedding.rows.values().detach()
    for v, r, answer in rows.tolist():
        for factor in (nodes[v], decoder.relation[r].detach(), nodes[answer]):
            modulus = (factor[:2] ** 2 + factor[2:] ** 2).sqrt()
            expected += float((modulus**3).sum() if power == 3 else factor.square().mean()) / len(rows)
    assert penalty.item() == pytest.approx(0.5 * expected, rel=1e-10)
