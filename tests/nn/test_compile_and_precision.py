"""Test the layer compiled, under autocast and in other precisions, and its gradients against finite differences."""

from __future__ import annotations

import copy
import gc
import shutil
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from naive import SmallGraph
from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.kernels import operations
from rgcn.kernels.sparse import Pairs, SparsePattern, constant_when_compiled, structure_for
from rgcn.nn import Basis, BlockDiagonal, Diagonal, Full, RelationalEncoder, RelationalGraphConv

DECOMPOSITIONS = {
    "full": (Full(), 6, 4),
    "basis": (Basis(3), 6, 4),
    "basis, self-loop apart": (Basis(2, self_loop_apart=True), 3, 5),
    "basis, inverses apart": (Basis(2, separate_inverse=True), 4, 3),
    "basis, both apart": (Basis(2, self_loop_apart=True, separate_inverse=True), 4, 6),
    "blocks": (BlockDiagonal(2), 6, 4),
    "blocks, self-loop too": (BlockDiagonal(3, self_loop_apart=False), 6, 9),
    "diagonal": (Diagonal(), 6, 6),
}
ONE_HOT = ("full", "basis", "basis, self-loop apart", "blocks", "blocks, self-loop too")
ORDERS = ("horizontal", "vertical", "edgewise")
LAYERS = [
    *((name, order) for name in DECOMPOSITIONS for order in (*ORDERS, "auto")),
    *((name, "one-hot") for name in ONE_HOT),
]
EACH_WAY = [case for case in LAYERS if case[1] != "auto" and (case[0] != "diagonal" or case[1] == "edgewise")]

# repeated triples, a hub, a self-loop in the data, an isolated node (7), an empty relation (1)
AWKWARD = [(0, 0, 1), (0, 0, 1), (2, 0, 1), (1, 2, 1), (3, 2, 1), (4, 0, 1), (1, 0, 4), (4, 2, 5), (5, 2, 1), (6, 0, 0)]
GRAPH = SmallGraph(AWKWARD, 8, 3)


def operator(dtype=torch.float32, device="cpu", graph=GRAPH):
    weights = torch.linspace(0.5, 2, len(graph.triples), dtype=dtype)
    adjacency = RelationalAdjacency.from_triples(
        graph.tensor(), graph.num_nodes, graph.num_relations, edge_weights=weights
    )
    return adjacency.to(device)


def layer_of(name, order, adjacency, dtype=torch.float32):
    decomposition, width_in, width_out = DECOMPOSITIONS[name]
    generator = torch.Generator().manual_seed(1)
    if order == "one-hot":
        layer = RelationalGraphConv.one_hot(adjacency, width_out, decomposition=decomposition, generator=generator)
    else:
        layer = RelationalGraphConv(
            width_in, width_out, 3, decomposition=decomposition, evaluation=order, generator=generator
        )
    with torch.no_grad():
        layer.bias.normal_(generator=generator)
    return layer.to(adjacency.device, dtype)


def input_of(layer, adjacency, dtype=torch.float32):
    if layer.is_one_hot:
        return None
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(adjacency.num_sources, layer.in_features, generator=generator, dtype=torch.float64)
    return x.to(adjacency.device, dtype).requires_grad_()


def test_constants_are_marked_as_pytorch_marks_them():
    assert vars(constant_when_compiled(lambda: 0)) == vars(torch.compiler.assume_constant_result(lambda: 0)) != {}


def out_and_gradients(function, layer, x, adjacency, *more):
    """The output, and the gradients of x, of every parameter and of `more`, for one fixed cotangent."""
    out = function(x, adjacency)
    cotangent = torch.linspace(-1, 1, out.numel(), device=out.device).view(out.shape).to(out.dtype)
    inputs = [*([] if x is None else [x]), *layer.parameters(), *more]
    return out, torch.autograd.grad(out, inputs, cotangent)


def assert_same(actual, expected, **tolerance):
    torch.testing.assert_close(actual[0], expected[0], **tolerance)
    for ours, theirs in zip(actual[1], expected[1], strict=True):
        torch.testing.assert_close(ours, theirs, **tolerance)


# -- torch.compile -------------------------------------------------------------------------------------


@pytest.fixture
def fresh_compiler():
    """Start and end without compiled graphs of other tests."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def compiled_whole(module, backend="aot_eager"):
    return torch.compile(module, fullgraph=True, backend=backend)


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize(("name", "order"), LAYERS)
def test_a_compiled_layer_is_one_graph_from_its_first_call_and_equals_the_eager_one(name, order):
    first, second = operator(), operator()  # no structures of the second graph are built before it is compiled
    layer = layer_of(name, order, first)
    x = input_of(layer, first)
    expected = out_and_gradients(layer, layer, x, first)
    assert_same(out_and_gradients(compiled_whole(layer), layer, x, second), expected)


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("name", ["full", "basis, self-loop apart", "diagonal"])
@pytest.mark.parametrize("order", ORDERS)
def test_a_compiled_layer_has_gradients_for_edge_weights(name, order):
    first, second = operator(), operator()
    layer = layer_of(name, order, first)
    x = input_of(layer, first)
    raw = (first.raw + 0.25).requires_grad_()
    expected = out_and_gradients(layer, layer, x, first.with_raw_weights(raw), raw)
    assert_same(out_and_gradients(compiled_whole(layer), layer, x, second.with_raw_weights(raw), raw), expected)


class Classifier(nn.Module):
    """Two layers, the first over one-hot nodes, and a loss."""

    def __init__(self, adjacency):
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        decomposition = Basis(2, self_loop_apart=True)
        self.first = RelationalGraphConv.one_hot(adjacency, 6, decomposition=decomposition, generator=generator)
        self.second = RelationalGraphConv(6, 3, 3, decomposition=BlockDiagonal(3), generator=generator)

    def forward(self, adjacency, labels):
        hidden = F.relu(self.first(None, adjacency))
        return F.cross_entropy(self.second(hidden, adjacency), labels)


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_compiled_network_with_its_loss_is_one_graph_and_gives_the_same(backend):
    if backend == "inductor" and not any(map(shutil.which, ("c++", "g++", "clang++"))):
        pytest.skip("inductor needs a C++ compiler on a CPU, and there is none here")
    adjacency, labels = operator(), torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
    network = Classifier(adjacency)
    parameters = list(network.parameters())
    expected = network(adjacency, labels)
    wanted = torch.autograd.grad(expected, parameters)
    other = operator()  # held until the backward pass is done
    actual = compiled_whole(network, backend)(other, labels)
    assert_same((actual, torch.autograd.grad(actual, parameters)), (expected, wanted))


@pytest.mark.usefixtures("fresh_compiler")
def test_training_steps_of_a_compiled_network_follow_those_of_an_eager_one():
    adjacency, labels = operator(), torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
    eager, other = Classifier(adjacency), Classifier(adjacency)
    losses = []
    for network, function in ((eager, eager), (other, compiled_whole(other))):
        optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
        for _ in range(4):
            optimizer.zero_grad()
            loss = function(adjacency, labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[0] > losses[3]
    assert losses[:4] == pytest.approx(losses[4:], rel=1e-5)


@pytest.mark.usefixtures("fresh_compiler")
def test_an_encoder_over_a_receptive_field_compiles():
    adjacency = operator()
    field = ReceptiveField.of(adjacency, torch.tensor([1, 7, 4]), 2)
    generator = torch.Generator().manual_seed(0)
    first = RelationalGraphConv.one_hot(
        adjacency, 6, decomposition=Basis(2), training=(field.layers[0], field.inputs), generator=generator
    )
    encoder = RelationalEncoder(None, [first, RelationalGraphConv(6, 3, 3, generator=generator)])
    whole = ReceptiveField.whole(adjacency, 2)
    function = compiled_whole(encoder)
    for part in (field, whole, field):
        torch.testing.assert_close(function(part), encoder(part))


@pytest.mark.usefixtures("fresh_compiler")
def test_a_compiled_layer_distinguishes_graphs_and_nodes():
    # same shapes with other edges, and same edges with other nodes: neither may reuse the rows of the first
    one, two = operator(), operator(graph=SmallGraph([(o, r, s) for s, r, o in AWKWARD], 8, 3))
    layer = layer_of("basis", "vertical", one)
    x = input_of(layer, one)
    function = compiled_whole(layer)
    for adjacency in (one, two, one):
        torch.testing.assert_close(function(x, adjacency), layer(x, adjacency))
    ring = operator(graph=SmallGraph([(0, 0, 1), (1, 0, 2), (2, 0, 0)], 3, 1))
    one_hot = RelationalGraphConv.one_hot(ring, 4)
    function = compiled_whole(one_hot)
    for nodes in (None, torch.tensor([0, 1, 2]), torch.tensor([1, 2, 0]), torch.tensor([2, 0, 1])):
        torch.testing.assert_close(function(None, ring, nodes), one_hot(None, ring, nodes))


@pytest.mark.usefixtures("fresh_compiler")
def test_a_layer_compiles_under_autocast():
    adjacency = operator()
    layer = layer_of("basis", "auto", adjacency)
    x = input_of(layer, adjacency)
    with torch.autocast("cpu", torch.bfloat16):
        expected = out_and_gradients(layer, layer, x, adjacency)
        actual = out_and_gradients(compiled_whole(layer), layer, x, adjacency)
    assert actual[0].dtype == torch.bfloat16
    assert_same(actual, expected, rtol=2e-2, atol=2e-2)


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_primitive_compiles_with_its_gradients(dtype):
    adjacency = operator()
    pattern, pairs = adjacency.structure.mix_target_pairs, adjacency.structure.source_pairs_by_node
    generator = torch.Generator().manual_seed(0)

    def numbers(*shape):
        return torch.randn(shape, generator=generator).to(dtype).requires_grad_()

    entries, rows, columns = pattern.num_entries, pattern.num_rows, pattern.num_columns
    cases = [
        (lambda v, x: operations.gather_sum(pattern, v, x), numbers(entries), numbers(columns, 5)),
        (lambda a, b: operations.pair_dot(a, b, pattern), numbers(rows, 5), numbers(columns, 5)),
        (lambda c, v: operations.combine_bases(c, v, pairs), numbers(7, 2), numbers(8, 2, 5)),
        (lambda c, x: operations.combine_bases(c, x, pairs, []), numbers(7, 2), numbers(8, 2, 5)),
        (lambda c, x: operations.spread_bases(c, x, pairs), numbers(7, 2), numbers(len(pairs), 5)),
        (lambda x, _: operations.take_rows(x, adjacency.structure.source_pairs.select), numbers(8, 5), None),
        (lambda x, _: operations.take_rows(x, adjacency.structure.source), numbers(8, 5), None),
    ]
    adjacency.structure.source_pairs.select  # noqa: B018 (made outside of the compiled function)
    for number, (function, *given) in enumerate(cases):
        inputs = [tensor for tensor in given if tensor is not None]
        results = []
        for run in (function, torch.compile(function, fullgraph=True, backend="aot_eager")):
            # Eager mode would keep the factors; a compiled graph materializes the gradient.
            if number == 3 and run is function:
                run = cases[2][0]
            out = run(*given)
            results.append((out, torch.autograd.grad(out, inputs, torch.ones_like(out))))
        assert_same(results[1], results[0], rtol=2e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-5)


def test_operators_pass_the_registration_checks_of_pytorch():
    structure = operator(torch.float64).structure
    pattern, pairs = structure.mix_target_pairs.handle, structure.source_pairs_by_node.handle
    grouped, edges = structure.source_pairs.handle, structure.triple_index.handle
    entries, rows, columns = (getattr(structure.mix_target_pairs, f"num_{of}") for of in ("entries", "rows", "columns"))

    def numbers(*shape):
        return torch.randn(shape, dtype=torch.float64, requires_grad=True)

    tests = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_static")
    for name, arguments in (
        ("gather_sum", (pattern, False, False, numbers(entries), numbers(columns, 3))),
        ("gather_sum", (pattern, True, False, numbers(entries), numbers(rows, 3))),
        ("gather_sum", (pattern, False, True, None, numbers(columns, 3))),
        ("entry_dot", (pattern, numbers(rows, 3), numbers(columns, 3), None)),
        ("scaled_sum", (edges, "target", False, False, numbers(entries), numbers(7, 3), numbers(columns, 3))),
        ("scaled_sum", (edges, "target", False, False, numbers(entries), numbers(7, 3), numbers(columns, 6))),
        ("combine_bases", (pairs, numbers(7, 2), numbers(8, 2, 3))),
        ("spread_bases", (pairs, numbers(7, 2), numbers(len(structure.source_pairs), 3))),
        ("grouped_product", (grouped, numbers(7, 2, 3, 4), numbers(len(structure.source_pairs), 2, 3))),
        ("take_rows", (structure.source_pairs.select.handle, numbers(8, 3))),
    ):
        torch.library.opcheck(getattr(torch.ops.rgcn, name).default, arguments, test_utils=tests)


def test_a_handle_refers_to_one_object_as_long_as_it_exists():
    pattern = SparsePattern.selection(torch.tensor([1, 0]), 2)
    handle = pattern.handle
    assert structure_for(SparsePattern, handle) is pattern
    twin = copy.deepcopy(pattern)
    assert twin.handle != handle
    assert torch.equal(twin.column, pattern.column)
    with pytest.raises(RuntimeError, match="is gone"):
        structure_for(Pairs, handle)
    del pattern
    gc.collect()
    with pytest.raises(RuntimeError, match="Keep the adjacency"):
        torch.ops.rgcn.gather_sum(handle, False, False, None, torch.ones(2, 1))


# -- copies --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ONE_HOT)
def test_a_one_hot_layer_that_was_used_can_be_copied_and_stored(name, tmp_path):
    adjacency = operator()
    layer = layer_of(name, "one-hot", adjacency)
    expected = layer(None, adjacency)
    twin = copy.deepcopy(layer)
    torch.testing.assert_close(twin(None, adjacency), expected)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    torch.testing.assert_close(layer(None, adjacency), expected)  # nothing is shared
    torch.save(layer.state_dict(), tmp_path / "layer.pt")
    twin.load_state_dict(torch.load(tmp_path / "layer.pt", weights_only=True))
    torch.testing.assert_close(twin(None, adjacency), expected)
    torch.save(layer, tmp_path / "whole.pt")
    torch.testing.assert_close(torch.load(tmp_path / "whole.pt", weights_only=False)(None, adjacency), expected)


# -- autocast and other precisions ---------------------------------------------------------------------

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]


@pytest.mark.parametrize(("name", "order"), EACH_WAY)
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("device", DEVICES)
def test_autocast_gives_narrow_outputs_and_float32_gradients_near_the_exact_ones(name, order, kind, device):
    adjacency = operator(device=device)
    layer = layer_of(name, order, adjacency)
    x = input_of(layer, adjacency)
    raw = adjacency.raw.clone().requires_grad_()
    expected = out_and_gradients(layer, layer, x, adjacency.with_raw_weights(raw), raw)
    with torch.autocast(device, kind):
        out, gradients = out_and_gradients(layer, layer, x, adjacency.with_raw_weights(raw), raw)
    assert out.dtype == kind
    assert all(gradient.dtype == torch.float32 and gradient.isfinite().all() for gradient in gradients)
    step = torch.finfo(kind).eps
    for actual, wanted in zip((out, *gradients), (expected[0], *expected[1]), strict=True):
        scale = max(1.0, float(wanted.detach().abs().max()))
        torch.testing.assert_close(actual.float(), wanted, rtol=4 * step, atol=4 * step * scale)


@pytest.mark.parametrize("name", ["full", "diagonal"])
def test_autocast_leaves_float64_alone_as_a_linear_layer_does(name):
    adjacency = operator(torch.float64)
    layer = layer_of(name, "auto", adjacency, torch.float64)
    x = input_of(layer, adjacency, torch.float64)
    linear = nn.Linear(6, 4).double()
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(x, adjacency).dtype == linear(x).dtype == torch.float64


@pytest.mark.parametrize(("name", "order"), EACH_WAY)
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("device", DEVICES)
def test_a_layer_computes_in_any_precision(name, order, kind, device):
    adjacency = operator(device=device)  # with float32 weights, whatever the layer
    layer = layer_of(name, order, adjacency, kind)
    exact = copy.deepcopy(layer).float()
    x = input_of(layer, adjacency, kind)
    exact_x = None if x is None else x.detach().float().requires_grad_()
    out, gradients = out_and_gradients(layer, layer, x, adjacency)
    expected = out_and_gradients(exact, exact, exact_x, adjacency)
    assert out.dtype == kind
    step = max(torch.finfo(kind).eps, torch.finfo(torch.float32).eps)
    for actual, wanted in zip((out, *gradients), (expected[0], *expected[1]), strict=True):
        assert actual.dtype == kind
        scale = max(1.0, float(wanted.detach().abs().max()))
        torch.testing.assert_close(actual.float(), wanted, rtol=4 * step, atol=4 * step * scale)


def test_long_sums_of_narrow_numbers_are_kept_in_float32():
    # in bfloat16, 256 + 1 = 256; and an edge's weight of 1/3 is not rounded to it
    size = 3000
    pattern = SparsePattern(torch.tensor([0, size]), torch.zeros(size, dtype=torch.int64), 1)
    for context in (nullcontext(), torch.autocast("cpu", torch.bfloat16)):
        with context:
            out = operations.gather_sum(pattern, torch.full((size,), 1 / 3), torch.ones(1, 2, dtype=torch.bfloat16))
            assert out.dtype == torch.bfloat16
            assert out.float().tolist() == [[1000.0, 1000.0]]
            assert (
                operations.gather_sum(pattern, None, torch.ones(1, 1, dtype=torch.bfloat16)).item() == 3008
            )  # nearest


# -- finite differences --------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "order"), EACH_WAY)
def test_gradients_equal_finite_differences(name, order):
    small = SmallGraph([(0, 0, 1), (0, 0, 1), (2, 0, 1), (1, 2, 1), (3, 2, 0), (1, 0, 3)], 5, 3)
    adjacency = operator(torch.float64, graph=small)
    layer = layer_of(name, order, adjacency, torch.float64)
    names = [name for name, _ in layer.named_parameters()]
    raw = (adjacency.raw + 0.5).requires_grad_()
    x = input_of(layer, adjacency, torch.float64)

    def function(raw, *tensors):
        given = None if x is None else tensors[0]
        parameters = dict(zip(names, tensors if x is None else tensors[1:], strict=True))
        return torch.func.functional_call(layer, parameters, (given, adjacency.with_raw_weights(raw)))

    assert torch.autograd.gradcheck(function, (raw, *([] if x is None else [x]), *layer.parameters()))
