"""No decomposition: a full matrix for each relation."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rgcn.adjacency import EdgeStructure, Pairs, RelationalAdjacency
from rgcn.errors import DataError
from rgcn.kernels import gather_sum, grouped_product
from rgcn.nn.decompositions.base import (
    Cost,
    Decomposition,
    OneHotSpace,
    OneHotWeights,
    Order,
    RelationWeights,
    WeightShape,
)
from rgcn.nn.initialization import Initializer
from rgcn.nn.rows import RowTable
from rgcn.sparse import SparsePattern


@dataclass(frozen=True)
class Full(Decomposition):
    """W_r free for every relation: R⁺ · in · out numbers. Right when relations are few or each has many edges."""

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
        picked = gather_sum(pairs.select, None, x)
        projected = self._project(picked, pairs)
        return gather_sum(structure.mix_source_pairs, adjacency.weight.to(x.dtype), projected)

    def vertical(self, x: Tensor, adjacency: RelationalAdjacency) -> Tensor:
        structure = adjacency.structure
        pattern, edge = structure.mix_target_pairs
        mixed = gather_sum(pattern, adjacency.weight.to(x.dtype).index_select(0, edge), x)
        projected = self._project(mixed, structure.target_pairs)
        return gather_sum(structure.collect_target_pairs, None, projected)

    def edgewise(self, x: Tensor, adjacency: RelationalAdjacency) -> Tensor:
        structure = adjacency.structure
        _, num_blocks, width_in, _ = self.blocks.shape
        # einsum: one small product an edge, with its relation's blocks
        picked = gather_sum(structure.select_sources, None, x).view(-1, num_blocks, width_in)
        blocks = self.blocks.to(x.dtype).index_select(0, structure.relation)
        messages = torch.einsum("eki, ekio -> eko", picked, blocks).flatten(1)
        return gather_sum(structure.sum_messages, adjacency.weight.to(x.dtype), messages)

    def _project(self, rows: Tensor, pairs: Pairs) -> Tensor:
        """rows [pairs, in] → [pairs, out]."""
        _, num_blocks, width_in, _ = self.blocks.shape
        blocks = self.blocks.to(rows.dtype)
        return grouped_product(rows.view(-1, num_blocks, width_in), blocks, pairs.pointer, pairs.bounds).flatten(1)

    def cost(self, order: Order, adjacency: RelationalAdjacency) -> Cost:
        _, num_blocks, rows, columns = self.blocks.shape
        width_in, width_out = num_blocks * rows, num_blocks * columns
        edges = adjacency.num_edges
        if order == "edgewise":
            moved = edges * (num_blocks * rows * columns + 2 * width_in + 2 * width_out)
            return Cost(operations=edges * num_blocks * rows * columns, numbers=moved)
        structure = adjacency.structure
        pairs = len(structure.source_pairs) if order == "horizontal" else len(structure.target_pairs)
        mixed = edges * (width_out if order == "horizontal" else width_in)
        moved = pairs * (width_in + width_out) + mixed + (0 if order == "horizontal" else pairs * width_out)
        return Cost(operations=pairs * num_blocks * rows * columns + mixed, numbers=moved)

    def dense(self) -> Tensor:
        relations, num_blocks, rows, columns = self.blocks.shape
        out = self.blocks.new_zeros(relations, num_blocks * rows, num_blocks * columns)
        for k in range(num_blocks):
            out[:, k * rows : (k + 1) * rows, k * columns : (k + 1) * columns] = self.blocks[:, k]
        return out

    def extra_repr(self) -> str:
        return f"{list(self.blocks.shape)}"


class PairRows(OneHotWeights[SparsePattern]):
    """Row j of W_r for the pairs (r, j) that occur: [pairs, out] numbers instead of [relations, nodes, out]."""

    key: Tensor

    def __init__(self, space: OneHotSpace, values: Tensor) -> None:
        super().__init__()
        self.num_relations, self.num_nodes = space.num_relations, space.num_nodes
        self.rows = RowTable(values, space.reached)
        self.register_buffer("key", space.relation * space.num_nodes + space.node)

    def forward(self, adjacency: RelationalAdjacency, nodes: Tensor) -> Tensor:
        pattern = self.prepared(adjacency.structure, nodes)
        table = self.rows.trained if pattern.num_columns == len(self.rows.trained) else self.rows.whole()
        return gather_sum(pattern, adjacency.weight.to(table.dtype), table)

    def prepare(self, structure: EdgeStructure, nodes: Tensor) -> SparsePattern:
        """[targets, rows of the table], one entry an edge."""
        position = self.rows.position[
            find_pairs(self.key, structure.relation * self.num_nodes + nodes[structure.source])
        ]
        width = self.rows.table_for(position).shape[0]
        return SparsePattern(structure.pattern.pointer, position, width)

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
