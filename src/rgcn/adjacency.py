"""The heart: all the matrices A_r of a graph as one linear operator.

From triples (s, r, o) over N nodes and R relations it makes edges: s → o under r; its inverse o → s under r + R; and
for each node a self-loop under the last relation. H = Σ_r A_r X W_r then sums, for each target node, over its edges.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from rgcn.errors import ConfigError, DataError
from rgcn.sparse import SparsePattern, pointer_from_sorted

if TYPE_CHECKING:
    from rgcn.graph import KnowledgeGraph

Normalization = Literal["relation", "node", "direction", "none"]
Aggregation = Literal["sum", "mean"]


@dataclass(frozen=True, eq=False)
class Pairs:
    """The (relation, node) pairs that occur among the edges, and how the edges use them.

    relation, node int64 [P]; `pointer` says which pairs belong to each relation (relation-major order, [R⁺ + 1]) or to
    each node (node-major order, [n + 1]). `select` [P, n] picks each pair's node; `edge_pair` [E] is an edge's pair.
    """

    relation: Tensor
    node: Tensor
    pointer: Tensor
    edge_pair: Tensor
    num_nodes: int

    def __len__(self) -> int:
        return self.relation.numel()

    @cached_property
    def bounds(self) -> list[int]:
        """`pointer` on the host: asked of the device once, not in every step."""
        numbers: list[int] = self.pointer.tolist()
        return numbers

    @cached_property
    def select(self) -> SparsePattern:
        rows = torch.arange(len(self) + 1, device=self.node.device)
        return SparsePattern(rows, self.node, self.num_nodes)


@dataclass(frozen=True, eq=False)
class EdgeStructure:
    """Edges sorted by target, relation, source; everything that does not depend on weights is computed here, once.

    target, relation, source, origin int64 [E]. `origin` is the number of the triple an edge came from (a triple and its
    inverse share it), or num_triples + node for a self-loop. num_triples and num_nodes are those of the whole graph,
    also where the structure is a part of it.
    """

    target: Tensor
    relation: Tensor
    source: Tensor
    origin: Tensor
    num_targets: int
    num_sources: int
    num_relations: int
    num_data_relations: int
    has_inverse: bool
    has_self_loops: bool
    num_triples: int
    num_nodes: int
    transient: bool = False
    """Whether the edges are used for one step only: then nothing is worth preparing that must be waited for."""

    @property
    def num_edges(self) -> int:
        return self.target.numel()

    @cached_property
    def pattern(self) -> SparsePattern:
        """[targets, sources], one entry an edge, in edge order."""
        return SparsePattern.from_sorted_rows(self.target, self.source, (self.num_targets, self.num_sources))

    @cached_property
    def _run_begins(self) -> Tensor:
        """bool [E]: whether an edge is the first of its target and relation."""
        begins = torch.ones_like(self.target, dtype=torch.bool)
        begins[1:] = (self.target[1:] != self.target[:-1]) | (self.relation[1:] != self.relation[:-1])
        return begins

    @cached_property
    def target_relation_run(self) -> Tensor:
        """int64 [E]: edges of the same target and relation, which stand together, have the same number."""
        return torch.cumsum(self._run_begins, 0) - 1

    @cached_property
    def target_relation_first(self) -> Tensor:
        """int64 [runs]: the first edge of each target and relation."""
        return torch.nonzero(self._run_begins).squeeze(1)

    @cached_property
    def direction(self) -> Tensor:
        """int64 [E]: 0 for an edge along its triple, 1 for an inverse, 2 for a self-loop."""
        out = torch.zeros_like(self.relation)
        if self.has_inverse:
            out += self.relation >= self.num_data_relations
        if self.has_self_loops:
            out[self.relation == self.num_relations - 1] = 2
        return out

    @cached_property
    def source_pairs(self) -> Pairs:
        """(relation, source) pairs, relation-major: what a layer that projects first must project."""
        return self.pairs_of(self.source, self.num_sources, node_major=False)

    @cached_property
    def source_pairs_by_node(self) -> Pairs:
        """(relation, source) pairs, node-major."""
        return self.pairs_of(self.source, self.num_sources, node_major=True)

    @cached_property
    def target_pairs(self) -> Pairs:
        """(relation, target) pairs, relation-major: what a layer that mixes first must project."""
        return self.pairs_of(self.target, self.num_targets, node_major=False)

    @cached_property
    def target_pairs_by_node(self) -> Pairs:
        """(relation, target) pairs, node-major: the runs of the edge order itself."""
        first = self.target_relation_first
        node = self.target[first]
        pointer = pointer_from_sorted(node, self.num_targets)
        return Pairs(self.relation[first], node, pointer, self.target_relation_run, self.num_targets)

    def pairs_of(self, node: Tensor, num_nodes: int, node_major: bool) -> Pairs:
        """The distinct (relation, node[e]) over the edges e, sorted by node or by relation."""
        if node_major:
            key, edge_pair = torch.unique(node * self.num_relations + self.relation, return_inverse=True)
            relation, pair_node = key % self.num_relations, key // self.num_relations
            return Pairs(relation, pair_node, pointer_from_sorted(pair_node, num_nodes), edge_pair, num_nodes)
        key, edge_pair = torch.unique(self.relation * num_nodes + node, return_inverse=True)
        relation, pair_node = key // max(num_nodes, 1), key % max(num_nodes, 1)
        return Pairs(relation, pair_node, pointer_from_sorted(relation, self.num_relations), edge_pair, num_nodes)

    @cached_property
    def mix_source_pairs(self) -> SparsePattern:
        """[targets, source pairs], in edge order."""
        return self.targets_from(self.source_pairs)

    @cached_property
    def mix_source_pairs_by_node(self) -> SparsePattern:
        return self.targets_from(self.source_pairs_by_node)

    def targets_from(self, pairs: Pairs) -> SparsePattern:
        """[targets, pairs], one entry an edge, in edge order."""
        return SparsePattern(self.pattern.pointer, pairs.edge_pair, len(pairs))

    @cached_property
    def mix_target_pairs(self) -> tuple[SparsePattern, Tensor]:
        """[target pairs (relation-major), sources], and the edge behind each entry."""
        pairs = self.target_pairs
        order = torch.argsort(pairs.edge_pair, stable=True)
        shape = (len(pairs), self.num_sources)
        return SparsePattern.from_sorted_rows(pairs.edge_pair[order], self.source[order], shape), order

    @cached_property
    def mix_target_pairs_by_node(self) -> SparsePattern:
        """[target pairs (node-major), sources], in edge order."""
        shape = (self.target_relation_first.numel(), self.num_sources)
        return SparsePattern.from_sorted_rows(self.target_relation_run, self.source, shape)

    @cached_property
    def collect_target_pairs(self) -> SparsePattern:
        """[targets, target pairs (relation-major)]: adds up each target's pairs."""
        order = torch.argsort(self.target_pairs.node, stable=True)
        shape = (self.num_targets, len(self.target_pairs))
        return SparsePattern.from_sorted_rows(self.target_pairs.node[order], order, shape)

    @cached_property
    def select_sources(self) -> SparsePattern:
        """[edges, sources]: picks each edge's source."""
        return SparsePattern(torch.arange(self.num_edges + 1, device=self.source.device), self.source, self.num_sources)

    @cached_property
    def sum_messages(self) -> SparsePattern:
        """[targets, edges]: adds up each target's edges."""
        return SparsePattern(
            self.pattern.pointer, torch.arange(self.num_edges, device=self.source.device), self.num_edges
        )

    @cached_property
    def self_loops_apart(self) -> SelfLoopsApart:
        """The self-loops and the rest, for weights that treat the two differently."""
        if not self.has_self_loops:
            raise ConfigError("the adjacency has no self-loops to set apart")
        is_loop = self.relation == self.num_relations - 1
        if self.num_triples * (1 + self.has_inverse) + self.num_targets == self.num_edges:
            # Every triple and every node is there, so the counts are known and need not be waited for.
            order = torch.argsort(is_loop, stable=True)
            rest, loops = order[: self.num_edges - self.num_targets], order[self.num_edges - self.num_targets :]
        else:
            rest, loops = torch.nonzero(~is_loop).squeeze(1), torch.nonzero(is_loop).squeeze(1)
        shape = (self.num_targets, self.num_sources)
        pattern = SparsePattern.from_sorted_rows(self.target[loops], self.source[loops], shape)
        smaller = replace(self.selected(rest), has_self_loops=False, num_relations=self.num_relations - 1)
        return SelfLoopsApart(smaller, rest, pattern, loops)

    def selected(self, edges: Tensor) -> EdgeStructure:
        """The structure of some of the edges (ascending edge numbers), over the same nodes."""
        return replace(
            self,
            target=self.target[edges],
            relation=self.relation[edges],
            source=self.source[edges],
            origin=self.origin[edges],
        )


class SelfLoopsApart(NamedTuple):
    """rest: the other edges' structure, and their numbers; loops: pattern [targets, sources], and their numbers."""

    rest: EdgeStructure
    rest_edges: Tensor
    loops: SparsePattern
    loop_edges: Tensor


@dataclass(frozen=True, eq=False)
class RelationalAdjacency:
    """Every A_r of a graph: edges, their weights, and the rule that normalizes them.

    structure  the edges, sorted
    raw        [E] weights before normalizing (one, the graph's edge weights, zero for a dropped edge)
    weight     [E] entries of the A_r: raw, normalized

    Normalization divides an edge's raw weight by the sum over a group of edges with the same target:
      "relation"   those of the same relation: each A_r is row-normalized (the paper)
      "node"       all of them: Σ_r A_r is row-normalized
      "direction"  those of the same direction, along triples or inverse (the original link predictor)
      "none"       no division
    Aggregation "mean" divides further by the number of relations that reach the target.

    >>> import rgcn
    >>> kg = rgcn.KnowledgeGraph.from_triples([("a", "r", "b"), ("c", "r", "b")])
    >>> adjacency = RelationalAdjacency.from_graph(kg)
    >>> adjacency.to_dense()[0]  # A_0: b hears a and c, half each
    tensor([[0.0000, 0.0000, 0.0000],
            [0.5000, 0.0000, 0.5000],
            [0.0000, 0.0000, 0.0000]])
    """

    structure: EdgeStructure
    raw: Tensor
    weight: Tensor
    normalization: Normalization = "relation"
    aggregation: Aggregation = "sum"

    # -- making one ------------------------------------------------------------------------------------

    @classmethod
    def from_graph(
        cls,
        graph: KnowledgeGraph,
        *,
        split: str = "all",
        inverse: bool = True,
        self_loops: bool = True,
        normalization: Normalization = "relation",
        aggregation: Aggregation = "sum",
        device: torch.device | str = "cpu",
    ) -> RelationalAdjacency:
        """The operator of a knowledge graph's triples, or of one split of them."""
        from rgcn.graph import SPLITS

        weights = graph.edge_weights
        if weights is not None and split != "all" and graph.triple_splits is not None:
            weights = weights[graph.triple_splits == SPLITS.index(split)]
        return cls.from_triples(
            torch.as_tensor(np.array(graph.split_triples(split)), device=device),
            graph.num_nodes,
            graph.num_relations,
            edge_weights=None if weights is None else torch.as_tensor(np.array(weights), device=device),
            inverse=inverse,
            self_loops=self_loops,
            normalization=normalization,
            aggregation=aggregation,
        )

    @classmethod
    def from_triples(
        cls,
        triples: Tensor,
        num_nodes: int,
        num_relations: int,
        *,
        edge_weights: Tensor | None = None,
        inverse: bool = True,
        self_loops: bool = True,
        normalization: Normalization = "relation",
        aggregation: Aggregation = "sum",
        transient: bool = False,
    ) -> RelationalAdjacency:
        """The operator of triples int64 [T, 3] (subject, relation, object); `transient` if for one step only."""
        _check_choices(normalization, aggregation)
        if triples.ndim != 2 or triples.shape[1] != 3 or triples.dtype != torch.int64:
            raise DataError(f"triples must be int64 [T, 3], not {triples.dtype} {list(triples.shape)}")
        subject, relation, object_ = triples.unbind(1)
        number = torch.arange(len(triples), device=triples.device)
        node = torch.arange(num_nodes if self_loops else 0, device=triples.device)
        loop_relation = num_relations * (2 if inverse else 1)
        # Three lists laid end to end, each edge in exactly one of them.
        target = torch.cat([object_, *([subject] if inverse else []), node])
        source = torch.cat([subject, *([object_] if inverse else []), node])
        kind = torch.cat(
            [relation, *([relation + num_relations] if inverse else []), torch.full_like(node, loop_relation)]
        )
        origin = torch.cat([number, *([number] if inverse else []), node + len(triples)])
        total_relations = loop_relation + int(self_loops)
        order = _edge_order(target, kind, source, num_nodes, total_relations)
        structure = EdgeStructure(
            target=target[order],
            relation=kind[order],
            source=source[order],
            origin=origin[order],
            num_targets=num_nodes,
            num_sources=num_nodes,
            num_relations=total_relations,
            num_data_relations=num_relations,
            has_inverse=inverse,
            has_self_loops=self_loops,
            num_triples=len(triples),
            num_nodes=num_nodes,
            transient=transient,
        )
        raw = torch.ones(structure.num_edges, device=triples.device)
        if edge_weights is not None:
            if edge_weights.shape != (len(triples),):
                raise DataError(f"{len(triples)} edge weights are needed, got shape {list(edge_weights.shape)}")
            raw = torch.cat([edge_weights, edge_weights.new_ones(num_nodes)])[structure.origin]
        return cls._normalized(structure, raw, normalization, aggregation)

    @classmethod
    def _normalized(
        cls, structure: EdgeStructure, raw: Tensor, normalization: Normalization, aggregation: Aggregation
    ) -> RelationalAdjacency:
        weight = raw
        if normalization != "none":
            group, count = _normalization_group(structure, normalization)
            total = raw.new_zeros(count).index_add(0, group, raw)
            weight = _divide(raw, total.index_select(0, group))
        if aggregation == "mean":
            weight = _divide(weight, _relations_reaching(structure, raw)[structure.target])
        return cls(structure, raw, weight, normalization, aggregation)

    # -- size ------------------------------------------------------------------------------------------

    @property
    def num_edges(self) -> int:
        return self.structure.num_edges

    @property
    def num_targets(self) -> int:
        return self.structure.num_targets

    @property
    def num_sources(self) -> int:
        return self.structure.num_sources

    @property
    def num_relations(self) -> int:
        """R⁺: relations, inverses and the self-loop."""
        return self.structure.num_relations

    @property
    def device(self) -> torch.device:
        return self.weight.device

    def __repr__(self) -> str:
        return (
            f"RelationalAdjacency({self.num_targets:,} x {self.num_sources:,}, {self.num_relations} relations, "
            f"{self.num_edges:,} edges, normalized per {self.normalization}, {self.aggregation})"
        )

    # -- other operators from this one -------------------------------------------------------------------

    def to(self, target: torch.device | str | torch.dtype) -> RelationalAdjacency:
        """The same operator on another device, or with weights of another precision."""
        if isinstance(target, torch.dtype):
            return replace(self, raw=self.raw.to(target), weight=self.weight.to(target))
        fields = {name: getattr(self.structure, name).to(target) for name in ("target", "relation", "source", "origin")}
        structure = replace(self.structure, **fields)
        return replace(self, structure=structure, raw=self.raw.to(target), weight=self.weight.to(target))

    def reweighted(self, raw: Tensor) -> RelationalAdjacency:
        """The same edges with other raw weights [E], normalized again. Differentiable in `raw`."""
        return self._normalized(self.structure, raw, self.normalization, self.aggregation)

    def masked(self, keep: Tensor) -> RelationalAdjacency:
        """Drop edges: `keep` [num_triples + num_nodes] holds 0 or 1 for each triple, then for each self-loop.

        A triple's edge and its inverse go together, and what is left is normalized again, so a dropped triple leaks
        through neither.
        """
        return self.reweighted(self.raw * keep.to(self.raw.dtype)[self.structure.origin])

    def draw_mask(self, rate: float, self_loop_rate: float = 0.0, generator: torch.Generator | None = None) -> Tensor:
        """A random mask for `masked`: each triple is dropped with `rate`, each self-loop with `self_loop_rate`."""
        for value in (rate, self_loop_rate):
            if not 0.0 <= value < 1.0:
                raise ConfigError(f"a dropout rate lies in [0, 1), not {value}")
        size = self.structure.num_triples + self.structure.num_nodes
        draws = torch.rand(size, generator=generator, device=self.device)
        draws[: self.structure.num_triples] -= rate
        draws[self.structure.num_triples :] -= self_loop_rate
        return (draws >= 0).to(self.raw.dtype)

    def restricted(self, targets: Tensor) -> tuple[RelationalAdjacency, Tensor]:
        """The rows of the given targets only, and the sources they read.

        Returns an operator [len(targets), len(sources)] and the sources' ids, ascending. No weight changes: an edge is
        normalized among the edges of its own target, all of which stay.
        """
        structure = self.structure
        position = torch.full((structure.num_targets,), -1, dtype=torch.int64, device=self.device)
        position[targets] = torch.arange(len(targets), device=self.device)
        if (position >= 0).sum() != len(targets):
            raise DataError("a target is named twice")
        edges = torch.nonzero(position[structure.target] >= 0).squeeze(1)
        new_target = position[structure.target[edges]]
        sources, new_source = torch.unique(structure.source[edges], return_inverse=True)
        order = _edge_order(new_target, structure.relation[edges], new_source, len(sources), structure.num_relations)
        edges = edges[order]
        smaller = replace(
            structure.selected(edges),
            target=new_target[order],
            source=new_source[order],
            num_targets=len(targets),
            num_sources=len(sources),
        )
        return replace(self, structure=smaller, raw=self.raw[edges], weight=self.weight[edges]), sources

    def split_self_loops(self) -> tuple[RelationalAdjacency, SparsePattern, Tensor]:
        """(the operator without self-loops, the self-loops' pattern [targets, sources], their weights)."""
        apart = self.structure.self_loops_apart
        rest = replace(self, structure=apart.rest, raw=self.raw[apart.rest_edges], weight=self.weight[apart.rest_edges])
        return rest, apart.loops, self.weight[apart.loop_edges]

    def to_dense(self) -> Tensor:
        """[R⁺, targets, sources]: for looking and testing; a real graph does not fit."""
        s = self.structure
        dense = self.weight.new_zeros(s.num_relations, s.num_targets, s.num_sources)
        return dense.index_put((s.relation, s.target, s.source), self.weight, accumulate=True)


@dataclass(frozen=True, eq=False)
class ReceptiveField:
    """What L layers must compute for some nodes, and nothing else.

    layers  one operator a layer, the first layer's first; each one's targets are the next one's sources
    inputs  int64: the nodes whose input vectors the first layer reads
    """

    layers: tuple[RelationalAdjacency, ...]
    inputs: Tensor

    @classmethod
    def of(cls, adjacency: RelationalAdjacency, nodes: Tensor, num_layers: int) -> ReceptiveField:
        """Walk back from the nodes whose outputs are wanted. Exact: every edge that can reach them stays."""
        layers: list[RelationalAdjacency] = []
        wanted = nodes
        for _ in range(num_layers):
            smaller, wanted = adjacency.restricted(wanted)
            layers.append(smaller)
        return cls(tuple(reversed(layers)), wanted)

    @classmethod
    def whole(cls, adjacency: RelationalAdjacency, num_layers: int) -> ReceptiveField:
        """Every node, in every layer."""
        nodes = torch.arange(adjacency.num_sources, device=adjacency.device)
        return cls((adjacency,) * num_layers, nodes)

    def masked(self, keep: Tensor) -> ReceptiveField:
        """The same dropped edges in every layer."""
        return replace(self, layers=tuple(layer.masked(keep) for layer in self.layers))

    def to(self, target: torch.device | str | torch.dtype) -> ReceptiveField:
        inputs = self.inputs if isinstance(target, torch.dtype) else self.inputs.to(target)
        return ReceptiveField(tuple(layer.to(target) for layer in self.layers), inputs)


def _edge_order(target: Tensor, relation: Tensor, source: Tensor, num_sources: int, num_relations: int) -> Tensor:
    """The order that sorts edges by target, relation, source; equal edges keep their order."""
    by_source = torch.argsort(source, stable=True)
    key = (target * num_relations + relation)[by_source]
    return by_source[torch.argsort(key, stable=True)]


def _normalization_group(structure: EdgeStructure, normalization: Normalization) -> tuple[Tensor, int]:
    """int64 [E]: edges with the same number are normalized together; and a bound on the numbers.

    The bound is not asked of the tensor: on a GPU the answer would have to be waited for.
    """
    if normalization == "relation":
        return structure.target_relation_run, structure.num_edges
    if normalization == "direction":
        return structure.target * 3 + structure.direction, structure.num_targets * 3
    return structure.target, structure.num_targets


def _relations_reaching(structure: EdgeStructure, raw: Tensor) -> Tensor:
    """[targets]: how many relations have an edge of positive weight into each target."""
    run, begins = structure.target_relation_run, structure._run_begins
    total = raw.new_zeros(structure.num_edges).index_add(0, run, raw.detach())
    present = (begins & (total.index_select(0, run) > 0)).to(raw.dtype)
    return raw.new_zeros(structure.num_targets).index_add(0, structure.target, present)


def _divide(numerator: Tensor, denominator: Tensor) -> Tensor:
    """numerator / denominator, zero where the denominator is: a row that lost all its edges stays empty."""
    empty = denominator == 0
    return torch.where(empty, torch.zeros_like(numerator), numerator / torch.where(empty, 1.0, denominator))


def _check_choices(normalization: str, aggregation: str) -> None:
    if normalization not in get_args(Normalization):
        raise ConfigError(f"unknown normalization {normalization!r}; there are {', '.join(get_args(Normalization))}")
    if aggregation not in get_args(Aggregation):
        raise ConfigError(f"unknown aggregation {aggregation!r}; there are {', '.join(get_args(Aggregation))}")
