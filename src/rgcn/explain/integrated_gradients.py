"""Integrated gradients over the entries of the operator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from rgcn.explain.attribution import Attribution
from rgcn.explain.question import Question

STEPS = 32


def integrated_gradients(question: Question, steps: int = STEPS) -> Attribution:
    """What each edge adds to the answer on the way from no triples to all of them.

        importance(e) = w_e ∫₀¹ ∂f(α w) / ∂w_e dα

    w are the operator's entries, already normalized, and f is the answer's strength. (Over weights *before*
    normalization nothing would happen on the way: a common factor α is divided out again.) Self-loops stay as they are,
    so that a neighbor's message counts for the triple that brings it. The importances add up to f(w) - f(0), the
    difference that all triples together make; `own` is f(0) less the answer for nodes that bring nothing either
    (`Question.unheard`): no vectors, no self-loops, no biases of their own.

    Sundararajan, Taly, Yan, "Axiomatic attribution for deep networks", 2017.
    """
    reach = question.reach
    layers = reach.field.layers
    totals = [torch.zeros_like(layer.weight) for layer in layers]
    loops = [place == len(reach) for place in reach.place]
    for alpha, share in zip(*_points(steps), strict=True):
        weights = [
            torch.where(loop, layer.weight, layer.weight * alpha).requires_grad_()
            for layer, loop in zip(layers, loops, strict=True)
        ]
        scaled = tuple(replace(layer, weight=weight) for layer, weight in zip(layers, weights, strict=True))
        strength = question.strength_with(replace(reach.field, layers=scaled))
        for total, gradient in zip(totals, torch.autograd.grad(strength, weights), strict=True):
            total += share * gradient
    edges = tuple(
        torch.where(loop, 0.0, total * layer.weight).double().cpu().numpy()
        for total, layer, loop in zip(totals, layers, loops, strict=True)
    )
    with torch.no_grad():
        nothing = layers[0].weight.new_zeros(len(reach))
        alone = question.strength_with(reach.weighted(nothing))
        unheard = question.strength(question.unheard())
    return Attribution(reach, edges, float(alone - unheard))


def _points(steps: int) -> tuple[list[float], list[float]]:
    """Gauss-Legendre points in [0, 1] and their weights: exact for smooth pieces, dense near both ends."""
    x, w = np.polynomial.legendre.leggauss(steps)
    return ((x + 1) / 2).tolist(), (w / 2).tolist()
