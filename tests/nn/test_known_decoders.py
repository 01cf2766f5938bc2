"""Every built-in decoder, with and without reciprocal relations, against its equation in loops over Python numbers."""

from __future__ import annotations

import cmath
import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from rgcn.errors import ConfigError
from rgcn.nn.decoders import ComplEx, DistanceDecoder, DistMult, QueryDecoder, RotatE, TransE
from rgcn.sampling.negatives import corrupt, share

NODES, RELATIONS, WIDTH = 6, 3, 4
KINDS = [DistMult, ComplEx, TransE, RotatE]
every_decoder = pytest.mark.parametrize("reciprocal", [False, True], ids=["plain", "reciprocal"])
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


def make(kind: type[QueryDecoder], reciprocal: bool, biases: bool = False) -> tuple[QueryDecoder, Tensor]:
    generator = torch.Generator().manual_seed(1)
    options = {"num_nodes": NODES, "biases": True} if biases else {}
    decoder = kind(RELATIONS, WIDTH, generator=generator, reciprocal=reciprocal, **options).double()
    for parameter in decoder.parameters():
        parameter.data.normal_(generator=generator)
    return decoder, torch.randn(NODES, WIDTH, generator=generator, dtype=torch.float64)


def as_complex(vector: Sequence[float]) -> list[complex]:
    half = len(vector) // 2
    return [complex(a, b) for a, b in zip(vector[:half], vector[half:], strict=True)]


def equation(kind: type[QueryDecoder], s: list[float], r: list[float], o: list[float], margin: float) -> float:
    """f(s, r, o) as the paper of the decoder defines it."""
    if kind is DistMult:
        return sum(a * b * c for a, b, c in zip(s, r, o, strict=True))
    if kind is TransE:
        return margin - math.sqrt(sum((a + b - c) ** 2 for a, b, c in zip(s, r, o, strict=True)))
    subject, object_ = as_complex(s), as_complex(o)
    if kind is ComplEx:
        return sum((a * b * c.conjugate()).real for a, b, c in zip(subject, as_complex(r), object_, strict=True))
    turns = [cmath.exp(1j * angle) for angle in r]
    return margin - math.sqrt(sum(abs(a * b - c) ** 2 for a, b, c in zip(subject, turns, object_, strict=True)))


@torch.no_grad()
def naive(decoder: QueryDecoder, nodes: Tensor, s: int, r: int, o: int, for_object: bool = True) -> float:
    """The score as an answer to (s, r, ?), or to (?, r, o)."""
    if decoder.scores_directions_apart and not for_object:
        s, r, o = o, r + RELATIONS, s
    ends = nodes[s].tolist(), decoder.relation[r].tolist(), nodes[o].tolist()
    score = equation(type(decoder), *ends, getattr(decoder, "margin", 0.0))
    bias = getattr(decoder, "node_bias", None)
    if bias is not None:
        score += float(bias.trained[s, 0] + decoder.relation_bias[r] + bias.trained[o, 1])
    return score


def cubes(decoder: QueryDecoder, vectors: Tensor) -> list[list[list[list[float]]]]:
    """Scores [direction][subject][relation][object]; direction 0 asks for the object."""
    return [
        [[[naive(decoder, vectors, s, r, o, d) for o in range(NODES)] for r in range(RELATIONS)] for s in range(NODES)]
        for d in (True, False)
    ]


EVERY = torch.cartesian_prod(torch.arange(NODES), torch.arange(RELATIONS), torch.arange(NODES))
CASES = [(kind, reciprocal, False) for kind in KINDS for reciprocal in (False, True)]
CASES += [(kind, reciprocal, True) for kind in (DistMult, ComplEx) for reciprocal in (False, True)]
every_case = pytest.mark.parametrize(
    ("kind", "reciprocal", "biases"), CASES, ids=lambda value: getattr(value, "__name__", str(value))
)


@every_case
def test_scores_equal_the_equation(kind, reciprocal, biases):
    decoder, vectors = make(kind, reciprocal, biases)
    nodes, expected = decoder.prepare(vectors), torch.tensor(cubes(decoder, vectors), dtype=torch.float64)
    s, r, o = EVERY.unbind(1)
    torch.testing.assert_close(decoder.score(nodes[s], r, nodes[o]), expected.mean(0)[s, r, o])
    directions = decoder.score_directions(nodes[s], r, nodes[o])
    assert len(directions) == 1 + reciprocal
    torch.testing.assert_close(directions, expected[: 1 + reciprocal, s, r, o])

    node, relation = torch.cartesian_prod(torch.arange(NODES), torch.arange(RELATIONS)).unbind(1)
    torch.testing.assert_close(decoder.score_objects(nodes[node], relation, nodes), expected[0][node, relation])
    by_object = expected[1].permute(2, 1, 0)
    torch.testing.assert_close(decoder.score_subjects(relation, nodes[node], nodes), by_object[node, relation])
    sides = torch.arange(len(node)) % 3 == 0
    mixed = torch.where(sides[:, None], expected[0][node, relation], by_object[node, relation])
    out = torch.empty_like(mixed)
    with torch.no_grad():
        for memory in (None, out):
            torch.testing.assert_close(decoder.score_questions(nodes[node], relation, sides, nodes, memory), mixed)


@every_case
def test_batches_equal_their_triples(kind, reciprocal, biases):
    """Scores of positives, of drawn and of shared negatives, and the mean squares, with gradients."""
    decoder, vectors = make(kind, reciprocal, biases)
    generator, expected = torch.Generator().manual_seed(2), torch.tensor(cubes(decoder, vectors), dtype=torch.float64)
    positives = EVERY[torch.randperm(len(EVERY), generator=generator)[:7]]
    s, r, o = positives.unbind(1)
    drawn = corrupt(positives, NODES, rate=3, generator=generator)
    shared = share(positives, NODES, rate=4, chunk=3, generator=generator)
    for negatives in (drawn, shared):
        scores = decoder.score_batch(decoder.prepare(vectors), positives, negatives)
        torch.testing.assert_close(scores.positive, expected[:, s, r, o].mean(0))
        assert (scores.directions is None) == (not reciprocal)
        if reciprocal:
            torch.testing.assert_close(scores.directions, expected[:, s, r, o])
        a, b, c = negatives.triples(positives).unbind(1)
        negative = torch.where(negatives.is_subject, expected[1, a, b, c], expected[0, a, b, c])
        torch.testing.assert_close(scores.negative, negative)
        rows = torch.cat([positives, negatives.triples(positives)])
        table = decoder.relation_vectors().detach()
        squares = table.square().mean(1)
        relation = squares.view(-1, RELATIONS).mean(0) if reciprocal else squares
        mean = vectors[rows[:, 0]].square().mean() + relation[rows[:, 1]].mean() + vectors[rows[:, 2]].square().mean()
        torch.testing.assert_close(scores.squares, mean)
        prepared = decoder.prepare(vectors)
        torch.testing.assert_close(decoder.penalty(prepared[rows[:, 0]], rows[:, 1], prepared[rows[:, 2]]), mean)


@every_case
def test_gradients(kind, reciprocal, biases):
    decoder, vectors = make(kind, reciprocal, biases)
    positives = torch.tensor([[0, 2, 4], [1, 2, 1], [1, 0, 3]])
    s, r, o = positives.unbind(1)
    shared = share(positives, NODES, rate=2, chunk=2, generator=torch.Generator().manual_seed(0))

    def outputs(x: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
        nodes = decoder.prepare(x)
        scores = decoder.score_questions(nodes[s], r, torch.tensor([True, False, True]), nodes)
        penalties = [decoder.factor_penalty(p, nodes[s], r, nodes[o], torch.ones(3).double()) for p in (2, 3)]
        # The sum of squares has a gradient of its own, which second evaluations with other values would not follow.
        return (*decoder.score_batch(nodes, positives, shared)[:2], scores, *penalties)

    assert torch.autograd.gradcheck(outputs, (vectors.requires_grad_(), *decoder.parameters()))


@every_kind
@every_decoder
def test_the_penalty_on_factors_is_the_mean_over_directed_triples(kind, reciprocal):
    decoder, vectors = make(kind, reciprocal)
    nodes = decoder.prepare(vectors)
    directed = [(0, 2, 4), (0, 2, 3), (1, 2 + RELATIONS, 1)]  # two answers to the first question
    count, answer = torch.tensor([2.0, 1.0]).double(), nodes[[4, 3, 1]]
    questions = nodes[[0, 1]], torch.tensor([2, 2 + RELATIONS])
    squares, n3 = 0.0, 0.0
    table = decoder.relation_vectors().detach()
    for node, relation, other in directed:
        row = table[relation if reciprocal else relation % RELATIONS]
        for factor in (vectors[node], row, vectors[other]):
            squares += float(factor.square().mean()) / len(directed)
            numbers = as_complex(factor.tolist()) if decoder.is_complex else factor.tolist()
            n3 += sum(abs(number) ** 3 for number in numbers) / len(directed)
    assert decoder.factor_penalty(2, *questions, answer, count).item() == pytest.approx(squares, rel=1e-12)
    assert decoder.factor_penalty(3, *questions, answer, count).item() == pytest.approx(n3, rel=1e-12)


@every_kind
def test_nodes_without_weights_of_the_decoder_have_no_biases(kind):
    decoder, vectors = make(kind, False, biases=kind in (DistMult, ComplEx))
    other, _ = make(kind, False)
    other.load_state_dict(decoder.state_dict(), strict=False)
    s, r, o = EVERY.unbind(1)
    nodes, plain = decoder.prepare_unknown(vectors), other.prepare(vectors)
    bias = decoder.relation_bias[r] if kind in (DistMult, ComplEx) else 0.0
    torch.testing.assert_close(decoder.score(nodes[s], r, nodes[o]) - bias, other.score(plain[s], r, plain[o]))


def test_the_same_vectors_are_at_distance_zero():
    """Rounding may make the squared distance negative: the score is the margin, and the gradient is finite."""
    decoder = TransE(1, 8, margin=2.0)
    decoder.relation.data.zero_()
    vectors = torch.full((3, 8), 1234.567, requires_grad=True)
    nodes = decoder.prepare(vectors)
    scores = decoder.score_objects(nodes, torch.zeros(3, dtype=torch.int64), nodes)
    scores.sum().backward()
    assert isinstance(decoder, DistanceDecoder)
    assert (scores.detach() - 2.0).abs().max() < 4.0  # ‖v‖² is 1.2e7, of which float32 keeps units
    assert torch.isfinite(vectors.grad).all()


@pytest.mark.parametrize("kind", [ComplEx, RotatE])
def test_complex_numbers_are_pairs(kind):
    with pytest.raises(ConfigError, match="5 is odd"):
        kind(2, 5)
