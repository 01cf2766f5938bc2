"""Test the computation graph of an answer, removed triples, and vectors of a few nodes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from explained_models import class_question, classifier, field_of, link_question, neighbors_graph, predictor, readers

from rgcn.adjacency import RelationalAdjacency
from rgcn.graph import KnowledgeGraph

ENCODERS = [
    {"model": "rgcn", "layers": 1},
    {"model": "rgcn", "layers": 2, "decomposition": "basis", "bases": 2},
    {"model": "rgcn", "layers": 2, "input": "one-hot"},
    {"model": "rgcn", "activated_input": True, "decomposition": "block", "blocks": 2},
    {"model": "rgcn", "decoder_biases": True},
    {"model": "c-rgcn", "layers": 1},
    {"model": "c-rgcn", "layers": 2},
]


@pytest.mark.parametrize("settings", ENCODERS)
@pytest.mark.parametrize("nodes", [[4], [9, 2, 5]])
def test_vectors_of_a_few_nodes_are_those_of_the_whole_graph(settings, nodes):
    model = predictor(**settings)
    network = model.network_.eval()
    with torch.no_grad():
        field = field_of(model._adjacency, nodes, model.model.layers)
        some = network.encoder(field)
        torch.testing.assert_close(some, network.encoder(model._adjacency)[nodes])
        prepared = network.decoder.prepare(some, torch.tensor(nodes))
        torch.testing.assert_close(prepared, network.encode(model._adjacency)[nodes])


def test_plain_embeddings_need_no_graph():
    network = predictor("distmult").network_
    field = field_of(None, [3, 1], 0)
    assert torch.equal(network.encoder(field), network.encoder(None)[[3, 1]])


def without(graph, dropped):
    """Return the graph built without some triples, with the same names."""
    keep = np.ones(len(graph.triples), dtype=bool)
    keep[dropped] = False
    return KnowledgeGraph(graph.triples[keep], graph.nodes, graph.relations, labels=graph.labels)


RULES = [("relation", "sum"), ("node", "sum"), ("direction", "sum"), ("none", "sum"), ("relation", "mean")]


@pytest.mark.parametrize(("normalization", "aggregation"), RULES)
def test_dropping_triples_is_a_graph_built_without_them(normalization, aggregation):
    graph = readers()
    rule = {"normalization": normalization, "aggregation": aggregation}
    question = class_question(classifier(graph=graph, epochs=3, **rule), 5)
    subgraph = question.subgraph
    gone = np.random.default_rng(1).choice(len(subgraph), 9, replace=False)
    keep = np.ones(len(subgraph), dtype=bool)
    keep[gone] = False
    smaller = RelationalAdjacency.from_graph(without(graph, subgraph.triple_ids[gone]), **rule).to(torch.float64)
    with torch.no_grad():
        ours = question.output(subgraph.keep_triples(keep))
        theirs = question.output(field_of(smaller, [5], 2))
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)  # weights of one operator are rounded to float32
        assert not torch.allclose(ours, question.output(subgraph.field))


def test_dropping_triples_from_link_prediction_is_a_graph_built_without_them():
    graph = neighbors_graph()
    question = link_question(predictor("c-rgcn", graph), 0, 1, 5)
    subgraph = question.subgraph
    keep = np.arange(len(subgraph)) % 3 > 0
    rule = {"normalization": subgraph.field.layers[0].normalization}
    smaller = RelationalAdjacency.from_graph(without(graph, subgraph.triple_ids[~keep]), **rule).to(torch.float64)
    with torch.no_grad():
        ours, theirs = question.output(subgraph.keep_triples(keep)), question.output(field_of(smaller, [0, 5], 1))
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)


def test_keeping_everything_changes_nothing():
    question = class_question(classifier(epochs=3), 5)
    with torch.no_grad():
        same = question.output(question.subgraph.keep_triples(np.ones(len(question.subgraph), dtype=bool)))
        torch.testing.assert_close(same, question.output(question.subgraph.field), rtol=1e-6, atol=1e-7)


def test_hops_and_ends_follow_the_triples():
    graph = KnowledgeGraph.from_triples(
        [("a", "r", "b"), ("c", "r", "b"), ("c", "r", "d"), ("e", "r", "e"), ("d", "r", "e")],
        labels={"a": "x", "b": "y"},
    )
    fitted = classifier(graph=graph, epochs=1)
    subgraph = class_question(fitted, graph.nodes.id("a")).subgraph
    assert [tuple(row) for row in graph.named(subgraph.triples)] == [("a", "r", "b"), ("c", "r", "b")]
    assert subgraph.hop.tolist() == [1, 2]
    source, target = subgraph.edge_ends[-1]
    names = [(graph.nodes[s], graph.nodes[t]) for s, t in zip(source.tolist(), target.tolist(), strict=True)]
    assert sorted(names) == [("a", "a"), ("b", "a")]
    assert ("c", "b") in [
        (graph.nodes[s], graph.nodes[t]) for s, t in zip(*map(list, subgraph.edge_ends[0]), strict=True)
    ]
