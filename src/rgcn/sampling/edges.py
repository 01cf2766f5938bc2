"""Draw what a training step computes with: batches of triples, or the receptive field of a batch of nodes."""

import math
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.adjacency.structure import entries_of_rows
from rgcn.config.fields import HasOptions
from rgcn.errors import ConfigError, DataError
from rgcn.placement import LOCAL, Placement

T = TypeVar("T")
Seed = int | Sequence[int] | np.random.Generator
MAX_TRIPLES = 2**30  # half-edges are counted in 32 bits
# Factors of the hash in `ScatteredEdges`, odd so that multiplication is invertible, and the mask of non-negative
# results.
_HASH_FACTORS, _HASH_MASK = (0x1E3779B97F4A7C15, 0x3F58476D1CE4E5B9), 2**62 - 1


class EdgeSampler(HasOptions, ABC):
    """Draws batches of distinct training triples; the interface of the registry `sampler`.

    There are two ways to be reproducible. Either pass a seed to each call of `sample`, such as (seed, step): the batch
    of a step is then independent of the steps before. Or pass none, and store `state` with the checkpoint. A sampler
    reuses its working memory, so it is not thread-safe.

    Args:
        triples: int64 [T, 3].
        num_nodes: Number of nodes.
        size: Number of triples in a batch; all triples if there are fewer.
        seed: Seed of the draws.
    """

    counts_batches = False  # True if a draw depends on the number of earlier draws besides the seed

    def __init__(self, triples: NDArray[np.int64] | Tensor, num_nodes: int, size: int, seed: Seed = 0) -> None:
        """Check the sizes."""
        num_triples = len(_as_array(triples))
        if size < 1:
            raise ConfigError(f"a batch needs at least one edge, not {size}")
        if num_triples >= MAX_TRIPLES:
            raise DataError(f"{num_triples:,} triples are more than the {MAX_TRIPLES:,} that can be sampled from")
        self.num_triples = num_triples
        self.size = min(size, num_triples)
        self._state, self._batches = seed_words(seed), 0

    def sample(self, seed: Seed | None = None) -> NDArray[np.int64]:
        """Return the ids of distinct triples in the order drawn, int64 [size]."""
        if seed is not None:
            self._state, self._batches = seed_words(seed), 0
        out = np.empty(self.size, dtype=np.int64)
        self._draw(self._state, out)
        return out

    def state(self) -> dict[str, int]:
        """Return what the next draws depend on, as integers for JSON."""
        return {"splitmix64": int(self._state[0])} | ({"batches": self._batches} if self.counts_batches else {})

    def set_state(self, state: Mapping[str, int]) -> None:
        """Continue from the `state` of another sampler of the same triples and size.

        Raises:
            ConfigError: If it is the state of another kind of sampler.
        """
        if set(state) != set(self.state()):
            raise ConfigError(f"not the state of a {type(self).__name__}: {dict(state)!r}")
        self._state[0], self._batches = state["splitmix64"], state.get("batches", 0)

    @abstractmethod
    def _draw(self, state: NDArray[np.uint64], out: NDArray[np.int64]) -> None:
        """Fill `out` with ids of distinct triples, and advance the state."""


class UniformEdges(EdgeSampler):
    """Every set of `size` triples is equally likely.

    >>> import numpy as np
    >>> triples = np.array([[0, 0, 1], [1, 0, 2], [2, 0, 3]])
    >>> sorted(UniformEdges(triples, num_nodes=4, size=5).sample(seed=1).tolist())
    [0, 1, 2]
    """

    def __init__(self, triples: NDArray[np.int64] | Tensor, num_nodes: int, size: int, seed: Seed = 0) -> None:
        """Allocate the working memory."""
        super().__init__(triples, num_nodes, size, seed)
        self._deck, self._swaps = np.arange(self.num_triples, dtype=np.int32), np.empty(self.size, dtype=np.int32)

    def _draw(self, state: NDArray[np.uint64], out: NDArray[np.int64]) -> None:
        _loops().draw_uniform(state, self._deck, self._swaps, out)


class ShuffledEdges(EdgeSampler):
    """Every triple once per epoch, in a new order for each epoch; a batch may span two epochs.

    The order of epoch k follows from the seed and k alone, so the number of batches is the whole state. Triples at the
    end of an epoch are moved away from the beginning of the next one, so that no batch holds a triple twice. If a batch
    is larger than half of the triples this is impossible, and every batch begins an epoch of its own.

    >>> import numpy as np
    >>> sampler = ShuffledEdges(np.zeros((5, 3), dtype=np.int64), num_nodes=1, size=2, seed=1)
    >>> drawn = np.concatenate([sampler.sample() for _ in range(5)])
    >>> sorted(drawn[:5].tolist()), sorted(drawn[5:].tolist())
    ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4])
    """

    counts_batches = True

    def __init__(self, triples: NDArray[np.int64] | Tensor, num_nodes: int, size: int, seed: Seed = 0) -> None:
        """Allocate the working memory."""
        super().__init__(triples, num_nodes, size, seed)
        self._deck, self._swaps = (np.arange(self.num_triples, dtype=np.int32) for _ in range(2))
        self._orders: dict[tuple[int, int], NDArray[np.int64]] = {}  # of the last one or two epochs

    def _draw(self, state: NDArray[np.uint64], out: NDArray[np.int64]) -> None:
        number, word = self._batches, int(state[0])
        self._batches += 1
        if self.num_triples < max(1, 2 * self.size):
            out[:] = self._shuffled(word, number)[: self.size]
            return
        epoch, position = divmod(number * self.size, self.num_triples)
        count = min(self.size, self.num_triples - position)
        out[:count] = self._order(word, epoch)[position : position + count]
        if count < self.size:
            out[count:] = self._order(word, epoch + 1)[: self.size - count]

    def _order(self, word: int, epoch: int) -> NDArray[np.int64]:
        """Return the triples of an epoch in order, int64 [T].

        The last triples, which share a batch with the next epoch, are those of the shuffled deck, independent of
        earlier epochs. So the beginning of an epoch depends on one epoch before it only.
        """
        key = word, epoch
        if key not in self._orders:
            deck, num_begun = self._shuffled(word, epoch), epoch * self.num_triples % self.size
            if num_begun:
                is_taken = np.zeros(self.num_triples, dtype=np.bool_)
                is_taken[self._shuffled(word, epoch - 1)[-num_begun:]] = True
                num_movable = self.num_triples - (epoch + 1) * self.num_triples % self.size
                first = np.flatnonzero(~is_taken[deck[:num_movable]])[: self.size - num_begun]
                deck = np.concatenate([deck[first], np.delete(deck, first)])
            self._orders = {old: order for old, order in self._orders.items() if old == (word, epoch - 1)}
            self._orders[key] = deck
        return self._orders[key]

    def _shuffled(self, word: int, epoch: int) -> NDArray[np.int64]:
        deck = np.empty(self.num_triples, dtype=np.int64)
        _loops().draw_uniform(seed_words((word, epoch)), self._deck, self._swaps, deck)
        return deck


class GroupedEdges(ShuffledEdges):
    """Like `ShuffledEdges`, but triples with the same subject and relation follow each other, in a new order of groups.

    A batch then has few distinct questions (subject, relation, ?), and an objective that scores all nodes for each of
    them has less to compute. A large group may span several batches.

    >>> import numpy as np
    >>> triples = np.array([[0, 0, 1], [2, 0, 1], [0, 0, 3], [2, 0, 4]])
    >>> batch = GroupedEdges(triples, num_nodes=5, size=2).sample(seed=1)
    >>> len(set(triples[batch, 0].tolist()))
    1
    """

    def __init__(self, triples: NDArray[np.int64] | Tensor, num_nodes: int, size: int, seed: Seed = 0) -> None:
        """Sort the triples by group."""
        array = _as_array(triples)
        super().__init__(array, num_nodes, size, seed)
        self._sorted = np.lexsort((array[:, 1], array[:, 0]))
        changes = (np.diff(array[self._sorted, :2], axis=0) != 0).any(1)
        self._starts = np.concatenate([[0], np.flatnonzero(changes) + 1]).astype(np.int64)
        self._lengths = np.diff(np.concatenate([self._starts, [len(array)]]))
        self._groups, self._group_swaps = (np.arange(len(self._starts), dtype=np.int32) for _ in range(2))

    def _shuffled(self, word: int, epoch: int) -> NDArray[np.int64]:
        groups = np.empty(len(self._starts), dtype=np.int64)
        _loops().draw_uniform(seed_words((word, epoch)), self._groups, self._group_swaps, groups)
        starts, lengths = self._starts[groups], self._lengths[groups]
        # Positions in the sorted triples: each group counts up from its start.
        first = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
        deck: NDArray[np.int64] = self._sorted[first + np.arange(self.num_triples)]
        return deck


class ScatteredEdges(EdgeSampler):
    """Like `ShuffledEdges`, but the order of a batch is computed on any device, without a list of the triples.

    A batch never spans two epochs: the rest of an epoch that is smaller than a batch is left out.

    >>> import numpy as np
    >>> sampler = ScatteredEdges(np.zeros((5, 3), dtype=np.int64), num_nodes=1, size=2, seed=1)
    >>> len(set(np.concatenate([sampler.sample() for _ in range(2)]).tolist()))
    4
    """

    counts_batches = True

    def _draw(self, state: NDArray[np.uint64], out: NDArray[np.int64]) -> None:
        out[:] = self.on(torch.device("cpu")).numpy()

    def on(self, device: torch.device) -> Tensor:
        """Return the next `sample` as a tensor on a device, without waiting for the device.

        A Feistel network permutes the cells of a table: a cell moves by a hash of its column within its row, then by a
        hash of its row within its column, and so on. The table has fewer cells than there are triples, by less than a
        row: the remaining triples stay last.
        """
        epoch, position = divmod(self._batches, max(1, self.num_triples // max(1, self.size)))
        self._batches += 1
        shift, *keys = np.random.SeedSequence([int(self._state[0]), epoch]).generate_state(7, np.uint64).tolist()
        number = torch.arange(position * self.size, (position + 1) * self.size, device=device)
        sizes = (rows := max(1, math.isqrt(self.num_triples))), self.num_triples // rows
        parts = [number // sizes[1], number % sizes[1]]
        for turn, key in enumerate(keys):
            z = (parts[1 - turn % 2] + key // 4) * _HASH_FACTORS[0]
            z = (z ^ (z >> 29)) * _HASH_FACTORS[1]
            parts[turn % 2] = (parts[turn % 2] + ((z ^ (z >> 32)) & _HASH_MASK) % sizes[turn % 2]) % sizes[turn % 2]
        permuted = torch.where(number < rows * sizes[1], parts[0] * sizes[1] + parts[1], number)
        result: Tensor = (permuted + shift % max(1, self.num_triples)) % max(1, self.num_triples)
        return result


class NeighborhoodEdges(EdgeSampler):
    """A batch that grows along edges, with the same distribution as in the original link predictor.

    For each edge the original draws a visited node, with probability proportional to its unpicked edges (if there is no
    such node: any node that has unpicked edges, uniformly), then one of that node's unpicked edges uniformly. Both ends
    become visited. Weight and uniform choice cancel: each draw is a uniform half-edge among the unpicked ones that
    touch a visited node. An array of those half-edges takes amortized constant time per draw, where the original weighs
    all nodes for each edge. A triple (v, r, v) has two half-edges at v, in both.

    >>> import numpy as np
    >>> chain = np.array([[0, 0, 1], [1, 0, 2], [2, 0, 3], [3, 0, 4], [4, 0, 5]])
    >>> batch = np.sort(NeighborhoodEdges(chain, num_nodes=6, size=3).sample(seed=7))
    >>> np.diff(batch).tolist()  # three consecutive links: the batch is connected
    [1, 1]
    """

    def __init__(self, triples: NDArray[np.int64] | Tensor, num_nodes: int, size: int, seed: Seed = 0) -> None:
        """Sort the half-edges by node."""
        array = _as_array(triples).astype(np.int64, copy=False)
        super().__init__(array, num_nodes, size, seed)
        ends = array[:, [0, 2]].ravel()
        if len(ends) and not (ends.min() >= 0 and ends.max() < num_nodes):
            raise DataError(f"a triple refers to a node outside 0..{num_nodes - 1}")
        degree = np.bincount(ends, minlength=num_nodes)
        self._pointer = np.concatenate([[0], np.cumsum(degree)]).astype(np.int32)
        half_edge = np.argsort(ends, kind="stable")  # 2e: triple e seen from its subject; 2e + 1: from its object
        self._incident = ((half_edge >> 1) << 32) | ends[half_edge ^ 1]
        self._starts = np.flatnonzero(degree).astype(np.int32)
        self._visited, self._picked = np.empty(num_nodes, dtype=np.bool_), np.empty(len(array), dtype=np.bool_)
        self._frontier = np.empty(len(ends), dtype=np.int64)

    def _draw(self, state: NDArray[np.uint64], out: NDArray[np.int64]) -> None:
        # Drawing shuffles the starts: a copy is used, or a batch would depend on earlier batches.
        scratch = (self._starts.copy(), self._visited, self._picked, self._frontier)
        _loops().draw_neighborhood(state, self._pointer, self._incident, *scratch, out)


def _loops() -> ModuleType:
    """Import the compiled loops when they are first called."""
    from rgcn.sampling import walk_loops

    return walk_loops


def _as_array(triples: NDArray[Any] | Tensor) -> NDArray[Any]:
    array: NDArray[Any] = triples.cpu().numpy() if isinstance(triples, Tensor) else np.asarray(triples)
    if array.ndim != 2 or array.shape[1] != 3:
        raise DataError(f"triples must have shape [T, 3], not {list(array.shape)}")
    return array


def seed_words(seed: Seed, count: int = 1) -> NDArray[np.uint64]:
    """Return well mixed 64-bit words, uint64 [count]. NumPy guarantees that SeedSequence gives them in all versions."""
    entropy = seed.bit_generator.random_raw(4).tolist() if isinstance(seed, np.random.Generator) else seed
    return np.random.SeedSequence(entropy).generate_state(count, np.uint64).astype(np.uint64, copy=False)


def prefetched(source: Iterable[T] | Callable[[], T], depth: int = 2) -> Iterator[T]:
    """Yield the items of an iterable, in order, prepared ahead in a background thread.

    The random draws of the source run ahead of what was consumed: each item should carry the state to resume from.

    Args:
        source: An iterable, or a function without arguments that is called without end. If it raises an exception, it
            is raised in place of the item.
        depth: How many items are prepared ahead. The thread ends with the source, or when the iterator is closed or
            garbage-collected.

    >>> list(prefetched(n * n for n in range(4)))
    [0, 1, 4, 9]
    """
    make = source if callable(source) else iter(source).__next__
    pool = ThreadPoolExecutor(1, thread_name_prefix="rgcn-prefetch")
    try:
        ready = deque(pool.submit(make) for _ in range(depth + 1))  # one of them is in progress
        while True:
            try:
                item = ready.popleft().result()
            except StopIteration:
                return
            ready.append(pool.submit(make))
            yield item
    finally:
        pool.shutdown(wait=_can_wait_for_threads(), cancel_futures=True)


def _can_wait_for_threads() -> bool:
    """Return False while a thread is starting or ending.

    That thread may be the current one, if the garbage collector ran in it and found an iterator. It would wait for
    itself.
    """
    lock = getattr(threading, "_shutdown_locks_lock", None)  # in Python before 3.13
    is_free = lock is None or lock.acquire(blocking=False)
    if is_free and lock is not None:
        lock.release()
    return is_free


class FieldSampler:
    """Draws the receptive field of L layers for a batch of nodes.

    A field follows from the nodes and the seed alone. It costs as much as its own edges, whatever the size of the
    graph; with dropout as much as all edges into its targets.

    Args:
        adjacency: The operator of the whole graph.
        num_layers: L.
        fan_out: Draw at most this many edges of each target and relation in each layer; None for all edges. All sets of
            edges are equally likely. Weights are multiplied by degree / drawn, so that the expected message is that of
            all edges.
        dropout: Shares of triples and of self-loops that are dropped, the same ones in every layer, as by
            `RelationalAdjacency.masked`.
        placement: If nodes are divided among processes, each draws from the edges into its local nodes.

    >>> import rgcn
    >>> kg = rgcn.KnowledgeGraph.from_triples([("a", "r", "b"), ("c", "r", "b"), ("d", "r", "b")])
    >>> adjacency = rgcn.RelationalAdjacency.from_graph(kg, self_loops=False)
    >>> field = FieldSampler(adjacency, num_layers=1, fan_out=2).field(torch.tensor([1]), seed=0)
    >>> field.layers[0].weight  # each weight was a third, and is a half now
    tensor([0.5000, 0.5000])
    """

    def __init__(
        self,
        adjacency: RelationalAdjacency,
        num_layers: int,
        fan_out: int | None = None,
        dropout: tuple[float, float] = (0.0, 0.0),
        placement: Placement = LOCAL,
    ) -> None:
        """Keep the operator on the CPU, where fields are drawn."""
        self.adjacency = adjacency.to("cpu") if adjacency.device.type != "cpu" else adjacency
        self.num_layers, self.fan_out, self.dropout, self.placement = num_layers, fan_out, dropout, placement

    def field(self, nodes: Tensor, seed: Seed) -> ReceptiveField:
        """Return the receptive field of nodes int64 [n], distinct, on the CPU."""
        dropout_key, *layer_keys = seed_words(seed, 1 + self.num_layers)
        keys = iter(layer_keys)  # one for each layer
        return ReceptiveField.walk(
            lambda targets: self._rows(targets, dropout_key, next(keys)), nodes, self.num_layers, self.placement
        )

    def _rows(self, nodes: Tensor, dropout_key: np.uint64, key: np.uint64) -> tuple[RelationalAdjacency, Tensor]:
        """Return the operator of a layer into these nodes, and the nodes that it reads."""
        partition = self.placement.partition
        rows = nodes if partition is None else partition.row(nodes)
        if not any(self.dropout):
            return self._draw(self.adjacency, rows, nodes, key)
        whole, sources = self.adjacency.restrict(rows)
        mask, structure = torch.ones(whole.num_edges), whole.structure
        _loops().draw_mask(dropout_key, structure.origin.numpy(), structure.num_triples, *self.dropout, mask.numpy())
        remaining = whole.with_raw_weights(whole.raw * mask).select_edges(torch.nonzero(mask).squeeze(1))
        layer, read = self._draw(remaining, torch.arange(len(nodes)), nodes, key)
        return layer, sources[read]

    def _draw(
        self, adjacency: RelationalAdjacency, targets: Tensor, names: Tensor, key: np.uint64
    ) -> tuple[RelationalAdjacency, Tensor]:
        """Return the rows of these targets with the edges drawn for them, and the sources that they read."""
        pointer, most = adjacency.structure.pointer, self.fan_out
        if most is None:
            return adjacency.select_rows(*entries_of_rows(pointer, targets), is_batch=True)
        # Memory for the largest possible result; the system provides it only where it is written to.
        degree = pointer[targets + 1] - pointer[targets]
        size = int(degree.long().clamp(max=min(most * adjacency.num_relations, 2**40)).sum())
        edges, factor = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.float32)
        ends = np.zeros(len(targets) + 1, dtype=np.int64)
        indices = pointer.numpy(), adjacency.structure.relation.numpy(), targets.numpy(), names.numpy()
        count = _loops().draw_fan_out(key, *indices, most, edges, factor, ends[1:])
        layer, sources = adjacency.select_rows(torch.from_numpy(edges[:count]), torch.from_numpy(ends), is_batch=True)
        weight = layer.weight * torch.from_numpy(factor[:count]).to(layer.weight.dtype)
        return replace(layer, weight=weight), sources
