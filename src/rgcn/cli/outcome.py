"""What a person sees when a training is done: the figures, and a few predictions to judge by eye."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rgcn.graph.titles import local_name
from rgcn.runs import RunResult
from rgcn.tasks.estimator import Estimator
from rgcn.tasks.task import Task, task_of
from rgcn.words import count, duration

EXAMPLES = 10


class Outcome:
    """What a task shows of a trained model; the figures of its metrics, where it brings nothing of its own."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def figures(self, measured: Mapping[str, Any]) -> str:
        """The metrics of one split in a line."""
        there = [metric for metric in self.task.metrics if metric.name in measured]
        return "  ".join(f"{metric.title} {metric.words(measured[metric.name])}" for metric in there)

    def beside(self, model: Estimator, split: str, measured: Mapping[str, Any]) -> str:
        """What to hold the figures of a split against."""
        return ""

    def examples(self, model: Estimator) -> Table | None:
        """Predictions to judge by eye."""
        return None

    def evaluated(self, measured: Mapping[str, Any]) -> Table | str:
        """Everything that `rgcn evaluate` tells of a split."""
        return self.figures(measured)


def print_outcome(result: RunResult) -> None:
    """Figures, then examples."""
    values, outcome = result.as_dict(), task_of(result.config.task).to(Outcome)
    stored, counted = values["stored_parameters"], values["parameters"]
    parameters = count(counted, "parameter") + (f" ({stored:,} of them stored)" if stored != counted else "")
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"[bold]{escape(values['model'])}[/] on [bold]{escape(values['dataset'])}[/], seed {values['seed']}: "
        f"{count(values['epochs'], 'epoch')} in {duration(values['seconds'])}, {parameters}"
    )
    for split, measured in values["metrics"].items():
        words = outcome.beside(result.model, split, measured)
        console.print(f"{split:<6} {outcome.figures(measured)}" + (f"   ({escape(words)})" if words else ""))
    examples = outcome.examples(result.model)
    if examples is not None:
        Console(highlight=False).print(examples)


def shown(name: str) -> str:
    """A name in short, and such that no part of it is taken for markup."""
    return escape(local_name(name))


def number(score: float, probability: float | None) -> str:
    """How sure a model is: a calibrated probability, or where there is none its score."""
    return f"{score:.2f}" if probability is None else f"{probability:.0%}"


def spread(length: int) -> NDArray[np.int64]:
    """Up to EXAMPLES positions, evenly over a list."""
    return np.unique(np.linspace(0, length - 1, min(EXAMPLES, length)).astype(np.int64))
