"""From numbers to places on paper: axes with round numbers, and as many points as a picture can show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

Point = tuple[float, float]


def nice_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from at most `low` to at least `high`, in steps of 1, 2 or 5 times a power of ten.

    >>> nice_ticks(0, 0.87), nice_ticks(1, 50)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0, 10.0, 20.0, 30.0, 40.0, 50.0])
    """
    if high <= low:
        low, high = (low - 0.5, high + 0.5) if low else (0.0, 1.0)
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


@dataclass(frozen=True)
class Scale:
    """A range of numbers laid out from 0 to 100 percent."""

    low: float
    high: float

    def place(self, value: float) -> float:
        """Percent along the axis.

        >>> Scale(10, 30).place(15)
        25.0
        """
        return round(100 * (value - self.low) / (self.high - self.low), 3)

    @classmethod
    def around(cls, values: Sequence[float]) -> Scale:
        """From the least to the greatest; a single value stands in the middle."""
        low, high = min(values), max(values)
        return cls(low, high) if high > low else cls(low - 1, high + 1)


def thinned(points: Sequence[Point], most: int = 600) -> list[Point]:
    """At most about `most` points whose picture is the same: of each stretch its ends, its lowest and its highest.

    >>> dense = [(float(i), 1.0 if i == 70_001 else 0.0) for i in range(100_000)]
    >>> len(thinned(dense)) <= 600, (70_001.0, 1.0) in thinned(dense)
    (True, True)
    """
    if len(points) <= most:
        return list(points)
    stretches = max(1, most // 4)
    kept: list[Point] = []
    for number in range(stretches):
        part = range(number * len(points) // stretches, (number + 1) * len(points) // stretches)
        lowest, highest = min(part, key=lambda i: points[i][1]), max(part, key=lambda i: points[i][1])
        kept += [points[i] for i in sorted({part[0], lowest, highest, part[-1]})]
    return kept
