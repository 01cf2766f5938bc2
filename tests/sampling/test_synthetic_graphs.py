"""Test synthetic graphs: deterministic, sizes within bounds, and rules as defined."""

import numpy as np
import pytest

from rgcn.sampling import synthetic_graphs as drawn_graphs
from rgcn.sampling.synthetic_graphs import KINDS, compose, draw_graph, inverse, renumbered


def test_a_seed_gives_one_graph():
    assert draw_graph(7).fingerprint == draw_graph(7).fingerprint
    assert draw_graph(7).fingerprint != draw_graph(8).fingerprint


@pytest.mark.parametrize(
    ("kind", "fingerprint"),
    [("world", "20ef76f7d7db"), ("kin", "57b382a5c3a7"), ("semantic", "ece1410a5832"), ("blocs", "ed061faf56d4")],
)
def test_synthetic_graphs_do_not_change_between_versions(kind, fingerprint):
    """A pretraining that is resumed on another machine must get the same graphs."""
    assert draw_graph(3, kind).fingerprint[:12] == fingerprint


def test_sizes_stay_within_bounds_and_most_are_small():
    graphs = [draw_graph(seed) for seed in range(100)]
    for graph in graphs:
        assert 10 <= graph.num_nodes <= 3000
        assert 2 <= graph.num_relations <= 120
        assert 300 <= len(graph) <= 30_000
        keys = (graph.triples * [1, 3000, 3000 * 120]).sum(1)
        assert len(np.unique(keys)) == len(graph)
        assert (graph.degrees() > 0).all()
        assert (np.bincount(graph.triples[:, 1], minlength=graph.num_relations) > 0).all()
        assert graph.triple_splits is None
    assert 500 < np.median([len(graph) for graph in graphs]) < 6000
    assert {graph.name.split()[1] for graph in graphs} == set(KINDS)


def test_ids_of_synthetic_graphs_carry_no_information():
    """Node 0 is as often a hub as the last node is."""
    graphs = [draw_graph(seed, "world") for seed in range(40)]
    assert 0.35 < np.mean([graph.degrees().argmax() / graph.num_nodes for graph in graphs]) < 0.65


@pytest.mark.parametrize("seed", range(5))
def test_a_composition_is_what_its_definition_says(seed):
    rng, n = np.random.default_rng(seed), 12
    first, second = (np.unique(rng.integers(n * n, size=40)) for _ in range(2))
    pairs = [[divmod(int(key), n) for key in keys] for keys in (first, second)]
    wanted = {(x, z) for x, y in pairs[0] for w, z in pairs[1] if y == w and x != z}
    assert {divmod(int(key), n) for key in compose(first, second, n, rng)} == wanted
    fewer = compose(first, second, n, rng, most=20)
    assert {divmod(int(key), n) for key in fewer} <= wanted
    assert len(fewer) <= 20


def test_an_inverse_is_sorted_and_turned_round():
    assert inverse(np.array([0 * 5 + 4, 3 * 5 + 1]), 5).tolist() == [1 * 5 + 3, 4 * 5 + 0]


def a_world(types=(60, 40), seed=0):
    types = np.repeat(np.arange(len(types)), types)
    return drawn_graphs._World(np.random.default_rng(seed), types, group_size=5, columns=7)


@pytest.mark.parametrize("seed", range(10))
def test_facts_respect_their_types(seed):
    for fact in drawn_graphs.BASE_RELATIONS[:3]:
        world = a_world(seed=seed)
        subjects, objects = np.divmod(fact(world, 50), len(world.types))
        assert len(np.unique(world.types[subjects])) == len(np.unique(world.types[objects])) == 1


def test_a_tree_has_one_parent_each_and_no_cycle():
    world = a_world((80,))
    children, parents = np.divmod(world.tree(100), 80)
    assert len(np.unique(children)) == len(children) == 79
    parent_of = dict(zip(children.tolist(), parents.tolist(), strict=True))
    for node in range(80):
        for _ in range(80):
            node = parent_of.get(node, -1)
        assert node == -1


def test_same_set_is_an_equivalence():
    world = a_world((80,))
    pairs = world.same_set(10_000)
    assert np.array_equal(inverse(pairs, 80), pairs)
    assert np.isin(compose(pairs, pairs, 80, world.rng), pairs).all()


@pytest.mark.parametrize("seed", range(5))
def test_implied_triples_hold(seed):
    """Check that the conclusions of each rule follow from its premises."""
    world = a_world((50,), seed)
    world.relations = [world.affinity(60), world.tree(60), world.neighbor(60)]
    either_way = [pairs for known in world.relations for pairs in (known, inverse(known, 50))]
    one = np.unique(np.concatenate(either_way))
    two = np.unique(np.concatenate([compose(a, b, 50, world.rng) for a in either_way for b in either_way]))
    three = np.unique(np.concatenate([two, *(compose(two, a, 50, world.rng) for a in either_way)]))
    for rule, allowed in enumerate((three, one, one, np.union1d(one, two), one)):
        assert np.isin(world.derived(rule, 10_000), allowed).all()


def test_renumbering_keeps_the_graph():
    """Sorted degrees and relation sizes are unchanged; duplicate triples are merged; unused ids are removed."""
    triples = np.array([[0, 5, 9], [9, 5, 4], [4, 2, 4], [0, 5, 9]])
    graph = renumbered(triples, np.random.default_rng(0), "small")
    assert (graph.num_nodes, graph.num_relations, len(graph), graph.name) == (3, 2, 3, "small")
    assert sorted(graph.degrees().tolist()) == [1, 2, 3]
    assert sorted(np.bincount(graph.triples[:, 1]).tolist()) == [1, 2]
    assert (graph.nodes[0], graph.relations[1]) == ("n0", "r1")


def test_kin_is_dense_and_a_pair_has_one_relation():
    for seed in range(10):
        graph = draw_graph(seed, "kin")
        pairs = graph.triples[:, 0] * graph.num_nodes + graph.triples[:, 2]
        assert len(np.unique(pairs)) > 0.9 * len(graph)
        assert len(graph) > 0.3 * graph.num_nodes**2
