"""What explanations, visualization and new nodes need of a fitted model, apart from what users call on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from rgcn.adjacency import ReceptiveField
from rgcn.errors import ConfigError, DataError
from rgcn.models.answer_kind import ClassKind, LinkKind, wrong_question_message

if TYPE_CHECKING:
    from rgcn.models.estimator import Estimator


class ModelHooks:
    """Access to a fitted model for other subpackages; every estimator has one as `hooks_`.

    This class has the answers of a model that supports none of it. An estimator overrides what it supports.

    Args:
        model: The fitted model.
    """

    def __init__(self, model: Estimator) -> None:
        self.estimator = model

    # -- explanations: which edges carry messages, and a class's score as a function of them ----

    @property
    def num_layers(self) -> int:
        """How many hops a message travels; 0 if the model passes no messages."""
        return 0

    @property
    def message_triples(self) -> NDArray[np.int64]:
        """The triples whose edges carry messages, [num_triples, 3], in the operator's order."""
        return self.estimator.graph_.split_triples("train")

    @property
    def hides_query(self) -> bool:
        """True if the network walks from the queried node and must not use the edge of the queried triple itself."""
        return False

    def class_links(self, node: int) -> list[tuple[int, int, int]]:
        """Return the triple that each class of a node would be, if the model scores classes as links."""
        return []

    def class_inputs(self, node: int) -> list[int]:
        """Return the nodes whose states decide the class of a node."""
        return [node]

    def class_logits(self, network: nn.Module, field: ReceptiveField, node: int, *, own: bool = True) -> Tensor:
        """Compute the logits of a node, [1, num_classes], with gradients of the field's edges.

        Args:
            network: The model's network, or a copy of it.
            field: The receptive field of `class_inputs(node)`.
            node: The node's id.
            own: False to leave out what nodes contribute apart from messages.

        Raises:
            DataError: The model does not predict classes.
        """
        raise DataError(wrong_question_message(self.estimator.task_info.kinds, ClassKind()))

    # -- vectors: files, maps and comparisons of relations ----------------------------------------

    def embedding_layer(self, layer: int | None) -> int | None:
        """Return the layer that `Estimator.embeddings` uses: the given one, or the default.

        Raises:
            ConfigError: There is no such layer.
        """
        if layer is not None:
            raise ConfigError(
                f"layer = {layer} is for models with states after each layer; {self.estimator.model.title} has one "
                "vector for each node: leave layer out"
            )
        return None

    def describe_embeddings(self, layer: int | None) -> str:
        """Say in a few words what the embeddings of a layer are."""
        return "the vectors the model scores triples with"

    def relation_embeddings(self) -> tuple[Tensor, Tensor | None, str]:
        """Return a vector for each relation.

        Returns:
            The vectors [num_relations, width], those of the inverses or None, and what they are in words.

        Raises:
            DataError: The model has no weights of single relations.
        """
        raise DataError(f"{self.estimator.model.title} has no weights of single relations that could be compared")

    # -- new nodes and other graphs ----------------------------------------------------------------

    def why_not_extensible(self) -> str | None:
        """Return why the model cannot answer for nodes it was not trained with, or None if it can."""
        return None

    def why_not_transferable(self) -> str | None:
        """Return why the model cannot answer over another graph with the same relations, or None if it can."""
        return wrong_question_message(self.estimator.task_info.kinds, LinkKind())


def one_hot_message(alternative: str) -> str:
    """Say why a model with one-hot inputs cannot answer for a new node, and what to train instead."""
    return (
        "the model's first layer is a table with a row for every (relation, node) of the training graph, and has no "
        f"row for a new node. Train {alternative}"
    )
