"""Test stacks of layers: restriction to the receptive field and frozen untrained rows change no result."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from naive import naive_adjacency, naive_layer, small_graphs
from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.errors import ConfigError
from rgcn.nn import (
    Basis,
    BlockDiagonal,
    Diagonal,
    Full,
    Initializer,
    RelationalEncoder,
    RelationalGraphConv,
    relational_encoder,
)
from rgcn.nn.row_tables import NodeEmbedding, NodeFeatures, RowTable
from rgcn.sampling.edges import FieldSampler

CLASSES = 4


def operator_of(graph):
    return RelationalAdjacency.from_triples(
        graph.tensor(), graph.num_nodes, graph.num_relations, edge_weights=graph.triple_weights(), **graph.choices()
    )


def encoder_of(kind, depth, graph, adjacency, training=None):
    """kind: "features", "embedding", or a decomposition of one-hot rows; float64."""
    generator = torch.Generator().manual_seed(graph.seed)
    decomposition = {"basis": Basis(2), "block": BlockDiagonal(2)}.get(kind, Full())
    choices = {"inverse": graph.inverse, "self_loops": graph.self_loops, "generator": generator}
    layers = []
    if kind == "features":
        source, width = NodeFeatures(torch.randn(graph.num_nodes, 5, generator=generator)), 5
    elif kind == "embedding":
        trained = None
        if training is not None:
            trained = torch.zeros(graph.num_nodes, dtype=torch.bool)
            trained[training.inputs] = True
        source, width = NodeEmbedding(graph.num_nodes, 6, Initializer("kaiming-normal"), generator, trained), 6
        layers = [RelationalGraphConv(6, 6, graph.num_relations, decomposition=Diagonal(), **choices)]
    else:
        source, width = None, 6
        reach = None if training is None else (training.layers[0], training.inputs)
        first = RelationalGraphConv.one_hot(
            adjacency, 6, decomposition=decomposition, training=reach, generator=generator
        )
        layers = [first]
    while len(layers) < depth:
        last = len(layers) + 1 == depth
        out = CLASSES if last else 6
        layers.append(RelationalGraphConv(width, out, graph.num_relations, **choices))
        width = out
    return RelationalEncoder(source, layers).double()


KINDS = ("features", "embedding", "full", "basis", "block")


def drawn_nodes(data, graph):
    return torch.tensor(data.draw(st.lists(st.integers(0, graph.num_nodes - 1), unique=True, min_size=1)))


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
@given(graph=small_graphs(), data=st.data())
@settings(max_examples=5)
def test_restriction_gives_the_outputs_and_the_gradients_of_the_whole(kind, depth, graph, data):
    nodes = drawn_nodes(data, graph)
    adjacency = operator_of(graph)
    network = encoder_of(kind, depth, graph, adjacency)
    needed = network(ReceptiveField.of(adjacency, nodes, depth))
    everything = network(ReceptiveField.whole(adjacency, depth))[nodes]
    torch.testing.assert_close(needed, everything, rtol=1e-10, atol=1e-10)
    parameters = list(network.parameters())
    pairs = [torch.autograd.grad(out.square().sum(), parameters, allow_unused=True) for out in (needed, everything)]
    for some, all_ in zip(*pairs, strict=True):
        some, all_ = (torch.zeros(()) if g is None else g for g in (some, all_))
        torch.testing.assert_close(some.double().expand_as(all_), all_.double(), rtol=1e-10, atol=1e-10)


@given(graph=small_graphs())
@settings(max_examples=5)
def test_encoder_is_layers_with_relu_between_and_none_after_the_last(graph):
    adjacency = operator_of(graph)
    network = encoder_of("features", 3, graph, adjacency)
    dense = naive_adjacency(graph)
    x = network.source.features
    for number, layer in enumerate(network.layers):
        x = naive_layer(dense, x, layer.dense_weight(), layer.bias)
        x = torch.relu(x) if number < 2 else x
    torch.testing.assert_close(network(ReceptiveField.whole(adjacency, 3)), x, rtol=1e-10, atol=1e-10)


def trained_logits(network, adjacency, nodes, depth, steps=4):
    """Return the logits of every node after some steps of Adam on the given nodes."""
    field = ReceptiveField.of(adjacency, nodes, depth)
    target = torch.arange(len(nodes)) % network.layers[-1].out_features
    optimizer = torch.optim.Adam(network.parameters(), lr=0.05)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(network(field), target).backward()
        optimizer.step()
    with torch.no_grad():
        return network(ReceptiveField.whole(adjacency, depth))


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("kind", ["embedding", "full", "basis", "block"])
@given(graph=small_graphs(), data=st.data())
@settings(max_examples=3)
def test_untrained_rows_stored_separately_give_the_logits_of_a_full_table(kind, depth, graph, data):
    nodes = drawn_nodes(data, graph)
    adjacency = operator_of(graph)
    reach = ReceptiveField.of(adjacency, nodes, depth)
    all_trained = encoder_of(kind, depth, graph, adjacency)
    some_trained = encoder_of(kind, depth, graph, adjacency, reach)
    count = [sum(p.numel() for p in network.parameters()) for network in (all_trained, some_trained)]
    assert count[1] <= count[0]
    logits = [trained_logits(network, adjacency, nodes, depth) for network in (all_trained, some_trained)]
    torch.testing.assert_close(logits[1], logits[0], rtol=1e-7, atol=1e-7)


def test_row_table_keeps_every_row_where_it_was():
    values = torch.randn(5, 3)
    table = RowTable(values.clone(), torch.tensor([False, True, False, True, True]))
    assert torch.equal(table.values(), values)
    assert torch.equal(table.trained, values[[1, 3, 4]])
    assert torch.equal(table.still, values[[0, 2]])
    assert torch.equal(table.whole()[table.position], values)
    assert table.table_for(table.position[[1, 4]]) is table.trained
    assert len(table.table_for(table.position[[0]])) == 5
    assert len(table) == 5


def test_states_returns_each_layers_output_up_to_the_given_depth():
    triples = torch.tensor([[0, 0, 1], [1, 0, 2]])
    adjacency = RelationalAdjacency.from_triples(triples, 3, 1)
    layers = [RelationalGraphConv.one_hot(adjacency, 6), RelationalGraphConv(6, 2, 1)]
    network = RelationalEncoder(None, layers)
    first, last = network.layer_outputs(ReceptiveField.whole(adjacency, 2))
    assert (first >= 0).all()
    assert last.shape == (3, 2)
    (alone,) = network.layer_outputs(ReceptiveField.whole(adjacency, 1), depth=1)
    assert torch.equal(alone, first)


@pytest.mark.parametrize("kind", KINDS)
@given(graph=small_graphs())
@settings(max_examples=3)
def test_a_whole_graph_is_the_receptive_field_of_every_node(kind, graph):
    adjacency = operator_of(graph)
    network = encoder_of(kind, 2, graph, adjacency)
    every = torch.arange(graph.num_nodes)
    whole, field = ReceptiveField.whole(adjacency, 2), ReceptiveField.of(adjacency, every, 2)
    assert torch.equal(field.outputs, whole.outputs)
    assert torch.equal(network(adjacency), network(whole))
    torch.testing.assert_close(network(adjacency), network(field), rtol=1e-10, atol=1e-10)


def test_without_layers_the_output_is_the_input():
    network = RelationalEncoder(NodeEmbedding(4, 3, Initializer(), torch.Generator()), [])
    some = torch.tensor([2, 0])
    assert network.dim == 3
    assert torch.equal(network(None), network.source.rows.values())
    assert torch.equal(network(ReceptiveField((), some, some)), network(None)[some])


def test_dropout_acts_while_training_only():
    adjacency = RelationalAdjacency.from_triples(torch.tensor([[0, 0, 1], [1, 0, 2]]), 3, 1)
    layers = [RelationalGraphConv.one_hot(adjacency, 64), RelationalGraphConv(64, 2, 1)]
    network = RelationalEncoder(None, layers, dropout=0.5)
    field = ReceptiveField.whole(adjacency, 2)
    assert not torch.equal(network(field), network(field))
    network.eval()
    assert torch.equal(network(field), network(field))


def test_an_encoder_without_layers_and_a_field_of_another_depth_are_refused():
    adjacency = RelationalAdjacency.from_triples(torch.tensor([[0, 0, 1]]), 2, 1)
    with pytest.raises(ConfigError, match="at least one layer"):
        RelationalEncoder(None, [])
    network = RelationalEncoder(None, [RelationalGraphConv.one_hot(adjacency, 2)])
    with pytest.raises(ConfigError, match="receptive field of 2 layers"):
        network(ReceptiveField.whole(adjacency, 2))


def naive_over(network, field, num_nodes):
    """Compute the network over a field in float64, from the entries and weights of every layer."""
    weights = [layer.dense_weight() for layer in network.layers]
    brought = {"NodeEmbedding": lambda s: s.rows.trained, "NodeFeatures": lambda s: s.features}
    source = network.source
    x = torch.eye(num_nodes).double() if source is None else brought[type(source).__name__](source)
    x = x[field.inputs]
    for number, (operator, layer) in enumerate(zip(field.layers, network.layers, strict=True)):
        weight = weights[number]
        x = naive_layer(operator.to_dense(), x, weight, layer.bias)
        x = torch.relu(x) if number + 1 < len(network.layers) else x
    return x


@pytest.mark.parametrize("fan_out", [None, 1, 2])
@pytest.mark.parametrize("kind", KINDS)
@given(graph=small_graphs(), data=st.data())
@settings(max_examples=5)
def test_a_drawn_field_gives_the_values_and_gradients_of_its_edges_written_out(kind, fan_out, graph, data):
    nodes = drawn_nodes(data, graph)
    adjacency = operator_of(graph)
    network = encoder_of(kind, 2, graph, adjacency)
    field = FieldSampler(adjacency, 2, fan_out, data.draw(st.sampled_from([(0.0, 0.0), (0.3, 0.3)]))).field(nodes, 3)
    ours, naive = network(field), naive_over(network, field, graph.num_nodes)
    torch.testing.assert_close(ours, naive, rtol=1e-10, atol=1e-10)
    parameters = list(network.parameters())
    pairs = [torch.autograd.grad(out.square().sum(), parameters, allow_unused=True) for out in (ours, naive)]
    for parameter, some, all_ in zip(parameters, *pairs, strict=True):
        some, all_ = (torch.zeros_like(parameter) if g is None else g for g in (some, all_))
        torch.testing.assert_close(some, all_, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
@given(graph=small_graphs(), data=st.data())
@settings(max_examples=4)
def test_layerwise_inference_in_blocks_equals_the_whole_graph(kind, depth, graph, data):
    nodes = drawn_nodes(data, graph)
    adjacency = operator_of(graph)
    network = encoder_of(kind, depth, graph, adjacency)
    everything = network(ReceptiveField.whole(adjacency, depth))[nodes]
    few = network.node_states(adjacency, nodes, depth)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(relational_encoder, "MAX_FIELD_EDGES", -1)
        patch.setattr(relational_encoder, "MAX_CHUNK_EDGES", data.draw(st.integers(1, 20)))
        in_pieces = network.node_states(adjacency, nodes, depth)
    for found in (few, in_pieces):
        torch.testing.assert_close(found, everything, rtol=1e-10, atol=1e-10)
