"""What answers: *score these (node, relation) questions against all nodes, or against these candidates*.

Ranking, predictions, completion, calibration, explanations and the server ask this and nothing else. Whether a model
compares vectors that were computed once, or runs a convolution for each question, is its own affair.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from rgcn.nn.decoders import Decoder
from rgcn.placement import LOCAL, NodePartition, Placement

# Scores held at once where given triples are scored by asking their questions: 64 MB of float32.
MOST_SCORES = 1 << 24
NOT_FINITE = "the model's numbers are not finite; its training has diverged"
FINITE_AT_ONCE = 1 << 16  # rows of a table that are looked at


class Questions(NamedTuple):
    """(node, relation, ?) where objects are asked for, (?, relation, node) where not.

    node, relation  int64 [q]
    for_objects     bool for all of them, or bool [q]: on the CPU where a scorer is asked, with the rest in training
    """

    node: Tensor
    relation: Tensor
    for_objects: bool | Tensor = True

    @property
    def size(self) -> int:
        return self.node.numel()

    def asks_objects(self) -> Tensor:
        """bool [q], on the CPU unless it was given elsewhere."""
        if isinstance(self.for_objects, Tensor):
            return self.for_objects
        return torch.full(self.node.shape, self.for_objects)

    def edge_kind(self, num_relations: int) -> Tensor:
        """int64 [q]: the relation whose edges lead to the answers; where subjects are asked for, it is the inverse."""
        sides, turned = self.for_objects, self.relation + num_relations
        if isinstance(sides, bool):
            return self.relation if sides else turned
        return torch.where(sides.to(self.relation.device, non_blocking=True), self.relation, turned)

    def to(self, device: torch.device | str) -> Questions:
        return Questions(self.node.to(device), self.relation.to(device), self.for_objects)

    def take(self, part: slice | Tensor) -> Questions:
        sides = self.for_objects
        return Questions(self.node[part], self.relation[part], sides[part] if isinstance(sides, Tensor) else sides)

    def parts(self, size: int) -> Iterator[Questions]:
        """All of them, `size` at a time."""
        for first in range(0, self.size, size):
            yield self.take(slice(first, first + size))


class Scorer(ABC):
    """A trained model, ready to be asked; higher scores are likelier. Safe to ask from several threads.

    num_nodes          nodes that may be answers
    device             where questions are taken and scores are given
    questions_at_once  how many questions suit one call, where each costs a computation of its own; more may be asked,
                       and take as many times as long. None where scores are a product: as many as memory holds
    placement          which of the nodes are scored in this process; where nodes are divided among processes, all of
                       these ask the same questions at the same time
    work               multiply-adds of a question, where each costs a computation of its own; else 0
    rounding           scores that differ by less than this share are equal but for rounding: edges are added up in the
                       order of the ids, which follow the order of the input's rows
    in_blocks          whether a few candidates cost less than all nodes, so that ranking may go in blocks of nodes
    hides              whether `scores_hiding` hides. Else its scores of known triples say little: they were learned, or
                       are heard
    """

    num_nodes: int
    device: torch.device
    questions_at_once: int | None = None
    work: int = 0
    rounding: float = 0.0
    in_blocks: bool = False
    placement: Placement = LOCAL
    hides: bool = False

    @abstractmethod
    def scores(self, questions: Questions, candidates: Tensor | None = None, out: Tensor | None = None) -> Tensor:
        """[q, n]: every question against candidates int64 [n], ascending, or against all nodes in order.

        out  memory [q, n] that may be used for the result, where a scorer can
        """

    def scores_hiding(self, questions: Questions, answers: Tensor, candidates: Tensor | None = None) -> Tensor:
        """[q, n]: `scores`, each question as if the triple it makes with its one of answers int64 [q] were not known.

        Here nothing is hidden: who compares what was computed once does not walk along the triple asked about. The
        scorer of a network that `hides_asked` should hide it, and its inverse, and say so (`hides`).
        """
        return self.scores(questions, candidates)

    def answer_scores(self, questions: Questions, answers: Tensor) -> Tensor:
        """[q]: the score of one answer int64 [q] to each question, its triple hidden where it is known and can be."""
        size = max(1, MOST_SCORES // self.num_nodes)
        asked, wanted = questions.to(self.device).parts(size), torch.split(answers.to(self.device), size)
        pairs = zip(asked, wanted, strict=False)  # of no answers there is a part, of no questions none
        found = [self.scores_hiding(part, given).gather(1, given[:, None])[:, 0] for part, given in pairs]
        return torch.cat(found) if found else torch.empty(0, device=self.device)

    def triple_scores(self, triples: Tensor) -> Tensor:
        """[t]: the score of each of the triples int64 [t, 3], which is one number, whichever end is asked from.

        The mean of its two scores as an answer, to (subject, relation, ?) and to (?, relation, object), a known triple
        hidden (`answer_scores`). A scorer whose two scores are the same computes one of them.
        """
        subject, relation, object_ = triples.unbind(1)
        as_object = self.answer_scores(Questions(subject, relation), object_)
        as_subject = self.answer_scores(Questions(object_, relation, False), subject)
        return (as_object + as_subject) / 2

    def local(self, questions: Questions) -> Scorer:
        """What scores these questions against the local nodes, by their rows; here all nodes are local."""
        return self

    def problem(self) -> str | None:
        """Why nothing should be asked, such as numbers that are not finite; None where all is well."""
        nothing = torch.zeros(1, dtype=torch.int64, device=self.device)
        return not_finite(self.scores(Questions(nothing, nothing)))


class VectorScorer(Scorer):
    """Compares vectors [N, d'] that were computed once."""

    in_blocks = True

    def __init__(self, decoder: Decoder, nodes: Tensor, given: Tensor | None = None) -> None:
        """given [q, d']: vectors of the asked nodes of certain questions; None: of any, which are among the nodes."""
        self.decoder, self.nodes, self.given = decoder, nodes, given
        self.num_nodes, self.device = len(nodes), nodes.device
        self._last: tuple[Tensor, Tensor] | None = None

    @torch.no_grad()
    def scores(self, questions: Questions, candidates: Tensor | None = None, out: Tensor | None = None) -> Tensor:
        node, relation, for_objects = questions.to(self.device)
        given = self.nodes.index_select(0, node) if self.given is None else self.given
        return self.decoder.score_questions(given, relation, for_objects, self._among(candidates), out)

    def _among(self, candidates: Tensor | None) -> Tensor:
        if candidates is None:
            return self.nodes
        last = self._last
        if last is None or last[0] is not candidates:  # blocks of questions ask about the same candidates again
            self._last = last = candidates, self.nodes.index_select(0, candidates.to(self.device))
        return last[1]

    @torch.no_grad()
    def triple_scores(self, triples: Tensor) -> Tensor:
        # From both ends a decoder's score is the same, and nothing can be hidden from vectors.
        parts = [
            self.decoder.score(self.nodes.index_select(0, s), r, self.nodes.index_select(0, o))
            for s, r, o in (part.unbind(1) for part in torch.split(triples.to(self.device), 2**17))
        ]
        return torch.cat(parts)

    def problem(self) -> str | None:
        return not_finite(self.nodes, *self.decoder.parameters()) or super().problem()


class PartitionedScorer(Scorer):
    """Compares vectors [local nodes, d'] of this process; all processes ask the same questions at the same time.

    Callers that only need the scores of local nodes, and sum or merge what follows from them, use `local`.
    """

    in_blocks = True

    def __init__(self, decoder: Decoder, nodes: Tensor, placement: Placement) -> None:
        assert placement.partition is not None
        self.decoder, self.nodes, self.placement = decoder, nodes, placement
        self.partition: NodePartition = placement.partition
        self.num_nodes, self.device = self.partition.num_nodes, nodes.device

    def vectors(self, ids: Tensor) -> Tensor:
        """[n, d']: of nodes int64 [n], wherever they are held."""
        wanted, back = torch.unique(ids.to(self.device), return_inverse=True)
        exchange = self.placement.exchange(wanted)
        return exchange(self.nodes[self.partition.row(exchange.needed)])[back]

    def local(self, questions: Questions) -> VectorScorer:
        return VectorScorer(self.decoder, self.nodes, self.vectors(questions.node))

    @torch.no_grad()
    def scores(self, questions: Questions, candidates: Tensor | None = None, out: Tensor | None = None) -> Tensor:
        partition = self.partition
        asked = torch.arange(self.num_nodes, device=self.device) if candidates is None else candidates.to(self.device)
        mine = partition.is_local(asked)
        found = self.local(questions).scores(questions, partition.row(asked[mine]))
        # Columns in the order of processes, then in that of the candidates.
        columns = self.placement.all_gather(found.T.contiguous()).T
        order = torch.argsort(partition.owner(asked), stable=True)
        every = torch.empty_like(columns) if out is None else out
        return every.index_copy_(1, order, columns.contiguous())

    @torch.no_grad()
    def triple_scores(self, triples: Tensor) -> Tensor:
        mine = triples[self.placement.share(len(triples))].to(self.device)
        subject, relation, object_ = mine.unbind(1)
        ends = self.vectors(torch.cat([subject, object_]))
        return self.placement.all_gather(self.decoder.score(ends[: len(mine)], relation, ends[len(mine) :]))

    def problem(self) -> str | None:
        wrong = not_finite(self.nodes, *self.decoder.parameters()) is not None
        return NOT_FINITE if self.placement.any(wrong)[0] else super().problem()


def not_finite(*tensors: Tensor) -> str | None:
    """What to say where a number is NaN or infinite; None where none is."""
    parts = (
        part for tensor in tensors for part in torch.split(tensor if tensor.ndim else tensor[None], FINITE_AT_ONCE)
    )
    finite = all(bool(torch.isfinite(part).all()) for part in parts)
    return None if finite else NOT_FINITE
