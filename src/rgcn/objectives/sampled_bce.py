"""True triples told from drawn ones, by binary cross-entropy."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from typing_extensions import Self

from rgcn.adjacency import RelationalAdjacency
from rgcn.known import KnownTriples
from rgcn.nn.decoders import BatchScores
from rgcn.nn.link_network import LinkNetwork
from rgcn.objectives.base import Objective, ObjectivePlan
from rgcn.sampling import Negatives, corrupt


class SampledCrossEntropy(Objective):
    """mean over true and drawn triples of -log p(right), p = σ(score), and a penalty on the squares of what was scored.

    As published: some negatives for each positive, its subject or its object replaced by a random node.
    """

    def __init__(
        self,
        num_nodes: int,
        rate: int,
        head_probability: float = 0.5,
        penalty: float = 0.0,
        known: KnownTriples | None = None,
    ) -> None:
        """rate: negatives a positive; known: triples that may not be drawn."""
        self.num_nodes, self.rate, self.head_probability = num_nodes, rate, head_probability
        self.penalty, self.known = penalty, known

    @classmethod
    def build(cls, plan: ObjectivePlan) -> Self:
        training, known = plan.training, None
        if training.filtered_negatives:
            known = KnownTriples.of(plan.triples, num_nodes=plan.num_nodes, num_relations=plan.num_relations)
        return cls(plan.num_nodes, training.negatives, training.head_probability, training.penalty, known)

    def draw(self, positives: Tensor, generator: torch.Generator) -> Negatives:
        return corrupt(
            positives,
            self.num_nodes,
            rate=self.rate,
            head_probability=self.head_probability,
            generator=generator,
            known=self.known,
        )

    def loss(
        self, network: LinkNetwork, adjacency: RelationalAdjacency | None, positives: Tensor, drawn: Negatives
    ) -> Tensor:
        scores = network.score_batch(adjacency, positives, drawn)
        return cross_entropy(scores) + self.penalty * scores.squares


def cross_entropy(scores: BatchScores) -> Tensor:
    """Binary cross-entropy, the mean over positives and negatives alike."""
    logits = torch.cat([scores.positive, scores.negative])
    truth = torch.zeros_like(logits)
    truth[: len(scores.positive)] = 1.0
    return F.binary_cross_entropy_with_logits(logits, truth)
