"""No encoder: every node has a vector, and no message is passed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn
from typing_extensions import Self

from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.nn.encoders.base import VectorEncoder
from rgcn.nn.initialization import Initializer
from rgcn.nn.inputs import EmbeddingInput

if TYPE_CHECKING:
    from rgcn.config import LinkModelConfig
    from rgcn.nn.link_network import LinkPlan


class PlainEncoder(VectorEncoder):
    """E itself. With DistMult on top this is DistMult."""

    num_layers = 0

    def __init__(self, source: EmbeddingInput, width: int) -> None:
        nn.Module.__init__(self)
        self.source: EmbeddingInput = source
        self.width = width

    @classmethod
    def build(cls, plan: LinkPlan) -> Self:
        model = plan.model
        init = Initializer(model.init, model.gain)
        return cls(EmbeddingInput(plan.num_nodes, model.embedding, init, plan.generator), model.embedding)

    def forward(self, adjacency: RelationalAdjacency | None = None) -> Tensor:
        return self.source.all_nodes()

    def at(self, field: ReceptiveField | None, nodes: Tensor) -> Tensor:
        """There is no field, for no message is passed."""
        return self.source(nodes)  # type: ignore[no-any-return]

    @classmethod
    def describe_vectors(cls, model: LinkModelConfig) -> dict[str, str]:
        return {
            "Architecture": f"{model.title}: node embeddings of width {model.embedding}, without message passing",
            "Messages": "none",
        }
