"""Test initial weights: standard deviations, bounds, reproducibility."""

from __future__ import annotations

import math

import pytest
import torch

from rgcn.errors import ConfigError
from rgcn.nn import Basis, BlockDiagonal, Initializer, RelationalGraphConv

SHAPE = (3, 40, 24)
EXPECTED = {
    "glorot": math.sqrt(2 / (40 + 24)),
    "kaiming": math.sqrt(1 / 40),
    "schlichtkrull": 3 / math.sqrt(40 + 24),
}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("family", EXPECTED)
@pytest.mark.parametrize("gain", [1.0, math.sqrt(2)])
def test_normal_schemes_have_the_standard_deviation_of_the_formula(family, gain):
    init = Initializer(f"{family}-normal", gain)
    assert init.std(SHAPE) == pytest.approx(gain * EXPECTED[family])
    values = init.draw((40, 40, 24), generator())
    assert float(values.std()) == pytest.approx(gain * EXPECTED[family], rel=0.03)
    assert abs(float(values.mean())) < 0.03 * init.std(SHAPE)


@pytest.mark.parametrize("family", ["glorot", "kaiming"])
def test_uniform_schemes_have_the_same_standard_deviation(family):
    values = Initializer(f"{family}-uniform").draw((40, 40, 24), generator())
    assert float(values.std()) == pytest.approx(EXPECTED[family], rel=0.03)
    assert float(values.abs().max()) <= EXPECTED[family] * math.sqrt(3)


def test_schlichtkrull_uniform_takes_the_value_as_its_bound():
    values = Initializer("schlichtkrull-uniform").draw((40, 40, 24), generator())
    assert 0.99 * EXPECTED["schlichtkrull"] < float(values.abs().max()) <= EXPECTED["schlichtkrull"]


def test_glorot_uniform_is_pytorchs_own_for_one_matrix():
    ours = Initializer("glorot-uniform", math.sqrt(2)).draw((30, 20), generator(3))
    theirs = torch.nn.init.xavier_uniform_(torch.empty(30, 20), math.sqrt(2), generator=generator(3))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("shape", [(91, 16, 4), (30, 91), (5, 2, 3, 4)])
def test_stacked_fans_are_pytorchs_rule_on_the_whole_stack(shape):
    fan_in, fan_out = torch.nn.init._calculate_fan_in_and_fan_out(torch.empty(shape))
    assert Initializer("glorot-normal", fans="stacked").std(shape) == pytest.approx(math.sqrt(2 / (fan_in + fan_out)))
    assert Initializer("kaiming-normal", fans="stacked").std(shape) == pytest.approx(math.sqrt(1 / fan_in))


def test_the_published_standard_deviation_of_fb_toys_blocks_comes_from_fans_given_outright():
    assert Initializer("schlichtkrull-normal", fans=(112, 5)).std((112, 100, 5, 5)) == pytest.approx(0.277, abs=5e-4)


def test_plain_normal_and_zeros():
    assert Initializer("normal", 0.5).std(SHAPE) == 0.5
    assert (Initializer("zeros").draw(SHAPE, generator()) == 0).all()


def test_a_seed_means_the_same_weights_and_another_seed_others():
    def layer(seed):
        return RelationalGraphConv(6, 4, 3, decomposition=Basis(2), generator=generator(seed)).state_dict()

    one, same, other = layer(1), layer(1), layer(2)
    assert all(torch.equal(one[k], same[k]) for k in one)
    assert not all(torch.equal(one[k], other[k]) for k in one)


def test_without_a_generator_the_current_seed_of_pytorch_decides():
    weights = []
    for _ in range(2):
        torch.manual_seed(5)
        weights.append(RelationalGraphConv(6, 4, 3).weights.blocks)
    assert torch.equal(*weights)


def test_rows_of_a_weight_are_drawn_with_the_fans_of_the_whole_weight():
    rows = Initializer("glorot-normal").draw((3, 5000, 16), generator(), rows=2000)
    assert rows.shape == (2000, 16)
    assert float(rows.std()) == pytest.approx(math.sqrt(2 / 5016), rel=0.03)


def test_biases_begin_at_zero():
    assert (RelationalGraphConv(6, 4, 3).bias == 0).all()


def test_each_matrix_of_a_stack_has_the_fans_of_one_matrix():
    full = RelationalGraphConv(64, 32, 50, init=Initializer("glorot-normal"), generator=generator())
    assert float(full.dense_weight().detach().std()) == pytest.approx(math.sqrt(2 / 96), rel=0.03)
    blocks = RelationalGraphConv(
        64, 32, 50, decomposition=BlockDiagonal(4), init=Initializer("glorot-normal"), generator=generator()
    )
    assert float(blocks.weights.blocks.detach().std()) == pytest.approx(math.sqrt(2 / (16 + 8)), rel=0.03)


def test_a_full_matrix_of_one_by_one_has_fans_of_one():
    wide = RelationalGraphConv(1, 1, 5000, init=Initializer("glorot-normal"), generator=generator())
    assert float(wide.dense_weight().detach().std()) == pytest.approx(1.0, rel=0.05)


def test_unknown_schemes_and_fans_are_refused():
    with pytest.raises(ConfigError, match="unknown initialization 'xavier'"):
        Initializer("xavier")
    with pytest.raises(ConfigError, match="unknown fans 'row'"):
        Initializer(fans="row")
