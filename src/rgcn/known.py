"""Which triples are known: one sorted list of numbers, which answers whatever is asked about them.

A triple's number is (subject · relations + relation) · nodes + object: sorted, the objects of a question
(subject, relation, ?) stand side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rgcn.errors import DataError
from rgcn.graph import SPLITS, KnowledgeGraph
from rgcn.sparse import pointer_from_sorted

NO_SPLIT = -1
# Ends every list of numbers, and is none itself: looking one up needs no care at the end, nor where there are none.
LAST = 2**63 - 1
# Places that `Answers.padded` writes out at once: 32 MB of int64.
MOST_PLACES = 1 << 22


def splits_up_to(split: str) -> tuple[str, ...]:
    """The splits whose triples are known when the triples of one are ranked: none that come after it.

    What is chosen by validation figures must not depend on test triples, not even on what these leave out of a ranking.

    >>> splits_up_to("valid"), splits_up_to("test")
    (('train', 'valid'), ('train', 'valid', 'test'))
    """
    return SPLITS if split == "all" else SPLITS[: SPLITS.index(split) + 1]


def repeated_across_splits(graph: KnowledgeGraph) -> int:
    """How many triples stand in more than one split: a test triple that is also trained on proves nothing."""
    if graph.triple_splits is None:
        return 0
    first = KnownTriples.of_graph(graph).split_of(torch.tensor(graph.triples)).numpy()
    return len(np.unique(graph.triples[first != graph.triple_splits], axis=0))


@dataclass(frozen=True, eq=False)
class Answers:
    """Known answers of many queries, in one sorted list.

    keys    int64 [K + 1]  sorted, distinct: node · relations + relation of each query that has an answer; then `LAST`
    pointer int64 [K + 1]  the answers to query keys[i] are node[pointer[i] : pointer[i + 1]]
    node    int64 [A]      sorted within a query, distinct
    """

    keys: Tensor
    pointer: Tensor
    node: Tensor

    @classmethod
    def of(cls, pairs: Tensor, num_nodes: int) -> Answers:
        """From pairs query · nodes + answer, sorted and distinct."""
        keys, query = torch.unique_consecutive(pairs // max(num_nodes, 1), return_inverse=True)
        return cls(_ended(keys), pointer_from_sorted(query, len(keys)).long(), pairs % max(num_nodes, 1))

    @classmethod
    def grouped(cls, key: Tensor) -> Answers:
        """From a key int64 [A] for each of A things in order: the answers to a key are the numbers of its things."""
        ordered, number = torch.sort(key, stable=True)
        keys, query = torch.unique_consecutive(ordered, return_inverse=True)
        return cls(_ended(keys), pointer_from_sorted(query, len(keys)).long(), number)

    def ranges(self, key: Tensor) -> tuple[Tensor, Tensor]:
        """(begin, end), int64 [q] each: the answers to key[i] are node[begin[i] : end[i]], none where begin = end."""
        place = torch.searchsorted(self.keys, key)
        found = self.keys[place] == key
        return self.pointer[place], self.pointer[place + found.long()]

    def expand(self, begin: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
        """Ranges written out: (row, node), int64 [a] each, row[j] being the number of the range that node[j] is of."""
        counts = end - begin
        row = torch.repeat_interleave(counts)
        first = torch.cumsum(counts, 0) - counts
        position = torch.arange(row.numel(), device=row.device) - first[row] + begin[row]
        return row, self.node[position]

    @cached_property
    def most(self) -> int:
        """How many answers a query has at most. Waits for the device; what follows from it does not."""
        counts = self.pointer[1:] - self.pointer[:-1]
        return int(counts.max()) if counts.numel() else 0

    def padded(self, key: Tensor, padding: Tensor) -> Iterator[Tensor]:
        """The answers to key int64 [q] in blocks [q, w], filled up with padding int64 [q]; nothing is waited for.

        As many columns as the longest answer has, a block of bounded size at a time. The blocks' shapes depend on how
        many keys there are and not on which.
        """
        begin, end = (place[:, None] for place in self.ranges(key))
        block = max(1, MOST_PLACES // max(key.numel(), 1))
        for first in range(0, self.most, block):
            place = begin + torch.arange(first, min(first + block, self.most), device=key.device)
            answer = self.node[place.clamp(max=self.node.numel() - 1)]
            yield torch.where(place < end, answer, padding[:, None])


@dataclass(frozen=True, eq=False)
class KnownTriples:
    """A set of triples, asked for many at once and on any device. What costs time or memory is made when first asked.

    keys    int64 [T + 1]  the triples' numbers, sorted, distinct; then `LAST`
    source                 triples of a graph and their splits: the graph's own arrays, for `split_of`

    >>> train, test = torch.tensor([[0, 0, 1], [0, 0, 2]]), torch.tensor([[0, 0, 3]])
    >>> known = KnownTriples.of(train, test, num_nodes=4, num_relations=1)
    >>> known.contains(torch.tensor([[0, 0, 3], [3, 0, 0]]))
    tensor([ True, False])
    >>> known.objects.ranges(torch.tensor([0, 1]))  # node 0 has three, which stand at 0 to 3; node 1 none
    (tensor([0, 3]), tensor([3, 3]))
    """

    keys: Tensor
    num_nodes: int
    num_relations: int
    source: tuple[NDArray[np.int64], NDArray[np.int8]] | None = None

    @classmethod
    def of(cls, *triples: Tensor, num_nodes: int, num_relations: int) -> KnownTriples:
        """From any number of lists of triples int64 [T, 3], on one device; duplicates do no harm."""
        if num_nodes * num_nodes * num_relations >= LAST:
            raise DataError(f"{num_nodes:,} nodes and {num_relations:,} relations are too many to number their triples")
        subject, relation, object_ = torch.cat(triples).unbind(1)
        keys = torch.unique((subject * num_relations + relation) * num_nodes + object_)
        return cls(_ended(keys), num_nodes, num_relations)

    @classmethod
    def of_graph(cls, graph: KnowledgeGraph, *splits: str, device: torch.device | str = "cpu") -> KnownTriples:
        """The triples of some splits of a graph, or of all; made once for each graph, splits and device."""
        wanted = tuple(sorted(set(splits)))
        if not wanted or set(wanted) == set(SPLITS):
            wanted = ("all",)
        of_graph, key = _of_graphs.setdefault(graph, {}), (str(device), *wanted)
        known = of_graph.get(key)
        if known is None:
            rows = [torch.tensor(graph.split_triples(split), device=device) for split in wanted]
            known = cls.of(*rows, num_nodes=graph.num_nodes, num_relations=graph.num_relations)
            if graph.triple_splits is not None:
                known = replace(known, source=(graph.triples, graph.triple_splits))
            of_graph[key] = known
        return known

    def __len__(self) -> int:
        return self.keys.numel() - 1

    def to(self, device: torch.device | str) -> KnownTriples:
        return self if self.keys.device == torch.device(device) else replace(self, keys=self.keys.to(device))

    def contains(self, triples: Tensor) -> Tensor:
        """bool [...]: which of the triples int64 [..., 3] are known. Nothing waits for the device."""
        return self._find(triples)[1]

    def split_of(self, triples: Tensor) -> Tensor:
        """int8 [...]: the split that each of the triples int64 [..., 3] stands in, as its number in `SPLITS`.

        The first of the graph's splits where it stands in several; -1 where it is not known or there are no splits.
        """
        place, there = self._find(triples)
        return torch.where(there, self._splits[place], NO_SPLIT)

    @cached_property
    def objects(self) -> Answers:
        """The objects of each (subject, relation)."""
        return Answers.of(self.keys[:-1], self.num_nodes)

    @cached_property
    def subjects(self) -> Answers:
        """The subjects of each (relation, object)."""
        nodes, relations = max(self.num_nodes, 1), max(self.num_relations, 1)
        query, object_ = self.keys[:-1] // nodes, self.keys[:-1] % nodes
        turned = (object_ * relations + query % relations) * nodes + query // relations
        return Answers.of(torch.sort(turned).values, self.num_nodes)

    @cached_property
    def answers(self) -> Answers:
        """The answers to questions of both kinds: subjects are asked for where nodes · relations is added to a key."""
        objects, subjects = self.objects, self.subjects
        keys = torch.cat([objects.keys[:-1], subjects.keys[:-1] + self.num_nodes * self.num_relations])
        pointer = torch.cat([objects.pointer[:-1], subjects.pointer + objects.node.numel()])
        return Answers(_ended(keys), pointer, torch.cat([objects.node, subjects.node]))

    @cached_property
    def _splits(self) -> Tensor:
        """int8 [T + 1]: the split of each key."""
        splits = torch.full_like(self.keys, NO_SPLIT, dtype=torch.int8)
        if self.source is not None:
            triples, split = (torch.tensor(array, device=self.keys.device) for array in self.source)
            place, there = self._find(triples)
            for number in reversed(range(len(SPLITS))):  # the first split has the last word
                splits[place[there & (split == number)]] = number
        return splits

    def _find(self, triples: Tensor) -> tuple[Tensor, Tensor]:
        """(place among the keys, whether it is there)."""
        subject, relation, object_ = triples.unbind(-1)
        keys = (subject * self.num_relations + relation) * self.num_nodes + object_
        place = torch.searchsorted(self.keys, keys)
        return place, self.keys[place] == keys


_of_graphs: WeakKeyDictionary[KnowledgeGraph, dict[tuple[str, ...], KnownTriples]] = WeakKeyDictionary()


def _ended(keys: Tensor) -> Tensor:
    return torch.cat([keys, keys.new_full((1,), LAST)])
