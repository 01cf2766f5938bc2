"""A training from configuration to result: load, fit, measure, keep; and to go on with one that was cut short."""

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
from rgcn.models.estimator import Estimator, OnEpoch
from rgcn.models.task import task_of
from rgcn.placement import current
from rgcn.runs.assembly import RunPlan, load_data, load_trained, make_model, plan_run, refuse_other_data
from rgcn.runs.checkpoints import Checkpoints
from rgcn.runs.configuration import PATHS, WITHOUT_EFFECT, flat_settings
from rgcn.runs.folder import RESULT_KEYS, RunFolder, decisive_differences, environment
from rgcn.runs.tracking import MetricFiles, RunTracker, check_trackers, open_tracker
from rgcn.runs.worker_pool import HEARD, Interruption
from rgcn.system.atomic_files import remedy
from rgcn.system.formatting import html_table
from rgcn.training.fitting import Fitting
from rgcn.training.history import Epoch

OnStep = Callable[[float], None]
Measure = Callable[[Estimator], dict[str, dict[str, Any]]]
# Losing less than this is no loss: a run that ends so soon after its last checkpoint, or its start, writes no other.
WORTH_SAVING_S = 60.0


@dataclass(frozen=True)
class RunResult:
    """What a run gave; `as_dict` is what `--json` prints.

    parameters         as the paper counts them: a row for every relation and node in a one-hot layer
    stored_parameters  what is really held and trained
    seconds            spent training, in all sessions together
    exchanged          of several processes: bytes that a step sent between them, and the least possible
    """

    config: RunConfig
    model: Estimator
    epochs: int
    parameters: int
    seconds: float
    metrics: dict[str, dict[str, Any]]
    exchanged: dict[str, int] | None = None

    def _repr_html_(self) -> str:
        rows = [{"split": split, **metrics} for split, metrics in self.metrics.items()]
        return html_table(rows, f"{self.config.model.title} on {self.config.data.title}, seed {self.config.seed}")

    def as_dict(self) -> dict[str, Any]:
        return {
            **self.config.about,
            "epochs": self.epochs,
            "parameters": self.parameters,
            "stored_parameters": self.model.num_parameters_,
            "seconds": round(self.seconds, 3),
            "metrics": self.metrics,
            **({} if self.exchanged is None else {"exchanged": self.exchanged}),
        }


def train(
    config: RunConfig,
    graph: KnowledgeGraph,
    folder: Path | None = None,
    on_epoch: OnEpoch | None = None,
    on_step: OnStep | None = None,
    measure: Measure = methodcaller("measure"),
    mirror: Path | None = None,
) -> RunResult:
    """Fit on what may be learned from, then measure on every split there is; keep everything in `folder`.

    on_epoch is called with every report of the training, and ends it by returning False; on_step is called with the
    number of epochs, or parts of them, after every step; measure gives the figures of its end; mirror is a folder of
    data sets, for pretraining, which reads graphs by their names.
    """
    return train_as_planned(plan_run(config, graph, mirror), folder, on_epoch, on_step, measure)


def train_as_planned(
    plan: RunPlan,
    folder: Path | None = None,
    on_epoch: OnEpoch | None = None,
    on_step: OnStep | None = None,
    measure: Measure = methodcaller("measure"),
) -> RunResult:
    """The same, of a run that was planned already."""
    _agree(plan)
    if folder is None:
        with saying_what_memory_lacks():
            return _Training(plan, on_epoch, on_step, measure).run_through()
    check_trackers(plan.config.trackers)
    run, chosen = RunFolder(folder), plan.training.chosen
    run.refuse_unless_free()
    with run.writing():
        run.create(plan.config, plan.graph)
        if chosen:
            run.log(f"chosen for this graph and machine: {', '.join(f'{key} {chosen[key]}' for key in chosen)}")
        return _Session(run, plan, on_epoch, on_step, measure).run_through()


def resume(
    folder: Path,
    mirror: Path | None = None,
    on_epoch: OnEpoch | None = None,
    on_step: OnStep | None = None,
    graph: KnowledgeGraph | None = None,
    track: bool = True,
    measure: Measure = methodcaller("measure"),
) -> RunResult:
    """Go on with a run from its newest checkpoint; the end is that of an undisturbed run, to the last bit.

    A finished run is given back as it is. graph: the data, where they are at hand already. track=False leaves out the
    trackers of its configuration, a server that is gone for instance.
    """
    run = RunFolder(folder)
    run.check()
    with run.writing() if run.result() is None else nullcontext():
        if (result := run.result()) is not None:  # before, or by another process while we waited for the lock
            return RunResult(run.config(), load_trained(run), **{key: result[key] for key in RESULT_KEYS})
        config = run.config() if track else run.config().model_copy(update={"trackers": []})
        check_trackers(config.trackers)
        graph = task_of(config.task).with_held_out(load_data(config.data, mirror) if graph is None else graph, config)
        refuse_other_data(run, graph)
        plan = plan_run(config, graph, mirror)
        _agree(plan)
        return _Session(run, plan, on_epoch, on_step, measure).run_through()


def _agree(plan: RunPlan) -> None:
    """Several processes train one model on one graph, or none; where its files lie may differ."""
    if not current().is_distributed:
        return
    config, graph = plan.config, plan.graph
    settings = {**flat_settings(config, WITHOUT_EFFECT), "training.device": plan.training.device.type}
    paths = {f"data.{path}" for path in PATHS}
    current().require_same("settings", {key: value for key, value in settings.items() if key not in paths})
    counts = {"nodes": graph.num_nodes, "relations": graph.num_relations, "triples": len(graph)}
    current().require_same("data", {"name": graph.name, **counts, "fingerprint": graph.fingerprint})


@contextmanager
def saying_what_memory_lacks() -> Iterator[None]:
    """PyTorch says that memory is out in a stack trace; which settings ask for it is what helps."""
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
    """A model on its way through its steps, with everyone who wants to hear of them; kept nowhere."""

    def __init__(self, plan: RunPlan, on_epoch: OnEpoch | None, on_step: OnStep | None, measure: Measure) -> None:
        self.plan, self.config = plan, plan.config
        self.on_epoch, self.on_step, self.measure = on_epoch, on_step, measure
        self.model = make_model(plan.config, plan.mirror)
        self.trackers: list[RunTracker] = []
        self.steps_taken, self.epochs_taken, self.seconds_before, self.start = 0, 0, 0.0, time.perf_counter()

    @property
    def seconds(self) -> float:
        return self.seconds_before + time.perf_counter() - self.start

    def run_through(self) -> RunResult:
        with self.model.fitting(self.plan.training) as fitting:
            for _ in self.steps(fitting):
                pass
            fitting.finish()
        return self.result(fitting)

    def steps(self, fitting: Fitting) -> Iterator[None]:
        """Take every step there is, and pass on what is reported of it."""
        for epoch in fitting:
            self.steps_taken, self.epochs_taken = fitting.steps_taken, fitting.epochs_taken
            if self.on_step is not None:
                several = fitting.trainer.steps_an_epoch
                self.on_step(self.steps_taken if several == 1 else self.steps_taken / several)
            if epoch is not None:
                for tracker in self.trackers:
                    tracker.report(epoch.number, epoch.as_row(self.model.columns))
                [stop] = current().any(self.on_epoch is not None and self.on_epoch(epoch) is False)
                if stop:
                    fitting.stop()
            yield

    def result(self, fitting: Fitting) -> RunResult:
        seconds, model = self.seconds, self.model
        counted = model.num_parameters_as_published_
        sent = current().describe_traffic(fitting.exchanged, fitting.steps_here)
        return RunResult(self.config, model, self.epochs_taken, counted, seconds, self.measure(model), sent)


class _Session(_Training):
    """One process's work on a run, from its newest checkpoint, if any, to its end or to the signal that stops it."""

    def __init__(self, run: RunFolder, *training: Any) -> None:
        super().__init__(*training)
        self.run = run
        self.checkpoints = Checkpoints(run.path / "checkpoints", self.config.checkpoints.keep_last)
        self.interruption = Interruption()
        self.last_saved = 0.0

    def run_through(self) -> RunResult:
        state = self.checkpoints.newest()
        self.steps_taken = 0 if state is None else state.values["steps_taken"]
        # In checkpoints of earlier versions every step was an epoch.
        self.epochs_taken = 0 if state is None else state.values.get("epochs_taken", self.steps_taken)
        self._begin()
        if state is None and self.checkpoints.steps():
            warnings.warn("no checkpoint can be used: the run begins again", stacklevel=3)
            self.run.log("no checkpoint can be used: begins again")
        outcome, words = "failed", ""
        try:
            with saying_what_memory_lacks(), self.interruption:
                self._open_trackers()
                rows = [row for row in self.run.metrics() if row["number"] <= self.epochs_taken] if state else []
                with self.model.fitting(self.plan.training) as fitting:
                    if state is not None:
                        fitting.restore(state)
                        self.seconds_before = state.values["run_seconds"]
                    self.model.history_[:0] = [Epoch.from_row(row) for row in rows]
                    self._take_steps(fitting)
                    result = self._conclude(fitting)
            outcome = "finished"
            return result
        except StoppedError as error:
            outcome = "interrupted" if error.signal_number == signal.SIGINT else "terminated"
            raise
        except KeyboardInterrupt:
            outcome, words = "interrupted", "at once, without saving"
            raise
        except BaseException as error:
            lost = current().is_lost_process(error)
            words = "another process was lost" if lost else f"{type(error).__name__}: {error}"
            raise
        finally:
            for tracker in self.trackers:
                tracker.close("interrupted" if outcome == "terminated" else outcome)
            with suppress(OSError, DataError):  # on a full disk the error that is on its way out says more
                self.run.end_session(outcome, self.steps_taken, words)

    def _begin(self) -> None:
        here, sessions = environment(), self.run.environment()
        changes = decisive_differences(sessions[-1], here) if self.steps_taken and sessions else []
        if changes:
            words = f"this is not quite the machine the run was on ({', '.join(changes)})"
            warnings.warn(f"{words}: the end may differ in its last digits", stacklevel=4)
        self.run.begin_session(self.steps_taken, here)

    def _open_trackers(self) -> None:
        if current().is_main:  # one by one, the files first: should a server refuse, those before it are closed
            path, plain = self.run.path, self.config.model_dump(mode="json")
            columns = list(Epoch(0, 0.0, 0.0).as_row(self.model.columns))
            self.trackers.append(MetricFiles(path, columns, self.epochs_taken))
            for name in self.config.trackers:
                self.trackers.append(open_tracker(name, path, path.name, plain, self.epochs_taken))

    def _take_steps(self, fitting: Fitting) -> None:
        settings = self.config.checkpoints
        self.last_saved = time.monotonic()
        for _ in self.steps(fitting):
            minutes = (time.monotonic() - self.last_saved) / 60.0
            by_clock = settings.every_minutes is not None and minutes >= settings.every_minutes
            # Signals and clocks are not the same everywhere: what one has heard or seen, all obey after the same step.
            by_clock, *heard = current().any(by_clock, *(self.interruption.received == each for each in HEARD))
            if any(heard):
                self.interruption.received = HEARD[heard.index(True)]
                self._save_and_stop(fitting)
            if by_clock or (settings.every_steps is not None and fitting.steps_taken % settings.every_steps == 0):
                self._save(fitting)
        # Measuring and saving the model come next, and may be cut short too.
        [worth_it] = current().any(time.monotonic() - self.last_saved >= WORTH_SAVING_S)
        if worth_it:
            self._save(fitting)

    def _save(self, fitting: Fitting) -> None:
        state = fitting.state()
        self.checkpoints.save(replace(state, values={**state.values, "run_seconds": self.seconds}))
        self.last_saved = time.monotonic()

    def _save_and_stop(self, fitting: Fitting) -> NoReturn:
        self._save(fitting)
        where = f" at step {fitting.steps_taken:,} of {fitting.steps:,}, and saved"
        raise self.interruption.error(where, f"`rgcn resume {self.run.path}` goes on from there")

    def _conclude(self, fitting: Fitting) -> RunResult:
        """Measure and keep. A signal is obeyed at once here: the state after the last step is still there to be saved.

        The model, then the figures: a run that has result.json has everything.
        """
        self.interruption.at_once = True
        try:
            fitting.finish()
            result = self.result(fitting)
            result.model.save(str(self.run.path / "model"))
            for tracker in self.trackers:
                tracker.finish(result.metrics)
            self.run.write("result.json", result.as_dict())
        except KeyboardInterrupt:
            self.interruption.at_once = False
            if self.interruption.received is None:
                raise
            if current().is_distributed:  # each somewhere else: there is no state that all could save
                advice = f"`rgcn resume {self.run.path}` goes on from the last checkpoint"
                raise self.interruption.error(" while it was measured", advice) from None
            self._save_and_stop(fitting)
        except OSError as error:
            raise DataError(
                f"cannot keep the model in {self.run.path}: {error.strerror or error}; {remedy(error)}, then resume"
            ) from error
        self.interruption.at_once = False
        return result
