"""The layer as the paper writes it, from triples, in loops: what everything fast is compared with.

Nothing here uses the library. Also the strategies that draw small graphs with every awkward thing in them.
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
    """Triples of integers, and the choices that make an operator of them."""

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
        return self.num_relations * (2 if self.inverse else 1) + (1 if self.self_loops else 0)

    def tensor(self):
        return torch.tensor(self.triples, dtype=torch.int64).reshape(-1, 3)

    def choices(self):
        names = ("inverse", "self_loops", "normalization", "aggregation")
        return {name: getattr(self, name) for name in names}

    def triple_weights(self):
        """float64 [T]: ones, or random with some zeros."""
        if not self.weighted:
            return torch.ones(len(self.triples), dtype=torch.float64)
        generator = torch.Generator().manual_seed(self.seed)
        weights = torch.rand(len(self.triples), generator=generator, dtype=torch.float64) + 0.1
        weights[::5] = 0.0
        return weights


@st.composite
def triple_lists(draw, max_nodes=12, max_relations=4, max_triples=40):
    """(triples, num_nodes, num_relations): repeats, self-loops in the data, isolated nodes, empty relations, a hub."""
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
    """A graph with a random choice of everything the operator can be asked for."""
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
    """[(relation, target, source, direction, raw weight)], one by one."""
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
    """Every A_r, dense, float64 [R⁺, N, N]. Differentiable in the weights."""
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
    totals, reaching = {}, {}
    for r, target, _, direction, raw in edges:
        if graph.normalization != "none":
            group = group_of[graph.normalization](r, target, direction)
            totals[group] = totals.get(group, 0.0) + raw
        if raw > 0:
            reaching.setdefault(target, set()).add(r)
    shape = (graph.num_edge_relations, graph.num_nodes, graph.num_nodes)
    dense = torch.zeros(shape, dtype=torch.float64)
    entries = []
    for r, target, _, direction, raw in edges:
        entry = raw
        if graph.normalization != "none":
            total = totals[group_of[graph.normalization](r, target, direction)]
            entry = raw / total if total > 0 else raw * 0.0
        if graph.aggregation == "mean":
            entry = entry / len(reaching[target]) if target in reaching else entry * 0.0
        entries.append(entry)
    if not edges:
        return dense
    where = torch.tensor([(r, target, source) for r, target, source, _, _ in edges]).unbind(1)
    return dense.index_put(where, torch.stack(entries), accumulate=True)


def naive_layer(adjacency, x, weight, bias=None):
    """Σ_r A_r X W_r + b, a loop over relations: A [R⁺, n, n], X [n, in], W [R⁺, in, out]."""
    out = torch.zeros(adjacency.shape[1], weight.shape[2], dtype=torch.float64)
    for r in range(adjacency.shape[0]):
        out = out + adjacency[r].double() @ x.double() @ weight[r].double()
    return out if bias is None else out + bias.double()


def naive_within_hops(triples, num_nodes, start, hops):
    """The set of nodes within so many triples of the start, in either direction: a breadth-first walk."""
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
    """Named triples n0 → n1 → … → n(length - 1)."""
    return [(a, relation, b) for a, b in pairwise(f"n{i}" for i in range(length))]
