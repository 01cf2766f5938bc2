"""What is to be explained: an answer of a network, as a function of the edges it hears."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import torch
from torch import Tensor, nn

from rgcn.adjacency import ReceptiveField
from rgcn.answers.calibration import AnsweringModel, Calibration
from rgcn.answers.links import triple_probabilities
from rgcn.explain.reach import Reach
from rgcn.nn.link_network import Heard, LinkNetwork
from rgcn.tasks.estimator import Estimator

Network = TypeVar("Network", bound=nn.Module)


@dataclass(frozen=True, eq=False)
class Question(ABC):
    """An answer and the triples that can have a say in it."""

    reach: Reach
    calibration: Calibration

    strength_name: ClassVar[str] = "the score"

    @abstractmethod
    def output(self, field: ReceptiveField) -> Tensor:
        """What the network gives when it hears these edges."""

    @abstractmethod
    def unheard(self) -> Tensor:
        """What the network gives for nodes it knows nothing of: no triple, and nothing they bring themselves."""

    def strength(self, output: Tensor) -> Tensor:
        """How strongly an output speaks for the answer, a scalar without bounds: what gets explained.

        A probability would not do: where it is nearly one, no edge changes it any more.
        """
        return self.score(output)

    @abstractmethod
    def log_probability(self, output: Tensor) -> Tensor:
        """The logarithm of the answer's probability as the network itself sees it, a scalar."""

    @abstractmethod
    def score(self, output: Tensor) -> Tensor:
        """The network's own number for the answer, a scalar: the class's logit, the triple's score."""

    @abstractmethod
    def probability(self, output: Tensor) -> float | None:
        """Calibrated, by the network's number alone, whatever else is known; None where nothing was calibrated."""

    def predicted(self, model: AnsweringModel, output: Tensor) -> float | None:
        """The probability that a prediction of the same answer has."""
        return self.probability(output)

    def strength_with(self, field: ReceptiveField) -> Tensor:
        return self.strength(self.output(field))


@dataclass(frozen=True, eq=False)
class ClassQuestion(Question):
    """Why is this node of this class? The strength is its log-odds, log p / (1 - p), against all other classes."""

    model: Estimator
    network: nn.Module
    node: int
    class_: int

    strength_name = "the log-odds"

    def output(self, field: ReceptiveField) -> Tensor:
        return self.model.class_heard(self.network, field, self.node)

    def unheard(self) -> Tensor:
        return self.model.class_heard(self.network, self.reach.silent(loops=0.0), self.node, own=False)

    def strength(self, output: Tensor) -> Tensor:
        others = torch.cat([output[0, : self.class_], output[0, self.class_ + 1 :]])
        return output[0, self.class_] - torch.logsumexp(others, dim=0)

    def log_probability(self, output: Tensor) -> Tensor:
        return torch.log_softmax(output[0], dim=0)[self.class_]

    def score(self, output: Tensor) -> Tensor:
        return output[0, self.class_]

    def probability(self, output: Tensor) -> float | None:
        calibration = self.calibration
        return float(calibration.class_probabilities(output)[0, self.class_]) if calibration.fitted else None


@dataclass(frozen=True, eq=False)
class LinkQuestion(Question):
    """Why does this triple hold? The strength is its score."""

    network: LinkNetwork
    subject: int
    relation: int
    object: int

    def output(self, field: ReceptiveField) -> Tensor:
        return self.network.score_heard(self._heard(field))

    def unheard(self) -> Tensor:
        return self.network.score_unheard(self._heard(self.reach.silent(loops=0.0)))

    def _heard(self, field: ReceptiveField) -> Heard:
        asked = torch.tensor(self.reach.asked, device=self.reach.field.inputs.device)
        return Heard(field, asked, self.subject, self.relation, self.object)

    def log_probability(self, output: Tensor) -> Tensor:
        return nn.functional.logsigmoid(output[0])

    def score(self, output: Tensor) -> Tensor:
        return output[0]

    def probability(self, output: Tensor) -> float | None:
        return float(self.calibration.link_probabilities(output)[0]) if self.calibration.fitted else None

    def predicted(self, model: AnsweringModel, output: Tensor) -> float | None:
        found = triple_probabilities(model, torch.tensor([[self.subject, self.relation, self.object]]), output)
        return None if found is None else float(found[0])


def frozen(network: Network) -> Network:
    """The same network, weights shared and not copied, that asks for no gradients of them.

    Gradients of the weights would cost far more than those of a few edges, and a flag set on the network itself would
    disturb whoever else uses it at the same time. What it remembers of its last call is left behind.
    """
    shared: dict[int, object] = {id(buffer): buffer for buffer in network.buffers()}
    for parameter in network.parameters():
        shared[id(parameter)] = nn.Parameter(parameter.detach(), requires_grad=False)
    for module in network.modules():
        for name in ("_scorer", "_last"):
            if module.__dict__.get(name) is not None:
                shared[id(module.__dict__[name])] = None
    return copy.deepcopy(network, shared).eval()
