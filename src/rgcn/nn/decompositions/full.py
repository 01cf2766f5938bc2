"""No decomposition: a full matrix for each relation."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rgcn.adjacency import EdgeStructure, Pairs, RelationalAdjacency
from rgcn.errors import DataError
from rgcn.kernels import gather_sum, grouped_product, take_rows
from rgcn.nn.decompositions import cost
from rgcn.nn.decompositions.base import (
    Decomposition,
    Lookup,
    OneHotSpace,
    OneHotWeights,
    Order,
    RelationWeights,
    WeightShape,
)
from rgcn.nn.decompositions.cost import Cost
from rgcn.nn.initialization import Initializer
from rgcn.nn.rows import RowTable
from rgcn.sparse import SparsePattern, narrow


@dataclass(frozen=True)
class Full(Decomposition):
    """W_r free for every relation: R⁺ · in · out numbers. Right when relations are few or each has many edges."""

    def numbers(self, relations: int, width_in: int, width_out: int) -> int:
        return relations * width_in * width_out

    def weights(self, shape: WeightShape, init: Initializer, generator: torch.Generator) -> BlockWeights:
        return BlockWeights(shape, num_blocks=1, init=init, generator=generator)

    def one_hot_weights(
        self, space: OneHotSpace, out_features: int, init: Initializer, generator: torch.Generator
    ) -> PairRows:
        shape = (space.num_relations, space.num_nodes, out_features)
        return PairRows(space, init.draw(shape, generator, rows=len(space.relation)))


class BlockWeights(RelationWeights):
    """W_r = diag(Q_r1, …, Q_rB), blocks [in / B, out / B]. One block: a full matrix. Blocks of 1 × 1: a diagonal.

    `blocks` [relations, B, in / B, out / B].
    """

    def __init__(self, shape: WeightShape, num_blocks: int, init: Initializer, generator: torch.Generator) -> None:
        super().__init__()
        rows, columns = shape.in_features // num_blocks, shape.out_features // num_blocks
        size = (shape.relations, num_blocks, rows, columns)
        # Fans are those of the stack as the paper writes it: full matrices, vectors on a diagonal, or blocks.
        stack: tuple[int, ...] = size if num_blocks > 1 else size[:1] + size[2:]
        if num_blocks > 1 and rows == columns == 1:
            stack = size[:2]
        self.blocks = nn.Parameter(init.draw(stack, generator).reshape(size))

    def horizontal(self, x: Tensor, adjacency: RelationalAdjacency) -> Tensor:
        structure = adjacency.structure
        pairs = structure.source_pairs
        picked = take_rows(x, pairs.select)
        projected = self._project(picked, pairs)
        return gather_sum(structure.mix_source_pairs, adjacency.weight, projected)

    def vertical(self, x: Tensor, adjacency: RelationalAdjacency) -> Tensor:
        structure = adjacency.structure
        mixed = gather_sum(structure.mix_target_pairs, adjacency.weight, x)
        projected = self._project(mixed, structure.target_pairs)
        return gather_sum(structure.collect_target_pairs, None, projected)

    def edgewise(self, x: Tensor, adjacency: RelationalAdjacency) -> Tensor:
        structure = adjacency.structure
        _, num_blocks, width_in, _ = self.blocks.shape
        # einsum: one small product an edge, with its relation's blocks
        picked = take_rows(x, structure.select_sources).view(-1, num_blocks, width_in)
        blocks = take_rows(self.blocks.to(x.dtype).flatten(1), structure.select_relations).view(
            -1, *self.blocks.shape[1:]
        )
        messages = torch.einsum("eki, ekio -> eko", picked, blocks).flatten(1)
        return gather_sum(structure.sum_messages, adjacency.weight, messages)

    def _project(self, rows: Tensor, pairs: Pairs) -> Tensor:
        """rows [pairs, in] → [pairs, out]."""
        _, num_blocks, width_in, _ = self.blocks.shape
        return grouped_product(rows.view(-1, num_blocks, width_in), self.blocks, pairs).flatten(1)

    def cost(self, order: Order, structure: EdgeStructure) -> Cost:
        relations, num_blocks, rows, columns = self.blocks.shape
        width_in, width_out, edges = num_blocks * rows, num_blocks * columns, structure.num_edges
        targets, sources = structure.num_targets, structure.num_sources
        if order == "edgewise":
            block = num_blocks * rows * columns
            picking = cost.take_rows(edges, sources, width_in) + cost.take_rows(edges, relations, block)
            products = cost.grouped_product(edges, edges, num_blocks, rows, columns)
            return picking + products + cost.gather_sum(targets, edges, edges, width_out)
        pairs = len(structure.source_pairs if order == "horizontal" else structure.target_pairs)
        products = cost.grouped_product(pairs, relations, num_blocks, rows, columns)
        if order == "horizontal":
            return (
                cost.take_rows(pairs, sources, width_in) + products + cost.gather_sum(targets, pairs, edges, width_out)
            )
        mixing = cost.gather_sum(pairs, sources, edges, width_in)
        return mixing + products + cost.gather_sum(targets, pairs, pairs, width_out, valued=False)

    def prepare(self, order: Order, structure: EdgeStructure) -> None:
        if order == "horizontal":
            _ = structure.source_pairs.select, structure.mix_source_pairs
        elif order == "vertical":
            _ = structure.mix_target_pairs, structure.target_pairs, structure.collect_target_pairs
        else:
            _ = structure.select_sources, structure.select_relations, structure.sum_messages

    def dense(self) -> Tensor:
        relations, num_blocks, rows, columns = self.blocks.shape
        out = self.blocks.new_zeros(relations, num_blocks * rows, num_blocks * columns)
        for k in range(num_blocks):
            out[:, k * rows : (k + 1) * rows, k * columns : (k + 1) * columns] = self.blocks[:, k]
        return out

    def extra_repr(self) -> str:
        return f"{list(self.blocks.shape)}"


class PairRows(OneHotWeights):
    """Row j of W_r for the pairs (r, j) that occur: [pairs, out] numbers instead of [relations, nodes, out]."""

    key: Tensor

    def __init__(self, space: OneHotSpace, values: Tensor) -> None:
        super().__init__()
        self.num_relations, self.num_nodes = space.num_relations, space.num_nodes
        self.rows = RowTable(values, space.reached)
        self.register_buffer("key", space.relation * space.num_nodes + space.node)

    def forward(self, adjacency: RelationalAdjacency, nodes: Tensor | None = None) -> Tensor:
        found = self.lookup(adjacency.structure, nodes)
        return gather_sum(found.pattern, adjacency.weight, found.table(self.rows))

    def look(self, structure: EdgeStructure, nodes: Tensor) -> Lookup:
        """[targets, rows of the table], one entry an edge."""
        position = self.rows.position[
            find_pairs(self.key, structure.relation * self.num_nodes + nodes[structure.source])
        ]
        width = self.rows.table_for(position).shape[0]
        pattern = SparsePattern(structure.pattern.pointer, narrow(position, width), width)
        return Lookup(width == len(self.rows.trained), pattern)

    def dense(self) -> Tensor:
        values = self.rows.values()
        out = values.new_zeros(self.num_relations * self.num_nodes, values.shape[1])
        return out.index_copy(0, self.key, values).view(self.num_relations, self.num_nodes, -1)


def find_pairs(known: Tensor, wanted: Tensor) -> Tensor:
    """Where each wanted key stands in the sorted known ones."""
    where = torch.searchsorted(known, wanted).clamp_(max=max(known.numel() - 1, 0))
    if wanted.numel() and (known.numel() == 0 or not torch.equal(known[where], wanted)):
        raise DataError(
            "the graph has a (relation, node) pair that this layer was not built for: a one-hot layer knows only the "
            "graph it was made from; use node features or embeddings for other graphs"
        )
    return where
