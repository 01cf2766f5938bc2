"""What commands print: JSON, tables, how far a task has come, and what a person sees of a trained model."""

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

from rgcn.errors import ConfigError
from rgcn.graph import SPLITS, KnowledgeGraph
from rgcn.graph.titles import Titles, readable
from rgcn.models.task import Task, task_of
from rgcn.runs.series import SeriesListener, SeriesRow
from rgcn.system.formatting import count, duration, rough_duration, text_console
from rgcn.system.progress import ProgressMeter, progress
from rgcn.training.history import Epoch, Metric

if TYPE_CHECKING:
    from rgcn.models.estimator import Estimator
    from rgcn.predict import OpenModel

EXAMPLES = 10
OF_OTHERS = 50  # drawn answers, as figures on graphs that a model was not trained on are published
LINES = 10
LONGEST_SILENCE_S = 60.0
TIMED, WORTH_TELLING_S = 3, 60.0  # steps after the first by which the time is planned; what takes less is not
SHORTEST_PAUSE_S = 0.05  # drawing more often than anyone can see would cost more than a step


def print_json(values: Any, **settings: Any) -> None:
    typer.echo(json.dumps(values, **settings))


def tell(
    as_json: bool, values: Any, *parts: str | Table, width: int = 0, least: int = 0, indent: int | None = None
) -> None:
    """One JSON object, or these lines and tables for people; width, least: as `output` has them."""
    if as_json:
        print_json(values, indent=indent)
        return
    for part in parts:
        if isinstance(part, str):
            typer.echo(part)
        else:
            output(width, least).print(part)


def output(width: int = 0, least: int = 0) -> Console:
    """Standard output, at least `width` wide where it is no terminal; `least`: on one too, lest figures be cut off."""
    console = text_console(highlight=False)
    console.width = max(console.width, least, 0 if console.is_terminal else width)
    return console


def table(
    columns: Iterable[str],
    rows: Iterable[Iterable[Any]] = (),
    numbers: Iterable[str] = (),
    title: str | None = None,
    box: Box = SIMPLE,
) -> Table:
    """A table: columns of numbers stand to the right and are never folded, those of words are."""
    made, numbers = Table(title=title, title_justify="left", box=box), set(numbers)
    for name in columns:
        right = name in numbers
        made.add_column(name, justify="right" if right else "left", no_wrap=right, overflow="fold")
    for row in rows:
        made.add_row(*(escape(cell) if isinstance(cell, str) else cell for cell in row))
    return made


def tell_skipped(graph: KnowledgeGraph) -> None:
    """Say on standard error how many lines were left out while reading, and which the first ones were."""
    skipped = graph.metadata.get("skipped_lines", 0)
    if skipped:
        examples = (f"\n  {example}" for example in graph.metadata.get("skipped_examples", ()))
        typer.echo(f"skipped {count(skipped, 'bad line')}:{''.join(examples)}", err=True)


def tell_opened(opened: OpenModel, quiet: bool) -> None:
    """Say on standard error that nobody trained the model that answers, and what was left out of its graph."""
    if opened.untrained is not None:
        tell_skipped(opened.untrained)
        dropped = opened.untrained.metadata.get("missing_labels", 0)
        if dropped and opened.data is not None and opened.data.missing_labels == "drop":
            typer.echo(f"skipped {count(dropped, 'label')} of nodes that are not in the graph", err=True)
        if not quiet:
            typer.echo(opened.words, err=True)


def _is_drawn() -> bool:
    """Whether a bar that is not unwanted is drawn."""
    return sys.stderr is not None and sys.stderr.isatty()


@contextmanager
def busy(words: str, quiet: bool, total: int | None = None) -> Iterator[Callable[[str], None]]:
    """Says what is being done, or has been of `total`: beside a bar on a terminal, in lines elsewhere; on stderr."""
    with progress(words, total, show=False if quiet else None) as meter:

        def say(what: str) -> None:
            if not quiet and _is_drawn():
                meter.describe(escape(what))
                meter.advance(0 if total is None else 1)
            elif not quiet:
                typer.echo(what, err=True)

        yield say


@contextmanager
def late_progress(
    words: str, unit: str, show: bool | None, forecast: Callable[[float, int], str] | None = None
) -> Iterator[Callable[..., None]]:
    """A bar that is drawn once `meter(done, total)` is first called: only then it is known how many there are.

    forecast  words, if any, to be said of the seconds that the rest will take, and how many were left at first: asked
              once, when a second has shown how fast it goes. The first part does not count: it may compile something
    """
    with ExitStack() as stack:
        meter, marks = ProgressMeter(), list[tuple[float, int]]()

        def advance(done: int, total: int = 0) -> None:
            nonlocal meter, forecast
            if not marks:
                meter = stack.enter_context(progress(words, total, unit, show=show))
            meter.advance(done - meter.done)
            if len(marks) < 2:
                marks.append((time.monotonic(), done))
            seconds, more = time.monotonic() - marks[-1][0], done - marks[-1][1]
            if forecast is not None and seconds >= 1 and more:
                meter.say(forecast((total - done) * seconds / more, total - marks[0][1]))
                forecast = None

        yield advance


# -- trainings ---------------------------------------------------------------------------------------------


class TrainingProgress:
    """What a training of `total` steps reports to: `step` after every step, `epoch` with figures there are to show.

    Each step is an epoch or a part of one; what is shown of them is the loss and this metric: beside a bar on a
    terminal, in lines elsewhere.
    """

    def __init__(self, total: int, metric: Metric, meter: ProgressMeter | None = None, quiet: bool = False) -> None:
        self.total, self.metric, self.meter, self.quiet = total, metric, meter or ProgressMeter(), quiet
        self.figures, self.words, self.steps = dict[str, float](), "", 0
        self.began = self.first = 0.0  # when this session began, and with which step
        self.said_at = self.said = 0.0

    def step(self, number: float) -> None:
        now = time.monotonic()
        if not self.steps:
            self.began = self.said_at = now
            self.first, self.said = number, number - number % max(1, self.total // LINES)
            self.meter.advance(number)  # the first advance does not count for the time that is left
        self.steps += 1
        if self.steps == 1 + TIMED and not self.quiet:
            seconds = (now - self.began) / (number - self.first) * (self.total - self.first)
            if seconds > WORTH_TELLING_S:
                self.meter.say(f"Planned: {rough_duration(seconds)}, by the first steps")
        if now - self.said_at >= (SHORTEST_PAUSE_S if _is_drawn() else LONGEST_SILENCE_S):
            self._show(number)

    def epoch(self, epoch: Epoch) -> None:
        """Figures there are to show; what is measured now and then is shown until it is measured again."""
        self.figures |= epoch.figures
        self.words = f"loss {epoch.loss:.4f}"
        for split in ("train", "valid"):
            value = self.figures.get(f"{split}_{self.metric.name}")
            self.words += "" if value is None else f"  {split} {self.metric.title} {self.metric.words(value)}"
        a_tenth = epoch.number - self.said >= self.total / LINES
        due = time.monotonic() - self.said_at >= SHORTEST_PAUSE_S if _is_drawn() else a_tenth
        if due or epoch.number == self.total:
            self._show(epoch.number)

    def _show(self, number: float) -> None:
        self.said, self.said_at = number, time.monotonic()
        steps, seconds = number - self.first, self.said_at - self.began
        speed = left = ""
        if self.steps and steps and seconds > 0:
            speed = f"{steps / seconds:.1f}/s" if steps > seconds else f"{seconds / steps:.1f} s each"
            left = f"  {rough_duration((self.total - number) * seconds / steps)} left" if number < self.total else ""
        if _is_drawn():
            self.meter.advance(number - self.meter.done)
            self.meter.describe(escape(f"{self.words}  {speed}"))
        elif not self.quiet:
            typer.echo(f"epoch {round(number, 2)}/{self.total}  {self.words}  {speed}{left}".rstrip(), err=True)


@contextmanager
def training_progress(total: int, quiet: bool, metric: Metric) -> Iterator[TrainingProgress]:
    with progress("", total, "epochs", show=False if quiet else None) as meter:
        yield TrainingProgress(total, metric, meter, quiet)


class _Series(SeriesListener):
    """A line for each run, and a bar for each configuration, where what is under way counts by its epochs."""

    def __init__(self, bars: ExitStack) -> None:
        self.bars, self.meter = bars, ProgressMeter()

    def begin(self, name: str, runs: int, epochs: int) -> None:
        self.bars.close()  # that of the configuration before
        self.meter = self.bars.enter_context(progress(escape(name), runs, "runs"))
        self.name, self.runs, self.epochs, self.done = name, runs, epochs, 0
        self.under_way: dict[int, float] = {}

    def epoch(self, seed: int, epoch: Any) -> None:
        self.under_way[seed] = epoch.number / self.epochs
        self._show()

    def ran(self, row: SeriesRow) -> None:
        self.under_way.pop(row.seed, None)
        self.done += 1
        self.meter.say(f"{self.name} {self.done}/{self.runs}  {row_words(row)}")
        self._show()

    def absent(self, name: str, why: str) -> None:
        self.meter.say(f"{name}: {why}")

    def _show(self) -> None:
        self.meter.advance(self.done + sum(self.under_way.values()) - self.meter.done)


@contextmanager
def series_progress(quiet: bool) -> Iterator[SeriesListener]:
    with ExitStack() as bars:
        yield SeriesListener() if quiet else _Series(bars)


def row_words(row: SeriesRow) -> str:
    """A seed and how it went, in a line.

    >>> from rgcn.runs.configuration import DEFAULT_TASK
    >>> result = {"task": DEFAULT_TASK, "metrics": {"test": {"accuracy": 0.9444}}, "seconds": 0.52}
    >>> row_words(SeriesRow(3, "reused", result))
    'seed 3: test accuracy 94.4 %, 520 ms (was there, not run again)'
    """
    if row.result is None:
        return f"seed {row.seed} failed: {row.error}"
    metric = task_of(row.result["task"]).headline
    found = {split: figures.get(metric.name) for split, figures in row.result["metrics"].items()}
    parts = [f"{split} {metric.title} {metric.words(one)}" for split, one in found.items() if one is not None]
    notes = {"reused": " (was there, not run again)", "continued": " (went on where it was cut off)"}
    return f"seed {row.seed}: {', '.join([*parts, duration(row.result['seconds'])])}{notes.get(row.outcome, '')}"


# -- outcomes ----------------------------------------------------------------------------------------------


class Outcome:
    """What a task shows of a trained model; the figures of its metrics, where it brings nothing of its own."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def figures(self, measured: Mapping[str, Any]) -> str:
        """The metrics of one split in a line."""
        return "  ".join(
            f"{metric.title} {metric.words(measured[metric.name], measured.get(f'{metric.name}_error'))}"
            for metric in self.task.metrics
            if metric.name in measured
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
        labels = model.graph_.labels
        assert labels is not None
        most = int(np.bincount(labels.of("train")[1]).argmax())
        right = self.task.headline.words(float((labels.of(split)[1] == most).mean()))
        always = f"always {Titles(model.graph_).class_(most)!r}: {right}"
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
        rows = []
        for prediction, true in zip(model.predict(nodes[chosen].tolist()), classes[chosen].tolist(), strict=True):
            predicted = labels.names[prediction.label]
            told = Text(titles.class_(predicted), "green" if predicted == true else "red"), _sure(prediction)
            truly = "" if predicted == true else titles.class_(true)
            rows.append((titles.of(model.graph_.nodes[prediction.node]), *told, truly))
        sure = "probability" if model.calibration_.fitted else "score"
        title = f"{len(chosen)} of {len(nodes)} {split} nodes"
        return table(("node", "predicted", sure, "truly"), rows, (sure,), title, HEAVY_HEAD)


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
        drawn = table(("", *figures), numbers=figures)
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
        titles, triples, learned = Titles(graph), graph.split_triples(split), split == "train"
        chosen = _spread(len(triples))
        rows = []
        for s, r, o in triples[chosen].tolist():
            best = model.predict(subject=s, relation=r, k=3, known="mark" if learned else "drop")
            answers = [(graph.nodes[one.object], f" ({_sure(one)})") for one in best]
            words = [Text.assemble((titles.of(node), "green" if node == o else ""), sure) for node, sure in answers]
            rows.append((f"{titles.of(s)} —{titles.relation(r)}→ ?", Text(", ").join(words), titles.of(o)))
        sure = "probability" if model.calibration_.fitted else "score"
        title = f"{len(chosen)} of {len(triples)} {split} triples: {'' if learned else 'new '}answers, best first"
        columns = ("question", f"the model says ({sure})", "learned" if learned else "held out")
        return table(columns, rows, title=title, box=HEAVY_HEAD)


def _sure(answer: Any) -> str:
    """How sure a model is: a calibrated probability, or where there is none its score."""
    return f"{answer.score:.2f}" if answer.probability is None else f"{answer.probability:.0%}"


def _spread(length: int) -> NDArray[np.int64]:
    """Up to EXAMPLES positions, evenly over a list."""
    return np.unique(np.linspace(0, length - 1, min(EXAMPLES, length)).astype(np.int64))
