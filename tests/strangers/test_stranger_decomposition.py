"""A decomposition of the relations' weight matrices from outside the package: W_r = U_r V_r, of low rank.

A package only needs to define `LowRank`. The tests below train it from Python, by its name on the command line and
by an entry point, save it, load it, and compare it with its definition.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from outside import command, installed
from torch import Tensor, nn

import rgcn
from naive import naive_adjacency, naive_layer, small_graphs
from rgcn.config import Section
from rgcn.errors import ConfigError
from rgcn.explain import explain_link
from rgcn.nn import RelationalGraphConv
from rgcn.nn.decompositions import Decomposition, MatrixWeights
from rgcn.nn.initialization import Initializer, WeightShape
from rgcn.runs import load_configuration
from small_models import named_rows


class LowRankOptions(Section):
    """What a user may set in `model.convolution_options`."""

    rank: int = 2
    """Inner width of the product."""


@dataclass(frozen=True)
class LowRank(Decomposition):
    """W_r = U_r V_r, with U_r [in, rank] and V_r [rank, out]."""

    rank: int

    Options = LowRankOptions

    def num_parameters(self, num_relations: int, in_features: int, out_features: int) -> int:
        return num_relations * self.rank * (in_features + out_features)

    def weights(self, shape: WeightShape, init: Initializer, generator: torch.Generator) -> LowRankWeights:
        relations, width_in, width_out = shape
        left = init.draw((relations, width_in, self.rank), generator)
        return LowRankWeights(left, init.draw((relations, self.rank, width_out), generator))


class LowRankWeights(MatrixWeights):
    """U [relations, in, rank] and V [relations, rank, out], the parameters."""

    def __init__(self, left: Tensor, right: Tensor) -> None:
        super().__init__()
        self.left, self.right = nn.Parameter(left), nn.Parameter(right)

    def matrices(self) -> Tensor:
        """[relations, 1, in, out]: each matrix has one block."""
        return (self.left @ self.right).unsqueeze(1)


# -- what follows from it -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("evaluation", ["auto", "horizontal", "vertical", "edgewise"])
@settings(max_examples=25, deadline=None)
@given(graph=small_graphs())
def test_values_and_gradients_are_those_of_the_definition(graph, evaluation):
    generator = torch.Generator().manual_seed(graph.seed)
    edges = {"inverse": graph.inverse, "self_loops": graph.self_loops}
    layer = RelationalGraphConv(5, 4, graph.num_relations, decomposition=LowRank(2), evaluation=evaluation,
                                generator=generator, **edges).double()  # fmt: skip
    adjacency = rgcn.RelationalAdjacency.from_triples(
        graph.tensor(), graph.num_nodes, graph.num_relations, edge_weights=graph.triple_weights(), **graph.choices()
    ).to(torch.float64)
    x = torch.randn(graph.num_nodes, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    left, right = layer.weights.left, layer.weights.right
    matrices = torch.stack([u @ v for u, v in zip(left, right, strict=True)])
    found, expected = layer(x, adjacency), naive_layer(naive_adjacency(graph), x, matrices, layer.bias)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    slope, leaves = torch.randn(found.shape, generator=generator, dtype=torch.float64), [x, left, right, layer.bias]
    wanted = torch.autograd.grad(expected, leaves, slope)
    for one, other in zip(torch.autograd.grad(found, leaves, slope), wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-12)


def test_nodes_are_classified_from_python_saved_and_loaded(tmp_path):
    kg = rgcn.load("world")
    model = rgcn.NodeClassifier("e-rgcn", decomposition=LowRank, convolution_options={"rank": 3}, embedding=16,
                                epochs=8, seed=0).fit(kg)  # fmt: skip
    first, second = model.network_.layers
    assert first.weights.scale.shape[1] == 16  # e-rgcn's first convolution is diagonal, whatever the others are
    assert second.weights.left.shape[1:] == (16, 3)
    assert model.score(kg, split="train") > 0.4
    model.save(str(tmp_path))
    assert rgcn.load_model(tmp_path).predict_frame(["Peru"]).equals(model.predict_frame(["Peru"]))


def test_links_are_learned_explained_saved_and_described(tmp_path):
    kg = rgcn.load("world").subgraph(range(90))
    model = rgcn.LinkPredictor("rgcn", decomposition=LowRank, embedding=6, steps=4, batch_edges=60, seed=1).fit(kg)
    model.save(str(tmp_path))
    opened = rgcn.open_model(tmp_path)
    triples = kg.named(kg.split_triples("test"))[:5]
    assert [t.score for t in named_rows(opened.model.triples_frame(triples))] == [
        t.score for t in named_rows(model.triples_frame(triples))
    ]
    why = explain_link(opened, 0, 0, 1, edges=3, draws=2)
    assert why.score == pytest.approx(named_rows(model.triples_frame([(0, 0, 1)]))[0].score, rel=1e-4, abs=1e-5)
    assert model.model.describe().parts["Weight matrices"] == f"LowRank, from {__name__}"


FILE = "task: node-classification\ndata: {dataset: world}\nmodel: {encoder: e-rgcn}\ntraining: {epochs: 4}\n"


def test_the_command_line_trains_it_by_its_place(tmp_path):
    (tmp_path / "nodes.yaml").write_text(FILE)
    settings = f"model.decomposition={__name__}:LowRank", "model.convolution_options={rank: 3}"
    done = command("train", "nodes.yaml", "--out", "run", "-q", *(word for one in settings for word in ("--set", one)),
                   cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    opened = rgcn.load_model(tmp_path / "run")
    assert opened.network_.layers[1].weights.left.shape[2] == 3
    predicted = command("predict", "run", "--node", "Peru", "--json", cwd=tmp_path)
    assert predicted.returncode == 0, predicted.stderr
    assert opened.predict(["Peru"])[0] in predicted.stdout


def test_an_entry_point_gives_it_a_name(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "nodes.yaml").write_text(FILE)
    with pytest.raises(ConfigError, match="unknown decomposition 'low-rank'"):
        load_configuration(str(tmp_path / "nodes.yaml"), ["model.decomposition=low-rank"])
    with installed(tmp_path, "rgcn.decompositions", f"low-rank = {__name__}:LowRank"):
        model = rgcn.NodeClassifier("e-rgcn", decomposition="low-rank", epochs=2).fit(rgcn.load("world"))
        model.save(str(tmp_path / "model"))
        assert json.loads((tmp_path / "model" / "model.json").read_text())["settings"]["decomposition"] == "low-rank"
        assert isinstance(rgcn.load_model(tmp_path / "model").network_.layers[1].weights, LowRankWeights)


def test_one_hot_nodes_are_refused():
    adjacency = rgcn.RelationalAdjacency.from_graph(rgcn.KnowledgeGraph.from_triples([("a", "r", "b")]))
    with pytest.raises(ConfigError, match=f"LowRank, from {__name__} needs node vectors: use"):
        RelationalGraphConv.one_hot(adjacency, 4, decomposition=LowRank(2))
