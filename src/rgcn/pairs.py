"""The (relation, node) pairs that occur in a graph: few, where relations × nodes would be hundreds of times more."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from rgcn.sparse import Named, RowPieces, SparsePattern, narrow, pointer_from_sorted


@dataclass(frozen=True, eq=False)
class Pairs(Named):
    """The (relation, node) pairs that occur among some edges, and how the edges use them.

    relation, node [P]; `pointer` says which pairs belong to each relation (relation-major order, [relations + 1]) or to
    each node (node-major order, [nodes + 1]). `edge_pair` [E] is an edge's pair. Ids are int32 where they fit.
    """

    relation: Tensor
    node: Tensor
    pointer: Tensor
    edge_pair: Tensor
    num_nodes: int
    num_relations: int

    def __len__(self) -> int:
        return self.relation.numel()

    @classmethod
    def of(
        cls, relation: Tensor, node: Tensor, edge_pair: Tensor, num_nodes: int, num_relations: int, node_major: bool
    ) -> Pairs:
        """From pairs already sorted by node (node_major) or by relation."""
        pointer = pointer_from_sorted(node, num_nodes) if node_major else pointer_from_sorted(relation, num_relations)
        ids = (narrow(relation, num_relations), narrow(node, num_nodes))
        return cls(*ids, pointer, narrow(edge_pair, relation.numel() + 1), num_nodes, num_relations)

    @cached_property
    def bounds(self) -> list[int]:
        """`pointer` on the host: asked of the device once, not in every step."""
        numbers: list[int] = self.pointer.tolist()
        return numbers

    @cached_property
    def tiles(self) -> RowPieces:
        """The groups of `pointer` cut for a GPU."""
        return RowPieces.of(self.pointer)

    @cached_property
    def select(self) -> SparsePattern:
        """[P, nodes]: picks each pair's node."""
        return SparsePattern.picking(self.node, self.num_nodes)

    @cached_property
    def by_relation(self) -> SparsePattern:
        """[relations, P]: the pairs of each relation, whatever order the pairs are in."""
        order = torch.argsort(self.relation, stable=True)
        return SparsePattern.from_sorted_rows(self.relation[order], order, (self.num_relations, len(self)))

    @torch.compiler.assume_constant_result  # type: ignore[untyped-decorator, unused-ignore]
    def make_ready(self) -> None:
        """As `SparsePattern.make_ready`."""
        if self.relation.is_cuda:
            _ = self.bounds, self.tiles, self.by_relation.pieces
