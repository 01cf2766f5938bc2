"""Decompositions in which each relation has a matrix of its own: full, block-diagonal and diagonal."""

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
from rgcn.nn.decompositions.base import Cost, Decomposition, Lookup, OneHotPairs, OneHotWeights, Order, RelationWeights
from rgcn.nn.initialization import Initializer, WeightShape
from rgcn.nn.row_tables import RowTable
from rgcn.system.formatting import format_count


@dataclass(frozen=True)
class BlockDiagonal(Decomposition):
    """The block-diagonal decomposition W_r = diag(Q_r1, …, Q_rB), with R⁺ · in · out / B parameters.

    Unlike with bases, each relation has a matrix of its own; features mix only within their block. The self-loop keeps
    a full matrix by default, so that blocks exchange information.

    Args:
        num_blocks: Number of blocks, B; it divides the input and the output dimension.
        self_loop_apart: Whether the self-loop has a full matrix of its own.

    >>> BlockDiagonal(4).num_parameters(num_relations=90, in_features=16, out_features=16)  # 90 · 16 · 16 / 4
    5760
    """

    num_blocks: int
    self_loop_apart: bool = True

    def __post_init__(self) -> None:
        """Check the number of blocks."""
        if self.num_blocks < 1:
            raise ConfigError(f"a block-diagonal decomposition needs at least one block, not {self.num_blocks}")

    @classmethod
    def build(cls, model: NodeModelConfig | LinkModelConfig, out: int, is_output: bool = False) -> BlockDiagonal:
        """Create the decomposition of a configuration; logits use full matrices if B does not divide the classes."""
        assert model.blocks is not None
        if isinstance(model, LinkModelConfig):
            return cls(model.blocks, model.self_loop_apart is not False)
        return Full() if is_output and out % model.blocks else cls(model.blocks)

    @classmethod
    def describe(cls, model: NodeModelConfig | LinkModelConfig) -> str:
        """Describe the matrices for reports."""
        blocks = format_count(model.blocks or 0, "block")
        return f"each relation's matrix has {blocks} along its diagonal, and zeros elsewhere"

    def _check(self, **dims: int) -> None:
        for name, dim in dims.items():
            if dim % self.num_blocks:
                raise ConfigError(f"{name} = {dim} does not divide into {self.num_blocks} blocks")

    def num_parameters(self, num_relations: int, in_features: int, out_features: int) -> int:
        """Count the numbers in the blocks."""
        return num_relations * in_features * out_features // self.num_blocks

    def weights(self, shape: WeightShape, init: Initializer, generator: torch.Generator) -> BlockWeights:
        """Draw the blocks."""
        num_relations, in_features, out_features = shape
        self._check(in_features=in_features, out_features=out_features)
        size = (num_relations, self.num_blocks, in_features // self.num_blocks, out_features // self.num_blocks)
        return BlockWeights(size, init, generator)

    def one_hot_weights(
        self, pairs: OneHotPairs, out_features: int, init: Initializer, generator: torch.Generator
    ) -> OneHotBlockWeights:
        """Draw the rows of the pairs that occur."""
        self._check(out_features=out_features)
        return OneHotBlockWeights(pairs, out_features, self.num_blocks, init, generator)


@dataclass(frozen=True)
class Full(BlockDiagonal):
    """A full matrix for each relation, R⁺ · in · out parameters: for few relations, or many edges of each.

    >>> Full().num_parameters(num_relations=90, in_features=16, out_features=16)
    23040
    """

    num_blocks: int = field(default=1, init=False, repr=False)
    self_loop_apart: bool = field(default=False, init=False, repr=False)

    @classmethod
    def build(cls, model: NodeModelConfig | LinkModelConfig, out: int, is_output: bool = False) -> Full:
        """Create the decomposition."""
        return cls()

    @classmethod
    def describe(cls, model: NodeModelConfig | LinkModelConfig) -> str:
        """Describe the matrices for reports."""
        return "a full matrix for each relation (no decomposition)"


class MatrixWeights(RelationWeights):
    """Matrices W_r = diag(Q_r1, …, Q_rB), whose blocks Q a subclass computes from its parameters."""

    structure_fields: ClassVar = {
        "horizontal": ("source_pairs.select", "mix_source_pairs"),
        "vertical": ("mix_target_pairs", "target_pairs", "collect_target_pairs"),
        "edgewise": ("select_sources", "select_relations", "sum_messages"),
    }

    @abstractmethod
    def matrices(self) -> Tensor:
        """Return the blocks Q `[num_relations, B, in / B, out / B]`; B = 1 for full matrices."""

    def horizontal(self, x: Tensor, adjacency: RelationalAdjacency) -> Tensor:
        """Project each source pair, then sum."""
        structure, pairs = adjacency.structure, adjacency.structure.source_pairs
        projected = self._project(take_rows(x, pairs.select), pairs)
        return gather_sum(structure.mix_source_pairs, adjacency.weight, projected)

    def vertical(self, x: Tensor, adjacency: RelationalAdjacency) -> Tensor:
        """Sum into target pairs, then project."""
        structure = adjacency.structure
        mixed = gather_sum(structure.mix_target_pairs, adjacency.weight, x)
        projected = self._project(mixed, structure.target_pairs)
        return gather_sum(structure.collect_target_pairs, None, projected)

    def edgewise(self, x: Tensor, adjacency: RelationalAdjacency) -> Tensor:
        """Multiply each edge's source with its relation's blocks, then sum."""
        structure = adjacency.structure
        matrices = self.matrices()
        inputs = take_rows(x, structure.select_sources).view(-1, *matrices.shape[1:3])
        blocks = take_rows(matrices.to(x.dtype).flatten(1), structure.select_relations)
        messages = torch.einsum("eki, ekio -> eko", inputs, blocks.view(-1, *matrices.shape[1:])).flatten(1)
        return gather_sum(structure.sum_messages, adjacency.weight, messages)

    def _project(self, rows: Tensor, pairs: Pairs) -> Tensor:
        """Multiply each pair's row with its relation's matrix: `[num_pairs, in]` → `[num_pairs, out]`."""
        matrices = self.matrices()
        return grouped_product(rows.view(-1, *matrices.shape[1:3]), matrices, pairs).flatten(1)

    def cost(self, order: Order, structure: EdgeStructure) -> Cost:
        """Return the cost of an order of evaluation."""
        relations, num_blocks, rows, columns = self.matrices().shape
        in_features, out_features, edges = num_blocks * rows, num_blocks * columns, structure.num_edges
        targets, sources = structure.num_targets, structure.num_sources
        if order == "edgewise":
            block = num_blocks * rows * columns
            picking = Cost.take_rows(edges, sources, in_features) + Cost.take_rows(edges, relations, block)
            products = Cost.grouped_product(edges, edges, num_blocks, rows, columns)
            return picking + products + Cost.gather_sum(targets, edges, edges, out_features)
        pairs = len(structure.source_pairs if order == "horizontal" else structure.target_pairs)
        products = Cost.grouped_product(pairs, relations, num_blocks, rows, columns)
        if order == "horizontal":
            picking = Cost.take_rows(pairs, sources, in_features)
            return picking + products + Cost.gather_sum(targets, pairs, edges, out_features)
        mixing = Cost.gather_sum(pairs, sources, edges, in_features)
        return mixing + products + Cost.gather_sum(targets, pairs, pairs, out_features, weighted=False)

    def dense(self) -> Tensor:
        """Return all matrices, for inspection and tests."""
        matrices = self.matrices()
        unit = torch.eye(matrices.shape[1], dtype=matrices.dtype, device=matrices.device)
        return torch.einsum("rkio, kl -> rkilo", matrices, unit).flatten(3).flatten(1, 2)


class BlockWeights(MatrixWeights):
    """Matrices whose parameters are the blocks Q `[num_relations, B, in / B, out / B]` themselves."""

    def __init__(self, size: tuple[int, int, int, int], init: Initializer, generator: torch.Generator) -> None:
        """Draw the blocks."""
        super().__init__()
        relations, num_blocks, *block = size
        # Fans are those of the stack as the paper writes it: full matrices, vectors on a diagonal, or blocks.
        stack = [relations, *block] if num_blocks == 1 else size[:2] if block == [1, 1] else size
        self.blocks = nn.Parameter(init.draw(stack, generator).reshape(size))

    def matrices(self) -> Tensor:
        """Return the blocks."""
        return self.blocks


class OneHotBlockWeights(OneHotWeights):
    """Matrices for one-hot nodes: row j of W_r for each pair (r, j) that occurs, `[num_pairs, out / B]`.

    Row j of a block-diagonal W_r is zero outside the block of j. Nodes are divided into B runs of equal length (the
    last may be shorter), and nodes of run k write block k of the output.
    """

    key: Tensor

    def __init__(
        self, pairs: OneHotPairs, out_features: int, num_blocks: int, init: Initializer, generator: torch.Generator
    ) -> None:
        """Draw the rows."""
        super().__init__()
        self.num_relations, self.num_nodes, self.num_blocks = pairs.num_relations, pairs.num_nodes, num_blocks
        self.run = -(-pairs.num_nodes // num_blocks)
        matrix = (self.run, out_features // num_blocks)
        shape = (pairs.num_relations, *matrix) if num_blocks == 1 else (pairs.num_relations, num_blocks, *matrix)
        self.rows = RowTable(init.draw(shape, generator, rows=len(pairs.relation)), pairs.is_trained)
        self.register_buffer("key", pairs.relation * pairs.num_nodes + pairs.node)

    def forward(self, adjacency: RelationalAdjacency, nodes: Tensor | None = None) -> Tensor:
        """Sum the rows of the pairs; see `OneHotWeights.forward`."""
        found = self.lookup(adjacency.structure, nodes)
        table = found.table(self.rows)
        blocks = gather_sum(found.pattern, adjacency.weight, table)
        return blocks.view(-1, self.num_blocks * table.shape[1])

    def locate_rows(self, structure: EdgeStructure, nodes: Tensor) -> Lookup:
        """Find the rows that the edges read; row t · B + k of the pattern is block k of target t."""
        node = nodes[structure.source]
        position = self.rows.position[self._find_pairs(structure.relation.long() * self.num_nodes + node)]
        position, size, batch_rows = Lookup.locate(self.rows, position, structure)
        if self.num_blocks == 1:
            pattern = SparsePattern(structure.pointer, narrow(position, size), size)
        else:
            row = structure.target.long() * self.num_blocks + node // self.run
            edge = torch.argsort(row, stable=True)
            shape = (structure.num_targets * self.num_blocks, size)
            pattern = SparsePattern.from_sorted_rows(row[edge], position[edge], shape, edge)
        return Lookup(size == len(self.rows.trained), pattern, batch_rows=batch_rows)

    def _find_pairs(self, keys: Tensor) -> Tensor:
        """Return the row of each key."""
        index = torch.searchsorted(self.key, keys).clamp_(max=max(self.key.numel() - 1, 0))
        if keys.numel() and (self.key.numel() == 0 or not torch.equal(self.key[index], keys)):
            raise DataError(
                "the graph has a (relation, node) pair that this layer was not built for: a one-hot layer works only "
                "on the graph it was made from; use node features or embeddings for other graphs"
            )
        return index

    def dense(self) -> Tensor:
        """Return all matrices, for inspection and tests."""
        values = self.rows.values()
        relation, node = self.key // self.num_nodes, self.key % self.num_nodes
        out = values.new_zeros(self.num_relations, self.num_nodes, self.num_blocks, values.shape[1])
        return out.index_put((relation, node, node // self.run), values).flatten(2)


@dataclass(frozen=True)
class Diagonal(Decomposition):
    """Diagonal matrices W_r = diag(w_r), with R⁺ · dim parameters: the first layer of e-RGCN.

    They distinguish relations with few parameters; a full layer after them mixes the features.

    >>> Diagonal().num_parameters(num_relations=91, in_features=16, out_features=16)
    1456
    """

    @classmethod
    def build(cls, model: NodeModelConfig | LinkModelConfig, out: int, is_output: bool = False) -> Decomposition:
        """Create the decomposition; full matrices for logits, whose number differs from the input dimension."""
        return Full() if is_output else cls()

    @classmethod
    def describe(cls, model: NodeModelConfig | LinkModelConfig) -> str:
        """Describe the matrices for reports."""
        return "each relation's matrix is a diagonal"

    def num_parameters(self, num_relations: int, in_features: int, out_features: int) -> int:
        """Count the numbers on the diagonals."""
        return num_relations * in_features

    def weights(self, shape: WeightShape, init: Initializer, generator: torch.Generator) -> DiagonalWeights:
        """Draw the diagonals."""
        num_relations, in_features, out_features = shape
        if in_features != out_features:
            raise ConfigError(
                f"a diagonal matrix is square: in_features = {in_features} must equal out_features = {out_features}"
            )
        return DiagonalWeights(init.draw((num_relations, in_features), generator))


class DiagonalWeights(RelationWeights):
    """Diagonals w `[num_relations, dim]`, evaluated in one pass whatever the order.

    out[i] = Σ over edges (i ← j, r) of A_r[i, j] · w_r ⊙ x_j
    """

    structure_fields: ClassVar = dict.fromkeys(("horizontal", "vertical", "edgewise"), ("triple_index",))

    def __init__(self, scale: Tensor) -> None:
        """Register the parameter."""
        super().__init__()
        self.scale = nn.Parameter(scale)

    def edgewise(self, x: Tensor, adjacency: RelationalAdjacency) -> Tensor:
        """Scale and sum in one pass."""
        return scaled_sum(adjacency.structure.triple_index, adjacency.weight, self.scale, x)

    horizontal = vertical = edgewise

    def cost(self, order: Order, structure: EdgeStructure) -> Cost:
        """Return the cost of an order of evaluation."""
        relations, dim = self.scale.shape
        return Cost.scaled_sum(structure.num_targets, structure.num_sources, relations, structure.num_edges, dim)

    def dense(self) -> Tensor:
        """Return all matrices, for inspection and tests."""
        return torch.diag_embed(self.scale)
