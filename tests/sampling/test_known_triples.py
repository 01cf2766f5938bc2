"""Compare the index of known triples with a Python set; test edge cases."""

from __future__ import annotations

import gc
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rgcn.errors import DataError
from rgcn.graph import SPLITS, KnowledgeGraph, Vocabulary
from rgcn.sampling import known_triples as known_module
from rgcn.sampling.known_triples import KnownTriples, repeated_across_splits, split_of, splits_up_to

Triple = tuple[int, int, int]
NODES, RELATIONS = 5, 3
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))]
EVERY = torch.cartesian_prod(torch.arange(NODES), torch.arange(RELATIONS), torch.arange(NODES))
triple_lists = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, 4)), max_size=30)
split_lists = st.lists(st.tuples(*(st.integers(0, 4), st.integers(0, 2), st.integers(0, 4)), st.integers(0, 2)))


def rows(triples: list[Triple]) -> Tensor:
    return torch.tensor(triples, dtype=torch.int64).view(-1, 3)


def as_triples(rows: Tensor) -> set[Triple]:
    return {(s, r, o) for s, r, o in rows.tolist()}


def graph_of(rows: list[tuple[int, int, int, int]], split: bool = True) -> KnowledgeGraph:
    table = np.array(rows, dtype=np.int64).reshape(-1, 4)
    return KnowledgeGraph(
        table[:, :3],
        Vocabulary([f"n{i}" for i in range(NODES)], kind="node"),
        Vocabulary([f"r{i}" for i in range(RELATIONS)], kind="relation"),
        triple_splits=table[:, 3].astype(np.int8) if split else None,
    )


def queries(known: KnownTriples) -> tuple[list[Triple], list[Triple]]:
    """Return the triples that the index gives for questions for objects and for subjects, in its order."""
    every = torch.cartesian_prod(torch.arange(NODES), torch.arange(RELATIONS))
    node, relation = every.to(known.objects.device).unbind(1)
    key = node * RELATIONS + relation
    row, answer = known.objects.expand(*known.objects.ranges(key))
    by_object = torch.stack([node[row], relation[row], answer], dim=1)
    row, answer = known.subjects.expand(*known.subjects.ranges(key))
    by_subject = torch.stack([answer, relation[row], node[row]], dim=1)
    return [(s, r, o) for s, r, o in by_object.tolist()], [(s, r, o) for s, r, o in by_subject.tolist()]


@pytest.mark.parametrize("device", DEVICES)
def test_known_triples_behave_like_a_set(device: str) -> None:
    @given(triple_lists, triple_lists)
    def check(first: list[Triple], second: list[Triple]) -> None:
        parts, there = (rows(first).to(device), rows(second).to(device)), {*first, *second}
        known = KnownTriples.of(*parts, num_nodes=NODES, num_relations=RELATIONS)
        assert len(known) == len(there)
        assert as_triples(EVERY[known.contains(EVERY.to(device)).cpu()]) == there
        by_object, by_subject = queries(known)
        assert by_object == sorted(there)
        assert by_subject == sorted(there, key=lambda triple: triple[::-1])

    check()


@given(split_lists, st.sets(st.sampled_from(SPLITS)))
def test_of_a_graph_it_has_the_given_splits(table: list[tuple[int, int, int, int]], wanted: set[str]) -> None:
    graph = graph_of(table)
    known = KnownTriples.of_graph(graph, *wanted)
    there = {row[:3] for row in table if not wanted or SPLITS[row[3]] in wanted}
    assert as_triples(EVERY[known.contains(EVERY)]) == there
    assert [set(found) for found in queries(known)] == [there, there]
    first = {row[:3]: row[3] for row in sorted(table, key=lambda row: -row[3])}
    assert split_of(graph, EVERY).tolist() == [first.get((s, r, o), -1) for s, r, o in EVERY.tolist()]
    assert split_of(graph, EVERY).dtype == torch.int8
    several = {triple for triple in first if len({row[3] for row in table if row[:3] == triple}) > 1}
    assert repeated_across_splits(graph) == len(several)


def test_questions_of_any_shape_are_answered_in_that_shape() -> None:
    graph = graph_of([(0, 0, 1, 2), (2, 1, 0, 0)])
    known = KnownTriples.of_graph(graph)
    triples = torch.tensor([[[0, 0, 1], [2, 1, 0]], [[1, 0, 0], [0, 0, 1]]])
    assert known.contains(triples).tolist() == [[True, True], [False, True]]
    assert split_of(graph, triples).tolist() == [[2, 0], [-1, 2]]


def test_a_graph_is_indexed_once_and_forgotten_with_it() -> None:
    graph = graph_of([(0, 0, 1, 0), (1, 0, 2, 1), (2, 0, 3, 2)])
    everything = KnownTriples.of_graph(graph)
    assert KnownTriples.of_graph(graph, *SPLITS) is everything
    assert KnownTriples.of_graph(graph, "valid", "train") is KnownTriples.of_graph(graph, "train", "valid")
    assert KnownTriples.of_graph(graph, "train") is not everything
    assert KnownTriples.of_graph(replace(graph)) is not everything
    gc.collect()
    before = len(known_module._of_graphs)
    split_of(graph, EVERY)
    del graph
    gc.collect()
    assert len(known_module._of_graphs) == before - 1


def test_indexes_are_built_on_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KnownTriples, "answers", None)
    monkeypatch.setattr(KnownTriples, "subjects", None)
    known = KnownTriples.of_graph(graph_of([(0, 0, 1, 0)]))
    assert int(known.contains(EVERY).sum()) == 1


def test_without_splits_all_is_trained_on_and_nothing_else_is_there() -> None:
    graph = graph_of([(0, 0, 1, 0), (1, 2, 3, 0)], split=False)
    for splits in ((), ("train",), SPLITS):
        known = KnownTriples.of_graph(graph, *splits)
        assert as_triples(EVERY[known.contains(EVERY)]) == {(0, 0, 1), (1, 2, 3)}
        assert split_of(graph, EVERY).eq(-1).all()
    with pytest.raises(DataError, match="without splits"):
        KnownTriples.of_graph(graph, "valid")
    with pytest.raises(DataError, match="unknown split"):
        KnownTriples.of_graph(graph, "dev")


def test_the_splits_that_are_known_end_with_the_one_that_is_ranked() -> None:
    assert [splits_up_to(split) for split in (*SPLITS, "all")] == [SPLITS[:1], SPLITS[:2], SPLITS, SPLITS]


@settings(max_examples=40)
@given(triple_lists, st.sampled_from([1, 7]))
def test_as_many_nodes_and_relations_as_there_are(triples: list[Triple], at_once: int) -> None:
    """Numbers of triples would have 73 bits; nodes are sorted a few at a time, or one at a time."""
    far = torch.tensor([20_000_000, 2**18, 20_000_000])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known_module, "SORT_TRIPLES", at_once)
        patch.setattr(known_module, "BLOCK_TRIPLES", at_once)
        apart = KnownTriples.of(rows(triples) * far, num_nodes=100_000_001, num_relations=2**20)
        near = KnownTriples.of(rows(triples), num_nodes=NODES, num_relations=RELATIONS)
        assert torch.equal(apart.contains(EVERY * far), near.contains(EVERY))
        there = [torch.cat([rows([]), *known.triples()]) for known in (apart, near)]
        assert torch.equal(there[0], there[1] * far)
        key = EVERY[:, 0] * far[0] * 2**20 + EVERY[:, 1] * far[1]
        for one, other in ((apart.objects, near.objects), (apart.subjects, near.subjects)):
            found = one.expand(*one.ranges(key)), other.expand(*other.ranges(EVERY[:, 0] * RELATIONS + EVERY[:, 1]))
            assert torch.equal(found[0][0], found[1][0])
            assert torch.equal(found[0][1] // far[0], found[1][1])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_membership_does_not_synchronize_with_the_gpu() -> None:
    known, triples = KnownTriples.of(EVERY[:20].cuda(), num_nodes=NODES, num_relations=RELATIONS), EVERY.cuda()
    torch.cuda.set_sync_debug_mode("error")
    try:
        known.contains(triples)
    finally:
        torch.cuda.set_sync_debug_mode("default")
