"""A graph whose triples stay in their file says what the same graph in memory says, and reads few of them."""

from __future__ import annotations

import copy
from contextlib import ExitStack
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rgcn.data import graph_store
from rgcn.errors import DataError
from rgcn.graph import KnowledgeGraph, StoredGraph
from rgcn.graph.knowledge_graph import ARRAYS

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
    """The graph saved and opened again, all of it mapped and nothing of it read."""
    stack.enter_context(patch.multiple(graph_store, VERIFIED=0, IN_MEMORY=-1))
    folder = Path(stack.enter_context(TemporaryDirectory()))
    graph_store.save_graph(graph, folder)
    opened = graph_store.load_graph(folder)
    assert isinstance(opened, StoredGraph)
    assert opened.stored
    return opened


def same(found: KnowledgeGraph, expected: KnowledgeGraph) -> bool:
    found_arrays, arrays = ([getattr(graph, name) for name in ARRAYS] for graph in (found, expected))
    pairs = zip(found_arrays, arrays, strict=True)
    equal = all(b is None if a is None else np.array_equal(a, b) and a.dtype == b.dtype for a, b in pairs)
    return equal and found.named() == expected.named() and found.fingerprint == expected.fingerprint


@settings(max_examples=25)
@given(rows, st.booleans(), st.booleans(), st.lists(ids, min_size=1, unique=True))
def test_answers_are_those_of_the_same_graph_in_memory_and_read_some_triples_only(rows, splits, weights, asked):
    expected = in_memory(rows, splits, weights)
    with ExitStack() as stack:
        graph = mapped(expected, stack)
        nodes, places = np.array(asked), np.arange(len(expected))[::2]
        assert (len(graph), graph.num_triples, repr(graph)) == (len(expected), len(expected), repr(expected))
        assert np.array_equal(graph.triples_at(places), expected.triples_at(places))
        assert np.array_equal(graph.triples_at(slice(1, 4)), expected.triples_at(slice(1, 4)))
        for found, other in zip(graph.touching(nodes), expected.touching(nodes), strict=True):
            assert np.array_equal(found, other)
        for node in asked:
            assert graph.neighbors(node) == expected.neighbors(node)
        assert np.array_equal(graph.degrees(), expected.degrees())
        assert np.array_equal(graph.relation_counts, expected.relation_counts)
        if splits:
            assert np.array_equal(graph.split_triples("valid"), expected.split_triples("valid"))
        assert graph.stored  # nothing of this read all triples
        assert np.array_equal(graph.triples, expected.triples)
        assert not graph.stored
        assert not graph.triples.flags.writeable
        assert np.array_equal(graph.triples_at(places), expected.triples_at(places))
        assert same(graph, expected)
        assert graph.statistics().as_dict() == expected.statistics().as_dict()


@settings(max_examples=25)
@given(rows)
def test_copies_are_plain_graphs_that_remember_nothing_of_the_folder(rows):
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


def test_each_field_is_there_and_no_other_name_is_made_up():
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
    graph = StoredGraph.opened(rows, expected._incidence, **names)
    assert not graph.stored
    assert np.array_equal(graph.triples, expected.triples)
    rows[0, 2] = NODES
    with pytest.raises(DataError, match="triple 0"):
        StoredGraph.opened(rows, expected._incidence, **names)
