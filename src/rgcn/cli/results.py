"""What a person sees when a training is done: the figures, and a few predictions to judge by eye."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.box import HEAVY_HEAD
from rich.markup import escape
from rich.table import Table

from rgcn.cli.output import output, table
from rgcn.errors import ConfigError
from rgcn.graph import SPLITS
from rgcn.graph.titles import Titles, readable
from rgcn.models.task import Task, task_of
from rgcn.system.formatting import count, duration, memory, text_console
from rgcn.training.history import Metric

if TYPE_CHECKING:
    from rgcn.models.estimator import Estimator
    from rgcn.runs.selection import Selection
    from rgcn.runs.training import RunResult

EXAMPLES = 10
OF_OTHERS = 50  # drawn answers, as figures on graphs that a model was not trained on are published


class Outcome:
    """What a task shows of a trained model; the figures of its metrics, where it brings nothing of its own."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def figures(self, measured: Mapping[str, Any]) -> str:
        """The metrics of one split in a line."""
        there = [metric for metric in self.task.metrics if metric.name in measured]
        return "  ".join(
            f"{metric.title} {metric.words(measured[metric.name], measured.get(f'{metric.name}_error'))}"
            for metric in there
        )

    def beside(self, model: Estimator, split: str, measured: Mapping[str, Any]) -> str:
        """What to hold the figures of a split against."""
        return ""

    def examples(self, model: Estimator) -> Table | None:
        """Predictions to judge by eye."""
        return None

    def measuring(self, of: int | None, on: str | None) -> dict[str, Any]:
        """What `rgcn evaluate` says to the model's own `evaluate`: --of, and --on, with which it has a default."""
        if of is not None:
            raise ConfigError(f"--of is about ranks among drawn answers, and {self.task.title} has none: leave it out")
        return {}

    def evaluated(self, measured: Mapping[str, Any]) -> Table | str:
        """Everything that `rgcn evaluate` tells of a split."""
        return self.figures(measured)


class ClassOutcome(Outcome):
    """Accuracy beside that of the most frequent class; some nodes, what is said of them, and what is true."""

    def beside(self, model: Estimator, split: str, measured: Mapping[str, Any]) -> str:
        from rgcn.pages.node_report import majority  # brings PyTorch, which a command that only refuses has no need of

        labels = model.graph_.labels
        assert labels is not None
        most, right = majority(labels, split)
        always = f"always {Titles(model.graph_).class_(labels.names[most])!r}: {self.task.headline.words(right)}"
        return f"{count(measured['count'], 'node')}; {always}"

    def evaluated(self, measured: Mapping[str, Any]) -> str:
        drawn = " drawn at random" if "accuracy_error" in measured else ""
        return f"{self.figures(measured)} of {count(measured['count'], 'node')}{drawn}"

    def examples(self, model: Any) -> Table:
        """A few nodes, spread over the last split, with the class predicted and, where that is wrong, the true one."""
        labels, titles = model.graph_.labels, Titles(model.graph_)
        split = next((s for s in reversed(SPLITS) if len(labels.of(s)[0])), "train")
        nodes, classes = labels.of(split)
        chosen = _spread(len(nodes))
        predictions = model.predict(nodes[chosen].tolist())
        sure = "probability" if model.calibration_.fitted else "score"
        title = f"{len(chosen)} of {len(nodes)} {split} nodes"
        drawn = table(("node", "predicted", sure, "truly"), (sure,), title, HEAVY_HEAD)
        for prediction, true_class in zip(predictions, classes[chosen].tolist(), strict=True):
            predicted = labels.names[prediction.label]
            right = predicted == true_class
            drawn.add_row(
                escape(titles.of(model.graph_.nodes[prediction.node])),
                f"[{'green' if right else 'red'}]{escape(titles.class_(predicted))}[/]",
                _sure(prediction.score, prediction.probability),
                "" if right else escape(titles.class_(true_class)),
            )
        return drawn


class LinkOutcome(Outcome):
    """Ranks; some questions that held-out triples ask, what is answered, and what is true."""

    def beside(self, model: Estimator, split: str, measured: Mapping[str, Any]) -> str:
        of = "; nothing was held out, these are triples it learned" if split == "train" else ""
        return count(measured["count"], "filtered question") + of

    def measuring(self, of: int | None, on: str | None) -> dict[str, Any]:
        return {"of": OF_OTHERS if of is None and on is not None else of, "show_progress": None}

    def evaluated(self, measured: Mapping[str, Any]) -> Table:
        """Figures by direction and by relation, the most frequent first."""
        drawn_of = (Metric(name, name.replace("_", " "), share=True) for name in measured if "_of_" in name)
        metrics = [*self.task.metrics, *drawn_of]
        figures = [*(metric.title for metric in metrics), "count"]
        drawn = table(("", *figures), figures)
        drawn.caption = "of triples drawn at random, ± the standard error" if "mrr_error" in measured else None
        drawn.columns[0].min_width = len("asking for the subject")  # long names are folded, figures never cut off
        relations = sorted(measured["by_relation"].items(), key=lambda item: -item[1]["count"])
        rows = [("both directions", measured)]
        rows += [(f"asking for the {direction}", one) for direction, one in measured["by_direction"].items()]
        rows += [(readable(relation), one) for relation, one in relations]
        for place, (label, values) in enumerate(rows):
            cells = [metric.words(values[metric.name], values.get(f"{metric.name}_error")) for metric in metrics]
            drawn.add_row(escape(label), *cells, f"{values['count']:,}", end_section=place == 2)
        return drawn

    def examples(self, model: Any) -> Table:
        """Questions (subject, relation, ?): the best answers that were not learned, and the one that is held out."""
        graph, split = model.graph_, next(iter(reversed(model.measured_splits())), "train")
        titles = Titles(graph)
        triples = graph.split_triples(split)
        chosen = _spread(len(triples))
        sure = "probability" if model.calibration_.fitted else "score"
        learned = split == "train"
        title = f"{len(chosen)} of {len(triples)} {split} triples: {'' if learned else 'new '}answers, best first"
        truth = "learned" if learned else "held out"
        drawn = table(("question", f"the model says ({sure})", truth), (), title, HEAVY_HEAD)
        for s, r, o in triples[chosen].tolist():
            answer = graph.nodes[o]
            best = model.predict(subject=s, relation=r, k=3, known="mark" if learned else "drop")
            words = [
                f"[{'green' if one.object == answer else 'default'}]{escape(titles.of(graph.nodes[one.object]))}[/] "
                f"({_sure(one.score, one.probability)})"
                for one in best
            ]
            question = escape(f"{titles.of(s)} —{titles.relation(r)}→ ?")
            drawn.add_row(question, ", ".join(words), escape(titles.of(o)))
        return drawn


def print_selection(selection: Selection) -> None:
    figures = ("steps", "time", "test")
    drawn = table(("model", "steps", "time", "validation", "test"), figures, f"{selection.metric.title} of each model")
    for row in selection.rows():
        drawn.add_row(*map(escape, row))
    output(110).print(drawn)
    output().print(f"{escape(selection.verdict())}\n", soft_wrap=True)


def print_outcome(result: RunResult) -> None:
    values, outcome = result.as_dict(), task_of(result.config.task).to(Outcome)
    stored, counted = values["stored_parameters"], values["parameters"]
    parameters = count(counted, "parameter") + (f" ({stored:,} of them stored)" if stored != counted else "")
    console = text_console(highlight=False, soft_wrap=True)
    console.print(
        f"[bold]{escape(values['model'])}[/] on [bold]{escape(values['dataset'])}[/], seed {values['seed']}: "
        f"{count(values['epochs'], 'epoch')} in {duration(values['seconds'])}, {parameters}"
    )
    if result.exchanged is not None:
        group, sent, least = (result.exchanged[key] for key in ("processes", "sent", "least"))
        console.print(f"{group} processes sent each other {memory(sent)} a step; {memory(least)} is the least possible")
    for split, measured in values["metrics"].items():
        words = outcome.beside(result.model, split, measured)
        console.print(f"{split:<6} {outcome.figures(measured)}" + (f"   ({escape(words)})" if words else ""))
    examples = outcome.examples(result.model)
    if examples is not None:
        output().print(examples)


def _sure(score: float, probability: float | None) -> str:
    """How sure a model is: a calibrated probability, or where there is none its score."""
    return f"{score:.2f}" if probability is None else f"{probability:.0%}"


def _spread(length: int) -> NDArray[np.int64]:
    """Up to EXAMPLES positions, evenly over a list."""
    return np.unique(np.linspace(0, length - 1, min(EXAMPLES, length)).astype(np.int64))
