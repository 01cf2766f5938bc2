"""DistMult: a relation scales the features in which subject and object should agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from typing_extensions import Self

from rgcn.nn.decoders.base import BilinearDecoder
from rgcn.nn.initialization import Initializer

if TYPE_CHECKING:
    from rgcn.config import LinkModelConfig
    from rgcn.nn.link_network import LinkPlan


class DistMult(BilinearDecoder):
    """f(s, r, o) = Σ_i s_i r_i o_i  (+ b_s[s] + b_r[r] + b_o[o] with biases, which start at zero)

    Yang et al., "Embedding entities and relations for learning and inference in knowledge bases", 2015. Symmetric:
    f(s, r, o) = f(o, r, s) unless biases tell the sides apart.

    num_relations  R; the relations' vectors are [R, width]
    width          numbers a node
    num_nodes      N; needed for biases only

    >>> decoder = DistMult(num_relations=1, width=2, generator=torch.Generator().manual_seed(0))
    >>> _ = decoder.relation.data.copy_(torch.tensor([[1.0, 10.0]]))
    >>> nodes = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> decoder.score(nodes[:1], torch.tensor([0]), nodes[1:]).tolist()  # 1·1·3 + 2·10·4
    [83.0]
    >>> decoder.score_objects(nodes[:1], torch.tensor([0]), nodes).tolist()
    [[41.0, 83.0]]
    """

    def __init__(
        self,
        num_relations: int,
        width: int,
        num_nodes: int | None = None,
        biases: bool = False,
        init: Initializer | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        init = init or Initializer("normal")
        relation = init.draw((num_relations, width), generator or torch.default_generator)
        super().__init__(relation, width, num_nodes, biases)

    @classmethod
    def build(cls, plan: LinkPlan, width: int) -> Self:
        biases = plan.model.decoder_biases
        return cls(plan.num_relations, width, plan.num_nodes, biases, generator=plan.generator)

    def object_query(self, subject: Tensor, relation: Tensor) -> Tensor:
        return subject * relation

    def subject_query(self, relation: Tensor, object: Tensor) -> Tensor:
        return relation * object

    @classmethod
    def limits(cls, model: LinkModelConfig) -> tuple[str, ...]:
        alike = (
            "DistMult scores (a, relation, b) and (b, relation, a) alike: it cannot tell which way a relation points."
        )
        return () if model.decoder_biases else (alike,)
