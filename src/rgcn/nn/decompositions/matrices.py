"""Matrices of each relation's own: full, block-diagonal, diagonal."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn

from rgcn.adjacency import EdgeStructure, Pairs, RelationalAdjacency
from rgcn.config import LinkModelConfig, NodeModelConfig
from rgcn.errors import ConfigError, DataError
from rgcn.kernels import gather_sum, grouped_product, scaled_sum, take_rows
from rgcn.kernels.sparse import SparsePattern, narrow
from rgcn.nn.decompositions.base import Cost, Decomposition, Lookup, OneHotSpace, OneHotWeights, Order, RelationWeights
from rgcn.nn.initialization import Initializer, WeightShape
from rgcn.nn.row_tables import RowTable
from rgcn.system.formatting import count


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

    @classmethod
    def build(cls, model: NodeModelConfig | LinkModelConfig, out: int, is_output: bool = False) -> BlockDiagonal:
        assert model.blocks is not None
        if isinstance(model, LinkModelConfig):
            return cls(model.blocks, model.self_loop_apart is not False)
        return Full() if is_output and out % model.blocks else cls(model.blocks)  # classes rarely divide into blocks

    @classmethod
    def words(cls, model: NodeModelConfig | LinkModelConfig) -> str:
        return f"each relation's matrix has {count(model.blocks or 0, 'block')} along its diagonal, and zeros elsewhere"

    def _check(self, **widths: int) -> None:
        for name, width in widths.items():
            if width % self.num_blocks:
                raise ConfigError(f"{name} = {width} does not divide into {self.num_blocks} blocks")

    def numbers(self, relations: int, width_in: int, width_out: int) -> int:
        return relations * width_in * width_out // self.num_blocks

    def weights(self, shape: WeightShape, init: Initializer, generator: torch.Generator) -> BlockWeights:
        relations, width_in, width_out = shape
        self._check(in_features=width_in, out_features=width_out)
        size = (relations, self.num_blocks, width_in // self.num_blocks, width_out // self.num_blocks)
        return BlockWeights(size, init, generator)

    def one_hot_weights(
        self, space: OneHotSpace, out_features: int, init: Initializer, generator: torch.Generator
    ) -> PairRows:
        self._check(out_features=out_features)
        return PairRows(space, out_features, self.num_blocks, init, generator)


@dataclass(frozen=True)
class Full(BlockDiagonal):
    """W_r free for every relation: R⁺ · in · out numbers. Right when relations are few or each has many edges."""

    num_blocks: int = field(default=1, init=False, repr=False)
    self_loop_apart: bool = field(default=False, init=False, repr=False)

    @classmethod
    def build(cls, model: NodeModelConfig | LinkModelConfig, out: int, is_output: bool = False) -> Full:
        return cls()

    @classmethod
    def words(cls, model: NodeModelConfig | LinkModelConfig) -> str:
        return "a full matrix for each relation (no decomposition)"


class MatrixWeights(RelationWeights):
    """W_r = diag(Q_r1, …, Q_rB), where a subclass computes the Q from whatever numbers it holds."""

    reads: ClassVar = {
        "horizontal": ("source_pairs.select", "mix_source_pairs"),
        "vertical": ("mix_target_pairs", "target_pairs", "collect_target_pairs"),
        "edgewise": ("select_sources", "select_relations", "sum_messages"),
    }

    @abstractmethod
    def matrices(self) -> Tensor:
        """[relations, B, in / B, out / B]: the Q. One block: full matrices."""

    def horizontal(self, x: Tensor, adjacency: RelationalAdjacency) -> Tensor:
        structure, pairs = adjacency.structure, adjacency.structure.source_pairs
        projected = self._project(take_rows(x, pairs.select), pairs)
        return gather_sum(structure.mix_source_pairs, adjacency.weight, projected)

    def vertical(self, x: Tensor, adjacency: RelationalAdjacency) -> Tensor:
        structure = adjacency.structure
        mixed = gather_sum(structure.mix_target_pairs, adjacency.weight, x)
        projected = self._project(mixed, structure.target_pairs)
        return gather_sum(structure.collect_target_pairs, None, projected)

    def edgewise(self, x: Tensor, adjacency: RelationalAdjacency) -> Tensor:
        structure = adjacency.structure
        matrices = self.matrices()
        # einsum: one small product an edge, with its relation's blocks
        picked = take_rows(x, structure.select_sources).view(-1, *matrices.shape[1:3])
        blocks = take_rows(matrices.to(x.dtype).flatten(1), structure.select_relations)
        messages = torch.einsum("eki, ekio -> eko", picked, blocks.view(-1, *matrices.shape[1:])).flatten(1)
        return gather_sum(structure.sum_messages, adjacency.weight, messages)

    def _project(self, rows: Tensor, pairs: Pairs) -> Tensor:
        """rows [pairs, in] → [pairs, out]."""
        matrices = self.matrices()
        return grouped_product(rows.view(-1, *matrices.shape[1:3]), matrices, pairs).flatten(1)

    def cost(self, order: Order, structure: EdgeStructure) -> Cost:
        relations, num_blocks, rows, columns = self.matrices().shape
        width_in, width_out, edges = num_blocks * rows, num_blocks * columns, structure.num_edges
        targets, sources = structure.num_targets, structure.num_sources
        if order == "edgewise":
            block = num_blocks * rows * columns
            picking = Cost.take_rows(edges, sources, width_in) + Cost.take_rows(edges, relations, block)
            products = Cost.grouped_product(edges, edges, num_blocks, rows, columns)
            return picking + products + Cost.gather_sum(targets, edges, edges, width_out)
        pairs = len(structure.source_pairs if order == "horizontal" else structure.target_pairs)
        products = Cost.grouped_product(pairs, relations, num_blocks, rows, columns)
        if order == "horizontal":
            picking = Cost.take_rows(pairs, sources, width_in)
            return picking + products + Cost.gather_sum(targets, pairs, edges, width_out)
        mixing = Cost.gather_sum(pairs, sources, edges, width_in)
        return mixing + products + Cost.gather_sum(targets, pairs, pairs, width_out, valued=False)

    def dense(self) -> Tensor:
        matrices = self.matrices()
        unit = torch.eye(matrices.shape[1], dtype=matrices.dtype, device=matrices.device)
        return torch.einsum("rkio, kl -> rkilo", matrices, unit).flatten(3).flatten(1, 2)


class BlockWeights(MatrixWeights):
    """blocks [relations, B, in / B, out / B]: the Q themselves."""

    def __init__(self, size: tuple[int, int, int, int], init: Initializer, generator: torch.Generator) -> None:
        super().__init__()
        relations, num_blocks, *block = size
        # Fans are those of the stack as the paper writes it: full matrices, vectors on a diagonal, or blocks.
        stack = [relations, *block] if num_blocks == 1 else size[:2] if block == [1, 1] else size
        self.blocks = nn.Parameter(init.draw(stack, generator).reshape(size))

    def matrices(self) -> Tensor:
        return self.blocks


class PairRows(OneHotWeights):
    """Row j of W_r for the pairs (r, j) that occur: [pairs, out / B] numbers instead of [relations, nodes, out].

    Row j of a block-diagonal W_r is zero outside the block that j lies in. Nodes are cut into B runs of equal length
    (the last may be shorter); run k writes block k of the output.
    """

    key: Tensor

    def __init__(
        self, space: OneHotSpace, out_features: int, num_blocks: int, init: Initializer, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.num_relations, self.num_nodes, self.num_blocks = space.num_relations, space.num_nodes, num_blocks
        self.run = -(-space.num_nodes // num_blocks)
        matrix = (self.run, out_features // num_blocks)
        shape = (space.num_relations, *matrix) if num_blocks == 1 else (space.num_relations, num_blocks, *matrix)
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
        position = self.rows.position[self._pairs(structure.relation.long() * self.num_nodes + node)]
        position, size, picked = Lookup.among(self.rows, position, structure)
        if self.num_blocks == 1:
            pattern = SparsePattern(structure.pattern.pointer, narrow(position, size), size)
        else:
            row = structure.target.long() * self.num_blocks + node // self.run
            edge = torch.argsort(row, stable=True)
            shape = (structure.num_targets * self.num_blocks, size)
            pattern = SparsePattern.from_sorted_rows(row[edge], position[edge], shape, edge)
        return Lookup(size == len(self.rows.trained), pattern, picked=picked)

    def _pairs(self, wanted: Tensor) -> Tensor:
        """Where each wanted key stands among those that have a row."""
        where = torch.searchsorted(self.key, wanted).clamp_(max=max(self.key.numel() - 1, 0))
        if wanted.numel() and (self.key.numel() == 0 or not torch.equal(self.key[where], wanted)):
            raise DataError(
                "the graph has a (relation, node) pair that this layer was not built for: a one-hot layer knows only "
                "the graph it was made from; use node features or embeddings for other graphs"
            )
        return where

    def dense(self) -> Tensor:
        values = self.rows.values()
        relation, node = self.key // self.num_nodes, self.key % self.num_nodes
        out = values.new_zeros(self.num_relations, self.num_nodes, self.num_blocks, values.shape[1])
        return out.index_put((relation, node, node // self.run), values).flatten(2)


@dataclass(frozen=True)
class Diagonal(Decomposition):
    """W_r = diag(w_r): R⁺ · width numbers. The first layer of e-RGCN, over learned embeddings.

    Tells relations apart at the least possible price; a full layer after it mixes the features.
    """

    @classmethod
    def build(cls, model: NodeModelConfig | LinkModelConfig, out: int, is_output: bool = False) -> Decomposition:
        return Full() if is_output else cls()

    @classmethod
    def words(cls, model: NodeModelConfig | LinkModelConfig) -> str:
        return "each relation's matrix is a diagonal"

    def numbers(self, relations: int, width_in: int, width_out: int) -> int:
        return relations * width_in

    def weights(self, shape: WeightShape, init: Initializer, generator: torch.Generator) -> DiagonalWeights:
        relations, width_in, width_out = shape
        if width_in != width_out:
            raise ConfigError(
                f"a diagonal weight keeps the width: in_features = {width_in} must equal out_features = {width_out}"
            )
        return DiagonalWeights(init.draw((relations, width_in), generator))


class DiagonalWeights(RelationWeights):
    """w [relations, width]. Scaling costs nothing beside reading, so no order is better than doing it all at once:

    out[i] = Σ over edges (i ← j, r) of A_r[i, j] · w_r ⊙ x_j
    """

    reads: ClassVar = dict.fromkeys(("horizontal", "vertical", "edgewise"), ("triple_index",))

    def __init__(self, scale: Tensor) -> None:
        super().__init__()
        self.scale = nn.Parameter(scale)

    def edgewise(self, x: Tensor, adjacency: RelationalAdjacency) -> Tensor:
        return scaled_sum(adjacency.structure.triple_index, adjacency.weight, self.scale, x)

    horizontal = vertical = edgewise

    def cost(self, order: Order, structure: EdgeStructure) -> Cost:
        relations, width = self.scale.shape
        return Cost.scaled_sum(structure.num_targets, structure.num_sources, relations, structure.num_edges, width)

    def dense(self) -> Tensor:
        return torch.diag_embed(self.scale)
