"""Test for mistakes that published implementations of RGCN made."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from naive import SmallGraph, chain, naive_adjacency
from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.data.catalog import load_world
from rgcn.graph import KnowledgeGraph
from rgcn.links.calibration_fitting import calibrate_classes
from rgcn.models import NodeClassifier
from rgcn.nn import Basis, BlockDiagonal, Full, RelationalGraphConv

TRIPLES = [("a", "r", "b"), ("c", "r", "b"), ("c", "q", "a"), ("d", "q", "c")]


def labeled_chain(length=12):
    return KnowledgeGraph.from_triples(chain(length), labels={"n0": "x", "n1": "y"})


def test_forward_edges_are_not_counted_twice_when_self_loops_are_added():
    kg = KnowledgeGraph.from_triples(TRIPLES)
    adjacency = RelationalAdjacency.from_graph(kg, normalization="none")
    assert adjacency.num_edges == 2 * len(kg) + kg.num_nodes
    dense = adjacency.to_dense()
    assert float(dense.sum()) == 2 * len(kg) + kg.num_nodes
    assert float(dense.max()) == 1.0
    without = RelationalAdjacency.from_graph(kg, normalization="none", self_loops=False).to_dense()
    assert torch.equal(dense[:-1], without)
    assert torch.equal(dense[-1], torch.eye(kg.num_nodes))


@pytest.mark.parametrize("rate", [0.1, 0.2, 0.8])
def test_dropping_a_share_drops_that_share_and_not_the_other(rate):
    # graph[keep:] for graph[:keep] drops 1 - rate; the two differ at any rate but one half
    triples = torch.stack([torch.arange(10_000), torch.zeros(10_000).long(), torch.arange(10_000)], 1)
    adjacency = RelationalAdjacency.from_triples(triples, 10_000, 1, normalization="none")
    generator = torch.Generator().manual_seed(0)
    only_edges = adjacency.masked(adjacency.draw_mask(rate, 0.0, generator=generator))
    left = only_edges.weight[only_edges.structure.direction < 2].mean()
    assert float(left) == pytest.approx(1 - rate, abs=0.02)
    assert (only_edges.weight[only_edges.structure.direction == 2] == 1).all()
    only_loops = adjacency.masked(adjacency.draw_mask(0.0, rate, generator=generator))
    assert float(only_loops.weight[only_loops.structure.direction == 2].mean()) == pytest.approx(1 - rate, abs=0.02)
    assert (only_loops.weight[only_loops.structure.direction < 2] == 1).all()


def test_an_inverse_never_leaks_a_dropped_edge():
    kg = KnowledgeGraph.from_triples(TRIPLES)
    adjacency = RelationalAdjacency.from_graph(kg)
    for dropped in range(len(kg)):
        keep = torch.ones(len(kg) + kg.num_nodes)
        keep[dropped] = 0
        dense = adjacency.masked(keep).to_dense()
        s, r, o = kg.triples[dropped]
        assert dense[r, o, s] == 0
        assert dense[r + kg.num_relations, s, o] == 0
        fewer = [t for i, t in enumerate(kg.triples.tolist()) if i != dropped]
        expected = naive_adjacency(SmallGraph(fewer, kg.num_nodes, kg.num_relations))
        torch.testing.assert_close(dense.double(), expected, rtol=1e-6, atol=1e-6)


def test_train_and_test_labels_share_one_numbering_of_the_classes():
    # the first class met in the test labels is not the first met in the training labels
    kg = KnowledgeGraph.from_triples(TRIPLES, labels={"a": "red", "b": "blue"}, test_labels={"c": "blue", "d": "red"})
    for split, expected in (("train", ["red", "blue"]), ("test", ["blue", "red"])):
        nodes, classes = kg.labels.of(split)
        assert [kg.labels.names[c] for c in classes] == expected
        assert len(nodes) == 2
    # scoring goes by name, also where another graph numbers its classes otherwise
    classifier = NodeClassifier(epochs=2).fit(kg)
    other = replace(kg, labels=None).with_labels({"test": {"c": "blue", "d": "red"}})
    assert kg.labels.names != other.labels.names
    assert classifier.score(kg) == classifier.score(other)


HASHING = """
from rgcn.data.catalog import load_world
from rgcn.graph import KnowledgeGraph
names = [f"http://example.org/{w}" for w in "the quick brown fox jumps over a lazy dog".split()]
triples = [(s, names[(i * j) % 9], o) for i, s in enumerate(names) for j, o in enumerate(names)]
kg = KnowledgeGraph.from_triples(triples, labels=dict(zip(names[:4], names[4:8])), test_labels={names[8]: names[0]})
small = kg.prune(1).without_relations(names[1:3]).subgraph(names[2:])
print(kg.fingerprint, small.fingerprint, load_world().fingerprint)
"""


def test_ids_do_not_come_from_the_iteration_order_of_a_set():
    runs = [
        subprocess.run(
            [sys.executable, "-c", HASHING],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "31337")
    ]
    assert len(runs[0].split()) == 3
    assert runs[0] == runs[1] == runs[2]


def test_the_mean_is_taken_within_each_relation_and_not_over_all_edges_into_the_node():
    # one edge of relation q and three of relation r: the lone edge keeps its full weight
    triples = [(1, 0, 0), (2, 0, 0), (3, 0, 0), (4, 1, 0)]
    adjacency = RelationalAdjacency.from_triples(torch.tensor(triples), 5, 2, inverse=False, self_loops=False)
    dense = adjacency.to_dense()
    torch.testing.assert_close(dense[0, 0], torch.tensor([0, 1 / 3, 1 / 3, 1 / 3, 0]))
    torch.testing.assert_close(dense[1, 0], torch.tensor([0.0, 0, 0, 0, 1]))
    layer = RelationalGraphConv(1, 1, 2, inverse=False, self_loops=False, bias=False)
    with torch.no_grad():
        layer.weights.blocks.fill_(1.0)
    x = torch.tensor([[0.0], [3.0], [6.0], [9.0], [100.0]])
    assert layer(x, adjacency)[0].item() == pytest.approx(6.0 + 100.0)


@pytest.mark.parametrize("decomposition", [Full(), Basis(2), BlockDiagonal(2)], ids=str)
@pytest.mark.parametrize("one_hot", [True, False])
def test_dropped_edges_change_the_output_of_a_layer(decomposition, one_hot):
    kg = KnowledgeGraph.from_triples(TRIPLES)
    adjacency = RelationalAdjacency.from_graph(kg)
    if one_hot:
        layer, x = RelationalGraphConv.one_hot(adjacency, 4, decomposition=decomposition), None
    else:
        layer, x = RelationalGraphConv(4, 4, kg.num_relations, decomposition=decomposition), torch.randn(4, 4)
    keep = torch.ones(len(kg) + kg.num_nodes)
    keep[0] = 0  # a → b: the vectors of a and b must differ, those of c and d must not
    before, after = layer(x, adjacency), layer(x, adjacency.masked(keep))
    changed = (before != after).any(1)
    assert changed.tolist() == [True, True, False, False]


def test_training_drops_other_edges_in_every_epoch_and_prediction_drops_none(monkeypatch):
    drawn = []
    draw = RelationalAdjacency.draw_mask

    def spy(self, *rates, **options):
        drawn.append((rates, draw(self, *rates, **options)))
        return drawn[-1][1]

    monkeypatch.setattr(RelationalAdjacency, "draw_mask", spy)
    kg = load_world()
    classifier = NodeClassifier(epochs=3, edge_dropout=0.4, self_loop_dropout=0.1).fit(kg)
    assert [rates for rates, _ in drawn] == [(0.4, 0.1)] * 3
    assert not torch.equal(drawn[0][1], drawn[1][1])
    assert len(drawn[0][1]) == len(kg) + kg.num_nodes
    without = NodeClassifier(epochs=3).fit(kg)
    assert classifier.history_[0].loss != without.history_[0].loss
    assert torch.equal(classifier.logits(["Norway"]), classifier.logits(["Norway"]))
    assert len(drawn) == 3


@pytest.mark.parametrize("layers", [1, 2, 3, 4])
def test_pruning_goes_as_far_as_the_model_has_layers(layers):
    classifier = NodeClassifier(layers=layers, prune=True, epochs=1).fit(labeled_chain())
    assert list(classifier.graph_.nodes) == [f"n{i}" for i in range(2 + layers)]


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("normalization", ["relation", "node", "direction"])
def test_pruning_changes_no_logit_of_a_labeled_node(layers, normalization):
    kg = load_world()
    few = {kg.nodes[n]: "x" for n in kg.labels.nodes[:2]}  # few labels, so that something is pruned
    kg = kg.with_labels({"train": few})
    pruned = kg.prune(layers)
    assert len(pruned) < len(kg)
    generator = torch.Generator().manual_seed(layers)
    x = torch.randn(kg.num_nodes, 5, generator=generator, dtype=torch.float64)
    stack = [RelationalGraphConv(5, 5, kg.num_relations, generator=generator).double() for _ in range(layers)]
    kept = torch.tensor([kg.relations[name] for name in pruned.relations])
    rows = torch.cat([kept, kept + kg.num_relations, torch.tensor([2 * kg.num_relations])])
    smaller = [RelationalGraphConv(5, 5, pruned.num_relations).double() for _ in range(layers)]
    for whole, part in zip(stack, smaller, strict=True):
        with torch.no_grad():
            part.weights.blocks.copy_(whole.weights.blocks[rows])

    def logits(graph, network, states):
        adjacency = RelationalAdjacency.from_graph(graph, normalization=normalization).to(torch.float64)
        for layer in network:
            states = torch.tanh(layer(states, adjacency))
        return states[torch.from_numpy(graph.labels.nodes.copy())]

    whole = logits(kg, stack, x)
    part = logits(pruned, smaller, x[[kg.nodes[name] for name in pruned.nodes]])
    # weights of edges are float32 (1 / degree): the same numbers on both sides
    torch.testing.assert_close(part, whole, rtol=1e-6, atol=1e-6)
    if layers == 3:  # and two hops would not have been enough
        too_small = kg.prune(2)
        assert len(too_small) < len(pruned)


def test_two_hops_are_too_few_for_three_layers():
    kg = labeled_chain()
    field = ReceptiveField.of(RelationalAdjacency.from_graph(kg), torch.tensor([0, 1]), 3)
    assert field.inputs.tolist() == [0, 1, 2, 3, 4]
    assert kg.prune(2).num_nodes == 4 < kg.prune(3).num_nodes


def test_predicting_many_nodes_encodes_the_graph_once(monkeypatch):
    classifier = NodeClassifier(epochs=1).fit(load_world())
    calls = []
    states = classifier.network_.layer_outputs
    monkeypatch.setattr(classifier.network_, "layer_outputs", lambda *a, **k: calls.append(1) or states(*a, **k))
    classifier.calibration_ = calibrate_classes(classifier)  # which predicts the validation nodes
    calls.clear()
    classifier.predict()
    assert len(calls) == 1
