"""A message function from outside the package: attention computed from both ends of each edge, as in GATv2 and RGAT.

A package only needs to define `Attention`. The tests below compare its values and gradients with a loop over nodes
and edges, train it from Python, by its name on the command line and by an entry point, save it and load it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from outside import command, installed
from test_stranger_decomposition import LowRank
from torch import Tensor, nn

import rgcn
from naive import SmallGraph, naive_edges
from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.config import Section
from rgcn.errors import ConfigError
from rgcn.explain import explain_link
from rgcn.nn import Basis, BlockDiagonal, Diagonal, Full, RelationalGraphConv
from rgcn.nn.relational_graph_conv import Convolve, MessageFunction, MessageShape
from rgcn.runs import load_configuration
from small_models import named_rows


class AttentionOptions(Section):
    """What a user may set in `model.convolution_options`."""

    slope: float = 0.2
    """Slope of LeakyReLU below zero."""


class Attention(MessageFunction):
    """Each node averages its messages. An edge (u, r, v) has weight softmax(⟨a, LeakyReLU(P x_u + Q x_v + e_r)⟩).

    The softmax runs over all edges into v with `normalization: node`; with `normalization: relation` over those of one
    relation. Brody et al., "How attentive are graph attention networks?", 2022.
    """

    Options = AttentionOptions

    def __init__(self, shape: MessageShape, slope: float, generator: torch.Generator) -> None:
        super().__init__()
        width = shape.in_features
        self.of_source = nn.Parameter(torch.randn(width, width, generator=generator) / width)
        self.of_target = nn.Parameter(torch.randn(width, width, generator=generator) / width)
        self.of_relation = nn.Parameter(torch.randn(shape.num_relations, width, generator=generator) / width)
        self.attention = nn.Parameter(torch.randn(width, generator=generator) / width)
        self.slope = slope

    @classmethod
    def build(cls, shape: MessageShape, options: Mapping[str, Any], generator: torch.Generator) -> Attention:
        return cls(shape, cls.read_options(options).slope, generator)

    def forward(self, x: Tensor, adjacency: RelationalAdjacency, convolve: Convolve) -> Tensor:
        edges = adjacency.structure
        source = (x @ self.of_source)[edges.source]  # [edges, width]
        target = (x[edges.target_sources] @ self.of_target)[edges.target]  # [edges, width]
        score = F.leaky_relu(source + target + self.of_relation[edges.relation], self.slope) @ self.attention
        return convolve(x, adjacency.with_attention(torch.exp(score - score.detach().max())))


# -- values and gradients -------------------------------------------------------------------------------------------

NODES, RELATIONS, WIDTH, SLOPE = 9, 3, 4, 0.3


def random_graph(seed: int, **choices: Any) -> SmallGraph:
    """Thirty triples with repetitions, and a node without any."""
    generator = torch.Generator().manual_seed(seed)
    size = torch.tensor([NODES - 1, RELATIONS, NODES - 1])
    triples = (torch.rand(27, 3, generator=generator) * size).long().tolist()
    return SmallGraph([*triples, *triples[:3]], NODES, RELATIONS, **choices)


def operator(graph: SmallGraph) -> RelationalAdjacency:
    whole = RelationalAdjacency.from_triples(graph.tensor(), NODES, RELATIONS, **graph.choices())
    return whole.to(torch.float64)


def attention_by_definition(graph: SmallGraph, x: Tensor, function: Attention, matrices: Tensor) -> Tensor:
    """[nodes, width], float64: every node, edge and softmax by itself."""
    edges = naive_edges(graph, [1.0] * len(graph.triples), [1.0] * NODES)
    rows = []
    for node in range(NODES):
        into = [(relation, source) for relation, target, source, _, _ in edges if target == node]
        scores = []
        for relation, source in into:
            both = x[source] @ function.of_source + x[node] @ function.of_target + function.of_relation[relation]
            scores.append(function.attention @ torch.where(both > 0, both, function.slope * both))
        row = torch.zeros(matrices.shape[2], dtype=x.dtype)
        for relation in {relation for relation, _ in into}:
            rivals = [i for i, (r, _) in enumerate(into) if graph.normalization == "node" or r == relation]
            total = sum(torch.exp(scores[i]) for i in rivals)
            for i in rivals:
                if into[i][0] == relation:
                    row = row + torch.exp(scores[i]) / total * (x[into[i][1]] @ matrices[relation])
        rows.append(row)
    return torch.stack(rows)


def attentive(graph: SmallGraph, decomposition: Any, evaluation: Any = "auto") -> RelationalGraphConv:
    generator = torch.Generator().manual_seed(0)
    function = Attention(MessageShape(WIDTH, WIDTH, graph.num_edge_relations), SLOPE, generator)
    return RelationalGraphConv(
        WIDTH, WIDTH, RELATIONS, decomposition=decomposition, inverse=graph.inverse, self_loops=graph.self_loops,
        evaluation=evaluation, generator=generator, message_function=function,
    ).double()  # fmt: skip


def vectors(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(NODES, WIDTH, generator=generator, dtype=torch.float64, requires_grad=True)


DECOMPOSITIONS = {
    "full": Full(),
    "basis": Basis(3),
    "basis-apart": Basis(2, self_loop_apart=True),
    "block": BlockDiagonal(2),
    "diagonal": Diagonal(),
    "low-rank": LowRank(2),
}


@pytest.mark.parametrize("normalization", ["node", "relation"])
@pytest.mark.parametrize("evaluation", ["auto", "horizontal", "vertical", "edgewise"])
@pytest.mark.parametrize("decomposition", DECOMPOSITIONS.values(), ids=DECOMPOSITIONS)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_values_and_gradients_are_those_of_the_definition(decomposition, evaluation, normalization, seed):
    graph = random_graph(seed, normalization=normalization)
    layer, x = attentive(graph, decomposition, evaluation), vectors(seed)
    found = layer(x, operator(graph))
    expected = attention_by_definition(graph, x, layer.message_function, layer.dense_weight()) + layer.bias
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    slope = torch.randn(found.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    leaves = [x, *layer.parameters()]
    wanted = torch.autograd.grad(expected, leaves, slope)
    for one, other in zip(torch.autograd.grad(found, leaves, slope), wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("edges", [{"inverse": False}, {"self_loops": False}])
def test_it_fits_graphs_without_inverses_or_self_loops(edges):
    graph = random_graph(4, normalization="node", **edges)
    layer, x = attentive(graph, Full()), vectors(4)
    expected = attention_by_definition(graph, x, layer.message_function, layer.dense_weight()) + layer.bias
    torch.testing.assert_close(layer(x, operator(graph)), expected, rtol=1e-12, atol=1e-12)


def test_over_a_receptive_field_it_is_that_of_the_whole_graph():
    graph = random_graph(0, normalization="node")
    layer, adjacency, x = attentive(graph, LowRank(2)), operator(graph), vectors(1)
    wanted = torch.tensor([5, 1])
    field = ReceptiveField.of(adjacency, wanted, 1)
    found, whole = layer(x[field.inputs], field.layers[0]), layer(x, adjacency)
    torch.testing.assert_close(found, whole[wanted], rtol=1e-12, atol=1e-12)


def test_the_attention_of_a_dropped_triple_goes_to_the_others():
    graph = random_graph(0, normalization="node")
    keep = torch.ones(len(graph.triples) + NODES)
    keep[0] = 0
    layer, x = attentive(graph, Full()), vectors(1)
    expected = layer(x, operator(SmallGraph(graph.triples[1:], NODES, RELATIONS, normalization="node")))
    torch.testing.assert_close(layer(x, operator(graph).masked(keep)), expected, rtol=1e-12, atol=1e-12)


def test_a_target_without_its_own_vector_is_refused():
    adjacency = operator(random_graph(0, self_loops=False))
    part, _ = adjacency.restrict(torch.tensor([1]))
    with pytest.raises(ConfigError, match="set self_loops to true"):
        part.structure.target_sources.sum()
    assert adjacency.structure.target_sources.tolist() == list(range(NODES))


# -- chosen in Python, in a file, on the command line -----------------------------------------------------------------

OURS = {"message_function": Attention, "convolution_options": {"slope": 0.1}, "normalization": "node"}


@pytest.mark.parametrize("settings", [{}, {"batch_labels": 40, "fan_out": 3}])
def test_nodes_are_classified_from_python_saved_and_loaded(settings, tmp_path):
    kg = rgcn.load("world")
    model = rgcn.NodeClassifier("e-rgcn", embedding=16, epochs=20, seed=0, **OURS, **settings).fit(kg)
    assert all(layer.message_function.slope == 0.1 for layer in model.network_.layers)
    assert all(torch.isfinite(model.logits(range(5))).flatten())
    assert model.score(kg, split="train") > 0.4
    model.save(str(tmp_path))
    assert rgcn.load_model(tmp_path).predict_frame(["Peru"]).equals(model.predict_frame(["Peru"]))


def test_links_are_learned_explained_saved_and_described(tmp_path):
    kg = rgcn.load("world").subgraph(range(90))
    options = {"slope": 0.1, "rank": 3}
    model = rgcn.LinkPredictor(
        "rgcn", embedding=6, steps=4, batch_edges=60, seed=1, decomposition=LowRank,
        **OURS | {"convolution_options": options},
    ).fit(kg)  # fmt: skip
    (layer,) = model.network_.encoder.layers
    assert (layer.message_function.slope, layer.weights.left.shape[2]) == (0.1, 3)
    assert layer.message_function.of_relation.shape == (layer.num_edge_relations, 6)
    model.save(str(tmp_path))
    opened = rgcn.open_model(tmp_path)
    triples = kg.named(kg.split_triples("test"))[:5]
    assert [t.score for t in named_rows(opened.model.triples_frame(triples))] == [
        t.score for t in named_rows(model.triples_frame(triples))
    ]
    why = explain_link(opened, 0, 0, 1, edges=3, draws=2)
    assert why.score == pytest.approx(named_rows(model.triples_frame([(0, 0, 1)]))[0].score, rel=1e-4, abs=1e-5)
    described = model.model.describe().parts["Messages"]
    assert described.startswith(f"Attention, from {__name__}: along triples and against them")


FILE = "task: node-classification\ndata: {dataset: world}\nmodel: {encoder: e-rgcn}\ntraining: {epochs: 4}\n"


def test_the_command_line_trains_it_by_its_place(tmp_path):
    (tmp_path / "nodes.yaml").write_text(FILE)
    changes = f"model.message_function={__name__}:Attention", "model.convolution_options={slope: 0.3}"
    done = command("train", "nodes.yaml", "--out", "run", "-q", *(word for one in changes for word in ("--set", one)),
                   "--set", "model.normalization=node", cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    opened = rgcn.load_model(tmp_path / "run")
    assert opened.network_.layers[0].message_function.slope == 0.3
    predicted = command("predict", "run", "--node", "Peru", "--json", cwd=tmp_path)
    assert predicted.returncode == 0, predicted.stderr
    assert opened.predict(["Peru"])[0] in predicted.stdout


def test_an_entry_point_gives_it_a_name(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "nodes.yaml").write_text(FILE)
    with pytest.raises(ConfigError, match="unknown message function 'attention'"):
        load_configuration(str(tmp_path / "nodes.yaml"), ["model.message_function=attention"])
    with installed(tmp_path, "rgcn.message_functions", f"attention = {__name__}:Attention"):
        model = rgcn.NodeClassifier("e-rgcn", message_function="attention", epochs=2).fit(rgcn.load("world"))
        model.save(str(tmp_path / "model"))
        kept = json.loads((tmp_path / "model" / "model.json").read_text())["settings"]
        assert kept["message_function"] == "attention"
        assert isinstance(rgcn.load_model(tmp_path / "model").network_.layers[1].message_function, Attention)


def test_impossible_arguments_are_reported():
    adjacency = RelationalAdjacency.from_graph(rgcn.KnowledgeGraph.from_triples([("a", "r", "b"), ("b", "r", "c")]))
    function = Attention(MessageShape(3, 4, 3), SLOPE, torch.Generator())
    with pytest.raises(
        ConfigError, match="the message function Attention needs node vectors: use embeddings or features"
    ):
        RelationalGraphConv.one_hot(adjacency, 4, message_function=function)
    with pytest.raises(ConfigError, match=r"convolution_options\.slop: unknown key; did you mean 'slope'\?"):
        rgcn.LinkPredictor(message_function=Attention, convolution_options={"slop": 1.0})
    with pytest.raises(ConfigError, match="unknown message function 'linaer'; did you mean 'linear'"):
        rgcn.LinkPredictor(message_function="linaer")
