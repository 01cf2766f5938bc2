"""Test the comparison of encoders: the random graph, the MLP, and a whole comparison of a few steps."""

import json
import sys
import tempfile
from pathlib import Path

import pytest
import torch

import rgcn
from rgcn.adjacency import RelationalAdjacency
from rgcn.sampling.negatives import HiddenTriples
from small_models import random_graph

ROOT = Path(__file__).parents[2]
MODULES = ("message_passing", "message_passing_encoders", "link_comparison")


@pytest.fixture
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import message_passing
    import message_passing_encoders

    yield message_passing, message_passing_encoders
    for name in MODULES:
        sys.modules.pop(name, None)


def fitted(encoder, graph, **settings):
    options = {
        "objective": "softmax-unfiltered",
        "embedding": 8,
        "batch_edges": 16,
        "steps": 2,
        "self_loop_apart": True,
    }
    options |= {"decomposition": "basis", "bases": 2, "message_edges": "graph", "edge_dropout": 0.0, **settings}
    return rgcn.LinkPredictor(encoder=encoder, device="cpu", **options).fit(graph)


def degrees(triples, end):
    return sorted(map(tuple, triples[:, [end, 1]].tolist()))


def sorted_rows(triples):
    return sorted(map(tuple, triples.tolist()))


def test_permuted_triples_keep_degrees_in_each_relation(scripts):
    triples = torch.tensor(random_graph(1, triples=200).triples)
    permuted = scripts[1].permuted_objects(triples, seed=3)
    assert torch.equal(permuted[:, :2], triples[:, :2])
    assert degrees(permuted, 2) == degrees(triples, 2)
    assert not torch.equal(permuted, triples)
    assert torch.equal(permuted, scripts[1].permuted_objects(triples, seed=3))
    assert not torch.equal(permuted, scripts[1].permuted_objects(triples, seed=4))


def test_triples_of_an_operator_have_the_order_they_were_given_in(scripts):
    triples = torch.tensor(random_graph(2).triples)
    triples = triples[torch.randperm(len(triples), generator=torch.Generator().manual_seed(0))]
    assert torch.equal(scripts[1].triples_of(RelationalAdjacency.from_triples(triples, 23, 3)), triples)


def test_only_rgcn_depends_on_edges(scripts):
    graph = random_graph(4)
    train = torch.tensor(graph.split_triples("train"))
    other = scripts[1].permuted_objects(train, 0)
    for encoder, is_same in ((scripts[1].MLPEncoder, True), ("rgcn", False)):
        network = fitted(encoder, graph).network_.eval()
        vectors = [network.encoder(RelationalAdjacency.from_triples(each, 23, 3)) for each in (train, other)]
        assert torch.equal(*vectors) == is_same


def test_the_mlp_is_rgcn_without_messages(scripts):
    graph = random_graph(4)
    rgcn_network, mlp = (fitted(name, graph, steps=0).network_.eval() for name in ("rgcn", scripts[1].MLPEncoder))
    layer = rgcn_network.encoder.layers[0]
    with torch.no_grad():
        matrix = next(each for each in layer.parameters() if each.shape == (8, 8))
        mlp.encoder.weights[0].copy_(matrix)
        mlp.encoder.source.load_state_dict(rgcn_network.encoder.source.state_dict())
        loops = RelationalAdjacency.from_triples(torch.empty(0, 3, dtype=torch.int64), 23, 3)
        torch.testing.assert_close(mlp.encoder(None), rgcn_network.encoder(loops))


@pytest.fixture
def encoder(scripts):
    return fitted(scripts[1].RandomGraphEncoder, random_graph(4), options={"graph_seed": 5}).network_.encoder


def test_evaluation_uses_the_random_graph(encoder, scripts):
    graph = random_graph(4)
    train = torch.tensor(graph.split_triples("train"))
    expected = RelationalAdjacency.from_triples(scripts[1].permuted_objects(train, 5), 23, 3)
    got = encoder.randomized(RelationalAdjacency.from_graph(graph, split="train"))
    torch.testing.assert_close(got.to_dense(), expected.to_dense())


def test_dropped_edges_are_those_of_the_same_rows(encoder):
    whole = RelationalAdjacency.from_triples(encoder.real, 23, 3)
    mask = whole.draw_mask(0.5, 0.3, torch.Generator().manual_seed(1))
    got = encoder.randomized(whole.masked(mask))
    row = torch.cat([encoder.mask_row, torch.arange(23) + len(encoder.real)])
    expected = RelationalAdjacency.from_triples(encoder.triples, 23, 3).masked(mask[row])
    torch.testing.assert_close(got.to_dense(), expected.to_dense())


def test_a_hidden_triple_sends_no_message_in_the_random_graph_either(encoder):
    real, whole = encoder.real, RelationalAdjacency.from_triples(encoder.real, 23, 3)
    present = {tuple(row) for row in encoder.triples.tolist()}
    batch = real[[tuple(row) in present for row in real.tolist()]]
    assert len(batch)
    visible = HiddenTriples(real, 23, 3, "triple").visibility(batch)
    got = encoder.randomized(whole.masked(torch.cat([visible, torch.ones(23)]))).to_dense()
    assert not got[batch[:, 1], batch[:, 2], batch[:, 0]].any()


def test_edges_of_a_batch_are_replaced_row_by_row(encoder):
    rows = torch.tensor([7, 2, 11])
    batch = RelationalAdjacency.from_triples(encoder.real[rows], 23, 3, transient=True)
    expected = RelationalAdjacency.from_triples(encoder.triples[rows], 23, 3)
    torch.testing.assert_close(encoder.randomized(batch).to_dense(), expected.to_dense())


@pytest.mark.parametrize("edges", ["batch", "graph", "graph-without-batch"])
def test_the_random_graph_trains_with_every_choice_of_edges(scripts, edges):
    model = fitted(scripts[1].RandomGraphEncoder, random_graph(4), message_edges=edges, edge_dropout=0.3)
    assert 0.0 < model.score(split="valid") <= 1.0


def test_rgcn_and_the_random_graph_begin_with_the_same_weights(scripts):
    graph = random_graph(4)
    states = [fitted(each, graph, steps=0).network_.state_dict() for each in ("rgcn", scripts[1].RandomGraphEncoder)]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_a_quick_comparison(scripts, tmp_path, monkeypatch, capsys):
    pytest.importorskip("optuna")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    scripts[0].main(["--quick", "--variants", "mlp", "random-graph", "--seeds", "0"])
    (folder,) = tmp_path.glob("message-passing-*")
    trials = json.loads((folder / "message-passing-trials.json").read_text(encoding="utf-8"))["runs"]
    of = {
        name: [each for each in trials if each["variant"] == name and "trial" in each]
        for name in ("mlp", "random-graph")
    }
    assert [len(each) for each in of.values()] == [2, 2]
    # Both have the same draws.
    first, second = (each[1]["settings"] for each in of.values())
    assert all(second[key] == value for key, value in first.items())
    runs = json.loads((folder / "message-passing.json").read_text(encoding="utf-8"))["runs"]
    assert [run["split"] for run in runs] == ["valid"] * 4 + ["test"] * 4
    assert all({"realistic", "pessimistic"} == run["metrics"].keys() for run in runs)
    assert "| RGCN, random graph |" in capsys.readouterr().out


def test_test_triples_are_not_read_before_all_runs_are_there(scripts, tmp_path):
    plan = scripts[0].Plan(("world",), "distmult", 8, tmp_path / "trials.json", tmp_path / "runs.json", tmp_path)
    with pytest.raises(SystemExit, match="no finished trial of mlp"):
        scripts[0].test(plan, ["mlp"], [0])
    trial = {"trial": 0, "state": "finished", "valid_mrr": 0.1}
    scripts[0].Book(plan.trials, "").add({**plan.key("mlp"), **trial})
    with pytest.raises(SystemExit, match="lacks mlp on world, seed 0"):
        scripts[0].test(plan, ["mlp"], [0])


def test_what_is_in_the_files_is_not_run_again(scripts, tmp_path):
    plan = scripts[0].Plan(("world",), "distmult", 8, tmp_path / "trials.json", tmp_path / "runs.json", tmp_path)
    book = scripts[0].Book(plan.trials, "")
    book.add({**plan.key("mlp"), "dataset": "world", "of": "time of a step", "epochs": 3})
    for number, mrr in enumerate((0.1, 0.3)):
        found = {
            "state": "finished",
            "valid_mrr": mrr,
            "epochs": 3,
            "settings": {"training.penalty": 0.01 * (number + 1)},
        }
        book.add({**plan.key("mlp"), "trial": number, **found})
    scripts[0].tune_variant(plan, "mlp", 2)
    assert not (tmp_path / "studies").exists()
    config = scripts[0].best_configuration(plan, "mlp", "world", 1)
    assert (config.training.steps, config.training.penalty, config.seed) == (3 * 118, 0.02, 1)
