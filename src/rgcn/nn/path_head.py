"""How a path network scores a node: by the state that reached it, and by what stands around it."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rgcn.nn.path_layers import Hop, PathLayer, Products, RelationTable, Told, drawn_weight


class Surroundings(nn.Module):
    """The same layers, started at every node at once and whatever is asked: n_v is what stands around v.

    All that can be said of a node that no walk reaches, and a hint for the rest. Like everything here it knows no node,
    only edges.
    """

    def __init__(self, relations: int, width: int, depth: int, generator: torch.Generator) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.randn(width, generator=generator))
        self.layers = nn.ModuleList(
            PathLayer(RelationTable(relations, width, generator), Products(), width, generator) for _ in range(depth)
        )

    def forward(self, hops: Sequence[Hop]) -> Tensor:
        """[targets of the last hop, 1, width]; [targets, B, width] where some questions do not hear all edges.

        hops  at least as many as there are layers; the last ones are taken
        """
        hops = hops[-len(self.layers) :]
        hidden = hops[0].hidden
        questions = 1 if hidden is None else hidden.questions
        x = self.start.expand(hops[0].operator.num_sources, questions, -1)
        for layer, hop in zip(self.layers, hops, strict=True):
            x = layer(x.contiguous(), Told(self.start.unsqueeze(0)), hop)
        return x


class AnswerHead(nn.Module):
    """f(v) = MLP([x_v, q_r, n_v]) + ⟨T q_r, n_v⟩; without surroundings MLP([x_v, q_r])."""

    def __init__(self, relations: int, width: int, surroundings: int, generator: torch.Generator) -> None:
        """surroundings: how far around a node to look, in hops."""
        super().__init__()

        def drawn(out: int, inputs: int) -> nn.Parameter:
            return drawn_weight(out, inputs, generator)

        inner = 2 * width
        self.of_state, self.of_query = drawn(inner, width), drawn(inner, width)
        self.bias = nn.Parameter(torch.zeros(inner))
        self.answer, self.answer_bias = drawn(1, inner), nn.Parameter(torch.zeros(1))
        self.surroundings = Surroundings(relations, width, surroundings, generator) if surroundings else None
        self.of_surroundings = drawn(inner, width) if surroundings else None
        self.fitting = drawn(width, width) if surroundings else None

    def around(self, hops: Sequence[Hop]) -> Tensor | None:
        """[targets, 1 or B, width]: what stands around nodes; None where nobody looks."""
        return None if self.surroundings is None else self.surroundings(hops)

    def forward(self, x: Tensor, query: Tensor, around: Tensor | None) -> Tensor:
        """x [n, B, width], query [B, width], around [n, 1 or B, width] → [B, n]."""
        kind = x.dtype
        inside = F.linear(query.to(kind), self.of_query.to(kind), self.bias.to(kind))
        if around is not None and self.of_surroundings is not None:
            inside = inside + F.linear(around.to(kind), self.of_surroundings.to(kind))
        inside = torch.relu(F.linear(x, self.of_state.to(kind)) + inside)
        scores = F.linear(inside, self.answer.to(kind), self.answer_bias.to(kind)).squeeze(-1).to(query.dtype)
        if around is not None and self.fitting is not None:
            wanted = F.linear(query, self.fitting)
            shared = around.shape[1] == 1  # by all questions: then it is one product
            scores = scores + (around.squeeze(1) @ wanted.T if shared else (around * wanted).sum(-1))
        return scores.T
