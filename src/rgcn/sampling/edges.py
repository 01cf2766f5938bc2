"""What a step looks at, drawn ahead: training triples, or the receptive field of a batch of nodes."""

from __future__ import annotations

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
from rgcn.adjacency.structure import rows_of
from rgcn.config.fields import HasOptions
from rgcn.errors import ConfigError, DataError
from rgcn.placement import LOCAL, Placement

T = TypeVar("T")
Seed = int | Sequence[int] | np.random.Generator
# Half-edges are counted in 32 bits.
MAX_TRIPLES = 2**30
# To mix numbers with: odd, so that no product loses anything; and what makes them positive.
_ODD, _POSITIVE = (0x1E3779B97F4A7C15, 0x3F58476D1CE4E5B9), 2**62 - 1


class EdgeSampler(HasOptions, ABC):
    """Draws distinct training triples, a batch at a time: a member of the axis `sampler`.

    Members are built with (triples int64 [T, 3], num_nodes, size, seed), and with their options by keyword.

    Two ways to be reproducible: give `sample` a seed each time, for instance (seed, step), and a step's batch does not
    depend on the steps before; or give none and keep `state`, integers, beside the checkpoint. A sampler reuses its
    working memory: one thread at a time.

    counts_batches  whether a draw depends on how many there were, beside the seed
    """

    counts_batches = False

    def __init__(self, triples: NDArray[np.int64] | Tensor, num_nodes: int, size: int, seed: Seed = 0) -> None:
        num_triples = len(_in_threes(triples))
        if size < 1:
            raise ConfigError(f"a batch needs at least one edge, not {size}")
        if num_triples >= MAX_TRIPLES:
            raise DataError(f"{num_triples:,} triples are more than the {MAX_TRIPLES:,} that can be sampled from")
        self.num_triples = num_triples
        self.size = min(size, num_triples)
        self._state, self._batches = seed_word(seed), 0

    def sample(self, seed: Seed | None = None) -> NDArray[np.int64]:
        """int64 [size]: numbers of distinct triples in the order drawn; all of them where the graph has no more."""
        if seed is not None:
            self._state, self._batches = seed_word(seed), 0
        out = np.empty(self.size, dtype=np.int64)
        self._draw(self._state, out)
        return out

    def state(self) -> dict[str, int]:
        """What the next draws depend on: plain integers, ready for JSON."""
        return {"splitmix64": int(self._state[0])} | ({"batches": self._batches} if self.counts_batches else {})

    def set_state(self, state: Mapping[str, int]) -> None:
        """Continue exactly where another sampler of the same triples and size stood."""
        if set(state) != set(self.state()):
            raise ConfigError(f"not the state of a {type(self).__name__}: {dict(state)!r}")
        self._state[0], self._batches = state["splitmix64"], state.get("batches", 0)

    @abstractmethod
    def _draw(self, state: NDArray[np.uint64], out: NDArray[np.int64]) -> None:
        """Fill `out` with distinct triple numbers and advance the state."""


class UniformEdges(EdgeSampler):
    """Every set of `size` triples is equally likely.

    >>> import numpy as np
    >>> triples = np.array([[0, 0, 1], [1, 0, 2], [2, 0, 3]])
    >>> sorted(UniformEdges(triples, num_nodes=4, size=5).sample(seed=1).tolist())
    [0, 1, 2]
    """

    def __init__(self, triples: NDArray[np.int64] | Tensor, num_nodes: int, size: int, seed: Seed = 0) -> None:
        super().__init__(triples, num_nodes, size, seed)
        self._deck = np.arange(self.num_triples, dtype=np.int32)
        self._swaps = np.empty(self.size, dtype=np.int32)

    def _draw(self, state: NDArray[np.uint64], out: NDArray[np.int64]) -> None:

        _loops().uniform(state, self._deck, self._swaps, out)


class ShuffledEdges(EdgeSampler):
    """Every triple once a round, in an order drawn anew for each round; a batch may end one round and begin the next.

    The order of round k follows from the seed and k alone, so that the number of batches drawn tells where a sampler
    stands. Triples that end a round do not begin the next one, or a batch would hold one twice. Where a batch is more
    than half of the triples this cannot be: then every batch begins a round of its own.

    >>> import numpy as np
    >>> sampler = ShuffledEdges(np.zeros((5, 3), dtype=np.int64), num_nodes=1, size=2, seed=1)
    >>> drawn = np.concatenate([sampler.sample() for _ in range(5)])
    >>> sorted(drawn[:5].tolist()), sorted(drawn[5:].tolist())
    ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4])
    """

    counts_batches = True

    def __init__(self, triples: NDArray[np.int64] | Tensor, num_nodes: int, size: int, seed: Seed = 0) -> None:
        super().__init__(triples, num_nodes, size, seed)
        self._deck = np.arange(self.num_triples, dtype=np.int32)
        self._swaps = np.empty(self.num_triples, dtype=np.int32)
        self._orders: dict[tuple[int, int], NDArray[np.int64]] = {}  # of the last round or two

    def _draw(self, state: NDArray[np.uint64], out: NDArray[np.int64]) -> None:
        number, word = self._batches, int(state[0])
        self._batches += 1
        if self.num_triples < max(1, 2 * self.size):
            out[:] = self._shuffled(word, number)[: self.size]
            return
        round_, place = divmod(number * self.size, self.num_triples)
        here = min(self.size, self.num_triples - place)
        out[:here] = self._order(word, round_)[place : place + here]
        if here < self.size:
            out[here:] = self._order(word, round_ + 1)[: self.size - here]

    def _order(self, word: int, round_: int) -> NDArray[np.int64]:
        """int64 [T]: a round's triples. Its last ones, which share a batch with the next round, are those of the
        shuffled deck, whatever came before: to begin a round, no more than the round before it must be known."""
        key = word, round_
        if key not in self._orders:
            deck, begun = self._shuffled(word, round_), round_ * self.num_triples % self.size
            if begun:
                ahead = np.zeros(self.num_triples, dtype=np.bool_)
                ahead[self._shuffled(word, round_ - 1)[-begun:]] = True
                fixed = self.num_triples - (round_ + 1) * self.num_triples % self.size
                first = np.flatnonzero(~ahead[deck[:fixed]])[: self.size - begun]
                deck = np.concatenate([deck[first], np.delete(deck, first)])
            self._orders = {old: order for old, order in self._orders.items() if old == (word, round_ - 1)}
            self._orders[key] = deck
        return self._orders[key]

    def _shuffled(self, word: int, round_: int) -> NDArray[np.int64]:

        deck = np.empty(self.num_triples, dtype=np.int64)
        _loops().uniform(seed_word((word, round_)), self._deck, self._swaps, deck)
        return deck


class ScatteredEdges(ShuffledEdges):
    """As `ShuffledEdges`, and no list of the triples is kept: their order is computed, on whatever device, for a batch
    at a time. A batch never spans two rounds: what is left of a round, less than a batch, is left out of it.

    >>> import numpy as np
    >>> sampler = ScatteredEdges(np.zeros((5, 3), dtype=np.int64), num_nodes=1, size=2, seed=1)
    >>> len(set(np.concatenate([sampler.sample() for _ in range(2)]).tolist()))
    4
    """

    def __init__(self, triples: NDArray[np.int64] | Tensor, num_nodes: int, size: int, seed: Seed = 0) -> None:
        EdgeSampler.__init__(self, triples, num_nodes, size, seed)

    def _draw(self, state: NDArray[np.uint64], out: NDArray[np.int64]) -> None:
        out[:] = self.on(torch.device("cpu")).numpy()

    def on(self, device: torch.device) -> Tensor:
        """`sample`, made on the device, which is not waited for.

        A Feistel network over rows and columns of a table: a row is moved by what its column says, then a column by
        what its row says, and so on. It has less than a row too few places for all triples: those left stay last.
        """
        round_, place = divmod(self._batches, max(1, self.num_triples // max(1, self.size)))
        self._batches += 1
        shift, *keys = np.random.SeedSequence([int(self._state[0]), round_]).generate_state(7, np.uint64).tolist()
        number = torch.arange(place * self.size, (place + 1) * self.size, device=device)
        sizes = (rows := max(1, math.isqrt(self.num_triples))), self.num_triples // rows
        parts = [number // sizes[1], number % sizes[1]]
        for turn, key in enumerate(keys):
            z = (parts[1 - turn % 2] + key // 4) * _ODD[0]
            z = (z ^ (z >> 29)) * _ODD[1]
            parts[turn % 2] = (parts[turn % 2] + ((z ^ (z >> 32)) & _POSITIVE) % sizes[turn % 2]) % sizes[turn % 2]
        moved = torch.where(number < rows * sizes[1], parts[0] * sizes[1] + parts[1], number)
        found: Tensor = (moved + shift % max(1, self.num_triples)) % max(1, self.num_triples)
        return found


class NeighborhoodEdges(EdgeSampler):
    """A batch that grows along edges, distributed exactly as in the original link predictor.

    The original draws, for each edge, a seen node with probability proportional to its unpicked edges (none seen or
    none left: any node that has unpicked edges, all alike), then one of that node's unpicked edges uniformly, and both
    ends become seen. Weight times uniform choice cancel: each draw is a uniform half-edge among the unpicked ones that
    touch a seen node. So an array of those half-edges does, at amortized constant time a draw, where the original
    weighs all nodes for each edge. A triple (v, r, v) has two half-edges at v, there as here.

    >>> import numpy as np
    >>> chain = np.array([[0, 0, 1], [1, 0, 2], [2, 0, 3], [3, 0, 4], [4, 0, 5]])
    >>> batch = np.sort(NeighborhoodEdges(chain, num_nodes=6, size=3).sample(seed=7))
    >>> np.diff(batch).tolist()  # three links in a row: the batch is connected
    [1, 1]
    """

    def __init__(self, triples: NDArray[np.int64] | Tensor, num_nodes: int, size: int, seed: Seed = 0) -> None:
        array = _in_threes(triples).astype(np.int64, copy=False)
        super().__init__(array, num_nodes, size, seed)
        ends = array[:, [0, 2]].ravel()
        if len(ends) and not (ends.min() >= 0 and ends.max() < num_nodes):
            raise DataError(f"a triple refers to a node outside 0..{num_nodes - 1}")
        degree = np.bincount(ends, minlength=num_nodes)
        self._pointer = np.concatenate([[0], np.cumsum(degree)]).astype(np.int32)
        half_edge = np.argsort(ends, kind="stable")  # 2e: triple e seen from its subject; 2e + 1: from its object
        self._incident = ((half_edge >> 1) << 32) | ends[half_edge ^ 1]
        self._starts = np.flatnonzero(degree).astype(np.int32)
        self._seen = np.empty(num_nodes, dtype=np.bool_)
        self._picked = np.empty(len(array), dtype=np.bool_)
        self._frontier = np.empty(len(ends), dtype=np.int64)

    def _draw(self, state: NDArray[np.uint64], out: NDArray[np.int64]) -> None:

        # The starts are shuffled by drawing from them; a copy, or a batch would depend on the batches before it.
        scratch = (self._starts.copy(), self._seen, self._picked, self._frontier)
        _loops().neighborhood(state, self._pointer, self._incident, *scratch, out)


def _loops() -> ModuleType:
    """The compiled loops, loaded where one is called."""
    from rgcn.sampling import walk_loops

    return walk_loops


def _in_threes(triples: NDArray[Any] | Tensor) -> NDArray[Any]:
    array: NDArray[Any] = triples.cpu().numpy() if isinstance(triples, Tensor) else np.asarray(triples)
    if array.ndim != 2 or array.shape[1] != 3:
        raise DataError(f"triples must have shape [T, 3], not {list(array.shape)}")
    return array


def seed_word(seed: Seed) -> NDArray[np.uint64]:
    """uint64 [1]: a well mixed word."""
    return seed_words(seed, 1)


def seed_words(seed: Seed, count: int) -> NDArray[np.uint64]:
    """uint64 [count]: well mixed words. numpy keeps SeedSequence as it is for good, a Generator's methods not."""
    entropy = seed.bit_generator.random_raw(4).tolist() if isinstance(seed, np.random.Generator) else seed
    return np.random.SeedSequence(entropy).generate_state(count, np.uint64).astype(np.uint64, copy=False)


def prefetched(source: Iterable[T] | Callable[[], T], depth: int = 2) -> Iterator[T]:
    """The items of an iterable, in order, prepared up to `depth` ahead in a background thread.

    A function without arguments is called again and again, without end. An exception in the source is raised where its
    item would have come. The thread ends with the source, or as soon as the iterator is closed or forgotten.

    What the source has drawn at random runs ahead of what was consumed: let each item carry the state to resume from.

    >>> list(prefetched(n * n for n in range(4)))
    [0, 1, 4, 9]
    """
    make = source if callable(source) else iter(source).__next__
    pool = ThreadPoolExecutor(1, thread_name_prefix="rgcn-prefetch")
    try:
        ready = deque(pool.submit(make) for _ in range(depth + 1))  # one of them in the making
        while True:
            try:
                item = ready.popleft().result()
            except StopIteration:
                return
            ready.append(pool.submit(make))
            yield item
    finally:
        pool.shutdown(wait=_may_wait_for_threads(), cancel_futures=True)


def _may_wait_for_threads() -> bool:
    """Not where another thread is just starting or ending: it may be this very one, in which the garbage collector came
    upon an iterator that somebody forgot, and it would wait for itself."""
    lock = getattr(threading, "_shutdown_locks_lock", None)  # of Pythons before 3.13
    free = lock is None or lock.acquire(blocking=False)
    if free and lock is not None:
        lock.release()
    return free


class FieldSampler:
    """Draws what L layers compute for a batch of nodes.

    fan_out  at most so many edges of each target and relation in each layer, drawn anew for each; None: all of them.
             All sets are equally likely, and weights are multiplied by degree / kept: the expected message is that of
             all edges
    dropout  share of triples, and of self-loops, left out beforehand, the same in every layer, as `masked` does it

    A field follows from the nodes and the seed alone, and costs as much as its own edges, whatever the size of the
    graph; with dropout, as all edges into its targets.

    >>> import rgcn
    >>> kg = rgcn.KnowledgeGraph.from_triples([("a", "r", "b"), ("c", "r", "b"), ("d", "r", "b")])
    >>> adjacency = rgcn.RelationalAdjacency.from_graph(kg, self_loops=False)
    >>> field = FieldSampler(adjacency, num_layers=1, fan_out=2).field(torch.tensor([1]), seed=0)
    >>> field.layers[0].weight  # each stood for a third, and now for a half
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
        """placement: where nodes are divided among processes, each draws from the edges into its local nodes."""
        self.adjacency = adjacency.to("cpu") if adjacency.device.type != "cpu" else adjacency
        self.num_layers, self.fan_out, self.dropout, self.placement = num_layers, fan_out, dropout, placement

    def field(self, nodes: Tensor, seed: Seed) -> ReceptiveField:
        """nodes int64 [n], distinct, on the CPU."""
        whole, *keys = seed_words(seed, 1 + self.num_layers)  # of what is dropped in all layers; of each layer's draws
        drawn = iter(keys)

        def rows(targets: Tensor) -> tuple[RelationalAdjacency, Tensor]:
            return self._rows(targets, whole, next(drawn))

        return ReceptiveField.walk(rows, nodes, self.num_layers, self.placement)

    def _rows(self, nodes: Tensor, whole: np.uint64, key: np.uint64) -> tuple[RelationalAdjacency, Tensor]:
        """The operator of a layer into these nodes, and the nodes it reads."""
        partition = self.placement.partition
        places = nodes if partition is None else partition.row(nodes)
        if not any(self.dropout):
            return self._drawn(self.adjacency, places, nodes, key)

        every, sources = self.adjacency.restricted(places)
        there = torch.ones(every.num_edges)
        origins = every.structure.origin.numpy(), every.structure.num_triples
        _loops().kept(whole, *origins, *self.dropout, there.numpy())
        rest = every.reweighted(every.raw * there).selected(torch.nonzero(there).squeeze(1))
        layer, read = self._drawn(rest, torch.arange(len(nodes)), nodes, key)
        return layer, sources[read]

    def _drawn(
        self, adjacency: RelationalAdjacency, targets: Tensor, names: Tensor, key: np.uint64
    ) -> tuple[RelationalAdjacency, Tensor]:
        """The rows of these targets, with the edges that are drawn for them, and the sources they read."""
        pointer, most = adjacency.structure.pointer, self.fan_out
        if most is None:
            return adjacency.rows_chosen(*rows_of(pointer, targets), batch=True)

        # Room for what there may be at most; the system lends it when it is written to.
        degree = pointer[targets + 1] - pointer[targets]
        room = int(degree.long().clamp(max=min(most * adjacency.num_relations, 2**40)).sum())
        edges, factor = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.float32)
        ends = np.zeros(len(targets) + 1, dtype=np.int64)
        places = pointer.numpy(), adjacency.structure.relation.numpy(), targets.numpy(), names.numpy()
        count = _loops().fan_out(key, *places, most, edges, factor, ends[1:])
        chosen, stands_for = torch.from_numpy(edges[:count]), torch.from_numpy(factor[:count])
        layer, sources = adjacency.rows_chosen(chosen, torch.from_numpy(ends), batch=True)
        return replace(layer, weight=layer.weight * stands_for.to(layer.weight.dtype)), sources
