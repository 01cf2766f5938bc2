"""Compare values and gradients of `RGCNConv` with PyG's layer of the same weights."""

from __future__ import annotations

import copy
import gc

import pytest
import torch
from torch import Tensor

from rgcn.adjacency import RelationalAdjacency
from rgcn.errors import ConfigError, DataError
from rgcn.nn import RGCNConv

NODES, RELATIONS, EDGES, WIDTH, OUT = 17, 4, 90, 8, 6
# Not `importorskip`: torch-geometric is one of the packages for development, and without it nothing is compared.
from torch_geometric.nn import RGCNConv as PygConv  # noqa: E402


def graph(seed: int = 0, targets: int = NODES) -> tuple[Tensor, Tensor]:
    """Edges with repeated ones, loops and a relation without edges."""
    generator = torch.Generator().manual_seed(seed)
    source = torch.randint(NODES, (EDGES,), generator=generator)
    target = torch.randint(targets, (EDGES,), generator=generator)
    kind = torch.randint(RELATIONS - 1, (EDGES,), generator=generator)
    index = torch.stack([source, target])
    return torch.cat([index, index[:, :9]], dim=1), torch.cat([kind, kind[:9]])


def pair(**settings) -> tuple[RGCNConv, PygConv]:
    torch.manual_seed(1)
    theirs = PygConv(settings.pop("width", WIDTH), OUT, RELATIONS, **settings).double()
    if theirs.bias is not None:
        torch.nn.init.normal_(theirs.bias)
    ours = RGCNConv(theirs.in_channels, OUT, RELATIONS, **settings).double()
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def compare(ours: RGCNConv, theirs: PygConv, x, edge_index: Tensor, edge_type: Tensor) -> None:
    leaves = [one for one in (x if isinstance(x, tuple) else (x,)) if one is not None and one.is_floating_point()]
    found, expected = ours(x, edge_index, edge_type), theirs(x, edge_index, edge_type)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    slope = torch.randn(found.shape, generator=torch.Generator().manual_seed(2), dtype=found.dtype)
    gradients = torch.autograd.grad(found, [*leaves, *ours.parameters()], slope)
    wanted = torch.autograd.grad(expected, [*leaves, *dict(theirs.named_parameters()).values()], slope)
    names = [*range(len(leaves)), *(name for name, _ in theirs.named_parameters())]
    by_name = dict(zip([*range(len(leaves)), *(name for name, _ in ours.named_parameters())], gradients, strict=True))
    for name, gradient in zip(names, wanted, strict=True):
        torch.testing.assert_close(by_name[name], gradient, rtol=1e-11, atol=1e-12)


SETTINGS = [
    {},
    {"num_bases": 3},
    {"num_blocks": 2},
    {"aggr": "add"},
    {"root_weight": False, "bias": False},
    {"num_bases": 2, "aggr": "add", "root_weight": False},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_output_equals_that_of_pyg(settings):
    ours, theirs = pair(**settings)
    x = torch.randn(NODES, WIDTH, dtype=torch.float64, requires_grad=True)
    compare(ours, theirs, x, *graph())


@pytest.mark.parametrize("settings", [{}, {"num_bases": 3}], ids=str)
def test_without_features_and_with_node_ids_the_output_equals_that_of_pyg(settings):
    ours, theirs = pair(width=NODES, **settings)
    compare(ours, theirs, None, *graph())
    compare(ours, theirs, torch.randperm(NODES), *graph())


@pytest.mark.parametrize("settings", [{}, {"num_bases": 3}, {"num_blocks": 2}], ids=str)
def test_sources_and_targets_may_be_different_nodes(settings):
    ours, theirs = pair(width=(WIDTH, 5), **settings)
    x = torch.randn(NODES, WIDTH, dtype=torch.float64, requires_grad=True)
    other = torch.randn(11, 5, dtype=torch.float64, requires_grad=True)
    compare(ours, theirs, (x, other), *graph(targets=11))


def test_state_dictionaries_are_interchangeable():
    for settings in SETTINGS:
        ours, theirs = pair(**settings)
        theirs.load_state_dict(ours.state_dict())
        assert set(ours.state_dict()) == set(theirs.state_dict())


def test_the_structure_of_a_repeated_edge_index_is_built_once(monkeypatch):
    built = []
    build = RelationalAdjacency.from_triples.__func__
    counted = classmethod(lambda cls, *given, **options: built.append(1) or build(cls, *given, **options))
    monkeypatch.setattr(RelationalAdjacency, "from_triples", counted)
    conv, x, (edge_index, edge_type) = RGCNConv(WIDTH, OUT, RELATIONS), torch.randn(NODES, WIDTH), graph()
    first = conv(x, edge_index, edge_type)
    assert torch.equal(conv(x, edge_index, edge_type), first)
    assert len(built) == 1
    edge_index[0, 0] = (edge_index[0, 0] + 1) % NODES  # changed in place: another graph
    assert not torch.equal(conv(x, edge_index, edge_type), first)
    assert len(built) == 2
    conv(x, *graph(5))
    gc.collect()
    conv(x, *graph(6))
    assert len(built) == 4
    assert sum(entry[0]() is not None for entry in conv._cached) <= 2  # dropped with their tensors


def test_layer_can_be_trained_copied_and_loaded():
    conv, x, (edge_index, edge_type) = RGCNConv(WIDTH, OUT, RELATIONS, num_bases=2), torch.randn(NODES, WIDTH), graph()
    optimizer = torch.optim.Adam(conv.parameters(), lr=0.05)
    before = conv(x, edge_index, edge_type).square().mean().item()
    for _ in range(20):
        optimizer.zero_grad()
        loss = conv(x, edge_index, edge_type).square().mean()
        loss.backward()
        optimizer.step()
    assert loss.item() < before / 2
    twin = copy.deepcopy(conv)
    torch.testing.assert_close(twin(x, edge_index, edge_type), conv(x, edge_index, edge_type))
    conv.reset_parameters()
    assert not torch.allclose(twin(x, edge_index, edge_type), conv(x, edge_index, edge_type))
    conv.load_state_dict(twin.state_dict(), assign=True)
    torch.testing.assert_close(twin(x, edge_index, edge_type), conv(x, edge_index, edge_type))


def test_impossible_arguments_are_reported():
    with pytest.raises(ConfigError, match="num_bases and num_blocks select two different decompositions"):
        RGCNConv(WIDTH, OUT, RELATIONS, num_bases=2, num_blocks=2)
    with pytest.raises(ConfigError, match="do not divide into 5 blocks"):
        RGCNConv(WIDTH, OUT, RELATIONS, num_blocks=5)
    with pytest.raises(ConfigError, match="aggr='max' is not supported"):
        RGCNConv(WIDTH, OUT, RELATIONS, aggr="max")
    conv, (edge_index, edge_type) = RGCNConv(WIDTH, OUT, RELATIONS, num_blocks=2), graph()
    with pytest.raises(ConfigError, match="num_blocks needs node vectors"):
        conv(torch.arange(NODES), edge_index, edge_type)
    with pytest.raises(DataError, match=r"edge_index must be \[2, num_edges\]"):
        conv(torch.randn(NODES, WIDTH), edge_index.T, edge_type)
