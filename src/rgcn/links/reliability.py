"""Do probabilities mean what they say, and which temperature makes them so? Bins of what was right.

Classes: p = softmax(logits / T). Guo et al., "On calibration of modern neural networks", 2017.
Links: `link_curve`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

TENTHS = tuple(i / 10 for i in range(11))
# Nearly all unknown triples are false and given next to nothing: bins of their own keep them out of the first tenth.
LINK_EDGES = (0.0, 0.001, 0.01, *TENTHS[1:])
COLDEST, HOTTEST = 0.05, 20.0


@dataclass(frozen=True)
class Bin:
    """Predictions with a probability in [low, high): their mean probability, and the share of them that was right."""

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class Fit:
    """How well probabilities agree with what was right: mean log loss, and expected calibration error, the mean
    distance between a probability and the share that was right."""

    log_loss: float
    calibration_error: float


def bins_of(probability: Floats, right: Floats, count: Floats, edges: Sequence[float] = TENTHS) -> tuple[Bin, ...]:
    """The bins that hold anything.

    right, count [n]  how many predictions have probability[i], and how many of these were right

    >>> bins_of(np.array([1.0, 0.9375]), np.array([1.0, 0.0]), np.array([1.0, 1.0]))
    (Bin(low=0.9, high=1.0, count=2, confidence=0.96875, accuracy=0.5),)
    """
    place = np.clip(np.searchsorted(edges, probability, side="right") - 1, 0, len(edges) - 2)
    sums = [np.bincount(place, values, len(edges) - 1) for values in (count, count * probability, right)]
    return tuple(
        Bin(low, high, round(n), float(p / n), float(r / n))
        for low, high, n, p, r in zip(edges[:-1], edges[1:], *sums, strict=True)
        if n > 0
    )


def calibration_error(bins: Sequence[Bin]) -> float:
    """Σ count · |confidence - accuracy| / Σ count; 0 without any."""
    total = sum(row.count for row in bins)
    return sum(row.count * abs(row.confidence - row.accuracy) for row in bins) / total if total else 0.0


def as_text(bins: Sequence[Bin], width: int = 24) -> str:
    """A line a bin: a bar as long as the share that was right, a mark where the probability says it should end.

    >>> print(as_text([Bin(0.5, 0.6, 4, 0.55, 0.25)], width=8))
     probability    said   right       count
     0.5 to   0.6   0.55    0.25           4  ██··|···
    """
    lines = [" probability    said   right       count"]
    for row in bins:
        bar = ["█" if i < round(row.accuracy * width) else "·" for i in range(width)]
        bar[min(int(row.confidence * width), width - 1)] = "|"
        span = f"{row.low:>5g} to {row.high:>5g}"
        numbers = f"{_short(row.confidence)} {_short(row.accuracy)} {row.count:>11,}"
        lines.append(f"{span} {numbers}  {''.join(bar)}")
    return "\n".join(lines)


def _short(share: float) -> str:
    return f"{share:6.2f} " if share >= 0.01 or share == 0 else f"{share:7.1e}"


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


def fit_of(probability: Floats, right: Floats) -> Fit:
    """How well probabilities [n] agree with what was right [n]."""
    p = np.clip(probability, 1e-300, 1 - 1e-15)
    loss = -(right * np.log(p) + (1 - right) * np.log1p(-p)).mean()
    return Fit(float(loss), calibration_error(bins_of(p, right, np.ones_like(p))))
