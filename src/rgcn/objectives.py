"""What a training of links minimizes: a batch goes in, a loss comes out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor
from typing_extensions import Self

from rgcn.adjacency import RelationalAdjacency
from rgcn.known import KnownTriples
from rgcn.nn.decoders import BatchScores
from rgcn.nn.link_network import LinkNetwork
from rgcn.sampling import Negatives, corrupt

if TYPE_CHECKING:
    from rgcn.config import LinkTrainingConfig


@dataclass(frozen=True)
class ObjectivePlan:
    """What an objective is built for.

    training  its settings
    triples   int64 [T, 3]: all training triples, on the device
    """

    training: LinkTrainingConfig
    triples: Tensor
    num_nodes: int
    num_relations: int


class Objective(ABC):
    """Turns a batch of true triples into a loss: a member of the axis `objective`.

    The trainer knows nothing of it; on a GPU it records the step, so that nothing here may wait for the device.
    """

    @classmethod
    @abstractmethod
    def build(cls, plan: ObjectivePlan) -> Self: ...

    def draw(self, positives: Tensor, generator: torch.Generator) -> Any:
        """What the objective invents for a batch int64 [n, 3], such as false triples; before any edge is dropped."""
        return None

    @abstractmethod
    def loss(
        self, network: LinkNetwork, adjacency: RelationalAdjacency | None, positives: Tensor, drawn: Any
    ) -> Tensor:
        """A scalar with gradients.

        adjacency  the edges that carry messages in this step; None where the network passes none
        drawn      what `draw` gave for this batch
        """


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
