"""The sorted edges of a graph, and the patterns that follow from their positions: computed once, for any weights."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rgcn.errors import ConfigError
from rgcn.kernels.sparse import KernelStructure, Pairs, SparsePattern, TripleIndex, constant_when_compiled, narrow

EDGE_FIELDS = ("relation", "source", "origin")  # the fields of `EdgeStructure` that have a number per edge


@dataclass(frozen=True, eq=False)
class EdgeStructure(KernelStructure):
    """Edges sorted by target, relation and source.

    Ids are int32 where they fit: convert them to int64 before computing with them.

    Attributes:
        pointer: Where each target's edges begin, [num_targets + 1].
        relation: [num_edges].
        source: [num_edges].
        origin: The number of the triple that an edge was made from (a triple and its inverse share it), or
            num_triples + node for a self-loop, [num_edges].
        num_targets: How many targets there are.
        num_sources: How many sources there are.
        num_relations: How many relations there are, with inverses and the self-loop.
        num_data_relations: How many relations the graph has.
        has_inverse: True if each triple also has an edge in the opposite direction.
        has_self_loops: True if the last relation is that of self-loops.
        num_triples: The number of triples of the whole graph, even if this is a part of it.
        num_nodes: The number of nodes of the whole graph.
        transient: True if the edges are used for one step only, so that nothing slow is prepared.
        is_batch: True for the edges of a batch. Aggregation then comes before projection, which needs no sorting, and
            only those rows of tables that the edges read are touched.
        node_ids: The node that each target is, int64 [num_targets], if dropout must not depend on the process that
            computes the node.
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
    is_batch: bool = False
    node_ids: Tensor | None = None
    _groups: dict[str, SparsePattern] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Convert ids to int32 where they fit."""
        super().__post_init__()
        bounds = self.num_relations, self.num_sources, self.num_triples + self.num_nodes, self.num_edges + 1
        for name, bound in zip((*EDGE_FIELDS, "pointer"), bounds, strict=True):
            object.__setattr__(self, name, narrow(getattr(self, name), bound))

    @property
    def num_edges(self) -> int:
        """How many edges there are."""
        return self.relation.numel()

    @property
    def target(self) -> Tensor:
        """The target of each edge, [num_edges]; computed on first use, since most networks do not need it."""
        return self.pattern.row

    @cached_property
    def pattern(self) -> SparsePattern:
        """The pattern [num_targets, num_sources] with one entry per edge, in the order of the edges."""
        column = narrow(self.source, self.num_sources)
        return SparsePattern(self.pointer, column, self.num_sources, transient=self.transient)

    @cached_property
    def run_begins(self) -> Tensor:
        """True for the first edge of each target and relation, bool [num_edges]."""
        begins = torch.ones(self.num_edges + 1, dtype=torch.bool, device=self.relation.device)
        begins[1:-1] = self.relation[1:] != self.relation[:-1]
        return begins.index_fill_(0, self.pointer.long(), True)[:-1]

    @cached_property
    def target_relation_run(self) -> Tensor:
        """The run of each edge, int64 [num_edges]; a run is the edges of one target and relation."""
        return torch.cumsum(self.run_begins, 0) - 1

    @cached_property
    def target_relation_first(self) -> Tensor:
        """The first edge of each run, int64 [num_runs]."""
        return torch.nonzero(self.run_begins).squeeze(1)

    @cached_property
    def direction(self) -> Tensor:
        """0 for an edge along its triple, 1 for an inverse, 2 for a self-loop, [num_edges]."""
        out = torch.zeros_like(self.relation)
        if self.has_inverse:
            out += self.relation >= self.num_data_relations
        if self.has_self_loops:
            out[self.relation == self.num_relations - 1] = 2
        return out

    def groups(self, rule: str) -> SparsePattern:
        """Return the groups of edges that are normalized together, as a pattern [num_groups, num_edges]. Cached.

        Edges are sorted by target and relation, so the members of a group are consecutive. The number of groups is an
        upper bound, because a GPU would have to be waited for.

        Args:
            rule: "relation" groups edges of the same target and relation, "direction" those of the same target and
                direction, "node" those of the same target.
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
        """The (relation, source) pairs, sorted by relation: what a layer projects if projection comes first."""
        return self.pairs_of(self.source, self.num_sources, node_major=False)

    @cached_property
    def source_pairs_by_node(self) -> Pairs:
        """The (relation, source) pairs, sorted by source."""
        return self.pairs_of(self.source, self.num_sources, node_major=True)

    @cached_property
    def target_pairs(self) -> Pairs:
        """The (relation, target) pairs, sorted by relation: what a layer projects if aggregation comes first."""
        runs, (order, place) = self.target_pairs_by_node, self._runs_by_relation
        ends = runs.relation[order], runs.node[order], place[self.target_relation_run]
        return Pairs.of(*ends, self.num_targets, self.num_relations, node_major=False)

    @cached_property
    def _runs_by_relation(self) -> tuple[Tensor, Tensor]:
        """The runs sorted by relation, and the position of each run in this order; int64 [num_runs] each."""
        order = torch.argsort(self.target_pairs_by_node.relation, stable=True)
        return order, torch.empty_like(order).index_copy_(0, order, torch.arange(len(order), device=order.device))

    @cached_property
    def target_pairs_by_node(self) -> Pairs:
        """The (relation, target) pairs, sorted by target: the runs in the order of the edges."""
        first, sizes = self.target_relation_first, (self.num_targets, self.num_relations)
        return Pairs.of(self.relation[first], self.target[first], self.target_relation_run, *sizes, node_major=True)

    def pairs_of(self, node: Tensor, num_nodes: int, node_major: bool) -> Pairs:
        """Return the distinct (relation[e], node[e]) of the edges e, sorted by node or by relation.

        Args:
            node: A node for each edge, [num_edges].
            num_nodes: How many nodes there are.
            node_major: True to sort by node.
        """
        relation, size = self.relation, self.num_relations if node_major else max(num_nodes, 1)
        key = node.long() * size + relation if node_major else relation.long() * size + node
        key, edge_pair = torch.unique(key, return_inverse=True)
        ends = (key % size, key // size) if node_major else (key // size, key % size)
        return Pairs.of(*ends, edge_pair, num_nodes, self.num_relations, node_major)

    @cached_property
    def mix_source_pairs(self) -> SparsePattern:
        """The pattern [num_targets, num_source_pairs] with one entry per edge, for pairs sorted by relation."""
        return self.targets_from(self.source_pairs)

    @cached_property
    def mix_source_pairs_by_node(self) -> SparsePattern:
        """The pattern [num_targets, num_source_pairs] with one entry per edge, for pairs sorted by source."""
        return self.targets_from(self.source_pairs_by_node)

    def targets_from(self, pairs: Pairs) -> SparsePattern:
        """Return the pattern [num_targets, num_pairs] with one entry per edge."""
        return SparsePattern(self.pointer, pairs.edge_pair, len(pairs))

    @cached_property
    def mix_target_pairs(self) -> SparsePattern:
        """The pattern [num_target_pairs, num_sources], one entry per edge, for pairs sorted by relation."""
        # The edges of a run stay together, so runs are moved and nothing is sorted.
        order, begins = self._runs_by_relation[0], self.mix_target_pairs_by_node.pointer
        edges, pointer = entries_of_rows(begins, order)
        shape = (len(order), self.num_sources)
        return SparsePattern(pointer, narrow(self.source[edges], shape[1]), shape[1], narrow(edges, self.num_edges + 1))

    @cached_property
    def mix_target_pairs_by_node(self) -> SparsePattern:
        """The pattern [num_target_pairs, num_sources], one entry per edge, for pairs sorted by target."""
        shape = (self.target_relation_first.numel(), self.num_sources)
        return SparsePattern.from_sorted_rows(self.target_relation_run, self.source, shape)

    @cached_property
    def collect_target_pairs(self) -> SparsePattern:
        """The pattern [num_targets, num_target_pairs] that sums each target's pairs, which are sorted by relation."""
        position = self._runs_by_relation[1]
        return SparsePattern(self.target_pairs_by_node.pointer, narrow(position, len(position) + 1), len(position))

    @cached_property
    def triple_index(self) -> TripleIndex:
        """The edges, with views from their targets, sources and relations."""
        sizes = (self.num_targets, self.num_relations, self.num_sources)
        return TripleIndex(self.target, self.relation, self.source, sizes)

    @cached_property
    def select_sources(self) -> SparsePattern:
        """The pattern [num_edges, num_sources] that selects each edge's source."""
        return SparsePattern.selection(self.source, self.num_sources, self.transient)

    @cached_property
    def select_relations(self) -> SparsePattern:
        """The pattern [num_edges, num_relations] that selects each edge's relation."""
        return SparsePattern.selection(self.relation, self.num_relations, self.transient)

    @cached_property
    def sum_messages(self) -> SparsePattern:
        """The pattern [num_targets, num_edges] that sums each target's edges."""
        edges = torch.arange(self.num_edges, device=self.source.device, dtype=self.pointer.dtype)
        return SparsePattern(self.pointer, edges, self.num_edges, None, self.transient)

    @cached_property
    def target_sources(self) -> Tensor:
        """The source that is the same node as each target, int64 [num_targets]; of a part, its self-loops tell it."""
        if self.num_targets == self.num_sources == self.num_nodes:
            return torch.arange(self.num_targets, device=self.source.device)
        sources = self.self_loop_split.loops.column.long() if self.has_self_loops else self.source[:0]
        if len(sources) != self.num_targets:
            raise ConfigError("targets do not read their own vectors: set self_loops to true, and drop no self-loops")
        return sources

    @cached_property
    def self_loop_split(self) -> SelfLoopSplit:
        """The self-loops and the other edges, for weights that treat the two differently."""
        if not self.has_self_loops:
            raise ConfigError("the adjacency has no self-loops to separate: set self_loops to true")
        is_loop = self.relation == self.num_relations - 1
        if self.num_triples * (1 + self.has_inverse) + self.num_targets == self.num_edges:
            # No triple and no node is missing, so the counts are known without waiting for the device.
            order = torch.argsort(is_loop, stable=True)
            rest, loops = order[: self.num_edges - self.num_targets], order[self.num_edges - self.num_targets :]
        else:
            rest, loops = torch.nonzero(~is_loop).squeeze(1), torch.nonzero(is_loop).squeeze(1)
        ends = self._pointer_of(loops), self.source[loops]
        pattern = SparsePattern(*ends, self.num_sources, transient=self.transient)
        others = replace(self.select_edges(rest), has_self_loops=False, num_relations=self.num_relations - 1)
        is_complete = self.num_targets == self.num_sources == self.num_nodes == len(loops)
        return SelfLoopSplit(others, rest, pattern, loops, is_complete)

    @constant_when_compiled
    def prepare_self_loop_split(self) -> None:
        """Compute `self_loop_split` while a graph is traced; the compiler then finds the result."""
        _ = self.self_loop_split

    def select_edges(self, edges: Tensor, **changes: Any) -> EdgeStructure:
        """Return the structure of some edges.

        Args:
            edges: Numbers of edges, ascending unless `changes` has a pointer for new targets.
            changes: Fields to replace.
        """
        selected = {name: getattr(self, name)[edges] for name in EDGE_FIELDS if name not in changes}
        if "pointer" not in changes:
            selected["pointer"] = self._pointer_of(edges)
        return replace(self, **selected, **changes)

    def _pointer_of(self, edges: Tensor) -> Tensor:
        """Where each target's edges begin among these ascending numbers of edges, [num_targets + 1]."""
        return torch.searchsorted(edges, self.pointer.long(), out_int32=len(edges) < 2**31)

    def to(self, device: torch.device | str) -> EdgeStructure:
        """Copy to a device."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        moved: Any = {name: value.to(device) for name, value in values.items() if isinstance(value, Tensor)}
        return replace(self, **moved)


class SelfLoopSplit(NamedTuple):
    """Self-loops, and the other edges.

    Attributes:
        rest: The structure of the other edges.
        rest_edges: Their numbers.
        loops: The pattern [num_targets, num_sources] of the self-loops.
        loop_edges: Their numbers.
        is_complete: True if every node has its self-loop, so that the pattern is the diagonal.
    """

    rest: EdgeStructure
    rest_edges: Tensor
    loops: SparsePattern
    loop_edges: Tensor
    is_complete: bool


def entries_of_rows(pointer: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """List the entries of some rows, row by row, and where those of each row begin in the list.

    >>> entries_of_rows(torch.tensor([0, 2, 2, 5]), torch.tensor([2, 0]))
    (tensor([2, 3, 4, 0, 1]), tensor([0, 3, 5]))

    Args:
        pointer: Where the entries of each row begin, [num_rows + 1].
        rows: int64 [n].

    Returns:
        The entries, int64, and where those of each of the n rows begin, [n + 1].
    """
    begins, ends = pointer.index_select(0, rows), pointer.index_select(0, rows + 1)
    moved = torch.cat([begins.new_zeros(1), torch.cumsum(ends - begins, 0, dtype=begins.dtype)])
    entries = torch.repeat_interleave((begins - moved[:-1]).long(), ends - begins)
    return entries + torch.arange(len(entries), device=entries.device), moved
