"""Compare hidden triples with a loop over all triples."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from naive import SmallGraph, naive_adjacency, triple_lists
from rgcn.adjacency import RelationalAdjacency
from rgcn.sampling.negatives import HiddenTriples


def naive_heard(triples, batch_triples, hidden):
    batch_triples = {tuple(t) for t in batch_triples}
    pairs = {frozenset((s, o)) for s, _, o in batch_triples}
    if hidden == "triple":
        return [float(t not in batch_triples) for t in triples]
    return [float(frozenset((s, o)) not in pairs) for s, _, o in triples]


@given(triple_lists(), st.data(), st.sampled_from(["triple", "pair"]))
def test_hidden_edges_equal_the_naive_definition(graph, data, hidden):
    triples, num_nodes, num_relations = graph
    batch_triples = data.draw(st.lists(st.sampled_from(triples), max_size=6)) if triples else []
    rows, batch = (torch.tensor(t, dtype=torch.int64).reshape(-1, 3) for t in (triples, batch_triples))
    visible = HiddenTriples(rows, num_nodes, num_relations, hidden).visibility(batch)
    assert visible.tolist() == naive_heard(triples, batch_triples, hidden)


def test_unknown_triples_hide_nothing():
    triples = torch.tensor([[0, 0, 1], [1, 0, 2]])
    hidden = HiddenTriples(triples, 4, 2)
    assert hidden.visibility(torch.tensor([[0, 1, 1], [3, 1, 3]])).tolist() == [1.0, 1.0]
    assert HiddenTriples(triples[:0], 4, 2).visibility(triples).tolist() == []


@pytest.mark.parametrize("hidden", ["triple", "pair"])
def test_inverse_edges_and_duplicates_go_with_a_hidden_triple_and_the_rest_is_normalized(hidden):
    triples = [(0, 0, 1), (2, 0, 1), (1, 1, 0), (0, 0, 1), (0, 1, 1), (3, 1, 0)]
    rows = torch.tensor(triples)
    adjacency = RelationalAdjacency.from_triples(rows, 4, 2)
    visible = HiddenTriples(rows, 4, 2, hidden).visibility(rows[:1])
    left = [t for t, keep in zip(triples, naive_heard(triples, triples[:1], hidden), strict=True) if keep]
    dense = adjacency.masked(torch.cat([visible, torch.ones(4)])).to_dense().double()
    torch.testing.assert_close(dense, naive_adjacency(SmallGraph(left, 4, 2)), rtol=1e-6, atol=1e-6)
