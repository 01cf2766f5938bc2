"""Test the knowledge graph: validation, queries, and subgraphs."""

from __future__ import annotations

import copy
from contextlib import ExitStack
from dataclasses import FrozenInstanceError, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rgcn
from naive import chain, naive_within_hops, triple_lists
from rgcn.data import graph_store
from rgcn.errors import DataError, UnknownNameError
from rgcn.graph import KnowledgeGraph, NodeKind, NodeLabels, StoredGraph, Vocabulary
from rgcn.graph.knowledge_graph import ARRAYS, Neighbor

FAMILY = [
    ("ada", "knows", "bob"),
    ("bob", "knows", "cy"),
    ("cy", "likes", "ada"),
    ("ada", "likes", "ada"),
    ("dee", "likes", "bob"),
    ("ada", "knows", "bob"),
]


def family(**attributes):
    return KnowledgeGraph.from_triples(FAMILY, **attributes)


def whole_family():
    """Return a graph with every optional part."""
    return family(
        labels={"ada": "x", "bob": "y"},
        test_labels={"cy": "x"},
        node_kinds=[0, 0, 1, 2],
        triple_splits=[0, 0, 1, 2, 0, 0],
        features=np.arange(8).reshape(4, 2),
        edge_weights=[1, 2, 3, 4, 5, 6],
    )


def numbered(triples, num_nodes, num_relations, **attributes):
    nodes, relations = (Vocabulary(f"{k}{i}" for i in range(n)) for k, n in (("n", num_nodes), ("r", num_relations)))
    return KnowledgeGraph(np.array(triples, dtype=np.int64).reshape(-1, 3), nodes, relations, **attributes)


def test_names_are_numbered_by_first_appearance():
    kg = family()
    assert list(kg.nodes) == ["ada", "bob", "cy", "dee"]
    assert list(kg.relations) == ["knows", "likes"]
    assert kg.triples.tolist() == [[0, 0, 1], [1, 0, 2], [2, 1, 0], [0, 1, 0], [3, 1, 1], [0, 0, 1]]
    assert kg.named() == FAMILY
    assert (kg.num_nodes, kg.num_relations, kg.num_triples, len(kg)) == (4, 2, 6, 6)


def test_nothing_of_a_graph_can_be_changed():
    kg = whole_family()
    with pytest.raises(FrozenInstanceError):
        kg.triples = np.zeros((0, 3))
    for array in (kg.triples, kg.node_kinds, kg.triple_splits, kg.features, kg.edge_weights, kg.labels.classes):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    with pytest.raises(FrozenInstanceError):
        kg.labels.nodes = np.zeros(0)


def test_the_callers_arrays_stay_writable():
    triples = np.array([[0, 0, 1]])
    kg = numbered(triples, 2, 1)
    triples[0, 0] = 1
    assert kg.triples.tolist() == [[0, 0, 1]]


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"triples": [[0, 0, 9]]}, "no name"),
        ({"triples": [[0, 0, 1], [0, 9, 0]]}, r"no name: triple 1 \(from 0\) is \(0, 9, 0\)"),
        ({"triples": [[0, 0, 0.9]]}, "whole numbers, not float64"),
        ({"triples": [[-1, 0, 0]]}, "no name"),
        ({"triples": [[0, 0]]}, r"shape \[T, 3\]"),
        ({"node_kinds": [0]}, "node_kinds has 1 rows where 4"),
        ({"triple_splits": [0]}, "triple_splits has 1 rows where 6"),
        ({"triple_splits": [0, 0, 0, 0, 0, 3]}, "train, valid, test"),
        ({"features": [[1.0], [2.0]]}, "features has 2 rows where 4"),
        ({"features": [1.0, 2.0, 3.0, 4.0]}, "finite matrix"),
        ({"features": [[1.0], [2.0], [3.0], [np.nan]]}, "finite matrix"),
        ({"edge_weights": [1, 2]}, "edge_weights has 2 rows where 6"),
        ({"edge_weights": [1, 1, 1, 1, 1, -1]}, "not negative"),
        ({"edge_weights": [1, 1, 1, 1, 1, np.inf]}, "finite"),
        ({"labels": NodeLabels([7], [0], Vocabulary(["x"]), [0])}, "not in the graph"),
        ({"labels": NodeLabels([-1], [0], Vocabulary(["x"]), [0])}, "not in the graph"),
    ],
)
def test_inconsistent_parts_are_refused(attributes, words):
    with pytest.raises(DataError, match=words):
        replace(family(), **attributes)


def test_an_empty_graph_is_a_graph():
    kg = KnowledgeGraph.from_triples([])
    assert (kg.num_nodes, kg.num_relations, len(kg)) == (0, 0, 0)
    assert kg.triples.shape == (0, 3)
    assert kg.statistics().mean_degree == 0.0
    alone = numbered([], 3, 2)
    assert alone.neighbors("n1") == []
    assert alone.statistics().isolated == 3


def test_a_split_that_does_not_exist_is_refused():
    with pytest.raises(DataError, match="unknown split 'dev'; there are train, valid, test"):
        family().with_labels({"dev": {"ada": "x"}})


def test_a_label_for_an_unknown_node_names_the_closest():
    with pytest.raises(UnknownNameError, match="Did you mean 'ada'"):
        family(labels={"adda": "x"})


def test_repr_lists_the_parts_of_the_graph():
    assert repr(family()) == "KnowledgeGraph(4 nodes, 2 relations, 6 triples)"
    text = repr(replace(whole_family(), name="family"))
    for part in ("'family'", "3 labels in 2 classes", "2 features", "weighted"):
        assert part in text


# -- asking --------------------------------------------------------------------------------------------


def test_neighbors_are_the_triples_seen_from_the_node_outgoing_first():
    assert family().neighbors("bob") == [
        Neighbor("knows", "cy", True),
        Neighbor("knows", "ada", False),
        Neighbor("likes", "dee", False),
        Neighbor("knows", "ada", False),
    ]
    assert family().neighbors("bob", limit=1) == [Neighbor("knows", "cy", True)]


def test_a_triple_from_a_node_to_itself_is_seen_from_both_ends():
    loops = [n for n in family().neighbors("ada") if n.node == "ada"]
    assert loops == [Neighbor("likes", "ada", True), Neighbor("likes", "ada", False)]


@given(graph=triple_lists())
def test_neighbors_equal_a_walk_over_all_triples(graph):
    triples, num_nodes, num_relations = graph
    kg = numbered(triples, num_nodes, num_relations)
    for node in range(num_nodes):
        expected = [(f"r{r}", f"n{o}", True) for s, r, o in triples if s == node]
        expected += [(f"r{r}", f"n{s}", False) for s, r, o in triples if o == node]
        assert sorted(kg.neighbors(node)) == sorted(expected)


def test_kinds_of_nodes():
    kg = whole_family()
    assert [kg.kind(n) for n in ("ada", "cy", "dee")] == [NodeKind.IRI, NodeKind.LITERAL, NodeKind.BLANK]
    assert kg.is_literal.tolist() == [False, False, True, False]
    assert family().kind("ada") is NodeKind.IRI
    assert not family().is_literal.any()


def test_triples_of_a_split():
    kg = whole_family()
    assert kg.split_triples("valid").tolist() == [[2, 1, 0]]
    assert len(kg.split_triples("all")) == 6
    assert len(kg.split_triples("train")) == 4
    assert len(family().split_triples("train")) == 6
    with pytest.raises(DataError, match="no test triples"):
        family().split_triples("test")
    with pytest.raises(DataError, match="unknown split"):
        kg.split_triples("dev")


# -- smaller graphs ------------------------------------------------------------------------------------


def test_subgraph_keeps_what_lies_between_its_nodes_with_every_attribute():
    part = whole_family().subgraph(["bob", "cy"])
    assert part.named() == [("bob", "knows", "cy")]
    assert list(part.relations) == ["knows"]
    assert part.features.tolist() == [[2, 3], [4, 5]]
    assert part.edge_weights.tolist() == [2]
    assert part.triple_splits.tolist() == [0]
    assert part.node_kinds.tolist() == [0, 1]
    assert [part.nodes[n] for n in part.labels.nodes] == ["bob", "cy"]
    assert [part.labels.names[c] for c in part.labels.classes] == ["y", "x"]
    assert part.labels.counts() == {"train": 1, "test": 1}


def test_without_relations_keeps_all_nodes_and_their_ids():
    kg = whole_family().without_relations(["knows"])
    assert list(kg.nodes) == list(whole_family().nodes)
    assert kg.named() == [t for t in FAMILY if t[1] == "likes"]
    assert kg.edge_weights.tolist() == [3, 4, 5]
    with pytest.raises(UnknownNameError, match="Did you mean 'likes'"):
        kg.without_relations(["like"])


@given(graph=triple_lists(), hops=st.integers(0, 4), data=st.data())
def test_within_hops_is_a_breadth_first_walk(graph, hops, data):
    triples, num_nodes, num_relations = graph
    start = data.draw(st.sets(st.integers(0, num_nodes - 1)))
    reached = numbered(triples, num_nodes, num_relations).within_hops(sorted(start), hops)
    assert set(np.flatnonzero(reached).tolist()) == naive_within_hops(triples, num_nodes, start, hops)


@given(graph=triple_lists(), hops=st.integers(1, 3), data=st.data())
def test_pruning_keeps_the_triples_a_message_can_come_over_and_every_label(graph, hops, data):
    triples, num_nodes, num_relations = graph
    labeled = sorted(data.draw(st.sets(st.integers(0, num_nodes - 1), min_size=1)))
    labels = NodeLabels(labeled, [0] * len(labeled), Vocabulary(["x"]), [0] * len(labeled))
    kg = numbered(triples, num_nodes, num_relations, labels=labels)
    pruned = kg.prune(hops)
    inner = naive_within_hops(triples, num_nodes, labeled, hops - 1)
    assert pruned.named() == [(f"n{s}", f"r{r}", f"n{o}") for s, r, o in triples if s in inner or o in inner]
    kept = naive_within_hops(triples, num_nodes, labeled, hops)
    assert list(pruned.nodes) == [f"n{n}" for n in sorted(kept)]
    assert [pruned.nodes[n] for n in pruned.labels.nodes] == [f"n{n}" for n in labeled]


def test_pruning_needs_labels_and_a_hop():
    with pytest.raises(DataError, match="needs labeled nodes"):
        family().prune(2)
    with pytest.raises(DataError, match="at least one hop"):
        whole_family().prune(0)
    with pytest.raises(DataError, match="not be negative"):
        family().within_hops([0], -1)


# -- fingerprint and numbers ---------------------------------------------------------------------------


def test_equal_graphs_have_equal_fingerprints():
    assert whole_family().fingerprint == whole_family().fingerprint
    named = replace(whole_family(), name="other", metadata={"made": "today"})
    assert named.fingerprint == whole_family().fingerprint


def test_fingerprint_changes_with_each_part():
    kg = whole_family()
    labels = kg.labels
    other = [
        family(),
        replace(kg, triples=kg.triples[::-1]),
        replace(kg, nodes=Vocabulary(["ada", "bob", "cy", "eve"])),
        replace(kg, relations=Vocabulary(["knows", "hates"])),
        replace(kg, node_kinds=[0, 0, 0, 2]),
        replace(kg, node_kinds=None),
        replace(kg, triple_splits=[0, 0, 1, 2, 0, 1]),
        replace(kg, features=np.ones((4, 2))),
        replace(kg, features=np.arange(8).reshape(4, 2)[:, :1]),
        replace(kg, edge_weights=[1, 2, 3, 4, 5, 7]),
        replace(kg, labels=None),
        replace(kg, labels=replace(labels, classes=1 - labels.classes)),
        replace(kg, labels=replace(labels, splits=2 - labels.splits)),
        replace(kg, labels=replace(labels, nodes=labels.nodes[::-1])),
        replace(kg, labels=replace(labels, names=Vocabulary(["x", "z"]))),
    ]
    assert len({kg.fingerprint, *(graph.fingerprint for graph in other)}) == len(other) + 1


def test_statistics_of_a_graph_counted_by_hand():
    stats = whole_family().statistics()
    assert (stats.entities, stats.literals, stats.relations, stats.triples) == (4, 1, 2, 6)
    assert stats.triples_per_split == {"train": 4, "valid": 1, "test": 1}
    assert (stats.labels, stats.classes) == (3, 2)
    assert stats.labels_per_split == {"train": 2, "test": 1}
    assert stats.class_counts == {"x": 2, "y": 1}
    # ada 5 ends (its own triple counts twice), bob 4, cy 2, dee 1
    assert (stats.mean_degree, stats.median_degree, stats.max_degree, stats.isolated) == (3.0, 3.0, 5, 0)
    assert stats.degree_histogram == {"1": 1, "2-3": 1, "4-7": 2}
    assert stats.relation_counts == {"knows": 3, "likes": 3}
    assert stats.as_dict()["triples"] == 6


def test_degree_histogram_ends_in_an_open_bin():
    hub = KnowledgeGraph.from_triples([(f"n{i}", "r", "hub") for i in range(1500)])
    assert hub.statistics().degree_histogram == {"1": 1500, "1024+": 1}


def test_a_chain_is_pruned_by_the_hops_asked_for():
    kg = KnowledgeGraph.from_triples(chain(8), labels={"n0": "x"})
    assert [kg.prune(hops).num_nodes for hops in (1, 2, 3)] == [2, 3, 4]


def test_a_notebook_shows_a_table():
    graph = KnowledgeGraph.from_triples([("<a>", "r", "b")], labels={"b": "x"}, name="<script>")
    shown = graph._repr_html_()
    assert "<td>triples</td><td>1</td>" in shown
    assert "<script>" not in shown
    model = rgcn.LinkPredictor(encoder="none", embedding=2, steps=1).fit(graph)
    table = model.predict_frame(subject="<a>", relation="r", k=2)._repr_html_()
    assert "<th>subject</th>" in table
    assert "<a>" not in table
    labeled = graph.with_labels({"train": {"<a>": "x", "b": "y"}})
    reports = rgcn.NodeClassifier(epochs=2).fit(labeled).history_._repr_html_()
    assert "<th>loss</th>" in reports
    assert reports.count("<tr>") == 3


@given(rows=st.lists(st.tuples(*[st.integers(0, 3)] * 3), min_size=1, unique=True), limit=st.integers(0, 5))
def test_neighbors_are_a_nodes_triples_from_its_end_and_of_a_hub_no_more_than_asked_for(rows, limit):
    names = Vocabulary("abcd")
    kg = KnowledgeGraph(np.array(rows), names, names)
    for node, name in enumerate(names):
        outgoing = [(names[r], names[o], True) for s, r, o in rows if s == node]
        incoming = [(names[r], names[s], False) for s, r, o in rows if o == node]
        assert kg.neighbors(name) == outgoing + incoming
        assert kg.neighbors(name, limit) == (outgoing + incoming)[:limit]


# -- A graph whose triples stay in their file says what the same graph in memory says, and reads few of them.

NODES, RELATIONS = 6, 3
ids = st.integers(0, NODES - 1)
rows = st.lists(st.tuples(ids, st.integers(0, RELATIONS - 1), ids), max_size=15)


def in_memory(rows, splits: bool = True, weights: bool = False) -> KnowledgeGraph:
    every = [*rows, *((n, n % RELATIONS, n) for n in range(NODES))]  # all nodes and relations are named
    extra: dict = {"triple_splits": np.arange(len(every)) % 3} if splits else {}
    extra |= {"edge_weights": np.arange(len(every)) / 7} if weights else {}
    triples = [(f"n{s}", f"r{r}", f"n{o}") for s, r, o in every]
    return KnowledgeGraph.from_triples(triples, labels={"n1": "x", "n2": "y"}, name="drawn", **extra)


def mapped(graph: KnowledgeGraph, stack: ExitStack) -> StoredGraph:
    """Save the graph and open it again, with all arrays mapped and not read."""
    stack.enter_context(patch.multiple(graph_store, MAX_VERIFIED_BYTES=0, MAX_IN_MEMORY_BYTES=-1))
    folder = Path(stack.enter_context(TemporaryDirectory()))
    graph_store.save_graph(graph, folder)
    opened = graph_store.load_graph(folder)
    assert isinstance(opened, StoredGraph)
    assert opened.is_stored
    return opened


def same(found: KnowledgeGraph, expected: KnowledgeGraph) -> bool:
    found_arrays, arrays = ([getattr(graph, name) for name in ARRAYS] for graph in (found, expected))
    pairs = zip(found_arrays, arrays, strict=True)
    equal = all(b is None if a is None else np.array_equal(a, b) and a.dtype == b.dtype for a, b in pairs)
    return equal and found.named() == expected.named() and found.fingerprint == expected.fingerprint


@settings(max_examples=25)
@given(rows, st.booleans(), st.booleans(), st.lists(ids, min_size=1, unique=True))
def test_answers_are_those_of_the_same_graph_in_memory_and_read_some_triples_only(rows, splits, weights, queried):
    expected = in_memory(rows, splits, weights)
    with ExitStack() as stack:
        graph = mapped(expected, stack)
        nodes, places = np.array(queried), np.arange(len(expected))[::2]
        assert (len(graph), graph.num_triples, repr(graph)) == (len(expected), len(expected), repr(expected))
        assert np.array_equal(graph.triples_at(places), expected.triples_at(places))
        assert np.array_equal(graph.triples_at(slice(1, 4)), expected.triples_at(slice(1, 4)))
        for found, other in zip(graph.incident_triples(nodes), expected.incident_triples(nodes), strict=True):
            assert np.array_equal(found, other)
        for node in queried:
            assert graph.neighbors(node) == expected.neighbors(node)
        assert np.array_equal(graph.degrees(), expected.degrees())
        assert np.array_equal(graph.relation_counts, expected.relation_counts)
        if splits:
            assert np.array_equal(graph.split_triples("valid"), expected.split_triples("valid"))
        assert graph.is_stored  # none of these operations read all triples
        assert np.array_equal(graph.triples, expected.triples)
        assert not graph.is_stored
        assert not graph.triples.flags.writeable
        assert np.array_equal(graph.triples_at(places), expected.triples_at(places))
        assert same(graph, expected)
        assert graph.statistics().as_dict() == expected.statistics().as_dict()


@settings(max_examples=25)
@given(rows)
def test_copies_are_plain_graphs_without_a_reference_to_the_folder(rows):
    expected, larger = in_memory(rows), in_memory([*rows, (0, 1, 2)])
    with ExitStack() as stack:
        graph = mapped(expected, stack)
        changes: list[dict] = [{"labels": None}, {"name": "other"}, {"triples": larger.triples, "triple_splits": None}]
        for change in changes:
            copied = replace(graph, **change)
            assert type(copied) is KnowledgeGraph
            assert same(copied, replace(expected, **change))
            assert np.array_equal(copied.degrees(), replace(expected, **change).degrees())
        keep = np.arange(len(expected)) % 2 == 0
        for of in (lambda g: g.with_triples(keep), lambda g: g.subgraph(["n0", "n1"]), lambda g: g.prune(1)):
            assert same(of(graph), of(expected))
        for copied in (copy.copy(graph), copy.deepcopy(graph)):
            assert type(copied) is KnowledgeGraph
            assert same(copied, expected)


def test_every_field_exists_and_unknown_names_raise_an_attribute_error():
    with ExitStack() as stack:
        expected = in_memory([])
        graph = mapped(expected, stack)
        for each in fields(KnowledgeGraph):
            assert hasattr(graph, each.name)
        assert graph.search_folder is expected.search_folder is None
        with pytest.raises(AttributeError, match="tripels"):
            graph.tripels  # noqa: B018


def test_a_triple_without_a_name_is_refused_when_a_changed_copy_is_made():
    with ExitStack() as stack:
        graph = mapped(in_memory([]), stack)
        wrong = np.where(np.arange(len(graph))[:, None] == 2, 99, graph.triples_at(slice(None)))
        with pytest.raises(DataError, match="triple 2"):
            replace(graph, triples=wrong)


def test_a_small_graph_is_checked_when_it_is_opened():
    expected = in_memory([(0, 1, 2)])
    rows = expected.triples.astype(np.int32)
    names = {"nodes": expected.nodes, "relations": expected.relations}
    graph = StoredGraph.open(rows, expected._incidence, **names)
    assert not graph.is_stored
    assert np.array_equal(graph.triples, expected.triples)
    rows[0, 2] = NODES
    with pytest.raises(DataError, match="triple 0"):
        StoredGraph.open(rows, expected._incidence, **names)
