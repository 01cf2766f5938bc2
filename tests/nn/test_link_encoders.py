"""Compare encoders of link prediction with loops, and test what they do not change."""

from __future__ import annotations

import pytest
import torch

from naive import SmallGraph, naive_adjacency, naive_layer
from rgcn.adjacency import RelationalAdjacency
from rgcn.config import LinkModelConfig, LinkTrainingConfig
from rgcn.errors import ConfigError
from rgcn.nn import Basis, BlockDiagonal, RelationalGraphConv
from rgcn.nn.decoders import DistMult
from rgcn.nn.link_network import LinkPlan
from rgcn.plugins import ENCODERS

GRAPH = SmallGraph([(0, 0, 1), (1, 1, 2), (3, 0, 1), (2, 1, 2), (0, 1, 3)], 5, 2)
FAST = {"steps": 1, "device": "cpu"}


def operator_of(graph=GRAPH, **choices):
    return RelationalAdjacency.from_triples(graph.tensor(), graph.num_nodes, graph.num_relations, **choices)


def network_of(name, seed=0, graph=GRAPH, training=None, **settings):
    chosen = {"encoder": "none"} if name == "none" else {"name": name}
    model = LinkModelConfig(**chosen, embedding=6, bottleneck=4, **settings)
    schedule = LinkTrainingConfig(**{**FAST, **(training or {})})
    sizes = graph.num_nodes, graph.num_relations
    adjacency = operator_of(graph, inverse=model.inverse, self_loops=model.self_loops)
    plan = LinkPlan(model, schedule, *sizes, adjacency, torch.Generator().manual_seed(seed))
    return ENCODERS.resolve(model.encoder).build_link_network(plan).eval()


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("decomposition", [{}, {"decomposition": "basis", "bases": 2}])
def test_compression_with_all_convolution_weights_zero_is_distmult_exactly(layers, decomposition):
    network = network_of("c-rgcn", layers=layers, decoder_biases=True, **decomposition)
    with torch.no_grad():
        for layer in network.encoder.layers:
            for parameter in layer.parameters():
                parameter.zero_()
    plain = network_of("none", decoder_biases=True)
    plain.encoder.source.load_state_dict(network.encoder.source.state_dict())
    plain.decoder.load_state_dict(network.decoder.state_dict())
    adjacency = operator_of()
    encoded, embedded = network.encode(adjacency), plain.encode(None)
    assert torch.equal(encoded, embedded)
    every = torch.cartesian_prod(*(torch.arange(n) for n in (5, 2, 5)))
    s, r, o = every.unbind(1)
    ours, theirs = (net.decoder.score(x[s], r, x[o]) for net, x in ((network, encoded), (plain, embedded)))
    assert torch.equal(ours, theirs)
    assert torch.equal(network.decoder.score_objects(encoded[s], r, encoded), plain.decoder.score_objects(
        embedded[s], r, embedded))  # fmt: skip


def test_compression_is_the_embedding_plus_what_came_through_the_bottleneck():
    network = network_of("c-rgcn", layers=2).double()
    encoder, dense = network.encoder, naive_adjacency(GRAPH)
    with torch.no_grad():
        encoder.down_bias.normal_()
    embedding = encoder.source()
    x = embedding @ encoder.down + encoder.down_bias
    for layer in encoder.layers:
        x = naive_layer(dense, x, layer.dense_weight(), layer.bias).relu()
    expected = embedding + x @ encoder.up
    torch.testing.assert_close(encoder(operator_of().to(torch.float64)), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("activated", [True, False])
@pytest.mark.parametrize("layers", [1, 3])
def test_convolutional_encoder_has_relu_between_layers_and_none_after_the_last(layers, activated):
    network = network_of("rgcn", layers=layers, activated_input=activated).double()
    encoder, dense = network.encoder, naive_adjacency(GRAPH)
    x = encoder.source.rows.values()
    if activated:
        with torch.no_grad():
            encoder.source.bias.normal_()
        x = (x + encoder.source.bias).relu()
    for depth, layer in enumerate(encoder.layers):
        x = naive_layer(dense, x if depth == 0 else x.relu(), layer.dense_weight(), layer.bias)
    torch.testing.assert_close(encoder(operator_of().to(torch.float64)), x, rtol=1e-6, atol=1e-6)
    assert (x < 0).any()


@pytest.mark.parametrize("layers", [1, 2])
def test_one_hot_input_is_the_convolution_of_the_identity(layers):
    network = network_of("rgcn", layers=layers, input="one-hot").double()
    assert network.encoder.source is None
    x, dense = torch.eye(5, dtype=torch.float64), naive_adjacency(GRAPH)
    for depth, layer in enumerate(network.encoder.layers):
        x = naive_layer(dense, x if depth == 0 else x.relu(), layer.dense_weight(), layer.bias)
    torch.testing.assert_close(network.encode(operator_of().to(torch.float64)), x, rtol=1e-6, atol=1e-6)


def test_distmult_has_embeddings_and_relations_and_nothing_else():
    network = network_of("none")
    assert sum(p.numel() for p in network.parameters()) == 5 * 6 + 2 * 6
    assert torch.equal(network.encode(None), network.encoder.source.rows.trained)


@pytest.mark.parametrize(
    ("name", "settings", "encoder"),
    [
        ("rgcn", {}, 5 * 6 + 6 + 5 * 6 * 6 + 6),
        ("rgcn", {"activated_input": False, "bias": False}, 5 * 6 + 5 * 6 * 6),
        ("rgcn", {"decomposition": "basis", "bases": 2}, 5 * 6 + 6 + 2 * 36 + 5 * 2 + 6),
        ("rgcn", {"decomposition": "basis", "bases": 2, "self_loop_apart": True}, 36 + 2 * 36 + 4 * 2 + 36 + 6),
        (
            "rgcn",
            {"decomposition": "basis", "bases": 2, "self_loop_apart": True, "separate_inverse_bases": True},
            36 + 4 * 36 + 4 * 2 + 36 + 6,
        ),
        ("rgcn", {"decomposition": "block", "blocks": 3}, 36 + 4 * 3 * 4 + 36 + 6),
        ("rgcn", {"decomposition": "block", "blocks": 3, "self_loop_apart": False}, 36 + 5 * 3 * 4 + 6),
        ("rgcn", {"inverse": False, "self_loops": False}, 36 + 2 * 36 + 6),
        ("c-rgcn", {}, 30 + 6 * 4 + 4 + 5 * 16 + 4 + 4 * 6),
        ("c-rgcn", {"layers": 2}, 30 + 6 * 4 + 4 + 2 * (5 * 16 + 4) + 4 * 6),
    ],
    ids=str,
)
def test_number_of_parameters(name, settings, encoder):
    assert sum(p.numel() for p in network_of(name, **settings).parameters()) == encoder + 2 * 6
    biased = network_of(name, decoder_biases=True, **settings)
    assert sum(p.numel() for p in biased.parameters()) == encoder + 2 * 6 + 2 * 5 + 2


def test_the_same_seed_gives_the_same_network_and_another_seed_another():
    first, same, other = (network_of("c-rgcn", seed=seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(value, same[name]) for name, value in first.items())
    assert not torch.equal(first["encoder.source.rows.trained"], other["encoder.source.rows.trained"])


def test_published_fans_and_normal_coefficients():
    graph = SmallGraph([], 10, 112)
    model = LinkModelConfig(name="rgcn", embedding=50, decomposition="block", blocks=10, fans="published")
    layer = (
        ENCODERS.resolve("rgcn")
        .build_link_network(
            LinkPlan(model, LinkTrainingConfig(), 10, 112, operator_of(graph), torch.Generator().manual_seed(0))
        )
        .encoder.layers[0]
    )
    assert float(layer.weights.blocks.detach().std()) == pytest.approx(3 / (112 + 5) ** 0.5, rel=0.02)
    assert float(layer.self_loop.detach().std()) == pytest.approx(3 / (112 + 5) ** 0.5, rel=0.05)
    model = LinkModelConfig(name="rgcn", embedding=8, decomposition="basis", bases=20, coefficient_init="normal")
    layer = (
        ENCODERS.resolve("rgcn")
        .build_link_network(
            LinkPlan(model, LinkTrainingConfig(), 10, 112, operator_of(graph), torch.Generator().manual_seed(0))
        )
        .encoder.layers[0]
    )
    assert float(layer.weights.coefficients.detach().std()) == pytest.approx(1.0, rel=0.05)


# -- self-loop message dropout -------------------------------------------------------------------------


@pytest.mark.parametrize("decomposition", [Basis(2, self_loop_apart=True), BlockDiagonal(2)], ids=str)
def test_self_loop_dropout_drops_numbers_of_the_self_loops_message_only(decomposition):
    adjacency = operator_of()
    layer = RelationalGraphConv(4, 6, 2, decomposition=decomposition, self_loop_dropout=0.25)
    x = torch.randn(5, 4)
    assert torch.equal(layer.eval()(x, adjacency), layer(x, adjacency))
    whole = layer(x, adjacency)
    own = x @ layer.self_loop
    rest = whole - own
    torch.manual_seed(0)
    ratios = torch.stack([(layer.train()(x, adjacency) - rest) / own for _ in range(200)])
    kept = ratios.abs() > 0.5
    torch.testing.assert_close(ratios[kept], torch.full_like(ratios[kept], 1 / 0.75), rtol=2e-2, atol=1e-2)
    torch.testing.assert_close(ratios[~kept], torch.zeros_like(ratios[~kept]), rtol=0, atol=2e-2)
    assert float(kept.float().mean()) == pytest.approx(0.75, abs=0.02)


def test_self_loop_dropout_is_refused_where_it_would_be_ignored():
    with pytest.raises(ConfigError, match="self_loop_apart"):
        RelationalGraphConv(4, 4, 2, self_loop_dropout=0.1)
    with pytest.raises(ConfigError, match="self_loop_apart"):
        RelationalGraphConv(4, 4, 2, decomposition=BlockDiagonal(2), self_loops=False, self_loop_dropout=0.1)
    on_message = {"self_loop_dropout_on": "message"}
    with pytest.raises(ConfigError, match="self_loop_apart"):
        network_of("rgcn", training=on_message)
    with pytest.raises(ConfigError, match="one-hot"):
        network_of("rgcn", training=on_message, input="one-hot")
    blocks = {"decomposition": "block", "blocks": 2}
    assert network_of("rgcn", training=on_message, **blocks).encoder.layers[0].self_loop_dropout == 0.2
    assert network_of("rgcn", **blocks).encoder.layers[0].self_loop_dropout == 0.0


def test_separate_inverse_bases_give_inverses_bases_of_their_own():
    layer = RelationalGraphConv(3, 3, 2, decomposition=Basis(2, separate_inverse=True))
    bases, coefficients, dense = layer.weights.bases, layer.weights.coefficients, layer.dense_weight()
    assert bases.shape[0] == 4
    for r, half in ((0, 0), (1, 0), (2, 2), (3, 2), (4, 0)):  # two relations, their inverses, the self-loop
        torch.testing.assert_close(dense[r], sum(coefficients[r, b] * bases[half + b] for b in range(2)))
    with pytest.raises(ConfigError, match="inverse"):
        RelationalGraphConv(3, 3, 2, inverse=False, decomposition=Basis(2, separate_inverse=True))
    with pytest.raises(ConfigError, match="node vectors"):
        RelationalGraphConv.one_hot(operator_of(), 3, decomposition=Basis(2, separate_inverse=True))


def test_the_decoder_adds_bias_columns_to_whatever_the_encoder_gives():
    network = network_of("rgcn", decoder_biases=True)
    assert isinstance(network.decoder, DistMult)
    assert network.encode(operator_of()).shape == (5, 6 + 2)
