"""Block-diagonal decomposition: each relation touches features in small groups."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rgcn.adjacency import EdgeStructure, RelationalAdjacency
from rgcn.errors import ConfigError
from rgcn.kernels import gather_sum
from rgcn.nn.decompositions.base import Decomposition, Lookup, OneHotSpace, OneHotWeights, WeightShape
from rgcn.nn.decompositions.full import BlockWeights, find_pairs
from rgcn.nn.initialization import Initializer
from rgcn.nn.rows import RowTable
from rgcn.sparse import SparsePattern


@dataclass(frozen=True)
class BlockDiagonal(Decomposition):
    """W_r = diag(Q_r1, …, Q_rB): R⁺ · in · out / B numbers, and as much less work.

    Keeps a matrix of its own for each relation where a basis would tie them together, at the price that features mix
    only within their block. The self-loop keeps a full matrix, so that blocks exchange something after all.
    """

    num_blocks: int
    self_loop_apart: bool = True

    def __post_init__(self) -> None:
        if self.num_blocks < 1:
            raise ConfigError(f"a block-diagonal decomposition needs at least one block, not {self.num_blocks}")

    def _check(self, **widths: int) -> None:
        for name, width in widths.items():
            if width % self.num_blocks:
                raise ConfigError(f"{name} = {width} does not divide into {self.num_blocks} blocks")

    def numbers(self, relations: int, width_in: int, width_out: int) -> int:
        return relations * width_in * width_out // self.num_blocks

    def weights(self, shape: WeightShape, init: Initializer, generator: torch.Generator) -> BlockWeights:
        self._check(in_features=shape.in_features, out_features=shape.out_features)
        return BlockWeights(shape, self.num_blocks, init, generator)

    def one_hot_weights(
        self, space: OneHotSpace, out_features: int, init: Initializer, generator: torch.Generator
    ) -> BlockRows:
        self._check(out_features=out_features)
        return BlockRows(space, out_features, self.num_blocks, init, generator)


class BlockRows(OneHotWeights):
    """Row j of a block-diagonal W_r is zero outside the block that j lies in: out / B numbers for each pair (r, j).

    Nodes are cut into B runs of equal length (the last may be shorter); run k writes block k of the output.
    """

    key: Tensor

    def __init__(
        self, space: OneHotSpace, out_features: int, num_blocks: int, init: Initializer, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.num_relations, self.num_nodes, self.num_blocks = space.num_relations, space.num_nodes, num_blocks
        self.run = -(-space.num_nodes // num_blocks)
        shape = (space.num_relations, num_blocks, self.run, out_features // num_blocks)
        self.rows = RowTable(init.draw(shape, generator, rows=len(space.relation)), space.reached)
        self.register_buffer("key", space.relation * space.num_nodes + space.node)

    def forward(self, adjacency: RelationalAdjacency, nodes: Tensor | None = None) -> Tensor:
        found = self.lookup(adjacency.structure, nodes)
        table = found.table(self.rows)
        blocks = gather_sum(found.pattern, adjacency.weight, table)
        return blocks.view(adjacency.num_targets, self.num_blocks * table.shape[1])

    def look(self, structure: EdgeStructure, nodes: Tensor) -> Lookup:
        """[targets · B, rows of the table]: block k of target t is row t · B + k; values in edge order."""
        node = nodes[structure.source]
        position = self.rows.position[find_pairs(self.key, structure.relation * self.num_nodes + node)]
        row = structure.target * self.num_blocks + node // self.run
        edge = torch.argsort(row, stable=True)
        shape = (structure.num_targets * self.num_blocks, self.rows.table_for(position).shape[0])
        pattern = SparsePattern.from_sorted_rows(row[edge], position[edge], shape, edge)
        return Lookup(shape[1] == len(self.rows.trained), pattern)

    def dense(self) -> Tensor:
        values = self.rows.values()
        relation, node = self.key // self.num_nodes, self.key % self.num_nodes
        out = values.new_zeros(self.num_relations, self.num_nodes, self.num_blocks, values.shape[1])
        return out.index_put((relation, node, node // self.run), values).flatten(2)
