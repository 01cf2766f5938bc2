"""`Decoder`, the interface of functions that score triples from node vectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from typing_extensions import Self

from rgcn.config.fields import HasOptions
from rgcn.errors import ConfigError
from rgcn.kernels import take_rows
from rgcn.sampling.negatives import Negatives

if TYPE_CHECKING:
    from rgcn.config import LinkModelConfig
    from rgcn.nn.link_network import LinkPlan


class BatchScores(NamedTuple):
    """Scores of a training batch.

    Attributes:
        positive: Scores of the positives `[num_positives]`.
        negative: Scores of their negatives `[num_positives * num_negatives]`.
        squares: mean s² + mean r² + mean o² over all of these triples, a scalar, for the L2 penalty.
        directions: Scores of the positives as answers to (s, r, ?) and (?, r, o), `[2, num_positives]`. Their mean is
            `positive`. None if they do not differ (`Decoder.scores_directions_apart`).
    """

    positive: Tensor
    negative: Tensor
    squares: Tensor
    directions: Tensor | None = None


class Decoder(nn.Module, HasOptions, ABC):
    """A function f(s, r, o) that scores triples from node vectors and relation ids; higher means more likely.

    Register a decoder in `rgcn.plugins.DECODERS`, or pass the class or its dotted name as `model.decoder`. Node vectors
    come from an encoder and pass through `prepare` once:

        nodes = decoder.prepare(encoder(...))                            # [num_nodes, dim]
        decoder.score(nodes[subject], relation, nodes[object])           # [num_triples]
        decoder.score_objects(nodes[subject], relation, nodes)           # [num_questions, num_nodes]

    Attributes:
        dim: Dimension of a node vector, without columns that `prepare` appends.
        scores_directions_apart: True if a triple has two scores, one as an answer to (s, r, ?) and one as an answer to
            (?, r, o). `score` is then their mean.
    """

    dim: int
    scores_directions_apart: bool = False

    @classmethod
    @abstractmethod
    def build(cls, plan: LinkPlan, dim: int) -> Self:
        """Create a decoder with initial weights for node vectors of this dimension."""

    @classmethod
    def limits(cls, model: LinkModelConfig) -> tuple[str, ...]:
        """Return the limitations of models with this decoder, as sentences for reports."""
        return ()

    def prepare(self, nodes: Tensor, node_ids: Tensor | None = None) -> Tensor:
        """Convert node vectors to the form that the other methods take, for example by appending biases as columns.

        Args:
            nodes: Node vectors `[n, dim]`.
            node_ids: Ids of the nodes, int64 `[n]`; None for all nodes in order.
        """
        return nodes

    def prepare_unknown(self, nodes: Tensor) -> Tensor:
        """Convert vectors `[n, dim]` as `prepare` does, of nodes that the decoder has no weights for."""
        return self.prepare(nodes)

    @abstractmethod
    def score(self, subject: Tensor, relation: Tensor, object: Tensor) -> Tensor:
        """Score triples: subject `[n, dim]`, relation int64 `[n]`, object `[n, dim]` → `[n]`."""

    def score_directions(self, subject: Tensor, relation: Tensor, object: Tensor) -> Tensor:
        """Score triples in each direction: `[2, n]` if `scores_directions_apart`, else `[1, n]`."""
        return self.score(subject, relation, object)[None]

    @abstractmethod
    def score_objects(self, subject: Tensor, relation: Tensor, nodes: Tensor) -> Tensor:
        """Score all nodes as objects: subject `[q, dim]`, relation int64 `[q]`, nodes `[n, dim]` → `[q, n]`."""

    @abstractmethod
    def score_subjects(self, relation: Tensor, object: Tensor, nodes: Tensor) -> Tensor:
        """Score all nodes as subjects: relation int64 `[q]`, object `[q, dim]`, nodes `[n, dim]` → `[q, n]`."""

    @abstractmethod
    def penalty(self, subject: Tensor, relation: Tensor, object: Tensor) -> Tensor:
        """Return mean s² + mean r² + mean o² over triples and dimensions, a scalar; arguments are as for `score`."""

    # Subclasses may override the following methods by faster ones.

    def score_questions(
        self, node: Tensor, relation: Tensor, for_objects: bool | Tensor, nodes: Tensor, out: Tensor | None = None
    ) -> Tensor:
        """Score nodes as answers to questions of either direction.

        Args:
            node: Vectors of the questions' nodes `[q, dim]`, subjects if objects are asked for.
            relation: Relation ids int64 `[q]`.
            for_objects: Whether objects are asked for, for all questions or as bool `[q]`.
            nodes: Vectors of the possible answers `[n, dim]`.
            out: Memory `[q, n]` that may be used for the result.

        Returns:
            Scores `[q, n]`.
        """
        if not isinstance(for_objects, Tensor):
            if for_objects:
                return self.score_objects(node, relation, nodes)
            return self.score_subjects(relation, node, nodes)
        if for_objects.device.type != "cpu":  # in a training step, where selecting rows would wait for the device
            objects = self.score_objects(node, relation, nodes)
            return torch.where(for_objects[:, None], objects, self.score_subjects(relation, node, nodes))
        mask = for_objects.to(node.device)
        scores = node.new_empty(len(node), len(nodes)) if out is None else out
        scores[mask] = self.score_objects(node[mask], relation[mask], nodes)
        scores[~mask] = self.score_subjects(relation[~mask], node[~mask], nodes)
        return scores

    def score_batch(self, nodes: Tensor, positives: Tensor, negatives: Negatives) -> BatchScores:
        """Score positives int64 `[num_positives, 3]` and their negatives, from the vectors of all nodes."""
        triples = torch.cat([positives, negatives.triples(positives)])
        subject, relation, object_ = triples.unbind(1)
        subjects, objects = take_rows(nodes, subject), take_rows(nodes, object_)
        scores = self.score(subjects, relation, objects)
        squares = self.penalty(subjects, relation, objects)
        return BatchScores(scores[: len(positives)], scores[len(positives) :], squares)

    def factor_penalty(self, power: int, node: Tensor, relation: Tensor, answer: Tensor, counts: Tensor) -> Tensor:
        """Return the penalty on the factors of a batch of directed triples (node, edge relation, answer), a scalar.

        Args:
            power: 2 for the mean over triples and dimensions of node² + relation² + answer²; 3 for N3, the mean over
                triples of the sum of the cubed absolute values of node, relation and answer.
            node: Vectors of the distinct questions' nodes `[num_questions, dim]`.
            relation: Edge relations of the questions, int64 `[num_questions]`; ids of inverses follow the relations.
            answer: Vectors of the answers `[num_triples, dim]`.
            counts: Number of triples of each question, float `[num_questions]`.
        """
        raise ConfigError(f"{type(self).__name__} has no penalty on its factors: set training.penalty to 0")

    def relation_table(self) -> tuple[Tensor, Tensor | None] | None:
        """Return relation vectors `[num_relations, dim]` and biases `[num_relations]` or None; None without vectors."""
        return None
