"""Test splits: a partition with the given shares, a training triple for every node and relation, no leaks,
deterministic."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rgcn.errors import DataError, NothingToHoldOutError
from rgcn.graph import KnowledgeGraph, NodeLabels, Vocabulary, splitting
from rgcn.graph.splitting import RelationOverlap, find_relation_overlaps, label_hashes, smallest_hashes, triple_hashes
from rgcn.graph.vocabulary import StoredNames, name_hash

TRAIN, VALID, TEST = range(3)


def named(triples) -> KnowledgeGraph:
    return KnowledgeGraph.from_triples([(f"n{s}", f"r{r}", f"n{o}") for s, r, o in triples])


@st.composite
def graphs(draw, least: int = 1) -> KnowledgeGraph:
    """Graphs in which some relation is often another's inverse, or its copy."""
    node, relation = st.integers(0, draw(st.integers(1, 12))), st.integers(0, 3)
    triples = draw(st.lists(st.tuples(node, relation, node), min_size=least, max_size=60, unique=True))
    if draw(st.booleans()):
        triples += [(o, 4, s) for s, r, o in triples if r == 0]
    if draw(st.booleans()):
        triples += [(s, 5, o) for s, r, o in triples if r == 1]
    return named(triples)


def split_or_none(graph: KnowledgeGraph, *shares: float, **how) -> KnowledgeGraph | None:
    try:
        return graph.split(*shares, **how)
    except NothingToHoldOutError:
        return None


def leaks(graph: KnowledgeGraph) -> list[tuple[int, int]]:
    """Find leaks by definition: triples in two splits, between the same nodes, whose relations are equal or overlap."""
    same = {(one.relation, one.other) for one in find_relation_overlaps(graph.triples, graph.num_relations)}
    same |= {(r, r) for r in range(graph.num_relations)}
    found = []
    for i, (s, r, o) in enumerate(graph.triples.tolist()):
        for j, (s2, r2, o2) in enumerate(graph.triples.tolist()):
            apart = graph.triple_splits[i] != graph.triple_splits[j]
            if apart and {s, o} == {s2, o2} and ((r, r2) in same or (r2, r) in same):
                found.append((i, j))
    return found


@given(graphs(), st.integers(0, 5), st.booleans(), st.data())
@settings(max_examples=60, deadline=None)
def test_every_split_is_a_partition_that_covers_and_does_not_leak(graph, seed, in_time, data):
    years = st.lists(st.integers(1990, 1993), min_size=len(graph), max_size=len(graph))
    by = np.array(data.draw(years)) if in_time else None
    parted = split_or_none(graph, seed=seed, by=by)
    if parted is None:
        return
    assert parted.nodes == graph.nodes
    assert parted.relations == graph.relations
    assert np.array_equal(parted.triples, graph.triples)
    learned = parted.split_triples("train")
    assert set(learned[:, [0, 2]].ravel()) == set(graph.triples[:, [0, 2]].ravel())
    assert set(learned[:, 1]) == set(graph.triples[:, 1])
    assert (parted.triple_splits != TRAIN).any()
    assert not leaks(parted)
    again = graph.split(seed=seed, by=by)
    assert again.triple_splits.tobytes() == parted.triple_splits.tobytes()
    assert again.fingerprint == parted.fingerprint != graph.fingerprint


def test_shares_are_met_where_there_is_enough_to_hold_out():
    rng = np.random.default_rng(0)
    graph = named({tuple(row) for row in np.stack([rng.integers(0, 99, 2000) for _ in range(3)], 1).tolist()})
    graph = replace(graph, edge_weights=np.ones(len(graph)))
    for valid, test in ((0.1, 0.1), (0.0, 0.2), (0.3, 0.0), (0.05, 0.15)):
        sizes = np.bincount(graph.split(valid, test).triple_splits, minlength=3)
        assert np.abs(sizes[1:] - np.array([valid, test]) * len(graph)).max() <= 3
    assert (graph.split(seed=0).triple_splits != graph.split(seed=1).triple_splits).any()


@given(st.lists(st.integers(0, 30), min_size=40, max_size=40))
@settings(max_examples=30, deadline=None)
def test_the_latest_triples_are_test_and_those_before_valid(times):
    ring = [(i, 0, i + 1) for i in range(19)] + [(i, 1, i + 2) for i in range(18)]  # all nodes occur at time 0
    pairs = sorted({(i, j) for i in range(20) for j in range(i + 3, 20)})[:40]
    graph = named([*ring, *((i, 2, j) for i, j in pairs)])
    when = np.array([0] * len(ring) + [0, *times[1:]])
    parted = graph.split(by=when)
    splits = parted.triple_splits
    free = np.flatnonzero(when > 0)  # what no node or relation depends on
    for earlier, later in ((TRAIN, VALID), (VALID, TEST), (TRAIN, TEST)):
        before, after = when[free][splits[free] == earlier], when[free][splits[free] == later]
        assert not len(before) or not len(after) or before.max() <= after.min()
    assert np.array_equal(graph.split(by=when.astype(str)).triple_splits > 0, splits > 0) or when.max() > 9


def test_a_triple_of_an_early_time_is_not_held_out_because_it_occurs_again_late():
    both_ways = [*((i, 0, i + 1) for i in range(30)), *((i + 1, 1, i) for i in range(30))]
    graph = named([*both_ways, (5, 2, 9), (3, 2, 8), (7, 2, 12)])
    when = np.array([*[1] * 30, *[9] * 30, 3, 4, 5])
    parted = graph.split(0.02, 0.02, by=when)
    assert parted.triple_splits[:60].max() == TRAIN
    assert parted.triple_splits[60:].tolist() == [TRAIN, VALID, TEST]


def test_triples_that_are_held_out_already_stay_so():
    graph = named([(i, 0, (i + j) % 20) for i in range(20) for j in (1, 2, 3)])
    graph = replace(graph, triple_splits=np.arange(60) % 20 // 19 * TEST)
    parted = graph.split(0.2, 0.0)
    assert (parted.triple_splits[graph.triple_splits == TEST] == TEST).all()
    assert (parted.triple_splits == VALID).sum() == round(0.2 * 57)


def test_a_graph_that_needs_every_triple_raises_an_error_and_a_small_one_holds_out_one_per_split():
    with pytest.raises(NothingToHoldOutError, match="none of 4 triples can be held out"):
        named([(0, 0, i) for i in range(1, 5)]).split()
    small = named([(i, 0, j) for i in range(4) for j in range(i + 1, 4)])
    assert np.bincount(small.split().triple_splits).tolist() == [4, 1, 1]


@pytest.mark.parametrize(
    ("shares", "by", "words"),
    [((0.5, 0.5), None, "below 1"), ((-0.1, 0.1), None, "at least 0"), ((0.1, 0.1), [1], "a time for each")],
)
def test_invalid_splits_are_refused(shares, by, words):
    with pytest.raises(DataError, match=words):
        named([(0, 0, 1), (1, 0, 2)]).split(*shares, by=by)


def test_a_missing_time_is_refused():
    with pytest.raises(DataError, match="triple 1 "):
        named([(0, 0, 1), (1, 0, 2)]).split(by=[1.0, np.nan])


def test_the_split_does_not_depend_on_the_hash_seed():
    code = (
        "from rgcn import KnowledgeGraph as K; g = K.from_triples([(f'n{i}', f'r{i%3}', f'n{i*j%17}') for i in "
        "range(17) for j in (2, 3, 5)]); print(g.split(seed=3).fingerprint)"
    )
    seen = {
        subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": hash_seed},
                       capture_output=True, text=True, check=True).stdout
        for hash_seed in ("1", "2")
    }  # fmt: skip
    assert len(seen) == 1


@given(st.lists(st.integers(0, 4), min_size=2, max_size=80), st.floats(0.01, 0.9), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_labels_are_held_out_class_by_class(classes, share, seed):
    numbers = np.unique(classes, return_inverse=True)[1]
    names = Vocabulary(map(str, range(numbers.max() + 1)), kind="class")
    labels = NodeLabels(np.arange(len(classes)), numbers, names, np.zeros(len(classes)))
    sizes = np.bincount(numbers)
    if sizes.max() == 1:
        with pytest.raises(NothingToHoldOutError, match="the only one of its class"):
            labels.hold_out("test", share, seed)
        return
    parted = labels.hold_out("test", share, seed)
    held_out = np.bincount(numbers[parted.splits == TEST], minlength=len(sizes))
    assert held_out.sum() > 0
    assert (held_out < sizes).all()
    assert np.array_equal(parted.splits, labels.hold_out("test", share, seed).splits)
    if np.rint(share * sizes).max() > 0 and held_out.sum() > len(sizes):
        assert (np.abs(held_out - share * sizes) <= 1).all()


def test_times_are_cut_with_the_triples_and_no_part_of_a_graph_without_them():
    graph = named([(0, 0, 1), (1, 0, 2), (2, 1, 0)])
    timed = replace(graph, triple_times=np.array([3.0, 1.0, 2.0]))
    assert timed.fingerprint != graph.fingerprint == replace(timed, triple_times=None).fingerprint
    assert timed.without_relations(["r0"]).triple_times.tolist() == [2.0]


# -- Overlaps of relations agree with their definition, in bounded memory.

TRIPLES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5), st.integers(0, 4)), max_size=40)


def by_definition(triples: list[tuple[int, int, int]], above: float) -> set[RelationOverlap]:
    pairs: dict[int, set[tuple[int, int]]] = {}
    for s, r, o in triples:
        pairs.setdefault(r, set()).add((s, o))
    found = set()
    for r, pairs_of_r in pairs.items():
        for q, theirs in pairs.items():
            for inverse in (False, True):
                shared = pairs_of_r & ({(o, s) for s, o in theirs} if inverse else theirs)
                if len(shared) / len(pairs_of_r) > above and (inverse or r != q):
                    found.add(RelationOverlap(r, q, len(shared) / len(pairs_of_r), inverse))
    return found


@given(TRIPLES, st.sampled_from([0.0, 0.3, 0.5, 0.9]), st.sampled_from([1, 7, 1 << 22]))
def test_overlaps_are_those_of_the_definition(triples, above, at_a_time):
    array = np.array(triples, dtype=np.int64).reshape(-1, 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splitting, "BLOCK_PAIRS", at_a_time)
        found = find_relation_overlaps(array, 6, above=above)
        some = find_relation_overlaps(array, 6, above=above, of=[1, 4])
    assert len(found) == len(set(found))
    assert set(found) == by_definition(triples, above)
    assert some == [overlap for overlap in found if overlap.relation in (1, 4)]


def test_ten_thousand_relations_and_a_million_triples():
    generator = np.random.default_rng(0)
    triples = generator.integers(0, 10_000, (1_000_000, 3))
    leaking = triples[triples[:, 1] == 7][:, [2, 1, 0]]
    leaking[:, 1] = 9_999
    triples = np.concatenate([triples[triples[:, 1] != 9_999], leaking])
    assert find_relation_overlaps(triples, 10_000) == [(7, 9_999, 1.0, True), (9_999, 7, 1.0, True)]


# -- Draws by a hash of names: the same whatever the numbers of the names, and wherever these lie.

NAMES = [*(f"node {i} of a few" for i in range(60)), "", "é", "a name of more than eight bytes", "\ud800 alone"]


def test_a_hash_depends_on_the_name_alone():
    ids = np.array([3, 3, 61, 0, 59, 62])
    keys = Vocabulary(NAMES).hashes(ids)
    assert [int(key) >> 32 for key in keys] == [name_hash(NAMES[i].encode()) for i in ids]
    assert (Vocabulary(NAMES[::-1]).hashes(len(NAMES) - 1 - ids) == keys).all()
    assert (Vocabulary(StoredNames.of(NAMES[:-1])).hashes(ids) == keys).all()
    assert len(np.unique(Vocabulary(NAMES).hashes(np.arange(len(NAMES))))) == len(NAMES)


def test_drawn_triples_do_not_depend_on_their_order():
    rng = np.random.default_rng(0)
    rows = list({(f"n{s}", f"r{r}", f"n{o}") for s, r, o in rng.integers(0, (20, 3, 20), (200, 3)).tolist()})
    labels = {f"n{i}": f"class {i % 3}" for i in range(20)}

    def chosen(rows, labels):
        graph = KnowledgeGraph.from_triples(rows, labels=labels)
        triples = graph.named(graph.triples[smallest_hashes(triple_hashes(graph, graph.triples), 15)])
        nodes, classes = graph.labels.of("train")
        some = smallest_hashes(label_hashes(graph, nodes, classes), 7)
        return list(triples), [graph.nodes[node] for node in nodes[some].tolist()]

    first = chosen(rows, labels)
    for _ in range(3):
        rng.shuffle(rows)
        mixed = list(labels.items())
        rng.shuffle(mixed)
        assert chosen([tuple(row) for row in rows], dict(mixed)) == first
    assert len(set(first[0])) == 15
    # Subject and object, and the relation, all count.
    graph = KnowledgeGraph.from_triples([("a", "r", "b"), ("b", "r", "a"), ("a", "s", "b")])
    assert len(set(triple_hashes(graph, graph.triples).tolist())) == 3


def test_every_triple_is_as_likely_to_be_drawn():
    """In a hundred graphs, a tenth of the triples is drawn; each tenth of the rows is drawn about equally often."""
    counts = np.zeros(10)
    for number in range(100):
        graph = KnowledgeGraph.from_triples([(f"s{number}-{i}", "r", f"o{i % 7}") for i in range(200)])
        counts += np.bincount(smallest_hashes(triple_hashes(graph, graph.triples), 20) // 20, minlength=10)
    assert counts.sum() == 2000
    assert (np.abs(counts - 200) < 5 * np.sqrt(200)).all()
