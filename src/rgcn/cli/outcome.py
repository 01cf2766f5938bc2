"""What a person sees when a training is done: the figures, and a few predictions to judge by eye."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rgcn.cli.printing import output
from rgcn.tasks.task import Task, task_of
from rgcn.words import count, duration

if TYPE_CHECKING:
    from rgcn.runs.training import RunResult
    from rgcn.tasks.estimator import Estimator


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
        output().print(examples)
