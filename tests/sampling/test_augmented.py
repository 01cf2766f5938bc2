"""Test augmented views of a graph: deterministic, never empty, and without invented triples."""

import numpy as np
import pytest

from rgcn import KnowledgeGraph
from rgcn.errors import DataError
from rgcn.sampling import synthetic_graphs as module
from rgcn.sampling.synthetic_graphs import augment, draw_graph


def test_a_seed_gives_one_view():
    graph = draw_graph(5, "world")
    assert augment(graph, 3).fingerprint == augment(graph, 3).fingerprint
    assert len({augment(graph, seed).fingerprint for seed in range(8)}) == 8


def test_views_are_never_larger_and_seldom_tiny():
    graph = draw_graph(5, "world")
    sizes = np.array([len(augment(graph, seed)) for seed in range(80)])
    assert sizes.max() <= len(graph)
    assert np.median(sizes) > len(graph) / 3
    for seed in range(20):
        assert (augment(graph, seed).degrees() > 0).all()


@pytest.mark.parametrize(
    "triples",
    [
        [("a", "r", "b")],
        [("a", "r", "b"), ("a", "r", "a")],
        [("a", "r", "b"), ("b", "r", "c"), ("c", "r", "a")],
        [("a", f"r{i}", "b") for i in range(5)],
        [(f"n{i}", "is", "x") for i in range(40)],
    ],
)
def test_two_nodes_and_a_triple_are_always_left(triples):
    graph = KnowledgeGraph.from_triples(triples)
    for seed in range(60):
        view = augment(graph, seed)
        assert view.num_nodes >= 2
        assert len(view) >= 1


@pytest.mark.parametrize("triples", [[], [("a", "r", "a")]])
def test_a_graph_without_a_usable_triple_is_reported(triples):
    with pytest.raises(DataError, match="between two nodes"):
        augment(KnowledgeGraph.from_triples(triples), 0)


def test_only_training_triples_are_seen():
    triples = [("a", "r", "b"), ("b", "r", "c"), ("x", "held_out", "y")]
    graph = KnowledgeGraph.from_triples(triples, triple_splits=np.array([0, 0, 2]))
    assert max(augment(graph, seed).num_nodes for seed in range(30)) == 3


@pytest.mark.parametrize("seed", range(6))
def test_a_sampled_part_is_a_subgraph(seed):
    triples = np.array(draw_graph(seed, "world").triples)
    part = module._part(triples, np.random.default_rng(seed))
    assert {tuple(row) for row in part.tolist()} <= {tuple(row) for row in triples.tolist()}
    assert 0.2 * len(triples) <= len(part) <= len(triples)


@pytest.mark.parametrize("seed", range(6))
def test_other_relations_keep_pairs(seed):
    """Nodes are unchanged: each remaining triple connects the same two nodes, in either direction."""
    triples = np.array(draw_graph(seed, "kin").triples)
    changed = module._other_relations(triples, np.random.default_rng(seed))
    pairs = {frozenset(row) for row in triples[:, [0, 2]].tolist()}
    assert {frozenset(row) for row in changed[:, [0, 2]].tolist()} <= pairs


def test_a_relation_with_few_known_triples_resembles_labels():
    """The relation `is` links each of 40 nodes to one of two classes, `knows` to two other nodes."""
    triples = [(f"n{i}", "is", f"class {i % 2}") for i in range(40)]
    triples += [(f"n{i}", "knows", f"n{(i + step) % 40}") for i in range(40) for step in (1, 7)]
    graph, nodes = KnowledgeGraph.from_triples(triples), set()
    for seed in range(20):
        view, questions = module.node_classification_view(graph, seed)
        num_known = np.bincount(view.split_triples("train")[:, 1], minlength=2)
        assert num_known[graph.relations["knows"]] == 80
        assert 1 <= num_known[graph.relations["is"]] < 32
        assert len(questions) == 40
        assert (questions[:, 1] == graph.relations["is"]).all()
        assert len(np.unique(questions[:, 2])) == 2
        nodes.add(view.num_nodes)
    assert nodes == {42}


def test_the_objects_of_labels_are_nodes_of_their_own_in_half_of_the_views():
    """All are linked among each other: where classes are not, they are others."""
    graph = KnowledgeGraph.from_triples(
        [(f"n{i}", "is", f"n{i % 2}") for i in range(40)] + [(f"n{i}", "knows", f"n{(i + 1) % 40}") for i in range(40)]
    )
    sizes = {module.node_classification_view(graph, seed)[0].num_nodes for seed in range(20)}
    assert sizes == {40, 42}
