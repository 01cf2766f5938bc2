"""Test dropout by node: its share, independence of the order of rows and of the process, and its gradient."""

from __future__ import annotations

import torch

from rgcn.nn.relational_graph_conv import node_dropout


def test_the_same_numbers_of_a_node_are_dropped_in_every_process():
    x, names = torch.rand(500, 16) + 1.0, torch.randperm(10_000)[:500]
    torch.manual_seed(3)
    whole = node_dropout(x, 0.3, True, names)
    torch.manual_seed(3)
    some = node_dropout(x[100:140].flip(0), 0.3, True, names[100:140].flip(0))
    assert torch.equal(some, whole[100:140].flip(0))
    torch.manual_seed(4)
    assert not torch.equal(node_dropout(x, 0.3, True, names), whole)


def test_dropout_drops_its_share_and_keeps_the_mean():
    x, names = torch.ones(4000, 50, dtype=torch.float64), torch.arange(4000)
    for rate in (0.1, 0.5, 0.9):
        torch.manual_seed(int(10 * rate))
        found = node_dropout(x, rate, True, names)
        kept = found > 0
        assert torch.equal(found[kept], torch.full_like(found[kept], 1.0 / (1.0 - rate)))
        error = 5 * (rate * (1 - rate) / kept.numel()) ** 0.5
        assert abs(float(kept.double().mean()) - (1 - rate)) < error
        # Adjacent entries in rows and in columns are independent.
        for left, right in ((kept[1:], kept[:-1]), (kept[:, 1:], kept[:, :-1])):
            assert abs(float((left & right).double().mean()) - (1 - rate) ** 2) < 2 * error


def test_gradients_pass_where_nothing_was_dropped_and_evaluation_drops_nothing():
    x, names = torch.rand(6, 4, requires_grad=True), torch.arange(6)
    found = node_dropout(x, 0.5, True, names)
    found.sum().backward()
    assert torch.equal(x.grad, torch.where(found == 0, 0.0, 2.0))
    assert torch.equal(node_dropout(x, 0.5, False, names), x)
    assert torch.equal(node_dropout(x, 0.0, True, names), x)
