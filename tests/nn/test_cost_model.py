"""Test the cost model against counts by hand, and the choice of the evaluation order."""

from __future__ import annotations

import pytest
import torch

from naive import SmallGraph, naive_adjacency, naive_layer
from rgcn.adjacency import RelationalAdjacency
from rgcn.nn import Basis, BlockDiagonal, Diagonal, Full, RelationalGraphConv
from rgcn.nn.decompositions import Cost

# Nodes 0, 1, 2 → 3 under relation 0; 0 → 3 and 0 → 4 under relation 1; neither inverses nor self-loops.
# 5 edges; (relation, source) pairs: (0, 0), (0, 1), (0, 2), (1, 0) = 4; (relation, target): (0, 3), (1, 3), (1, 4) = 3.
TRIPLES = [(0, 0, 3), (1, 0, 3), (2, 0, 3), (0, 1, 3), (0, 1, 4)]
NODES, RELATIONS, EDGES, SOURCE_PAIRS, TARGET_PAIRS = 6, 2, 5, 4, 3


def operator(triples, num_nodes, num_relations, transient=False):
    return RelationalAdjacency.from_triples(
        torch.tensor(triples), num_nodes, num_relations, inverse=False, self_loops=False, transient=transient
    )


def cost_of(decomposition, width_in, width_out, order):
    layer = RelationalGraphConv(
        width_in, width_out, RELATIONS, decomposition=decomposition, inverse=False, self_loops=False
    )
    return layer.weights.cost(order, operator(TRIPLES, NODES, RELATIONS).structure)


def words(*forward_and_backward):
    """Return the bytes of these numbers and indices, 4 bytes each."""
    return 4 * sum(forward_and_backward)


def mixing(rows, columns, entries, width, per_entry):
    """Return the number of words of a sparse product and of its transpose: `per_entry` is the index and, if there is
    one, the value."""
    forward = entries * (width + per_entry) + rows * (1 + width)
    backward = entries * (width + per_entry) + columns * (1 + width)
    return forward + backward


def picking(picks, rows, width):
    """Return the number of words to copy rows (read, write, index) and to sum their gradients (read, index; pointer,
    write)."""
    return picks * (2 * width + 1) + picks * (width + 1) + rows * (1 + width)


@pytest.mark.parametrize(
    ("decomposition", "width_in", "width_out", "size"),
    [(Full(), 3, 2, 3 * 2), (BlockDiagonal(2), 4, 6, 2 * 2 * 3)],
    ids=["full", "blocks"],
)
def test_cost_of_full_and_block_matrices_by_hand(decomposition, width_in, width_out, size):
    # size: numbers of one relation's blocks, and multiply-adds of one row with them
    def products(rows, matrices):  # forward, for the rows, for the matrices: each touches all three, and the pointers
        return 3 * (rows * (width_in + width_out) + matrices * size + matrices)

    horizontal = cost_of(decomposition, width_in, width_out, "horizontal")
    # rows picked back: 4 · in; products: 3 · 4 · size; mixing there and back: 2 · 5 · out
    assert horizontal.operations == 4 * width_in + 3 * 4 * size + 2 * 5 * width_out
    assert horizontal.bytes == words(picking(4, 6, width_in), products(4, 2), mixing(6, 4, 5, width_out, per_entry=2))
    vertical = cost_of(decomposition, width_in, width_out, "vertical")
    # mixing into 3 pairs: 2 · 5 · in; products: 3 · 3 · size; adding up the pairs: 2 · 3 · out
    assert vertical.operations == 2 * 5 * width_in + 3 * 3 * size + 2 * 3 * width_out
    assert vertical.bytes == words(
        mixing(3, 6, 5, width_in, per_entry=2), products(3, 2), mixing(6, 3, 3, width_out, per_entry=1)
    )
    edgewise = cost_of(decomposition, width_in, width_out, "edgewise")
    # rows and matrices are selected for each of 5 edges; the backward pass sums their gradients
    assert edgewise.operations == 5 * width_in + 5 * size + 3 * 5 * size + 2 * 5 * width_out
    assert edgewise.bytes == words(
        picking(5, 6, width_in), picking(5, 2, size), products(5, 5), mixing(6, 5, 5, width_out, per_entry=2)
    )


def test_cost_of_bases_by_hand():
    bases, width_in, width_out = 2, 3, 5

    def product(rows, i, o):  # and the number of rows
        return 3 * (rows * i + i * o + rows * o + 1)

    def combining(pairs, nodes, width):  # forward, for the rows, for the coefficients
        return 3 * (nodes * bases * width + pairs * width + RELATIONS * bases + pairs + nodes)

    horizontal = cost_of(Basis(bases), width_in, width_out, "horizontal")
    # X V for 6 sources and 2 bases; combined for 4 pairs; mixed over 5 edges
    assert horizontal.operations == 3 * 6 * 3 * 2 * 5 + 3 * 4 * 2 * 5 + 2 * 5 * 5
    assert horizontal.bytes == words(product(6, 3, 10), combining(4, 6, 5), mixing(6, 4, 5, 5, per_entry=2))
    vertical = cost_of(Basis(bases), width_in, width_out, "vertical")
    # mixed over 5 edges into 3 pairs; spread over 2 bases; one product for 6 targets
    assert vertical.operations == 2 * 5 * 3 + 3 * 3 * 2 * 3 + 3 * 6 * 2 * 3 * 5
    assert vertical.bytes == words(mixing(3, 6, 5, 3, per_entry=2), combining(3, 6, 3), product(6, 6, 5))
    edgewise = cost_of(Basis(bases), width_in, width_out, "edgewise")
    # coefficients picked for 5 edges; for each basis a mix, its transpose, and a dot product an edge; one product
    assert edgewise.operations == 5 * 2 + 2 * (2 * 5 * 3 + 5 * 3) + 3 * 6 * 2 * 3 * 5
    dots = 5 * (2 * 3 + 2 + 1)
    assert edgewise.bytes == words(picking(5, 2, 2), 2 * mixing(6, 6, 5, 3, per_entry=2), 2 * dots, product(6, 6, 5))


@pytest.mark.parametrize("order", ["horizontal", "vertical", "edgewise"])
def test_cost_of_a_diagonal_by_hand_is_one_pass_whatever_the_order(order):
    width = 3
    cost = cost_of(Diagonal(), width, width, order)
    assert cost.operations == 3 * 2 * 5 * width  # value · scale · x: forward, for x, for the scales
    there = 5 * (width + 3) + 2 * width + 6 * (1 + width)  # a row, two indices, a value; the scales; a pointer, a sum
    for_scales = 5 * (2 * width + 3) + 2 * (1 + width)
    assert cost.bytes == words(there, there, for_scales)


def test_costs_add_up_and_weigh_computing_against_moving():
    assert Cost(1, 2) + Cost(10, 20) == Cost(11, 22)
    assert 3 * Cost(1, 2) == Cost(3, 6)
    assert Cost(0, 100).total == Cost(int(100 * Cost.OPERATIONS_PER_BYTE), 0).total


# -- the choice ----------------------------------------------------------------------------------------

FEW_SOURCES = [(s, r, t) for s in range(2) for r in range(3) for t in range(2, 40)]  # 6 pairs to project, or 114
FEW_TARGETS = [(t, r, s) for s, r, t in FEW_SOURCES]
# as many pairs of one side as of the other, four edges for each
BALANCED = [(n, r, (n + r + 5 * k) % 40) for n in range(40) for r in range(3) for k in range(4)]


def choice(decomposition, triples, width_in, width_out, transient=False):
    adjacency = operator(triples, 40, 3, transient)
    layer = RelationalGraphConv(width_in, width_out, 3, decomposition=decomposition, inverse=False, self_loops=False)
    return layer.weights, adjacency


MIXED = [Full(), Basis(2), BlockDiagonal(2, self_loop_apart=False)]


@pytest.mark.parametrize(
    ("triples", "width_in", "width_out", "expected"),
    [
        (BALANCED, 64, 4, "horizontal"),  # wide in, narrow out: project first, then mix what is narrow
        (BALANCED, 4, 64, "vertical"),  # narrow in, wide out: mix first
    ],
)
@pytest.mark.parametrize("decomposition", MIXED, ids=str)
def test_the_narrow_side_is_mixed(decomposition, triples, width_in, width_out, expected):
    weights, adjacency = choice(decomposition, triples, width_in, width_out)
    assert weights.cheapest(adjacency.structure) == expected


@pytest.mark.parametrize(
    ("triples", "expected"), [(FEW_SOURCES, "horizontal"), (FEW_TARGETS, "vertical")], ids=["sources", "targets"]
)
@pytest.mark.parametrize("decomposition", MIXED, ids=str)
def test_the_side_with_fewer_pairs_is_projected(decomposition, triples, expected):
    weights, adjacency = choice(decomposition, triples, 16, 16)
    assert weights.cheapest(adjacency.structure) == expected


@pytest.mark.parametrize("triples", [FEW_SOURCES, FEW_TARGETS, BALANCED])
@pytest.mark.parametrize(("width_in", "width_out"), [(4, 64), (64, 4), (16, 16)])
@pytest.mark.parametrize("decomposition", MIXED, ids=str)
def test_auto_takes_the_least_cost_and_every_order_equals_the_naive_definition(
    decomposition, triples, width_in, width_out, monkeypatch
):
    weights, adjacency = choice(decomposition, triples, width_in, width_out)
    totals = {order: weights.cost(order, adjacency.structure).total for order in ("horizontal", "vertical")}
    chosen = weights.cheapest(adjacency.structure)
    assert totals[chosen] == min(totals.values())
    taken = []
    for order in totals:
        evaluate = getattr(weights, order)
        monkeypatch.setattr(weights, order, lambda *given, o=order, e=evaluate: taken.append(o) or e(*given))
    graph = SmallGraph(triples, 40, 3, inverse=False, self_loops=False)
    x = torch.randn(40, width_in, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weights.double()
    expected = naive_layer(naive_adjacency(graph), x, weights.dense())
    wide = adjacency.to(torch.float64).with_raw_weights(adjacency.raw.double())
    for order in ("auto", "horizontal", "vertical", "edgewise"):
        torch.testing.assert_close(weights(x, wide, order), expected, rtol=1e-9, atol=1e-9)
    assert taken == [chosen, "horizontal", "vertical"]


@pytest.mark.parametrize("decomposition", [*MIXED, Diagonal()], ids=str)
def test_edges_for_one_step_are_evaluated_one_by_one_without_counting_pairs(decomposition):
    weights, adjacency = choice(decomposition, FEW_SOURCES, 16, 16, transient=True)
    assert weights.cheapest(adjacency.structure) == "edgewise"
    assert not any("pairs" in name for name in vars(adjacency.structure))


@pytest.mark.parametrize("decomposition", [*MIXED, Diagonal()], ids=str)
@pytest.mark.parametrize("order", ["horizontal", "vertical", "edgewise"])
def test_planning_builds_every_structure_that_an_order_reads(decomposition, order):
    weights, adjacency = choice(decomposition, BALANCED, 16, 16)
    weights.compiled_order(adjacency.structure.handle, order)
    before = set(vars(adjacency.structure))
    weights(torch.ones(40, 16), adjacency, order)
    assert set(vars(adjacency.structure)) == before
