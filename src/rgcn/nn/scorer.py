"""`Scorer`, the interface that ranking, prediction, calibration, explanations and the server ask for scores.

A scorer answers one kind of request: score these (node, relation) questions against all nodes, or against some
candidates. It hides whether the model compares vectors that were computed once or runs a convolution for each question.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from rgcn.nn.decoders import Decoder
from rgcn.placement import LOCAL, Placement

MAX_SCORES_AT_ONCE = 1 << 24  # held while known triples are scored: 64 MB of float32
NOT_FINITE = "the model's weights or vectors contain NaN or infinity: its training has diverged"
CHECKED_ROWS = 1 << 16  # rows of a tensor that are checked at once


class Questions(NamedTuple):
    """A batch of questions (node, relation, ?) for objects, or (?, relation, node) for subjects.

    Attributes:
        node: The known node of each question, int64 `[num_questions]`.
        relation: The relation of each question, int64 `[num_questions]`.
        for_objects: True if all questions ask for objects, False if all ask for subjects, or bool `[num_questions]`.
            Such a tensor is on the CPU when a scorer is asked, and on the device of the rest in training.
    """

    node: Tensor
    relation: Tensor
    for_objects: bool | Tensor = True

    @property
    def size(self) -> int:
        """Number of questions."""
        return self.node.numel()

    def is_for_objects(self) -> Tensor:
        """Return `for_objects` as bool `[num_questions]`, on the CPU unless it was a tensor elsewhere."""
        if isinstance(self.for_objects, Tensor):
            return self.for_objects
        return torch.full(self.node.shape, self.for_objects)

    def edge_relation(self, num_relations: int) -> Tensor:
        """Return the relation id of the edges that lead to the answers, int64 `[num_questions]`.

        Questions for subjects follow the inverse relation, whose id is `relation + num_relations`.
        """
        sides, inverse = self.for_objects, self.relation + num_relations
        if isinstance(sides, bool):
            return self.relation if sides else inverse
        return torch.where(sides.to(self.relation.device, non_blocking=True), self.relation, inverse)

    def to(self, device: torch.device | str) -> Questions:
        """Move nodes and relations to a device."""
        return Questions(self.node.to(device), self.relation.to(device), self.for_objects)

    def take(self, part: slice | Tensor) -> Questions:
        """Select some of the questions."""
        sides = self.for_objects
        return Questions(self.node[part], self.relation[part], sides[part] if isinstance(sides, Tensor) else sides)

    def parts(self, size: int) -> Iterator[Questions]:
        """Yield the questions in batches of `size`."""
        for first in range(0, self.size, size):
            yield self.take(slice(first, first + size))


class Scorer(ABC):
    """A trained model that is ready to score answers; a higher score means more likely. Thread-safe.

    Attributes:
        num_nodes: Number of nodes that can be answers.
        device: Where questions are scored and scores are returned.
        questions_per_batch: Suggested number of questions for one call, if each question needs a computation of its
            own. More may be asked and take proportionally longer. None if scores are one matrix product.
        work: Multiply-adds of one question if each needs a computation of its own, else 0.
        rounding: Relative difference below which two scores are considered equal. Sums over edges follow the order of
            the ids, so that reordering the input's rows changes the last digits.
        has_cheap_candidates: True if scoring a few candidates costs less than scoring all nodes, so that ranking can
            work in blocks of nodes.
        placement: Which nodes this process scores. If nodes are partitioned, all ranks ask the same questions together.
        can_hide_triples: True if `scores_hiding_answers` hides known triples. Otherwise scores of known triples prove
            little, because the model was trained on them or reads them as messages.
    """

    num_nodes: int
    device: torch.device
    questions_per_batch: int | None = None
    work: int = 0
    rounding: float = 0.0
    has_cheap_candidates: bool = False
    placement: Placement = LOCAL
    can_hide_triples: bool = False

    @abstractmethod
    def scores(self, questions: Questions, candidates: Tensor | None = None, out: Tensor | None = None) -> Tensor:
        """Score all nodes, or some candidates, as answers to each question.

        Args:
            questions: The questions.
            candidates: Ids of the candidates in ascending order, int64 `[num_candidates]`; None for all nodes.
            out: Memory `[num_questions, num_candidates]` that the scorer may use for the result.

        Returns:
            Scores `[num_questions, num_candidates]`.
        """

    def scores_hiding_answers(self, questions: Questions, answers: Tensor, candidates: Tensor | None = None) -> Tensor:
        """Score like `scores`, each question as if the triple it forms with its answer were not in the graph.

        This implementation hides nothing: vectors that were computed once do not depend on the question. The scorer of
        a network with `must_hide_triples` hides the triple and its inverse, and sets `can_hide_triples`.

        Args:
            questions: The questions.
            answers: The answer of each question whose triple is hidden, int64 `[num_questions]`.
            candidates: As for `scores`.

        Returns:
            Scores `[num_questions, num_candidates]`.
        """
        return self.scores(questions, candidates)

    def answer_scores(self, questions: Questions, answers: Tensor) -> Tensor:
        """Score one answer int64 `[num_questions]` to each question, its triple hidden if known: `[num_questions]`."""
        size = max(1, MAX_SCORES_AT_ONCE // self.num_nodes)
        parts = zip(questions.to(self.device).parts(size), torch.split(answers.to(self.device), size), strict=False)
        scores = [self.scores_hiding_answers(part, answer).gather(1, answer[:, None])[:, 0] for part, answer in parts]
        return torch.cat(scores) if scores else torch.empty(0, device=self.device)

    def triple_scores(self, triples: Tensor) -> Tensor:
        """Score triples int64 `[num_triples, 3]`: one number each, `[num_triples]`.

        It is the mean of the triple's scores as an answer to (subject, relation, ?) and to (?, relation, object), a
        known triple being hidden (`answer_scores`). Scorers for which both are equal compute one of them.
        """
        subject, relation, object_ = triples.unbind(1)
        as_object = self.answer_scores(Questions(subject, relation), object_)
        as_subject = self.answer_scores(Questions(object_, relation, False), subject)
        return (as_object + as_subject) / 2

    def local(self, questions: Questions) -> Scorer:
        """Return a scorer of these questions against the local nodes, numbered by their local rows."""
        return self

    def problem(self) -> str | None:
        """Return why the model should not be used, such as scores that are not finite; None if it can be."""
        zero = torch.zeros(1, dtype=torch.int64, device=self.device)
        return not_finite(self.scores(Questions(zero, zero)))


class VectorScorer(Scorer):
    """Scores by comparing node vectors that were computed once.

    If the nodes are partitioned over the ranks, all ranks ask the same questions together. Callers that need only the
    scores of local nodes, and reduce what follows from them, use `local`.

    Args:
        decoder: Scores triples of vectors.
        nodes: A vector for each node, or for each local node, `[num_nodes, dim]`, as `Decoder.prepare` returns them.
        placement: Which nodes are local.
        query_nodes: Vectors of the questions' nodes, `[num_questions, dim]`, for a scorer of certain questions. None:
            they are looked up in `nodes`.
    """

    has_cheap_candidates = True

    def __init__(
        self, decoder: Decoder, nodes: Tensor, placement: Placement = LOCAL, query_nodes: Tensor | None = None
    ) -> None:
        """Keep the decoder and the vectors."""
        self.decoder, self.nodes, self.placement, self.query_nodes = decoder, nodes, placement, query_nodes
        self.partition, self.device = placement.partition, nodes.device
        self.num_nodes = len(nodes) if self.partition is None else self.partition.num_nodes
        self._last: tuple[Tensor, Tensor] | None = None  # candidates and their vectors

    def vectors(self, nodes: Tensor) -> Tensor:
        """Return the vectors `[n, dim]` of nodes int64 `[n]`, whichever rank holds them."""
        if self.partition is None:
            return self.nodes.index_select(0, nodes)
        distinct, index = torch.unique(nodes.to(self.device), return_inverse=True)
        exchange = self.placement.exchange(distinct)
        return exchange(self.nodes[self.partition.row(exchange.needed)])[index]

    def local(self, questions: Questions) -> VectorScorer:
        """Fetch the vectors of the questions' nodes, to compare them with the local nodes."""
        if self.partition is None:
            return self
        return VectorScorer(self.decoder, self.nodes, query_nodes=self.vectors(questions.node))

    @torch.no_grad()
    def scores(self, questions: Questions, candidates: Tensor | None = None, out: Tensor | None = None) -> Tensor:
        """Score with the decoder, on each rank its nodes; see `Scorer.scores`."""
        partition = self.partition
        if partition is None:
            node, relation, for_objects = questions.to(self.device)
            query_nodes = self.vectors(node) if self.query_nodes is None else self.query_nodes
            nodes = self.nodes
            if candidates is not None:  # consecutive blocks of questions have the same ones
                last = self._last
                if last is None or last[0] is not candidates:
                    self._last = last = candidates, nodes.index_select(0, candidates.to(self.device))
                nodes = last[1]
            return self.decoder.score_questions(query_nodes, relation, for_objects, nodes, out)
        nodes = torch.arange(self.num_nodes, device=self.device) if candidates is None else candidates.to(self.device)
        local_rows = partition.row(nodes[partition.is_local(nodes)])
        local_scores = self.local(questions).scores(questions, local_rows)
        # Columns arrive in the order of ranks, each with its candidates in ascending order.
        columns = self.placement.all_gather(local_scores.T.contiguous()).T
        order = torch.argsort(partition.owner(nodes), stable=True)
        scores = torch.empty_like(columns) if out is None else out
        return scores.index_copy_(1, order, columns.contiguous())

    @torch.no_grad()
    def triple_scores(self, triples: Tensor) -> Tensor:
        """Score triples with the decoder: its score is the same in both directions, and vectors hide no triple.

        If the nodes are partitioned, each rank scores a share of the triples.
        """
        if self.partition is not None:
            subject, relation, object_ = triples[self.placement.share(len(triples))].to(self.device).unbind(1)
            subjects, objects = self.vectors(torch.cat([subject, object_])).tensor_split(2)
            return self.placement.all_gather(self.decoder.score(subjects, relation, objects))
        parts = (part.unbind(1) for part in torch.split(triples.to(self.device), 2**17))
        return torch.cat([self.decoder.score(self.vectors(s), r, self.vectors(o)) for s, r, o in parts])

    def problem(self) -> str | None:
        """Check the vectors of all ranks, the decoder's weights and a score for NaN and infinity."""
        problem = not_finite(self.nodes, *self.decoder.parameters())
        if self.partition is not None:
            problem = NOT_FINITE if self.placement.any(problem is not None)[0] else None
        return problem or super().problem()


def not_finite(*tensors: Tensor) -> str | None:
    """Return an error message if a tensor contains NaN or infinity, else None."""
    parts = (part for tensor in tensors for part in torch.split(tensor if tensor.ndim else tensor[None], CHECKED_ROWS))
    return None if all(bool(torch.isfinite(part).all()) for part in parts) else NOT_FINITE
