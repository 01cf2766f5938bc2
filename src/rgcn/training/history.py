"""What a training is judged by, and its reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Metric:
    """A figure that a task is judged by.

    name     for programs, "mrr"
    title    for people, "MRR"
    higher   whether more is better
    share    whether it is a share, told in percent
    """

    name: str
    title: str
    higher: bool = True
    share: bool = False

    def better(self, a: float, b: float) -> bool:
        return a > b if self.higher else a < b

    @property
    def best(self) -> str:
        """
        >>> Metric("loss", "loss", higher=False).best
        'the lowest validation loss'
        """
        return f"the {'highest' if self.higher else 'lowest'} validation {self.title}"

    def words(self, value: float, error: float | None = None) -> str:
        """A value as people read it, and its standard error where there is one.

        >>> Metric("accuracy", "accuracy", share=True).words(0.9667), Metric("mrr", "MRR").words(0.5)
        ('96.7 %', '0.500')
        >>> Metric("accuracy", "accuracy", share=True).words(0.9667, 0.01)
        '96.7 % ± 1.0'
        """
        if self.share:
            return f"{100 * value:.1f} %" + ("" if error is None else f" ± {100 * error:.1f}")
        places = 3 if value < 10 else 1
        return f"{value:,.{places}f}" + ("" if error is None else f" ± {error:,.{places}f}")


@dataclass(frozen=True)
class Epoch:
    """A report of a training, up to a step.

    number   of the step
    loss     on training data; the mean since the report before
    seconds  spent training until then, in all sessions
    figures  what else was measured, by name: train_accuracy, valid_mrr, ...; a validation figure begins with valid_

    >>> Epoch(2, 0.5, 1.0, {"valid_mrr": 0.25}).as_row(("valid_mrr", "valid_hits@1"))
    {'number': 2, 'loss': 0.5, 'valid_mrr': 0.25, 'valid_hits@1': None, 'seconds': 1.0}
    """

    number: int
    loss: float
    seconds: float
    figures: Mapping[str, float] = field(default_factory=dict)

    def __getitem__(self, name: str) -> float | None:
        """A figure, None where it was not measured."""
        return self.figures.get(name)

    def as_row(self, names: tuple[str, ...]) -> dict[str, Any]:
        """A line of metrics.jsonl, with a place for every figure that may be measured."""
        figures = {name: self.figures.get(name) for name in names}
        return {"number": self.number, "loss": self.loss, **figures, "seconds": self.seconds}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Epoch:
        own = ("number", "loss", "seconds")
        figures = {name: value for name, value in row.items() if name not in own and value is not None}
        return cls(row["number"], row["loss"], row.get("seconds") or 0.0, figures)
