"""What is to be explained: an answer of a network, as a function of the edges it hears."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from rgcn.adjacency import ReceptiveField
from rgcn.explain.reach import Reach
from rgcn.nn import RelationalEncoder
from rgcn.nn.link_encoders import CompressionEncoder
from rgcn.tasks.link_network import LinkNetwork

Network = TypeVar("Network", bound=nn.Module)


@dataclass(frozen=True, eq=False)
class Question(ABC):
    """An answer and the triples that can have a say in it."""

    reach: Reach

    @abstractmethod
    def output(self, field: ReceptiveField) -> Tensor:
        """What the network gives when it hears these edges."""

    @abstractmethod
    def unheard(self) -> Tensor:
        """What the network gives for nodes it knows nothing of: no triple, and nothing they bring themselves."""

    @abstractmethod
    def strength(self, output: Tensor) -> Tensor:
        """How strongly an output speaks for the answer, a scalar without bounds. This is what gets explained.

        A probability would not do: where it is nearly one, no edge changes it any more.
        """

    @abstractmethod
    def log_probability(self, output: Tensor) -> Tensor:
        """The logarithm of the answer's probability as the network itself sees it, a scalar."""

    @abstractmethod
    def score(self, output: Tensor) -> Tensor:
        """The network's own number for the answer, a scalar: the class's logit, the triple's score."""

    @abstractmethod
    def probability(self, output: Tensor) -> float:
        """The answer's probability, calibrated: by the network's number alone, whatever else is known."""

    def silent(self) -> ReceptiveField:
        """No message at all, not even a node's to itself."""
        return self.reach.weighted(self.reach.field.layers[0].weight.new_zeros(len(self.reach)), loops=0.0)

    def strength_with(self, field: ReceptiveField) -> Tensor:
        return self.strength(self.output(field))


@dataclass(frozen=True, eq=False)
class ClassQuestion(Question):
    """Why is this node of this class? The strength is its log-odds, log p / (1 - p), against all other classes."""

    network: RelationalEncoder
    class_: int
    calibrated: Callable[[Tensor], Tensor]

    def output(self, field: ReceptiveField) -> Tensor:
        return self.network(field)  # type: ignore[no-any-return]

    def unheard(self) -> Tensor:
        return self.output(self.silent())

    def strength(self, output: Tensor) -> Tensor:
        others = torch.cat([output[0, : self.class_], output[0, self.class_ + 1 :]])
        return output[0, self.class_] - torch.logsumexp(others, dim=0)

    def log_probability(self, output: Tensor) -> Tensor:
        return torch.log_softmax(output[0], dim=0)[self.class_]

    def score(self, output: Tensor) -> Tensor:
        return output[0, self.class_]

    def probability(self, output: Tensor) -> float:
        return float(self.calibrated(output)[0, self.class_])


@dataclass(frozen=True, eq=False)
class LinkQuestion(Question):
    """Why does this triple hold? The strength is its score."""

    network: LinkNetwork
    subject: int
    relation: int
    object: int
    calibrated: Callable[[Tensor], Tensor]

    def output(self, field: ReceptiveField) -> Tensor:
        return self._scored(self._nodes(field))

    def unheard(self) -> Tensor:
        encoder, width = self.network.encoder, self.network.decoder.width
        nodes = self._nodes(self.silent())
        vectors, biases = nodes[:, :width], nodes[:, width:]
        if isinstance(encoder, CompressionEncoder):
            # E goes around the bottleneck: without any message it is all there still.
            vectors = vectors - encoder.source(self._asked)
        return self._scored(torch.cat([vectors, torch.zeros_like(biases)], dim=1))

    @property
    def _asked(self) -> Tensor:
        return torch.tensor(self.reach.asked, device=self.reach.field.inputs.device)

    def _nodes(self, field: ReceptiveField) -> Tensor:
        """[asked, d']: the asked nodes as the decoder reads them."""
        asked = self._asked
        return self.network.decoder.prepare(self.network.encoder.at(field, asked), asked)  # type: ignore[operator]

    def _scored(self, nodes: Tensor) -> Tensor:
        subject, object_ = (self.reach.asked.index(node) for node in (self.subject, self.object))
        relation = torch.tensor([self.relation], device=nodes.device)
        return self.network.decoder.score(nodes[subject : subject + 1], relation, nodes[object_ : object_ + 1])

    def strength(self, output: Tensor) -> Tensor:
        return output[0]

    def log_probability(self, output: Tensor) -> Tensor:
        return nn.functional.logsigmoid(output[0])

    def score(self, output: Tensor) -> Tensor:
        return output[0]

    def probability(self, output: Tensor) -> float:
        return float(self.calibrated(output)[0])


def frozen(network: Network) -> Network:
    """The same network, weights shared and not copied, that asks for no gradients of them.

    Gradients of the weights would cost far more than those of a few edges, and a flag set on the network itself would
    disturb whoever else uses it at the same time. What it remembers of its last call is left behind.
    """
    shared: dict[int, object] = {id(buffer): buffer for buffer in network.buffers()}
    for parameter in network.parameters():
        shared[id(parameter)] = nn.Parameter(parameter.detach(), requires_grad=False)
    for module in network.modules():
        for name in ("_encoded", "_last"):
            if module.__dict__.get(name) is not None:
                shared[id(module.__dict__[name])] = None
    return copy.deepcopy(network, shared).eval()
