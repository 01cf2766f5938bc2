"""Which model suits a graph: several are tried, each a run of its own, and the best on validation data is kept.

FOLDER/
  selection.json      what is tried, for how many steps, and how it went
  candidates/NAME/    a run each, while they are tried
  run.json, ...       in the end the run of the best, as if it had been trained here

How long each may train follows from minutes, by timing some steps, and is then written down as a number of steps: what
follows depends on no clock. All train for a short time first; the one that is best then trains once more, for longer.
Test data are read once, for the one that is chosen. What was kept is read without PyTorch.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from rgcn.config import RunConfig
from rgcn.data.graph_store import read_json
from rgcn.errors import ConfigError, DataError, NothingToHoldOutError, RgcnError, StoppedError
from rgcn.graph import KnowledgeGraph
from rgcn.models.task import task_of
from rgcn.runs.configuration import changed, changed_training, kept_configuration, with_whole_paths
from rgcn.runs.folder import RunFolder
from rgcn.system.formatting import duration, memory, rough_duration
from rgcn.system.memory import available_bytes
from rgcn.system.progress import ProgressMeter
from rgcn.training.history import Metric
from rgcn.version import __version__

if TYPE_CHECKING:
    from rgcn.models.estimator import Estimator
    from rgcn.runs.assembly import RunPlan
    from rgcn.runs.training import RunResult

FILE, FORMAT, VERSION = "selection.json", "rgcn-selection", 1
MEASUREMENTS, LEAST_STEPS = 3, 20  # of a training
TIMED_STEPS, TIMED_QUESTIONS = 12, (1, 8, 64)
# Shares of the minutes: to time a candidate's steps, and to validate it once; of what is left for training, what the
# short trainings have together: the best one's long training has the rest.
TIMING, VALIDATING, SHORT = 0.02, 0.03, 0.4
PLANNED = 0.9  # of the minutes: models are saved and loaded too
MEASURED_S = 30.0  # to measure the chosen one in the end, or a tenth of the minutes where that is more
LEAST_MEASURED = 100
LONGER = 1.5  # times as many steps are worth a training of their own


@dataclass
class Candidate:
    name: str
    config: RunConfig
    plain: bool = False  # it hears no neighbor: what others must beat
    more: int = 0  # steps that it may have if it is the best of those that train; 0: no more than it has
    at_most: int | None = None  # triples (or labels) of a split that its final figures are of; None: all
    planned: float = 0.0  # seconds
    skipped: str = ""  # why it was not tried
    figure: float | None = None  # on validation data
    steps: int | None = None
    seconds: float | None = None

    def as_dict(self) -> dict[str, Any]:
        return {
            **{key: value for key, value in vars(self).items() if key != "config"},
            "task": self.config.task,
            "model": self.config.model.title,
            "configuration": self.config.model_dump(mode="json"),
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any], source: str) -> Candidate:
        config = kept_configuration(values["task"], values["configuration"], source)
        return cls(config=config, **{key: values[key] for key in cls.__dataclass_fields__ if key != "config"})

    def folder(self, selection: Path) -> Path:
        return selection / "candidates" / self.name.replace(", ", "-").replace(" ", "-")


@dataclass
class Selection:
    """What is tried on a graph, and how it went; `chosen` and its `metrics` once that is known."""

    minutes: float
    fingerprint: str
    candidates: list[Candidate]
    chosen: str | None = None
    metrics: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def metric(self) -> Metric:
        return task_of(self.candidates[0].config.task).headline

    @property
    def best(self) -> Candidate:
        return next(one for one in self.candidates if one.name == self.chosen)

    def ranked(self) -> list[Candidate]:
        """Those that were tried, best first; of equals the one that was tried first."""
        tried = [one for one in self.candidates if one.figure is not None]
        return sorted(tried, key=lambda one: (one.figure or 0.0) * (-1 if self.metric.higher else 1))

    def verdict(self) -> str:
        """Who won, in words, plainly where it was no graph network."""
        best, ranked = self.best, self.ranked()
        if best.plain:
            words = f"Best on validation data: {best.name}, which hears no neighbors; no graph network did better"
            return f"{words} in {self.minutes:g} min. More time (--minutes) or more triples may change that."
        plain = next((one for one in ranked if one.plain), None)
        than = "" if plain is None else f" The best without a graph, {plain.name}, has {self.words(plain)}."
        return f"Best on validation data: {best.name} ({self.words(best)}).{than}"

    def words(self, candidate: Candidate) -> str:
        return "" if candidate.figure is None else self.metric.words(candidate.figure)

    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """(model, steps, time, validation, test) of each, best first, those that were skipped last."""
        test = self.metrics.get("test", {}).get(self.metric.name)
        tested = {self.chosen: "" if test is None else self.metric.words(test)}
        rows = []
        for one in self.ranked():
            time = duration(one.seconds or 0.0)
            rows.append((one.name, f"{one.steps or 0:,}", time, self.words(one), tested.get(one.name, "")))
        return [*rows, *((one.name, "", "", f"skipped: {one.skipped}", "") for one in self.candidates if one.skipped)]

    def told(self) -> list[dict[str, Any]]:
        keys, skipped = ("name", "steps", "seconds", "figure", "skipped"), [c for c in self.candidates if c.skipped]
        return [{key: getattr(one, key) for key in keys} for one in (*self.ranked(), *skipped)]

    def keep(self, folder: Path) -> None:
        head = {"format": FORMAT, "version": VERSION, "rgcn": __version__}
        candidates = [one.as_dict() for one in self.candidates]
        RunFolder(folder).write(FILE, {**head, **vars(self), "candidates": candidates})


def read_selection(folder: Path) -> Selection | None:
    """What a folder's model was chosen from; None where nothing was chosen there."""
    path = folder / FILE
    if not path.exists():
        return None
    kept = read_json(path, FORMAT, VERSION)
    try:
        candidates = [Candidate.from_dict(one, str(path)) for one in kept["candidates"]]
        return Selection(kept["minutes"], kept["fingerprint"], candidates, kept["chosen"], kept["metrics"])
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: damaged ({error}); train anew") from error


class ModelCost(NamedTuple):
    start: float  # seconds before the first step
    step: float  # seconds each
    asked: float  # seconds for a triple (or label) that is measured
    validated: int  # how many of these there are for validation
    measured: int  # likewise in the larger split
    memory: int  # bytes of its weights, what moves them, and a step

    def steps(self, seconds: float, at_most: int) -> tuple[int, int]:
        """How many steps so much time is enough for, and how often to measure on so many triples meanwhile."""
        for times in (MEASUREMENTS, 1):
            left = seconds - self.start - times * self.validating(at_most)
            if left >= LEAST_STEPS * self.step:
                return int(left / self.step), times
        return 0, 1

    def validating(self, at_most: int) -> float:
        return self.asked * min(at_most, self.validated)


def cost_of(plan: RunPlan, patience: float) -> ModelCost:
    """Some steps and some questions, timed; ConfigError where one step takes longer than `patience` seconds."""
    from rgcn.runs.assembly import make_model
    from rgcn.runs.training import saying_what_memory_lacks

    began, config, model = perf_counter(), plan.config, make_model(plan.config, plan.mirror)
    marks: list[float] = []
    with saying_what_memory_lacks(), model.fitting(plan.training) as fitting:
        start = perf_counter() - began
        size = 16 * model.num_parameters_ + fitting.trainer.step_bytes  # weights, gradients, and what Adam remembers
        most = TIMED_STEPS if config.training.epochs else 0
        while len(marks) < min(most, 3) or (len(marks) < most and marks[-1] - marks[0] < patience):
            float(fitting.trainer.step())  # waits for it
            marks.append(perf_counter() - began - start)
            if marks[1:] and marks[-1] - marks[-2] > patience:  # the first one may compile something
                raise ConfigError(f"a step takes {duration(marks[-1] - marks[-2])}: give it more --minutes")
        step = fitting.trainer.steps_an_epoch * (marks[-1] - marks[0]) / (len(marks) - 1) if marks else 0.0
        fitting.finish()
        there = {split: plan.split_sizes[split] for split in model.measured_splits() if split != "train"}
        validated, asked = there.get("valid", 0), 0.0
        for number, few in enumerate(TIMED_QUESTIONS if validated else ()):
            if number < 2 or asked * few < patience:
                before = perf_counter()
                model.evaluate(split="valid", at_most=few)
                asked = (perf_counter() - before) / min(few, validated)
    return ModelCost(start, step, asked, validated, max(there.values(), default=0), size)


def with_steps_for(plan: RunPlan, minutes: float) -> RunPlan:
    """The run with as many steps as so many minutes are enough for."""
    began, cost = perf_counter(), cost_of(plan, 60.0 * minutes)
    left = 60.0 * minutes - (perf_counter() - began) - cost.asked * cost.measured
    least = max(1, getattr(plan.config.training, "warmup", 0))
    return plan.with_training(epochs=max(least, cost.steps(left, cost.validated)[0])) if cost.step else plan


def for_steps(config: RunConfig, steps: int, times: int) -> RunConfig:
    """The configuration with so many steps, measured so often meanwhile."""
    return changed_training(config, epochs=steps, evaluate_every=math.ceil(steps / times))


def plan_selection(
    configs: Mapping[str, RunConfig], graph: KnowledgeGraph, minutes: float, meter: ProgressMeter | None = None
) -> tuple[Selection, int]:
    """What to try, for how many steps, so that it takes about so many minutes; and the bytes it takes at most."""
    from rgcn.runs.assembly import plan_run

    began, total, meter = perf_counter(), 60.0 * minutes, meter or ProgressMeter()
    candidates = [Candidate(name, with_whole_paths(config)) for name, config in configs.items()]
    timed: list[tuple[Candidate, ModelCost]] = []
    for one in candidates:
        one.plain = bool(task_of(one.config.task).candidates().get(one.name, {}).get("plain"))
        meter.describe(f"timing {one.name}")
        try:
            plan = plan_run(one.config, graph)
            one.config, cost = plan.config, cost_of(plan, TIMING * total)
        except (ConfigError, DataError) as error:
            one.skipped = str(error)
        else:
            timed.append((one, cost))
            if not cost.validated:
                raise NothingToHoldOutError("nothing is held out for validation, so that there is nothing to choose by")
        meter.advance()
    if not timed:
        raise DataError(f"no model can be tried: {candidates[0].skipped}")
    at_most = max(LEAST_MEASURED, int(VALIDATING * total / max(cost.asked for _, cost in timed)))
    # What is compiled the first time is not taken off.
    left = PLANNED * total - min(perf_counter() - began, 2 * TIMING * total * len(timed))
    _share_time(timed, left, at_most)
    final = max(MEASURED_S, 0.1 * total)
    for one, cost in timed:
        one.at_most = None if cost.asked * cost.measured <= final else max(LEAST_MEASURED, int(final / cost.asked))
        if at_most < cost.validated:
            one.config = changed_training(one.config, evaluate_at_most=at_most)
    size = max((cost.memory for one, cost in timed if not one.skipped), default=0)
    return Selection(minutes, graph.fingerprint, candidates), size


def _share_time(timed: Sequence[tuple[Candidate, ModelCost]], left: float, at_most: int) -> None:
    """Give each candidate the steps for which its share of the seconds is enough; to the best one the rest."""
    trained = [(one, cost) for one, cost in timed if one.config.training.epochs]
    for one, cost in timed:
        one.planned = cost.start + cost.validating(at_most)
        left -= 0.0 if one.config.training.epochs else one.planned
    shared = [one.name for one, cost in trained if cost.steps(SHORT * left / len(trained), at_most)[0]]
    for one, cost in trained:
        if one.name not in shared:
            enough = math.ceil((LEAST_STEPS * cost.step + one.planned) * len(trained) / SHORT / PLANNED / 60 + 1)
            one.skipped = f"a step takes {duration(cost.step)}: --minutes {enough} would be enough for it"
            continue
        steps, times = cost.steps(SHORT * left / len(shared), at_most)
        most, more = one.config.training.epochs, cost.steps((1 - SHORT) * left, at_most)[0]
        one.config = for_steps(one.config, min(most, steps), times)
        one.more = min(most, more) if min(most, more) > LONGER * one.config.training.epochs else 0
        one.planned = cost.start + one.config.training.epochs * cost.step + (times + 1) * cost.validating(at_most)


def with_validation(config: RunConfig) -> RunConfig:
    """The configuration measured on validation data, held out where there are none; before data are loaded."""
    return changed(config, task_of(config.task).for_trials(config))


def choose(selection: Selection, folder: Path, graph: KnowledgeGraph, meter: ProgressMeter | None = None) -> RunResult:
    """Try what is planned, or what is left of it, and make the best one's run that of the folder.

    The same selection gives the same run, to the last bit, whenever and however often it was interrupted. The meter
    counts seconds as they were planned, and is told of each model that was tried.
    """
    run = RunFolder(folder)
    if graph.fingerprint != selection.fingerprint:
        raise DataError(f"{folder}: the data have changed since its model began to be chosen: train anew")
    try:
        with run.writing():
            selection.keep(folder)
            for candidate in selection.candidates:
                _try(candidate, selection, folder, graph, meter)
            trained = next((one for one in selection.ranked() if one.config.training.epochs), None)
            if trained is not None and trained.more:
                config = for_steps(trained.config, trained.more, MEASUREMENTS)
                longer = replace(trained, name=f"{trained.name}, longer", config=config, more=0, figure=None)
                selection.candidates.append(longer)
                trained.more = 0
                _try(longer, selection, folder, graph, meter)
            return _conclude(selection, run)
    except StoppedError as error:
        raise error.advising(f"`rgcn resume {folder}` goes on from there") from None


def _try(
    candidate: Candidate, selection: Selection, folder: Path, graph: KnowledgeGraph, meter: ProgressMeter | None
) -> None:
    from rgcn.runs.training import resume, train

    if candidate.skipped or candidate.figure is not None:
        return
    place, each = candidate.folder(folder), candidate.planned / max(1, candidate.config.training.epochs)
    counting = meter or ProgressMeter()
    counting.describe(candidate.name)
    planned = counting.done + candidate.planned

    def on_step(number: float) -> None:
        if number == int(number):  # a whole epoch
            counting.advance(each)

    def measure(model: Estimator) -> dict[str, dict[str, Any]]:  # test data are left for the one that is chosen
        return {"valid": model.validated()}

    try:
        if RunFolder(place).exists():
            result = resume(place, on_step=on_step, graph=graph, measure=measure)
        else:
            result = train(candidate.config, graph, place, on_step=on_step, measure=measure)
        candidate.figure = result.metrics["valid"][selection.metric.name]
        candidate.steps, candidate.seconds = result.epochs, round(result.seconds, 3)
    except StoppedError:
        raise
    except RgcnError as error:
        candidate.skipped = f"failed: {error}"
    selection.keep(folder)
    counting.advance(max(0.0, planned - counting.done))
    if meter is not None:
        found = f"validation {selection.metric.title} {selection.words(candidate)}, {duration(candidate.seconds or 0)}"
        meter.say(f"{candidate.name}: {candidate.skipped or found}")


def _conclude(selection: Selection, run: RunFolder) -> RunResult:
    """Choose, measure, and move the best one's run to where it belongs, its result last: then it is finished."""
    from rgcn.runs.assembly import load_trained
    from rgcn.runs.training import resume

    ranked = selection.ranked()
    if not ranked:
        raise DataError(f"no model could be trained: {selection.candidates[0].skipped}")
    selection.chosen = ranked[0].name
    place = ranked[0].folder(run.path)
    if not selection.metrics:
        selection.metrics = load_trained(RunFolder(place)).measure(ranked[0].at_most)
        selection.keep(run.path)
    if (place / "result.json").exists():
        own = RunFolder(place)
        own.write("result.json", {**(own.result() or {}), "metrics": selection.metrics})
        for path in sorted(place.iterdir(), key=lambda path: path.name == "result.json"):
            if path.name != "lock":
                path.replace(run.path / path.name)
    shutil.rmtree(run.path / "candidates", ignore_errors=True)
    return resume(run.path)  # which is finished


def estimate(selection: Selection, size: int) -> str:
    """Time and memory of what is planned, and what the machine has, in a line."""
    free, tried = available_bytes(), [one for one in selection.candidates if not one.skipped]
    there = "" if free is None else f", and {memory(free)} are free"
    return (
        f"{len(tried)} of {len(selection.candidates)} models are tried, in about "
        f"{rough_duration(60 * selection.minutes)}; memory: about {memory(size)} at most{there}"
    )
