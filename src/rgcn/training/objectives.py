"""Objectives of link prediction: the loss of a batch of triples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from typing_extensions import Self

from rgcn.config import LinkTrainingConfig
from rgcn.config.fields import HasOptions
from rgcn.errors import ConfigError
from rgcn.nn.decoders import BatchScores
from rgcn.nn.link_network import Factors, LinkNetwork, MessageAdjacency
from rgcn.nn.scorer import Questions
from rgcn.placement import Placement
from rgcn.sampling.known_triples import KnownTriples
from rgcn.sampling.negatives import Negatives, corrupt, share

MAX_SCORES_PER_STEP = 1 << 30  # 4 GB of float32, and as much again for what is computed from them
EXCLUDED_SCORE = -1e4  # of negatives that do not count: their loss is zero
MAX_CONCATENATED = 1 << 21
PENALTY_POWERS = {"l2": 2, "n3": 3}


@dataclass(frozen=True)
class ObjectivePlan:
    """What an objective is built for.

    Attributes:
        training: The settings of the training.
        triples: All training triples on the device, int64 [num_triples, 3].
        num_nodes: Number of nodes of the graph.
        num_relations: Number of relations of the graph.
    """

    training: LinkTrainingConfig
    triples: Tensor
    num_nodes: int
    num_relations: int

    def known(self) -> KnownTriples:
        """Return an index of the training triples."""
        return KnownTriples.of(self.triples, num_nodes=self.num_nodes, num_relations=self.num_relations)


class Objective(HasOptions, ABC):
    """Computes the loss of a batch of true triples; a component of the registry `objective`.

    On a GPU the trainer records the step, so nothing here may wait for the device.

    Args:
        plan: What the objective is built for.

    Attributes:
        max_positives: How many true triples a step can take; None: any number.
    """

    max_positives: int | None = None
    is_directed = False
    """True if a batch has directed triples (node, edge relation, answer): every triple in both directions, where ids of
    inverse relations follow the relations (`both_directions`). Each asks one question."""

    def __init__(self, plan: ObjectivePlan) -> None:
        self.training, self.num_nodes, self.num_relations = plan.training, plan.num_nodes, plan.num_relations

    @classmethod
    def build(cls, plan: ObjectivePlan) -> Self:
        """Return the objective of a training."""
        return cls(plan)

    def draw(self, positives: Tensor, generator: torch.Generator) -> Any:
        """Draw what the objective needs besides the batch, such as negatives, before edges are dropped.

        Args:
            positives: The batch, int64 [num_positives, 3].
            generator: The generator of all randomness.
        """
        return None

    def share(self, positives: Tensor, drawn: Any, placement: Placement) -> tuple[Tensor, Any]:
        """Return the local part of a batch, and of what was drawn for it.

        Args:
            positives: The batch, int64 [num_positives, 3].
            drawn: What `draw` returned: None, or an object with a method `part(begin, end, num_positives)`.
            placement: Which part is local.

        Raises:
            ConfigError: The batch has too few triples for so many processes, or `drawn` has no parts.
        """
        if not placement.is_distributed:
            return positives, drawn
        count, unit = len(positives), getattr(drawn, "unit", 1)
        units = placement.share(-(-count // unit))
        begin, end = units.start * unit, min(units.stop * unit, count)
        if begin == end:
            raise ConfigError(
                f"a step of {count:,} triples cannot be divided among {placement.size} processes: start fewer, or set "
                "training.batch_edges higher" + (", or training.shared_by lower" if unit > 1 else "")
            )
        if drawn is not None and not hasattr(drawn, "part"):
            raise ConfigError(f"{type(self).__name__} draws what cannot be divided among processes: add `part` to it")
        return positives[begin:end], None if drawn is None else drawn.part(begin, end, count)

    @abstractmethod
    def loss(self, network: LinkNetwork, adjacency: MessageAdjacency, positives: Tensor, drawn: Any) -> Tensor:
        """Compute the loss of a batch: a scalar with gradients.

        It must be a mean over the positives, so that each process can take some of them.

        Args:
            network: The network.
            adjacency: The edges that carry messages in this step; None if the network passes none.
            positives: The batch, int64 [num_positives, 3].
            drawn: What `draw` returned for this batch.
        """


class SampledCrossEntropy(Objective):
    """Binary cross-entropy of true triples and negatives, as published.

    The loss is the mean of -log p(right) with p = σ(score) over true triples and negatives, plus a penalty on the
    squares of the scored vectors. Negatives replace the subject or the object of a triple by a random node. With
    `training.shared_by`, a chunk of positives shares the nodes drawn for each side; known triples can then only be
    excluded.

    Attributes:
        is_one_sided: True if all negatives of a triple replace the same side of it.
    """

    is_one_sided = False

    def __init__(self, plan: ObjectivePlan) -> None:
        super().__init__(plan)
        self.never_drawn = plan.known() if plan.training.filtered_negatives else None
        # Triples that do not count as negatives where they are drawn.
        self.known = None if plan.training.shared_by is None else self.never_drawn

    def draw(self, positives: Tensor, generator: torch.Generator) -> Negatives:
        """Draw the negatives of a batch."""
        options: dict[str, Any] = {"rate": self.training.negatives, "generator": generator}
        if self.training.shared_by is not None:
            return share(positives, self.num_nodes, chunk=self.training.shared_by, **options)
        options |= {"head_probability": self.training.head_probability, "is_one_sided": self.is_one_sided}
        return corrupt(positives, self.num_nodes, known=self.never_drawn, **options)

    def loss(self, network: LinkNetwork, adjacency: MessageAdjacency, positives: Tensor, drawn: Negatives) -> Tensor:
        """Score the batch and its negatives, and compute the loss."""
        scores = network.score_batch(adjacency, positives, drawn)
        excluded = self.excluded(positives, drawn)
        if excluded is not None:
            scores = scores._replace(negative=scores.negative.masked_fill(excluded, EXCLUDED_SCORE))
        loss, penalty = self.compute_loss(scores, drawn, excluded), self.training.penalty
        return loss + penalty * scores.squares if penalty else loss

    def excluded(self, positives: Tensor, drawn: Negatives) -> Tensor | None:
        """Return which negatives are known triples and do not count, bool [num_negatives]; None: all count."""
        return None if self.known is None else self.known.contains(drawn.triples(positives))

    def compute_loss(self, scores: BatchScores, drawn: Negatives, excluded: Tensor | None) -> Tensor:
        """Compute the loss from scores; `excluded` is as `excluded` returns it."""
        return cross_entropy(scores)


def cross_entropy(scores: BatchScores) -> Tensor:
    """Compute the mean binary cross-entropy of positives and negatives."""
    if scores.directions is not None:  # each direction of a positive counts half
        losses = F.softplus(-scores.directions).mean(0).sum() + F.softplus(scores.negative).sum()
        return losses / (len(scores.positive) + len(scores.negative))
    if len(scores.negative) > MAX_CONCATENATED:  # without a copy of so many
        total = F.softplus(-scores.positive).sum() + F.softplus(scores.negative).sum()
        return total / (len(scores.positive) + len(scores.negative))
    logits = torch.cat([scores.positive, scores.negative])
    truth = torch.zeros_like(logits)
    truth[: len(scores.positive)] = 1.0
    return F.binary_cross_entropy_with_logits(logits, truth)


class SelfAdversarial(SampledCrossEntropy):
    """Cross-entropy that weights negatives by how much the model believes in them (RotatE, Sun et al. 2019; NBFNet).

    The loss is the mean over true triples of (softplus(-f) + Σ_i w_i softplus(f_i)) / 2 with w = softmax(temperature ·
    f_i), without gradients of w. All negatives of a triple replace the same side of it, so that a network that computes
    each question anew computes one for each triple. Negatives that are known triples weigh nothing.
    """

    is_one_sided = True

    def __init__(self, plan: ObjectivePlan) -> None:
        super().__init__(plan)
        # With shared nodes, every triple with every node would be looked up: only if negatives are to be filtered.
        use_filtered = self.never_drawn is not None or plan.training.shared_by is not None
        self.known = self.never_drawn if use_filtered else plan.known()

    def compute_loss(self, scores: BatchScores, drawn: Negatives, excluded: Tensor | None) -> Tensor:
        """Compute the loss from scores; `excluded` is as `excluded` returns it."""
        positive, negative = _scores_by_question(scores, drawn)
        excluded = torch.zeros_like(negative, dtype=torch.bool) if excluded is None else excluded.view_as(negative)
        return weighted_cross_entropy(positive, negative, excluded, self.training.temperature)


class SampledSoftmax(SampledCrossEntropy):
    """Softmax cross-entropy over the answer and the nodes drawn instead of it.

    The loss is the mean over questions of -log softmax(f)[answer]. A question is a true triple with one end asked for:
    the same end for all negatives of the triple.
    """

    is_one_sided = True

    def compute_loss(self, scores: BatchScores, drawn: Negatives, excluded: Tensor | None) -> Tensor:
        """Compute the loss from scores; `excluded` is as `excluded` returns it."""
        positive, negative = _scores_by_question(scores, drawn)
        return (torch.logsumexp(torch.cat([positive[:, None], negative], dim=1), dim=1) - positive).mean()


class Queries(NamedTuple):
    """A question for each true triple, and the node that answers it, int64 [num_positives]."""

    questions: Questions
    answer: Tensor

    def part(self, begin: int, end: int, num_positives: int) -> Queries:
        """Return the queries of some of the triples."""
        return Queries(self.questions.take(slice(begin, end)), self.answer[begin:end])


class AmongAllNodes(Objective):
    """Base of objectives that compare the answers of questions with all nodes.

    Args:
        plan: What the objective is built for.
    """

    def __init__(self, plan: ObjectivePlan) -> None:
        super().__init__(plan)
        self.max_positives = max(1, MAX_SCORES_PER_STEP // max(plan.num_nodes, 1))


class AmongUnknownNodes(AmongAllNodes):
    """Base of objectives that ask for one end of each true triple and compare it with all nodes not known to answer.

    Other known answers to the question are excluded: they count neither as right nor as wrong.

    Args:
        plan: What the objective is built for.
    """

    def __init__(self, plan: ObjectivePlan) -> None:
        super().__init__(plan)
        self.known = plan.known()
        _ = self.known.answers.most  # computed now, since that waits for the device

    def draw(self, positives: Tensor, generator: torch.Generator) -> Queries:
        """Draw which end of each triple to ask for."""
        subject, relation, object_ = positives.unbind(1)
        draws = torch.rand(len(positives), generator=generator, device=positives.device)
        for_objects = draws >= self.training.head_probability
        node, answer = torch.where(for_objects, subject, object_), torch.where(for_objects, object_, subject)
        return Queries(Questions(node, relation, for_objects), answer)

    def loss(self, network: LinkNetwork, adjacency: MessageAdjacency, positives: Tensor, drawn: Queries) -> Tensor:
        """Score all nodes for each question, and compute the loss."""
        scores = _at_least_float32(network.score_nodes(adjacency, drawn.questions))
        return self.compute_loss(scores, drawn.answer, self.other_answers(drawn))

    @abstractmethod
    def compute_loss(self, scores: Tensor, answer: Tensor, excluded: Tensor) -> Tensor:
        """Compute the loss from scores.

        Args:
            scores: Scores of all nodes, [num_questions, num_nodes].
            answer: The answer to each question, int64 [num_questions].
            excluded: Which nodes do not count, bool [num_questions, num_nodes].
        """

    def other_answers(self, queries: Queries) -> Tensor:
        """Return the known answers to each question besides the one asked for, bool [num_questions, num_nodes]."""
        known, (node, relation, _) = self.known, queries.questions
        turned = (~queries.questions.is_for_objects()).long() * (known.num_nodes * known.num_relations)
        others = torch.zeros(len(node), known.num_nodes, dtype=torch.bool, device=node.device)
        for answers in known.answers.padded(node * known.num_relations + relation + turned, queries.answer):
            others.scatter_(1, answers, True)
        return others.scatter_(1, queries.answer[:, None], False)


class SoftmaxCrossEntropy(AmongUnknownNodes):
    """Mean over questions of -log softmax(f)[answer], the softmax over the answer and all nodes not known to be one."""

    def compute_loss(self, scores: Tensor, answer: Tensor, excluded: Tensor) -> Tensor:
        """Compute the loss from scores [num_questions, num_nodes]."""
        return F.cross_entropy(scores.masked_fill(excluded, -torch.inf), answer)


class BinaryCrossEntropy(AmongUnknownNodes):
    """Mean over questions of (softplus(-f_answer) + Σ_v w_v softplus(f_v)) / 2 over the nodes v not known to answer.

    w = softmax(temperature · f), without gradients. At temperature 0 it is the plain mean, in which few nodes that look
    right are lost among thousands that never did.
    """

    def compute_loss(self, scores: Tensor, answer: Tensor, excluded: Tensor) -> Tensor:
        """Compute the loss from scores [num_questions, num_nodes]."""
        positive = scores.gather(1, answer[:, None]).squeeze(1)
        excluded = excluded.scatter(1, answer[:, None], True)
        return weighted_cross_entropy(positive, scores, excluded, self.training.temperature)


class UnfilteredSoftmax(AmongAllNodes):
    """Mean over the directed triples of a batch of -log softmax(f)[answer], the softmax over all nodes.

    Other known answers count as wrong, since they are right in triples of their own. This learns embeddings better than
    leaving them out (Lacroix et al. 2018 train ComplEx this way). Questions that occur more than once in a batch are
    computed once, on the CPU; the loss is the same. A penalty on the factors of the batch is added
    (`training.regularizer`), for networks whose triples have factors.
    """

    is_directed = True

    def loss(self, network: LinkNetwork, adjacency: MessageAdjacency, positives: Tensor, drawn: None) -> Tensor:
        """Score all nodes for each distinct question, and compute the loss of directed triples."""
        node, relation, answer = positives.unbind(1)
        group, count = None, torch.ones_like(node)
        if positives.device.type == "cpu":  # a GPU would be waited for
            key = node * (2 * self.num_relations) + relation
            key, group, count = torch.unique(key, return_inverse=True, return_counts=True)
            node, relation = key // (2 * self.num_relations), key % (2 * self.num_relations)
        questions, penalty = Questions(node, relation % self.num_relations, relation < self.num_relations), None
        if self.training.penalty:
            factors = Factors(PENALTY_POWERS[self.training.regularizer or "n3"], relation, count.float(), answer)
            scores, penalty = network.score_with_penalty(adjacency, questions, factors)
        else:
            scores = network.score_nodes(adjacency, questions)
        loss = grouped_cross_entropy(_at_least_float32(scores), answer, group)
        return loss if penalty is None else loss + self.training.penalty * penalty


def grouped_cross_entropy(scores: Tensor, answer: Tensor, group: Tensor | None = None) -> Tensor:
    """Compute the mean over answers of -log softmax(scores of the question)[answer].

    Args:
        scores: Scores of all nodes, [num_questions, num_nodes].
        answer: Answers, int64 [num_answers].
        group: The question of each answer, int64 [num_answers]; None: answer i is of question i.
    """
    if group is None:
        return F.cross_entropy(scores, answer)
    log_probability = torch.log_softmax(scores, dim=1)
    return -log_probability.flatten().index_select(0, group * scores.shape[1] + answer).mean()


def both_directions(triples: Tensor, num_relations: int) -> Tensor:
    """Return int64 [2 n, 3]: the triples as (subject, relation, object), then as (object, inverse, subject)."""
    subject, relation, object_ = triples.unbind(1)
    return torch.cat([triples, torch.stack([object_, relation + num_relations, subject], dim=1)])


def without_directions(directed: Tensor, num_relations: int) -> Tensor:
    """Return the triples of directed ones, int64 [n, 3] each, in the same order."""
    node, relation, answer = directed.unbind(1)
    inverse = relation >= num_relations
    ends = torch.where(inverse, answer, node), torch.where(inverse, node, answer)
    return torch.stack([ends[0], relation % num_relations, ends[1]], dim=1)


def weighted_cross_entropy(positive: Tensor, negative: Tensor, excluded: Tensor, temperature: float) -> Tensor:
    """Compute the mean over questions of (softplus(-positive) + Σ_i w_i softplus(negative_i)) / 2.

    Args:
        positive: Scores of the answers, [num_questions].
        negative: Scores of negatives, [num_questions, num_negatives].
        excluded: Which negatives do not count, bool [num_questions, num_negatives].
        temperature: w = softmax(temperature · negative) over those that count.
    """
    logits = (temperature * negative.detach()).masked_fill(excluded, -torch.inf)
    weight = torch.softmax(logits, dim=1).masked_fill(excluded, 0.0)
    return (F.softplus(-positive) + (weight * F.softplus(negative)).sum(1)).mean() / 2


def _scores_by_question(scores: BatchScores, drawn: Negatives) -> tuple[Tensor, Tensor]:
    positive = scores.positive if scores.directions is None else scores.directions
    return drawn.scores_by_question(_at_least_float32(positive), _at_least_float32(scores.negative))


def _at_least_float32(scores: Tensor) -> Tensor:
    return scores.to(torch.promote_types(scores.dtype, torch.float32))
