"""DistMult (Yang et al. 2015)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from rgcn.nn.decoders.bilinear import BilinearDecoder

if TYPE_CHECKING:
    from rgcn.config import LinkModelConfig


class DistMult(BilinearDecoder):
    """The decoder f(s, r, o) = Σ_i s_i r_i o_i (+ b_s[s] + b_r[r] + b_o[o] with biases).

    Yang et al., "Embedding entities and relations for learning and inference in knowledge bases", 2015. It is
    symmetric, f(s, r, o) = f(o, r, s), unless biases or reciprocal relations distinguish subjects from objects.

    Args: as for `BilinearDecoder`.

    Shapes: node vectors `[n, dim]`, relation ids int64 `[n]` → scores `[n]`.

    >>> import torch
    >>> decoder = DistMult(num_relations=1, dim=2, generator=torch.Generator().manual_seed(0))
    >>> _ = decoder.relation.data.copy_(torch.tensor([[1.0, 10.0]]))
    >>> nodes = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> decoder.score(nodes[:1], torch.tensor([0]), nodes[1:]).tolist()  # 1·1·3 + 2·10·4
    [83.0]
    >>> decoder.score_objects(nodes[:1], torch.tensor([0]), nodes).tolist()
    [[41.0, 83.0]]
    """

    def object_query(self, subject: Tensor, relation: Tensor) -> Tensor:
        """Return s ⊙ r."""
        return subject * relation

    def subject_query(self, relation: Tensor, object: Tensor) -> Tensor:
        """Return r ⊙ o."""
        return relation * object

    @classmethod
    def limits(cls, model: LinkModelConfig) -> tuple[str, ...]:
        """Name the symmetry of DistMult without biases and reciprocal relations."""
        text = "DistMult gives (a, relation, b) and (b, relation, a) the same score: it ignores a relation's direction."
        return () if model.decoder_biases or model.reciprocal else (text,)
