"""Which triples are known: sorted by an end, the relation and the other end, they answer whatever is asked about them.

By subject, the objects of a question (subject, relation, ?) stand side by side; turned round, the subjects of
(?, relation, object). Nothing is as large as nodes × relations, and no number as large as a triple's would be.
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
from rgcn.kernels.sparse import expanded_ranges, narrow, pointer_from_sorted
from rgcn.system.memory import give_back, let_go

NO_SPLIT = -1
# Ends every list of numbers, and is none itself: looking one up needs no care at the end, nor where there are none.
LAST = 2**63 - 1
# Places that `Answers.padded` writes out at once: 32 MB of int64.
MOST_PLACES = 1 << 22
AT_ONCE = 1 << 18  # triples that are looked at together
SORTED_AT_ONCE = 1 << 24  # and that are sorted together, where no node has more
FEW = 64  # ranges that are searched one after the other
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
    """Known triples by one end, each once: the answers to questions about it.

    ends      int [n + 1]  the nodes that stand at this end, ascending; then one that is none
    pointer   int [n + 1]  the triples of ends[i] are those from pointer[i] to pointer[i + 1]
    relation  int [A]      sorted within a node
    node      int [A]      the other end, sorted within a relation: the answers
    num_relations          a question's key is node · relations + relation
    """

    ends: Tensor
    pointer: Tensor
    relation: Tensor
    node: Tensor
    num_relations: int

    @classmethod
    def sorted_by_end(
        cls, size: int, read: Callable[[], Iterable[Triples]], num_nodes: int, num_relations: int
    ) -> KnownAnswers:
        """From `size` triples, the end to sort by first, as often as they are read, a part at a time.

        The triples of some nodes are sorted as one number each; of all nodes it might have more than 63 bits.
        """
        of_nodes, of_relations = (max(count - 1, 0).bit_length() for count in (num_nodes, num_relations))
        relation = np.empty(size, dtype=np.int16 if num_relations < 2**15 - 1 else np.int32)
        node = np.empty(size, dtype=np.int32 if num_nodes < 2**31 else np.int64)
        ends, often, filled = [np.empty(0, np.int64)], [np.zeros(1, np.int64)], 0
        for low, high, count in _sorted_together(size, read, num_nodes, 63 - of_nodes - of_relations):
            numbers, written = np.empty(count, dtype=np.int64), 0
            for end, kind, other in read():
                mine = slice(None) if count == size else (end >= low) & (end < high)
                part = (end[mine] - np.int64(low)) << of_relations
                part = ((part | kind[mine]) << of_nodes) | other[mine]
                numbers[written : written + len(part)] = part
                written += len(part)
            numbers.sort()
            again = numbers[1:] == numbers[:-1]
            if again.any():
                numbers = numbers[np.append(True, ~again)]
            there = slice(filled, filled + len(numbers))
            np.bitwise_and(numbers, (1 << of_nodes) - 1, out=node[there], casting="unsafe")
            numbers >>= of_nodes
            np.bitwise_and(numbers, (1 << of_relations) - 1, out=relation[there], casting="unsafe")
            numbers >>= of_relations
            first = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1]))
            ends.append(numbers[first] + low)
            often.append(np.diff(first, append=len(numbers)))
            filled += len(numbers)
            del numbers, again, first
        if size > AT_ONCE:
            give_back()
        nodes, pointer = (torch.from_numpy(np.concatenate(of)) for of in ([*ends, np.array([num_nodes])], often))
        kept = torch.from_numpy(relation[:filled]), torch.from_numpy(node[:filled])
        return cls(narrow(nodes, num_nodes + 1), narrow(torch.cumsum(pointer, 0), filled + 1), *kept, num_relations)

    @property
    def device(self) -> torch.device:
        return self.node.device

    def to(self, device: torch.device | str) -> KnownAnswers:
        columns = ("ends", "pointer", "relation", "node")
        return replace(self, **{name: getattr(self, name).to(device) for name in columns})

    def ranges(self, key: Tensor) -> tuple[Tensor, Tensor]:
        """(begin, end), int64 [q] each: the answers to key[i] are node[begin[i] : end[i]], none where begin = end."""
        if key.numel() <= FEW and key.device.type == "cpu":
            found = [self._range(*divmod(one, self.num_relations)) for one in key.tolist()]
            begin, end = torch.tensor(found, dtype=torch.int64).view(-1, 2).T
            return begin, end
        relation, node = key % self.num_relations, key // self.num_relations
        place = torch.searchsorted(self.ends[:-1], node.to(self.ends.dtype))
        begin, end = (self.pointer[at].long() for at in (place, place + (self.ends[place] == node).long()))
        begin = lower_bound(self.relation, begin, end, relation)
        return begin, lower_bound(self.relation, begin, end, relation + 1)

    def _range(self, node: int, relation: int) -> tuple[int, int]:
        ends, kinds = self.ends.numpy(), self.relation.numpy()
        place = ends.searchsorted(ends.dtype.type(node))
        begin, end = self.pointer[place : place + 2].tolist() if ends[place] == node else (0, 0)
        part, kind = kinds[begin:end], kinds.dtype.type(relation)
        return begin + int(part.searchsorted(kind)), begin + int(part.searchsorted(kind, "right"))

    def expand(self, begin: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
        """Ranges written out: (row, node), int64 [a] each, row[j] being the number of the range that node[j] is of."""
        row, position = expanded_ranges(begin, end)
        return row, self.node[position].long()

    def parts(self, span: int = LAST) -> Iterator[Triples]:
        """(node at this end, relation, node at the other) of all: some at a time, all of a node together.

        span  nodes of a part are less than this apart
        """
        first, ends, pointer = 0, self.ends.numpy(), self.pointer.numpy()
        # Asked for a number of another kind, numpy first makes a copy of all that it looks in.
        until, before = pointer.dtype.type, ends.dtype.type
        while first < len(ends) - 1:
            most = until(min(int(pointer[first]) + AT_ONCE, int(pointer[-1])))
            last = max(first + 1, int(pointer.searchsorted(most, side="right")) - 1)
            last = min(last, int(ends[:-1].searchsorted(before(min(int(ends[first]) + span, int(ends[-1]))))))
            yield self._between(first, last)
            first = last

    def related_by(self, relations: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """bool [nodes]: which nodes have an answer in one of these relations, bool [R]."""
        found, ends, pointer = np.zeros(int(self.ends[-1]), dtype=bool), self.ends.numpy(), self.pointer.numpy()
        for first in range(0, len(ends) - 1, AT_ONCE):
            last = min(first + AT_ONCE, len(ends) - 1)
            there = relations[self.relation[int(pointer[first]) : int(pointer[last])].numpy()]
            found[ends[first:last]] = np.logical_or.reduceat(there, pointer[first:last] - pointer[first])
        return found

    def of_nodes(self, low: int, high: int) -> Triples:
        """The same of the nodes low .. high, the last among them."""
        ends = self.ends[:-1].numpy()
        return self._between(*(int(ends.searchsorted(ends.dtype.type(node))) for node in (low, high + 1)))

    def _between(self, first: int, last: int) -> Triples:
        pointer = self.pointer[first : last + 1].numpy()
        own = np.repeat(self.ends[first:last].numpy(), np.diff(pointer))
        there = slice(int(pointer[0]), int(pointer[-1]))
        return own, self.relation[there].numpy(), self.node[there].numpy()


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
class Answers:
    """Known answers of many queries, in one sorted list.

    keys    int64 [K + 1]  sorted, distinct: node · relations + relation of each query that has an answer; then `LAST`
    pointer int64 [K + 1]  the answers to query keys[i] are node[pointer[i] : pointer[i + 1]]
    node    int64 [A]      sorted within a query, distinct
    """

    keys: Tensor
    pointer: Tensor
    node: Tensor

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
        at = torch.searchsorted(self.keys, key)
        begin, end = (self.pointer[place][:, None] for place in (at, at + (self.keys[at] == key).long()))
        block = max(1, MOST_PLACES // max(key.numel(), 1))
        for first in range(0, self.most, block):
            place = begin + torch.arange(first, min(first + block, self.most), device=key.device)
            answer = self.node[place.clamp(max=self.node.numel() - 1)]
            yield torch.where(place < end, answer, padding[:, None])


@dataclass(frozen=True, eq=False)
class KnownTriples:
    """A set of triples, asked for many at once and on any device. What costs time or memory is made when first asked.

    objects  the objects of each (subject, relation)

    >>> train, test = torch.tensor([[0, 0, 1], [0, 0, 2]]), torch.tensor([[0, 0, 3]])
    >>> known = KnownTriples.of(train, test, num_nodes=4, num_relations=1)
    >>> known.contains(torch.tensor([[0, 0, 3], [3, 0, 0]]))
    tensor([ True, False])
    >>> known.objects.ranges(torch.tensor([0, 1]))  # node 0 has three, which stand at 0 to 3; node 1 none
    (tensor([0, 0]), tensor([3, 0]))
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
        of = self.objects
        keys = torch.repeat_interleave(of.ends[:-1].long(), torch.diff(of.pointer)) * self.num_relations + of.relation
        return ended(keys.mul_(self.num_nodes).add_(of.node))

    @cached_property
    def subjects(self) -> KnownAnswers:
        """The subjects of each (relation, object)."""
        of, sizes = self.objects.to("cpu"), (self.num_nodes, self.num_relations)
        turned = KnownAnswers.sorted_by_end(len(self), lambda: (part[::-1] for part in of.parts()), *sizes)
        return turned.to(self.objects.device)

    @cached_property
    def answers(self) -> Answers:
        """The answers to questions of both kinds: subjects are asked for where nodes · relations is added to a key."""
        keys, node = list[Tensor](), list[Tensor]()
        for turned, of in enumerate((self.objects, self.subjects)):
            ends = of.ends[:-1].long() + turned * self.num_nodes
            keys.append(torch.repeat_interleave(ends, torch.diff(of.pointer)) * self.num_relations + of.relation)
            node.append(of.node.long())
        distinct, query = torch.unique_consecutive(torch.cat(keys), return_inverse=True)
        return Answers(ended(distinct), pointer_from_sorted(query, len(distinct)).long(), torch.cat(node))


_of_graphs: WeakKeyDictionary[KnowledgeGraph, dict[tuple[str, ...], KnownTriples]] = WeakKeyDictionary()


def ended(keys: Tensor) -> Tensor:
    """Sorted keys and `LAST` behind them, so that one can be looked up that is not there."""
    return torch.cat([keys, keys.new_full((1,), LAST)])
