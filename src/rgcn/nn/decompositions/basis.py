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
from rgcn.nn.decompositions.base import Cost, Decomposition, Lookup, OneHotSpace, OneHotWeights, Order, RelationWeights
from rgcn.nn.initialization import Initializer, WeightShape
from rgcn.nn.row_tables import RowTable


@dataclass(frozen=True)
class Basis(Decomposition):
    """W_r = Σ_b C[r, b] V_b.

    Rare relations have too few edges to learn a matrix of their own; sharing V_b lets them borrow from frequent ones.
    B · in · out + R⁺ · B numbers instead of R⁺ · in · out.

    self_loop_apart    the self-loop has a full matrix of its own (the original link predictor)
    separate_inverse   inverses have B bases of their own (likewise)
    coefficient_init   how C begins; None: as the bases do

    >>> Basis(30).num_bases
    30
    """

    kernels: ClassVar = ("combine_bases", "spread_bases", "coefficient_gradient", "adam_bases")
    num_bases: int
    self_loop_apart: bool = False
    separate_inverse: bool = False
    coefficient_init: Initializer | None = None

    def __post_init__(self) -> None:
        if self.num_bases < 1:
            raise ConfigError(f"a basis decomposition needs at least one basis, not {self.num_bases}")

    @classmethod
    def build(cls, model: NodeModelConfig | LinkModelConfig, out: int, is_output: bool = False) -> Basis:
        assert model.bases is not None
        if isinstance(model, NodeModelConfig):
            return cls(model.bases)
        coefficient_init = Initializer("normal") if model.coefficient_init == "normal" else None
        return cls(model.bases, bool(model.self_loop_apart), model.separate_inverse_bases, coefficient_init)

    @classmethod
    def words(cls, model: NodeModelConfig | LinkModelConfig) -> str:
        bases = "one basis" if model.bases == 1 else f"{model.bases} bases"
        return f"each relation's matrix is a mixture of {bases} that all relations share"

    def numbers(self, relations: int, width_in: int, width_out: int) -> int:
        return self.num_bases * width_in * width_out * (1 + self.separate_inverse) + relations * self.num_bases

    def weights(self, shape: WeightShape, init: Initializer, generator: torch.Generator) -> BasisWeights:
        bases = init.draw((self.num_bases * (1 + self.separate_inverse), *shape[1:]), generator)
        coefficients = (self.coefficient_init or init).draw((shape[0], self.num_bases), generator)
        return BasisWeights(bases, coefficients, self.separate_inverse)

    def one_hot_weights(
        self, space: OneHotSpace, out_features: int, init: Initializer, generator: torch.Generator
    ) -> BasisRows:
        if self.separate_inverse:
            raise ConfigError("separate bases for inverses need input vectors: give embeddings or features")
        bases = init.draw((self.num_bases, space.num_nodes, out_features), generator)
        coefficients = (self.coefficient_init or init).draw((space.num_relations, self.num_bases), generator)
        rows = RowTable(bases.transpose(0, 1).contiguous(), space.reached_nodes())
        return BasisRows(rows, coefficients)


class BasisWeights(RelationWeights):
    """bases V [B, in, out] and coefficients C [relations, B]; no W_r is ever made.

    With separate bases for inverses V is [2 B, in, out], of which relations use the first half and inverses the second;
    a self-loop inside the decomposition counts as a relation.

    horizontal  (X V_b) for all b at once, combined for the (relation, source) pairs that occur, then mixed
    vertical    mixed into (relation, target) pairs, spread over the bases, then one product [targets, B · in] · V
    """

    side: Tensor | None
    reads: ClassVar = {
        "horizontal": ("source_pairs_by_node", "mix_source_pairs_by_node"),
        "vertical": ("mix_target_pairs_by_node", "target_pairs_by_node"),
        "edgewise": ("pattern",),
    }

    def __init__(self, bases: Tensor, coefficients: Tensor, separate_inverse: bool = False) -> None:
        super().__init__()
        self.bases = nn.Parameter(bases)
        self.coefficients = nn.Parameter(coefficients)
        inverse = (torch.arange(len(coefficients)) // max(len(coefficients) // 2, 1) == 1).float()
        halves = torch.stack([1.0 - inverse, inverse], dim=1).unsqueeze(2)  # one where a relation uses that half
        self.register_buffer("side", halves if separate_inverse else None)

    def all_coefficients(self) -> Tensor:
        """[relations, bases]: zero for the half of the bases that a relation does not use."""
        return self.coefficients if self.side is None else (self.coefficients.unsqueeze(1) * self.side).flatten(1)

    def horizontal(self, x: Tensor, adjacency: RelationalAdjacency) -> Tensor:
        structure = adjacency.structure
        num_bases, width_in, width_out = self.bases.shape
        stacked = self.bases.to(x.dtype).transpose(0, 1).reshape(width_in, num_bases * width_out)
        projected = (x @ stacked).view(-1, num_bases, width_out)
        rows = combine_bases(self.all_coefficients(), projected, structure.source_pairs_by_node)
        return gather_sum(structure.mix_source_pairs_by_node, adjacency.weight, rows)

    def vertical(self, x: Tensor, adjacency: RelationalAdjacency) -> Tensor:
        structure = adjacency.structure
        mixed = gather_sum(structure.mix_target_pairs_by_node, adjacency.weight, x)
        spread = spread_bases(self.all_coefficients(), mixed, structure.target_pairs_by_node)
        return spread.flatten(1) @ self.bases.to(x.dtype).flatten(0, 1)

    def edgewise(self, x: Tensor, adjacency: RelationalAdjacency) -> Tensor:
        structure = adjacency.structure
        of_edge = self.all_coefficients().index_select(0, structure.relation) * adjacency.weight.unsqueeze(1)
        # Σ_e C[r_e, b] w_e x[source_e] for each basis, then one product with all of them
        spread = [gather_sum(structure.pattern, of_edge[:, b].contiguous(), x) for b in range(self.bases.shape[0])]
        return torch.cat(spread, dim=1) @ self.bases.to(x.dtype).flatten(0, 1)

    def cost(self, order: Order, structure: EdgeStructure) -> Cost:
        num_bases, width_in, width_out = self.bases.shape
        relations, edges = len(self.coefficients), structure.num_edges
        targets, sources = structure.num_targets, structure.num_sources
        if order == "horizontal":
            pairs = len(structure.source_pairs_by_node)
            product = Cost.grouped_product(sources, 1, 1, width_in, num_bases * width_out)
            combining = Cost.combined_bases(pairs, sources, relations, num_bases, width_out)
            return product + combining + Cost.gather_sum(targets, pairs, edges, width_out)
        product = Cost.grouped_product(targets, 1, 1, num_bases * width_in, width_out)
        if order == "vertical":
            pairs = len(structure.target_pairs_by_node)
            mixing = Cost.gather_sum(pairs, sources, edges, width_in)
            return mixing + Cost.combined_bases(pairs, targets, relations, num_bases, width_in) + product
        coefficients = Cost.take_rows(edges, relations, num_bases)
        # the values of each mix are coefficients times weights, so that they have a gradient
        mixing = Cost.gather_sum(targets, sources, edges, width_in) + Cost.entry_dot(edges, width_in)
        return coefficients + num_bases * mixing + product

    def dense(self) -> Tensor:
        return torch.einsum("rb, bio -> rio", self.all_coefficients(), self.bases)


class BasisRows(OneHotWeights):
    """Row j of each V_b, together, for each node: table [nodes, B, out]; coefficients C [relations, B].

    Node-major, so that all pairs of a node combine the same B rows while they are in the cache.
    """

    def __init__(self, rows: RowTable, coefficients: Tensor) -> None:
        super().__init__()
        self.rows = rows
        self.coefficients = nn.Parameter(coefficients)

    def look(self, structure: EdgeStructure, nodes: Tensor) -> Lookup:
        """The edges' (relation, row) pairs, and [targets, pairs]."""
        position, size, picked = Lookup.among(self.rows, self.rows.position[nodes[structure.source]], structure)
        pairs = structure.pairs_of(position, size, node_major=True)
        return Lookup(size == len(self.rows.trained), structure.targets_from(pairs), pairs, picked)

    def forward(self, adjacency: RelationalAdjacency, nodes: Tensor | None = None) -> Tensor:
        found = self.lookup(adjacency.structure, nodes)
        assert found.pairs is not None
        factored = self.rows.factored_gradients if found.trained and found.picked is None else None
        rows = combine_bases(self.coefficients, found.table(self.rows), found.pairs, factored)
        return gather_sum(found.pattern, adjacency.weight, rows)

    def dense(self) -> Tensor:
        return torch.einsum("rb, nbo -> rno", self.coefficients, self.rows.values())
