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
AT_ONCE = 1 << 20  # triples that are numbered at once


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
    train, valid, test = (KnownTriples.of_graph(graph, split).keys[:-1].numpy() for split in SPLITS)
    pairs = ((valid, train), (test, train), (test, valid))
    return len(np.unique(np.concatenate([one[_among(one, other)] for one, other in pairs])))


def _among(some: NDArray[np.int64], sorted_others: NDArray[np.int64]) -> NDArray[np.bool_]:
    """bool [n]: which of some numbers are among others."""
    place = np.searchsorted(sorted_others, some).clip(max=len(sorted_others) - 1)
    return np.asarray(sorted_others[place] == some) if len(sorted_others) else np.zeros(len(some), dtype=bool)


def split_of(graph: KnowledgeGraph, triples: Tensor) -> Tensor:
    """int8 [...]: the split that each of the triples int64 [..., 3] stands in, as its number in `SPLITS`.

    The first of the graph's splits where it stands in several; -1 where it is not known or there are no splits.
    """
    found = torch.full(triples.shape[:-1], NO_SPLIT, dtype=torch.int8)
    if graph.triple_splits is not None:
        for number, split in reversed([*enumerate(SPLITS)]):  # the first split has the last word
            found[KnownTriples.of_graph(graph, split).contains(triples)] = number
    return found


@dataclass(frozen=True, eq=False)
class PairedAnswers:
    """Known answers of many queries as one sorted list of numbers, and nothing beside it.

    pairs int64 [A + 1]  sorted, distinct: query · size + answer; then `LAST`
    size                 answers are below it
    """

    pairs: Tensor
    size: int

    @property
    def device(self) -> torch.device:
        return self.pairs.device

    def ranges(self, key: Tensor) -> tuple[Tensor, Tensor]:
        """(begin, end), int64 [q] each: the answers to key[i] are node[begin[i] : end[i]], none where begin = end."""
        begin = key * self.size
        return torch.searchsorted(self.pairs, begin), torch.searchsorted(self.pairs, begin + self.size)

    def expand(self, begin: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
        """Ranges written out: (row, node), int64 [a] each, row[j] being the number of the range that node[j] is of."""
        row, position = expanded_ranges(begin, end)
        return row, self.pairs[position] % max(self.size, 1)

    @cached_property
    def node(self) -> Tensor:
        """int64 [A]: all of them."""
        return self.pairs[:-1] % max(self.size, 1)


def expanded_ranges(begin: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """(number of the range, place) of every place in ranges, int64 [a] each."""
    counts = end - begin
    row = torch.repeat_interleave(counts)
    first = torch.cumsum(counts, 0) - counts
    return row, torch.arange(row.numel(), device=row.device) - first[row] + begin[row]


def lower_bound(values: Tensor, begin: Tensor, end: Tensor, wanted: Tensor | int) -> Tensor:
    """int64 [q]: in each range begin .. end of values, ascending there, the first place of one not below it.

    >>> lower_bound(torch.tensor([1, 4, 9, 0, 4]), torch.tensor([0, 3]), torch.tensor([3, 5]), 4)
    tensor([1, 4])
    """
    last = values.numel() - 1
    for _ in range(values.numel().bit_length()):  # as often as any could need: no device is asked which
        middle = (begin + end) // 2
        below = (begin < end) & (values[middle.clamp(max=last)] < wanted)
        begin, end = torch.where(below, middle + 1, begin), torch.where(below, end, middle)
    return begin


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
        row, position = expanded_ranges(begin, end)
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

    @classmethod
    def of(cls, *triples: Tensor, num_nodes: int, num_relations: int) -> KnownTriples:
        """From any number of lists of triples int64 [T, 3], on one device; duplicates do no harm."""
        _refuse_too_many(num_nodes, num_relations)
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
            _refuse_too_many(graph.num_nodes, graph.num_relations)
            keys = torch.from_numpy(_sorted_keys(graph, wanted)).to(device)
            known = of_graph[key] = cls(keys, graph.num_nodes, graph.num_relations)
        return known

    def __len__(self) -> int:
        return self.keys.numel() - 1

    def to(self, device: torch.device | str) -> KnownTriples:
        return self if self.keys.device == torch.device(device) else replace(self, keys=self.keys.to(device))

    def contains(self, triples: Tensor) -> Tensor:
        """bool [...]: which of the triples int64 [..., 3] are known. Nothing waits for the device."""
        return self._find(triples)[1]

    @cached_property
    def objects(self) -> PairedAnswers:
        """The objects of each (subject, relation)."""
        return PairedAnswers(self.keys, self.num_nodes)

    @cached_property
    def subjects(self) -> PairedAnswers:
        """The subjects of each (relation, object)."""
        nodes, relations = max(self.num_nodes, 1), max(self.num_relations, 1)
        turned = torch.empty_like(self.keys)
        for first in range(0, len(self), AT_ONCE):
            part = self.keys[first : min(first + AT_ONCE, len(self))]
            query = part // nodes
            turned[first : first + len(part)] = (
                part % nodes * relations + query % relations
            ) * nodes + query // relations
        turned[-1] = LAST
        if turned.is_cuda:
            return PairedAnswers(torch.sort(turned).values, self.num_nodes)
        turned.numpy().sort()
        return PairedAnswers(turned, self.num_nodes)

    @cached_property
    def answers(self) -> Answers:
        """The answers to questions of both kinds: subjects are asked for where nodes · relations is added to a key."""
        objects, subjects = (Answers.of(of.pairs[:-1], self.num_nodes) for of in (self.objects, self.subjects))
        keys = torch.cat([objects.keys[:-1], subjects.keys[:-1] + self.num_nodes * self.num_relations])
        pointer = torch.cat([objects.pointer[:-1], subjects.pointer + objects.node.numel()])
        return Answers(_ended(keys), pointer, torch.cat([objects.node, subjects.node]))

    def _find(self, triples: Tensor) -> tuple[Tensor, Tensor]:
        """(place among the keys, whether it is there)."""
        subject, relation, object_ = triples.unbind(-1)
        keys = (subject * self.num_relations + relation) * self.num_nodes + object_
        place = torch.searchsorted(self.keys, keys)
        return place, self.keys[place] == keys


_of_graphs: WeakKeyDictionary[KnowledgeGraph, dict[tuple[str, ...], KnownTriples]] = WeakKeyDictionary()


def _ended(keys: Tensor) -> Tensor:
    return torch.cat([keys, keys.new_full((1,), LAST)])


def _refuse_too_many(num_nodes: int, num_relations: int) -> None:
    if num_nodes * num_nodes * num_relations >= LAST:
        raise DataError(f"{num_nodes:,} nodes and {num_relations:,} relations are too many to number their triples")


def _sorted_keys(graph: KnowledgeGraph, splits: tuple[str, ...]) -> NDArray[np.int64]:
    """The numbers of the triples of some splits, sorted, each once; then `LAST`. Never more than they in memory."""
    wanted, of = None, graph.triple_splits
    if "all" not in splits and (of is not None or splits != ("train",)):
        for split in splits:
            graph.refuse_split(split)
        wanted = np.isin(np.asarray(of), [SPLITS.index(split) for split in splits])
    keys = np.empty((len(graph) if wanted is None else int(wanted.sum())) + 1, dtype=np.int64)
    filled = 0
    for first in range(0, len(graph), AT_ONCE):
        rows = graph.triples_at(slice(first, first + AT_ONCE))
        rows = rows if wanted is None else rows[wanted[first : first + AT_ONCE]]
        numbers = (rows[:, 0] * graph.num_relations + rows[:, 1]) * graph.num_nodes + rows[:, 2]
        keys[filled : filled + len(rows)] = numbers
        filled += len(rows)
    keys[filled] = LAST
    keys.sort()
    fresh = np.append(True, keys[1:] != keys[:-1])
    return keys if fresh.all() else keys[fresh]
