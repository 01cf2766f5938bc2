"""Test the entries of the adjacency operator, restriction to targets, and dropped edges."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from naive import SmallGraph, naive_adjacency, small_graphs
from rgcn.adjacency import ReceptiveField, RelationalAdjacency, operator
from rgcn.errors import ConfigError, DataError
from rgcn.graph import KnowledgeGraph
from rgcn.nn.relational_graph_conv import RelationalGraphConv

EDGE_FIELDS = ("target", "relation", "source", "origin")


def operator_of(graph):
    return RelationalAdjacency.from_triples(
        graph.tensor(), graph.num_nodes, graph.num_relations, edge_weights=graph.triple_weights(), **graph.choices()
    )


def near(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)


@given(graph=small_graphs())
def test_entries_equal_the_naive_ones(graph):
    near(operator_of(graph).to_dense(), naive_adjacency(graph))


@given(graph=small_graphs())
def test_each_triple_is_one_edge_one_inverse_and_each_node_one_self_loop(graph):
    structure = operator_of(graph).structure
    expected = Counter((o, r, s) for s, r, o in graph.triples)
    if graph.inverse:
        expected += Counter((s, r + graph.num_relations, o) for s, r, o in graph.triples)
    if graph.self_loops:
        expected += Counter((n, graph.num_edge_relations - 1, n) for n in range(graph.num_nodes))
    columns = (structure.target.tolist(), structure.relation.tolist(), structure.source.tolist())
    edges = list(zip(*columns, strict=True))
    assert Counter(edges) == expected
    assert edges == sorted(edges)
    origins = Counter(structure.origin.tolist())
    assert origins == Counter(
        [*list(range(len(graph.triples))) * (2 if graph.inverse else 1)]
        + [len(graph.triples) + n for n in range(graph.num_nodes) if graph.self_loops]
    )


@given(graph=small_graphs())
def test_rows_of_a_normalized_operator_sum_to_one_where_there_is_an_edge_of_positive_weight(graph):
    dense = operator_of(replace(graph, normalization="relation", aggregation="sum")).to_dense()
    sums = dense.sum(2)
    near(sums, (sums > 0).double())
    mean = operator_of(replace(graph, normalization="relation", aggregation="mean")).to_dense().sum((0, 2))
    near(mean, (mean > 0).double())


def test_normalization_by_hand():
    # b gets messages from a under r (twice) and c under q; weights 1, 3 and 2
    graph = SmallGraph([(0, 0, 1), (0, 0, 1), (2, 1, 1)], 3, 2, inverse=False, self_loops=True)
    weights = torch.tensor([1.0, 3.0, 2.0], dtype=torch.float64)

    def entries(normalization, aggregation="sum"):
        adjacency = RelationalAdjacency.from_triples(
            graph.tensor(),
            3,
            2,
            edge_weights=weights,
            inverse=False,
            normalization=normalization,
            aggregation=aggregation,
        )
        dense = adjacency.to_dense()
        return [round(float(dense[r, 1, s]), 6) for r, s in ((0, 0), (1, 2), (2, 1))]

    assert entries("none") == [4.0, 2.0, 1.0]
    assert entries("relation") == [1.0, 1.0, 1.0]
    assert entries("node") == [round(4 / 7, 6), round(2 / 7, 6), round(1 / 7, 6)]
    assert entries("direction") == [round(4 / 6, 6), round(2 / 6, 6), 1.0]
    assert entries("relation", "mean") == [round(1 / 3, 6)] * 3


def test_from_graph_reads_the_triples_weights_and_splits_of_a_knowledge_graph():
    kg = KnowledgeGraph.from_triples(
        [("a", "r", "b"), ("c", "r", "b"), ("c", "q", "a")], edge_weights=[1, 3, 2], triple_splits=[0, 0, 2]
    )
    near(RelationalAdjacency.from_graph(kg).to_dense()[0, 1], torch.tensor([0.25, 0.0, 0.75]))
    train = RelationalAdjacency.from_graph(kg, split="train", normalization="none")
    assert train.num_edges == 2 * 2 + 3
    near(train.to_dense()[0, 1], torch.tensor([1.0, 0.0, 3.0]))
    test = RelationalAdjacency.from_graph(kg, split="test", normalization="none", inverse=False, self_loops=False)
    near(test.to_dense()[1, 0], torch.tensor([0.0, 0.0, 2.0]))


def test_weights_keep_their_precision():
    triples = torch.tensor([[0, 0, 1]])
    assert RelationalAdjacency.from_triples(triples, 2, 1).weight.dtype == torch.float32
    weights = torch.ones(1, dtype=torch.float64)
    adjacency = RelationalAdjacency.from_triples(triples, 2, 1, edge_weights=weights)
    assert adjacency.weight.dtype == torch.float64
    assert adjacency.to(torch.float32).weight.dtype == torch.float32


@given(graph=small_graphs())
def test_weights_are_normalized_in_the_wider_precision_they_are_cast_to(graph):
    given = graph.triple_weights()
    given = None if given is None else given.float()

    def made(weights):
        sizes = graph.num_nodes, graph.num_relations
        return RelationalAdjacency.from_triples(graph.tensor(), *sizes, edge_weights=weights, **graph.choices())

    narrow = made(given)
    exact = made(torch.ones(len(graph.triples), dtype=torch.float64) if given is None else given.double())
    near(narrow.to(torch.float64).to_dense(), exact.to_dense())
    torch.testing.assert_close(narrow.to(torch.float64).weight.float(), narrow.weight)
    assert torch.equal(narrow.to(torch.float16).weight, narrow.weight.half())  # rounded once, not summed in float16
    if graph.self_loops:  # a part keeps the weights that it had in the whole
        rest, _, loops = narrow.split_self_loops()
        torch.testing.assert_close(rest.to(torch.float64).weight.float(), rest.weight)
        assert len(loops) + rest.num_edges == narrow.num_edges


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"normalization": "row"}, ConfigError, "unknown normalization 'row': choose 'relation'"),
        ({"aggregation": "max"}, ConfigError, "unknown aggregation 'max'"),
        ({"edge_weights": torch.ones(3)}, DataError, "1 edge weights are needed"),
        ({"edge_weights": torch.ones(1, dtype=torch.int64)}, DataError, "floating-point"),
    ],
)
def test_invalid_options_raise_an_error(arguments, error, words):
    with pytest.raises(error, match=words):
        RelationalAdjacency.from_triples(torch.tensor([[0, 0, 1]]), 2, 1, **arguments)


def test_triples_of_wrong_shape_or_type_raise_an_error():
    for triples in (torch.zeros(3, dtype=torch.int64), torch.zeros(2, 2, dtype=torch.int64), torch.zeros(2, 3)):
        with pytest.raises(DataError, match="int64"):
            RelationalAdjacency.from_triples(triples, 2, 1)


@pytest.mark.parametrize("transient", [False, True])
@pytest.mark.parametrize(
    ("row", "words"),
    [
        ((0, 2, 1), r"triple 2 is \(0, 2, 1\), but relations are numbered 0 to 1"),
        ((0, -1, 1), r"triple 2 is \(0, -1, 1\), but relations are numbered 0 to 1"),
        ((3, 0, 1), r"triple 2 is \(3, 0, 1\), but nodes are numbered 0 to 2"),
        ((0, 0, 3), r"triple 2 is \(0, 0, 3\), but nodes are numbered 0 to 2"),
        ((0, 0, -1), r"triple 2 is \(0, 0, -1\), but nodes are numbered 0 to 2"),
        ((0, 0, 2**62), "nodes are numbered 0 to 2"),
    ],
)
def test_an_id_out_of_range_raises_an_error_that_names_its_row(row, words, transient):
    triples = torch.tensor([(0, 0, 1), (2, 1, 2), row, (9, 9, 9)])
    with pytest.raises(DataError, match=words):
        RelationalAdjacency.from_triples(triples, 3, 2, transient=transient)


def test_ids_of_an_empty_graph():
    none = torch.empty(0, 3, dtype=torch.int64)
    assert RelationalAdjacency.from_triples(none, 0, 0).num_edges == 0
    with pytest.raises(DataError, match="the graph has no relations"):
        RelationalAdjacency.from_triples(torch.tensor([[0, 0, 0]]), 1, 0)
    with pytest.raises(DataError, match="cannot have -1 nodes"):
        RelationalAdjacency.from_triples(none, -1, 0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_an_id_out_of_range_raises_an_error_on_a_gpu():
    with pytest.raises(DataError, match=r"triple 1 is \(0, 5, 1\), but relations are numbered 0 to 1"):
        RelationalAdjacency.from_triples(torch.tensor([[0, 0, 1], [0, 5, 1]], device="cuda"), 2, 2)


def test_weights_and_masks_of_wrong_length_raise_an_error():
    adjacency = RelationalAdjacency.from_triples(torch.tensor([[0, 0, 1]]), 2, 1)
    with pytest.raises(DataError, match="4 weights are needed, one per edge"):
        adjacency.with_raw_weights(torch.ones(3))
    with pytest.raises(DataError, match="a mask has 3 entries"):
        adjacency.masked(torch.ones(2))


# -- restriction ---------------------------------------------------------------------------------------


@given(graph=small_graphs(), data=st.data())
def test_restricting_keeps_the_rows_of_the_targets_and_exactly_the_sources_they_read(graph, data):
    targets = data.draw(st.lists(st.integers(0, graph.num_nodes - 1), unique=True))
    adjacency = operator_of(graph)
    whole = adjacency.to_dense()
    smaller, sources = adjacency.restrict(torch.tensor(targets, dtype=torch.int64))
    rows = whole[:, targets, :]
    assert torch.equal(smaller.to_dense(), rows[:, :, sources])
    structure = adjacency.structure
    read = {int(s) for t, s in zip(structure.target, structure.source, strict=True) if int(t) in targets}
    assert sources.tolist() == sorted(read)


@given(graph=small_graphs(), data=st.data())
def test_masking_a_restriction_equals_restricting_a_masked_operator(graph, data):
    targets = torch.tensor(data.draw(st.lists(st.integers(0, graph.num_nodes - 1), unique=True)), dtype=torch.int64)
    adjacency = operator_of(graph)
    keep = adjacency.draw_mask(0.4, 0.3, generator=torch.Generator().manual_seed(graph.seed))
    one, _ = adjacency.masked(keep).restrict(targets)
    other, _ = adjacency.restrict(targets)
    near(other.masked(keep).to_dense(), one.to_dense())


def test_repeated_or_unknown_targets_raise_an_error():
    adjacency = operator_of(SmallGraph([(0, 0, 1)], 2, 1))
    with pytest.raises(DataError, match="given twice"):
        adjacency.restrict(torch.tensor([1, 1]))
    for targets, words in (
        ([0, -1], "target 1 is -1, but targets are numbered 0 to 1"),
        ([2], "target 0 is 2"),
        ([True, False], "must be int64"),
    ):
        with pytest.raises(DataError, match=words):
            adjacency.restrict(torch.tensor(targets))


def test_receptive_field_of_a_chain_grows_by_one_node_per_layer():
    graph = SmallGraph([(0, 0, 1), (1, 0, 2), (2, 0, 3)], 4, 1, inverse=False)
    field = ReceptiveField.of(operator_of(graph), torch.tensor([3]), 2)
    assert field.inputs.tolist() == [1, 2, 3]
    assert [(layer.num_targets, layer.num_sources) for layer in field.layers] == [(2, 3), (1, 2)]


@given(graph=small_graphs())
def test_self_loops_and_the_rest_add_up_to_the_operator(graph):
    adjacency = operator_of(graph)
    if not graph.self_loops:
        with pytest.raises(ConfigError, match="no self-loops"):
            adjacency.split_self_loops()
        return
    rest, pattern, value = adjacency.split_self_loops()
    whole = adjacency.to_dense()
    assert torch.equal(rest.to_dense(), whole[:-1])
    loops = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
    assert torch.equal(loops.index_put((pattern.row, pattern.column), value, accumulate=True), whole[-1])


# -- dropping edges ------------------------------------------------------------------------------------


@given(graph=small_graphs(), data=st.data())
def test_masked_operator_equals_that_of_the_remaining_triples(graph, data):
    flags = st.lists(st.booleans(), min_size=len(graph.triples), max_size=len(graph.triples))
    triples_kept = data.draw(flags)
    loops_kept = data.draw(st.lists(st.booleans(), min_size=graph.num_nodes, max_size=graph.num_nodes))
    masked = operator_of(graph).masked(torch.tensor(triples_kept + loops_kept, dtype=torch.float64))
    # As if the triples did not exist: their edges and inverses are gone, and do not count in the normalization.
    kept = [i for i, keep in enumerate(triples_kept) if keep]
    fewer = replace(graph, triples=[graph.triples[i] for i in kept])
    loops = torch.tensor(loops_kept, dtype=torch.float64)
    near(masked.to_dense(), naive_adjacency(fewer, graph.triple_weights()[kept], loops))


def test_mask_drops_triples_and_self_loops_each_at_its_own_rate():
    triples = torch.stack([torch.arange(40_000) % 20_000, torch.zeros(40_000).long(), torch.arange(40_000) % 7], 1)
    adjacency = RelationalAdjacency.from_triples(triples, 20_000, 1)
    keep = adjacency.draw_mask(0.3, 0.1, generator=torch.Generator().manual_seed(1))
    assert set(keep.tolist()) == {0.0, 1.0}
    for part, rate in ((keep[:40_000], 0.3), (keep[40_000:], 0.1)):
        deviation = (rate * (1 - rate) / len(part)) ** 0.5
        assert abs(float(1 - part.mean()) - rate) < 5 * deviation


def test_mask_of_rate_zero_drops_nothing():
    adjacency = operator_of(SmallGraph([(0, 0, 1)] * 30, 20, 1))
    assert (adjacency.draw_mask(0.0, 0.0) == 1).all()
    keep = adjacency.draw_mask(0.9, 0.0, generator=torch.Generator().manual_seed(0))
    assert (keep[30:] == 1).all()
    assert (keep[:30] == 0).any()


def test_mask_depends_on_the_generator_only():
    adjacency = operator_of(SmallGraph([(0, 0, 1)] * 100, 20, 1))
    draws = [adjacency.draw_mask(0.5, 0.5, generator=torch.Generator().manual_seed(s)) for s in (7, 7, 8)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


@pytest.mark.parametrize("rates", [(1.0, 0.0), (-0.1, 0.0), (0.0, 1.0)])
def test_invalid_dropout_rates_raise_an_error(rates):
    with pytest.raises(ConfigError, match="dropout rate"):
        operator_of(SmallGraph([(0, 0, 1)], 2, 1)).draw_mask(*rates)


def test_dropping_everything_leaves_an_empty_operator_and_no_nan():
    adjacency = operator_of(SmallGraph([(0, 0, 1), (1, 0, 0)], 2, 1, aggregation="mean"))
    assert (adjacency.masked(torch.zeros(4)).to_dense() == 0).all()


def test_operator_does_not_share_memory_with_the_graph():
    kg = KnowledgeGraph.from_triples([("a", "r", "b")], edge_weights=[2.0])
    adjacency = RelationalAdjacency.from_graph(kg)
    adjacency.raw.zero_()
    assert np.array_equal(kg.edge_weights, [2.0])


@given(graph=small_graphs())
def test_placed_edges_equal_sorted_edges(graph):
    counts = len(graph.triples), graph.num_nodes, graph.num_relations
    sizes = operator.EdgeOptions(graph.inverse, graph.self_loops).sizes(*counts)
    placed = operator._place_edges(graph.tensor(), sizes)
    by_sorting = operator.sort_edges([(torch.arange(counts[0]), graph.tensor())], sizes)
    for name in ("pointer", *EDGE_FIELDS):
        assert getattr(placed, name).dtype == getattr(by_sorting, name).dtype == torch.int32
        assert torch.equal(getattr(placed, name), getattr(by_sorting, name))


def test_edges_of_a_target_with_many_edges_are_sorted(monkeypatch):
    rng = np.random.default_rng(0)
    triples = torch.from_numpy(rng.integers(0, (40, 5, 3), (3000, 3)))
    sorted_ = RelationalAdjacency.from_triples(triples, 40, 5)
    monkeypatch.setattr(operator, "_is_worth_compiling", lambda triples: True)
    placed = RelationalAdjacency.from_triples(triples, 40, 5)
    for name in EDGE_FIELDS:
        assert torch.equal(getattr(placed.structure, name), getattr(sorted_.structure, name))
    assert torch.equal(placed.weight, sorted_.weight)
    assert torch.equal(placed.raw, sorted_.raw)


def test_targets_of_a_large_graph_are_computed_on_demand(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    triples = torch.stack([torch.randint(high, (9000,), generator=generator) for high in (500, 7, 500)], dim=1)
    monkeypatch.setattr(operator, "_is_worth_compiling", lambda triples: True)
    whole = RelationalAdjacency.from_triples(triples, 500, 7)
    monkeypatch.setattr(operator, "LARGE_TRIPLES", 0)
    found = RelationalAdjacency.from_triples(triples, 500, 7)
    part, expected = (one.restrict(torch.arange(3, 90, 7)) for one in (found, whole))
    # The slot of the computed targets; taking rows does not compute them.
    assert "row" not in vars(found.structure.pattern)
    assert torch.equal(found.structure.target, whole.structure.target)
    assert found.structure.target.dtype == whole.structure.target.dtype
    for name in EDGE_FIELDS:
        assert torch.equal(getattr(part[0].structure, name), getattr(expected[0].structure, name))


@given(graph=small_graphs(), data=st.data())
def test_groups_and_selections_computed_from_pointers(graph, data):
    structure = operator_of(graph).structure
    edges = list(zip(*(getattr(structure, name).tolist() for name in EDGE_FIELDS), strict=True))
    keys = {"node": lambda e: e[0], "relation": lambda e: e[:2], "direction": lambda e: (e[0], kind(e[1]))}

    def kind(relation):
        loop = graph.self_loops and relation == graph.num_edge_relations - 1
        return 2 if loop else int(graph.inverse and relation >= graph.num_relations)

    for rule, key in keys.items():
        groups = structure.groups(rule)
        members = [edges[int(e)] for e in groups.column]  # every edge, in the stored order
        assert members == edges
        rows = groups.row.tolist()
        for i in range(1, len(edges)):
            assert (rows[i] == rows[i - 1]) == (key(edges[i]) == key(edges[i - 1]))
    kept = [i for i in range(len(edges)) if data.draw(st.booleans())]
    part = structure.select_edges(torch.tensor(kept, dtype=torch.int64))
    assert list(zip(*(getattr(part, name).tolist() for name in EDGE_FIELDS), strict=True)) == [edges[i] for i in kept]
    if graph.self_loops:
        apart = structure.self_loop_split
        loops = [edges[i] for i in apart.loop_edges.tolist()]
        assert list(zip(apart.loops.row.tolist(), apart.loops.column.tolist(), strict=True)) == [
            (target, source) for target, _, source, _ in loops
        ]
        assert [edges[i] for i in apart.rest_edges.tolist()] == [edge for edge in edges if edge not in loops]


def test_most_of_a_structure_needs_no_targets_of_edges():
    triples = torch.tensor([[0, 0, 1], [2, 1, 1], [1, 0, 1]])
    adjacency = RelationalAdjacency.from_triples(triples, 3, 2)
    structure = adjacency.structure
    others = [
        structure.select_edges(torch.tensor([0, 2])),
        structure.to("cpu"),
        replace(structure, node_ids=torch.arange(3)),
    ]
    others += [adjacency.restrict(torch.tensor([1]))[0].structure, structure.self_loop_split.rest]
    for made in (structure, *others):
        _ = made.groups("node"), made.groups("relation"), made.mix_target_pairs_by_node
        assert "row" not in vars(made.pattern)  # where targets are kept
    assert structure.target.tolist() == [0, 0, 1, 1, 1, 1, 1, 2, 2]


def test_caches_are_freed_with_their_structure():
    adjacency = RelationalAdjacency.from_triples(torch.tensor([[0, 0, 1], [2, 1, 1]]), 3, 2)
    layers = RelationalGraphConv.one_hot(adjacency, 4), RelationalGraphConv(4, 4, 2)
    layers[1](layers[0](None, adjacency), adjacency).sum().backward()
    there = [weakref.ref(adjacency.structure), weakref.ref(adjacency.structure.pattern)]
    assert all(ref() is not None for ref in there)
    del adjacency
    gc.collect()
    assert [ref() for ref in there] == [None, None]
