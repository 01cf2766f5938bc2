"""Every known answer to a query, so that a model is not blamed for ranking another truth first."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rgcn.errors import DataError
from rgcn.sparse import pointer_from_sorted


@dataclass(frozen=True, eq=False)
class Answers:
    """Known answers of many queries, in one sorted list.

    keys    int64 [K]      sorted, distinct: node · num_relations + relation of each query that has an answer
    pointer int64 [K + 1]  the answers to query keys[i] are node[pointer[i] : pointer[i + 1]]
    node    int64 [A]      sorted within a query, distinct
    """

    keys: Tensor
    pointer: Tensor
    node: Tensor

    @classmethod
    def of(cls, key: Tensor, node: Tensor, num_nodes: int) -> Answers:
        """From (query key, answer) pairs in any order, with or without duplicates."""
        pairs = torch.unique(key * num_nodes + node)
        keys, query = torch.unique_consecutive(pairs // max(num_nodes, 1), return_inverse=True)
        return cls(keys, pointer_from_sorted(query, len(keys)).long(), pairs % max(num_nodes, 1))

    def to(self, device: torch.device | str) -> Answers:
        return Answers(self.keys.to(device), self.pointer.to(device), self.node.to(device))

    def ranges(self, key: Tensor) -> tuple[Tensor, Tensor]:
        """(begin, end), int64 [q] each: the answers to key[i] are node[begin[i] : end[i]], none where begin = end."""
        if self.keys.numel() == 0:
            return torch.zeros_like(key), torch.zeros_like(key)
        place = torch.searchsorted(self.keys, key).clamp_(max=self.keys.numel() - 1)
        found = self.keys[place] == key
        return self.pointer[place], self.pointer[place + found.long()]

    def expand(self, begin: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
        """Ranges written out: (row, node), int64 [a] each, row[j] being the number of the range that node[j] is of."""
        counts = end - begin
        row = torch.repeat_interleave(counts)
        first = torch.cumsum(counts, 0) - counts
        position = torch.arange(row.numel(), device=row.device) - first[row] + begin[row]
        return row, self.node[position]


@dataclass(frozen=True, eq=False)
class FilterIndex:
    """Known objects of each (subject, relation) and known subjects of each (relation, object).

    Give it *all* known triples, of training, validation and test: what is left out is counted against the model.

    >>> train, test = torch.tensor([[0, 0, 1], [0, 0, 2]]), torch.tensor([[0, 0, 3]])
    >>> known = FilterIndex.of(train, test, num_nodes=4, num_relations=1)
    >>> known.objects_of(torch.tensor([0, 1]), torch.tensor([0, 0]))  # (row, node): three for row 0, none for 1
    (tensor([0, 0, 0]), tensor([1, 2, 3]))
    """

    objects: Answers
    subjects: Answers
    num_nodes: int
    num_relations: int

    @classmethod
    def of(cls, *triples: Tensor, num_nodes: int, num_relations: int) -> FilterIndex:
        """From any number of lists of triples int64 [T, 3], on one device; duplicates do no harm."""
        if num_nodes * num_nodes * num_relations >= 2**63:
            raise DataError(f"{num_nodes:,} nodes and {num_relations:,} relations are too many to number their triples")
        subject, relation, object_ = torch.cat(triples).unbind(1)
        return cls(
            Answers.of(subject * num_relations + relation, object_, num_nodes),
            Answers.of(object_ * num_relations + relation, subject, num_nodes),
            num_nodes,
            num_relations,
        )

    def to(self, device: torch.device | str) -> FilterIndex:
        return FilterIndex(self.objects.to(device), self.subjects.to(device), self.num_nodes, self.num_relations)

    def objects_of(self, subject: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        """Known objects of queries int64 [q]: (row, node), one pair for each."""
        return self.objects.expand(*self.objects.ranges(subject * self.num_relations + relation))

    def subjects_of(self, relation: Tensor, object: Tensor) -> tuple[Tensor, Tensor]:
        """Known subjects of queries int64 [q]: (row, node), one pair for each."""
        return self.subjects.expand(*self.subjects.ranges(object * self.num_relations + relation))
