"""Temperature scaling of a classifier: p = softmax(logits / T), T fitted on the validation labels.

Guo et al., "On calibration of modern neural networks", 2017.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from rgcn.answers.reliability import Bin, Fit, Floats, bins_of, calibration_error

COLDEST, HOTTEST = 0.05, 20.0


def fit_temperature(logits: Floats, classes: NDArray[np.int64]) -> float:
    """argmin over T of Σ -log softmax(logits / T)[class] + (log T)² / 2, of logits [n, C].

    The last term is a prior: log T is hardly ever larger than 1 or 2. With labels enough it is not felt; with few, or
    with all of them classified rightly, it keeps T from 0. T lies in 0.05 .. 20.
    """

    def loss(log_temperature: float) -> float:
        return float(_cross_entropy(logits / np.exp(log_temperature), classes).sum() + log_temperature**2 / 2)

    grid = np.linspace(np.log(COLDEST), np.log(HOTTEST), 121)
    near = int(np.argmin([loss(value) for value in grid]))
    low, high = grid[max(near - 1, 0)], grid[min(near + 1, len(grid) - 1)]
    return float(np.exp(_golden_section(loss, float(low), float(high))))


def class_reliability(logits: Floats, classes: NDArray[np.int64], temperature: float) -> tuple[Fit, tuple[Bin, ...]]:
    """How well the predicted class's probability agrees with how often it is right."""
    scaled = logits / temperature
    exponential = np.exp(scaled - scaled.max(1, keepdims=True))
    confidence = (exponential / exponential.sum(1, keepdims=True)).max(1)
    right = (logits.argmax(1) == classes).astype(np.float64)
    bins = bins_of(confidence, right, np.ones_like(right))
    return Fit(float(_cross_entropy(scaled, classes).mean()), calibration_error(bins)), bins


def _cross_entropy(logits: Floats, classes: NDArray[np.int64]) -> Floats:
    shifted = logits - logits.max(1, keepdims=True)
    own = shifted[np.arange(len(classes)), classes]
    return np.asarray(np.log(np.exp(shifted).sum(1)) - own)


def _golden_section(function: Callable[[float], float], low: float, high: float, steps: int = 40) -> float:
    """The least of a function with one valley between low and high."""
    ratio = (np.sqrt(5.0) - 1.0) / 2.0
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = function(left), function(right)
    for _ in range(steps):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = function(right)
    return float((low + high) / 2.0)
