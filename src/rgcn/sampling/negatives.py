"""Triples that are probably false, true ones with a random node put in; and true ones that a step must not hear."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from rgcn.errors import ConfigError
from rgcn.kernels.sparse import SparsePattern, narrow
from rgcn.sampling.known_triples import KnownTriples, ended

# Devices that need not be waited for.
AT_HAND = ("cpu",)


@dataclass(frozen=True, eq=False)
class Negatives:
    """Corrupted triples in the fewest numbers: which positive, which side of it, and by which node it is replaced.

    positive int64 [m]  number of the positive; negatives of the same positive stand together, `rate` of them
    node     int64 [m]  the node put in
    is_head  bool  [m]  whether it replaces the subject (else the object)
    one_sided           whether all negatives of a positive replace the same side: they answer one question

    A scorer can use node, is_head and the positives' own rows directly; `triples` writes the triples out.
    """

    positive: Tensor
    node: Tensor
    is_head: Tensor
    one_sided: bool = False

    def __len__(self) -> int:
        return self.node.numel()

    @property
    def drawn(self) -> Tensor:
        """int64: the nodes that were drawn."""
        return self.node

    def with_drawn(self, drawn: Tensor) -> Negatives:
        """The same with other nodes in their places."""
        return replace(self, node=drawn)

    unit = 1  # positives that cannot be told apart: shares of a batch are cut between such

    def part(self, begin: int, end: int, num_positives: int) -> Negatives:
        """Those of the positives begin .. end, which are numbered from 0 then."""
        rate = len(self) // max(num_positives, 1)
        of = slice(begin * rate, end * rate)
        return Negatives(self.positive[of] - begin, self.node[of], self.is_head[of], self.one_sided)

    def by_question(self, positive: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of the positives [n] and of these, as those of questions: of answers [q], of wrong ones [q, rate]."""
        return positive, negative.view(len(positive), -1)

    def by_query(self, num_positives: int, num_nodes: int) -> SparsePattern:
        """[2 n, nodes]: the nodes put in, by the query they answer: row p those for positive p's object, row n + p
        those for its subject. Values are in the order of the negatives.
        """
        rate = len(self) // max(num_positives, 1)
        heads = self.is_head.view(num_positives, rate).sum(1)
        pointer = F.pad(torch.cumsum(torch.cat([rate - heads, heads]), 0, dtype=torch.int32), (1, 0))
        # A positive's negatives stand together: to set the sides apart is enough.
        entry = torch.argsort(self.is_head, stable=True)
        node = narrow(self.node, num_nodes).index_select(0, entry)
        return SparsePattern(pointer, node, num_nodes, narrow(entry, len(self)), transient=True)

    def triples(self, positives: Tensor) -> Tensor:
        """int64 [m, 3]: the corrupted triples, given the positives [n, 3] they were made from."""
        subject, relation, object_ = positives.index_select(0, self.positive).unbind(1)
        subject = torch.where(self.is_head, self.node, subject)
        object_ = torch.where(self.is_head, object_, self.node)
        return torch.stack([subject, relation, object_], dim=1)


class SharedNegatives(Negatives):
    """Negatives that triples share: those of a chunk, one after another, have the same nodes put in, K for their
    objects and K for their subjects. Scores are then products of matrices, queries [chunk, d] with nodes [K, d].

    shared int64 [2, chunks, K]  the nodes put in: for objects, for subjects
    chunk                        triples of a chunk; the last may have fewer

    Written out, those that replace objects come first: [2, n, K].
    """

    def __init__(self, shared: Tensor, num_positives: int, chunk: int) -> None:
        self.__dict__.update(shared=shared, num_positives=num_positives, chunk=chunk)

    shared: Tensor
    num_positives: int
    chunk: int

    def __len__(self) -> int:
        return 2 * self.num_positives * self.shared.shape[2]

    @cached_property
    def positive(self) -> Tensor:
        numbers = torch.arange(2 * self.num_positives, device=self.shared.device) % self.num_positives
        return numbers.repeat_interleave(self.shared.shape[2])

    @cached_property
    def node(self) -> Tensor:
        return self.shared.repeat_interleave(self.chunk, dim=1)[:, : self.num_positives].flatten()

    @cached_property
    def is_head(self) -> Tensor:
        return torch.arange(len(self), device=self.shared.device) >= len(self) // 2

    @property
    def drawn(self) -> Tensor:
        return self.shared.flatten()

    @property
    def unit(self) -> int:  # type: ignore[override]
        return self.chunk if self.shared.shape[1] > 1 else 1

    def part(self, begin: int, end: int, num_positives: int) -> SharedNegatives:
        if self.shared.shape[1] == 1:
            return SharedNegatives(self.shared, end - begin, end - begin)
        chunks = slice(begin // self.chunk, -(-end // self.chunk))
        return SharedNegatives(self.shared[:, chunks], end - begin, self.chunk)

    def with_drawn(self, drawn: Tensor) -> SharedNegatives:
        return SharedNegatives(drawn.view_as(self.shared), self.num_positives, self.chunk)

    def by_question(self, positive: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
        return positive.repeat(2), negative.view(2 * len(positive), -1)

    def in_chunks(self, rows: Tensor) -> Tensor:
        """Rows [n, d] → [chunks, chunk, d], zeros behind the last."""
        missing = self.shared.shape[1] * self.chunk - len(rows)
        return (F.pad(rows, (0, 0, 0, missing)) if missing else rows).view(-1, self.chunk, rows.shape[1])


def share(
    positives: Tensor, num_nodes: int, *, rate: int, chunk: int, generator: torch.Generator | None = None
) -> SharedNegatives:
    """`rate` nodes for either side of each chunk of positives int64 [n, 3], uniform over all nodes."""
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
    one_sided: bool = False,
) -> Negatives:
    """`rate` negatives for each positive int64 [n, 3], drawn on the positives' device.

    The replacing node is uniform over all nodes, so that by chance a negative may be true, as in the original. With
    `known`, such hits are drawn again, at most `rounds` times; those that hit every time stay as they are (a subject
    that is linked to every node has no negative). Without `known` nothing waits for the device, and with it nothing
    waits for an accelerator. `one_sided`: which side is replaced is drawn for each positive, not for each negative.

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
    sides = torch.rand(len(positives) if one_sided else total, generator=generator, device=device) < head_probability
    is_head = sides.index_select(0, positive) if one_sided else sides
    negatives = Negatives(positive, node, is_head, one_sided)
    if known is None:
        return negatives
    if device.type not in AT_HAND:
        # Without asking how many hit: an accelerator would rather draw them all than wait for the answer.
        for _ in range(rounds):
            hit = known.contains(negatives.triples(positives))
            fresh = torch.randint(num_nodes, hit.shape, generator=generator, device=device)
            negatives = replace(negatives, node=torch.where(hit, fresh, negatives.node))
        return negatives
    hits = torch.nonzero(known.contains(negatives.triples(positives))).squeeze(1)
    for _ in range(rounds):  # those that hit are looked at again: few after the first round
        if hits.numel() == 0:
            break
        node[hits] = torch.randint(num_nodes, (hits.numel(),), generator=generator)
        again = Negatives(positive[hits], node[hits], is_head[hits])
        hits = hits[known.contains(again.triples(positives))]
    return negatives


Hidden = Literal["triple", "pair"]


class HiddenTriples:
    """Finds, for the triples of a batch, every training triple that tells their answer.

    "triple"  the triple itself, each time it stands among the training triples
    "pair"    every triple between its two nodes, in either direction and under any relation

    A triple's inverse edge carries the same number, so that it is hidden too (`RelationalAdjacency.masked`).

    >>> triples = torch.tensor([[0, 0, 1], [1, 1, 0], [0, 0, 2], [0, 0, 1]])
    >>> HiddenTriples(triples, num_nodes=3, num_relations=2).heard(triples[:1])
    tensor([0., 1., 1., 0.])
    >>> HiddenTriples(triples, num_nodes=3, num_relations=2, hidden="pair").heard(triples[:1])
    tensor([0., 0., 1., 0.])
    """

    def __init__(self, triples: Tensor, num_nodes: int, num_relations: int, hidden: Hidden = "triple") -> None:
        """triples int64 [T, 3]: what can be heard, in the order of the operator's `origin`."""
        self.num_nodes, self.num_relations, self.hidden = num_nodes, num_relations, hidden
        self.keys = self._keys(triples)

    def heard(self, asked: Tensor) -> Tensor:
        """float [T]: 0 for what must not be heard while asked int64 [n, 3] are asked about, 1 for the rest."""
        keys = ended(torch.sort(self._keys(asked)).values)
        return (keys[torch.searchsorted(keys, self.keys)] != self.keys).float()

    def _keys(self, triples: Tensor) -> Tensor:
        """int64 [n]: triples with the same key are hidden together."""
        subject, relation, object_ = triples.unbind(1)
        if self.hidden == "triple":
            return (subject * self.num_relations + relation) * self.num_nodes + object_
        return torch.minimum(subject, object_) * self.num_nodes + torch.maximum(subject, object_)
