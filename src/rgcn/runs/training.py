"""Train a model from a configuration, store the run, and resume a run that was interrupted."""

import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from operator import methodcaller
from pathlib import Path
from typing import Any, NoReturn

import torch

from rgcn.config import RunConfig
from rgcn.errors import DataError, StoppedError
from rgcn.graph import KnowledgeGraph
from rgcn.models.estimator import Estimator, OnReport
from rgcn.models.task import task_of
from rgcn.placement import current
from rgcn.runs.assembly import RunPlan, check_same_data, load_data, load_trained, make_model, plan_run
from rgcn.runs.checkpoints import Checkpoints
from rgcn.runs.configuration import PATHS, SETTINGS_WITHOUT_EFFECT, flat_settings
from rgcn.runs.folder import RESULT_KEYS, RunFolder, environment, environment_changes, length_in
from rgcn.runs.tracking import MetricFiles, RunTracker, check_trackers, open_tracker
from rgcn.runs.worker_pool import STOP_SIGNALS, InterruptHandler
from rgcn.system.atomic_files import disk_error_remedy
from rgcn.system.formatting import html_table
from rgcn.training.fitting import Fitting
from rgcn.training.history import TrainingReport

OnStep = Callable[[float], None]
Measure = Callable[[Estimator], dict[str, dict[str, Any]]]
MIN_SECONDS_TO_SAVE = 60.0  # a training that ends this soon after its last checkpoint, or its start, writes no other


@dataclass(frozen=True)
class RunResult:
    """The result of a run.

    Attributes:
        config: The configuration.
        model: The trained model.
        length: Number of epochs (node classification) or steps (link prediction) that were taken.
        parameters: Number of parameters as the paper counts them: with a row for every relation and node in a one-hot
            layer. `model.num_parameters_` is the number that is stored and trained.
        seconds: Time spent training, in all sessions.
        metrics: `{split: {metric: value}}`.
        exchanged: In a distributed training, the bytes sent per step, and the least possible.
    """

    config: RunConfig
    model: Estimator
    length: int
    parameters: int
    seconds: float
    metrics: dict[str, dict[str, Any]]
    exchanged: dict[str, int] | None = None

    def _repr_html_(self) -> str:
        rows = [{"split": split, **metrics} for split, metrics in self.metrics.items()]
        return html_table(rows, f"{self.config.model.title} on {self.config.data.title}, seed {self.config.seed}")

    def as_dict(self) -> dict[str, Any]:
        """Return the result as plain values: the content of result.json, and of `rgcn train --json`."""
        values = {**self.config.about, self.config.training.length_key: self.length, "parameters": self.parameters}
        values |= {"stored_parameters": self.model.num_parameters_, "seconds": round(self.seconds, 3)}
        return {**values, "metrics": self.metrics, **({} if self.exchanged is None else {"exchanged": self.exchanged})}


def train(
    config: RunConfig,
    graph: KnowledgeGraph,
    folder: Path | None = None,
    on_report: OnReport | None = None,
    on_step: OnStep | None = None,
    measure: Measure = methodcaller("measure"),
    mirror: Path | None = None,
) -> RunResult:
    """Train a model, measure it on every split, and store the run in a folder.

    Args:
        config: The configuration.
        graph: The data.
        folder: Where to store the run; None stores nothing.
        on_report: Called with every report of the training; if it returns False, the training ends.
        on_step: Called after every step with the number of epochs or steps so far, including fractions.
        measure: Returns the metrics of the trained model.
        mirror: Folder with copies of the data sets, for pretraining, which reads graphs by name.

    Returns:
        The result of the run.

    Raises:
        DataError: The folder is in use, or memory or disk ran out.
        StoppedError: A signal stopped the training, and a checkpoint was saved.
    """
    return train_plan(plan_run(config, graph, mirror), folder, on_report, on_step, measure)


def train_plan(
    plan: RunPlan,
    folder: Path | None = None,
    on_report: OnReport | None = None,
    on_step: OnStep | None = None,
    measure: Measure = methodcaller("measure"),
) -> RunResult:
    """Train as `train` does, from a plan."""
    _require_same_on_all_ranks(plan)
    if folder is None:
        training = _Training(plan, on_report, on_step, measure)
        with memory_error_advice(), training.model.fitting(plan.training) as fitting:
            for _ in training.steps(fitting):
                pass
            fitting.finish()
            return training.result(fitting)
    check_trackers(plan.config.trackers)
    run, chosen = RunFolder(folder), ", ".join(f"{key} {value}" for key, value in plan.training.chosen.items())
    run.refuse_unless_free()
    with run.writing():
        run.create(plan.config, plan.graph)
        if chosen:
            run.log(f"chosen for this graph and machine: {chosen}")
        return _Session(run, plan, on_report, on_step, measure).run()


def resume(
    folder: Path,
    mirror: Path | None = None,
    on_report: OnReport | None = None,
    on_step: OnStep | None = None,
    graph: KnowledgeGraph | None = None,
    track: bool = True,
    measure: Measure = methodcaller("measure"),
) -> RunResult:
    """Continue a run from its newest checkpoint. The result is bit for bit that of an uninterrupted run.

    The result of a finished run is loaded.

    Args:
        folder: The folder of the run.
        mirror: Folder with copies of the data sets.
        on_report: See `train`.
        on_step: See `train`.
        graph: The data, if they are loaded already.
        track: False leaves out the trackers of the configuration, for example if a server no longer exists.
        measure: See `train`.

    Raises:
        DataError: The folder is not a run, its data have changed, or another process writes it.
    """
    run = RunFolder(folder)
    run.check()
    with run.writing() if run.result() is None else nullcontext():
        # Another process may have finished the run while this one waited for the lock.
        if (result := run.result()) is not None:
            known = {"length": length_in(result), **{key: result[key] for key in RESULT_KEYS}}
            return RunResult(run.config(), load_trained(run), **known)
        config = run.config() if track else run.config().model_copy(update={"trackers": []})
        check_trackers(config.trackers)
        graph = task_of(config.task).with_splits(load_data(config.data, mirror) if graph is None else graph, config)
        check_same_data(run, graph)
        plan = plan_run(config, graph, mirror)
        _require_same_on_all_ranks(plan)
        return _Session(run, plan, on_report, on_step, measure).run()


def _require_same_on_all_ranks(plan: RunPlan) -> None:
    """Check that all ranks train the same model on the same graph; paths of files may differ."""
    if not current().is_distributed:
        return
    config, graph = plan.config, plan.graph
    settings = flat_settings(config, (*SETTINGS_WITHOUT_EFFECT, *(f"data.{path}" for path in PATHS)))
    current().require_same("settings", {**settings, "training.device": plan.training.device.type})
    counts = {"nodes": graph.num_nodes, "relations": graph.num_relations, "triples": len(graph)}
    current().require_same("data", {"name": graph.name, **counts, "fingerprint": graph.fingerprint})


@contextmanager
def memory_error_advice() -> Iterator[None]:
    """Turn PyTorch's out-of-memory errors into a DataError that names the settings that need less memory."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not (isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError)) or "allocate memory" in str(error)):
            raise
        raise DataError(
            f"there is not enough memory ({str(error).splitlines()[0][:200]}): lower model.hidden, embedding or bases, "
            "training.batch_edges, batch_labels or negatives, or prune the graph"
        ) from error


class _Training:
    """A model during its training, and the callbacks and trackers that receive reports. Nothing is stored."""

    def __init__(self, plan: RunPlan, on_report: OnReport | None, on_step: OnStep | None, measure: Measure) -> None:
        self.plan, self.config = plan, plan.config
        self.on_report, self.on_step, self.measure = on_report, on_step, measure
        self.model = make_model(plan.config, plan.mirror)
        self.trackers: list[RunTracker] = []
        self.steps_taken, self.units_taken, self.seconds_before, self.start = 0, 0, 0.0, time.perf_counter()

    @property
    def seconds(self) -> float:
        return self.seconds_before + time.perf_counter() - self.start

    def steps(self, fitting: Fitting) -> Iterator[None]:
        """Take every step, and pass the reports on."""
        for report in fitting:
            self.steps_taken, self.units_taken = fitting.steps_taken, fitting.units_taken
            if self.on_step is not None:
                self.on_step(self.steps_taken / fitting.trainer.steps_per_unit)
            if report is not None:
                for tracker in self.trackers:
                    tracker.report(report.number, report.as_row(self.model.metric_columns))
                [stop] = current().any(self.on_report is not None and self.on_report(report) is False)
                if stop:
                    fitting.stop()
            yield

    def result(self, fitting: Fitting) -> RunResult:
        seconds, model = self.seconds, self.model
        traffic = current().describe_traffic(fitting.session_traffic, fitting.session_steps)
        counts = self.units_taken, model.num_parameters_as_published_, seconds
        return RunResult(self.config, model, *counts, self.measure(model), traffic)


class _Session(_Training):
    """The work of one process on a stored run: from its newest checkpoint to its end, or to a signal that stops it."""

    def __init__(self, run: RunFolder, *training: Any) -> None:
        super().__init__(*training)
        self.folder = run
        self.checkpoints = Checkpoints(run.path / "checkpoints", self.config.checkpoints.keep_last)
        self.interrupt = InterruptHandler()
        self.last_saved = 0.0

    def run(self) -> RunResult:
        state = self.checkpoints.newest()
        if state is not None:
            self.steps_taken = state.values["steps_taken"]
            # In checkpoints of earlier versions every step was an epoch.
            self.units_taken = state.values.get("epochs_taken", self.steps_taken)
        self._begin()
        if state is None and self.checkpoints.steps():
            warnings.warn("no checkpoint can be used: the run starts again", stacklevel=3)
            self.folder.log("no checkpoint can be used: starts again")
        outcome, reason = "failed", ""
        try:
            with memory_error_advice(), self.interrupt:
                self._open_trackers()
                rows = [row for row in self.folder.metrics() if row["number"] <= self.units_taken] if state else []
                with self.model.fitting(self.plan.training) as fitting:
                    if state is not None:
                        fitting.restore(state)
                        self.seconds_before = state.values["run_seconds"]
                    self.model.history_[:0] = [TrainingReport.from_row(row) for row in rows]
                    self._take_steps(fitting)
                    result = self._finish(fitting)
            outcome = "finished"
            return result
        except StoppedError as error:
            outcome = "interrupted" if error.signal_number == signal.SIGINT else "terminated"
            raise
        except KeyboardInterrupt:
            outcome, reason = "interrupted", "at once, without saving"
            raise
        except BaseException as error:
            is_lost = current().is_lost_process(error)
            reason = "another process was lost" if is_lost else f"{type(error).__name__}: {error}"
            raise
        finally:
            for tracker in self.trackers:
                tracker.close("interrupted" if outcome == "terminated" else outcome)
            with suppress(OSError, DataError):  # on a full disk, the first error says more
                self.folder.end_session(outcome, self.steps_taken, reason)

    def _begin(self) -> None:
        now, sessions = environment(), self.folder.environment()
        changes = environment_changes(sessions[-1], now) if self.steps_taken and sessions else []
        if changes:
            effect = "its result may differ from that of an uninterrupted run in the last digits"
            warnings.warn(f"the environment of this run has changed ({', '.join(changes)}): {effect}", stacklevel=4)
        self.folder.begin_session(self.steps_taken, now)

    def _open_trackers(self) -> None:
        if current().is_main:  # one by one, the files first: if a server refuses, the ones before it are closed
            path, values = self.folder.path, self.config.model_dump(mode="json")
            columns = list(TrainingReport(0, 0.0, 0.0).as_row(self.model.metric_columns))
            self.trackers.append(MetricFiles(path, columns, self.units_taken))
            for name in self.config.trackers:
                self.trackers.append(open_tracker(name, path, path.name, values, self.units_taken))

    def _take_steps(self, fitting: Fitting) -> None:
        settings = self.config.checkpoints
        self.last_saved = time.monotonic()
        for _ in self.steps(fitting):
            minutes = (time.monotonic() - self.last_saved) / 60.0
            is_due = settings.every_minutes is not None and minutes >= settings.every_minutes
            # Signals and clocks differ between ranks: if one rank must save or stop, all do so after the same step.
            is_due, *signals = current().any(is_due, *(self.interrupt.received == each for each in STOP_SIGNALS))
            if any(signals):
                self.interrupt.received = STOP_SIGNALS[signals.index(True)]
                self._save_and_stop(fitting)
            if is_due or (settings.every_steps is not None and fitting.steps_taken % settings.every_steps == 0):
                self._save(fitting)
        # Measuring and storing the model follow, and may be interrupted too.
        [is_worth_saving] = current().any(time.monotonic() - self.last_saved >= MIN_SECONDS_TO_SAVE)
        if is_worth_saving:
            self._save(fitting)

    def _save(self, fitting: Fitting) -> None:
        state = fitting.state()
        self.checkpoints.save(replace(state, values={**state.values, "run_seconds": self.seconds}))
        self.last_saved = time.monotonic()

    def _save_and_stop(self, fitting: Fitting) -> NoReturn:
        self._save(fitting)
        place = f" at step {fitting.steps_taken:,} of {fitting.steps:,}, and saved"
        raise self.interrupt.error(place, f"`rgcn resume {self.folder.path}` continues from there")

    def _finish(self, fitting: Fitting) -> RunResult:
        """Measure the model, and store it and its metrics. result.json is last: a run that has it is complete.

        A signal interrupts this at once. The state after the last step is still in memory, and can be saved.
        """
        self.interrupt.at_once = True
        try:
            fitting.finish()
            result = self.result(fitting)
            result.model.save(str(self.folder.path / "model"))
            for tracker in self.trackers:
                tracker.finish(result.metrics)
            self.folder.write("result.json", result.as_dict())
        except KeyboardInterrupt:
            self.interrupt.at_once = False
            if self.interrupt.received is None:
                raise
            if current().is_distributed:  # the ranks are in different steps, so there is no common state to save
                advice = f"`rgcn resume {self.folder.path}` continues from the last checkpoint"
                raise self.interrupt.error(" while it was measured", advice) from None
            self._save_and_stop(fitting)
        except OSError as error:
            place, advice = self.folder.path, f"{disk_error_remedy(error)}, then resume"
            raise DataError(f"cannot store the model in {place}: {error.strerror or error}; {advice}") from error
        self.interrupt.at_once = False
        return result
