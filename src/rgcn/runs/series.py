"""Train the same configuration with several seeds, and report mean and standard error of its metrics.

    FOLDER/
      seed-0/ seed-1/ ...   one run folder per seed
      series.json           the result of each run; mean, standard deviation and standard error per split and metric

An interrupted series can be resumed: finished seeds are kept, and unfinished ones continue from their checkpoints.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rgcn.config import RunConfig
from rgcn.data.graph_store import read_json
from rgcn.data.registry import get
from rgcn.errors import ConfigError, DataError, RgcnError, StoppedError
from rgcn.graph import KnowledgeGraph
from rgcn.plugins import TASKS
from rgcn.runs.configuration import SETTINGS_WITHOUT_EFFECT, differences, stored_configuration, with_absolute_paths
from rgcn.runs.folder import RunFolder, exclusive_lock
from rgcn.runs.run_record import Spread, summarize
from rgcn.runs.worker_pool import InterruptHandler, TaskFunction, TaskResult, WorkerPool
from rgcn.version import __version__

FORMAT, VERSION = "rgcn-series", 1
REPORT_INTERVAL_S = 0.2  # of a worker process


@dataclass(frozen=True)
class SeriesRow:
    """The outcome of one seed: its result, or the error that prevented one."""

    seed: int
    outcome: Literal["finished", "reused", "continued", "failed"]  # "reused": found finished; "continued": resumed
    result: dict[str, Any] | None = None
    error: str | None = None


@dataclass(frozen=True)
class SeriesResult:
    """The runs of a series, ordered by seed.

    Attributes:
        config: The configuration of the first seed.
        planned: Number of runs that the series should have.
        jobs: Number of trainings at a time.
        rows: The outcome of each seed so far.
    """

    config: RunConfig
    planned: int
    jobs: int
    rows: list[SeriesRow] = field(default_factory=list)

    @property
    def results(self) -> list[dict[str, Any]]:
        """The results of the finished runs."""
        return [row.result for row in self.rows if row.result is not None]

    @property
    def failures(self) -> list[SeriesRow]:
        """The seeds that failed."""
        return [row for row in self.rows if row.outcome == "failed"]

    @property
    def seconds(self) -> float | None:
        """The median training time of a run."""
        return statistics.median(result["seconds"] for result in self.results) if self.results else None

    def summary(self) -> dict[str, dict[str, Spread]]:
        """Return mean and spread of every metric: `{split: {metric: Spread}}`."""
        return summarize([result["metrics"] for result in self.results])

    def as_dict(self) -> dict[str, Any]:
        """Return the series as plain values for JSON."""
        runs, summary = [asdict(row) for row in self.rows], self.summary()
        spreads = {split: {name: vars(spread) for name, spread in summary[split].items()} for split in summary}
        head = {**self.config.about, "planned": self.planned, "jobs": self.jobs}
        return {**head, "runs": runs, "seconds": self.seconds, "summary": spreads}


class SeriesCallback:
    """Receives the progress of series. Subclasses override what they need; this class does nothing."""

    def begin(self, name: str, runs: int, length: int) -> None:
        """A series called `name` starts, with `runs` trainings of `length` epochs or steps each."""

    def report(self, seed: int, report: Any) -> None:
        """The training with this seed has made a report."""

    def run_ended(self, row: SeriesRow) -> None:
        """A training ended, or was found finished."""

    def unavailable(self, name: str, why: str) -> None:
        """A series cannot be run, for example because its data set is missing."""


class SeedTraining(NamedTuple):
    """One training of a series, and the folder to store it in (None: it is not stored)."""

    config: RunConfig
    folder: Path | None = None
    mirror: Path | None = None

    def finished_row(self) -> SeriesRow | None:
        """Return the row of a run that is already finished, else None.

        Raises:
            DataError: The folder holds a run with other settings.
        """
        run = None if self.folder is None else RunFolder(self.folder)
        if run is None or not run.exists():
            return None
        other = differences(run.config(), self.config, ("seed", *SETTINGS_WITHOUT_EFFECT))
        if other:
            changes = "; ".join([*map(str, other[:3]), *(["..."] if len(other) > 3 else [])])
            raise DataError(f"{run.path} holds a run with other settings ({changes}): choose another folder")
        result = run.result()
        return None if result is None else SeriesRow(self.config.seed, "reused", result)

    def run(self, graph: KnowledgeGraph, on_report: Callable[[Any], None]) -> SeriesRow:
        """Train, or resume the unfinished run in the folder. Errors become rows, so that other seeds still run."""
        from rgcn.runs.training import resume, train

        seed = self.config.seed
        try:
            if self.folder is not None and RunFolder(self.folder).exists():
                result = resume(self.folder, self.mirror, on_report=on_report, graph=graph)
                return SeriesRow(seed, "continued", result.as_dict())
            result = train(self.config, graph, self.folder, on_report, mirror=self.mirror)
            return SeriesRow(seed, "finished", result.as_dict())
        except StoppedError:
            raise
        except Exception as error:
            reason = str(error) if isinstance(error, RgcnError) else f"{type(error).__name__}: {error}"
            return SeriesRow(seed, "failed", error=reason)


def run_series(
    config: RunConfig,
    runs: int,
    *,
    folder: Path | None,
    jobs: int = 1,
    mirror: Path | None = None,
    callback: SeriesCallback | None = None,
) -> SeriesResult:
    """Train with seeds config.seed, config.seed + 1, ... and store each run in a folder of its own.

    A seed that fails becomes a row with its error. Ctrl-C stops the trainings that run; finished runs stay.

    Args:
        config: The configuration of the first seed.
        runs: Number of runs.
        folder: Where to store the runs, or None. Finished seeds found there are reused, unfinished ones are resumed.
        jobs: Number of trainings at a time. Each of several runs in its own process with its share of the cores.
        mirror: Folder with copies of the data sets.
        callback: Receives the progress.

    Returns:
        The outcome of every seed.

    Raises:
        StoppedError: Ctrl-C or SIGTERM stopped the series.
    """
    if runs < 1 or jobs < 1:
        raise ConfigError(f"a series needs at least one run and one job; got runs = {runs}, jobs = {jobs}")
    callback, result = callback or SeriesCallback(), SeriesResult(with_absolute_paths(config), runs, jobs)
    trainings = [
        SeedTraining(result.config.model_copy(update={"seed": seed}), folder and folder / f"seed-{seed}", mirror)
        for seed in range(config.seed, config.seed + runs)
    ]

    def add(row: SeriesRow) -> None:
        result.rows.append(row)
        result.rows.sort(key=lambda row: row.seed)
        _save(result, folder)
        callback.run_ended(row)

    interrupt = InterruptHandler(at_once=True)
    advice = "" if folder is None else f"finished runs are kept; `rgcn resume {folder}` continues with the others"
    try:
        with nullcontext() if folder is None else _locked(folder):
            rows = [training.finished_row() for training in trainings]  # may refuse, before anything is written
            _save(result, folder)  # so that `read_series` can resume a series that is interrupted early
            for row in filter(None, rows):
                add(row)
            left = [training for training, row in zip(trainings, rows, strict=True) if row is None]
            if left and jobs > 1 and config.data.dataset is not None:
                get(config.data.dataset, mirror=mirror)  # download once, before several processes need it
            start = partial(_start_training, result.config, mirror, REPORT_INTERVAL_S if jobs > 1 else 0.0)
            pool = WorkerPool[SeedTraining](min(jobs, max(1, len(left))), start)
            # A training in this process handles signals itself. Worker processes are stopped by this process.
            with pool, interrupt if pool.jobs > 1 else nullcontext():
                for training, end in pool.run(iter(left), lambda one, report: callback.report(one.config.seed, report)):
                    if isinstance(end, TaskResult):
                        add(end.value)
                    else:
                        add(SeriesRow(training.config.seed, "failed", error=end.reason))
    except StoppedError as error:  # its advice names the folder of one run, but the whole series can be resumed
        raise error.with_advice(advice) from None
    except KeyboardInterrupt:
        raise interrupt.error(advice=advice) from None
    return result


def read_series(folder: Path) -> tuple[RunConfig, int, int]:
    """Read what is needed to resume a series: configuration, number of runs, and number of jobs.

    Raises:
        DataError: series.json is damaged.
    """
    stored = read_json(folder / "series.json", FORMAT, VERSION)
    if not {"task", "configuration", "planned", "jobs"} <= stored.keys() or TASKS.problem(stored["task"]) is not None:
        raise DataError(f"{folder / 'series.json'}: damaged; repeat the command that started the series to resume it")
    config = stored_configuration(stored["task"], stored["configuration"], str(folder / "series.json"))
    return config, stored["planned"], stored["jobs"]


def _start_training(config: RunConfig, mirror: Path | None, interval: float) -> TaskFunction[SeedTraining]:
    """Load the data once, and return the function that trains on it and sends reports every `interval` seconds."""
    from rgcn.runs.assembly import load_data

    graph, last = load_data(config.data, mirror), -interval

    def run(training: SeedTraining, send: Callable[[Any], None]) -> SeriesRow:
        def on_report(report: Any) -> None:
            nonlocal last
            if time.monotonic() - last >= interval:
                last = time.monotonic()
                with suppress(OSError, EOFError):  # the parent has ended, and a signal is about to stop this process
                    send(report)

        return training.run(graph, on_report)

    return run


def _locked(folder: Path) -> AbstractContextManager[None]:
    has_series = (folder / "series.json").is_file() or any(RunFolder(path).exists() for path in folder.glob("seed-*"))
    return exclusive_lock(folder, "series", "process", ".series.lock", has_series)


def _save(result: SeriesResult, folder: Path | None) -> None:
    if folder is not None:
        head = {"format": FORMAT, "version": VERSION, "rgcn": __version__}
        head["updated"] = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        configuration = result.config.model_dump(mode="json")
        RunFolder(folder).write("series.json", {**head, **result.as_dict(), "configuration": configuration})
