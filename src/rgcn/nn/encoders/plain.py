"""No encoder: every node has a vector, and no message is passed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgcn.nn.encoders.base import VectorEncoder
from rgcn.nn.initialization import Initializer
from rgcn.nn.inputs import EmbeddingInput
from rgcn.nn.relational_encoder import RelationalEncoder

if TYPE_CHECKING:
    from rgcn.config import LinkModelConfig
    from rgcn.nn.link_network import LinkPlan


class PlainEncoder(VectorEncoder):
    """E itself. With DistMult on top this is DistMult."""

    @classmethod
    def vectors(cls, plan: LinkPlan) -> RelationalEncoder:
        return RelationalEncoder(embeddings(plan), [])

    @classmethod
    def describe_vectors(cls, model: LinkModelConfig) -> dict[str, str]:
        return {
            "Architecture": f"{model.title}: node embeddings of width {model.embedding}, without message passing",
            "Messages": "none",
        }


def embeddings(plan: LinkPlan, activated: bool = False) -> EmbeddingInput:
    model = plan.model
    init = Initializer(model.init, model.gain)
    return EmbeddingInput(plan.num_nodes, model.embedding, init, plan.generator, activated=activated)
