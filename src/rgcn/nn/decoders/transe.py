"""TransE (Bordes et al. 2013)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from rgcn.nn.decoders.distance import DistanceDecoder

if TYPE_CHECKING:
    from rgcn.config import LinkModelConfig


class TransE(DistanceDecoder):
    """The decoder f(s, r, o) = γ - ‖s + r - o‖: a relation is a translation.

    Bordes et al., "Translating embeddings for modeling multi-relational data", 2013, with the Euclidean norm.

    Args: as for `DistanceDecoder`.

    Shapes: node vectors `[n, dim]`, relation ids int64 `[n]` → scores `[n]`.

    >>> import torch
    >>> decoder = TransE(num_relations=1, dim=2, margin=9.0)
    >>> _ = decoder.relation.data.copy_(torch.tensor([[1.0, 0.0]]))
    >>> nodes = decoder.prepare(torch.tensor([[0.0, 0.0], [1.0, 2.0]]))
    >>> decoder.score(nodes[:1], torch.tensor([0]), nodes[1:]).tolist()  # 9 - ‖(0 + 1 - 1, 0 + 0 - 2)‖
    [7.0]
    """

    def object_query(self, subject: Tensor, relation: Tensor) -> Tensor:
        """Return s + r."""
        return subject + relation

    def subject_query(self, relation: Tensor, object: Tensor) -> Tensor:
        """Return o - r."""
        return object - relation

    @classmethod
    def limits(cls, model: LinkModelConfig) -> tuple[str, ...]:
        """Name the relations that translations cannot represent."""
        text = (
            "TransE represents a relation as one translation: it cannot tell apart the answers of a question that has "
            "many, and a symmetric relation has no translation but zero."
        )
        return (text,)
