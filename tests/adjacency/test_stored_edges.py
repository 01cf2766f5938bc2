"""Test that rows read from a stored graph equal those of the operator of the whole graph."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import rgcn
from rgcn.adjacency import RelationalAdjacency
from rgcn.adjacency.receptive_field import StoredEdges
from rgcn.errors import DataError
from rgcn.explain import question
from rgcn.explain.question import ComputationGraph
from rgcn.graph import KnowledgeGraph, Vocabulary
from rgcn.models import node_classifier
from rgcn.nn import relational_encoder

NODES, RELATIONS = 5, 2
triples = st.lists(st.tuples(st.integers(0, NODES - 1), st.integers(0, 1), st.integers(0, NODES - 1)), max_size=12)
EDGE_FIELDS = ("target", "relation", "source", "origin")


@given(
    triples,
    st.sets(st.integers(0, NODES - 1), min_size=1),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["relation", "node", "direction", "none"]),
    st.sampled_from(["sum", "mean"]),
    st.booleans(),
)
def test_rows_are_those_of_the_whole_operator(rows, targets, inverse, self_loops, normalization, aggregation, weighted):
    names = Vocabulary(map(str, range(NODES)), kind="node"), Vocabulary("ab", kind="relation")
    weights = np.arange(1, len(rows) + 1) / 7 if weighted else None
    graph = KnowledgeGraph(np.array(rows, dtype=np.int64).reshape(-1, 3), *names, edge_weights=weights)
    rule = {"inverse": inverse, "self_loops": self_loops, "normalization": normalization, "aggregation": aggregation}
    targets_tensor = torch.tensor(sorted(targets))
    expected, read = RelationalAdjacency.from_graph(graph, **rule).restrict(targets_tensor)
    found, sources = StoredEdges(graph, **rule).restrict(targets_tensor)
    assert torch.equal(sources, read)
    assert all(torch.equal(getattr(found.structure, of), getattr(expected.structure, of)) for of in EDGE_FIELDS)
    assert torch.equal(found.raw, expected.raw)
    assert torch.allclose(found.weight, expected.weight, rtol=1e-6, atol=0)
    sizes = ("num_targets", "num_sources", "num_relations", "num_triples", "num_nodes", "has_inverse")
    assert all(getattr(found.structure, of) == getattr(expected.structure, of) for of in sizes)


@pytest.mark.parametrize("settings", [{}, {"decomposition": "basis", "bases": 2}, {"model": "e-rgcn"}, {"layers": 3}])
def test_a_classifier_of_a_stored_graph_predicts_the_same(monkeypatch, tmp_path, settings):
    kg = rgcn.load("world")
    model = rgcn.NodeClassifier(**{"model": "rgcn", "epochs": 2, **settings}).fit(kg)
    model.save(tmp_path)
    expected = model.logits(range(kg.num_nodes))
    monkeypatch.setattr(node_classifier, "MIN_STORED_TRIPLES", 0)
    opened = rgcn.NodeClassifier.load(tmp_path)
    few = opened.logits(range(5))
    assert opened._adjacency is None
    monkeypatch.setattr(relational_encoder, "MAX_FIELD_EDGES", 0)
    monkeypatch.setattr(relational_encoder, "MAX_CHUNK_EDGES", 3000)
    assert torch.allclose(opened.logits(range(kg.num_nodes)), expected, rtol=1e-5, atol=1e-5)
    assert torch.allclose(few, expected[:5], rtol=1e-5, atol=1e-5)
    assert opened._adjacency is None
    assert opened.fingerprint_ == model.fingerprint_


def test_an_explanation_of_a_stored_graph_reads_the_receptive_field(monkeypatch, tmp_path):
    kg = rgcn.load("world")
    model = rgcn.NodeClassifier("rgcn", epochs=2).fit(kg)
    model.save(tmp_path)
    monkeypatch.setattr(node_classifier, "MIN_STORED_TRIPLES", 0)
    opened = rgcn.NodeClassifier.load(tmp_path)
    whole, found = (ComputationGraph.of_nodes(one.rows_, one.hooks_.message_triples, [7], 2) for one in (model, opened))
    assert opened._adjacency is None
    assert np.array_equal(found.triples, whole.triples)
    assert all(torch.equal(one, other) for one, other in zip(found.edge_triples, whole.edge_triples, strict=True))
    layers = zip(found.field.layers, whole.field.layers, strict=True)
    assert all(torch.allclose(one.weight, other.weight, rtol=1e-6) for one, other in layers)
    of_hub = len(found.field.layers[-1].weight)
    monkeypatch.setattr(question, "MAX_COMPUTATION_EDGES", of_hub)  # the last layer fits, the first does not
    with pytest.raises(DataError, match=f"more than {of_hub:,} edges"):
        ComputationGraph.of_nodes(opened.rows_, opened.hooks_.message_triples, [7], 2)
    assert len(
        ComputationGraph.of_nodes(model.rows_, model.hooks_.message_triples, [7], 2)
    )  # for a graph in memory, all edges are weighted
