"""Test pretraining on several graphs: bit-identical after interruptions, and not trained on the validation graph."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from rgcn.config import PretrainingConfig, PretrainingRun
from rgcn.errors import ConfigError, DataError
from rgcn.graph import KnowledgeGraph
from rgcn.models.pretrainer import DRAWN, Pretrainer
from rgcn.runs import load_configuration
from rgcn.runs.training import resume, train
from rgcn.training.fitting import TrainingState
from small_models import named_rows

SETTINGS = {
    **{"layers": 2, "width": 4, "relation_layers": 1, "start": "random", "dropout": 0.1, "device": "cpu"},
    **{"graphs": {"chain": 1.0, "mixed": 2.0}, "drawn": 0.0, "pairs_hidden_in": ["mixed"], "altered": 0.5},
    **{"round_steps": 3, "round_views": 2, "steps": 8, "batch_edges": 4, "edge_dropout": 0.2, "clip": 1.0},
    **{"warmup": 2, "learning_rate": 0.01},
}


def named(seed, nodes=12, relations=3, triples=40) -> KnowledgeGraph:
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, (nodes, relations, nodes), (triples, 3)).tolist()
    return KnowledgeGraph.from_triples([(f"n{s}", f"r{r}", f"n{o}") for s, r, o in rows], name=f"named {seed}")


READ = Pretrainer._read_graph  # before the fixture below replaces it
GRAPHS = {
    "chain": KnowledgeGraph.from_triples([(f"n{i}", f"r{i % 2}", f"n{i + 1}") for i in range(20)]),
    "mixed": named(1, relations=5),
    "empty": KnowledgeGraph.from_triples([("a", "r", "b")], triple_splits=[1]),
    "alone": KnowledgeGraph.from_triples([("a", "r", "a"), ("b", "r", "a")], triple_splits=[0, 1]),
}
WATCHED = KnowledgeGraph.from_triples(
    [(f"w{i}", "next", f"w{(i + 1) % 9}") for i in range(9)] + [("w0", "far", "w4"), ("w2", "far", "w6")],
    triple_splits=[0] * 8 + [1, 0, 1],
)


@pytest.fixture(autouse=True)
def graphs_by_name(monkeypatch):
    monkeypatch.setattr(Pretrainer, "_read_graph", staticmethod(GRAPHS.__getitem__))


def pretrainer(**settings) -> Pretrainer:
    return Pretrainer("universal", seed=3, **{**SETTINGS, **settings})


def weights_of(model) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.network_.state_dict().items()}


def assert_same(ours, theirs) -> None:
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name]), name


@pytest.fixture(scope="module")
def expected():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pretrainer, "_read_graph", staticmethod(GRAPHS.__getitem__))
        return weights_of(pretrainer().fit(WATCHED))


# -- the same bits ---------------------------------------------------------------------------------------------------


def test_two_runs_give_the_same_bits_and_all_weights_move(expected):
    model = pretrainer()
    before = weights_of(model.prepare(WATCHED))
    assert_same(weights_of(model.fit(WATCHED)), expected)
    assert all(not torch.equal(before[name], tensor) for name, tensor in expected.items())
    assert all(np.isfinite(epoch.loss) for epoch in model.history_)


@pytest.mark.parametrize("stop", [1, 3, 5, 8])
def test_stopped_in_a_round_or_between_two_the_end_is_the_same(stop, expected):
    with pretrainer().fitting(WATCHED) as fitting:
        while fitting.steps_taken < stop:
            fitting.step()
        state = fitting.state()
        tensors = {name: tensor.clone() for name, tensor in state.tensors.items()}
        values = json.loads(json.dumps(state.values))  # as a checkpoint has them
        for _ in range(min(2, 8 - stop)):  # whatever the checkpoint lacks is lost
            fitting.step()
    torch.rand(7)
    model = pretrainer()
    with model.fitting(WATCHED) as fitting:
        fitting.restore(TrainingState(tensors, values))
        for _ in fitting:
            pass
        fitting.finish()
    assert_same(weights_of(model), expected)


def configuration(**training) -> PretrainingRun:
    config = load_configuration("universal/pretraining")
    model = {key: SETTINGS[key] for key in ("layers", "width", "relation_layers", "dropout")}
    own = {key: value for key, value in SETTINGS.items() if key in type(config.training).model_fields}
    whole = {**config.model_dump(), "seed": 3, "data": {"path": "watched.tsv"}, "checkpoints": {"every_steps": 4}}
    return PretrainingRun.model_validate(
        {
            **whole,
            "model": {**whole["model"], **model, "start": "random"},
            "training": {**whole["training"], **own, **training},
        }
    )


def test_a_run_cut_off_in_a_round_is_resumed_to_the_same_bits(tmp_path):
    config = configuration(evaluate_every=3)
    whole = train(config, WATCHED, tmp_path / "whole")

    def killed(step):
        if step == 6:  # two steps and a validation after the checkpoint
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        train(config, WATCHED, tmp_path / "cut", on_step=killed)
    again = resume(tmp_path / "cut", graph=WATCHED)
    assert_same(weights_of(again.model), weights_of(whole.model))
    assert again.metrics == whole.metrics
    assert set(whole.metrics) == {"valid"}  # pretraining does not read the test split
    sizes = [path.stat().st_size for path in (tmp_path / "cut" / "checkpoints").iterdir()]
    assert sum(sizes) < 2 << 20


def test_its_graphs_are_looked_for_in_the_mirror_also_when_it_is_resumed(tmp_path, monkeypatch):
    mirrors = []

    def found(name, mirror):
        mirrors.append(mirror)
        return GRAPHS[name]

    monkeypatch.setattr(Pretrainer, "_read_graph", READ)
    monkeypatch.setattr("rgcn.models.pretrainer.load_or_read", found)

    def killed(step):
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        train(configuration(epochs=2), WATCHED, tmp_path / "run", on_step=killed, mirror=tmp_path)
    resume(tmp_path / "run", tmp_path, graph=WATCHED)
    assert mirrors == [tmp_path] * 4


# -- what is learned from --------------------------------------------------------------------------------------------


def test_the_validation_graph_is_never_trained_on(expected):
    nonsense = KnowledgeGraph.from_triples(
        [(f"x{s}", f"y{s % 4}", f"x{(7 * s) % 30}") for s in range(30)], triple_splits=[0] * 20 + [1] * 10
    )
    assert_same(weights_of(pretrainer().fit(nonsense)), expected)


def test_views_share_the_weights_and_hide_the_queried_triples():
    trainer = pretrainer(drawn=1.0).prepare(WATCHED).trainer()
    assert trainer.names == ["chain", "mixed", DRAWN]
    assert trainer.shares.tolist() == [0.25, 0.5, 0.25]
    for name, alters, hides, hidden in (
        ("chain", False, True, "triple"),
        ("mixed", False, True, "pair"),
        ("mixed", True, False, "triple"),
        (DRAWN, True, True, "triple"),
    ):
        view = trainer.view_of(name, 5, alters, hides)
        assert view.training.hidden == hidden
        assert view.updates is trainer.updates
        ours, theirs = (list(network.parameters()) for network in (trainer.network, view.network))
        assert all(one is other for one, other in zip(ours, theirs, strict=True))
        if name != DRAWN and not alters:
            assert view.num_nodes == GRAPHS[name].num_nodes
            assert torch.equal(view.triples, torch.tensor(GRAPHS[name].triples))
    before = weights_of(pretrainer().prepare(WATCHED))
    with view.running():
        assert float(view.step()) > 0
    assert any(not torch.equal(before[name], tensor) for name, tensor in trainer.network.state_dict().items())


def test_a_view_has_only_training_triples():
    splits = [0] * 12 + [1] * 5 + [2] * 3
    rows = [tuple(row) for row in GRAPHS["chain"].named()]
    trainer = pretrainer().prepare(WATCHED).trainer()
    trainer.graphs["chain"] = KnowledgeGraph.from_triples(rows, triple_splits=splits)
    for alters in (False, True):
        view = trainer.view_of("chain", 1, alters, False)
        assert len(view.triples) <= 12
        assert view.adjacency.structure.num_triples == len(view.triples)


def test_with_validation_during_training_the_best_weights_are_kept():
    model = pretrainer(evaluate_every=2)
    model.fit(WATCHED)
    measured = [epoch.metrics["valid_mrr"] for epoch in model.history_ if "valid_mrr" in epoch.metrics]
    assert len(measured) == 4
    assert model.evaluate(split="valid")["mrr"] == pytest.approx(max(measured))
    assert model.measured_splits() == ["valid"]


def test_pretrained_weights_answer_over_any_graph(tmp_path):
    model = pretrainer(epochs=2).fit(WATCHED)
    model.save(tmp_path)
    other = Pretrainer.load(tmp_path).over(GRAPHS["mixed"])
    assert len(named_rows(other.predict_frame(subject="n1", relation="r0", k=3))) == 3


# -- what cannot be --------------------------------------------------------------------------------------------------


def test_missing_graphs_and_models_of_one_graph_raise_an_error_with_advice():
    with pytest.raises(ConfigError, match="name some in `graphs`, or set `drawn` to 1"):
        pretrainer(graphs={}, drawn=0.0, pairs_hidden_in=[])
    with pytest.raises(ConfigError, match="'worlds' is not a training graph: name it in `graphs` too"):
        pretrainer(pairs_hidden_in=["worlds"])
    settings = {key: value for key, value in SETTINGS.items() if key not in ("start", "relation_layers")}
    for name in ("path", "distmult"):
        with pytest.raises(ConfigError, match=f"{name} has weights that belong to one graph: set model.name to univ"):
            Pretrainer(name, **settings).prepare(WATCHED).trainer()


@pytest.mark.parametrize("name", ["empty", "alone"])
def test_a_graph_without_training_triples_is_refused_before_training(name):
    with pytest.raises(DataError, match=f"{name} has no training triple between two nodes: leave it out"):
        pretrainer(graphs={"chain": 1.0, name: 1.0}, pairs_hidden_in=[]).prepare(WATCHED).trainer()


def test_the_validation_graph_cannot_be_a_training_graph(tmp_path):
    with pytest.raises(ConfigError, match=r"world is one of the training graphs.*choose another graph"):
        load_configuration("universal/pretraining", ["training.graphs={world: 1.0}", "training.pairs_hidden_in=[]"])
    (tmp_path / "bare.yaml").write_text("task: pretraining\ndata:\n  dataset: world\nmodel:\n  name: universal\n")
    assert load_configuration(str(tmp_path / "bare.yaml")).training.drawn > 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_steps_on_all_views_are_recorded_on_a_gpu():
    settings = {"device": "cuda", "round_steps": 12, "round_views": 3, "steps": 24, "dropout": 0.0}
    recorded, plain = (pretrainer(**settings).prepare(WATCHED).trainer() for _ in range(2))
    make = plain.view_of

    def unrecorded(*what):
        view = make(*what)
        view.recording = None
        return view

    plain.view_of = unrecorded
    losses = []
    for trainer in (recorded, plain):
        with trainer.running():
            losses.append([float(trainer.step()) for _ in range(20)])
            kept = [view.recording is not None and view.recording.graph is not None for view in trainer.views]
        assert any(kept) == (trainer is recorded)
    assert losses[0] == pytest.approx(losses[1], rel=2e-2)


def test_the_name_drawn_is_refused_for_a_graph():
    with pytest.raises(ValueError, match="the name `drawn` is reserved for synthetic graphs"):
        PretrainingConfig(graphs={"drawn": 1.0})
