"""Components of a package outside rgcn: an encoder, a decoder, an objective, a sampler and a head, a class each."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rgcn.adjacency import RelationalAdjacency
from rgcn.config import Section
from rgcn.nn import BatchScores, Decoder, Encoder, Head, LinkNetwork, Questions, Scorer
from rgcn.nn.link_network import ExplainedTriple, LinkPlan
from rgcn.sampling.edges import EdgeSampler
from rgcn.sampling.negatives import Negatives
from rgcn.training.objectives import Objective, ObjectivePlan


class TranslationOptions(Section):
    """What a user may set in `model.options`."""

    scale: float = 1.0
    """Standard deviation of the initial relation vectors."""


class Translation(Decoder):
    """The decoder TransE, f(s, r, o) = -|s + r - o|². It is not bilinear, so it defines all of `Decoder`."""

    Options = TranslationOptions

    def __init__(self, relation: Tensor, dim: int) -> None:
        super().__init__()
        self.relation, self.dim = nn.Parameter(relation), dim

    @classmethod
    def build(cls, plan: LinkPlan, dim: int) -> Translation:
        scale = cls.read_options(plan.model.options).scale
        return cls(scale * torch.randn(plan.num_relations, dim, generator=plan.generator), dim)

    def score(self, subject: Tensor, relation: Tensor, object: Tensor) -> Tensor:
        return -(subject + self.relation[relation] - object).square().sum(1)

    def score_objects(self, subject: Tensor, relation: Tensor, nodes: Tensor) -> Tensor:
        return -torch.cdist(subject + self.relation[relation], nodes).square()

    def score_subjects(self, relation: Tensor, object: Tensor, nodes: Tensor) -> Tensor:
        return -torch.cdist(object - self.relation[relation], nodes).square()

    def penalty(self, subject: Tensor, relation: Tensor, object: Tensor) -> Tensor:
        return subject.square().mean() + self.relation[relation].square().mean() + object.square().mean()


class Walks(Encoder):
    """An encoder without node vectors: every question (h, r, ?) runs a convolution from its node h."""

    @classmethod
    def build_link_network(cls, plan: LinkPlan) -> WalkNetwork:
        return WalkNetwork(plan)


class WalkNetwork(LinkNetwork):
    """x⁰_v = [v = h] q_r,  x ← tanh(Σ over edges (u, s, v) of a x_u ⊙ w_s) + x⁰,  f(v) = ⟨x_v, p_r⟩"""

    def __init__(self, plan: LinkPlan) -> None:
        super().__init__()
        self.num_layers, self.relations, dim = plan.model.layers, plan.num_relations, plan.model.embedding

        def vectors(count: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(count, dim, generator=plan.generator))

        self.question, self.answer = vectors(2 * plan.num_relations), vectors(2 * plan.num_relations)
        self.message = vectors(plan.adjacency.structure.num_relations)

    def walk(self, layers: list[RelationalAdjacency], start: Tensor, relation: Tensor) -> Tensor:
        """Run the layers.

        Args:
            layers: The edges of each layer.
            start: One-hot vectors of the questions' nodes, `[num_sources, num_questions]`.
            relation: The relation of the edges that lead to the answers, int64 `[num_questions]`.

        Returns:
            Scores `[num_questions, num_targets]`.
        """
        x = start[:, :, None] * self.question[relation]
        for layer in layers:
            edges = layer.structure
            messages = x[edges.source] * (self.message[edges.relation] * layer.weight[:, None])[:, None]
            sums = torch.zeros(edges.num_targets, *x.shape[1:], dtype=x.dtype).index_add(0, edges.target, messages)
            x = torch.tanh(sums)
        return torch.einsum("vqd, qd -> qv", x, self.answer[relation])

    def ask(self, adjacency: RelationalAdjacency, node: Tensor, relation: Tensor) -> Tensor:
        """Score all nodes, `[num_questions, num_nodes]`."""
        start = F.one_hot(node, adjacency.num_sources).T.to(self.question.dtype)
        return self.walk([adjacency] * self.num_layers, start, relation)

    def score_batch(
        self, adjacency: RelationalAdjacency | None, positives: Tensor, negatives: Negatives
    ) -> BatchScores:
        assert adjacency is not None
        subject, relation, object_ = positives.unbind(1)
        objects = self.ask(adjacency, subject, relation)
        subjects = self.ask(adjacency, object_, relation + self.relations)
        both = torch.stack([objects, subjects])
        negative = both[negatives.is_subject.long(), negatives.positive, negatives.node]
        return BatchScores(objects.gather(1, object_[:, None]).squeeze(1), negative, torch.zeros(()))

    def score_nodes(self, adjacency: RelationalAdjacency | None, questions: Questions) -> Tensor:
        assert adjacency is not None
        return self.ask(adjacency, questions.node, questions.edge_relation(self.relations))

    def score_explained(self, triple: ExplainedTriple) -> Tensor:
        start = (triple.field.inputs == triple.subject).to(self.question.dtype)[:, None]
        scores = self.walk(list(triple.field.layers), start, torch.tensor([triple.relation]))
        return scores[:, triple.nodes.tolist().index(triple.object)]

    def make_scorer(self, adjacency: RelationalAdjacency) -> WalkScorer:
        return WalkScorer(self, adjacency)


class WalkScorer(Scorer):
    """Runs `WalkNetwork` for sixteen questions at a time."""

    questions_per_batch = 16

    def __init__(self, network: WalkNetwork, adjacency: RelationalAdjacency) -> None:
        self.network, self.adjacency = network, adjacency
        self.num_nodes, self.device = adjacency.num_sources, adjacency.device

    @torch.no_grad()
    def scores(self, questions: Questions, candidates: Tensor | None = None, out: Tensor | None = None) -> Tensor:
        batches = [self.network.score_nodes(self.adjacency, batch) for batch in questions.parts(16)]
        scores = torch.cat(batches or [torch.empty(0, self.num_nodes)])
        return scores if candidates is None else scores[:, candidates]


class Softmax(Objective):
    """The loss -log softmax of the right object among all nodes. It needs no negatives, but scores all nodes."""

    def __init__(self, num_nodes: int) -> None:
        self.num_nodes = num_nodes

    @classmethod
    def build(cls, plan: ObjectivePlan) -> Softmax:
        return cls(plan.num_nodes)

    def loss(
        self, network: LinkNetwork, adjacency: RelationalAdjacency | None, positives: Tensor, drawn: Any
    ) -> Tensor:
        count = len(positives)
        all_nodes = Negatives(
            torch.arange(count).repeat_interleave(self.num_nodes),
            torch.arange(self.num_nodes).repeat(count),
            torch.zeros(count * self.num_nodes, dtype=torch.bool),
        )
        scores = network.score_batch(adjacency, positives, all_nodes).negative.view(count, self.num_nodes)
        return F.cross_entropy(scores, positives[:, 2])


class EveryOtherOptions(Section):
    """What a user may set in `training.options`."""

    apart: int = 2
    """Distance between the triples of a batch."""


class EveryOther(EdgeSampler):
    """Samples the triples with even numbers, then those with odd numbers, and so on."""

    Options = EveryOtherOptions

    def __init__(self, *arguments: Any, apart: int) -> None:
        super().__init__(*arguments)
        self.apart = apart

    def _draw(self, state: np.ndarray, out: np.ndarray) -> None:
        first = int(state[0] % np.uint64(2))
        out[:] = (np.arange(len(out)) * self.apart + first) % self.num_triples
        state[0] += np.uint64(1)


class Doubled(Head):
    """A head with two matrices, logits = H U V."""

    def __init__(self, dim: int, num_classes: int, generator: torch.Generator) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(dim, dim, generator=generator) / dim**0.5)
        self.second = nn.Parameter(torch.randn(dim, num_classes, generator=generator) / dim**0.5)

    def forward(self, states: Tensor) -> Tensor:
        return states @ self.first @ self.second
