"""Compare relation overlaps and relation vectors with definitions by sets and loops, in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rgcn.adjacency import RelationalAdjacency
from rgcn.nn import universal_network
from rgcn.nn.universal_network import NUM_FEATURES, OverlapMatrix, RelationGraph, RelationNetwork

WIDTH = 6
CASES = {
    "two nodes": (2, 1, [(0, 0, 1)]),
    "one relation": (5, 1, [(0, 0, 1), (1, 0, 2), (3, 0, 2)]),
    "a triple to itself": (3, 2, [(0, 0, 0), (1, 1, 1), (0, 1, 1)]),
    "repeated triples": (4, 2, [(0, 0, 1), (0, 0, 1), (2, 1, 3), (2, 1, 3), (0, 1, 1)]),
    "relations without triples": (4, 4, [(0, 1, 1), (2, 3, 1)]),
    "a relation and its inverse under another name": (4, 3, [(0, 0, 1), (1, 1, 0), (2, 0, 3), (3, 1, 2), (0, 2, 3)]),
    "all relations at one node": (6, 5, [(0, r, r + 1) for r in range(5)]),
}


def meetings_of(triples, nodes: int, relations: int) -> RelationGraph:
    adjacency = RelationalAdjacency.from_triples(torch.as_tensor(triples), nodes, relations, normalization="node")
    return RelationGraph.of(adjacency.structure)


def ends_and_pairs(triples, relations: int):
    """Return, for relations and then their inverses, the set of their subjects and the set of their pairs."""
    heads, pairs = [set() for _ in range(2 * relations)], [set() for _ in range(2 * relations)]
    for s, r, o in triples:
        for number, begin, end in ((r, s, o), (r + relations, o, s)):
            heads[number].add(begin)
            pairs[number].add((begin, end))
    return heads, pairs


def shares(things: list[set]) -> torch.Tensor:
    """Return the shares [2R, 2R] by definition."""
    table = torch.zeros(len(things), len(things), dtype=torch.float64)
    for r, own in enumerate(things):
        for s, other in enumerate(things):
            table[r, s] = len(own & other) / max(len(own), 1)
        table[r] /= max(float(table[r].sum()), 1.0) ** 0.5
    return table


def naive_features(triples, nodes: int, relations: int) -> torch.Tensor:
    heads, pairs = ends_and_pairs(triples, relations)
    rows = []
    for r in range(2 * relations):
        begins, ends = (max(len(heads[number % (2 * relations)]), 1) for number in (r, r + relations))
        size = max(len(pairs[r]), 1)
        rows.append([size / begins, size / ends, begins / nodes, ends / nodes, size / nodes])
    return torch.tensor(rows, dtype=torch.float64).log() / 3


class Written:
    """A table with the interface of `OverlapMatrix`."""

    def __init__(self, table: torch.Tensor) -> None:
        self.table = table

    def multiply(self, x):
        return self.table @ x


def exact_meetings(triples, nodes: int, relations: int) -> RelationGraph:
    """Compute the overlaps by definition in float64; `RelationGraph` stores float32."""
    heads, pairs = map(shares, ends_and_pairs(triples, relations))
    opposite = torch.tensor([*range(relations, 2 * relations), *range(relations)])
    return RelationGraph(Written(heads), Written(pairs), opposite, naive_features(triples, nodes, relations))


def naive_vectors(network: RelationNetwork, triples, nodes: int, relations: int, query: int) -> list[torch.Tensor]:
    """Compute the vector of each relation for a query relation, one pair of relations at a time."""
    heads, pairs = ends_and_pairs(triples, relations)
    by_head, by_pair = shares(heads), shares(pairs)
    features, size = naive_features(triples, nodes, relations), 2 * relations

    def inverse(r):
        return (r + relations) % size

    z = [network.of_features @ row for row in features]
    z[query] = z[query] + network.mark
    for ways, weight, bias, gain, shift in zip(
        network.ways, network.weights, network.biases, network.gains, network.shifts, strict=True
    ):
        after = []
        for s in range(size):
            messages = ways[6] * z[inverse(s)]
            for t in range(size):
                messages = messages + by_head[s, t] * ways[0] * z[t]  # common subjects
                messages = (
                    messages + by_head[s, inverse(t)] * ways[1] * z[t]
                )  # the object of one is a subject of the other
                # The subject of the other is an object of this one.
                messages = messages + by_head[inverse(s), t] * ways[2] * z[t]
                messages = messages + by_head[inverse(s), inverse(t)] * ways[3] * z[t]  # common objects
                messages = messages + by_pair[s, t] * ways[4] * z[t]
                messages = messages + by_pair[s, inverse(t)] * ways[5] * z[t]
            out = weight @ torch.cat([z[s], messages]) + bias
            normal = (out - out.mean()) / (out.var(unbiased=False) + 1e-5).sqrt()
            after.append(z[s] + torch.relu(normal * gain + shift))
        z = after
    return z


def drawn(seed: int, nodes=9, relations=4, triples=15) -> list[tuple[int, int, int]]:
    rng = np.random.default_rng(seed)
    return [tuple(row) for row in rng.integers(0, (nodes, relations, nodes), (triples, 3)).tolist()]


def network_of(seed=0, depth=2) -> RelationNetwork:
    generator = torch.Generator().manual_seed(seed)
    network = RelationNetwork(WIDTH, depth, generator).double()
    for parameter in network.parameters():  # random biases, gains and shifts
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return network


# -- how relations meet ----------------------------------------------------------------------------------------------


def agree(found: RelationGraph, triples, nodes, relations) -> None:
    unit = torch.eye(2 * relations, dtype=torch.float64)
    for things, wanted in zip((found.heads, found.pairs), ends_and_pairs(triples, relations), strict=True):
        torch.testing.assert_close(things.multiply(unit), shares(wanted), rtol=1e-6, atol=1e-7)
        assert things.multiply(unit[:, :1].float()).dtype == torch.float32
    torch.testing.assert_close(found.features.double(), naive_features(triples, nodes, relations), rtol=1e-5, atol=1e-6)
    assert found.features.shape == (2 * relations, NUM_FEATURES)


@pytest.mark.parametrize("written_out", [1024, 0])
@pytest.mark.parametrize("case", CASES)
def test_shares_and_features_are_those_of_the_definition(case, written_out, monkeypatch):
    monkeypatch.setattr(universal_network, "MAX_STORED_RELATIONS", written_out)
    nodes, relations, triples = CASES[case]
    found = meetings_of(triples, nodes, relations)
    assert (found.heads.stored is None) == (found.pairs.stored is None) == (written_out == 0)
    agree(found, triples, nodes, relations)


@given(st.integers(0, 10**6), st.integers(2, 8), st.integers(1, 5), st.integers(1, 25))
def test_shares_and_features_match_the_definition_on_random_graphs(seed, nodes, relations, triples):
    some = drawn(seed, nodes, relations, triples)
    agree(meetings_of(some, nodes, relations), some, nodes, relations)


@pytest.mark.parametrize("columns", [1, 3, 128])
def test_separate_computation_equals_the_shared_one(columns, monkeypatch):
    monkeypatch.setattr(universal_network, "MAX_COLUMNS", columns)
    triples = torch.tensor(drawn(1, relations=5))
    written = OverlapMatrix(triples[:, 1], triples[:, 0], 5, 9)
    monkeypatch.setattr(universal_network, "MAX_STORED_RELATIONS", 4)
    through = OverlapMatrix(triples[:, 1], triples[:, 0], 5, 9)
    x = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(written.multiply(x), through.multiply(x))
    assert (written.stored is None, through.stored is None) == (False, True)


def test_a_relation_without_triples_is_connected_to_no_other():
    nodes, relations, triples = CASES["relations without triples"]
    found = meetings_of(triples, nodes, relations)
    table = found.heads.multiply(torch.eye(2 * relations))
    for empty in (0, 2, 4, 6):
        assert not table[empty].any()
        assert not table[:, empty].any()
    assert bool(torch.isfinite(found.features).all())


def test_gradients_pass_through_shared_values(monkeypatch):
    triples = drawn(2)
    written = meetings_of(triples, 9, 4)
    monkeypatch.setattr(universal_network, "MAX_STORED_RELATIONS", 0)
    through = meetings_of(triples, 9, 4)
    network, slopes = network_of(), []
    for relation_graph in (written, through):
        z, own = network(relation_graph, torch.tensor([1, 6]))
        slopes.append(torch.autograd.grad((z**2).sum() + own.sum(), list(network.parameters())))
    for one, other in zip(*slopes, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


# -- the network over them -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_vectors_and_gradients_are_those_of_the_equations(case):
    nodes, relations, triples = CASES[case]
    network, queries = network_of(), [0, 2 * relations - 1]
    found, own = network(exact_meetings(triples, nodes, relations), torch.tensor(queries))
    wanted = torch.stack(
        [torch.stack(naive_vectors(network, triples, nodes, relations, each)) for each in queries], dim=1
    )
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(own, torch.stack([wanted[each, place] for place, each in enumerate(queries)]))
    slope = torch.randn(found.shape, generator=torch.Generator().manual_seed(1), dtype=found.dtype)
    parameters = list(network.parameters())
    ours, theirs = (torch.autograd.grad(z, parameters, slope) for z in (found, wanted))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)


def test_relations_asked_for_together_are_as_those_asked_for_alone():
    relation_graph, network = meetings_of(drawn(3), 9, 4), network_of()
    queries = torch.tensor([5, 0, 5, 7])
    together, own = network(relation_graph, queries)
    for place, each in enumerate(queries):
        alone, own_alone = network(relation_graph, each[None])
        torch.testing.assert_close(together[:, place], alone[:, 0], rtol=1e-9, atol=1e-10)
        torch.testing.assert_close(own[place], own_alone[0], rtol=1e-9, atol=1e-10)


def test_relations_have_equal_vectors_only_if_they_meet_alike():
    """Two relations with the same structure have the same vector, except for the mark of the query relation."""
    triples = [(0, 0, 1), (2, 1, 3), (4, 2, 4)]
    z, _ = network_of()(meetings_of(triples, 5, 3), torch.tensor([2]))
    torch.testing.assert_close(z[0], z[1], rtol=1e-6, atol=1e-7)
    assert not torch.allclose(z[0], z[2])
    marked, _ = network_of()(meetings_of(triples, 5, 3), torch.tensor([0]))
    assert not torch.allclose(marked[0], marked[1])


# -- many relations --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["a triple each", "all at one node"])
def test_pairs_of_many_relations_are_not_materialized(kind, monkeypatch):
    """10⁵ relations: a matrix between them would take 160 GB, and their pairs at the hub 10¹⁰ entries."""
    count = 100_000
    number = torch.arange(count)
    hub = torch.zeros_like(number)
    triples = torch.stack([2 * number if kind == "a triple each" else hub, number, 2 * number + 1], dim=1)
    sizes = []
    allocates = universal_network.gather_sum

    def watched(*arguments):
        sizes.append(allocates(*arguments))
        return sizes[-1]

    monkeypatch.setattr(universal_network, "gather_sum", watched)
    relation_graph = meetings_of(triples, 2 * count, count)
    network = RelationNetwork(2, 1, torch.Generator().manual_seed(0))
    with torch.no_grad():
        z, own = network(relation_graph, torch.tensor([3]))
    assert relation_graph.heads.stored is None
    assert z.shape == (2 * count, 1, 2)
    assert bool(torch.isfinite(z).all())
    assert bool(torch.isfinite(own).all())
    assert max(each.numel() for each in sizes) <= 10 * count
    assert len(relation_graph.heads.pattern.column) <= 2 * count
