"""Test that a training stopped after any step and resumed elsewhere ends with identical weights."""

import pytest
import torch

import rgcn
from rgcn.errors import DataError
from rgcn.training.fitting import TrainingState

NODE = {
    "plain": {"epochs": 6},
    "bases, decay and every dropout": {
        "epochs": 6,
        "decomposition": "basis",
        "bases": 3,
        "l2_penalty": 5e-4,
        "dropout": 0.5,
        "edge_dropout": 0.3,
        "self_loop_dropout": 0.2,
    },
    "e-rgcn": {"model": "e-rgcn", "epochs": 6, "weight_decay": 0.005, "dropout": 0.2},
    "batches, every dropout": {
        "epochs": 2,
        "batch_labels": 50,
        "fan_out": 2,
        "dropout": 0.3,
        "edge_dropout": 0.2,
        "self_loop_dropout": 0.2,
        "validation": 0.2,
    },
    "early stopping": {"epochs": 40, "learning_rate": 0.3, "patience": 2, "validation": 0.2, "dropout": 0.3},
}
LINK = {
    "neighborhood batches": {"embedding": 8, "batch_edges": 200, "decomposition": "basis", "bases": 2, "clip": 1.0},
    "uniform batches, a falling rate": {
        "embedding": 8,
        "batch_edges": 200,
        "sampler": "uniform",
        "schedule": "cosine",
        "warmup": 2,
    },
    "dropped messages": {
        "embedding": 8,
        "decomposition": "basis",
        "bases": 2,
        "self_loop_apart": True,
        "self_loop_dropout_on": "message",
    },
    "whole graph, filtered negatives": {"model": "c-rgcn", "embedding": 8, "bottleneck": 4, "filtered_negatives": True},
    "one-hot nodes": {"input": "one-hot", "embedding": 8, "decomposition": "basis", "bases": 2, "batch_edges": 300},
    "rows by lazy Adam, shared negatives, on disk": {
        "encoder": "none",
        "embedding": 8,
        "batch_edges": 100,
        "optimizer": "lazy-adam",
        "shared_by": 30,
        "sampler": "scattered",
        "tables": "disk",
        "evaluate_every": 2,
    },
    "rows by Adagrad": {
        "model": "c-rgcn",
        "embedding": 8,
        "bottleneck": 4,
        "batch_edges": 50,
        "optimizer": "row-adagrad",
    },
    "measured": {"encoder": "none", "embedding": 8, "evaluate_every": 2, "patience": 2, "learning_rate": 1.0},
}


def models():
    for name, settings in NODE.items():
        yield pytest.param(lambda settings=settings: rgcn.NodeClassifier(seed=3, device="cpu", **settings), id=name)
    for name, settings in LINK.items():
        whole = {"steps": 7, "device": "cpu", **settings}
        yield pytest.param(lambda whole=whole: rgcn.LinkPredictor(seed=3, **whole), id=name)


@pytest.fixture(scope="module")
def world():
    return rgcn.load("world")


def weights_of(network):
    return {name: tensor.clone() for name, tensor in network.state_dict().items()}


def assert_same(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name]), name


def through_memory(state):
    """Copy the state as a checkpoint does, without shared memory."""
    return TrainingState({name: tensor.clone() for name, tensor in state.tensors.items()}, dict(state.values))


@pytest.mark.parametrize("make", list(models()))
def test_stopped_after_any_step_the_end_is_the_same(make, world):
    expected = weights_of(make().fit(world).network_)
    stop, finished = 1, False
    while not finished:
        with make().fitting(world) as fitting:
            while fitting.steps_taken < stop and not fitting.finished:
                fitting.step()
            state, finished = through_memory(fitting.state()), fitting.finished
        torch.rand(7)  # what happens between two processes
        model = make()
        with model.fitting(world) as fitting:
            fitting.restore(state)
            assert fitting.steps_taken == state.values["steps_taken"]
            assert fitting.finished == finished
            for _ in fitting:
                pass
            fitting.finish()
        assert_same(weights_of(model.network_), expected)
        stop += 2


def test_a_fitting_leaves_the_global_generator_as_it_was(world):
    torch.manual_seed(5)
    expected = torch.rand(4)
    torch.manual_seed(5)
    rgcn.NodeClassifier(epochs=2, dropout=0.5).fit(world)
    assert torch.equal(torch.rand(4), expected)


def test_a_report_after_resuming_is_the_mean_since_the_report_before(world):
    settings = {"encoder": "none", "embedding": 4, "steps": 300, "batch_edges": 50, "device": "cpu"}
    whole = rgcn.LinkPredictor(**settings).fit(world)
    with rgcn.LinkPredictor(**settings).fitting(world) as fitting:
        while fitting.steps_taken < 100:  # every third step makes a report; one report has a single loss
            fitting.step()
        state = through_memory(fitting.state())
    resumed = rgcn.LinkPredictor(**settings)
    with resumed.fitting(world) as fitting:
        fitting.restore(state)
        for _ in fitting:
            pass
    assert [e.loss for e in resumed.history_] == [e.loss for e in whole.history_ if e.number > 100]
    assert resumed.history_[0].seconds > state.values["seconds"]


def test_a_state_of_another_model_or_device_is_refused(world):
    with rgcn.NodeClassifier(epochs=2, hidden=4, device="cpu").fitting(world) as fitting:
        state = fitting.state()
    wider, same = (rgcn.NodeClassifier(epochs=2, hidden=hidden, device="cpu").fitting(world) for hidden in (5, 4))
    with wider, pytest.raises(DataError, match="another model"):
        wider.restore(state)
    with same, pytest.raises(DataError, match="taken on cuda"):
        same.restore(TrainingState(state.tensors, {**state.values, "device": "cuda"}))


def test_predictions_follow_restored_weights(world):
    """The best weights come back after the last measurement: encodings computed before must not be used."""
    predictor = rgcn.LinkPredictor(encoder="none", embedding=8, steps=2, evaluate_every=1)
    with predictor.fitting(world) as fitting:
        for _ in fitting:
            assert predictor.scorer().nodes.any()
        assert fitting.best.weights is not None
        fitting.best.weights = {name: torch.zeros_like(tensor) for name, tensor in fitting.best.weights.items()}
        fitting.finish()
    assert not predictor.scorer().nodes.any()
