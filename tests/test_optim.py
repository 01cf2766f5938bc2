"""Adam with factored gradients against PyTorch's own."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F

import rgcn
from rgcn.nn import Basis, RelationalGraphConv
from rgcn.optim import Adam
from rgcn.tasks import NodeClassifier


def one_hot_layer(seed=0):
    kg = rgcn.load("world")
    adjacency = rgcn.RelationalAdjacency.from_graph(kg)
    generator = torch.Generator().manual_seed(seed)
    return RelationalGraphConv.one_hot(adjacency, 5, decomposition=Basis(3), generator=generator), adjacency


def steps(layer, adjacency, optimizer, count=5, uses=1):
    target = torch.arange(adjacency.num_targets) % 5
    for _ in range(count):
        optimizer.zero_grad()
        with optimizer.factoring() if isinstance(optimizer, Adam) else torch.enable_grad():
            out = sum(layer(None, adjacency) for _ in range(uses))
        F.cross_entropy(out, target).backward()
        optimizer.step()
    return {name: value.detach().clone() for name, value in layer.named_parameters()}


@pytest.mark.parametrize("uses", [1, 2])
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_factored_gradients_train_to_the_same_weights(weight_decay, uses):
    layer, adjacency = one_hot_layer()
    layer.double()
    optimizer = Adam(layer.parameters(), lr=0.01, weight_decay=weight_decay, tables=[layer.weights.rows])
    ours = steps(layer, adjacency.to(torch.float64), optimizer, uses=uses)
    layer, _ = one_hot_layer()
    layer.double()
    torchs = torch.optim.Adam(layer.parameters(), lr=0.01, weight_decay=weight_decay)
    theirs = steps(layer, adjacency.to(torch.float64), torchs, uses=uses)
    for name, value in theirs.items():
        # Adam divides by the root of the square: what is rounding in a gradient near zero is magnified once
        torch.testing.assert_close(ours[name], value, rtol=1e-8, atol=1e-8)


def test_a_factored_table_gets_no_written_gradient_and_outside_factoring_it_does():
    layer, adjacency = one_hot_layer()
    table = layer.weights.rows.trained
    optimizer = Adam(layer.parameters(), tables=[layer.weights.rows])
    with optimizer.factoring():
        out = layer(None, adjacency)
    out.sum().backward()
    assert table.grad is None
    assert len(optimizer.factored[table]) == 1
    optimizer.zero_grad()
    assert not optimizer.factored[table]
    layer(None, adjacency).sum().backward()
    assert table.grad is not None


def test_a_step_without_gradients_changes_nothing():
    layer, _ = one_hot_layer()
    before = {name: value.detach().clone() for name, value in layer.named_parameters()}
    Adam(layer.parameters(), tables=[layer.weights.rows]).step()
    assert all(torch.equal(value, before[name]) for name, value in layer.named_parameters())


def test_the_state_can_be_saved_and_loaded():
    layer, adjacency = one_hot_layer()
    optimizer = Adam(layer.parameters(), lr=0.01, tables=[layer.weights.rows])
    steps(layer, adjacency, optimizer, count=3)
    saved, weights = copy.deepcopy(optimizer.state_dict()), {k: v.clone() for k, v in layer.state_dict().items()}
    expected = steps(layer, adjacency, optimizer, count=2)
    again, _ = one_hot_layer(seed=1)
    again.load_state_dict(weights)
    resumed = Adam(again.parameters(), lr=0.01, tables=[again.weights.rows])
    resumed.load_state_dict(saved)
    for name, value in steps(again, adjacency, resumed, count=2).items():
        assert torch.equal(value, expected[name])


def test_a_classifier_trains_as_with_torch_adam(monkeypatch):
    kg = rgcn.load("world")
    settings = {
        "decomposition": "basis",
        "bases": 4,
        "hidden": 6,
        "epochs": 8,
        "l2_penalty": 5e-4,
        "seed": 1,
        "device": "cpu",
    }
    ours = NodeClassifier(**settings).fit(kg)

    class Plain(torch.optim.Adam):
        def __init__(self, groups, lr, tables):
            super().__init__(groups, lr=lr)

        factoring = staticmethod(torch.enable_grad)
        tables = ()
        update = torch.optim.Adam.step

    monkeypatch.setattr("rgcn.tasks.trainers.Adam", Plain)
    theirs = NodeClassifier(**settings).fit(kg)
    for a, b in zip(ours.history_, theirs.history_, strict=True):
        assert a.loss == pytest.approx(b.loss, rel=1e-4)
