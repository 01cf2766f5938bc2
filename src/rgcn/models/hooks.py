"""What explanations, vectors, growth and storage ask of a fitted model; here the answers of one that cannot do it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn
from typing_extensions import Self

from rgcn.adjacency import ReceptiveField
from rgcn.errors import ConfigError, DataError
from rgcn.graph import KnowledgeGraph
from rgcn.models.answer_kind import ClassKind, LinkKind, cannot_answer
from rgcn.models.task import Task


class ModelHooks(ABC):
    """What others ask of a fitted model; every answer here is that of a model that cannot do it."""

    model: Any

    @property
    @abstractmethod
    def graph_(self) -> KnowledgeGraph: ...

    @abstractmethod
    def task_(self) -> Task: ...

    # -- what explanations ask: which edges carry messages, and a class's score as a function of them ----

    @property
    @abstractmethod
    def num_layers_(self) -> int:
        """How many hops away a node can be heard; 0 where no messages are passed."""

    @property
    def message_triples_(self) -> NDArray[np.int64]:
        """[T, 3]: the triples whose edges carry messages, in the operator's order."""
        return self.graph_.split_triples("train")

    @property
    def hides_asked_(self) -> bool:
        """Whether its network answers by walking from the asked node, as `LinkNetwork.hides_asked` says."""
        return False

    def class_links(self, node: int) -> list[tuple[int, int, int]]:
        """The triple that each class would be, of a model that asks for classes as links."""
        return []

    def class_asked(self, node: int) -> list[int]:
        """Nodes that must be computed to tell the class of one."""
        return [node]

    def class_heard(self, network: nn.Module, field: ReceptiveField, node: int, *, own: bool = True) -> Tensor:
        """[1, classes]: logits of a node from the receptive field of `class_asked`, with gradients of its edges.

        network  this model's, or a copy of it; own=False: without what nodes bring themselves, around the messages
        """
        raise DataError(cannot_answer(self.task_().kinds, ClassKind()))

    # -- what files of vectors, maps and comparisons of relations ask -------------------------------------

    def vector_layer(self, layer: int | None) -> int | None:
        """The layer that `vectors` takes by default; ConfigError for one that there is not."""
        if layer is not None:
            raise ConfigError(
                f"layer is for models that answer layer by layer; {self.model.title} has one vector for each node"
            )
        return None

    def vectors(self, nodes: NDArray[np.int64], layer: int | None = None) -> NDArray[np.float32]:
        """[n, width]: what the model holds of nodes; DataError where it holds nothing of them."""
        raise DataError(
            f"{self.model.title} computes every answer anew: it has no vectors of nodes to write, to draw or to compare"
        )

    def vector_words(self, layer: int | None) -> str:
        """What these vectors are."""
        return "the vectors the model scores triples with"

    def relation_vectors(self) -> tuple[Tensor, Tensor | None, str]:
        """([R, width], the inverses' or None, what the numbers are); DataError where relations have no weights."""
        raise DataError(f"{self.model.title} has no weights of a relation's own that could be compared")

    # -- what new nodes and other graphs ask --------------------------------------------------------------

    def cannot_extend(self) -> str | None:
        """Why it cannot answer for nodes it was not trained with; None where it can."""
        return None

    def settle(self, known: KnowledgeGraph, steps: int) -> None:  # noqa: B027
        """Fit what is new, after the graph has grown from `known`; nothing that was trained changes."""

    def cannot_move(self) -> str | None:
        """Why it cannot answer over another graph that has the same relations (`over`); None where it can."""
        return cannot_answer(self.task_().kinds, LinkKind())

    def over(self, kg: KnowledgeGraph) -> Self:
        """The same trained model over another graph, whose relations it knows."""
        raise DataError(self.cannot_move())


def one_hot_words(instead: str) -> str:
    """Why a model with a lookup by node does not know a new one."""
    return (
        "this model's first layer is a table with a row for every (relation, node) of the training graph, and has none "
        f"for a node it never saw. Train {instead}"
    )
