"""Do probabilities mean what they say? Predictions in bins of probability, and the share of each that was right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

TENTHS = tuple(i / 10 for i in range(11))


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
