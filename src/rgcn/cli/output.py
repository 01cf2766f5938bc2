"""What commands print: JSON, tables, progress, and the results of a training."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.box import HEAVY_HEAD, SIMPLE, Box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from rgcn.config.training_section import TrainingSection
from rgcn.errors import ConfigError
from rgcn.graph import SPLITS, KnowledgeGraph
from rgcn.graph.titles import Titles, readable_name
from rgcn.models.task import Task, task_of
from rgcn.runs.series import SeriesCallback, SeriesRow
from rgcn.system.formatting import format_count, format_duration, format_rough_duration, text_console
from rgcn.system.progress import ProgressMeter, progress
from rgcn.training.history import Metric, TrainingReport

if TYPE_CHECKING:
    from rgcn.models.estimator import Estimator
    from rgcn.predict import OpenModel

NUM_EXAMPLES = 10
DEFAULT_DRAWN_ANSWERS = 50  # the number in published results on graphs that a model was not trained on
NUM_LINES = 10  # that a training prints if there is no terminal, at least
MAX_SILENCE_S = 60.0
TIMED_STEPS, MIN_PLANNED_S = 3, 60.0  # steps timed for the planned duration; shorter durations are not printed
MIN_REDRAW_S = 0.05  # drawing more often than people can see would cost more than a step


def print_json(values: Any, **settings: Any) -> None:
    """Print values as JSON; `settings` are those of `json.dumps`."""
    typer.echo(json.dumps(values, **settings))


def print_result(
    as_json: bool, values: Any, *parts: str | Table, width: int = 0, min_width: int = 0, indent: int | None = None
) -> None:
    """Print a result.

    Args:
        as_json: Print `values` as JSON instead of `parts`.
        values: The result as one JSON object.
        *parts: The result as lines and tables.
        width: Width of tables if standard output is not a terminal.
        min_width: Least width of tables.
        indent: Indentation of the JSON.
    """
    if as_json:
        print_json(values, indent=indent)
        return
    for part in parts:
        if isinstance(part, str):
            typer.echo(part)
        else:
            output(width, min_width).print(part)


def output(width: int = 0, min_width: int = 0) -> Console:
    """Return a console on standard output; arguments as in `print_result`."""
    console = text_console(highlight=False)
    console.width = max(console.width, min_width, 0 if console.is_terminal else width)
    return console


def table(
    columns: Iterable[str],
    rows: Iterable[Iterable[Any]] = (),
    numbers: Iterable[str] = (),
    title: str | None = None,
    box: Box = SIMPLE,
) -> Table:
    """Make a table. Columns of `numbers` are aligned to the right and never folded; others are folded."""
    result, right = Table(title=title, title_justify="left", box=box), set(numbers)
    for name in columns:
        result.add_column(name, justify="right" if name in right else "left", no_wrap=name in right, overflow="fold")
    for row in rows:
        result.add_row(*(escape(cell) if isinstance(cell, str) else cell for cell in row))
    return result


def print_skipped(graph: KnowledgeGraph) -> None:
    """Print on standard error how many lines were left out while reading, and the first of them."""
    skipped = graph.metadata.get("skipped_lines", 0)
    if skipped:
        examples = (f"\n  {example}" for example in graph.metadata.get("skipped_examples", ()))
        typer.echo(f"skipped {format_count(skipped, 'bad line')}:{''.join(examples)}", err=True)


def print_opened(opened: OpenModel, quiet: bool) -> None:
    """Print on standard error that the pretrained model answers, and what was left out of its graph."""
    graph = opened.zero_shot_graph
    if graph is not None:
        print_skipped(graph)
        dropped = graph.metadata.get("missing_labels", 0)
        if dropped and opened.data is not None and opened.data.missing_labels == "drop":
            typer.echo(f"skipped {format_count(dropped, 'label')} of nodes that are not in the graph", err=True)
        if not quiet:
            typer.echo(opened.words, err=True)


def _is_terminal() -> bool:
    """Return True if progress bars are drawn."""
    return sys.stderr is not None and sys.stderr.isatty()


@contextmanager
def busy(description: str, quiet: bool, total: int | None = None) -> Iterator[Callable[[str], None]]:
    """Show the steps of a task on standard error: next to a progress bar on a terminal, else as lines.

    Args:
        description: The task.
        quiet: Show nothing.
        total: Number of steps, if known; the steps are then reported when they are done.

    Yields:
        A function that takes the description of each step.
    """
    with progress(description, total, show=False if quiet else None) as meter:

        def show_step(step: str) -> None:
            if not quiet and _is_terminal():
                meter.set_description(escape(step))
                meter.advance(0 if total is None else 1)
            elif not quiet:
                typer.echo(step, err=True)

        yield show_step


@contextmanager
def late_progress(
    description: str, unit: str, show: bool | None, forecast: Callable[[float, int], str] | None = None
) -> Iterator[Callable[..., None]]:
    """Show a bar whose total becomes known with the first call of the yielded function.

    Args:
        description: The task.
        unit: What is counted.
        show: As in `progress`.
        forecast: Called once, after a second, with the estimated remaining seconds and the number of units that were
            left at the beginning. Returns a line to print, or "". The first part is not timed, because it may include
            compilation.

    Yields:
        A function that takes the number done and the total.
    """
    with ExitStack() as stack:
        meter, marks = ProgressMeter(), list[tuple[float, int]]()

        def advance(done: int, total: int = 0) -> None:
            nonlocal meter, forecast
            if not marks:
                meter = stack.enter_context(progress(description, total, unit, show=show))
            meter.advance(done - meter.done)
            if len(marks) < 2:
                marks.append((time.monotonic(), done))
            seconds, num_timed = time.monotonic() - marks[-1][0], done - marks[-1][1]
            if forecast is not None and seconds >= 1 and num_timed:
                meter.print_line(forecast((total - done) * seconds / num_timed, total - marks[0][1]))
                forecast = None

        yield advance


class TrainingProgress:
    """Shows the progress of a training: next to a progress bar on a terminal, else as lines.

    Args:
        training: Its length and unit.
        metric: The metric to show next to the loss.
        meter: The bar.
        quiet: Show nothing.
    """

    def __init__(
        self, training: TrainingSection, metric: Metric, meter: ProgressMeter | None = None, quiet: bool = False
    ) -> None:
        self.total, self.unit = training.length, training.unit
        self.metric, self.meter, self.quiet = metric, meter or ProgressMeter(), quiet
        self.metrics, self.text, self.num_steps = dict[str, float](), "", 0
        self.start_time = self.start = 0.0  # of this session: the time, and the number of its first step
        self.shown_time = self.shown = 0.0

    def step(self, number: float) -> None:
        """Report a finished step, or part of an epoch."""
        now = time.monotonic()
        if not self.num_steps:
            self.start_time = self.shown_time = now
            self.start, self.shown = number, number - number % max(1, self.total // NUM_LINES)
            self.meter.advance(number)  # the first advance does not count for the remaining time
        self.num_steps += 1
        if self.num_steps == 1 + TIMED_STEPS and not self.quiet:
            seconds = (now - self.start_time) / (number - self.start) * (self.total - self.start)
            if seconds > MIN_PLANNED_S:
                self.meter.print_line(f"Estimated time: {format_rough_duration(seconds)}, measured in the first steps")
        if now - self.shown_time >= (MIN_REDRAW_S if _is_terminal() else MAX_SILENCE_S):
            self._show(number)

    def report(self, report: TrainingReport) -> None:
        """Show new metrics. A metric is shown until it is measured again."""
        self.metrics |= report.metrics
        self.text = f"loss {report.loss:.4f}"
        for split in ("train", "valid"):
            value = self.metrics.get(f"{split}_{self.metric.name}")
            self.text += "" if value is None else f"  {split} {self.metric.title} {self.metric.format(value)}"
        is_due = report.number - self.shown >= self.total / NUM_LINES
        if _is_terminal():
            is_due = time.monotonic() - self.shown_time >= MIN_REDRAW_S
        if is_due or report.number == self.total:
            self._show(report.number)

    def _show(self, number: float) -> None:
        self.shown, self.shown_time = number, time.monotonic()
        steps, seconds = number - self.start, self.shown_time - self.start_time
        speed = left = ""
        if self.num_steps and steps and seconds > 0:
            speed = f"{steps / seconds:.1f}/s" if steps > seconds else f"{seconds / steps:.1f} s each"
            remaining = (self.total - number) * seconds / steps
            left = f"  {format_rough_duration(remaining)} left" if number < self.total else ""
        if _is_terminal():
            self.meter.advance(number - self.meter.done)
            self.meter.set_description(escape(f"{self.text}  {speed}"))
        elif not self.quiet:
            typer.echo(f"{self.unit} {round(number, 2)}/{self.total}  {self.text}  {speed}{left}".rstrip(), err=True)


@contextmanager
def training_progress(training: TrainingSection, quiet: bool, metric: Metric) -> Iterator[TrainingProgress]:
    """Show the progress of one training."""
    with progress("", training.length, training.length_key, show=False if quiet else None) as meter:
        yield TrainingProgress(training, metric, meter, quiet)


class _SeriesProgress(SeriesCallback):
    """A line for each run, and a bar for each configuration, to which running trainings contribute their part."""

    def __init__(self, bars: ExitStack) -> None:
        self.bars, self.meter = bars, ProgressMeter()

    def begin(self, name: str, runs: int, length: int) -> None:
        self.bars.close()  # the bar of the configuration before
        self.meter = self.bars.enter_context(progress(escape(name), runs, "runs"))
        self.name, self.num_runs, self.length, self.num_done = name, runs, length, 0
        self.running: dict[int, float] = {}

    def report(self, seed: int, report: Any) -> None:
        self.running[seed] = report.number / self.length
        self._show()

    def run_ended(self, row: SeriesRow) -> None:
        self.running.pop(row.seed, None)
        self.num_done += 1
        self.meter.print_line(f"{self.name} {self.num_done}/{self.num_runs}  {format_series_row(row)}")
        self._show()

    def unavailable(self, name: str, why: str) -> None:
        self.meter.print_line(f"{name}: {why}")

    def _show(self) -> None:
        self.meter.advance(self.num_done + sum(self.running.values()) - self.meter.done)


@contextmanager
def series_progress(quiet: bool) -> Iterator[SeriesCallback]:
    """Show the progress of many trainings."""
    with ExitStack() as bars:
        yield SeriesCallback() if quiet else _SeriesProgress(bars)


def format_series_row(row: SeriesRow) -> str:
    """Return the result of one seed as a line.

    >>> from rgcn.runs.configuration import DEFAULT_TASK
    >>> result = {"task": DEFAULT_TASK, "metrics": {"test": {"accuracy": 0.9444}}, "seconds": 0.52}
    >>> format_series_row(SeriesRow(3, "reused", result))
    'seed 3: test accuracy 94.4 %, 520 ms (existed already, not run again)'
    """
    if row.result is None:
        return f"seed {row.seed} failed: {row.error}"
    metric = task_of(row.result["task"]).headline
    values = {split: metrics.get(metric.name) for split, metrics in row.result["metrics"].items()}
    parts = [f"{split} {metric.title} {metric.format(value)}" for split, value in values.items() if value is not None]
    notes = {"reused": " (existed already, not run again)", "continued": " (resumed)"}
    return f"seed {row.seed}: {', '.join([*parts, format_duration(row.result['seconds'])])}{notes.get(row.outcome, '')}"


class Outcome:
    """How the commands show a trained model. A task may bring its own; by default the metrics are printed."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def format_metrics(self, metrics: Mapping[str, Any]) -> str:
        """Return the metrics of one split as a line."""
        return "  ".join(
            f"{metric.title} {metric.format(metrics[metric.name], metrics.get(f'{metric.name}_error'))}"
            for metric in self.task.metrics
            if metric.name in metrics
        )

    def baseline(self, model: Estimator, split: str, metrics: Mapping[str, Any]) -> str:
        """Return a text to compare the metrics of a split with."""
        return ""

    def examples(self, model: Estimator) -> Table | None:
        """Return example predictions."""
        return None

    def evaluate_arguments(self, of: int | None, on: str | None) -> dict[str, Any]:
        """Convert the options --of and --on of `rgcn evaluate` to arguments of the model's `evaluate`."""
        if of is not None:
            raise ConfigError(f"--of is about ranks among random answers, and {self.task.title} has none: leave it out")
        return {}

    def evaluation(self, metrics: Mapping[str, Any]) -> Table | str:
        """Return what `rgcn evaluate` prints."""
        return self.format_metrics(metrics)


class ClassOutcome(Outcome):
    """Accuracy with that of the most frequent class, and example nodes."""

    def baseline(self, model: Estimator, split: str, metrics: Mapping[str, Any]) -> str:
        """Return the accuracy of always predicting the most frequent class."""
        labels = model.graph_.labels
        assert labels is not None
        most_frequent = int(np.bincount(labels.of("train")[1]).argmax())
        accuracy = self.task.headline.format(float((labels.of(split)[1] == most_frequent).mean()))
        always = f"always {Titles(model.graph_).class_(most_frequent)!r}: {accuracy}"
        return f"{format_count(metrics['count'], 'node')}; {always}"

    def evaluation(self, metrics: Mapping[str, Any]) -> str:
        """Return the metrics, and the number of nodes."""
        sample = " drawn at random" if "accuracy_error" in metrics else ""
        return f"{self.format_metrics(metrics)} of {format_count(metrics['count'], 'node')}{sample}"

    def examples(self, model: Any) -> Table:
        """Return some nodes of the last split with the predicted class, and the true one if that is different."""
        labels, titles = model.graph_.labels, Titles(model.graph_)
        split = next((split for split in reversed(SPLITS) if len(labels.of(split)[0])), "train")
        nodes, classes = labels.of(split)
        chosen = _spread(len(nodes))
        rows, predictions = [], model.predict_frame(nodes[chosen].tolist()).iter_rows(named=True)
        for prediction, true in zip(predictions, classes[chosen].tolist(), strict=True):
            predicted = labels.names[prediction["class"]]
            answer = Text(titles.class_(predicted), "green" if predicted == true else "red")
            node, true_title = model.graph_.nodes[prediction["node"]], "" if predicted == true else titles.class_(true)
            rows.append((titles.of(node), answer, _format_confidence(prediction), true_title))
        confidence = "probability" if model.calibration_.fitted else "score"
        title = f"{len(chosen)} of {len(nodes)} {split} nodes"
        return table(("node", "predicted", confidence, "true"), rows, (confidence,), title, HEAVY_HEAD)


class LinkOutcome(Outcome):
    """Ranks, and example questions made from triples."""

    def baseline(self, model: Estimator, split: str, metrics: Mapping[str, Any]) -> str:
        """Return the number of questions, with a warning if they are about training triples."""
        warning = "; nothing was held out, these are training triples" if split == "train" else ""
        return format_count(metrics["count"], "filtered question") + warning

    def evaluate_arguments(self, of: int | None, on: str | None) -> dict[str, Any]:
        """Convert the options; --on has a default of --of."""
        return {"of": DEFAULT_DRAWN_ANSWERS if of is None and on is not None else of, "show_progress": None}

    def evaluation(self, metrics: Mapping[str, Any]) -> Table:
        """Return the metrics by direction and by relation, the most frequent one first."""
        drawn = (Metric(name, name.replace("_", " "), is_share=True) for name in metrics if "_of_" in name)
        shown = [*self.task.metrics, *drawn]
        numbers = [*(metric.title for metric in shown), "count"]
        result = table(("", *numbers), numbers=numbers)
        result.caption = "of triples drawn at random, ± the standard error" if "mrr_error" in metrics else None
        result.columns[0].min_width = len("predicting subjects")  # long names are folded, numbers never
        relations = sorted(metrics["by_relation"].items(), key=lambda item: -item[1]["count"])
        rows = [("both directions", metrics)]
        rows += [(f"predicting {direction}s", values) for direction, values in metrics["by_direction"].items()]
        rows += [(readable_name(relation), values) for relation, values in relations]
        for place, (label, values) in enumerate(rows):
            cells = [metric.format(values[metric.name], values.get(f"{metric.name}_error")) for metric in shown]
            result.add_row(escape(label), *cells, f"{values['count']:,}", end_section=place == 2)
        return result

    def examples(self, model: Any) -> Table:
        """Return questions (subject, relation, ?) with the best new answers and the held-out one."""
        graph, split = model.graph_, next(iter(reversed(model.measured_splits())), "train")
        titles, triples, is_train = Titles(graph), graph.split_triples(split), split == "train"
        chosen = _spread(len(triples))
        rows = []
        for s, r, o in triples[chosen].tolist():
            best = model.predict_frame(subject=s, relation=r, k=3, known="mark" if is_train else "drop")
            texts = []
            for answer in best.iter_rows(named=True):
                node = graph.nodes[answer["object"]]
                named = (titles.of(node), "green" if node == o else "")
                texts.append(Text.assemble(named, f" ({_format_confidence(answer)})"))
            rows.append((f"{titles.of(s)} —{titles.relation(r)}→ ?", Text(", ").join(texts), titles.of(o)))
        confidence = "probability" if model.calibration_.fitted else "score"
        title = f"{len(chosen)} of {len(triples)} {split} triples: {'' if is_train else 'new '}answers, best first"
        columns = ("question", f"predicted ({confidence})", "training triple" if is_train else "held out")
        return table(columns, rows, title=title, box=HEAVY_HEAD)


def _format_confidence(answer: Mapping[str, Any]) -> str:
    """Return the calibrated probability, or the score if there is none."""
    return f"{answer['score']:.2f}" if answer["probability"] is None else f"{answer['probability']:.0%}"


def _spread(length: int) -> NDArray[np.int64]:
    """Return up to NUM_EXAMPLES positions, evenly over a list."""
    return np.unique(np.linspace(0, length - 1, min(NUM_EXAMPLES, length)).astype(np.int64))
