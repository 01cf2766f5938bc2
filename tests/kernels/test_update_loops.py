"""Compare the CPU kernel of the layer update, and its gradients, with a definition in PyTorch's own operations."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from rgcn.kernels import cpu
from rgcn.kernels.layer_update import UpdateInputs, UpdateSettings

NODES, QUESTIONS = 30, 7


def definition(own, messages, squares, degree, weights, kept, settings):
    (weight, bias, gain, shift), (scaled, norm, skip, dropout, update_unreached) = weights, settings
    parts = [messages]
    if squares is not None:
        parts.append((squares - messages.square()).clamp(min=1e-6).sqrt())
    if scaled:
        parts += [degree[:, None, None] * part for part in parts]
    z = F.linear(torch.cat([own, *parts], -1), weight, bias)
    y = torch.relu(F.layer_norm(z, z.shape[-1:], gain, shift) if norm else z)
    y = y if kept is None else y * kept / (1 - dropout)
    y = y if update_unreached else y * ((own != 0) | (messages != 0)).any(-1, keepdim=True)
    return own + y if skip else y


def drawn(width, deviation, settings, seed=0):
    """Return the arguments of the kernel; a third of the rows is unreached."""
    generator = torch.Generator().manual_seed(seed)

    def numbers(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    shape = (NODES, QUESTIONS, width)
    asleep = torch.rand(*shape[:2], 1, generator=generator) < 0.3
    own, messages = (numbers(*shape).masked_fill(asleep, 0) for _ in range(2))
    # Variances below, slightly above and far above the minimum.
    squares = messages.square() + 0.5 + numbers(*shape) if deviation else None
    inputs = width * (1 + (1 + deviation) * (1 + settings[0]))
    weights = numbers(width, inputs), numbers(width), numbers(width), numbers(width)
    kept = torch.rand(shape, generator=generator) >= settings[3] if settings[3] else None
    return UpdateInputs(own, messages, squares, numbers(NODES).abs(), weights, kept, UpdateSettings(*settings))


@pytest.mark.parametrize("width", [32, 64])
@pytest.mark.parametrize("deviation", [False, True])
@pytest.mark.parametrize(
    "settings",
    [
        (True, True, True, 0.0, False),
        (True, True, False, 0.4, True),
        (False, False, True, 0.0, False),
        (True, False, True, 0.2, True),
    ],
)
def test_update_and_its_gradients_equal_the_definition(width, deviation, settings):
    own, messages, squares, _, weights, *_ = given = drawn(width, deviation, settings)
    leaves = [t.requires_grad_() for t in (own, messages, squares, *weights) if t is not None]
    expected = definition(*given)
    slope = torch.randn_like(expected)
    wanted = torch.autograd.grad(expected, leaves, slope, allow_unused=True)
    with torch.no_grad():
        out = cpu.layer_update(given)
        found = [g for g in cpu.layer_update_gradients(given, slope) if g is not None]
    torch.testing.assert_close(out, expected, rtol=1e-11, atol=1e-11)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, torch.zeros_like(one) if other is None else other, rtol=1e-9, atol=1e-9)


def test_update_gives_the_same_bits_on_one_thread_and_many(monkeypatch, restore_threads):
    monkeypatch.setattr(cpu, "MIN_THREADED_WORK", 0)
    given = drawn(32, True, (True, True, True, 0.2, False))
    slope, results = torch.randn(NODES, QUESTIONS, 32, dtype=torch.float64), []
    for threads in (1, 1, 2, 5, 16):
        torch.set_num_threads(threads)
        results.append((cpu.layer_update(given), *cpu.layer_update_gradients(given, slope)))
    assert all(torch.equal(a, b) for other in results[1:] for a, b in zip(results[0], other, strict=True))
    asleep = ~((given[0] != 0) | (given[1] != 0)).any(-1)
    assert asleep.any()
    assert not results[0][0][asleep].any()


def test_update_of_no_rows_and_of_unreached_rows_only():
    given = drawn(32, False, (True, True, True, 0.0, False))
    zeros = torch.zeros_like(given.states)
    assert not cpu.layer_update(given._replace(states=zeros, messages=zeros)).any()
    empty = given._replace(states=given.states[:0], messages=given.messages[:0], degree=given.degree[:0])
    none = cpu.layer_update_gradients(empty, given.states[:0])
    assert none[0].shape == (0, QUESTIONS, 32)
    assert not any(gradient.any() for gradient in none[3:])
