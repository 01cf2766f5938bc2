"""Compare the layer with the naive definition: values and gradients, for every decomposition and evaluation order."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from naive import AGGREGATIONS, NORMALIZATIONS, SmallGraph, naive_adjacency, naive_layer, small_graphs
from rgcn.adjacency import RelationalAdjacency
from rgcn.errors import ConfigError, DataError
from rgcn.nn import Basis, BlockDiagonal, Diagonal, Full, RelationalGraphConv

DECOMPOSITIONS = {
    "full": (Full(), 6, 4),
    "basis": (Basis(3), 6, 4),
    "one basis": (Basis(1), 5, 9),
    "basis, self-loop apart": (Basis(2, self_loop_apart=True), 3, 5),
    "basis, inverses apart": (Basis(2, separate_inverse=True), 4, 3),
    "basis, both apart": (Basis(2, self_loop_apart=True, separate_inverse=True), 4, 6),
    "blocks": (BlockDiagonal(2), 6, 4),
    "blocks, self-loop too": (BlockDiagonal(3, self_loop_apart=False), 6, 9),
    "diagonal": (Diagonal(), 6, 6),
}
LAYERS = [
    (name, evaluation) for name in DECOMPOSITIONS for evaluation in ("horizontal", "vertical", "edgewise", "auto")
]
WITH_ONE_HOT = [
    name for name in DECOMPOSITIONS if name not in ("diagonal", "basis, inverses apart", "basis, both apart")
]
LAYERS += [(name, "one-hot") for name in WITH_ONE_HOT]


def operator_of(graph, dtype=torch.float64):
    return RelationalAdjacency.from_triples(
        graph.tensor(),
        graph.num_nodes,
        graph.num_relations,
        edge_weights=graph.triple_weights().to(dtype),
        **graph.choices(),
    )


def layer_of(name, evaluation, graph, adjacency, dtype=torch.float64):
    decomposition, width_in, width_out = DECOMPOSITIONS[name]
    if not graph.inverse and isinstance(decomposition, Basis):  # no inverses, no bases of their own
        decomposition = replace(decomposition, separate_inverse=False)
    generator = torch.Generator().manual_seed(graph.seed)
    if evaluation == "one-hot":
        layer = RelationalGraphConv.one_hot(adjacency, width_out, decomposition=decomposition, generator=generator)
    else:
        layer = RelationalGraphConv(
            width_in,
            width_out,
            graph.num_relations,
            decomposition=decomposition,
            inverse=graph.inverse,
            self_loops=graph.self_loops,
            evaluation=evaluation,
            generator=generator,
        )
    with torch.no_grad():
        layer.bias.normal_(generator=generator)
    return layer.to(dtype)


def gradients(out, inputs, cotangent):
    found = torch.autograd.grad(out, inputs, cotangent.to(out.dtype), allow_unused=True, retain_graph=True)
    return [torch.zeros_like(i) if g is None else g for i, g in zip(inputs, found, strict=True)]


def assert_near(actual, expected, tolerance):
    actual, expected = actual.detach(), expected.detach().double()
    scale = max(1.0, float(expected.abs().max())) if expected.numel() else 1.0
    torch.testing.assert_close(actual.double(), expected, rtol=tolerance, atol=tolerance * scale)


def both_operators(graph, dtype=torch.float64):
    """(weights of triples and self-loops, the operator made from them, the naive dense A_r made from them)."""
    own = torch.cat([graph.triple_weights(), torch.ones(graph.num_nodes, dtype=torch.float64)]).to(dtype)
    own.requires_grad_()
    adjacency = operator_of(graph, dtype)
    triple_weight, loop_weight = own.double().split([len(graph.triples), graph.num_nodes])
    return (
        own,
        adjacency.with_raw_weights(own[adjacency.structure.origin]),
        naive_adjacency(graph, triple_weight, loop_weight),
    )


def check_against_naive(name, evaluation, graph, dtype=torch.float64, tolerance=1e-10, operators=None):
    """Compare values, and gradients of x, of every parameter, and of the weights of triples and self-loops."""
    generator = torch.Generator().manual_seed(graph.seed)
    own, adjacency, dense = operators or both_operators(graph, dtype)
    layer = layer_of(name, evaluation, graph, adjacency, dtype)
    if evaluation == "one-hot":
        x = None
        dense_x = torch.eye(graph.num_nodes, dtype=torch.float64)
    else:
        x = torch.randn(graph.num_nodes, layer.in_features, generator=generator, dtype=torch.float64).to(dtype)
        dense_x = x = x.requires_grad_()
    out = layer(x, adjacency)
    expected = naive_layer(dense, dense_x, layer.dense_weight(), layer.bias)
    assert out.dtype == dtype
    assert_near(out, expected, tolerance)
    inputs = [own, *layer.parameters(), *([] if x is None else [x])]
    cotangent = torch.randn(expected.shape, generator=generator, dtype=torch.float64)
    fast, slow = gradients(out, inputs, cotangent), gradients(expected, inputs, cotangent)
    for ours, theirs in zip(fast, slow, strict=True):
        assert_near(ours, theirs, tolerance)


@pytest.mark.parametrize(("name", "evaluation"), LAYERS)
@given(graph=small_graphs())
@settings(max_examples=10)
def test_values_and_gradients_equal_the_naive_definition_in_float64(name, evaluation, graph):
    check_against_naive(name, evaluation, graph)


@pytest.mark.parametrize(("name", "evaluation"), LAYERS)
@given(graph=small_graphs())
@settings(max_examples=3)
def test_values_and_gradients_equal_the_naive_definition_in_float32(name, evaluation, graph):
    check_against_naive(name, evaluation, graph, torch.float32, 1e-5)


AWKWARD = [(0, 0, 1), (0, 0, 1), (2, 0, 1), (1, 2, 1), (3, 2, 1), (4, 0, 1), (1, 0, 4), (4, 2, 5), (5, 2, 1), (6, 0, 0)]


@pytest.mark.parametrize(("normalization", "aggregation"), list(product(NORMALIZATIONS, AGGREGATIONS)))
@pytest.mark.parametrize(("inverse", "self_loops"), list(product((True, False), repeat=2)))
def test_every_combination_of_choices_on_one_awkward_graph(normalization, aggregation, inverse, self_loops):
    # repeated triples, a hub, a self-loop in the data, an isolated node (7), an empty relation (1)
    for weighted in (False, True):
        graph = SmallGraph(AWKWARD, 8, 3, inverse, self_loops, normalization, aggregation, weighted, seed=3)
        operators = both_operators(graph)
        for name, evaluation in LAYERS:
            if evaluation != "auto" and name in ("full", "basis", "blocks", "diagonal"):
                check_against_naive(name, evaluation, graph, operators=operators)


@pytest.mark.parametrize(("name", "evaluation"), LAYERS)
@pytest.mark.parametrize("self_loops", [True, False])
def test_a_graph_without_triples_gives_the_self_loops_share_and_the_bias(name, evaluation, self_loops):
    check_against_naive(name, evaluation, SmallGraph([], 3, 2, self_loops=self_loops))


@pytest.mark.parametrize("name", DECOMPOSITIONS)
@given(graph=small_graphs())
@settings(max_examples=5)
def test_horizontal_vertical_edgewise_and_auto_agree(name, graph):
    adjacency = operator_of(graph)
    x = None
    outs = []
    for evaluation in ("horizontal", "vertical", "edgewise", "auto"):
        layer = layer_of(name, evaluation, graph, adjacency)
        if x is None:
            x = torch.randn(graph.num_nodes, layer.in_features, dtype=torch.float64)
        outs.append(layer(x, adjacency))
    for other in outs[1:]:
        torch.testing.assert_close(outs[0], other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", DECOMPOSITIONS)
def test_edges_for_one_step_are_evaluated_one_by_one_and_give_the_same(name):
    graph = SmallGraph(AWKWARD, 8, 3, seed=3)
    lasting = operator_of(graph)
    passing = RelationalAdjacency.from_triples(
        graph.tensor(), 8, 3, edge_weights=graph.triple_weights(), transient=True, **graph.choices()
    )
    layer = layer_of(name, "auto", graph, lasting)
    rest = passing.split_self_loops()[0]
    for adjacency in (passing, rest, passing.masked(torch.ones(len(AWKWARD) + 8)), passing.to(torch.float64)):
        assert adjacency.structure.transient
        assert layer.weights.cheapest(adjacency.structure) == "edgewise"
    assert layer.weights.cheapest(lasting.structure) in ("horizontal", "vertical")
    x = torch.randn(8, layer.in_features, dtype=torch.float64)
    torch.testing.assert_close(layer(x, passing), layer(x, lasting), rtol=1e-10, atol=1e-10)


def test_edgewise_evaluation_is_not_taken_where_it_would_hold_too_much(monkeypatch):
    graph = SmallGraph(AWKWARD, 8, 3)
    passing = RelationalAdjacency.from_triples(graph.tensor(), 8, 3, transient=True)
    layer = RelationalGraphConv(4, 4, 3)
    monkeypatch.setattr("rgcn.nn.decompositions.base.MAX_EDGEWISE_BYTES", 10)
    assert layer.weights.cheapest(passing.structure) in ("horizontal", "vertical")


# -- the weights themselves ----------------------------------------------------------------------------


def test_basis_writes_each_weight_as_the_same_combination_of_bases():
    layer = RelationalGraphConv(4, 3, 2, decomposition=Basis(2))
    bases, coefficients = layer.weights.bases, layer.weights.coefficients
    for r, weight in enumerate(layer.dense_weight()):
        torch.testing.assert_close(weight, sum(coefficients[r, b] * bases[b] for b in range(2)))


def test_blocks_leave_zeros_off_the_diagonal_and_keep_the_self_loop_full():
    layer = RelationalGraphConv(6, 4, 2, decomposition=BlockDiagonal(2))
    *data, self_loop = layer.dense_weight()
    assert len(data) == 4
    for weight in data:
        assert (weight[:3, 2:] == 0).all()
        assert (weight[3:, :2] == 0).all()
        assert (weight[:3, :2] != 0).all()
        assert (weight[3:, 2:] != 0).all()
    assert (self_loop != 0).all()


def test_one_hot_blocks_let_each_node_write_its_own_block_only():
    graph = SmallGraph([(0, 0, 1), (1, 0, 2), (2, 0, 3), (3, 0, 0)], 4, 1)
    layer = RelationalGraphConv.one_hot(operator_of(graph), 4, decomposition=BlockDiagonal(2))
    *data, self_loop = layer.dense_weight()
    for weight in data:
        assert (weight[:2, 2:] == 0).all()
        assert (weight[2:, :2] == 0).all()
    assert (self_loop != 0).all()


def test_diagonal_scales_features_and_mixes_none():
    for weight in RelationalGraphConv(5, 5, 2, decomposition=Diagonal()).dense_weight():
        assert torch.equal(weight, torch.diag(torch.diagonal(weight)))
        assert (torch.diagonal(weight) != 0).all()


@pytest.mark.parametrize(
    ("decomposition", "numbers"),
    [(Full(), 5 * 6 * 4), (Basis(3), 3 * 6 * 4 + 5 * 3), (BlockDiagonal(2), 4 * 6 * 4 // 2 + 6 * 4)],
)
def test_number_of_parameters_is_that_of_the_formula(decomposition, numbers):
    layer = RelationalGraphConv(6, 4, 2, decomposition=decomposition, bias=False)
    assert sum(p.numel() for p in layer.parameters()) == numbers
    assert layer.dense_weight().shape == (5, 6, 4)


def test_one_hot_layer_holds_only_the_rows_whose_pair_occurs():
    graph = SmallGraph([(0, 0, 1), (0, 1, 2)], 50, 2, self_loops=False)
    layer = RelationalGraphConv.one_hot(operator_of(graph), 4, bias=False)
    assert sum(p.numel() for p in layer.parameters()) == 4 * 4  # (0, n0), (1, n0), (0⁻, n1), (1⁻, n2)


# -- symmetry ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DECOMPOSITIONS)
@given(graph=small_graphs(), data=st.data())
@settings(max_examples=5)
def test_permuting_the_nodes_permutes_the_output(name, graph, data):
    order = torch.tensor(data.draw(st.permutations(range(graph.num_nodes))))  # node n becomes order[n]
    adjacency = operator_of(graph)
    layer = layer_of(name, "auto", graph, adjacency)
    x = torch.randn(graph.num_nodes, layer.in_features, dtype=torch.float64)
    moved_triples = [(int(order[s]), r, int(order[o])) for s, r, o in graph.triples]
    moved = SmallGraph(moved_triples, *list(vars(graph).values())[1:])
    moved_x = torch.empty_like(x)
    moved_x[order] = x
    expected = layer(x, adjacency)
    torch.testing.assert_close(layer(moved_x, operator_of(moved))[order], expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["full", "basis", "blocks", "diagonal"])
@given(graph=small_graphs(), data=st.data())
@settings(max_examples=5)
def test_permuting_the_relations_together_with_their_weights_changes_nothing(name, graph, data):
    order = data.draw(st.permutations(range(graph.num_relations)))  # relation r becomes order[r]
    adjacency = operator_of(graph)
    layer, other = (layer_of(name, "auto", graph, adjacency) for _ in range(2))
    destination = list(order)
    if graph.inverse:
        destination += [graph.num_relations + r for r in order]
    stack = "coefficients" if name == "basis" else "scale" if name == "diagonal" else "blocks"
    rows = getattr(layer.weights, stack)
    if len(rows) > len(destination):  # the self-loop, where it is in the stack, stays last
        destination.append(len(destination))
    with torch.no_grad():
        getattr(other.weights, stack)[torch.tensor(destination)] = rows
    x = torch.randn(graph.num_nodes, layer.in_features, dtype=torch.float64)
    moved = SmallGraph([(s, order[r], o) for s, r, o in graph.triples], *list(vars(graph).values())[1:])
    torch.testing.assert_close(other(x, operator_of(moved)), layer(x, adjacency), rtol=1e-10, atol=1e-10)


# -- memory --------------------------------------------------------------------------------------------


class LargestTensor(TorchDispatchMode):
    """Records the largest tensor that any operation returned."""

    def __init__(self):
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(tensor, torch.Tensor):
                self.numel = max(self.numel, tensor.numel())
        return out


@pytest.mark.parametrize(
    ("decomposition", "evaluation"),
    [
        *product((Full(), Basis(4), BlockDiagonal(8), Diagonal()), ("horizontal", "vertical", "auto")),
        *product((Basis(4), Diagonal()), ("edgewise",)),
        *product((Full(), Basis(4), BlockDiagonal(8)), ("one-hot",)),
    ],
    ids=str,
)
def test_no_tensor_of_relations_times_nodes_times_width_is_ever_made(decomposition, evaluation):
    num_nodes, num_relations, width, num_triples = 2000, 500, 64, 3000
    generator = torch.Generator().manual_seed(0)
    columns = [
        torch.randint(high, (num_triples,), generator=generator) for high in (num_nodes, num_relations, num_nodes)
    ]
    with LargestTensor() as largest:
        adjacency = RelationalAdjacency.from_triples(torch.stack(columns, 1), num_nodes, num_relations)
        if evaluation == "one-hot":
            layer = RelationalGraphConv.one_hot(adjacency, width, decomposition=decomposition)
            x = None
        else:
            layer = RelationalGraphConv(width, width, num_relations, decomposition=decomposition, evaluation=evaluation)
            x = torch.randn(num_nodes, width, requires_grad=True)
        layer(x, adjacency).sum().backward()
    own = max(p.numel() for p in layer.parameters())
    bases = getattr(decomposition, "num_bases", 1)
    pieces = 16 * adjacency.num_relations * bases  # partial sums of the coefficients' gradient
    allowed = max(own, adjacency.num_edges * width, num_nodes * bases * width, pieces)
    assert largest.numel <= allowed < num_relations * num_nodes * width / 10


# -- restriction of the rows of a one-hot layer --------------------------------------------------------


@pytest.mark.parametrize("name", WITH_ONE_HOT)
def test_a_part_of_the_graph_gives_the_rows_of_the_whole(name):
    graph = SmallGraph(AWKWARD, 8, 3, seed=5)
    adjacency = operator_of(graph)
    layer = layer_of(name, "one-hot", graph, adjacency)
    targets = torch.tensor([7, 1, 4])
    smaller, sources = adjacency.restrict(targets)
    torch.testing.assert_close(layer(None, smaller, sources), layer(None, adjacency)[targets], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", WITH_ONE_HOT)
def test_no_targets_give_no_rows(name):
    graph = SmallGraph([(0, 0, 1)], 2, 1, self_loops=False, inverse=False)
    adjacency = operator_of(graph)
    layer = layer_of(name, "one-hot", graph, adjacency)
    smaller, sources = adjacency.restrict(torch.tensor([], dtype=torch.int64))
    assert layer(None, smaller, sources).shape == (0, layer.out_features)


# -- what is refused -----------------------------------------------------------------------------------


def test_one_hot_layer_refuses_a_graph_with_pairs_it_has_no_row_for():
    layer = RelationalGraphConv.one_hot(operator_of(SmallGraph([(0, 0, 1)], 3, 1)), 4)
    with pytest.raises(DataError, match="not built for"):
        layer(None, operator_of(SmallGraph([(2, 0, 1)], 3, 1)))


def test_wrong_uses_raise_errors_with_a_message():
    graph = SmallGraph([(0, 0, 1)], 3, 1)
    adjacency = operator_of(graph)
    with pytest.raises(ConfigError, match="same inverse and self_loops"):
        RelationalGraphConv(4, 4, 2)(torch.zeros(3, 4), adjacency)
    with pytest.raises(ConfigError, match=r"x must be \[3, 4\]"):
        RelationalGraphConv(4, 4, 1)(torch.zeros(2, 4), adjacency)
    with pytest.raises(ConfigError, match="one_hot"):
        RelationalGraphConv(4, 4, 1)(None, adjacency)
    with pytest.raises(ConfigError, match="x=None"):
        RelationalGraphConv.one_hot(adjacency, 4)(torch.zeros(3, 4), adjacency)
    with pytest.raises(ConfigError, match="diagonal"):
        RelationalGraphConv.one_hot(adjacency, 4, decomposition=Diagonal())
    with pytest.raises(ConfigError, match="matrix is square"):
        RelationalGraphConv(4, 5, 1, decomposition=Diagonal())
    with pytest.raises(ConfigError, match="does not divide into 3 blocks"):
        RelationalGraphConv(6, 4, 1, decomposition=BlockDiagonal(3))
    with pytest.raises(ConfigError, match="at least one basis"):
        Basis(0)
    with pytest.raises(ConfigError, match="at least one block"):
        BlockDiagonal(0)
    with pytest.raises(ConfigError, match="unknown evaluation"):
        RelationalGraphConv(4, 4, 1, evaluation="diagonal")
    with pytest.raises(ConfigError, match="out_features must be at least 1"):
        RelationalGraphConv(4, 0, 1)
