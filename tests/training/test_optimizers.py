"""Compare Adam with factored gradients with PyTorch's Adam, and row-wise optimizers with their dense definition."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

import rgcn
from rgcn.kernels import cpu, reference
from rgcn.kernels.reference import AdamSettings
from rgcn.kernels.sparse import padded_unique
from rgcn.models import NodeClassifier
from rgcn.nn import Basis, RelationalGraphConv
from rgcn.nn.row_tables import NodeTable
from rgcn.training.optimizers import Adagrad, Adam, LazyAdam, RowAdagrad


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
    assert len(optimizer.gathered[optimizer.tables[table]]) == 1
    optimizer.zero_grad()
    assert not optimizer.gathered[optimizer.tables[table]]
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

    monkeypatch.setattr("rgcn.training.node_trainer.Adam", Plain)
    theirs = NodeClassifier(**settings).fit(kg)
    for a, b in zip(ours.history_, theirs.history_, strict=True):
        assert a.loss == pytest.approx(b.loss, rel=1e-4)


# -- rows of node tables -----------------------------------------------------------------------------------

NODES, RATE, DECAY = 6, 0.1, 0.01


def naive_rows(kind, table, other, steps, decay):
    """Update each row separately in Python; rows without a gradient are skipped."""
    table, other = table.tolist(), other.tolist()
    width = len(table[0])
    m, v, count, total = ([[0.0] * width for _ in table] for _ in range(4))
    om, ov, ototal = [0.0] * width, [0.0] * width, [0.0] * width
    for number, (touched, slopes, other_slope) in enumerate(steps, start=1):
        for row in set(touched):
            g = [
                sum(slopes[i][k] for i, r in enumerate(touched) if r == row) + decay * table[row][k]
                for k in range(width)
            ]
            if kind is LazyAdam:
                count[row][0] += 1
                for k in range(width):
                    table[row][k] -= adam(g[k], m[row], v[row], k, count[row][0])
            else:
                total[row][0] += sum(x * x for x in g) / width
                for k in range(width):
                    table[row][k] -= RATE * g[k] / (total[row][0] ** 0.5 + 1e-8)
        for k in range(width):
            g = other_slope[k] + decay * other[k]
            if kind is LazyAdam:
                other[k] -= adam(g, om, ov, k, number)
            else:
                ototal[k] += g * g
                other[k] -= RATE * g / (ototal[k] ** 0.5 + 1e-8)
    return torch.tensor(table, dtype=torch.float64), torch.tensor(other, dtype=torch.float64)


def adam(g, m, v, k, t):
    m[k], v[k] = 0.9 * m[k] + 0.1 * g, 0.999 * v[k] + 0.001 * g * g
    return RATE * m[k] / (1 - 0.9**t) / ((v[k] / (1 - 0.999**t)) ** 0.5 + 1e-8)


@pytest.mark.parametrize("decay", [0.0, DECAY])
@pytest.mark.parametrize("kind", [LazyAdam, RowAdagrad])
@given(
    st.lists(st.lists(st.integers(0, NODES - 1), min_size=1, max_size=9), min_size=1, max_size=5),
    st.sampled_from([1, 8, 11]),
    st.sampled_from(["once", "twice", "padded"]),
)
def test_only_rows_with_gradients_are_updated_as_defined(kind, decay, batches, width, how):
    generator = torch.Generator().manual_seed(sum(map(len, batches)))
    numbers = partial(torch.randn, generator=generator, dtype=torch.float64)
    rows_of_nodes, other = NodeTable(numbers(NODES, width)), torch.nn.Parameter(numbers(width))
    table = rows_of_nodes.trained
    steps = [(touched, numbers(len(touched), width), numbers(width)) for touched in batches]
    expected = naive_rows(
        kind, table.detach(), other.detach(), [(t, s.tolist(), o.tolist()) for t, s, o in steps], decay
    )
    optimizer = kind([table, other], lr=RATE, weight_decay=decay, tables=[rows_of_nodes])
    start, seen = table.detach().clone(), sorted({row for touched in batches for row in touched})
    for touched, slope, other_slope in steps:
        optimizer.zero_grad()
        parts = (
            [slice(0, 1), slice(1, None)] if how == "twice" else [slice(None)]
        )  # a table may be used twice in a step
        with optimizer.factoring():
            taken = []
            for part in parts:
                ids = torch.tensor(touched[part], dtype=torch.int64)
                if not len(ids):
                    continue
                rows, place = padded_unique(ids) if how == "padded" else torch.unique(ids, return_inverse=True)
                taken.append((rows_of_nodes.take(rows)[place] * slope[part]).sum())
        (sum(taken) + other @ other_slope).backward()
        assert table.grad is None
        optimizer.step()
    torch.testing.assert_close(table.detach(), expected[0], rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(other.detach(), expected[1], rtol=1e-10, atol=1e-12)
    still = [row for row in range(NODES) if row not in seen]
    assert torch.equal(table.detach()[still], start[still])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [1, 7, 8, 200])
def test_compiled_row_updates_equal_their_reference(width, dtype):
    generator = torch.Generator().manual_seed(width)
    rows = torch.tensor([0, 3, 4, 9, 9, 9])
    settings = AdamSettings(0.1, (0.9, 0.999), 1e-8, 0.01)
    tables = {module: [torch.ones(12, width, dtype=dtype) * c for c in (1, 0, 0)] for module in (cpu, reference)}
    counts = {module: torch.zeros(12) for module in tables}
    sums = {module: (torch.ones(12, width, dtype=dtype), torch.zeros(12, dtype=dtype)) for module in tables}
    for _ in range(3):
        gradient = torch.randn(6, width, generator=generator, dtype=dtype)
        for module in tables:
            module.lazy_adam_rows((*tables[module], counts[module]), rows, gradient, settings)
            module.adagrad_rows(sums[module], rows, gradient, settings)
    tolerance = {"rtol": 1e-5, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 1e-12, "atol": 1e-12}
    for ours, theirs in ((tables[cpu], tables[reference]), (sums[cpu], sums[reference])):
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, **tolerance)
    assert torch.equal(counts[cpu], counts[reference])


def test_a_table_used_as_a_whole_moves_in_every_row():
    rows_of_nodes = NodeTable(torch.ones(3, 2))
    table = rows_of_nodes.trained
    optimizer = RowAdagrad([table], lr=0.5, tables=[rows_of_nodes])
    with optimizer.factoring():
        loss = (table * torch.tensor([[1.0], [2.0], [0.0]])).sum() + rows_of_nodes.take(torch.tensor([1])).sum()
    loss.backward()
    optimizer.step()
    torch.testing.assert_close(table.detach(), torch.tensor([[0.5, 0.5], [0.5, 0.5], [1.0, 1.0]]))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=20))
def test_distinct_ids_of_unknown_number(ids):
    found, place = padded_unique(torch.tensor(ids))
    rows = sorted(set(ids))
    assert found.tolist() == rows + rows[-1:] * (len(ids) - len(rows))
    assert found[place].tolist() == ids


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adagrad_equals_pytorchs(decay):
    start = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    ours, theirs = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    optimizers = (
        Adagrad([ours], lr=0.3, weight_decay=decay),
        torch.optim.Adagrad([theirs], lr=0.3, weight_decay=decay, eps=1e-8),
    )
    for step in range(4):
        for parameter, optimizer in zip((ours, theirs), optimizers, strict=True):
            optimizer.zero_grad()
            (parameter.sin() * (step + 1)).sum().backward()
            optimizer.step()
    torch.testing.assert_close(ours, theirs)
