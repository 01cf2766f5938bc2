"""RotatE (Sun et al. 2019)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rgcn.nn.decoders.complex import complex_product
from rgcn.nn.decoders.distance import DistanceDecoder
from rgcn.nn.initialization import Initializer


class RotatE(DistanceDecoder):
    """The decoder f(s, r, o) = γ - ‖s ∘ r - o‖ over complex vectors, r_i of modulus 1: a relation is a rotation.

    Sun et al., "RotatE: knowledge graph embedding by relational rotation in complex space", 2019. The norm is the
    Euclidean one, for which all nodes are scored by one matrix product; the authors' code sums the moduli of
    s_i r_i - o_i instead. The parameters of a relation are its k angles, drawn uniformly unless `init` is given.

    A vector `[2 k]` holds the real parts of k complex numbers, then their imaginary parts: `dim` must be even.

    Args: as for `DistanceDecoder`.

    Shapes: node vectors `[n, 2 k]`, relation ids int64 `[n]` → scores `[n]`.

    >>> decoder = RotatE(num_relations=1, dim=2, margin=9.0)
    >>> _ = decoder.relation.data.fill_(math.pi / 2)  # r = i
    >>> nodes = decoder.prepare(torch.tensor([[2.0, 0.0], [0.0, 2.0]]))
    >>> round(decoder.score(nodes[:1], torch.tensor([0]), nodes[1:]).item(), 4)  # 2·i = 2i
    9.0
    """

    is_complex = True

    @staticmethod
    def relation_dim(dim: int) -> int:
        """Return the number of angles."""
        return dim // 2

    def draw_relations(self, size: tuple[int, int], init: Initializer | None, generator: torch.Generator) -> Tensor:
        """Draw the initial angles, uniformly without an initializer."""
        if init is None:
            return (2 * torch.rand(size, generator=generator) - 1) * math.pi
        return super().draw_relations(size, init, generator)

    def relation_vectors(self) -> Tensor:
        """Return the rotations cos θ + i sin θ, `[num_rows, 2 k]`."""
        return torch.cat([self.relation.cos(), self.relation.sin()], dim=1)

    def object_query(self, subject: Tensor, relation: Tensor) -> Tensor:
        """Return s ∘ r."""
        return complex_product(subject, relation)

    def subject_query(self, relation: Tensor, object: Tensor) -> Tensor:
        """Return o ∘ r̄, since a rotation keeps lengths: ‖s ∘ r - o‖ = ‖s - o ∘ r̄‖."""
        return complex_product(object, relation, conjugate=True)
