"""Naive reference implementation of the adjacency and the R-GCN layer, with loops over triples and relations.

Tests compare the fast code with it. Nothing here uses the library. The hypothesis strategies draw small graphs with
repeated triples, self-loops, isolated nodes, empty relations and hubs.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from hypothesis import strategies as st

NORMALIZATIONS = ("relation", "node", "direction", "none")
AGGREGATIONS = ("sum", "mean")


@dataclass(frozen=True)
class SmallGraph:
    """Triples of integers, with the options of the operator built from them."""

    triples: list
    num_nodes: int
    num_relations: int
    inverse: bool = True
    self_loops: bool = True
    normalization: str = "relation"
    aggregation: str = "sum"
    weighted: bool = False
    seed: int = 0

    @property
    def num_edge_relations(self):
        """Number of relations of edges: of triples, inverses and self-loops."""
        return self.num_relations * (2 if self.inverse else 1) + (1 if self.self_loops else 0)

    def tensor(self):
        """Return the triples as int64 [num_triples, 3]."""
        return torch.tensor(self.triples, dtype=torch.int64).reshape(-1, 3)

    def choices(self):
        """Return the keyword arguments for `RelationalAdjacency`."""
        names = ("inverse", "self_loops", "normalization", "aggregation")
        return {name: getattr(self, name) for name in names}

    def triple_weights(self):
        """Return float64 [num_triples]: ones, or random weights with some zeros."""
        if not self.weighted:
            return torch.ones(len(self.triples), dtype=torch.float64)
        generator = torch.Generator().manual_seed(self.seed)
        weights = torch.rand(len(self.triples), generator=generator, dtype=torch.float64) + 0.1
        weights[::5] = 0.0
        return weights


@st.composite
def triple_lists(draw, max_nodes=12, max_relations=4, max_triples=40):
    """Draw (triples, num_nodes, num_relations), also with repeats, self-loops, isolated nodes and a hub."""
    num_nodes = draw(st.integers(1, max_nodes))
    num_relations = draw(st.integers(1, max_relations))
    node, relation = st.integers(0, num_nodes - 1), st.integers(0, num_relations - 1)
    triples = draw(st.lists(st.tuples(node, relation, node), max_size=max_triples - 12))
    if draw(st.booleans()) and triples:
        triples += triples[:3]  # repeated triples
    if draw(st.booleans()):
        triples += [(n, 0, 0) for n in range(num_nodes)]  # a hub
    return triples[:max_triples], num_nodes, num_relations


@st.composite
def small_graphs(draw, **limits):
    """Draw a `SmallGraph` with random options."""
    triples, num_nodes, num_relations = draw(triple_lists(**limits))
    return SmallGraph(
        triples,
        num_nodes,
        num_relations,
        inverse=draw(st.booleans()),
        self_loops=draw(st.booleans()),
        normalization=draw(st.sampled_from(NORMALIZATIONS)),
        aggregation=draw(st.sampled_from(AGGREGATIONS)),
        weighted=draw(st.booleans()),
        seed=draw(st.integers(0, 2**31)),
    )


def naive_edges(graph, triple_weight, loop_weight):
    """Return a list of edges (relation, target, source, direction, raw weight)."""
    edges = []
    for t, (s, r, o) in enumerate(graph.triples):
        edges.append((r, o, s, "along", triple_weight[t]))
        if graph.inverse:
            edges.append((r + graph.num_relations, s, o, "inverse", triple_weight[t]))
    if graph.self_loops:
        last = graph.num_edge_relations - 1
        edges += [(last, n, n, "loop", loop_weight[n]) for n in range(graph.num_nodes)]
    return edges


def naive_adjacency(graph, triple_weight=None, loop_weight=None):
    """Return all A_r as one dense float64 tensor [num_edge_relations, num_nodes, num_nodes].

    It is differentiable in the weights.

    Args:
        graph: The graph and its options.
        triple_weight: Raw weight of each triple; `graph.triple_weights()` by default.
        loop_weight: Raw weight of each node's self-loop; ones by default.
    """
    if triple_weight is None:
        triple_weight = graph.triple_weights()
    if loop_weight is None:
        loop_weight = torch.ones(graph.num_nodes, dtype=torch.float64)
    edges = naive_edges(graph, triple_weight, loop_weight)
    group_of = {
        "relation": lambda r, target, direction: (target, r),
        "node": lambda r, target, direction: target,
        "direction": lambda r, target, direction: (target, direction),
    }
    totals, incoming_relations = {}, {}
    for r, target, _, direction, raw in edges:
        if graph.normalization != "none":
            group = group_of[graph.normalization](r, target, direction)
            totals[group] = totals.get(group, 0.0) + raw
        if raw > 0:
            incoming_relations.setdefault(target, set()).add(r)
    shape = (graph.num_edge_relations, graph.num_nodes, graph.num_nodes)
    dense = torch.zeros(shape, dtype=torch.float64)
    entries = []
    for r, target, _, direction, raw in edges:
        entry = raw
        if graph.normalization != "none":
            total = totals[group_of[graph.normalization](r, target, direction)]
            entry = raw / total if total > 0 else raw * 0.0
        if graph.aggregation == "mean":
            relations = incoming_relations.get(target)
            entry = entry / len(relations) if relations else entry * 0.0
        entries.append(entry)
    if not edges:
        return dense
    indices = torch.tensor([(r, target, source) for r, target, source, _, _ in edges]).unbind(1)
    return dense.index_put(indices, torch.stack(entries), accumulate=True)


def naive_layer(adjacency, x, weight, bias=None):
    """Return Σ_r A_r X W_r + b, computed by a loop over relations.

    Args:
        adjacency: [num_edge_relations, num_nodes, num_nodes].
        x: [num_nodes, in_dim].
        weight: [num_edge_relations, in_dim, out_dim].
        bias: [out_dim], or None.
    """
    out = torch.zeros(adjacency.shape[1], weight.shape[2], dtype=torch.float64)
    for r in range(adjacency.shape[0]):
        out = out + adjacency[r].double() @ x.double() @ weight[r].double()
    return out if bias is None else out + bias.double()


def naive_within_hops(triples, num_nodes, start, hops):
    """Return the set of nodes at most `hops` triples from the start, in either direction, by breadth-first search."""
    neighbors = {n: set() for n in range(num_nodes)}
    for s, _, o in triples:
        neighbors[s].add(o)
        neighbors[o].add(s)
    seen, frontier = set(start), set(start)
    for _ in range(hops):
        frontier = {m for n in frontier for m in neighbors[n]} - seen
        seen |= frontier
    return seen


def chain(length, relation="next"):
    """Return the named triples of the path n0 → n1 → … → n(length - 1)."""
    return [(a, relation, b) for a, b in pairwise(f"n{i}" for i in range(length))]
