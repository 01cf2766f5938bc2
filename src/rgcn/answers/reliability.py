"""Do probabilities mean what they say, and which curve makes them? Temperatures, sigmoids, and bins of what was right.

Classes: p = softmax(logits / T). Guo et al., "On calibration of modern neural networks", 2017.
Links: p = c · σ(score / T + b); c < 1 says that even the best are not sure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

TENTHS = tuple(i / 10 for i in range(11))
# Nearly all unknown triples are false and given next to nothing: bins of their own keep them out of the first tenth.
LINK_EDGES = (0.0, 0.001, 0.01, *TENTHS[1:])
# What lies below is told apart by nobody.
WORTH_COUNTING = 0.01
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


class ScoreCounts(NamedTuple):
    """Unknown answers to validation questions, counted by score, [n] each."""

    score: Floats
    true: Floats  # how many answers of about this score are in the validation split
    false: Floats  # and are not

    @classmethod
    def of(cls, true: Floats, false: Floats, count: Floats) -> ScoreCounts:
        """Of the scores [n] of true answers, and of how many false ones have each of the scores [m]."""
        is_true = np.repeat([1.0, 0.0], [len(true), len(false)])
        counts = np.concatenate([np.zeros(len(true)), count])
        return cls(np.concatenate([true, false]), is_true, counts)


class Sigmoid(NamedTuple):
    """p = ceiling · σ(score / temperature + bias)"""

    temperature: float
    bias: float
    ceiling: float

    def __call__(self, score: Floats) -> Floats:
        return self.ceiling * _sigmoid(score / self.temperature + self.bias)


def fit_sigmoid(counts: ScoreCounts) -> Sigmoid:
    """The curve that makes the true answers most likely and the false ones least, by Fisher scoring from a few starts.

    As Platt proposed, either side has one imaginary example of the other, so that answers which a threshold tells apart
    do not send T to 0. Where scores are worth nothing there is no T > 0 that fits: then all probabilities are alike.
    """
    score, true, false = counts.score, counts.true, counts.false
    weight = true + false
    center = float(np.average(score, weights=weight))
    spread = float(np.sqrt(np.average((score - center) ** 2, weights=weight))) or 1.0
    target = true * (true.sum() + 1) / (true.sum() + 2) + false / (false.sum() + 2)
    x = (score - center) / spread
    rate = target.sum() / weight.sum()
    fits = [_scored_fit(x, weight, target, rate, ceiling) for ceiling in (0.95, 0.5, 0.1)]
    _, (slope, offset, logit) = min(fits, key=lambda fit: fit[0])
    if slope < 1e-6:
        slope, offset, logit = 1e-6, float(np.log(rate / (1 - rate))), 20.0
    return Sigmoid(spread / slope, float(offset - slope * center / spread), float(_sigmoid(np.array(logit))))


def _scored_fit(x: Floats, weight: Floats, target: Floats, rate: float, ceiling: float) -> tuple[float, Floats]:
    """(loss, [slope, offset, logit of the ceiling]), from a flat start at the mean rate."""
    start = min(rate / ceiling, 0.99)
    values = np.array([0.0, np.log(start / (1 - start)), np.log(ceiling / (1 - ceiling))])

    def loss(values: Floats) -> float:
        p = np.clip(_sigmoid(values[2]) * _sigmoid(values[0] * x + values[1]), 1e-300, 1 - 1e-15)
        # The faintest of priors keeps the ceiling where nothing else says what it is.
        return float(-(target * np.log(p) + (weight - target) * np.log1p(-p)).sum() + values[2] ** 2 / 50)

    now, damping = loss(values), 1e-3
    for _ in range(300):
        s, c = _sigmoid(values[0] * x + values[1]), _sigmoid(values[2])
        p = np.clip(c * s, 1e-300, 1 - 1e-15)
        # dp / d(slope, offset, logit); s (1 - s) over p is (1 - s) / c, which does not vanish with p
        towards = np.stack([(1 - s) * x, 1 - s, np.full_like(s, 1 - c)])
        gradient = towards @ ((weight * p - target) / (1 - p)) + np.array([0.0, 0.0, values[2] / 25])
        fisher = (towards * (weight * p / (1 - p))) @ towards.T + np.diag([0.0, 0.0, 1 / 25])
        step = np.linalg.solve(fisher + damping * np.diag(fisher.diagonal() + 1e-12), gradient)
        after = loss(values - step)
        if after > now:
            damping *= 10
            if damping > 1e12:
                break
            continue
        values, damping = values - step, max(damping / 10, 1e-9)
        if now - after < 1e-9 * (1 + abs(now)):
            now = after
            break
        now = after
    return now, values


def fit_of(probability: Floats, right: Floats) -> Fit:
    """How well probabilities [n] agree with what was right [n]."""
    p = np.clip(probability, 1e-300, 1 - 1e-15)
    loss = -(right * np.log(p) + (1 - right) * np.log1p(-p)).mean()
    return Fit(float(loss), calibration_error(bins_of(p, right, np.ones_like(p))))


def link_reliability(counts: ScoreCounts, curve: Sigmoid) -> tuple[Fit, tuple[Bin, ...]]:
    """How well probabilities agree with the validation split; the calibration error is over answers of 0.01 or more."""
    p = np.clip(curve(counts.score), 1e-300, 1 - 1e-15)
    weight = counts.true + counts.false
    bins = bins_of(p, counts.true, weight, LINK_EDGES)
    loss = -(counts.true * np.log(p) + counts.false * np.log1p(-p)).sum() / weight.sum()
    return Fit(float(loss), calibration_error([row for row in bins if row.low >= WORTH_COUNTING])), bins


def _sigmoid(z: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-np.clip(z, -500, 500))))
