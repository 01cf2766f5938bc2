"""An index of known triples, sorted by one end, the relation and the other end.

Sorted by subject, the objects of a question (subject, relation, ?) are adjacent; sorted by object, the subjects of
(?, relation, object). No array is as large as nodes × relations, and keys number questions, not triples.
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
from rgcn.system.memory import release_memory, release_pages

NO_SPLIT = -1
# Last element of every sorted list of keys, so that `searchsorted` always finds an element, also in an empty list.
LAST = 2**63 - 1
MAX_PADDED = 1 << 22  # entries per block of `KnownAnswers.padded`: 32 MB of int64
BLOCK_TRIPLES = 1 << 18  # triples processed at once
SORT_TRIPLES = 1 << 24  # triples sorted at once; more if one node has more
# Triples get a sorted list of numbers if there are few of them, or if one in so many is looked up.
MAX_NUMBERED, MAX_NUMBERED_PER_LOOKUP = 1 << 20, 1 << 12


def splits_up_to(split: str) -> tuple[str, ...]:
    """Return the splits whose triples are known when the triples of one split are ranked: none that come after it.

    A choice by validation metrics must not depend on test triples, not even as a filter of ranks.

    >>> splits_up_to("valid"), splits_up_to("test")
    (('train', 'valid'), ('train', 'valid', 'test'))
    """
    return SPLITS if split == "all" else SPLITS[: SPLITS.index(split) + 1]


def repeated_across_splits(graph: KnowledgeGraph) -> int:
    """Return how many triples are in more than one split. A test triple that is also trained on measures nothing."""
    if graph.triple_splits is None:
        return 0
    train, valid, test = (KnownTriples.of_graph(graph, split) for split in SPLITS)
    result = sum(int(train.contains(rows).sum()) for rows in valid.triples())
    # Triples in all three splits were counted with the validation triples.
    return result + sum(int((train.contains(rows) ^ valid.contains(rows)).sum()) for rows in test.triples())


def split_of(graph: KnowledgeGraph, triples: Tensor) -> Tensor:
    """Return the split of each of the triples int64 [..., 3] as its index in `SPLITS`, int8 [...].

    The first split of triples that are in several; -1 for unknown triples, and if the graph has no splits.
    """
    result = torch.full(triples.shape[:-1], NO_SPLIT, dtype=torch.int8)
    if graph.triple_splits is not None:
        for number, split in reversed([*enumerate(SPLITS)]):  # the first split is written last
            result[KnownTriples.of_graph(graph, split).contains(triples)] = number
    return result


Triples = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]  # an end, the relation, the other end: int [n] each


@dataclass(frozen=True, eq=False)
class KnownAnswers:
    """The answers to all questions (node, relation) in one direction.

    Args:
        keys: int64 [K + 1]: node · relations + relation of each question that has an answer, ascending; then `LAST`.
        pointer: int [K + 1]: the answers to keys[i] are node[pointer[i] : pointer[i + 1]].
        node: int [A]: distinct and ascending within a question.
        num_nodes: Number of nodes.
        num_relations: Number of relations.
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
        """Sort triples.

        The triples of a block of nodes are sorted as one number each. For all nodes it might have more than 63 bits.

        Args:
            size: Number of triples.
            read: Returns the triples in blocks, the end to sort by first. It may be called several times.
            num_nodes: Number of nodes.
            num_relations: Number of relations.
        """
        of_nodes, of_relations = (max(count - 1, 0).bit_length() for count in (num_nodes, num_relations))
        node = np.empty(size, dtype=np.int32 if num_nodes < 2**31 else np.int64)
        keys, counts, filled = [np.empty(0, np.int64)], [np.zeros(1, np.int64)], 0
        for low, high, count in _sorted_together(size, read, num_nodes, 63 - of_nodes - of_relations):
            numbers, written = np.empty(count, dtype=np.int64), 0
            for end, kind, other in read():
                is_inside = slice(None) if count == size else (end >= low) & (end < high)
                part = (end[is_inside] - np.int64(low)) * num_relations + kind[is_inside]
                part = (part << of_nodes) | other[is_inside]
                numbers[written : written + len(part)] = part
                written += len(part)
            numbers.sort()
            is_repeated = numbers[1:] == numbers[:-1]
            if is_repeated.any():
                numbers = numbers[np.append(True, ~is_repeated)]
            np.bitwise_and(numbers, (1 << of_nodes) - 1, out=node[filled : filled + len(numbers)], casting="unsafe")
            numbers >>= of_nodes
            first = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1]))
            keys.append(numbers[first] + low * num_relations)
            counts.append(np.diff(first, append=len(numbers)))
            filled += len(numbers)
            del numbers, is_repeated, first
        if size > BLOCK_TRIPLES:
            release_memory()
        pointer = torch.from_numpy(np.cumsum(np.concatenate(counts)))
        index = append_last(torch.from_numpy(np.concatenate(keys))), narrow(pointer, filled + 1)
        return cls(*index, torch.from_numpy(node[:filled]), num_nodes, num_relations)

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        return self.node.device

    def to(self, device: torch.device | str) -> KnownAnswers:
        """Return the same answers on a device."""
        return replace(self, **{name: getattr(self, name).to(device) for name in ("keys", "pointer", "node")})

    def ranges(self, key: Tensor) -> tuple[Tensor, Tensor]:
        """Return (begin, end), int64 [q] each: the answers to key[i] are node[begin[i] : end[i]]."""
        position = torch.searchsorted(self.keys, key)
        return self.pointer[position].long(), self.pointer[position + (self.keys[position] == key)].long()

    def expand(self, begin: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
        """Return (row, node), int64 [a] each: all answers in some `ranges`, and the range of each."""
        row, position = expanded_ranges(begin, end)
        return row, self.node[position].long()

    @cached_property
    def most(self) -> int:
        """The largest number of answers to a question. Computing it waits for the device."""
        return int(torch.diff(self.pointer).max()) if len(self.pointer) > 1 else 0

    def padded(self, key: Tensor, padding: Tensor) -> Iterator[Tensor]:
        """Yield the answers to questions in blocks [q, w], without waiting for the device.

        The shapes of the blocks depend on the number of keys only.

        Args:
            key: int64 [q].
            padding: int64 [q]: fills the columns of questions with fewer answers.
        """
        begin, end = (at[:, None] for at in self.ranges(key))
        block = max(1, MAX_PADDED // max(key.numel(), 1))
        for first in range(0, self.most, block):
            position = begin + torch.arange(first, min(first + block, self.most), device=key.device)
            answer = self.node[position.clamp(max=self.node.numel() - 1)]
            yield torch.where(position < end, answer, padding[:, None])

    def parts(self, span: int = LAST) -> Iterator[Triples]:
        """Yield all triples in blocks: (node at this end, relation, node at the other end). A node is never split.

        Args:
            span: The nodes of a block differ by less than this.
        """
        keys, pointer, first = self.keys.numpy(), self.pointer.numpy(), 0
        while first < len(keys) - 1:
            # Of the same dtype, or NumPy copies the pointer.
            full = pointer.dtype.type(min(int(pointer[first]) + BLOCK_TRIPLES, int(pointer[-1])))
            fits = int(keys[pointer.searchsorted(full, side="right") - 1]) // self.num_relations
            node = int(keys[first]) // self.num_relations
            last = self._place(max(node + 1, min(fits, node + span, self.num_nodes)))
            yield self._between(first, last)
            first = last

    def related_by(self, relations: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which nodes have an answer in one of the relations bool [R], bool [nodes]."""
        result, keys = np.zeros(self.num_nodes, dtype=bool), self.keys[:-1].numpy()
        for first in range(0, len(keys), BLOCK_TRIPLES):
            node, relation = np.divmod(keys[first : first + BLOCK_TRIPLES], self.num_relations)
            result[node[relations[relation]]] = True
        return result

    def of_nodes(self, low: int, high: int) -> Triples:
        """Return the triples of the nodes low .. high (inclusive); columns as for `parts`."""
        return self._between(self._place(low), self._place(high + 1))

    def _place(self, node: int) -> int:
        """The index of the first question about this node."""
        return int(self.keys.numpy().searchsorted(node * self.num_relations))

    def _between(self, first: int, last: int) -> Triples:
        pointer = self.pointer[first : last + 1].numpy()
        times, index = np.diff(pointer), slice(int(pointer[0]), int(pointer[-1]))
        own, relation = (np.repeat(of, times) for of in np.divmod(self.keys[first:last].numpy(), self.num_relations))
        return own, relation, self.node[index].numpy()


def _sorted_together(
    size: int, read: Callable[[], Iterable[Triples]], num_nodes: int, bits: int
) -> Iterator[tuple[int, int, int]]:
    """Yield ranges of nodes whose triples are sorted together: (first node, node after the last, number of triples).

    The nodes of a range differ in this many bits at most. A range has at most SORT_TRIPLES, unless one node has more.
    """
    of_nodes = max(num_nodes - 1, 0).bit_length()
    if size <= SORT_TRIPLES and of_nodes <= bits:
        if size:
            yield 0, num_nodes, size
        return
    shift = max(0, of_nodes - 20)  # many nodes are counted in groups
    counts = np.zeros((num_nodes >> shift) + 1, dtype=np.int64)
    for end, _, _ in read():
        counts += np.bincount(end >> shift, minlength=len(counts))
    low, done, total = 0, 0, np.cumsum(counts)
    while done < size:
        high = max(low + 1, int(np.searchsorted(total, done + SORT_TRIPLES, side="right")))
        high = min(high, low + (1 << max(0, bits - shift)))
        if total[high - 1] > done:
            yield low << shift, high << shift, int(total[high - 1]) - done
        low, done = high, int(total[high - 1])


def lower_bound(values: Tensor, begin: Tensor, end: Tensor, target: Tensor | int) -> Tensor:
    """Return in each range begin .. end of values, ascending there, the first position not below a value, int64 [q].

    >>> lower_bound(torch.tensor([1, 4, 9, 0, 4]), torch.tensor([0, 3]), torch.tensor([3, 5]), 4)
    tensor([1, 4])
    """
    last = values.numel() - 1
    # On a GPU the longest range is not computed, which would wait for the device.
    longest = values.numel() if values.is_cuda else int((end - begin).max()) if len(begin) else 0
    for _ in range(longest.bit_length()):
        middle = (begin + end) // 2
        below = (begin < end) & (values[middle.clamp(max=last)] < target)
        begin, end = torch.where(below, middle + 1, begin), torch.where(below, end, middle)
    return begin


@dataclass(frozen=True, eq=False)
class KnownTriples:
    """A set of triples for batched lookups on any device. Expensive parts are built on first use.

    Args:
        objects: The objects of each (subject, relation).
        num_nodes: Number of nodes.
        num_relations: Number of relations.

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
        """Return the union of lists of triples int64 [T, 3] on one device, which may have duplicates."""
        parts = [tuple(part.cpu().numpy().T) for part in triples]
        size = sum(len(part) for part in triples)
        objects = KnownAnswers.sorted_by_end(size, lambda: parts, num_nodes, num_relations)
        return cls(objects.to(triples[0].device), num_nodes, num_relations)

    @classmethod
    def of_graph(cls, graph: KnowledgeGraph, *splits: str, device: torch.device | str = "cpu") -> KnownTriples:
        """Return the triples of some splits of a graph (default: all), built once per graph, splits and device."""
        names = tuple(sorted(set(splits)))
        if not names or set(names) == set(SPLITS):
            names = ("all",)
        of_graph, key = _of_graphs.setdefault(graph, {}), (str(device), *names)
        if key not in of_graph:
            is_cpu = torch.device(device).type == "cpu"
            of_graph[key] = cls._read(graph, names) if is_cpu else cls.of_graph(graph, *splits).to(device)
        return of_graph[key]

    @classmethod
    def _read(cls, graph: KnowledgeGraph, splits: tuple[str, ...]) -> KnownTriples:
        """Index the triples of some splits, reading them in blocks."""
        keep, of, sizes = None, graph.triple_splits, (graph.num_nodes, graph.num_relations)
        if "all" not in splits and (of is not None or splits != ("train",)):
            keep = np.any([np.asarray(graph.split_mask(split)) for split in splits], axis=0)

        def read() -> Iterator[Triples]:
            for first in range(0, len(graph), BLOCK_TRIPLES):
                rows = graph.triples_at(slice(first, first + BLOCK_TRIPLES))
                subject, relation, object_ = (rows if keep is None else rows[keep[first : first + BLOCK_TRIPLES]]).T
                yield subject, relation, object_
            release_pages(graph._rows)

        size = len(graph) if keep is None else int(np.count_nonzero(keep))
        return cls(KnownAnswers.sorted_by_end(size, read, *sizes), *sizes)

    def __len__(self) -> int:
        """Return the number of triples."""
        return self.objects.node.numel()

    def to(self, device: torch.device | str) -> KnownTriples:
        """Return the same set on a device."""
        return self if self.objects.device == torch.device(device) else replace(self, objects=self.objects.to(device))

    def triples(self) -> Iterator[Tensor]:
        """Return all triples sorted, in blocks int64 [n, 3] on the CPU."""
        return (torch.from_numpy(np.stack(part, axis=1, dtype=np.int64)) for part in self.objects.to("cpu").parts())

    def contains(self, triples: Tensor) -> Tensor:
        """Return which of the triples int64 [..., 3] are known, bool [...], without waiting for the device."""
        subject, relation, object_ = triples.reshape(-1, 3).unbind(1)
        key = subject * self.num_relations + relation
        is_numbered = triples.is_cuda or len(self) <= max(MAX_NUMBERED, subject.numel() * MAX_NUMBERED_PER_LOOKUP)
        if is_numbered and self.num_nodes**2 * self.num_relations < LAST:
            number = key * self.num_nodes + object_
            return (self._numbers[torch.searchsorted(self._numbers, number)] == number).view(triples.shape[:-1])
        begin, end = self.objects.ranges(key)
        position = lower_bound(self.objects.node, begin, end, object_)
        is_inside_range = position < end
        result = self.objects.node[torch.where(is_inside_range, position, 0)] if len(self) else object_
        return (is_inside_range & (result == object_)).view(triples.shape[:-1])

    @cached_property
    def _numbers(self) -> Tensor:
        """(subject · relations + relation) · nodes + object of each triple, sorted, then `LAST`; int64 [T + 1]."""
        counts = torch.diff(self.objects.pointer)
        # With the size of the output nothing waits for the device.
        keys = torch.repeat_interleave(self.objects.keys[:-1], counts, output_size=len(self))
        return append_last(keys.mul_(self.num_nodes).add_(self.objects.node))

    @cached_property
    def subjects(self) -> KnownAnswers:
        """The subjects of each (object, relation)."""
        of, sizes = self.objects.to("cpu"), (self.num_nodes, self.num_relations)
        by_object = KnownAnswers.sorted_by_end(len(self), lambda: (part[::-1] for part in of.parts()), *sizes)
        return by_object.to(self.objects.device)

    @cached_property
    def answers(self) -> KnownAnswers:
        """The answers in both directions; questions for subjects have nodes · relations added to their key."""
        first, second = self.objects, self.subjects
        keys = append_last(torch.cat([first.keys[:-1], second.keys[:-1] + self.num_nodes * self.num_relations]))
        pointer = torch.cat([first.pointer.long(), second.pointer[1:].long() + len(self)])
        node = torch.cat([first.node, second.node])
        return KnownAnswers(keys, pointer, node, 2 * self.num_nodes, self.num_relations)


_of_graphs: WeakKeyDictionary[KnowledgeGraph, dict[tuple[str, ...], KnownTriples]] = WeakKeyDictionary()


def append_last(keys: Tensor) -> Tensor:
    """Append `LAST` to sorted keys."""
    return torch.cat([keys, keys.new_full((1,), LAST)])
