"""Which triples are known: sorted by an end, the relation and the other end, they answer whatever is asked about them.

By subject, the objects of a question (subject, relation, ?) stand side by side; turned round, the subjects of
(?, relation, object). Nothing is as large as nodes × relations, and questions are numbered, not triples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rgcn.graph import SPLITS, KnowledgeGraph
from rgcn.kernels.sparse import expanded_ranges, narrow
from rgcn.system.memory import give_back, let_go

NO_SPLIT = -1
# Ends every list of numbers, and is none itself: looking one up needs no care at the end, nor where there are none.
LAST = 2**63 - 1
# Places that `KnownAnswers.padded` writes out at once: 32 MB of int64.
MOST_PLACES = 1 << 22
AT_ONCE = 1 << 18  # triples that are looked at together
SORTED_AT_ONCE = 1 << 24  # and that are sorted together, where no node has more
# A set has its triples numbered if it is small, or if one in so many of them is looked for.
NUMBERED, LOOKED_FOR = 1 << 20, 1 << 12


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
    train, valid, test = (KnownTriples.of_graph(graph, split) for split in SPLITS)
    found = sum(int(train.contains(rows).sum()) for rows in valid.triples())
    # What is in all three was counted with those of validation.
    return found + sum(int((train.contains(rows) ^ valid.contains(rows)).sum()) for rows in test.triples())


def split_of(graph: KnowledgeGraph, triples: Tensor) -> Tensor:
    """int8 [...]: the split that each of the triples int64 [..., 3] stands in, as its number in `SPLITS`.

    The first of the graph's splits where it stands in several; -1 where it is not known or there are no splits.
    """
    found = torch.full(triples.shape[:-1], NO_SPLIT, dtype=torch.int8)
    if graph.triple_splits is not None:
        for number, split in reversed([*enumerate(SPLITS)]):  # the first split has the last word
            found[KnownTriples.of_graph(graph, split).contains(triples)] = number
    return found


Column = NDArray[Any]
Triples = tuple[Column, Column, Column]  # an end, the relation, the other end: int [n] each


@dataclass(frozen=True, eq=False)
class KnownAnswers:
    """The answers to all questions (node, relation) about one end of some triples.

    keys     int64 [K + 1]  node · relations + relation of each question that has an answer, ascending; then `LAST`
    pointer  int [K + 1]    the answers to keys[i] are node[pointer[i] : pointer[i + 1]]
    node     int [A]        distinct and ascending within a question
    """

    keys: Tensor
    pointer: Tensor
    node: Tensor
    num_nodes: int
    num_relations: int

    @classmethod
    def sorted_by_end(
        cls, size: int, read: Callable[[], Iterable[Triples]], num_nodes: int, num_relations: int
    ) -> KnownAnswers:
        """From `size` triples, the end to sort by first, as often as they are read, a part at a time.

        The triples of some nodes are sorted as one number each; of all nodes it might have more than 63 bits.
        """
        of_nodes, of_relations = (max(count - 1, 0).bit_length() for count in (num_nodes, num_relations))
        node = np.empty(size, dtype=np.int32 if num_nodes < 2**31 else np.int64)
        keys, often, filled = [np.empty(0, np.int64)], [np.zeros(1, np.int64)], 0
        for low, high, count in _sorted_together(size, read, num_nodes, 63 - of_nodes - of_relations):
            numbers, written = np.empty(count, dtype=np.int64), 0
            for end, kind, other in read():
                mine = slice(None) if count == size else (end >= low) & (end < high)
                part = (end[mine] - np.int64(low)) * num_relations + kind[mine]
                part = (part << of_nodes) | other[mine]
                numbers[written : written + len(part)] = part
                written += len(part)
            numbers.sort()
            again = numbers[1:] == numbers[:-1]
            if again.any():
                numbers = numbers[np.append(True, ~again)]
            np.bitwise_and(numbers, (1 << of_nodes) - 1, out=node[filled : filled + len(numbers)], casting="unsafe")
            numbers >>= of_nodes
            first = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1]))
            keys.append(numbers[first] + low * num_relations)
            often.append(np.diff(first, append=len(numbers)))
            filled += len(numbers)
            del numbers, again, first
        if size > AT_ONCE:
            give_back()
        pointer = torch.from_numpy(np.cumsum(np.concatenate(often)))
        places = ended(torch.from_numpy(np.concatenate(keys))), narrow(pointer, filled + 1)
        return cls(*places, torch.from_numpy(node[:filled]), num_nodes, num_relations)

    @property
    def device(self) -> torch.device:
        return self.node.device

    def to(self, device: torch.device | str) -> KnownAnswers:
        return replace(self, **{name: getattr(self, name).to(device) for name in ("keys", "pointer", "node")})

    def ranges(self, key: Tensor) -> tuple[Tensor, Tensor]:
        """(begin, end), int64 [q] each: the answers to key[i] are node[begin[i] : end[i]], none where begin = end."""
        place = torch.searchsorted(self.keys, key)
        return self.pointer[place].long(), self.pointer[place + (self.keys[place] == key)].long()

    def expand(self, begin: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
        """Ranges written out: (row, node), int64 [a] each, row[j] being the number of the range that node[j] is of."""
        row, position = expanded_ranges(begin, end)
        return row, self.node[position].long()

    @cached_property
    def most(self) -> int:
        """How many answers a question has at most. Waits for the device; what follows from it does not."""
        return int(torch.diff(self.pointer).max()) if len(self.pointer) > 1 else 0

    def padded(self, key: Tensor, padding: Tensor) -> Iterator[Tensor]:
        """The answers to key int64 [q] in blocks [q, w], filled up with padding int64 [q]; nothing is waited for.

        As many columns as the longest answer has, a block of bounded size at a time. The blocks' shapes depend on how
        many keys there are and not on which.
        """
        begin, end = (at[:, None] for at in self.ranges(key))
        block = max(1, MOST_PLACES // max(key.numel(), 1))
        for first in range(0, self.most, block):
            place = begin + torch.arange(first, min(first + block, self.most), device=key.device)
            answer = self.node[place.clamp(max=self.node.numel() - 1)]
            yield torch.where(place < end, answer, padding[:, None])

    def parts(self, span: int = LAST) -> Iterator[Triples]:
        """(node at this end, relation, node at the other) of all: some at a time, all of a node together.

        span  nodes of a part are less than this apart
        """
        keys, pointer, first = self.keys.numpy(), self.pointer.numpy(), 0
        while first < len(keys) - 1:
            full = pointer.dtype.type(min(int(pointer[first]) + AT_ONCE, int(pointer[-1])))  # else numpy makes a copy
            fits = int(keys[pointer.searchsorted(full, side="right") - 1]) // self.num_relations
            node = int(keys[first]) // self.num_relations
            last = self._place(max(node + 1, min(fits, node + span, self.num_nodes)))
            yield self._between(first, last)
            first = last

    def related_by(self, relations: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """bool [nodes]: which nodes have an answer in one of these relations, bool [R]."""
        found, keys = np.zeros(self.num_nodes, dtype=bool), self.keys[:-1].numpy()
        for first in range(0, len(keys), AT_ONCE):
            node, relation = np.divmod(keys[first : first + AT_ONCE], self.num_relations)
            found[node[relations[relation]]] = True
        return found

    def of_nodes(self, low: int, high: int) -> Triples:
        """The same as `parts` of the nodes low .. high, the last among them."""
        return self._between(self._place(low), self._place(high + 1))

    def _place(self, node: int) -> int:
        """Where the questions about this node begin."""
        return int(self.keys.numpy().searchsorted(node * self.num_relations))

    def _between(self, first: int, last: int) -> Triples:
        pointer = self.pointer[first : last + 1].numpy()
        times, places = np.diff(pointer), slice(int(pointer[0]), int(pointer[-1]))
        own, relation = (np.repeat(of, times) for of in np.divmod(self.keys[first:last].numpy(), self.num_relations))
        return own, relation, self.node[places].numpy()


def _sorted_together(
    size: int, read: Callable[[], Iterable[Triples]], num_nodes: int, bits: int
) -> Iterator[tuple[int, int, int]]:
    """(first node, node after the last, how many triples) of ranges of nodes that differ in so many bits at most, and
    whose triples are not too many at once; a hub's may be."""
    of_nodes = max(num_nodes - 1, 0).bit_length()
    if size <= SORTED_AT_ONCE and of_nodes <= bits:
        if size:
            yield 0, num_nodes, size
        return
    shift = max(0, of_nodes - 20)  # nodes are counted together, by the hundred where they are many
    counts = np.zeros((num_nodes >> shift) + 1, dtype=np.int64)
    for end, _, _ in read():
        counts += np.bincount(end >> shift, minlength=len(counts))
    low, done, total = 0, 0, np.cumsum(counts)
    while done < size:
        high = max(low + 1, int(np.searchsorted(total, done + SORTED_AT_ONCE, side="right")))
        high = min(high, low + (1 << max(0, bits - shift)))
        if total[high - 1] > done:
            yield low << shift, high << shift, int(total[high - 1]) - done
        low, done = high, int(total[high - 1])


def lower_bound(values: Tensor, begin: Tensor, end: Tensor, wanted: Tensor | int) -> Tensor:
    """int64 [q]: in each range begin .. end of values, ascending there, the first place of one not below it.

    >>> lower_bound(torch.tensor([1, 4, 9, 0, 4]), torch.tensor([0, 3]), torch.tensor([3, 5]), 4)
    tensor([1, 4])
    """
    last = values.numel() - 1
    longest = values.numel() if values.is_cuda else int((end - begin).max()) if len(begin) else 0  # no device is asked
    for _ in range(longest.bit_length()):
        middle = (begin + end) // 2
        below = (begin < end) & (values[middle.clamp(max=last)] < wanted)
        begin, end = torch.where(below, middle + 1, begin), torch.where(below, end, middle)
    return begin


@dataclass(frozen=True, eq=False)
class KnownTriples:
    """A set of triples, asked for many at once and on any device. What costs time or memory is made when first asked.

    objects  the objects of each (subject, relation)

    >>> train, test = torch.tensor([[0, 0, 1], [0, 0, 2]]), torch.tensor([[0, 0, 3]])
    >>> known = KnownTriples.of(train, test, num_nodes=4, num_relations=1)
    >>> known.contains(torch.tensor([[0, 0, 3], [3, 0, 0]]))
    tensor([ True, False])
    >>> known.objects.ranges(torch.tensor([0, 1]))  # node 0 has three; node 1 has none
    (tensor([0, 3]), tensor([3, 3]))
    """

    objects: KnownAnswers
    num_nodes: int
    num_relations: int

    @classmethod
    def of(cls, *triples: Tensor, num_nodes: int, num_relations: int) -> KnownTriples:
        """From any number of lists of triples int64 [T, 3], on one device; duplicates do no harm."""
        parts = [tuple(part.cpu().numpy().T) for part in triples]
        size = sum(len(part) for part in triples)
        objects = KnownAnswers.sorted_by_end(size, lambda: parts, num_nodes, num_relations)
        return cls(objects.to(triples[0].device), num_nodes, num_relations)

    @classmethod
    def of_graph(cls, graph: KnowledgeGraph, *splits: str, device: torch.device | str = "cpu") -> KnownTriples:
        """The triples of some splits of a graph, or of all; made once for each graph, splits and device."""
        wanted = tuple(sorted(set(splits)))
        if not wanted or set(wanted) == set(SPLITS):
            wanted = ("all",)
        of_graph, key = _of_graphs.setdefault(graph, {}), (str(device), *wanted)
        if key not in of_graph and torch.device(device).type == "cpu":
            of_graph[key] = cls._read(graph, wanted)
        elif key not in of_graph:
            of_graph[key] = cls.of_graph(graph, *splits).to(device)
        return of_graph[key]

    @classmethod
    def _read(cls, graph: KnowledgeGraph, splits: tuple[str, ...]) -> KnownTriples:
        """Of the triples of some splits, read where they lie."""
        keep, of, sizes = None, graph.triple_splits, (graph.num_nodes, graph.num_relations)
        if "all" not in splits and (of is not None or splits != ("train",)):
            keep = np.any([np.asarray(graph.in_split(split)) for split in splits], axis=0)

        def read() -> Iterator[Triples]:
            for first in range(0, len(graph), AT_ONCE):
                rows = graph.triples_at(slice(first, first + AT_ONCE))
                subject, relation, object_ = (rows if keep is None else rows[keep[first : first + AT_ONCE]]).T
                yield subject, relation, object_
            let_go(graph._rows)

        size = len(graph) if keep is None else int(np.count_nonzero(keep))
        return cls(KnownAnswers.sorted_by_end(size, read, *sizes), *sizes)

    def __len__(self) -> int:
        return self.objects.node.numel()

    def to(self, device: torch.device | str) -> KnownTriples:
        return self if self.objects.device == torch.device(device) else replace(self, objects=self.objects.to(device))

    def triples(self) -> Iterator[Tensor]:
        """int64 [n, 3]: all of them, sorted, some at a time; on the CPU."""
        return (torch.from_numpy(np.stack(part, axis=1, dtype=np.int64)) for part in self.objects.to("cpu").parts())

    def contains(self, triples: Tensor) -> Tensor:
        """bool [...]: which of the triples int64 [..., 3] are known. Nothing waits for the device."""
        subject, relation, object_ = triples.reshape(-1, 3).unbind(1)
        key = subject * self.num_relations + relation
        worth_it = triples.is_cuda or len(self) <= max(NUMBERED, subject.numel() * LOOKED_FOR)
        if worth_it and self.num_nodes**2 * self.num_relations < LAST:
            number = key * self.num_nodes + object_
            return (self._numbers[torch.searchsorted(self._numbers, number)] == number).view(triples.shape[:-1])
        begin, end = self.objects.ranges(key)
        place = lower_bound(self.objects.node, begin, end, object_)
        there = place < end
        found = self.objects.node[torch.where(there, place, 0)] if len(self) else object_
        return (there & (found == object_)).view(triples.shape[:-1])

    @cached_property
    def _numbers(self) -> Tensor:
        """int64 [T + 1]: (subject · relations + relation) · nodes + object of each, sorted; then `LAST`. To be found by
        the thousands, of a set that is not too large for it."""
        keys = torch.repeat_interleave(self.objects.keys[:-1], torch.diff(self.objects.pointer))
        return ended(keys.mul_(self.num_nodes).add_(self.objects.node))

    @cached_property
    def subjects(self) -> KnownAnswers:
        """The subjects of each (relation, object)."""
        of, sizes = self.objects.to("cpu"), (self.num_nodes, self.num_relations)
        turned = KnownAnswers.sorted_by_end(len(self), lambda: (part[::-1] for part in of.parts()), *sizes)
        return turned.to(self.objects.device)

    @cached_property
    def answers(self) -> KnownAnswers:
        """The answers to questions of both kinds: subjects are asked for where nodes · relations is added to a key."""
        first, second = self.objects, self.subjects
        keys = ended(torch.cat([first.keys[:-1], second.keys[:-1] + self.num_nodes * self.num_relations]))
        pointer = torch.cat([first.pointer.long(), second.pointer[1:].long() + len(self)])
        node = torch.cat([first.node, second.node])
        return KnownAnswers(keys, pointer, node, 2 * self.num_nodes, self.num_relations)


_of_graphs: WeakKeyDictionary[KnowledgeGraph, dict[tuple[str, ...], KnownTriples]] = WeakKeyDictionary()


def ended(keys: Tensor) -> Tensor:
    """Sorted keys and `LAST` behind them, so that one can be looked up that is not there."""
    return torch.cat([keys, keys.new_full((1,), LAST)])
