"""What a training of links minimizes: a batch goes in, a loss comes out."""

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
from rgcn.nn.link_network import HeardEdges, LinkNetwork
from rgcn.nn.scorer import Questions
from rgcn.placement import Placement
from rgcn.sampling.known_triples import KnownTriples
from rgcn.sampling.negatives import Negatives, corrupt, share

# Scores of all nodes for a step's questions: 4 GB of float32, and as much again for what follows from them.
MOST_IN_A_STEP = 1 << 30
# The score of a drawn triple that does not count: it costs nothing.
SURELY_FALSE = -1e4
MANY = 1 << 21


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

    def known(self) -> KnownTriples:
        """The training triples, which are never wrong."""
        return KnownTriples.of(self.triples, num_nodes=self.num_nodes, num_relations=self.num_relations)


class Objective(HasOptions, ABC):
    """Turns a batch of true triples into a loss: a member of the axis `objective`.

    The trainer knows nothing of it; on a GPU it records the step, so that nothing here may wait for the device.

    most_positives  how many true triples a step can take; None: any number
    """

    most_positives: int | None = None

    def __init__(self, plan: ObjectivePlan) -> None:
        self.training, self.num_nodes = plan.training, plan.num_nodes

    @classmethod
    def build(cls, plan: ObjectivePlan) -> Self:
        return cls(plan)

    def draw(self, positives: Tensor, generator: torch.Generator) -> Any:
        """What the objective invents for a batch int64 [n, 3], such as false triples; before any edge is dropped."""
        return None

    def share(self, positives: Tensor, drawn: Any, placement: Placement) -> tuple[Tensor, Any]:
        """The local part of a batch, and of what was drawn for it: something with `part(begin, end, count)`."""
        if not placement.is_distributed:
            return positives, drawn
        count, unit = len(positives), getattr(drawn, "unit", 1)
        units = placement.share(-(-count // unit))
        begin, end = units.start * unit, min(units.stop * unit, count)
        if begin == end:
            raise ConfigError(
                f"a step of {count:,} triples cannot be divided among {placement.size} processes: take fewer of these, "
                "or set training.batch_edges higher" + (", or training.shared_by lower" if unit > 1 else "")
            )
        if drawn is not None and not hasattr(drawn, "part"):
            raise ConfigError(f"{type(self).__name__} does not say how what it draws is divided among processes")
        return positives[begin:end], None if drawn is None else drawn.part(begin, end, count)

    @abstractmethod
    def loss(self, network: LinkNetwork, adjacency: HeardEdges, positives: Tensor, drawn: Any) -> Tensor:
        """A scalar with gradients: a mean over the positives, so that processes may each take some of them.

        adjacency  the edges that carry messages in this step; None where the network passes none
        drawn      what `draw` gave for this batch
        """


class SampledCrossEntropy(Objective):
    """mean over true and drawn triples of -log p(right), p = σ(score), and a penalty on the squares of what was scored.

    As published: some negatives for each positive, its subject or its object replaced by a random node; or nodes for
    each side that a chunk of positives shares (`training.shared_by`). Of these, known triples can only be left out.
    """

    one_sided = False  # whether all negatives of a triple replace the same side of it

    def __init__(self, plan: ObjectivePlan) -> None:
        super().__init__(plan)
        self.never_drawn = plan.known() if plan.training.filtered_negatives else None

    def draw(self, positives: Tensor, generator: torch.Generator) -> Negatives:
        rate, chunk = self.training.negatives, self.training.shared_by
        if chunk is not None:
            return share(positives, self.num_nodes, rate=rate, chunk=chunk, generator=generator)
        return corrupt(
            positives,
            self.num_nodes,
            rate=rate,
            head_probability=self.training.head_probability,
            generator=generator,
            known=self.never_drawn,
            one_sided=self.one_sided,
        )

    def loss(self, network: LinkNetwork, adjacency: HeardEdges, positives: Tensor, drawn: Negatives) -> Tensor:
        scores = network.score_batch(adjacency, positives, drawn)
        left_out = self.left_out(positives, drawn)
        if left_out is not None:
            scores = scores._replace(negative=scores.negative.masked_fill(left_out, SURELY_FALSE))
        loss, penalty = self.loss_of(scores, drawn, left_out), self.training.penalty
        return loss + penalty * scores.squares if penalty else loss

    def left_out(self, positives: Tensor, drawn: Negatives) -> Tensor | None:
        """bool [m]: which of the drawn triples do not count, since they are known; None: all count."""
        if self.training.shared_by is None or self.never_drawn is None:
            return None
        return self.never_drawn.contains(drawn.triples(positives))

    def loss_of(self, scores: BatchScores, drawn: Negatives, left_out: Tensor | None) -> Tensor:
        return cross_entropy(scores)


def cross_entropy(scores: BatchScores) -> Tensor:
    """Binary cross-entropy, the mean over positives and negatives alike."""
    if len(scores.negative) > MANY:  # no copy of so many beside their targets
        total = F.softplus(-scores.positive).sum() + F.softplus(scores.negative).sum()
        return total / (len(scores.positive) + len(scores.negative))
    logits = torch.cat([scores.positive, scores.negative])
    truth = torch.zeros_like(logits)
    truth[: len(scores.positive)] = 1.0
    return F.binary_cross_entropy_with_logits(logits, truth)


class SelfAdversarial(SampledCrossEntropy):
    """Mean over true triples of (softplus(-f) + Σ_i w_i softplus(f_i)) / 2,  w = softmax(temperature · f_i): negatives
    that the model believes in count most (RotatE, Sun et al. 2019; NBFNet).

    All negatives of a triple replace the same side of it, so that a network that computes each question anew computes
    one for each triple. Known triples that were drawn by chance weigh nothing. w has no gradient.
    """

    one_sided = True

    def __init__(self, plan: ObjectivePlan) -> None:
        super().__init__(plan)
        # Where nodes are shared it would be asked of every triple and every node: only where that is wanted.
        known = self.never_drawn is not None or plan.training.shared_by is not None
        self.known = self.never_drawn if known else plan.known()

    def left_out(self, positives: Tensor, drawn: Negatives) -> Tensor | None:
        return None if self.known is None else self.known.contains(drawn.triples(positives))

    def loss_of(self, scores: BatchScores, drawn: Negatives, left_out: Tensor | None) -> Tensor:
        positive, negative = drawn.by_question(*map(_at_least_float32, scores[:2]))
        left_out = torch.zeros_like(negative, dtype=torch.bool) if left_out is None else left_out.view_as(negative)
        return weighted_cross_entropy(positive, negative, left_out, self.training.temperature)


class SampledSoftmax(SampledCrossEntropy):
    """Mean over questions of -log softmax(f)[answer], the softmax over the answer and the nodes drawn instead of it.

    A question is a true triple with one end asked for; with negatives of its own, the same end in all of them.
    """

    one_sided = True

    def loss_of(self, scores: BatchScores, drawn: Negatives, left_out: Tensor | None) -> Tensor:
        positive, negative = drawn.by_question(*map(_at_least_float32, scores[:2]))
        return (torch.logsumexp(torch.cat([positive[:, None], negative], dim=1), dim=1) - positive).mean()


class Asked(NamedTuple):
    """A question for each true triple, and the node int64 [n] that answers it."""

    questions: Questions
    answer: Tensor

    def part(self, begin: int, end: int, num_positives: int) -> Asked:
        return Asked(self.questions.take(slice(begin, end)), self.answer[begin:end])


class AmongAllNodes(Objective):
    """Asks for one end of each true triple, its object or its subject, and looks at the scores of all nodes.

    Other known answers to the question are neither right nor wrong: they are left out.
    """

    def __init__(self, plan: ObjectivePlan) -> None:
        super().__init__(plan)
        self.known = plan.known()
        self.most_positives = max(1, MOST_IN_A_STEP // max(plan.num_nodes, 1))
        _ = self.known.answers.most  # waited for now, so that no step has to

    def draw(self, positives: Tensor, generator: torch.Generator) -> Asked:
        subject, relation, object_ = positives.unbind(1)
        draws = torch.rand(len(positives), generator=generator, device=positives.device)
        for_objects = draws >= self.training.head_probability
        given, answer = torch.where(for_objects, subject, object_), torch.where(for_objects, object_, subject)
        return Asked(Questions(given, relation, for_objects), answer)

    def loss(self, network: LinkNetwork, adjacency: HeardEdges, positives: Tensor, drawn: Asked) -> Tensor:
        scores = _at_least_float32(network.score_nodes(adjacency, drawn.questions))
        return self.loss_of(scores, drawn.answer, self.other_answers(drawn))

    @abstractmethod
    def loss_of(self, scores: Tensor, answer: Tensor, left_out: Tensor) -> Tensor:
        """From scores [q, N], the answers asked for int64 [q], and bool [q, N], which nodes do not count."""

    def other_answers(self, asked: Asked) -> Tensor:
        """bool [q, N]: the known answers to each question, but for the one that is asked for."""
        known, (node, relation, _) = self.known, asked.questions
        turned = (~asked.questions.asks_objects()).long() * (known.num_nodes * known.num_relations)
        others = torch.zeros(len(node), known.num_nodes, dtype=torch.bool, device=node.device)
        for answers in known.answers.padded(node * known.num_relations + relation + turned, asked.answer):
            others.scatter_(1, answers, True)
        return others.scatter_(1, asked.answer[:, None], False)


class SoftmaxCrossEntropy(AmongAllNodes):
    """Mean over questions of -log softmax(f)[answer], the softmax over the answer and all nodes not known to be one."""

    def loss_of(self, scores: Tensor, answer: Tensor, left_out: Tensor) -> Tensor:
        return F.cross_entropy(scores.masked_fill(left_out, -torch.inf), answer)


class BinaryCrossEntropy(AmongAllNodes):
    """Mean over questions of (softplus(-f_answer) + Σ_v w_v softplus(f_v)) / 2 over the nodes v not known to answer.

    w = softmax(temperature · f), without gradient: at 0 the plain mean, in which few nodes that look right are lost
    among thousands that never did.
    """

    def loss_of(self, scores: Tensor, answer: Tensor, left_out: Tensor) -> Tensor:
        positive = scores.gather(1, answer[:, None]).squeeze(1)
        left_out = left_out.scatter(1, answer[:, None], True)
        return weighted_cross_entropy(positive, scores, left_out, self.training.temperature)


def weighted_cross_entropy(positive: Tensor, negative: Tensor, left_out: Tensor, temperature: float) -> Tensor:
    """Mean over rows of (softplus(-positive) + Σ_i w_i softplus(negative_i)) / 2: positive [q], negative [q, n].

    w = softmax(temperature · negative) over what is not left out; nothing where everything is.
    """
    logits = (temperature * negative.detach()).masked_fill(left_out, -torch.inf)
    weight = torch.softmax(logits, dim=1).masked_fill(left_out, 0.0)
    return (F.softplus(-positive) + (weight * F.softplus(negative)).sum(1)).mean() / 2


def _at_least_float32(scores: Tensor) -> Tensor:
    return scores.to(torch.promote_types(scores.dtype, torch.float32))
