"""Edges, sorted, and everything that follows from where they are: computed once, whatever their weights."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rgcn.errors import ConfigError
from rgcn.kernels.sparse import (
    Named,
    Pairs,
    SparsePattern,
    TripleIndex,
    constant_when_compiled,
    narrow,
    pointer_from_sorted,
)

OF_EDGES = ("relation", "source", "origin")  # what a structure holds of each edge


@dataclass(frozen=True, eq=False)
class EdgeStructure(Named):
    """Edges sorted by target, relation, source; everything that does not depend on weights is computed here, once.

    pointer [targets + 1]          where each target's edges begin
    relation, source, origin [E]   `origin` is the number of the triple an edge came from (a triple and its inverse
                                   share it), or num_triples + node for a self-loop

    They are int32 where they fit: widen them before computing with them. num_triples and num_nodes are those of the
    whole graph, also where the structure is a part of it.
    """

    pointer: Tensor
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
    batch: bool = False
    """Whether they are a batch's: rows are then mixed first, for which they stand in order, and of tables only those
    rows that they read are touched."""
    names: Tensor | None = None
    """int64 [targets]: which node each is, where what is dropped of it must not depend on who computes it."""
    _groups: dict[str, SparsePattern] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        bounds = self.num_relations, self.num_sources, self.num_triples + self.num_nodes, self.num_edges + 1
        for name, bound in zip((*OF_EDGES, "pointer"), bounds, strict=True):
            object.__setattr__(self, name, narrow(getattr(self, name), bound))

    @classmethod
    def sorted(
        cls, target: Tensor, relation: Tensor, source: Tensor, origin: Tensor, *, num_targets: int, **others: Any
    ) -> EdgeStructure:
        """The structure of edges [E] that are in no order yet; others: the other fields."""
        order = edge_order(target, relation, source, others["num_relations"])
        pointer = pointer_from_sorted(target[order], num_targets)
        return cls(pointer, relation[order], source[order], origin[order], num_targets=num_targets, **others)

    @property
    def num_edges(self) -> int:
        return self.relation.numel()

    @property
    def target(self) -> Tensor:
        """[E]: made when somebody asks; most networks do without, and save four bytes an edge."""
        return self.pattern.row

    @cached_property
    def pattern(self) -> SparsePattern:
        """[targets, sources], one entry an edge, in edge order."""
        column = narrow(self.source, self.num_sources)
        return SparsePattern(self.pointer, column, self.num_sources, transient=self.transient)

    @cached_property
    def run_begins(self) -> Tensor:
        """bool [E]: whether an edge is the first of its target and relation."""
        begins = torch.ones(self.num_edges + 1, dtype=torch.bool, device=self.relation.device)
        begins[1:-1] = self.relation[1:] != self.relation[:-1]
        return begins.index_fill_(0, self.pointer.long(), True)[:-1]

    @cached_property
    def target_relation_run(self) -> Tensor:
        """int64 [E]: edges of the same target and relation, which stand together, have the same number."""
        return torch.cumsum(self.run_begins, 0) - 1

    @cached_property
    def target_relation_first(self) -> Tensor:
        """int64 [runs]: the first edge of each target and relation."""
        return torch.nonzero(self.run_begins).squeeze(1)

    @cached_property
    def direction(self) -> Tensor:
        """[E]: 0 for an edge along its triple, 1 for an inverse, 2 for a self-loop."""
        out = torch.zeros_like(self.relation)
        if self.has_inverse:
            out += self.relation >= self.num_data_relations
        if self.has_self_loops:
            out[self.relation == self.num_relations - 1] = 2
        return out

    def groups(self, rule: str) -> SparsePattern:
        """[groups, edges]: the edges that are normalized together, by the name of the rule. Kept.

        "relation": those of the same target and relation; "direction": of the same target and direction; "node": of the
        same target. Edges are sorted by target and relation, so that the members of a group stand together. How many
        groups there are is a bound: on a GPU the number would have to be waited for.
        """
        if rule == "node":
            return self.sum_messages
        if rule not in self._groups:
            if rule == "relation":
                group, count = self.target_relation_run, self.num_edges
            else:
                group, count = self.target.long() * 3 + self.direction, self.num_targets * 3
            edges, shape = torch.arange(self.num_edges, device=group.device), (count, self.num_edges)
            self._groups[rule] = SparsePattern.from_sorted_rows(group, edges, shape, transient=self.transient)
        return self._groups[rule]

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
        runs, (order, place) = self.target_pairs_by_node, self._runs_by_relation
        ends = runs.relation[order], runs.node[order], place[self.target_relation_run]
        return Pairs.of(*ends, self.num_targets, self.num_relations, node_major=False)

    @cached_property
    def _runs_by_relation(self) -> tuple[Tensor, Tensor]:
        """int64 [runs]: the runs of target and relation sorted by relation, and where each stands then."""
        order = torch.argsort(self.target_pairs_by_node.relation, stable=True)
        return order, torch.empty_like(order).index_copy_(0, order, torch.arange(len(order), device=order.device))

    @cached_property
    def target_pairs_by_node(self) -> Pairs:
        """(relation, target) pairs, node-major: the runs of the edge order itself."""
        first, sizes = self.target_relation_first, (self.num_targets, self.num_relations)
        return Pairs.of(self.relation[first], self.target[first], self.target_relation_run, *sizes, node_major=True)

    def pairs_of(self, node: Tensor, num_nodes: int, node_major: bool) -> Pairs:
        """The distinct (relation, node[e]) over the edges e, sorted by node or by relation."""
        relation, size = self.relation, self.num_relations if node_major else max(num_nodes, 1)
        key = node.long() * size + relation if node_major else relation.long() * size + node
        key, edge_pair = torch.unique(key, return_inverse=True)
        ends = (key % size, key // size) if node_major else (key // size, key % size)
        return Pairs.of(*ends, edge_pair, num_nodes, self.num_relations, node_major)

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
    def mix_target_pairs(self) -> SparsePattern:
        """[target pairs (relation-major), sources]; values in edge order."""
        # The edges of a run stay together, so that runs are moved and nothing is sorted.
        order, begins = self._runs_by_relation[0], self.mix_target_pairs_by_node.pointer
        edges, pointer = rows_of(begins, order)
        shape = (len(order), self.num_sources)
        return SparsePattern(pointer, narrow(self.source[edges], shape[1]), shape[1], narrow(edges, self.num_edges + 1))

    @cached_property
    def mix_target_pairs_by_node(self) -> SparsePattern:
        """[target pairs (node-major), sources], in edge order."""
        shape = (self.target_relation_first.numel(), self.num_sources)
        return SparsePattern.from_sorted_rows(self.target_relation_run, self.source, shape)

    @cached_property
    def collect_target_pairs(self) -> SparsePattern:
        """[targets, target pairs (relation-major)]: adds up each target's pairs."""
        place = self._runs_by_relation[1]
        return SparsePattern(self.target_pairs_by_node.pointer, narrow(place, len(place) + 1), len(place))

    @cached_property
    def triple_index(self) -> TripleIndex:
        """The edges seen from their targets, their sources and their relations."""
        sizes = (self.num_targets, self.num_relations, self.num_sources)
        return TripleIndex(self.target, self.relation, self.source, sizes)

    @cached_property
    def select_sources(self) -> SparsePattern:
        """[edges, sources]: picks each edge's source."""
        return SparsePattern.picking(self.source, self.num_sources, self.transient)

    @cached_property
    def select_relations(self) -> SparsePattern:
        """[edges, relations]: picks each edge's relation."""
        return SparsePattern.picking(self.relation, self.num_relations, self.transient)

    @cached_property
    def sum_messages(self) -> SparsePattern:
        """[targets, edges]: adds up each target's edges."""
        edges = torch.arange(self.num_edges, device=self.source.device, dtype=self.pattern.pointer.dtype)
        return SparsePattern(self.pattern.pointer, edges, self.num_edges, None, self.transient)

    @cached_property
    def own_sources(self) -> Tensor:
        """int64 [targets]: which of the sources each target is. In a part of a graph its self-loop says it."""
        if self.num_targets == self.num_sources == self.num_nodes:
            return torch.arange(self.num_targets, device=self.source.device)
        own = self.self_loops_apart.loops.column.long() if self.has_self_loops else self.source[:0]
        if len(own) != self.num_targets:
            raise ConfigError("targets do not read their own vectors: set self_loops to true, and drop no self-loops")
        return own

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
        ends = self._pointer_of(loops), self.source[loops]
        pattern = SparsePattern(*ends, self.num_sources, transient=self.transient)
        smaller = replace(self.selected(rest), has_self_loops=False, num_relations=self.num_relations - 1)
        complete = self.num_targets == self.num_sources == self.num_nodes == len(loops)
        return SelfLoopsApart(smaller, rest, pattern, loops, complete)

    @constant_when_compiled
    def set_self_loops_apart(self) -> None:
        """Called when a graph is traced, for real: the compiler finds what was made in the structure."""
        _ = self.self_loops_apart

    def selected(self, edges: Tensor, **changes: Any) -> EdgeStructure:
        """The structure of some of the edges, over the same nodes or as changes have it.

        Edges are ascending numbers, unless the changes have a pointer to where those of each new target begin.
        """
        kept = {name: getattr(self, name)[edges] for name in OF_EDGES if name not in changes}
        if "pointer" not in changes:
            kept["pointer"] = self._pointer_of(edges)
        return replace(self, **kept, **changes)

    def _pointer_of(self, edges: Tensor) -> Tensor:
        """[targets + 1]: where each target's edges begin among these, whose numbers ascend."""
        return torch.searchsorted(edges, self.pointer.long(), out_int32=len(edges) < 2**31)

    def to(self, device: torch.device | str) -> EdgeStructure:
        """The same on another device."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        moved: Any = {name: value.to(device) for name, value in given.items() if isinstance(value, Tensor)}
        return replace(self, **moved)


class SelfLoopsApart(NamedTuple):
    """rest: the other edges' structure, and their numbers; loops: pattern [targets, sources], and their numbers.

    complete: whether every node has its self-loop, so that the pattern is the diagonal.
    """

    rest: EdgeStructure
    rest_edges: Tensor
    loops: SparsePattern
    loop_edges: Tensor
    complete: bool


def rows_of(pointer: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """(int64: the entries of these rows [n], one row after the other; [n + 1]: where each one's begin among them).

    >>> rows_of(torch.tensor([0, 2, 2, 5]), torch.tensor([2, 0]))
    (tensor([2, 3, 4, 0, 1]), tensor([0, 3, 5]))
    """
    begins, ends = pointer.index_select(0, rows), pointer.index_select(0, rows + 1)
    moved = torch.cat([begins.new_zeros(1), torch.cumsum(ends - begins, 0, dtype=begins.dtype)])
    entries = torch.repeat_interleave((begins - moved[:-1]).long(), ends - begins)
    return entries + torch.arange(len(entries), device=entries.device), moved


def edge_order(target: Tensor, relation: Tensor, source: Tensor, num_relations: int) -> Tensor:
    """The order that sorts edges by target, relation, source; equal edges keep their order."""
    by_source = torch.argsort(source, stable=True)
    key = (target * num_relations + relation)[by_source]
    return by_source[torch.argsort(key, stable=True)]
