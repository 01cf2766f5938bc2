"""How a path network scores a node: by the state that reached it, and by what stands around it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rgcn.kernels import scaled_sum
from rgcn.nn.path_layers import Hop


class Surroundings(nn.Module):
    """n_v = ReLU(W [m_v, s_v m_v] + b), m_v the mean over a node's edges of a vector for each relation.

    What stands around a node, whatever is asked: all that can be said of one that no walk reaches, and a hint for the
    rest. Like everything here it knows no node, only edges.
    """

    def __init__(self, relations: int, width: int, generator: torch.Generator) -> None:
        super().__init__()
        bound = (2 * width) ** -0.5
        self.vectors = nn.Parameter(torch.randn(relations, width, generator=generator))
        self.weight = nn.Parameter(torch.empty(width, 2 * width).uniform_(-bound, bound, generator=generator))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, hop: Hop) -> Tensor:
        """[targets, 1, width]; [targets, B, width] where some questions do not hear all edges."""
        edges, weight = hop.operator.structure, hop.operator.weight
        ones = self.vectors.new_ones(edges.num_sources, self.vectors.shape[1])
        mean = scaled_sum(edges.triple_index, weight, self.vectors, ones).unsqueeze(1)
        degree = hop.degree[:, None]
        if (hidden := hop.hidden) is not None:
            every = mean.expand(-1, hidden.questions, -1)
            mean = hidden.without(hop.operator, every, self.vectors[edges.relation[hidden.edge]])
            degree = hidden.degree(hop.operator, hop.degree)
        inputs = torch.cat([mean, mean * degree.unsqueeze(-1)], dim=-1)
        return torch.relu(F.linear(inputs, self.weight, self.bias))


class AnswerHead(nn.Module):
    """f(v) = MLP([x_v, q_r, n_v]) + ⟨T q_r, n_v⟩; without surroundings MLP([x_v, q_r])."""

    def __init__(self, relations: int, width: int, surroundings: bool, generator: torch.Generator) -> None:
        super().__init__()

        def drawn(out: int, inputs: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(out, inputs).uniform_(-(inputs**-0.5), inputs**-0.5, generator=generator))

        inner = 2 * width
        self.of_state, self.of_query, self.bias = (
            drawn(inner, width),
            drawn(inner, width),
            nn.Parameter(torch.zeros(inner)),
        )
        self.answer, self.answer_bias = drawn(1, inner), nn.Parameter(torch.zeros(1))
        self.surroundings = Surroundings(relations, width, generator) if surroundings else None
        self.of_surroundings = drawn(inner, width) if surroundings else None
        self.fitting = drawn(width, width) if surroundings else None

    def around(self, hop: Hop) -> Tensor | None:
        """[targets, 1 or B, width]: what stands around nodes; None where nobody looks."""
        return None if self.surroundings is None else self.surroundings(hop)

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
