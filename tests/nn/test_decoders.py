"""Compare decoders with a definition in loops."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rgcn.errors import ConfigError
from rgcn.nn.decoders import BilinearDecoder, Decoder, DistMult
from rgcn.nn.initialization import Initializer

NODES, RELATIONS, WIDTH = 5, 3, 4


def make(biases: bool) -> tuple[DistMult, Tensor]:
    generator = torch.Generator().manual_seed(1)
    decoder = DistMult(RELATIONS, WIDTH, NODES, biases=biases, generator=generator).double()
    if biases:
        assert decoder.node_bias is not None
        assert decoder.relation_bias is not None
        for bias in (decoder.node_bias.trained, decoder.relation_bias):
            bias.data.normal_(generator=generator)
    return decoder, torch.randn(NODES, WIDTH, generator=generator, dtype=torch.float64)


@torch.no_grad()
def naive(decoder: DistMult, nodes: Tensor, s: int, r: int, o: int) -> float:
    total = sum(float(nodes[s, i] * decoder.relation[r, i] * nodes[o, i]) for i in range(WIDTH))
    if decoder.node_bias is not None and decoder.relation_bias is not None:
        of_node = decoder.node_bias.trained
        total += float(of_node[s, 0] + decoder.relation_bias[r] + of_node[o, 1])
    return total


@pytest.mark.parametrize("biases", [False, True])
def test_scores_equal_the_definition(biases: bool) -> None:
    decoder, vectors = make(biases)
    nodes = decoder.prepare(vectors)
    every = torch.cartesian_prod(torch.arange(NODES), torch.arange(RELATIONS), torch.arange(NODES))
    expected = torch.tensor([naive(decoder, vectors, *triple) for triple in every.tolist()], dtype=torch.float64)
    subject, relation, object_ = every.unbind(1)
    torch.testing.assert_close(decoder.score(nodes[subject], relation, nodes[object_]), expected)

    cube = expected.view(NODES, RELATIONS, NODES)
    s, r = torch.cartesian_prod(torch.arange(NODES), torch.arange(RELATIONS)).unbind(1)
    torch.testing.assert_close(decoder.score_objects(nodes[s], r, nodes), cube[s, r])
    torch.testing.assert_close(decoder.score_subjects(r, nodes[s], nodes), cube[:, r, s].T)


@pytest.mark.parametrize("biases", [False, True])
def test_prepare_selects_the_biases_of_its_nodes(biases: bool) -> None:
    decoder, vectors = make(biases)
    some = torch.tensor([3, 1])
    torch.testing.assert_close(decoder.prepare(vectors[some], some), decoder.prepare(vectors)[some])


@pytest.mark.parametrize("biases", [False, True])
def test_penalty_is_the_mean_of_squares_over_the_scored_triples(biases: bool) -> None:
    decoder, vectors = make(biases)
    nodes = decoder.prepare(vectors)
    s, r, o = torch.tensor([0, 1, 1]), torch.tensor([2, 2, 0]), torch.tensor([4, 4, 3])
    rows = (vectors[s], decoder.relation[r], vectors[o])
    expected = sum(sum(x.item() ** 2 for x in row.flatten()) / row.numel() for row in rows)
    assert decoder.penalty(nodes[s], r, nodes[o]).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("biases", [False, True])
def test_gradients(biases: bool) -> None:
    decoder, vectors = make(biases)
    s, r, o = torch.tensor([0, 1, 1]), torch.tensor([2, 2, 0]), torch.tensor([4, 1, 3])

    def everything(x: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
        nodes = decoder.prepare(x)
        return (
            decoder.score(nodes[s], r, nodes[o]),
            decoder.score_objects(nodes[s], r, nodes),
            decoder.score_subjects(r, nodes[o], nodes),
            decoder.penalty(nodes[s], r, nodes[o]),
        )

    assert torch.autograd.gradcheck(everything, (vectors.requires_grad_(), *decoder.parameters()))


def test_relations_use_the_given_initializer_and_biases_start_at_zero() -> None:
    decoder = DistMult(200, 100, 7, biases=True, generator=torch.Generator().manual_seed(0))
    assert decoder.relation.std().item() == pytest.approx(1.0, rel=0.02)
    assert decoder.node_bias is not None
    assert decoder.relation_bias is not None
    assert not decoder.node_bias.trained.any()
    assert not decoder.relation_bias.any()
    small = DistMult(200, 100, init=Initializer("normal", gain=0.1), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(small.relation, decoder.relation * 0.1)


def test_without_biases_relations_are_the_only_parameters() -> None:
    assert [name for name, _ in DistMult(2, 3).named_parameters()] == ["relation"]


def test_biases_need_the_number_of_nodes() -> None:
    with pytest.raises(ConfigError, match="number of nodes"):
        DistMult(2, 3, biases=True)


def test_a_decoder_can_be_subclassed_in_two_lines() -> None:
    class Rescal(BilinearDecoder):
        """f = sᵀ W_r o, with W_r stored as a row."""

        @staticmethod
        def relation_dim(dim: int) -> int:
            return dim * dim

        def object_query(self, subject: Tensor, relation: Tensor) -> Tensor:
            return torch.einsum("nd, nde -> ne", subject, relation.view(-1, self.dim, self.dim))

        def subject_query(self, relation: Tensor, object: Tensor) -> Tensor:
            return torch.einsum("nde, ne -> nd", relation.view(-1, self.dim, self.dim), object)

    generator = torch.Generator().manual_seed(0)
    decoder: Decoder = Rescal(2, WIDTH, generator=generator)
    nodes = torch.randn(NODES, WIDTH, generator=generator)
    r = torch.tensor([0, 1, 1])
    s, o = torch.tensor([0, 1, 2]), torch.tensor([4, 4, 0])
    direct = decoder.score(nodes[s], r, nodes[o])
    picked = torch.arange(3)
    torch.testing.assert_close(decoder.score_objects(nodes[s], r, nodes)[picked, o], direct)
    torch.testing.assert_close(decoder.score_subjects(r, nodes[o], nodes)[picked, s], direct)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_gpu_and_cpu_agree() -> None:
    decoder, vectors = make(biases=True)
    s, r = torch.tensor([0, 1]), torch.tensor([2, 0])
    expected = decoder.score_objects(decoder.prepare(vectors)[s], r, decoder.prepare(vectors))
    decoder, nodes = decoder.cuda(), vectors.cuda()
    prepared = decoder.prepare(nodes)
    torch.testing.assert_close(decoder.score_objects(prepared[s.cuda()], r.cuda(), prepared).cpu(), expected)


@pytest.mark.parametrize("biases", [False, True])
def test_dimension_one_is_accepted(biases: bool) -> None:
    decoder = DistMult(2, 1, 3, biases=biases)
    nodes, every = decoder.prepare(torch.randn(3, 1)), torch.tensor([0, 1, 2])
    relation = torch.tensor([0, 1, 0])
    diagonal = decoder.score(nodes, relation, nodes)
    torch.testing.assert_close(decoder.score_objects(nodes, relation, nodes)[every, every], diagonal)
    torch.testing.assert_close(decoder.score_subjects(relation, nodes, nodes)[every, every], diagonal)
