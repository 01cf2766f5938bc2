"""Compare the edge samplers with the procedure of the original code, exactly and by simulation."""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from rgcn.errors import ConfigError, DataError
from rgcn.sampling import walk_loops as _walk
from rgcn.sampling.edges import (
    EdgeSampler,
    GroupedEdges,
    NeighborhoodEdges,
    ScatteredEdges,
    ShuffledEdges,
    UniformEdges,
)

Ends = list[tuple[int, int]]
# Probability of each edge as the next one, given the edges picked so far and the nodes seen.
NextEdge = Callable[[Ends, int, set[int], set[int]], dict[int, float]]


def triples_of(ends: Ends) -> NDArray[np.int64]:
    return np.array([(s, 0, o) for s, o in ends], dtype=np.int64).reshape(-1, 3)


def entries_of(ends: Ends, node: int, picked: set[int]) -> list[int]:
    """Return the unpicked entries of a node's adjacency list: a triple (v, r, v) occurs twice, as in the original."""
    return [edge for edge, pair in enumerate(ends) for end in pair if end == node and edge not in picked]


def node_weights(ends: Ends, num_nodes: int, picked: set[int], seen: set[int]) -> list[float]:
    """Return the |V| weights of the original: unpicked edges of the seen nodes, or 1 for each node that has any."""
    counts = [len(entries_of(ends, node, picked)) for node in range(num_nodes)]
    weights = [float(count * (node in seen)) for node, count in enumerate(counts)]
    return weights if sum(weights) > 0 else [float(count > 0) for count in counts]


def spread(ends: Ends, weights: list[float], picked: set[int]) -> dict[int, float]:
    """Draw a node by its weight, then one of its unpicked entries uniformly."""
    chances: dict[int, float] = {}
    for node, weight in enumerate(weights):
        entries = entries_of(ends, node, picked)
        for edge in entries:
            chances[edge] = chances.get(edge, 0.0) + weight / sum(weights) / len(entries)
    return {edge: chance for edge, chance in chances.items() if chance > 0}


def original(ends: Ends, num_nodes: int, picked: set[int], seen: set[int]) -> dict[int, float]:
    return spread(ends, node_weights(ends, num_nodes, picked, seen), picked)


def sequences(next_edge: NextEdge, ends: Ends, num_nodes: int, size: int) -> dict[tuple[int, ...], float]:
    """Return the exact probability of every sequence of edges that a procedure can draw."""
    found: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(size):
        longer = {}
        for sequence, chance in found.items():
            seen = {end for edge in sequence for end in ends[edge]}
            for edge, p in next_edge(ends, num_nodes, set(sequence), seen).items():
                extended = (*sequence, edge)
                longer[extended] = chance * p
        found = longer
    return found


def deviation(observed: Counter[tuple[int, ...]], expected: dict[tuple[int, ...], float]) -> float:
    """Return the chi-square statistic of counts as a standard normal number (Wilson and Hilferty)."""
    draws = sum(observed.values())
    if set(observed) - set(expected):
        return float("inf")  # an impossible sequence was drawn
    frequent = {key: p * draws for key, p in expected.items() if p * draws >= 5}
    cells = [(observed[key], mean) for key, mean in frequent.items()]
    rare = draws - sum(mean for _, mean in cells)
    if rare > 5:
        cells.append((draws - sum(count for count, _ in cells), rare))
    chi = sum((count - mean) ** 2 / mean for count, mean in cells)
    freedom = len(cells) - 1
    return float(((chi / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / (2 / (9 * freedom)) ** 0.5)


def drawn(sampler: EdgeSampler, times: int) -> Counter[tuple[int, ...]]:
    return Counter(tuple(sampler.sample().tolist()) for _ in range(times))


# name: (ends, nodes, size)
GRAPHS: dict[str, tuple[Ends, int, int]] = {
    "star": ([(0, 1), (0, 2), (3, 0), (0, 4)], 5, 3),
    "path": ([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)], 6, 3),
    "triangle with tail": ([(0, 1), (1, 2), (2, 0), (2, 3)], 4, 4),
    "duplicates and self-loops": ([(0, 1), (1, 2), (2, 0), (0, 1), (2, 2), (2, 3)], 5, 4),
    "disconnected": ([(0, 1), (2, 3), (3, 4), (5, 5), (3, 6)], 8, 4),
    "self-loop alone": ([(1, 1), (1, 1)], 2, 2),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_neighborhoods_have_exactly_the_originals_distribution(name: str) -> None:
    ends, num_nodes, size = GRAPHS[name]
    expected = sequences(original, ends, num_nodes, size)
    assert sum(expected.values()) == pytest.approx(1.0)
    sampler = NeighborhoodEdges(triples_of(ends), num_nodes, size, seed=1)
    assert deviation(drawn(sampler, 40_000), expected) < 4.0  # by chance once in 30,000 seeds


def nodes_alike(ends: Ends, num_nodes: int, picked: set[int], seen: set[int]) -> dict[int, float]:
    return spread(ends, [float(w > 0) for w in node_weights(ends, num_nodes, picked, seen)], picked)


def edges_alike(ends: Ends, num_nodes: int, picked: set[int], seen: set[int]) -> dict[int, float]:
    reached = original(ends, num_nodes, picked, seen)
    return dict.fromkeys(reached, 1 / len(reached)) if seen else reached


def self_loops_once(ends: Ends, num_nodes: int, picked: set[int], seen: set[int]) -> dict[int, float]:
    chances = original(ends, num_nodes, picked, seen)
    chances = {edge: p / (1 + (ends[edge][0] == ends[edge][1])) for edge, p in chances.items()}
    return {edge: p / sum(chances.values()) for edge, p in chances.items()}


def starts_by_degree(ends: Ends, num_nodes: int, picked: set[int], seen: set[int]) -> dict[int, float]:
    if sum(len(entries_of(ends, node, picked)) for node in seen):
        return original(ends, num_nodes, picked, seen)
    return spread(ends, [float(len(entries_of(ends, node, picked))) for node in range(num_nodes)], picked)


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        (nodes_alike, "triangle with tail"),
        (edges_alike, "triangle with tail"),
        (self_loops_once, "duplicates and self-loops"),
        (starts_by_degree, "disconnected"),
    ],
)
def test_the_statistic_detects_plausible_mistakes(wrong: NextEdge, name: str) -> None:
    ends, num_nodes, size = GRAPHS[name]
    observed = drawn(NeighborhoodEdges(triples_of(ends), num_nodes, size, seed=1), 40_000)
    assert deviation(observed, sequences(wrong, ends, num_nodes, size)) > 15.0


def simulated(ends: Ends, num_nodes: int, size: int, rng: np.random.Generator) -> list[int]:
    """Draw one batch by the steps of the original, with a |V|-way draw for each edge."""
    adjacency: list[list[tuple[int, int]]] = [[] for _ in range(num_nodes)]
    for edge, (s, o) in enumerate(ends):
        adjacency[s].append((edge, o))
        adjacency[o].append((edge, s))
    counts = np.array([len(entries) for entries in adjacency])
    picked, seen, batch = set[int](), np.zeros(num_nodes, dtype=bool), list[int]()
    for _ in range(size):
        weights = counts * seen
        if weights.sum() == 0:
            weights = (counts > 0).astype(np.int64)
        node = int(rng.choice(num_nodes, p=weights / weights.sum()))
        seen[node] = True
        edge, other = adjacency[node][rng.integers(len(adjacency[node]))]
        while edge in picked:
            edge, other = adjacency[node][rng.integers(len(adjacency[node]))]
        picked.add(edge)
        batch.append(edge)
        counts[node] -= 1
        counts[other] -= 1
        seen[other] = True
    return batch


def test_neighborhoods_of_a_larger_graph_agree_with_a_simulation_of_the_original() -> None:
    rng = np.random.default_rng(0)
    num_nodes, size, runs = 40, 15, 2500
    # A hub, self-loops, duplicates, and two parts that are not connected.
    pairs = np.concatenate([rng.integers(0, 25, (40, 2)), rng.integers(25, 35, (12, 2)), [[0, k] for k in range(1, 9)]])
    ends: Ends = [(int(s), int(o)) for s, o in pairs]
    sampler = NeighborhoodEdges(triples_of(ends), num_nodes, size, seed=0)
    ours, theirs = np.zeros(len(ends)), np.zeros(len(ends))
    for _ in range(runs):
        ours[sampler.sample()] += 1
        theirs[simulated(ends, num_nodes, size, rng)] += 1
    share = (ours + theirs) / (2 * runs)
    z = (ours - theirs) / runs / np.sqrt(2 * share * (1 - share) / runs)
    assert np.abs(z).max() < 4.0
    assert share.max() / share.min() > 2  # the edges have different probabilities, so the test can fail


def test_uniform_edges_are_uniform_in_every_order() -> None:
    sampler = UniformEdges(triples_of([(0, 1)] * 5), num_nodes=2, size=3, seed=2)
    orders = list(itertools.permutations(range(5), 3))
    assert deviation(drawn(sampler, 40_000), dict.fromkeys(orders, 1 / len(orders))) < 4.0


# -- invariants -------------------------------------------------------------------------------------------

graphs = st.integers(1, 8).flatmap(
    lambda n: st.tuples(st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=20))
)


@given(graphs, st.integers(1, 30), st.integers(0, 2**64 - 1))
def test_every_edge_continues_from_a_seen_node_if_one_can(graph: tuple[int, Ends], size: int, seed: int) -> None:
    num_nodes, ends = graph
    batch = NeighborhoodEdges(triples_of(ends), num_nodes, size).sample(seed)
    assert batch.dtype == np.int64
    assert len(batch) == min(size, len(ends)) == len(set(batch.tolist()))
    for i, edge in enumerate(batch.tolist()):
        picked = set(batch[:i].tolist())
        seen = {end for other in picked for end in ends[other]}
        assert edge in original(ends, num_nodes, picked, seen)


@given(graphs, st.integers(1, 30), st.integers(0, 2**64 - 1))
def test_uniform_batches_are_distinct(graph: tuple[int, Ends], size: int, seed: int) -> None:
    sampler = UniformEdges(triples_of(graph[1]), graph[0], size)
    for batch in (sampler.sample(seed), sampler.sample()):
        assert len(batch) == min(size, len(graph[1])) == len(set(batch.tolist()))
        assert ((batch >= 0) & (batch < len(graph[1]))).all()


@given(st.integers(1, 25), st.integers(1, 12), st.integers(0, 2**64 - 1))
def test_shuffled_batches_are_distinct_and_show_every_triple_once_a_round(triples: int, size: int, seed: int) -> None:
    sampler = ShuffledEdges(np.zeros((triples, 3), dtype=np.int64), 1, size, seed)
    rounds = 2 * size
    batches = [sampler.sample().tolist() for _ in range(rounds * triples // sampler.size)]
    assert all(len(set(batch)) == len(batch) == min(size, triples) for batch in batches)
    if triples >= 2 * size or triples == sampler.size:
        shown = list(itertools.chain(*batches))
        for first in range(0, len(shown), triples):
            part = shown[first : first + triples]
            assert sorted(part) == list(range(triples)) or len(set(part)) == len(part) < triples
    # A sampler that resumes from any state continues like this one.
    other = ShuffledEdges(np.zeros((triples, 3), dtype=np.int64), 1, size, seed=1)
    for number in range(0, len(batches), 1 + len(batches) // 5):
        other.set_state({**sampler.state(), "batches": number})
        assert other.sample().tolist() == batches[number]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(1, 12), st.integers(0, 2**64 - 1))
def test_grouped_batches_show_every_triple_once_per_pass_and_groups_together(
    subjects: list[int], size: int, seed: int
) -> None:
    triples = np.array([(s, s % 2, i) for i, s in enumerate(subjects)], dtype=np.int64)
    sampler = GroupedEdges(triples, len(subjects), size, seed)
    count, passes = len(triples), 2 * size
    batches = [sampler.sample().tolist() for _ in range(passes * count // sampler.size)]
    assert all(len(set(batch)) == len(batch) == min(size, count) for batch in batches)
    if count >= 2 * size:
        shown = list(itertools.chain(*batches))
        assert sorted(shown[:count]) == list(range(count))
        groups = [group for group, _ in itertools.groupby(shown[:count], key=lambda row: subjects[row])]
        assert len(groups) == len(set(subjects))
    other = GroupedEdges(triples, len(subjects), size, seed=1)
    for number in range(0, len(batches), 1 + len(batches) // 5):
        other.set_state({**sampler.state(), "batches": number})
        assert other.sample().tolist() == batches[number]


def test_every_round_has_an_order_of_its_own_and_every_order_is_likely() -> None:
    sampler = ShuffledEdges(triples_of([(0, 1)] * 4), num_nodes=2, size=2, seed=3)
    orders = Counter((*sampler.sample().tolist(), *sampler.sample().tolist()) for _ in range(20_000))
    expected = list(itertools.permutations(range(4)))
    assert deviation(orders, dict.fromkeys(expected, 1 / len(expected))) < 4.0


@given(st.integers(1, 300), st.integers(1, 40), st.integers(0, 2**64 - 1))
def test_scattered_batches_are_distinct_within_a_round(triples: int, size: int, seed: int) -> None:
    sampler = ScatteredEdges(np.zeros((triples, 3), dtype=np.int64), 1, size, seed)
    in_a_round = triples // sampler.size
    batches = [sampler.sample().tolist() for _ in range(2 * in_a_round)]
    for first in (0, in_a_round):
        shown = list(itertools.chain(*batches[first : first + in_a_round]))
        assert len(set(shown)) == len(shown) == in_a_round * sampler.size
        assert set(shown) <= set(range(triples))
    other = ScatteredEdges(np.zeros((triples, 3), dtype=np.int64), 1, size, seed=1)
    other.set_state({**sampler.state(), "batches": in_a_round})
    assert other.sample().tolist() == batches[in_a_round]


def test_a_scattered_order_looks_random() -> None:
    """Over many rounds, every triple is first about equally often, and adjacent triples are separated."""
    sampler = ScatteredEdges(np.zeros((100, 3), dtype=np.int64), 1, 100, 7)
    orders = np.array([sampler.sample() for _ in range(4000)])
    counts = np.bincount(orders[:, 0], minlength=100)
    assert ((counts - 40) ** 2 / 40).sum() < 99 + 5 * (2 * 99) ** 0.5
    assert abs(np.mean(np.diff(orders, axis=1) == 1) - 0.01) < 0.001


def all_of(ends: Ends, num_nodes: int, size: int, seed: int = 0) -> list[EdgeSampler]:
    triples = triples_of(ends)
    kinds: list[type[EdgeSampler]] = [UniformEdges, NeighborhoodEdges, ShuffledEdges, GroupedEdges, ScatteredEdges]
    return [kind(triples, num_nodes, size, seed) for kind in kinds]


def test_a_graph_smaller_than_the_batch_gives_all_its_edges() -> None:
    for sampler in all_of([(0, 1), (2, 2), (5, 4)], 9, size=30_000):
        assert sorted(sampler.sample().tolist()) == [0, 1, 2]
        assert sampler.size == 3


def test_an_empty_graph_gives_no_edges() -> None:
    for sampler in [*all_of([], 3, size=4), *all_of([], 0, size=4)]:
        assert sampler.sample().tolist() == []


def test_tensors_are_taken_as_well_as_arrays() -> None:
    triples = triples_of([(0, 1), (1, 2), (2, 3)])
    array, tensor = (NeighborhoodEdges(t, 4, 2).sample(5) for t in (triples, torch.from_numpy(triples)))
    assert array.tolist() == tensor.tolist()


def test_bad_input_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one edge"):
        UniformEdges(triples_of([(0, 1)]), num_nodes=2, size=0)
    with pytest.raises(DataError, match="node outside"):
        NeighborhoodEdges(triples_of([(0, 3)]), 3, size=1)
    with pytest.raises(DataError, match="shape"):
        UniformEdges(np.zeros((3, 2), dtype=np.int64), num_nodes=2, size=1)
    with pytest.raises(ConfigError, match="state"):
        UniformEdges(triples_of([(0, 1)]), num_nodes=2, size=1).set_state({"pcg": 1})
    with pytest.raises(ConfigError, match="state"):
        ShuffledEdges(triples_of([(0, 1)]), num_nodes=2, size=1).set_state({"splitmix64": 1})


# -- reproducibility --------------------------------------------------------------------------------------

RING: Ends = [(i, (i + 1) % 50) for i in range(50)]


def test_a_resumed_sampler_continues_bit_for_bit() -> None:
    for whole, resumed in zip(all_of(RING, 50, 12, seed=3), all_of(RING, 50, 12, seed=99), strict=True):
        for _ in range(5):
            whole.sample()
        state = json.loads(json.dumps(whole.state()))
        expected = [whole.sample().tolist() for _ in range(4)]
        resumed.sample()
        resumed.set_state(state)
        assert [resumed.sample().tolist() for _ in range(4)] == expected
        assert expected[0] != expected[1]


def test_a_seed_gives_the_same_batch_whatever_came_before() -> None:
    for sampler in all_of(RING, 50, 12):
        first = sampler.sample((7, 3)).tolist()
        assert sampler.sample((7, 4)).tolist() != first
        assert sampler.sample((7, 3)).tolist() == first
        assert sampler.sample(np.random.default_rng(1)).tolist() == sampler.sample(np.random.default_rng(1)).tolist()


def test_a_seed_means_these_edges_on_every_platform() -> None:
    uniform, neighborhood, shuffled, grouped, scattered = all_of(RING, 50, 8)
    assert uniform.sample(2024).tolist() == [41, 17, 19, 33, 22, 11, 44, 42]
    assert neighborhood.sample(2024).tolist() == [40, 41, 42, 39, 43, 44, 45, 46]
    assert shuffled.sample(2024).tolist() == [48, 3, 35, 32, 19, 16, 47, 7]
    assert grouped.sample(2024).tolist() == [48, 3, 35, 32, 19, 16, 47, 7]  # every group is one triple
    assert scattered.sample(2024).tolist() == [15, 30, 3, 44, 37, 46, 2, 21]


def test_the_generator_is_splitmix64() -> None:
    state, mask = np.array([1234567], dtype=np.uint64), 2**64 - 1
    word = 1234567
    for bound in [1, 2, 3, 10, 1000, 2**31 - 1, 2**32 - 1] * 20:
        while True:
            word = (word + 0x9E3779B97F4A7C15) & mask
            z = word
            z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
            z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
            product = ((z ^ (z >> 31)) >> 32) * bound
            if product % 2**32 >= 2**32 % bound:
                break
        assert _walk.below(state, bound) == product >> 32
    assert int(state[0]) == word


# -- speed ------------------------------------------------------------------------------------------------


def test_no_draw_looks_at_all_nodes() -> None:
    """A graph like WN18: 13 s by a |V|-way draw, a few milliseconds here; the limit allows for a busy machine."""
    rng = np.random.default_rng(0)
    # A tree of 40,000 nodes, so that walks are long, with random edges.
    child = np.arange(1, 40_000)
    ends = np.concatenate([np.stack([child, rng.integers(0, child)], axis=1), rng.integers(0, 40_000, (100_000, 2))])
    triples = np.stack([ends[:, 0], np.zeros_like(ends[:, 0]), ends[:, 1]], axis=1)
    sampler = NeighborhoodEdges(triples, 40_000, 30_000)
    sampler.sample()
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        sampler.sample()
        best = min(best, time.perf_counter() - start)
    assert best < 0.1
