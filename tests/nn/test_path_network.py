"""Compare the path network with its definition, one question and one edge at a time, in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import rgcn
from rgcn.adjacency import RelationalAdjacency
from rgcn.errors import ConfigError, DataError
from rgcn.nn.path_layers import LayerEdges, RelationStates
from rgcn.nn.scorer import Questions

VARIANTS = [
    {},
    {"relation_vectors": "question", "normalization": "relation"},
    {"messages": "add", "deviation": True},
    {"messages": "add", "normalization": "none", "degree_scaling": False},
    {"deviation": True, "relation_vectors": "question", "surroundings": 0},
    {"skip": False, "layer_norm": False, "normalization": "direction"},
    {"unreached": "awake", "deviation": True, "surroundings": 0},
]


def made(seed=0, nodes=12, relations=3, triples=20, layers=3, width=8, kind=torch.float64, **settings):
    """Return an untrained float64 model over a random graph, with random LayerNorm parameters."""
    rng = np.random.default_rng(seed)
    ends, kinds = rng.integers(0, nodes, (triples, 2)), rng.integers(0, relations, triples)
    named = [(f"n{s}", f"r{r}", f"n{o}") for (s, o), r in zip(ends.tolist(), kinds.tolist(), strict=True)]
    isolated = [("n0", "r0", f"n{nodes}"), *[(f"far{i}", f"r{i % relations}", f"far{i + 1}") for i in range(4)]]
    kg = rgcn.KnowledgeGraph.from_triples(named + isolated)
    model = rgcn.LinkPredictor("path", layers=layers, width=width, seed=seed, **settings).prepare(kg)
    network = model.network_.to(kind).eval()
    generator = torch.Generator().manual_seed(seed)
    for layer in network.layers:
        layer.gain.data += 0.1 * torch.randn(width, generator=generator, dtype=kind)
        layer.shift.data += 0.1 * torch.randn(width, generator=generator, dtype=kind)
    return kg, network, model.adjacency_.to(kind)


def naive(network, adjacency: RelationalAdjacency, node: int, queried: int, q=None, table_of=None) -> torch.Tensor:
    """[N]: scores of all nodes as answers to one question, from the equations.

    q, table_of  the question's vector, and each layer's table of relations, where they are not the network's own
    """
    edges = list(
        zip(*(ids.tolist() for ids in (adjacency.structure.target, adjacency.structure.relation)), strict=True)
    )
    sources, size = adjacency.structure.source.tolist(), adjacency.num_sources
    degree = torch.zeros(size, dtype=adjacency.raw.dtype)
    for e, (v, _) in enumerate(edges):
        degree[v] += adjacency.raw[e]
    s = torch.log(degree.clamp(min=1)) / network.mean_log_degree
    q, head = network.query[queried] if q is None else q, network.head

    def walked(x, layers):
        return walk(x, layers, adjacency, edges, sources, s, q, table_of)

    x = walked([q if v == node else torch.zeros_like(q) for v in range(size)], network.layers)
    if head.surroundings is not None:
        around = walked([head.surroundings.start] * size, head.surroundings.layers)
    scores = []
    for v in range(size):
        inside = head.of_state @ x[v] + head.of_query @ q + head.bias
        extra = 0.0
        if head.surroundings is not None:
            inside, extra = inside + head.of_surroundings @ around[v], around[v] @ (head.fitting @ q)
        scores.append((head.answer @ torch.relu(inside) + head.answer_bias)[0] + extra)
    return torch.stack(scores)


def walk(x, layers, adjacency, edges, sources, s, q, table_of=None):
    """States of all nodes after some layers."""
    size = len(x)
    for layer in layers:
        table = (
            layer.relations(RelationStates(q[None])).view(adjacency.num_relations, -1)
            if table_of is None
            else table_of(layer)
        )
        total, square = ([torch.zeros_like(q) for _ in range(size)] for _ in range(2))
        for e, (v, r) in enumerate(edges):
            u = x[sources[e]]
            if not layer.is_sum:
                message = u * table[r]
            else:
                message = u + table[r] if bool((u != 0).any()) else u
            total[v] = total[v] + adjacency.weight[e] * message
            square[v] = square[v] + adjacency.weight[e] * message**2
        after = []
        for v in range(size):
            parts = [total[v]]
            if layer.deviation:
                parts.append((square[v] - total[v] ** 2).clamp(min=1e-6).sqrt())
            if layer.settings.degree_scaling:
                parts += [part * s[v] for part in parts]
            z = layer.weight @ torch.cat([x[v], *parts]) + layer.bias
            if layer.settings.norm:
                z = (z - z.mean()) / (z.var(unbiased=False) + 1e-5).sqrt() * layer.gain + layer.shift
            is_updated = layer.settings.update_unreached or bool((x[v] != 0).any() or (total[v] != 0).any())
            out = torch.relu(z) if is_updated else torch.zeros_like(z)
            after.append(x[v] + out if layer.settings.skip else out)
        x = after
    return x


@pytest.mark.parametrize("settings", VARIANTS)
def test_scores_and_gradients_are_those_of_the_equations(settings):
    _, network, adjacency = made(**settings)
    adjacency = adjacency.masked(
        (torch.arange(adjacency.structure.num_triples + adjacency.structure.num_nodes) != 3).double()
    )
    relations = network.num_relations
    questions = Questions(torch.tensor([0, 2, 5]), torch.tensor([0, 1, 2]), torch.tensor([True, False, True]))
    found = network.score_nodes(adjacency, questions)
    wanted = torch.stack([naive(network, adjacency, v, r) for v, r in ((0, 0), (2, 1 + relations), (5, 2))])
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)
    slope = torch.randn(found.shape, generator=torch.Generator().manual_seed(1), dtype=found.dtype)
    parameters = [p for p in network.parameters() if p.requires_grad]
    ours = torch.autograd.grad(found, parameters, slope, allow_unused=True)
    theirs = torch.autograd.grad(wanted, parameters, slope, allow_unused=True)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(
            torch.zeros(()) if one is None else one, torch.zeros(()) if other is None else other, rtol=1e-7, atol=1e-8,
            check_dtype=False,
        )  # fmt: skip


@given(st.integers(0, 10**6), st.sampled_from(VARIANTS), st.integers(1, 4))
def test_restricting_to_reached_nodes_changes_no_score(seed, settings, layers):
    kg, network, adjacency = made(seed, nodes=30, triples=25, layers=layers, **settings)
    nodes = torch.randint(kg.num_nodes, (3,), generator=torch.Generator().manual_seed(seed))
    questions = Questions(nodes, torch.zeros(3, dtype=torch.int64))
    with torch.no_grad():
        whole = network.score_nodes(adjacency, questions).log_softmax(1)  # a scorer gives shares
        scorer = network.make_scorer(adjacency)
        torch.testing.assert_close(scorer.scores(questions), whole, rtol=1e-9, atol=1e-10)
        some = torch.arange(0, kg.num_nodes, 2)
        torch.testing.assert_close(scorer.scores(questions, some), whole[:, some], rtol=1e-9, atol=1e-10)


def test_the_first_hops_of_a_question_are_few():
    kg = rgcn.KnowledgeGraph.from_triples([(f"n{i}", "next", f"n{i + 1}") for i in range(100)])
    adjacency = RelationalAdjacency.from_graph(kg, normalization="node")
    hops, nodes = LayerEdges.along(adjacency, torch.tensor(1.0)).reached(torch.tensor([50]), 3)
    assert [reached.tolist() for reached in nodes] == [[50], [49, 50, 51], [*range(48, 53)], [*range(47, 54)]]
    assert [hop.operator.num_targets for hop in hops] == [3, 5, 7]


@pytest.mark.parametrize("settings", VARIANTS)
def test_a_known_triple_is_hidden_while_it_is_scored(settings):
    kg, network, adjacency = made(3, **settings)
    triples = torch.tensor(np.concatenate([kg.triples, [[0, 1, 5]]]))  # the last triple is not known
    found, differ = network.make_scorer(adjacency).triple_scores(triples), 0
    for number, (s, r, o) in enumerate(triples.tolist()):
        same = torch.tensor((kg.triples == [s, r, o]).all(axis=1))
        keep = torch.cat([(~same).double(), torch.ones(kg.num_nodes, dtype=torch.float64)])
        with torch.no_grad():
            questions = Questions(torch.tensor([s, o]), torch.tensor([r, r]), torch.tensor([True, False]))
            there, back = network.score_nodes(adjacency.masked(keep), questions).log_softmax(1)[[0, 1], [o, s]].tolist()
        assert float(found[number]) == pytest.approx((there + back) / 2, rel=1e-6, abs=1e-7)
        differ += abs(there - back) > 0.01
    assert differ


def test_same_seed_same_bits_and_learning():
    kg = rgcn.load("world")
    settings = {"layers": 2, "width": 16, "steps": 12, "batch_edges": 8, "warmup": 0, "seed": 4}
    one, two = (rgcn.LinkPredictor("path", **settings).fit(kg) for _ in range(2))
    for first, second in zip(one.network_.parameters(), two.network_.parameters(), strict=True):
        assert torch.equal(first, second)
    losses = [epoch.loss for epoch in one.history_]
    assert losses[-1] < losses[0]


def test_graphs_with_a_hub_are_supported():
    """A node with so many incoming edges that sums are computed in pieces."""
    count = 20_000
    triples = np.stack([np.arange(1, count + 1), np.zeros(count, int), np.zeros(count, int)], axis=1)
    adjacency = RelationalAdjacency.from_triples(torch.tensor(triples), count + 1, 1, normalization="node")
    kg = rgcn.KnowledgeGraph.from_triples([("a", "r", "b"), ("b", "r", "c")])
    network = rgcn.LinkPredictor("path", layers=2, width=32, seed=0).prepare(kg).network_.eval()
    with torch.no_grad():
        scores = network.make_scorer(adjacency).scores(Questions(torch.tensor([1, 0]), torch.tensor([0, 0])))
    assert bool(torch.isfinite(scores).all())


def test_walks_go_both_ways():
    kg = rgcn.KnowledgeGraph.from_triples([("a", "r", "b"), ("b", "r", "c")])
    for settings in ({"inverse": False}, {"self_loops": False}):
        with pytest.raises(ConfigError, match="set inverse and self_loops to true"):
            rgcn.LinkPredictor("path", **settings).prepare(kg)


def test_too_little_memory_is_reported_before_training(monkeypatch):
    kg = rgcn.load("world")
    model = rgcn.LinkPredictor("path", layers=2).prepare(kg)
    monkeypatch.setattr("rgcn.training.link_trainer.available_bytes", lambda device: 100 << 20)
    with pytest.raises(ConfigError, match=r"set training.batch_edges to 2\d or less"):
        model.trainer()
    monkeypatch.setattr("rgcn.training.link_trainer.available_bytes", lambda device: 1 << 20)
    with pytest.raises(ConfigError, match="a machine with more"):
        model.trainer()
    monkeypatch.setattr("rgcn.nn.path_network.available_bytes", lambda device: 1 << 20)
    with pytest.raises(DataError, match="a machine with more"):
        model.scorer()
