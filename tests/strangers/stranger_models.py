"""What a package from outside may bring: an encoder, a decoder, an objective, a sampler and a head, a class each."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rgcn.adjacency import RelationalAdjacency
from rgcn.config import Section
from rgcn.nn.decoders import BatchScores, Decoder
from rgcn.nn.encoders import Encoder
from rgcn.nn.link_network import Heard, LinkNetwork, LinkPlan
from rgcn.nn.relational_encoder import Head
from rgcn.nn.scorer import Questions, Scorer
from rgcn.sampling.edges import EdgeSampler
from rgcn.sampling.negatives import Negatives
from rgcn.training.objectives import Objective, ObjectivePlan


class TranslationOptions(Section):
    scale: float = 1.0


class Translation(Decoder):
    """TransE, f(s, r, o) = -|s + r - o|²: not bilinear, so that nothing of the built-in decoder helps it."""

    Options = TranslationOptions

    def __init__(self, relation: Tensor, width: int) -> None:
        super().__init__()
        self.relation, self.width = nn.Parameter(relation), width

    @classmethod
    def build(cls, plan: LinkPlan, width: int) -> Translation:
        scale = cls.read_options(plan.model.options).scale
        return cls(scale * torch.randn(plan.num_relations, width, generator=plan.generator), width)

    def score(self, subject: Tensor, relation: Tensor, object: Tensor) -> Tensor:
        return -(subject + self.relation[relation] - object).square().sum(1)

    def score_objects(self, subject: Tensor, relation: Tensor, nodes: Tensor) -> Tensor:
        return -torch.cdist(subject + self.relation[relation], nodes).square()

    def score_subjects(self, relation: Tensor, object: Tensor, nodes: Tensor) -> Tensor:
        return -torch.cdist(object - self.relation[relation], nodes).square()

    def penalty(self, subject: Tensor, relation: Tensor, object: Tensor) -> Tensor:
        return subject.square().mean() + self.relation[relation].square().mean() + object.square().mean()


class Walks(Encoder):
    """No vectors of nodes at all: every question (h, r, ?) starts a convolution of its own from h."""

    @classmethod
    def for_links(cls, plan: LinkPlan) -> WalkNetwork:
        return WalkNetwork(plan)


class WalkNetwork(LinkNetwork):
    """x⁰_v = [v = h] q_r,  x ← tanh(Σ over edges (u, s, v) of a x_u ⊙ w_s) + x⁰,  f(v) = ⟨x_v, p_r⟩"""

    def __init__(self, plan: LinkPlan) -> None:
        super().__init__()
        self.num_layers, self.relations, width = plan.model.layers, plan.num_relations, plan.model.embedding

        def drawn(count: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(count, width, generator=plan.generator))

        self.question, self.answer = drawn(2 * plan.num_relations), drawn(2 * plan.num_relations)
        self.message = drawn(plan.adjacency.structure.num_relations)

    def walk(self, layers: list[RelationalAdjacency], start: Tensor, ask: Tensor) -> Tensor:
        """start [sources of the first layer, q]: where each question begins; ask int64 [q] → scores [q, targets]."""
        begin = start[:, :, None] * self.question[ask]
        x = begin
        for layer in layers:
            edges = layer.structure
            carried = x[edges.source] * (self.message[edges.relation] * layer.weight[:, None])[:, None]
            heard = torch.zeros(edges.num_targets, *x.shape[1:], dtype=x.dtype).index_add(0, edges.target, carried)
            x = torch.tanh(heard)
        return torch.einsum("vqd, qd -> qv", x, self.answer[ask])

    def ask(self, adjacency: RelationalAdjacency, node: Tensor, ask: Tensor) -> Tensor:
        start = F.one_hot(node, adjacency.num_sources).T.to(self.question.dtype)
        return self.walk([adjacency] * self.num_layers, start, ask)

    def score_batch(
        self, adjacency: RelationalAdjacency | None, positives: Tensor, negatives: Negatives
    ) -> BatchScores:
        assert adjacency is not None
        subject, relation, object_ = positives.unbind(1)
        objects = self.ask(adjacency, subject, relation)
        subjects = self.ask(adjacency, object_, relation + self.relations)
        both = torch.stack([objects, subjects])
        negative = both[negatives.is_head.long(), negatives.positive, negatives.node]
        return BatchScores(objects.gather(1, object_[:, None]).squeeze(1), negative, torch.zeros(()))

    def score_nodes(self, adjacency: RelationalAdjacency | None, questions: Questions) -> Tensor:
        assert adjacency is not None
        turned = (~questions.asks_objects()).long() * self.relations
        return self.ask(adjacency, questions.node, questions.relation + turned)

    def score_heard(self, heard: Heard) -> Tensor:
        start = (heard.field.inputs == heard.subject).to(self.question.dtype)[:, None]
        scores = self.walk(list(heard.field.layers), start, torch.tensor([heard.relation]))
        return scores[:, heard.asked.tolist().index(heard.object)]

    def make_scorer(self, adjacency: RelationalAdjacency) -> WalkScorer:
        return WalkScorer(self, adjacency)


class WalkScorer(Scorer):
    questions_at_once = 16

    def __init__(self, network: WalkNetwork, adjacency: RelationalAdjacency) -> None:
        self.network, self.adjacency = network, adjacency
        self.num_nodes, self.device = adjacency.num_sources, adjacency.device

    @torch.no_grad()
    def scores(self, questions: Questions, candidates: Tensor | None = None, out: Tensor | None = None) -> Tensor:
        turned = (~questions.asks_objects()).long() * self.network.relations
        found = torch.cat(
            [
                self.network.ask(self.adjacency, part.node, part.relation + turned[first : first + 16])
                for first, part in zip(range(0, questions.size, 16), questions.parts(16), strict=True)
            ]
            or [torch.empty(0, self.num_nodes)]
        )
        return found if candidates is None else found[:, candidates]


class Softmax(Objective):
    """-log softmax of the right object among all nodes: needs no drawn triples, but scores against all of them."""

    def __init__(self, num_nodes: int) -> None:
        self.num_nodes = num_nodes

    @classmethod
    def build(cls, plan: ObjectivePlan) -> Softmax:
        return cls(plan.num_nodes)

    def loss(
        self, network: LinkNetwork, adjacency: RelationalAdjacency | None, positives: Tensor, drawn: Any
    ) -> Tensor:
        count = len(positives)
        every = Negatives(
            torch.arange(count).repeat_interleave(self.num_nodes),
            torch.arange(self.num_nodes).repeat(count),
            torch.zeros(count * self.num_nodes, dtype=torch.bool),
        )
        scores = network.score_batch(adjacency, positives, every).negative.view(count, self.num_nodes)
        return F.cross_entropy(scores, positives[:, 2])


class EveryOtherOptions(Section):
    apart: int = 2


class EveryOther(EdgeSampler):
    """The even triples, then the odd ones, and so on."""

    Options = EveryOtherOptions

    def __init__(self, *arguments: Any, apart: int) -> None:
        super().__init__(*arguments)
        self.apart = apart

    def _draw(self, state: np.ndarray, out: np.ndarray) -> None:
        first = int(state[0] % np.uint64(2))
        out[:] = (np.arange(len(out)) * self.apart + first) % self.num_triples
        state[0] += np.uint64(1)


class Doubled(Head):
    """Two matrices where one would do."""

    def __init__(self, hidden: int, classes: int, generator: torch.Generator) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(hidden, hidden, generator=generator) / hidden**0.5)
        self.second = nn.Parameter(torch.randn(hidden, classes, generator=generator) / hidden**0.5)

    @classmethod
    def build(cls, hidden: int, num_classes: int, options: Any, generator: torch.Generator) -> Doubled:
        return cls(hidden, num_classes, generator)

    def forward(self, states: Tensor) -> Tensor:
        return states @ self.first @ self.second
