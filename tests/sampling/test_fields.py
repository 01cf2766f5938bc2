"""Test sampled receptive fields: all edges without a fan-out, uniform sets with one, unbiased mean messages."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from naive import small_graphs
from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.sampling import walk_loops as _walk
from rgcn.sampling.edges import FieldSampler, seed_words


def operator_of(graph):
    return RelationalAdjacency.from_triples(
        graph.tensor(), graph.num_nodes, graph.num_relations, edge_weights=graph.triple_weights(), **graph.choices()
    )


def drawn_nodes(data, graph):
    return torch.tensor(data.draw(st.lists(st.integers(0, graph.num_nodes - 1), unique=True, min_size=1)))


@given(graph=small_graphs(), data=st.data())
@settings(max_examples=40)
def test_without_a_fan_out_it_is_the_whole_field(graph, data):
    adjacency, nodes = operator_of(graph), drawn_nodes(data, graph)
    ours = FieldSampler(adjacency, 2).field(nodes, seed=1)
    whole = ReceptiveField.of(adjacency, nodes, 2)
    assert torch.equal(ours.inputs, whole.inputs)
    for layer, other in zip(ours.layers, whole.layers, strict=True):
        assert torch.equal(layer.weight, other.weight)
        for name in ("target", "relation", "source", "origin"):
            assert torch.equal(getattr(layer.structure, name), getattr(other.structure, name))


@given(graph=small_graphs(), data=st.data(), seed=st.integers(0, 99))
@settings(max_examples=40)
def test_dropped_edges_are_the_same_in_every_layer_and_the_rest_is_normalized_again(graph, data, seed):
    adjacency, nodes = operator_of(graph), drawn_nodes(data, graph)
    origins = np.arange(len(graph.triples) + graph.num_nodes)
    keep = np.empty(len(origins), dtype=np.float32)
    _walk.draw_mask(seed_words(seed)[0], origins, len(graph.triples), 0.4, 0.2, keep)
    expected, targets = adjacency.masked(torch.from_numpy(keep)).to_dense(), nodes
    fields = [FieldSampler(adjacency, depth, dropout=(0.4, 0.2)).field(nodes, seed) for depth in (1, 2)]
    for field in fields:  # a deeper field has one more layer below, whose targets are the inputs of the other
        sources, layer = field.inputs, field.layers[0]
        torch.testing.assert_close(layer.to_dense(), expected[:, targets][:, :, sources], rtol=1e-6, atol=1e-7)
        unread = torch.ones(graph.num_nodes, dtype=torch.bool).index_fill(0, sources, False)
        assert not expected[:, targets][:, :, unread].any()
        targets = sources


@given(graph=small_graphs(), data=st.data(), fan_out=st.integers(1, 3), seed=st.integers(0, 99))
@settings(max_examples=60)
def test_of_each_target_and_relation_so_many_edges_stay_and_stand_for_all(graph, data, fan_out, seed):
    adjacency, nodes = operator_of(graph), drawn_nodes(data, graph)
    field = FieldSampler(adjacency, 1, fan_out).field(nodes, seed)
    (drawn,), (whole,) = field.layers, ReceptiveField.of(adjacency, nodes, 1).layers
    ends = [
        list(zip(op.structure.target.tolist(), op.structure.relation.tolist(), strict=True)) for op in (drawn, whole)
    ]
    kept, degree = Counter(ends[0]), Counter(ends[1])
    assert kept == {end: min(fan_out, count) for end, count in degree.items()}
    assert ends[0] == sorted(ends[0])
    # Each is an edge of the graph, none twice, with its weight times degree / kept.
    structure = drawn.structure
    edges = [
        (target, relation, int(field.inputs[source]), origin)
        for target, relation, source, origin in zip(
            *(getattr(structure, name).tolist() for name in ("target", "relation", "source", "origin")), strict=True
        )
    ]
    known = {}
    inputs, other = ReceptiveField.of(adjacency, nodes, 1).inputs, whole.structure
    for number in range(other.num_edges):
        key = (int(other.target[number]), int(other.relation[number]), int(inputs[other.source[number]]))
        known[(*key, int(other.origin[number]))] = float(whole.weight[number])
    assert len(set(edges)) == len(edges)
    for edge, weight in zip(edges, drawn.weight.tolist(), strict=True):
        expected = known[edge] * degree[edge[:2]] / kept[edge[:2]]
        assert abs(weight - expected) <= 1e-6 * expected


def test_all_sets_of_edges_are_equally_likely_so_that_the_mean_message_is_that_of_all():
    triples = torch.tensor([[s, 0, 6] for s in range(6)] + [[s, 1, 6] for s in range(2)] + [[0, 2, 1]])
    weights = torch.rand(len(triples), generator=torch.Generator().manual_seed(0)).double() + 0.1
    adjacency = RelationalAdjacency.from_triples(triples, 7, 3, edge_weights=weights)
    sampler, draws = FieldSampler(adjacency, 1, fan_out=3), 2000
    sets, total = Counter(), torch.zeros(adjacency.num_relations, 7, dtype=torch.float64)
    for seed in range(draws):
        field = sampler.field(torch.tensor([6]), seed)
        layer = field.layers[0]
        total[:, field.inputs] += layer.to_dense()[:, 0]
        first = layer.structure.relation == 0
        sets[tuple(field.inputs[layer.structure.source[first]].tolist())] += 1
    assert set(sets) == set(combinations(range(6), 3))
    expected = draws / len(sets)
    chi_square = sum((count - expected) ** 2 / expected for count in sets.values())
    assert chi_square < 44  # 19 degrees of freedom: one seed in a thousand would be beyond
    # Sets alike, each edge in half of them and doubled: the mean over the sets is the whole, exactly.
    whole = adjacency.to_dense()[:, 6]
    mean = sum(
        torch.zeros(6, dtype=torch.float64).index_fill(0, torch.tensor(some), 2.0) * whole[0, :6] for some in sets
    ) / len(sets)
    torch.testing.assert_close(mean, whole[0, :6], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(total / draws, whole, rtol=0.06, atol=1e-6)
    assert torch.equal((total > 0), (whole > 0))


def test_a_field_follows_from_nodes_and_seed_alone_whatever_the_threads():
    generator = torch.Generator().manual_seed(1)
    triples = torch.stack([torch.randint(n, (5000,), generator=generator) for n in (200, 5, 200)], dim=1)
    adjacency = RelationalAdjacency.from_triples(triples, 200, 5)
    nodes, threads, found = torch.arange(0, 200, 7), torch.get_num_threads(), []
    try:
        for number in (1, 2):
            torch.set_num_threads(number)
            sampler = FieldSampler(adjacency, 2, fan_out=2, dropout=(0.1, 0.1))
            sampler.field(nodes, seed=(9, 9))  # earlier draws have no influence
            found.append(sampler.field(nodes, seed=(4, 2)))
    finally:
        torch.set_num_threads(threads)
    assert all(
        torch.equal(ours.weight, theirs.weight) and torch.equal(ours.structure.source, theirs.structure.source)
        for ours, theirs in zip(found[0].layers, found[1].layers, strict=True)
    )
    others = sampler.field(nodes, seed=(4, 3)).layers[-1].structure.origin
    assert others.tolist() != found[0].layers[-1].structure.origin.tolist()
