"""Message functions and decompositions from outside go wherever built-in ones do; attention against its definition."""

from __future__ import annotations

import pytest
import torch
from outside import installed
from stranger_convolutions import Attention, LowRank
from torch import Tensor

import rgcn
from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.errors import ConfigError
from rgcn.explain import explain_link
from rgcn.graph import KnowledgeGraph
from rgcn.nn import Basis, BlockDiagonal, Diagonal, Full, RelationalGraphConv
from rgcn.nn.message_functions import MessageShape
from rgcn.runs import load_configuration

NODES, RELATIONS, WIDTH, SLOPE = 7, 2, 4, 0.3
KINDS = 2 * RELATIONS + 1
TRIPLES = [(0, 0, 1), (2, 0, 1), (3, 1, 1), (1, 1, 0), (4, 0, 4), (5, 1, 2), (5, 0, 2), (5, 0, 2), (6, 1, 5)]


def edges_into(node: int) -> list[tuple[int, int]]:
    """(source, relation) of each edge into a node: along triples, against them, and its self-loop."""
    along = [(s, r) for s, r, o in TRIPLES if o == node]
    against = [(o, r + RELATIONS) for s, r, o in TRIPLES if s == node]
    return [*along, *against, (node, KINDS - 1)]


def attention_by_definition(x: Tensor, function: Attention, matrices: Tensor, normalization: str) -> Tensor:
    """[nodes, width]: every node, edge and number by itself."""
    rows = []
    for node in range(NODES):
        edges = edges_into(node)
        strength = []
        for source, relation in edges:
            score = function.of_source[relation] @ x[source] + function.of_target[relation] @ x[node]
            strength.append(torch.exp(score if score > 0 else function.slope * score))
        row = torch.zeros(WIDTH, dtype=x.dtype)
        for (source, relation), own in zip(edges, strength, strict=True):
            others = zip(edges, strength, strict=True)
            total = sum(other for (_, r), other in others if normalization == "node" or r == relation)
            row = row + own / total * (x[source] @ matrices[relation])
        rows.append(row)
    return torch.stack(rows)


def attentive(decomposition, evaluation="auto") -> RelationalGraphConv:
    generator = torch.Generator().manual_seed(0)
    function = Attention(MessageShape(WIDTH, WIDTH, KINDS), SLOPE, generator)
    return RelationalGraphConv(
        WIDTH,
        WIDTH,
        RELATIONS,
        decomposition=decomposition,
        evaluation=evaluation,
        generator=generator,
        message_function=function,
    ).double()


def operator(normalization: str) -> RelationalAdjacency:
    adjacency = RelationalAdjacency.from_triples(torch.tensor(TRIPLES), NODES, RELATIONS, normalization=normalization)
    return adjacency.to(torch.float64)


def same_gradients(found: Tensor, expected: Tensor, leaves: list[Tensor]) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    slope = torch.randn(found.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    wanted = torch.autograd.grad(expected, leaves, slope)
    for one, other in zip(torch.autograd.grad(found, leaves, slope), wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("normalization", ["node", "relation"])
@pytest.mark.parametrize("evaluation", ["auto", "horizontal", "vertical", "edgewise"])
@pytest.mark.parametrize(
    "decomposition",
    [Full(), Basis(3), Basis(2, self_loop_apart=True), BlockDiagonal(2), Diagonal(), LowRank(2)],
    ids=["full", "basis", "basis-apart", "block", "diagonal", "low-rank"],
)
def test_attention_from_both_ends_is_its_definition(decomposition, evaluation, normalization):
    layer, adjacency = attentive(decomposition, evaluation), operator(normalization)
    x = torch.randn(NODES, WIDTH, generator=torch.Generator().manual_seed(1), dtype=torch.float64, requires_grad=True)
    expected = attention_by_definition(x, layer.message_function, layer.dense_weight(), normalization) + layer.bias
    same_gradients(layer(x, adjacency), expected, [x, *layer.parameters()])


def test_attention_over_a_receptive_field_is_that_of_the_whole_graph():
    layer, adjacency = attentive(LowRank(2)), operator("node")
    x = torch.randn(NODES, WIDTH, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    whole, wanted = layer(x, adjacency), torch.tensor([5, 1])
    field = ReceptiveField.of(adjacency, wanted, 1)
    torch.testing.assert_close(layer(x[field.inputs], field.layers[0]), whole[wanted], rtol=1e-12, atol=1e-12)


def test_attention_of_a_dropped_triple_goes_to_the_others():
    layer, adjacency, x = attentive(Full()), operator("node"), torch.randn(NODES, WIDTH, dtype=torch.float64)
    keep = torch.ones(len(TRIPLES) + NODES)
    keep[0] = 0
    without = RelationalAdjacency.from_triples(torch.tensor(TRIPLES[1:]), NODES, RELATIONS, normalization="node")
    expected = layer(x, without.to(torch.float64))
    torch.testing.assert_close(layer(x, adjacency.masked(keep)), expected, rtol=1e-12, atol=1e-12)


def test_a_target_without_its_own_vector_is_refused():
    adjacency = RelationalAdjacency.from_triples(torch.tensor(TRIPLES), NODES, RELATIONS, self_loops=False)
    part, _ = adjacency.restricted(torch.tensor([1]))
    with pytest.raises(ConfigError, match="set self_loops to true"):
        part.structure.own_sources.sum()
    assert adjacency.structure.own_sources.tolist() == list(range(NODES))


OURS = {"message_function": Attention, "convolution_options": {"slope": 0.1, "rank": 3}, "decomposition": LowRank}


def test_links_are_learned_saved_and_explained_with_both(tmp_path):
    kg = rgcn.load("world").subgraph(range(90))
    model = rgcn.LinkPredictor("rgcn", embedding=6, normalization="node", epochs=4, batch_edges=60, seed=1, **OURS).fit(
        kg
    )
    (layer,) = model.network_.encoder.layers
    assert (layer.message_function.slope, layer.weights.left.shape[2]) == (0.1, 3)
    before = Attention(MessageShape(6, 6, layer.num_edge_relations), 0.1, torch.Generator())
    assert layer.message_function.of_source.shape == before.of_source.shape
    model.save(str(tmp_path))
    opened = rgcn.open_model(tmp_path)
    asked = kg.named(kg.split_triples("test"))[:5]
    assert [t.score for t in opened.model.score(asked)] == [t.score for t in model.score(asked)]
    why = explain_link(opened, 0, 0, 1, edges=3, draws=2)
    assert why.score == pytest.approx(model.score([(0, 0, 1)])[0].score, rel=1e-4, abs=1e-5)
    described = model.model.described().made_of
    assert described["Weight matrices"] == "LowRank, from stranger_convolutions"
    assert described["Messages"].startswith("Attention, from stranger_convolutions: along triples and against them")


@pytest.mark.parametrize("settings", [{}, {"batch_labels": 40, "fan_out": 3}])
def test_nodes_are_classified_with_both(settings):
    model = rgcn.NodeClassifier("e-rgcn", embedding=16, epochs=8, seed=0, **OURS, **settings)
    model.fit(rgcn.load("world"))
    first, second = model.network_.layers
    assert first.weights.scale.shape[1] == 16  # e-rgcn's first convolution is diagonal, whatever the others are
    assert second.weights.left.shape[1:] == (16, 3)
    assert all(torch.isfinite(model.logits(range(5))).flatten())
    assert model.score(rgcn.load("world"), split="train") > 0.4


def test_what_cannot_be_is_said():
    kg = KnowledgeGraph.from_triples([("a", "r", "b"), ("b", "r", "c")])
    adjacency = RelationalAdjacency.from_graph(kg)
    with pytest.raises(ConfigError, match="LowRank, from stranger_convolutions needs vectors to multiply: give"):
        RelationalGraphConv.one_hot(adjacency, 4, decomposition=LowRank(2))
    function = Attention(MessageShape(3, 4, 3), SLOPE, torch.Generator())
    with pytest.raises(ConfigError, match="the message function Attention reads vectors: give embeddings or features"):
        RelationalGraphConv.one_hot(adjacency, 4, message_function=function)
    with pytest.raises(ConfigError, match=r"convolution_options\.slop: unknown key; did you mean 'slope'\?"):
        rgcn.LinkPredictor(message_function=Attention, convolution_options={"slop": 1.0})
    with pytest.raises(ConfigError, match="unknown message function 'linaer'; did you mean 'linear'"):
        rgcn.LinkPredictor(message_function="linaer")


FILE = """
task: link-prediction
data: {dataset: world}
model: {message_function: "stranger_convolutions:Attention", decomposition: low-rank, convolution_options: {rank: 1}}
"""


def test_a_file_names_them_by_place_or_by_entry_point(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "ours.yaml").write_text(FILE)
    with pytest.raises(ConfigError, match="unknown decomposition 'low-rank'"):
        load_configuration(str(tmp_path / "ours.yaml"))
    with installed(tmp_path, "rgcn.decompositions", "low-rank = stranger_convolutions:LowRank"):
        assert load_configuration(str(tmp_path / "ours.yaml")).model.decomposition == "low-rank"
