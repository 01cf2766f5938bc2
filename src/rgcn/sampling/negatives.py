"""Corrupt triples: replace one node at random. And hide true triples that a training step must not see."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from rgcn.errors import ConfigError
from rgcn.kernels.sparse import SparsePattern, narrow
from rgcn.sampling.known_triples import KnownTriples, append_last

SYNCHRONOUS_DEVICES = ("cpu",)


@dataclass(frozen=True, eq=False)
class Negatives:
    """Corrupted triples as indices: which positive, which side of it, and the node that replaces it.

    A scorer can use the indices and the rows of the positives directly; `triples` writes the triples out.

    Args:
        positive: int64 [m]: index of the positive. Negatives of the same positive are consecutive, `rate` of them.
        node: int64 [m]: the new node.
        is_subject: bool [m]: True if the subject is replaced, else the object.
        is_one_sided: True if all negatives of a positive replace the same side: they then answer one question.
    """

    positive: Tensor
    node: Tensor
    is_subject: Tensor
    is_one_sided: bool = False

    def __len__(self) -> int:
        """Return the number of negatives."""
        return self.node.numel()

    @property
    def drawn_nodes(self) -> Tensor:
        """The nodes that were drawn, int64; shared ones once."""
        return self.node

    def with_nodes(self, drawn: Tensor) -> Negatives:
        """Return the same negatives with other `drawn_nodes`."""
        return replace(self, node=drawn)

    unit = 1  # number of positives that share their negatives; a batch is only divided between such groups

    def part(self, begin: int, end: int, num_positives: int) -> Negatives:
        """Return the negatives of the positives begin .. end, which are numbered from 0."""
        rate = len(self) // max(num_positives, 1)
        rows = slice(begin * rate, end * rate)
        return Negatives(self.positive[rows] - begin, self.node[rows], self.is_subject[rows], self.is_one_sided)

    def scores_by_question(self, positive: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
        """Return scores by question: true answers [q], wrong ones [q, rate].

        Args:
            positive: Scores of positives [n], or [2, n] as answers to (s, r, ?) and to (?, r, o).
            negative: Scores of negatives [m].
        """
        if positive.ndim == 2:  # all negatives of a positive replace the same side
            is_subject = self.is_subject.view(positive.shape[1], -1)[:, 0]
            positive = torch.where(is_subject, positive[1], positive[0])
        return positive, negative.view(len(positive), -1)

    def question_pattern(self, num_positives: int, num_nodes: int) -> SparsePattern:
        """Return the new nodes by the question they answer, as a pattern [2 n, nodes].

        Row p holds the objects for positive p, row n + p the subjects. Values are in the order of the negatives.
        """
        rate = len(self) // max(num_positives, 1)
        num_subjects = self.is_subject.view(num_positives, rate).sum(1)
        counts = torch.cat([rate - num_subjects, num_subjects])
        pointer = F.pad(torch.cumsum(counts, 0, dtype=torch.int32), (1, 0))
        # The negatives of a positive are consecutive: it is enough to separate the sides.
        entry = torch.argsort(self.is_subject, stable=True)
        node = narrow(self.node, num_nodes).index_select(0, entry)
        return SparsePattern(pointer, node, num_nodes, narrow(entry, len(self)), transient=True)

    def triples(self, positives: Tensor) -> Tensor:
        """Return the corrupted triples int64 [m, 3], given the positives [n, 3]."""
        subject, relation, object_ = positives.index_select(0, self.positive).unbind(1)
        subject = torch.where(self.is_subject, self.node, subject)
        object_ = torch.where(self.is_subject, object_, self.node)
        return torch.stack([subject, relation, object_], dim=1)


class SharedNegatives(Negatives):
    """Negatives that the positives of a chunk share: K new objects and K new subjects for each of them.

    The scores are then matrix products of questions [chunk, d] and nodes [K, d]. In the order of `Negatives`, those
    that replace objects come first: [2, n, K].

    Args:
        shared: int64 [2, chunks, K]: the new objects, then the new subjects.
        num_positives: n.
        chunk: Number of consecutive positives in a chunk; the last chunk may have fewer.
    """

    def __init__(self, shared: Tensor, num_positives: int, chunk: int) -> None:
        """Set the fields of a frozen dataclass."""
        self.__dict__.update(shared=shared, num_positives=num_positives, chunk=chunk)

    shared: Tensor
    num_positives: int
    chunk: int

    def __len__(self) -> int:
        """Return the number of negatives."""
        return 2 * self.num_positives * self.shared.shape[2]

    @cached_property
    def positive(self) -> Tensor:
        """Index of the positive of each negative."""
        numbers = torch.arange(2 * self.num_positives, device=self.shared.device) % self.num_positives
        return numbers.repeat_interleave(self.shared.shape[2])

    @cached_property
    def node(self) -> Tensor:
        """The new node of each negative."""
        return self.shared.repeat_interleave(self.chunk, dim=1)[:, : self.num_positives].flatten()

    @cached_property
    def is_subject(self) -> Tensor:
        """True if the subject is replaced."""
        return torch.arange(len(self), device=self.shared.device) >= len(self) // 2

    @property
    def drawn_nodes(self) -> Tensor:
        """The nodes that were drawn, each once."""
        return self.shared.flatten()

    @property
    def unit(self) -> int:  # type: ignore[override]
        """Positives that share their negatives."""
        return self.chunk if self.shared.shape[1] > 1 else 1

    def part(self, begin: int, end: int, num_positives: int) -> SharedNegatives:
        """Return the negatives of the positives begin .. end."""
        if self.shared.shape[1] == 1:
            return SharedNegatives(self.shared, end - begin, end - begin)
        chunks = slice(begin // self.chunk, -(-end // self.chunk))
        return SharedNegatives(self.shared[:, chunks], end - begin, self.chunk)

    def with_nodes(self, drawn: Tensor) -> SharedNegatives:
        """Return the same negatives with other `drawn_nodes`."""
        return SharedNegatives(drawn.view_as(self.shared), self.num_positives, self.chunk)

    def scores_by_question(self, positive: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores by question: objects of all positives, then subjects."""
        positive = positive.flatten() if positive.ndim == 2 else positive.repeat(2)
        return positive, negative.view(len(positive), -1)

    def split_chunks(self, rows: Tensor) -> Tensor:
        """Return rows [n, d] as [chunks, chunk, d], padded with zeros."""
        missing = self.shared.shape[1] * self.chunk - len(rows)
        return (F.pad(rows, (0, 0, 0, missing)) if missing else rows).view(-1, self.chunk, rows.shape[1])


def share(
    positives: Tensor, num_nodes: int, *, rate: int, chunk: int, generator: torch.Generator | None = None
) -> SharedNegatives:
    """Draw nodes that the positives of a chunk share, uniformly over all nodes.

    Args:
        positives: int64 [n, 3].
        num_nodes: Number of nodes.
        rate: Number of nodes for either side of each chunk.
        chunk: Number of positives in a chunk.
        generator: Random generator on the device of the positives.
    """
    chunk = max(1, min(chunk, len(positives)))
    size = 2, -(-len(positives) // chunk), rate
    drawn = torch.randint(num_nodes, size, generator=generator, device=positives.device)
    return SharedNegatives(drawn, len(positives), chunk)


def corrupt(
    positives: Tensor,
    num_nodes: int,
    *,
    rate: int = 10,
    head_probability: float = 0.5,
    generator: torch.Generator | None = None,
    known: KnownTriples | None = None,
    rounds: int = 10,
    is_one_sided: bool = False,
) -> Negatives:
    """Draw negatives of each positive, on the device of the positives.

    The new node is uniform over all nodes, so a negative may be true by chance, as in the original. No accelerator is
    waited for.

    Args:
        positives: int64 [n, 3].
        num_nodes: Number of nodes.
        rate: Number of negatives of each positive.
        head_probability: Probability that the subject is replaced.
        generator: Random generator on the device of the positives.
        known: Triples that are no negatives. Such hits are drawn again.
        rounds: How often. A hit in every round stays (a subject that is linked to every node has no negative).
        is_one_sided: Draw the side for each positive, not for each negative.

    Raises:
        ConfigError: If a number is out of range.

    >>> positives = torch.tensor([[0, 0, 1], [1, 0, 2]])
    >>> negatives = corrupt(positives, 5, rate=3, generator=torch.Generator().manual_seed(0))
    >>> negatives.positive
    tensor([0, 0, 0, 1, 1, 1])
    >>> negatives.triples(positives).shape
    torch.Size([6, 3])
    """
    if rate < 1 or num_nodes < 1 or not 0.0 <= head_probability <= 1.0:
        raise ConfigError(
            f"negatives need a rate of at least 1, a node, and a probability: rate = {rate}, num_nodes = {num_nodes}, "
            f"head_probability = {head_probability}"
        )
    device, total = positives.device, len(positives) * rate
    positive = torch.arange(total, device=device) // rate
    node = torch.randint(num_nodes, (total,), generator=generator, device=device)
    sides = torch.rand(len(positives) if is_one_sided else total, generator=generator, device=device) < head_probability
    is_subject = sides.index_select(0, positive) if is_one_sided else sides
    negatives = Negatives(positive, node, is_subject, is_one_sided)
    if known is None:
        return negatives
    if device.type not in SYNCHRONOUS_DEVICES:
        # Drawing again for all negatives is faster than waiting for the number of hits.
        for _ in range(rounds):
            is_hit = known.contains(negatives.triples(positives))
            drawn = torch.randint(num_nodes, is_hit.shape, generator=generator, device=device)
            negatives = replace(negatives, node=torch.where(is_hit, drawn, negatives.node))
        return negatives
    hits = torch.nonzero(known.contains(negatives.triples(positives))).squeeze(1)
    for _ in range(rounds):  # only hits are checked again: few after the first round
        if hits.numel() == 0:
            break
        node[hits] = torch.randint(num_nodes, (hits.numel(),), generator=generator)
        redrawn = Negatives(positive[hits], node[hits], is_subject[hits])
        hits = hits[known.contains(redrawn.triples(positives))]
    return negatives


HiddenMode = Literal["triple", "pair"]


class HiddenTriples:
    """Finds the training triples that give away the answers of a batch.

    A triple's inverse edge has the same origin, so that it is hidden too (`RelationalAdjacency.masked`).

    Args:
        triples: int64 [T, 3]: the triples of the message-passing graph, in the order of the operator's `origin`.
        num_nodes: Number of nodes.
        num_relations: Number of relations.
        hidden: "triple" hides the triple itself, in all its copies. "pair" hides every triple between its two nodes, in
            either direction and of any relation.

    >>> triples = torch.tensor([[0, 0, 1], [1, 1, 0], [0, 0, 2], [0, 0, 1]])
    >>> HiddenTriples(triples, num_nodes=3, num_relations=2).visibility(triples[:1])
    tensor([0., 1., 1., 0.])
    >>> HiddenTriples(triples, num_nodes=3, num_relations=2, hidden="pair").visibility(triples[:1])
    tensor([0., 0., 1., 0.])
    """

    def __init__(self, triples: Tensor, num_nodes: int, num_relations: int, hidden: HiddenMode = "triple") -> None:
        """Compute the keys of the triples."""
        self.num_nodes, self.num_relations, self.hidden = num_nodes, num_relations, hidden
        self.keys = self._keys(triples)

    def visibility(self, batch: Tensor) -> Tensor:
        """Return 0 for the triples that must be hidden from a batch int64 [n, 3], 1 for the others; float [T]."""
        keys = append_last(torch.sort(self._keys(batch)).values)
        return (keys[torch.searchsorted(keys, self.keys)] != self.keys).float()

    def _keys(self, triples: Tensor) -> Tensor:
        """Return int64 [n]; triples with the same key are hidden together."""
        subject, relation, object_ = triples.unbind(1)
        if self.hidden == "triple":
            return (subject * self.num_relations + relation) * self.num_nodes + object_
        return torch.minimum(subject, object_) * self.num_nodes + torch.maximum(subject, object_)
