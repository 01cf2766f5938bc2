"""Basis decomposition: relations share a few matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from rgcn.adjacency import EdgeStructure, RelationalAdjacency
from rgcn.config import LinkModelConfig, NodeModelConfig
from rgcn.errors import ConfigError
from rgcn.kernels import combine_bases, gather_sum, spread_bases
from rgcn.nn.decompositions.base import Cost, Decomposition, Lookup, OneHotPairs, OneHotWeights, Order, RelationWeights
from rgcn.nn.initialization import Initializer, WeightShape
from rgcn.nn.row_tables import RowTable


@dataclass(frozen=True)
class Basis(Decomposition):
    """The basis decomposition W_r = Σ_b C[r, b] V_b: all relations share B matrices.

    Rare relations have too few edges to learn a matrix of their own; through V_b they learn from frequent ones. It has
    B · in · out + R⁺ · B parameters instead of R⁺ · in · out.

    Args:
        num_bases: Number of bases, B.
        self_loop_apart: Whether the self-loop has a full matrix of its own, as in the original link predictor.
        separate_inverse: Whether inverse relations have B bases of their own, as in the original link predictor.
        coefficient_init: How C is initialized; None for the initializer of the bases.

    >>> Basis(30).num_parameters(num_relations=91, in_features=16, out_features=16)  # 30 · 16 · 16 + 91 · 30
    10410
    """

    kernels: ClassVar = ("combine_bases", "spread_bases", "coefficient_gradient", "adam_bases")
    num_bases: int
    self_loop_apart: bool = False
    separate_inverse: bool = False
    coefficient_init: Initializer | None = None

    def __post_init__(self) -> None:
        """Check the number of bases."""
        if self.num_bases < 1:
            raise ConfigError(f"a basis decomposition needs at least one basis, not {self.num_bases}")

    @classmethod
    def build(cls, model: NodeModelConfig | LinkModelConfig, out: int, is_output: bool = False) -> Basis:
        """Create the decomposition that a configuration describes."""
        assert model.bases is not None
        if isinstance(model, NodeModelConfig):
            return cls(model.bases)
        coefficient_init = Initializer("normal") if model.coefficient_init == "normal" else None
        return cls(model.bases, bool(model.self_loop_apart), model.separate_inverse_bases, coefficient_init)

    @classmethod
    def describe(cls, model: NodeModelConfig | LinkModelConfig) -> str:
        """Describe the matrices for reports."""
        bases = "one basis" if model.bases == 1 else f"{model.bases} bases"
        return f"each relation's matrix is a mixture of {bases} that all relations share"

    def num_parameters(self, num_relations: int, in_features: int, out_features: int) -> int:
        """Count bases and coefficients."""
        num_bases = self.num_bases * (1 + self.separate_inverse)
        return num_bases * in_features * out_features + num_relations * self.num_bases

    def weights(self, shape: WeightShape, init: Initializer, generator: torch.Generator) -> BasisWeights:
        """Draw bases and coefficients."""
        bases = init.draw((self.num_bases * (1 + self.separate_inverse), *shape[1:]), generator)
        coefficients = (self.coefficient_init or init).draw((shape[0], self.num_bases), generator)
        return BasisWeights(bases, coefficients, self.separate_inverse)

    def one_hot_weights(
        self, pairs: OneHotPairs, out_features: int, init: Initializer, generator: torch.Generator
    ) -> OneHotBasisWeights:
        """Draw bases with a row for each node, and coefficients."""
        if self.separate_inverse:
            raise ConfigError("separate bases for inverses need node vectors: use embeddings or features")
        bases = init.draw((self.num_bases, pairs.num_nodes, out_features), generator)
        coefficients = (self.coefficient_init or init).draw((pairs.num_relations, self.num_bases), generator)
        rows = RowTable(bases.transpose(0, 1).contiguous(), pairs.trained_nodes())
        return OneHotBasisWeights(rows, coefficients)


class BasisWeights(RelationWeights):
    """The matrices of `Basis`, evaluated without computing any W_r.

    - horizontal: X V_b for all b at once, combined for the (relation, source) pairs that occur, then summed
    - vertical: summed into (relation, target) pairs, spread over the bases, then one product `[targets, B · in]` · V

    Args:
        bases: V `[B, in, out]`; with separate bases for inverses `[2 B, in, out]`, of which relations use the first
            half and inverses the second. A self-loop inside the decomposition counts as a relation.
        coefficients: C `[num_relations, B]`.
        separate_inverse: Whether inverses have bases of their own.
    """

    side: Tensor | None
    structure_fields: ClassVar = {
        "horizontal": ("source_pairs_by_node", "mix_source_pairs_by_node"),
        "vertical": ("mix_target_pairs_by_node", "target_pairs_by_node"),
        "edgewise": ("pattern",),
    }

    def __init__(self, bases: Tensor, coefficients: Tensor, separate_inverse: bool = False) -> None:
        """Register the parameters."""
        super().__init__()
        self.bases = nn.Parameter(bases)
        self.coefficients = nn.Parameter(coefficients)
        inverse = (torch.arange(len(coefficients)) // max(len(coefficients) // 2, 1) == 1).float()
        halves = torch.stack([1.0 - inverse, inverse], dim=1).unsqueeze(2)  # 1 where a relation uses that half
        self.register_buffer("side", halves if separate_inverse else None)

    def all_coefficients(self) -> Tensor:
        """Return C `[num_relations, num_bases]`, zero for the half of the bases that a relation does not use."""
        return self.coefficients if self.side is None else (self.coefficients.unsqueeze(1) * self.side).flatten(1)

    def horizontal(self, x: Tensor, adjacency: RelationalAdjacency) -> Tensor:
        """Project with all bases, combine into pairs, then sum."""
        structure = adjacency.structure
        num_bases, in_features, out_features = self.bases.shape
        stacked = self.bases.to(x.dtype).transpose(0, 1).reshape(in_features, num_bases * out_features)
        projected = (x @ stacked).view(-1, num_bases, out_features)
        rows = combine_bases(self.all_coefficients(), projected, structure.source_pairs_by_node)
        return gather_sum(structure.mix_source_pairs_by_node, adjacency.weight, rows)

    def vertical(self, x: Tensor, adjacency: RelationalAdjacency) -> Tensor:
        """Sum into pairs, spread over the bases, then project."""
        structure = adjacency.structure
        mixed = gather_sum(structure.mix_target_pairs_by_node, adjacency.weight, x)
        spread = spread_bases(self.all_coefficients(), mixed, structure.target_pairs_by_node)
        return spread.flatten(1) @ self.bases.to(x.dtype).flatten(0, 1)

    def edgewise(self, x: Tensor, adjacency: RelationalAdjacency) -> Tensor:
        """Sum once for each basis, then project."""
        structure = adjacency.structure
        scaled = self.all_coefficients().index_select(0, structure.relation) * adjacency.weight.unsqueeze(1)
        # Σ_e C[r_e, b] w_e x[source_e] for each basis b
        spread = [gather_sum(structure.pattern, scaled[:, b].contiguous(), x) for b in range(self.bases.shape[0])]
        return torch.cat(spread, dim=1) @ self.bases.to(x.dtype).flatten(0, 1)

    def cost(self, order: Order, structure: EdgeStructure) -> Cost:
        """Return the cost of an order of evaluation."""
        num_bases, in_features, out_features = self.bases.shape
        relations, edges = len(self.coefficients), structure.num_edges
        targets, sources = structure.num_targets, structure.num_sources
        if order == "horizontal":
            pairs = len(structure.source_pairs_by_node)
            product = Cost.grouped_product(sources, 1, 1, in_features, num_bases * out_features)
            combining = Cost.combined_bases(pairs, sources, relations, num_bases, out_features)
            return product + combining + Cost.gather_sum(targets, pairs, edges, out_features)
        product = Cost.grouped_product(targets, 1, 1, num_bases * in_features, out_features)
        if order == "vertical":
            pairs = len(structure.target_pairs_by_node)
            mixing = Cost.gather_sum(pairs, sources, edges, in_features)
            return mixing + Cost.combined_bases(pairs, targets, relations, num_bases, in_features) + product
        coefficients = Cost.take_rows(edges, relations, num_bases)
        # The values of the sparse matrix are coefficients times weights, so that they have a gradient.
        mixing = Cost.gather_sum(targets, sources, edges, in_features) + Cost.entry_dot(edges, in_features)
        return coefficients + num_bases * mixing + product

    def dense(self) -> Tensor:
        """Return all matrices, for inspection and tests."""
        return torch.einsum("rb, bio -> rio", self.all_coefficients(), self.bases)


class OneHotBasisWeights(OneHotWeights):
    """The matrices of `Basis` for one-hot nodes.

    The table is node-major, so that all pairs of a node combine the same B rows while these are in the cache.

    Args:
        rows: Row j of each V_b, for each node j, `[num_nodes, B, out]`.
        coefficients: C `[num_relations, B]`.
    """

    def __init__(self, rows: RowTable, coefficients: Tensor) -> None:
        """Register the parameters."""
        super().__init__()
        self.rows = rows
        self.coefficients = nn.Parameter(coefficients)

    def locate_rows(self, structure: EdgeStructure, nodes: Tensor) -> Lookup:
        """Find the (relation, row) pairs of the edges, and the pattern `[num_targets, num_pairs]`."""
        position = self.rows.position[nodes[structure.source]]
        position, size, batch_rows = Lookup.locate(self.rows, position, structure)
        pairs = structure.pairs_of(position, size, node_major=True)
        return Lookup(size == len(self.rows.trained), structure.targets_from(pairs), pairs, batch_rows)

    def forward(self, adjacency: RelationalAdjacency, nodes: Tensor | None = None) -> Tensor:
        """Combine the bases for each pair, then sum; see `OneHotWeights.forward`."""
        found = self.lookup(adjacency.structure, nodes)
        assert found.pairs is not None
        factored = self.rows.gathered if found.in_trained and found.batch_rows is None else None
        rows = combine_bases(self.coefficients, found.table(self.rows), found.pairs, factored)
        return gather_sum(found.pattern, adjacency.weight, rows)

    def dense(self) -> Tensor:
        """Return all matrices `[num_relations, num_nodes, out]`."""
        return torch.einsum("rb, nbo -> rno", self.coefficients, self.rows.values())
