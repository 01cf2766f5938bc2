"""A figure over several runs: its mean, and how sure it is."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Spread:
    """A figure over several runs; with one run there is nothing to tell deviation or error from."""

    mean: float
    standard_deviation: float | None
    standard_error: float | None
    runs: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Mean, deviation (n - 1) and error of some values.

        >>> Spread.of([1.0, 2.0, 3.0])
        Spread(mean=2.0, standard_deviation=1.0, standard_error=0.577..., runs=3)
        >>> Spread.of([1.0]).standard_error is None
        True
        """
        mean = statistics.fmean(values)
        if len(values) < 2:
            return cls(mean, None, None, len(values))
        deviation = statistics.stdev(values)
        return cls(mean, deviation, deviation / len(values) ** 0.5, len(values))


def summarize(metrics: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Spread]]:
    """{split: {metric: Spread}} over the metrics of several runs; what merely counts queries is left out.

    >>> summarize([{"test": {"mrr": 0.5, "count": 10}}, {"test": {"mrr": 0.7, "count": 10}}])["test"]["mrr"].mean
    0.6
    """
    splits = metrics[0] if metrics else {}
    return {
        split: {name: Spread.of([run[split][name] for run in metrics]) for name in figures if name != "count"}
        for split, figures in splits.items()
    }
