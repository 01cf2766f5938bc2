"""Training triples that must not be heard in a step, because they are what the step asks about."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from typing_extensions import assert_never

from rgcn.sampling.known_triples import Answers

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
        self.num_triples, self.hidden = len(triples), hidden
        self.num_nodes, self.num_relations = num_nodes, num_relations
        self.same = Answers.grouped(self._keys(triples))
        _ = self.same.most  # waited for now, so that no step has to

    def heard(self, asked: Tensor) -> Tensor:
        """float [T]: 0 for what must not be heard while asked int64 [n, 3] are asked about, 1 for the rest."""
        heard = torch.ones(self.num_triples + 1, device=asked.device)  # and a place for the padding
        keys = self._keys(asked)
        for numbers in self.same.padded(keys, torch.full_like(keys, self.num_triples)):
            heard.scatter_(0, numbers.flatten(), 0.0)
        return heard[:-1]

    def _keys(self, triples: Tensor) -> Tensor:
        """int64 [n]: triples with the same key are hidden together."""
        subject, relation, object_ = triples.unbind(1)
        if self.hidden == "triple":
            return (subject * self.num_relations + relation) * self.num_nodes + object_
        if self.hidden == "pair":
            return torch.minimum(subject, object_) * self.num_nodes + torch.maximum(subject, object_)
        assert_never(self.hidden)
