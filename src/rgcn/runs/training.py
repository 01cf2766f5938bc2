"""A training from configuration to result: load, fit, measure, keep; and to go on with one that was cut short."""

from __future__ import annotations

import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import torch

from rgcn.config import RunConfig
from rgcn.errors import DataError, StoppedError
from rgcn.graph import KnowledgeGraph
from rgcn.runs.assembly import load_data, make_model, refuse_other_data
from rgcn.runs.checkpoints import Checkpoints
from rgcn.runs.environment import decisive_differences, environment
from rgcn.runs.folder import RunFolder
from rgcn.runs.interruption import Interruption
from rgcn.runs.result import RunResult
from rgcn.runs.tracking import MetricFiles, RunTracker, check_trackers, open_trackers
from rgcn.runs.trained import finished_result
from rgcn.tasks.estimator import OnEpoch
from rgcn.tasks.fitting import Fitting, TrainingState
from rgcn.tasks.task import Epoch

OnStep = Callable[[int], None]
# Losing less than this is no loss: a run that ends so soon after its last checkpoint, or its start, writes no other.
WORTH_SAVING_S = 60.0


def train(
    config: RunConfig,
    graph: KnowledgeGraph,
    folder: Path | None = None,
    on_epoch: OnEpoch | None = None,
    on_step: OnStep | None = None,
) -> RunResult:
    """Fit on what may be learned from, then measure on every split there is; keep everything in `folder`.

    on_epoch is called with every report of the training, and ends it by returning False; on_step is called with the
    number of steps after every step.
    """
    if folder is None:
        with _saying_what_memory_lacks():
            return _fit(_Training(config, graph, on_epoch, on_step))
    check_trackers(config.trackers)
    run = RunFolder(folder)
    run.refuse_unless_free()
    with run.writing():
        run.create(config, graph)
        return _session(run, _Training(config, graph, on_epoch, on_step))


def resume(
    folder: Path,
    mirror: Path | None = None,
    on_epoch: OnEpoch | None = None,
    on_step: OnStep | None = None,
    graph: KnowledgeGraph | None = None,
    track: bool = True,
) -> RunResult:
    """Go on with a run from its newest checkpoint; the end is that of an undisturbed run, to the last bit.

    A finished run is given back as it is. graph: the data, where they are at hand already. track=False leaves out the
    trackers of its configuration, a server that is gone for instance.
    """
    run = RunFolder(folder)
    run.check()
    if run.result() is not None:
        return finished_result(run)
    with run.writing():
        if run.result() is not None:  # another process finished it while we waited for the lock
            return finished_result(run)
        config = run.config() if track else run.config().model_copy(update={"trackers": []})
        check_trackers(config.trackers)
        graph = load_data(config.data, mirror) if graph is None else graph
        refuse_other_data(run, graph)
        return _session(run, _Training(config, graph, on_epoch, on_step))


# -- how it goes ------------------------------------------------------------------------------------------------


class _Training:
    """A model on its way through its steps, with everyone who wants to hear of them."""

    def __init__(
        self, config: RunConfig, graph: KnowledgeGraph, on_epoch: OnEpoch | None, on_step: OnStep | None
    ) -> None:
        self.config, self.graph = config, graph
        self.on_epoch, self.on_step = on_epoch, on_step
        self.model = make_model(config)
        self.trackers: list[RunTracker] = []
        self.steps_taken, self.seconds_before = 0, 0.0
        self.start = time.perf_counter()

    @property
    def seconds(self) -> float:
        return self.seconds_before + time.perf_counter() - self.start

    @property
    def columns(self) -> list[str]:
        """What a report of this training tells."""
        return list(Epoch(0, 0.0, 0.0).as_row(self.model.columns))

    @contextmanager
    def fitting(self, state: TrainingState | None, rows: list[dict[str, Any]]) -> Iterator[Fitting]:
        """The fitting, from the beginning or from a state; `rows` are the reports made before it."""
        with self.model.fitting(self.graph) as fitting:
            if state is not None:
                fitting.restore(state)
                self.seconds_before = state.values["run_seconds"]
            self.model.history_[:0] = [Epoch.from_row(row) for row in rows]
            yield fitting

    def steps(self, fitting: Fitting) -> Iterator[None]:
        """Take every step there is, and pass on what is reported of it."""
        for epoch in fitting:
            self.steps_taken = fitting.steps_taken
            if self.on_step is not None:
                self.on_step(self.steps_taken)
            if epoch is not None:
                for tracker in self.trackers:
                    tracker.report(epoch.number, epoch.as_row(self.model.columns))
                if self.on_epoch is not None and self.on_epoch(epoch) is False:
                    fitting.stop()
            yield

    def state(self, fitting: Fitting) -> TrainingState:
        state = fitting.state()
        return TrainingState(state.tensors, {**state.values, "run_seconds": self.seconds})

    def result(self) -> RunResult:
        seconds, model = self.seconds, self.model
        counted = model.num_parameters_as_published_
        return RunResult(self.config, model, self.steps_taken, counted, seconds, model.measure())


def _fit(training: _Training) -> RunResult:
    """A training that is kept nowhere."""
    with training.fitting(None, []) as fitting:
        for _ in training.steps(fitting):
            pass
        fitting.finish()
    return training.result()


def _session(run: RunFolder, training: _Training) -> RunResult:
    """One process's work on a run, from its newest checkpoint, if any, to its end or to the signal that stops it."""
    checkpoints = Checkpoints(run.path / "checkpoints", training.config.checkpoints.keep_last)
    state = checkpoints.newest()
    from_step = 0 if state is None else state.values["steps_taken"]
    training.steps_taken = from_step
    _begin(run, from_step)
    if state is None and checkpoints.steps():
        warnings.warn("no checkpoint can be used: the run begins again", stacklevel=2)
        run.log("no checkpoint can be used: begins again")
    outcome, words = "failed", ""
    try:
        with ExitStack() as open_until_done:
            open_until_done.enter_context(_saying_what_memory_lacks())
            interruption = open_until_done.enter_context(Interruption())
            _open_trackers(run, training, from_step)
            rows = [row for row in run.metrics() if row["number"] <= from_step] if from_step else []
            fitting = open_until_done.enter_context(training.fitting(state, rows))
            _take_steps(run, training, fitting, checkpoints, interruption)
            result = _conclude(run, training, fitting, checkpoints, interruption)
        outcome = "finished"
        return result
    except StoppedError as error:
        outcome = "interrupted" if error.signal_number == signal.SIGINT else "terminated"
        raise
    except KeyboardInterrupt:
        outcome, words = "interrupted", "at once, without saving"
        raise
    except BaseException as error:
        words = f"{type(error).__name__}: {error}"
        raise
    finally:
        for tracker in training.trackers:
            tracker.close("interrupted" if outcome == "terminated" else outcome)
        with suppress(OSError, DataError):  # on a full disk the error that is on its way out says more
            run.end_session(outcome, training.steps_taken, words)


@contextmanager
def _saying_what_memory_lacks() -> Iterator[None]:
    """PyTorch says that memory is out in a stack trace; which settings ask for it is what helps."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        out_of_memory = isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError)) or "allocate memory" in str(error)
        if not out_of_memory:
            raise
        raise DataError(
            f"there is not enough memory ({str(error).splitlines()[0][:200]}): lower model.hidden, embedding or bases, "
            "training.batch_edges or negatives, or prune the graph"
        ) from error


def _begin(run: RunFolder, from_step: int) -> None:
    here = environment()
    sessions = run.environment()
    if from_step and sessions:
        changes = decisive_differences(sessions[-1], here)
        if changes:
            warnings.warn(
                f"this is not quite the machine the run was on ({', '.join(changes)}): the end may differ in its last "
                "digits",
                stacklevel=2,
            )
    run.begin_session(from_step, here)


def _open_trackers(run: RunFolder, training: _Training, from_step: int) -> None:
    config = training.config
    # First the files: should a server refuse, they are closed with the rest.
    training.trackers.append(MetricFiles(run.path, training.columns, from_step))
    plain = config.model_dump(mode="json")
    training.trackers += open_trackers(config.trackers, run.path, run.path.name, plain, from_step)


def _take_steps(
    run: RunFolder,
    training: _Training,
    fitting: Fitting,
    checkpoints: Checkpoints,
    interruption: Interruption,
) -> None:
    settings = training.config.checkpoints
    last_saved = time.monotonic()

    def save() -> None:
        nonlocal last_saved
        checkpoints.save(training.state(fitting))
        last_saved = time.monotonic()

    for _ in training.steps(fitting):
        if interruption.received is not None:
            save()
            _stop(run, fitting, interruption.received)
        minutes = (time.monotonic() - last_saved) / 60.0
        by_clock = settings.every_minutes is not None and minutes >= settings.every_minutes
        if by_clock or (settings.every_steps is not None and fitting.steps_taken % settings.every_steps == 0):
            save()
    # Measuring and saving the model come next, and may be cut short too.
    if time.monotonic() - last_saved >= WORTH_SAVING_S:
        save()


def _conclude(
    run: RunFolder,
    training: _Training,
    fitting: Fitting,
    checkpoints: Checkpoints,
    interruption: Interruption,
) -> RunResult:
    """Measure and keep. A signal is obeyed at once here: the state after the last step is still there to be saved."""
    interruption.at_once = True
    try:
        fitting.finish()
        result = training.result()
        _keep(run, training, result)
    except KeyboardInterrupt:
        interruption.at_once = False
        if interruption.received is None:
            raise
        checkpoints.save(training.state(fitting))
        _stop(run, fitting, interruption.received)
    interruption.at_once = False
    return result


def _stop(run: RunFolder, fitting: Fitting, received: signal.Signals) -> NoReturn:
    what = "Ctrl-C" if received == signal.SIGINT else received.name
    raise StoppedError(
        f"stopped by {what} at step {fitting.steps_taken:,} of {fitting.steps:,}, and saved",
        f"`rgcn resume {run.path}` goes on from there",
        received,
    )


def _keep(run: RunFolder, training: _Training, result: RunResult) -> None:
    """The model, then the figures: a run that has result.json has everything."""
    try:
        result.model.save(str(run.path / "model"))
        for tracker in training.trackers:
            tracker.finish(result.metrics)
        run.write_result(result.as_dict())
    except OSError as error:
        raise DataError(
            f"cannot keep the model in {run.path}: {error.strerror or error}; make room, then resume"
        ) from error
