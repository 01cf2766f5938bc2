"""Metrics that models are measured by, and the reports of a training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rgcn.system.formatting import html_table


@dataclass(frozen=True)
class Metric:
    """A number that models are measured by.

    Attributes:
        name: Its name for programs, such as "mrr".
        title: Its name for people, such as "MRR".
        higher_is_better: False if lower is better.
        is_share: True for shares between 0 and 1, which people read in percent.
    """

    name: str
    title: str
    higher_is_better: bool = True
    is_share: bool = False

    def better(self, a: float, b: float) -> bool:
        """Return whether a value is better than another."""
        return a > b if self.higher_is_better else a < b

    @property
    def best(self) -> str:
        """What the best value on validation data is called.

        >>> Metric("loss", "loss", higher_is_better=False).best
        'the lowest validation loss'
        """
        return f"the {'highest' if self.higher_is_better else 'lowest'} validation {self.title}"

    def format(self, value: float, error: float | None = None) -> str:
        """Return a value as people read it, with its standard error if there is one.

        >>> Metric("accuracy", "accuracy", is_share=True).format(0.9667), Metric("mrr", "MRR").format(0.5)
        ('96.7 %', '0.500')
        >>> Metric("accuracy", "accuracy", is_share=True).format(0.9667, 0.01)
        '96.7 % ± 1.0'
        """
        if self.is_share:
            return f"{100 * value:.1f} %" + ("" if error is None else f" ± {100 * error:.1f}")
        places = 3 if value < 10 else 1
        return f"{value:,.{places}f}" + ("" if error is None else f" ± {error:,.{places}f}")


@dataclass(frozen=True)
class TrainingReport:
    """A report of a training, up to a step.

    Attributes:
        number: The number of the step, or of the epoch of node classification.
        loss: The mean training loss since the report before.
        seconds: Time spent training until then, in all sessions.
        metrics: Further metrics by name, such as train_accuracy or valid_mrr; those on validation data begin with
            "valid_".

    Example:
        >>> TrainingReport(2, 0.5, 1.0, {"valid_mrr": 0.25}).as_row(("valid_mrr", "valid_hits@1"))
        {'number': 2, 'loss': 0.5, 'valid_mrr': 0.25, 'valid_hits@1': None, 'seconds': 1.0}
    """

    number: int
    loss: float
    seconds: float
    metrics: Mapping[str, float] = field(default_factory=dict)

    def __getitem__(self, name: str) -> float | None:
        """Return a metric, or None if it was not measured."""
        return self.metrics.get(name)

    def as_row(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Return a line of metrics.jsonl, with a place for every named metric."""
        metrics = {name: self.metrics.get(name) for name in names}
        return {"number": self.number, "loss": self.loss, **metrics, "seconds": self.seconds}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> TrainingReport:
        """Return the report of a line of metrics.jsonl."""
        own = ("number", "loss", "seconds")
        metrics = {name: value for name, value in row.items() if name not in own and value is not None}
        return cls(row["number"], row["loss"], row.get("seconds") or 0.0, metrics)


class Reports(list[TrainingReport]):
    """The reports of a training, which a notebook shows as a table."""

    def _repr_html_(self) -> str:
        names = dict.fromkeys(name for report in self for name in report.metrics)
        return html_table([report.as_row((*names,)) for report in self])
