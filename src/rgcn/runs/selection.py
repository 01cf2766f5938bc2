"""Select a model for a graph: train several candidates, each as a run of its own, and keep the best on validation data.

FOLDER/
  selection.json      the candidates, their numbers of steps, and the results so far
  candidates/NAME/    the run of each candidate, until the selection ends
  run.json, ...       at the end, the run of the best candidate

The time limit (`minutes`) becomes a number of steps for each candidate before anything is trained: a few steps are
timed, and the numbers of steps are written to selection.json. So the result depends on no clock, and an interrupted
selection can be resumed. First every candidate trains for a short time. Then the best one trains once more, for longer.
Test data are read once, for the selected model. Reading a stored selection needs no PyTorch:
`rgcn.runs` and `rgcn.models` import their modules on first use.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from rgcn import models, runs
from rgcn.config import RunConfig
from rgcn.data.graph_store import read_json
from rgcn.errors import ConfigError, DataError, NothingToHoldOutError, RgcnError, StoppedError
from rgcn.graph import KnowledgeGraph
from rgcn.models.task import task_of
from rgcn.runs import configuration as configurations
from rgcn.runs.folder import RunFolder
from rgcn.system.formatting import format_bytes, format_duration, format_rough_duration
from rgcn.system.memory import available_bytes
from rgcn.system.progress import ProgressMeter
from rgcn.training.history import Metric
from rgcn.version import __version__

if TYPE_CHECKING:
    from rgcn.runs.training import RunResult

FILE, FORMAT, VERSION = "selection.json", "rgcn-selection", 2
NUM_VALIDATIONS, MIN_STEPS = 3, 20  # of a training
TIMED_STEPS, TIMED_QUERIES = 12, (1, 8, 64)
# Shares of the time limit: for timing a candidate, for validating it once, and, of the time that remains for training,
# for all short trainings together. The long training of the best candidate has the rest.
TIMING_SHARE, VALIDATION_SHARE, SHORT_SHARE = 0.02, 0.03, 0.4
PLANNED_SHARE = 0.9  # the remaining tenth is for saving and loading models
FINAL_EVALUATION_S = 30.0  # or a tenth of the time limit, if that is more
MIN_EVALUATED = 100  # triples or labels
MIN_EXTENSION = 1.5  # a second training must have at least so many times the steps


@dataclass
class Candidate:
    """A model to try, and its result.

    Attributes:
        name: Its name in tables.
        config: Its configuration.
        is_baseline: True if it uses no neighbors. Graph networks should be better.
        longer_steps: Number of steps of the second training if it is the best one; 0 if there is none.
        evaluate_at_most: Number of triples (or labels) of a split to measure at the end; None for all.
        planned_seconds: Estimated time.
        skipped: Why it was not tried; empty if it was.
        value: The metric on validation data.
        steps: Number of steps it was trained for.
        seconds: Time it was trained for.
    """

    name: str
    config: RunConfig
    is_baseline: bool = False
    longer_steps: int = 0
    evaluate_at_most: int | None = None
    planned_seconds: float = 0.0
    skipped: str = ""
    value: float | None = None
    steps: int | None = None
    seconds: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the candidate as plain values for selection.json."""
        about = {"task": self.config.task, "model": self.config.model.title}
        return {**vars(self), **about, "config": self.config.model_dump(mode="json")}

    @classmethod
    def from_dict(cls, values: dict[str, Any], source: str) -> Candidate:
        """Return the candidate that `as_dict` wrote to the file `source`."""
        config = configurations.stored_configuration(values["task"], values["config"], source)
        return cls(**{each.name: values[each.name] for each in fields(cls)} | {"config": config})

    def folder(self, selection: Path) -> Path:
        """Return the folder of its run below the folder of the selection."""
        return selection / "candidates" / self.name.replace(", ", "-").replace(" ", "-")


@dataclass
class Selection:
    """The candidates of a graph and their results.

    Attributes:
        minutes: The time limit.
        fingerprint: The fingerprint of the graph.
        candidates: The models to try.
        chosen: The name of the best candidate, once it is known.
        metrics: Its metrics, `{split: {metric: value}}`.
    """

    minutes: float
    fingerprint: str
    candidates: list[Candidate]
    chosen: str | None = None
    metrics: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def metric(self) -> Metric:
        """The metric that decides."""
        return task_of(self.candidates[0].config.task).headline

    def ranked(self) -> list[Candidate]:
        """Return the candidates that were tried, best first; of equal ones the one that was tried first."""
        tried = [candidate for candidate in self.candidates if candidate.value is not None]
        return sorted(tried, key=lambda one: (one.value or 0.0) * (-1 if self.metric.higher_is_better else 1))

    def verdict(self) -> str:
        """Describe which candidate is best, and say so if no graph network beat a baseline."""
        best = next(one for one in self.candidates if one.name == self.chosen)
        if best.is_baseline:
            return (
                f"Best on validation data: {best.name}, which uses no neighbors; no graph network did better in "
                f"{self.minutes:g} min. More time (--minutes) or more triples may change that."
            )
        baseline = next((one for one in self.ranked() if one.is_baseline), None)
        other = "" if baseline is None else f" The best without a graph, {baseline.name}, has {self.text(baseline)}."
        return f"Best on validation data: {best.name} ({self.text(best)}).{other}"

    def text(self, candidate: Candidate) -> str:
        """Return the metric of a candidate as text."""
        return "" if candidate.value is None else self.metric.format(candidate.value)

    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """Return (model, steps, time, validation, test) of each candidate, best first, skipped ones last."""
        test = self.metrics.get("test", {}).get(self.metric.name)
        tested = {self.chosen: "" if test is None else self.metric.format(test)}
        rows = []
        for one in self.ranked():
            time = format_duration(one.seconds or 0.0)
            rows.append((one.name, f"{one.steps or 0:,}", time, self.text(one), tested.get(one.name, "")))
        return [*rows, *((one.name, "", "", f"skipped: {one.skipped}", "") for one in self.candidates if one.skipped)]

    def as_rows(self) -> list[dict[str, Any]]:
        """Return name, steps, seconds, value and reason for skipping of each candidate, as plain values."""
        keys, skipped = ("name", "steps", "seconds", "value", "skipped"), [c for c in self.candidates if c.skipped]
        return [{key: getattr(one, key) for key in keys} for one in (*self.ranked(), *skipped)]

    def save(self, folder: Path) -> None:
        """Write selection.json."""
        head = {"format": FORMAT, "version": VERSION, "rgcn": __version__}
        RunFolder(folder).write(FILE, {**head, **vars(self), "candidates": [one.as_dict() for one in self.candidates]})


def read_selection(folder: Path) -> Selection | None:
    """Read selection.json; None if there is none.

    Raises:
        DataError: The file is damaged.
    """
    path = folder / FILE
    if not path.exists():
        return None
    stored = read_json(path, FORMAT, VERSION)
    try:
        candidates = [Candidate.from_dict(values, str(path)) for values in stored["candidates"]]
        return Selection(stored["minutes"], stored["fingerprint"], candidates, stored["chosen"], stored["metrics"])
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: damaged ({error}); train again") from error


class ModelCost(NamedTuple):
    """The cost of a candidate, measured by a few steps and queries.

    Attributes:
        setup_seconds: Time before the first step.
        step_seconds: Time per step.
        query_seconds: Time to measure one triple (or label).
        num_valid: Number of triples (or labels) in the validation split.
        num_held_out: Number in the larger held-out split.
        memory_bytes: Bytes of weights, optimizer state and one step.
    """

    setup_seconds: float
    step_seconds: float
    query_seconds: float
    num_valid: int
    num_held_out: int
    memory_bytes: int

    def steps(self, seconds: float, at_most: int) -> tuple[int, int]:
        """Return how many steps fit into a time, and how often `at_most` triples can be validated meanwhile."""
        for validations in (NUM_VALIDATIONS, 1):
            left = seconds - self.setup_seconds - validations * self.validation_seconds(at_most)
            if left >= MIN_STEPS * self.step_seconds:
                return int(left / self.step_seconds), validations
        return 0, 1

    def validation_seconds(self, at_most: int) -> float:
        """Return the time to measure at most `at_most` validation triples."""
        return self.query_seconds * min(at_most, self.num_valid)


def cost_of(plan: runs.assembly.RunPlan, patience: float) -> ModelCost:
    """Measure the cost of a candidate by a few steps and queries.

    Args:
        plan: The run.
        patience: Time limit in seconds for one step, and about the time limit for all of them.

    Raises:
        ConfigError: One step takes longer than that.
    """
    began, config, model = perf_counter(), plan.config, runs.assembly.make_model(plan.config, plan.mirror)
    times: list[float] = []
    with runs.training.memory_error_advice(), model.fitting(plan.training) as fitting:
        setup = perf_counter() - began
        size = 16 * model.num_parameters_ + fitting.trainer.step_bytes  # weights, gradients, two moments of Adam
        max_steps = TIMED_STEPS if config.training.length else 0
        while len(times) < min(max_steps, 3) or (len(times) < max_steps and times[-1] - times[0] < patience):
            float(fitting.trainer.step())  # waits until a GPU has finished the step
            times.append(perf_counter() - began - setup)
            if times[1:] and times[-1] - times[-2] > patience:  # the first step may include compilation
                raise ConfigError(f"a step takes {format_duration(times[-1] - times[-2])}: give it more --minutes")
        step = fitting.trainer.steps_per_unit * (times[-1] - times[0]) / (len(times) - 1) if times else 0.0
        fitting.finish()
        sizes = {split: plan.split_sizes[split] for split in model.measured_splits() if split != "train"}
        num_valid, query = sizes.get("valid", 0), 0.0
        for number, num_queries in enumerate(TIMED_QUERIES if num_valid else ()):
            if number < 2 or query * num_queries < patience:
                before = perf_counter()
                model.evaluate(split="valid", at_most=num_queries)
                query = (perf_counter() - before) / min(num_queries, num_valid)
    return ModelCost(setup, step, query, num_valid, max(sizes.values(), default=0), size)


def limit_steps_to_minutes(plan: runs.assembly.RunPlan, minutes: float) -> runs.assembly.RunPlan:
    """Return the plan with as many steps as fit into the time."""
    began, cost = perf_counter(), cost_of(plan, 60.0 * minutes)
    if not cost.step_seconds:
        return plan
    left = 60.0 * minutes - (perf_counter() - began) - cost.query_seconds * cost.num_held_out
    min_steps = max(1, getattr(plan.config.training, "warmup", 0))
    steps = max(min_steps, cost.steps(left, cost.num_valid)[0])
    return plan.with_training(**{plan.config.training.length_key: steps})


def with_steps(config: RunConfig, steps: int, validations: int) -> RunConfig:
    """Return the configuration with a number of steps, validated so often."""
    length = {config.training.length_key: steps}
    return configurations.replace_training_settings(config, **length, evaluate_every=math.ceil(steps / validations))


def plan_selection(
    configs: Mapping[str, RunConfig], graph: KnowledgeGraph, minutes: float, meter: ProgressMeter | None = None
) -> tuple[Selection, int]:
    """Time the candidates, and share the time limit among them.

    Args:
        configs: The configuration of each candidate by its name.
        graph: The data.
        minutes: The time limit.
        meter: Advances by one for each candidate.

    Returns:
        The selection, and the bytes of memory that its largest training needs.

    Raises:
        DataError: No candidate can be tried.
        NothingToHoldOutError: There are no validation data.
    """
    began, total, meter = perf_counter(), 60.0 * minutes, meter or ProgressMeter()
    candidates = [Candidate(name, configurations.with_absolute_paths(config)) for name, config in configs.items()]
    timed: list[tuple[Candidate, ModelCost]] = []
    for one in candidates:
        one.is_baseline = bool(task_of(one.config.task).candidates().get(one.name, {}).get("plain"))
        meter.set_description(f"timing {one.name}")
        try:
            plan = runs.assembly.plan_run(one.config, graph)
            one.config, cost = plan.config, cost_of(plan, TIMING_SHARE * total)
        except (ConfigError, DataError) as error:
            one.skipped = str(error)
        else:
            timed.append((one, cost))
            if not cost.num_valid:
                raise NothingToHoldOutError("no validation data can be held out, so no model can be selected")
        meter.advance()
    if not timed:
        raise DataError(f"no model can be tried: {candidates[0].skipped}")
    at_most = max(MIN_EVALUATED, int(VALIDATION_SHARE * total / max(cost.query_seconds for _, cost in timed)))
    # Timing may include compilation, which happens only once: of its time, only what was planned for it counts.
    left = PLANNED_SHARE * total - min(perf_counter() - began, 2 * TIMING_SHARE * total * len(timed))
    _share_time(timed, left, at_most)
    final_seconds = max(FINAL_EVALUATION_S, 0.1 * total)
    for one, cost in timed:
        if cost.query_seconds * cost.num_held_out > final_seconds:
            one.evaluate_at_most = max(MIN_EVALUATED, int(final_seconds / cost.query_seconds))
        if at_most < cost.num_valid:
            one.config = configurations.replace_training_settings(one.config, evaluate_at_most=at_most)
    size = max((cost.memory_bytes for one, cost in timed if not one.skipped), default=0)
    return Selection(minutes, graph.fingerprint, candidates), size


def _share_time(timed: Sequence[tuple[Candidate, ModelCost]], left: float, at_most: int) -> None:
    """Set the numbers of steps for which the candidates' shares of the seconds suffice, and for the second training."""
    trained = [(one, cost) for one, cost in timed if one.config.training.length]
    for one, cost in timed:
        one.planned_seconds = cost.setup_seconds + cost.validation_seconds(at_most)
        left -= 0.0 if one.config.training.length else one.planned_seconds
    shared = [one.name for one, cost in trained if cost.steps(SHORT_SHARE * left / len(trained), at_most)[0]]
    for one, cost in trained:
        if one.name not in shared:
            needed = (MIN_STEPS * cost.step_seconds + one.planned_seconds) * len(trained) / SHORT_SHARE / PLANNED_SHARE
            one.skipped = (
                f"a step takes {format_duration(cost.step_seconds)}: it needs --minutes {math.ceil(needed / 60 + 1)}"
            )
            continue
        steps, validations = cost.steps(SHORT_SHARE * left / len(shared), at_most)
        limit, longer = one.config.training.length, cost.steps((1 - SHORT_SHARE) * left, at_most)[0]
        steps, longer = min(limit, steps), min(limit, longer)
        one.config = with_steps(one.config, steps, validations)
        one.longer_steps = longer if longer > MIN_EXTENSION * steps else 0
        one.planned_seconds = cost.setup_seconds + steps * cost.step_seconds
        one.planned_seconds += (validations + 1) * cost.validation_seconds(at_most)


def with_validation(config: RunConfig) -> RunConfig:
    """Return the configuration measured on validation data, which are held out if the data have none."""
    return configurations.replace_settings(config, task_of(config.task).trial_settings(config))


def choose(selection: Selection, folder: Path, graph: KnowledgeGraph, meter: ProgressMeter | None = None) -> RunResult:
    """Train the candidates that are left, and make the run of the best one the run of the folder.

    The same selection gives bit for bit the same run, however often it is interrupted.

    Args:
        selection: The candidates, as planned by `plan_selection` or stored by an interrupted call.
        folder: The folder of the selection.
        graph: The data.
        meter: Advances by the planned seconds, and prints the result of each candidate.

    Returns:
        The run of the best candidate.

    Raises:
        DataError: The data have changed, or no candidate could be trained.
        StoppedError: A signal stopped the selection.
    """
    run = RunFolder(folder)
    if graph.fingerprint != selection.fingerprint:
        raise DataError(f"{folder}: the data have changed since the model selection began: train again")
    try:
        with run.writing():
            selection.save(folder)
            for candidate in selection.candidates:
                _try(candidate, selection, folder, graph, meter)
            trained = next((one for one in selection.ranked() if one.config.training.length), None)
            if trained is not None and trained.longer_steps:
                config = with_steps(trained.config, trained.longer_steps, NUM_VALIDATIONS)
                longer = replace(trained, name=f"{trained.name}, longer", config=config, longer_steps=0, value=None)
                selection.candidates.append(longer)
                trained.longer_steps = 0
                _try(longer, selection, folder, graph, meter)
            return _conclude(selection, run)
    except StoppedError as error:
        raise error.with_advice(f"`rgcn resume {folder}` continues from there") from None


def _try(
    candidate: Candidate, selection: Selection, folder: Path, graph: KnowledgeGraph, meter: ProgressMeter | None
) -> None:
    """Train a candidate, or resume its run, unless it was skipped or has a result."""
    if candidate.skipped or candidate.value is not None:
        return
    place, counter = candidate.folder(folder), meter or ProgressMeter()
    counter.set_description(candidate.name)
    end = counter.done + candidate.planned_seconds
    seconds_each = candidate.planned_seconds / max(1, candidate.config.training.length)

    def on_step(number: float) -> None:
        counter.advance(seconds_each * (number == int(number)))  # a whole epoch or step

    def measure(model: models.Estimator) -> dict[str, dict[str, Any]]:  # test data are for the selected model alone
        return {"valid": model.validate()}

    run = (
        partial(runs.training.resume, place)
        if RunFolder(place).exists()
        else partial(runs.training.train, candidate.config, folder=place)
    )
    try:
        result = run(graph=graph, on_step=on_step, measure=measure)
        candidate.value = result.metrics["valid"][selection.metric.name]
        candidate.steps, candidate.seconds = result.length, round(result.seconds, 3)
    except StoppedError:
        raise
    except RgcnError as error:
        candidate.skipped = f"failed: {error}"
    selection.save(folder)
    counter.advance(max(0.0, end - counter.done))
    if meter is not None:
        seconds = format_duration(candidate.seconds or 0)
        value = f"validation {selection.metric.title} {selection.text(candidate)}, {seconds}"
        meter.print_line(f"{candidate.name}: {candidate.skipped or value}")


def _conclude(selection: Selection, run: RunFolder) -> RunResult:
    """Measure the best candidate, and move its run to the folder of the selection."""
    ranked = selection.ranked()
    if not ranked:
        raise DataError(f"no model could be trained: {selection.candidates[0].skipped}")
    best = ranked[0]
    selection.chosen, place = best.name, best.folder(run.path)
    candidate_run = RunFolder(place)
    if not selection.metrics:
        selection.metrics = runs.assembly.load_trained(candidate_run).measure(best.evaluate_at_most)
        selection.save(run.path)
    if (place / "result.json").exists():
        candidate_run.write("result.json", {**(candidate_run.result() or {}), "metrics": selection.metrics})
        for path in sorted(place.iterdir(), key=lambda path: path.name == "result.json"):  # last: it marks the end
            if path.name != "lock":
                path.replace(run.path / path.name)
    shutil.rmtree(run.path / "candidates", ignore_errors=True)
    return runs.resume(run.path)  # it is finished, so this only loads it


def describe_estimate(selection: Selection, size: int) -> str:
    """Describe in one line the estimated time and memory of a selection, and the free memory."""
    free, tried = available_bytes(), [one for one in selection.candidates if not one.skipped]
    available = "" if free is None else f", and {format_bytes(free)} are free"
    return (
        f"{len(tried)} of {len(selection.candidates)} models are tried, in about "
        f"{format_rough_duration(60 * selection.minutes)}; memory: about {format_bytes(size)} at most{available}"
    )
