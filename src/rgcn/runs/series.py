"""The same configuration with several seeds: a figure that says how sure it is.

    FOLDER/
      seed-0/ seed-1/ ...   a run each
      series.json           every run's result; mean, standard deviation and standard error for each split and metric

A series that was interrupted goes on where it was: finished seeds are kept, unfinished ones are continued.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from rgcn.axis_tables import TASKS
from rgcn.config import RunConfig
from rgcn.data.atomic import write_atomically
from rgcn.data.graph_store import read_json
from rgcn.errors import ConfigError, DataError, StoppedError
from rgcn.runs.configuration import WITHOUT_EFFECT, differences, kept_configuration
from rgcn.runs.folder import RunFolder, with_whole_paths
from rgcn.runs.run_record import Spread, summarize
from rgcn.runs.workers import Job, Outcome, Workers, workers
from rgcn.version import __version__

FORMAT, VERSION = "rgcn-series", 1


@dataclass(frozen=True)
class SeriesRow:
    """One seed: its result, or why there is none.

    outcome  finished (now), reused (it was there already), continued (from where it was interrupted), or failed
    """

    seed: int
    outcome: Literal["finished", "reused", "continued", "failed"]
    result: dict[str, Any] | None = None
    error: str | None = None

    def as_dict(self) -> dict[str, Any]:
        return {"seed": self.seed, "outcome": self.outcome, "result": self.result, "error": self.error}


@dataclass(frozen=True)
class SeriesResult:
    """Every run of a series, by seed, and what they say together."""

    config: RunConfig
    rows: list[SeriesRow] = field(default_factory=list)
    planned: int = 0
    jobs: int = 1

    @property
    def results(self) -> list[dict[str, Any]]:
        """Results of the runs that have one."""
        return [row.result for row in self.rows if row.result is not None]

    @property
    def failures(self) -> list[SeriesRow]:
        return [row for row in self.rows if row.outcome == "failed"]

    @property
    def seconds(self) -> float | None:
        """Of a run, the median."""
        return statistics.median(result["seconds"] for result in self.results) if self.results else None

    def summary(self) -> dict[str, dict[str, Spread]]:
        """{split: {metric: Spread}} over the runs that have a result."""
        return summarize([result["metrics"] for result in self.results])

    def as_dict(self) -> dict[str, Any]:
        return {
            "task": self.config.task,
            "dataset": self.config.data.title,
            "model": self.config.model.title,
            "planned": self.planned,
            "jobs": self.jobs,
            "runs": [row.as_dict() for row in self.rows],
            "seconds": self.seconds,
            "summary": {
                split: {metric: vars(spread) for metric, spread in metrics.items()}
                for split, metrics in self.summary().items()
            },
        }


class SeriesListener:
    """Hears how far series are; does nothing by itself."""

    def begin(self, name: str, runs: int, epochs: int) -> None:
        """`runs` trainings called `name`, of `epochs` each, follow."""

    def epoch(self, seed: int, epoch: Any) -> None:
        """The training with this seed has come to this epoch."""

    def ran(self, row: SeriesRow) -> None:
        """A training is done, or was found done."""

    def absent(self, name: str, why: str) -> None:
        """A series cannot be run."""


def run_series(
    config: RunConfig,
    runs: int,
    *,
    folder: Path | None,
    jobs: int = 1,
    mirror: Path | None = None,
    on_run: Callable[[SeriesRow], None] | None = None,
    on_epoch: Callable[[int, Any], None] | None = None,
    pool: Workers | None = None,
) -> SeriesResult:
    """Train with seeds config.seed, config.seed + 1, ... and keep each run in a folder of its own.

    folder    None keeps nothing; else finished seeds found there are not run again, and unfinished ones go on
    jobs      trainings at a time; with more than one, each in a process of its own with its share of the cores
    on_run    called with a row as soon as a seed is done (or found done)
    on_epoch  called with (seed, epoch) now and then while a seed trains
    pool      workers to use instead of starting `jobs` new ones; for several series one after another

    A seed that fails is a row with its error. Ctrl-C stops whatever runs; what is finished stays.
    """
    if runs < 1 or jobs < 1:
        raise ConfigError(f"a series has at least one run and one job; got runs = {runs}, jobs = {jobs}")
    config = with_whole_paths(config)
    jobs = jobs if pool is None else pool.jobs
    rows: dict[int, SeriesRow] = {}

    def so_far() -> SeriesResult:
        return SeriesResult(config, [rows[seed] for seed in sorted(rows)], runs, jobs)

    def add(row: SeriesRow) -> None:
        rows[row.seed] = row
        _keep(so_far(), folder)
        if on_run is not None:
            on_run(row)

    with _claimed(folder), _saying_how_to_go_on(folder):
        wanted = _jobs(config, runs, folder, mirror)
        found = {job.config.seed: _found(job) for job in wanted}  # or refused, before anything is written
        _keep(so_far(), folder)  # so that `read_series` knows what to do, however soon this ends
        for row in found.values():
            if row is not None:
                add(row)
        left = [job for job in wanted if found[job.config.seed] is None]
        if left and jobs > 1:
            _fetch(config, mirror)
        tell = None if on_epoch is None else lambda job, epoch: on_epoch(job.config.seed, epoch)
        with nullcontext(pool) if pool is not None else workers(min(jobs, max(1, len(left)))) as team:
            for outcome in team.run(left, tell):
                add(_row(outcome))
    return so_far()


@contextmanager
def _saying_how_to_go_on(folder: Path | None) -> Iterator[None]:
    """A training that is stopped names its own folder; of a series it is the whole that goes on."""
    try:
        yield
    except StoppedError as error:
        how = "" if folder is None else f"finished runs stay, and `rgcn resume {folder}` goes on with the others"
        raise error.advising(how) from None


def read_series(folder: Path) -> tuple[RunConfig, int, int]:
    """What a series' folder says it is: configuration, runs, and how many at a time; enough to go on with it."""
    kept = read_json(folder / "series.json", FORMAT, VERSION)
    if not {"task", "configuration", "planned", "jobs"} <= kept.keys() or TASKS.problem(kept["task"]) is not None:
        raise DataError(f"{folder / 'series.json'}: damaged; the command that began the series goes on with it")
    config = kept_configuration(kept["task"], kept["configuration"], str(folder / "series.json"))
    return config, kept["planned"], kept["jobs"]


def _jobs(config: RunConfig, runs: int, folder: Path | None, mirror: Path | None) -> list[Job]:
    places = {seed: folder and folder / f"seed-{seed}" for seed in range(config.seed, config.seed + runs)}
    return [
        Job(config.model_copy(update={"seed": seed}), place, mirror, _is_interrupted(place))
        for seed, place in places.items()
    ]


def _row(outcome: Outcome) -> SeriesRow:
    seed = outcome.job.config.seed
    if outcome.error is not None:
        return SeriesRow(seed, "failed", error=outcome.error)
    return SeriesRow(seed, "continued" if outcome.job.goes_on else "finished", outcome.result)


# -- the folder --------------------------------------------------------------------------------------------


@contextmanager
def _claimed(folder: Path | None) -> Iterator[None]:
    """The folder, made if need be and ours alone while it lasts; an error if something else is in it."""
    if folder is None:
        yield
        return
    from filelock import FileLock, Timeout

    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file; a series needs a folder")
    known = (folder / "series.json").is_file() or any(RunFolder(path).exists() for path in folder.glob("seed-*"))
    if folder.is_dir() and not known and any(path.name[0] != "." for path in folder.iterdir()):
        raise DataError(f"{folder} is not empty and holds no series of runs; choose another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"cannot make the folder {folder}: {error.strerror}") from error
    try:
        with FileLock(folder / ".series.lock", timeout=0):
            yield
    except Timeout:
        raise DataError(f"another process is working on the series in {folder}; wait for it to end") from None


def _is_interrupted(folder: Path | None) -> bool:
    return folder is not None and RunFolder(folder).exists() and not (folder / "result.json").is_file()


def _found(job: Job) -> SeriesRow | None:
    """The row of a seed that is finished in its folder; None where there is still something to do."""
    if job.folder is None:
        return None
    run = RunFolder(job.folder)
    if not run.exists():
        return None
    different = [
        f"{found.key} was {found.a}, now {found.b}"
        for found in differences(run.config(), job.config, ("seed", *WITHOUT_EFFECT))
    ]
    if different:
        raise DataError(
            f"{job.folder} holds a run with other settings ({'; '.join(different[:3])}"
            f"{'; ...' if len(different) > 3 else ''}): choose another folder"
        )
    result = run.result()
    return None if result is None else SeriesRow(job.config.seed, "reused", result)


def _fetch(config: RunConfig, mirror: Path | None) -> None:
    """Have the data on this machine before several processes ask for them at once."""
    if config.data.dataset is not None:
        from rgcn.data.registry import get

        get(config.data.dataset, mirror=mirror)


def _keep(result: SeriesResult, folder: Path | None) -> None:
    if folder is None:
        return

    content = {
        "format": FORMAT,
        "version": VERSION,
        "rgcn": __version__,
        "updated": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        **result.as_dict(),
        "configuration": result.config.model_dump(mode="json"),
    }
    try:
        write_atomically(folder / "series.json", json.dumps(content, indent=1) + "\n")
    except OSError as error:
        raise DataError(
            f"cannot write {folder / 'series.json'}: {error.strerror or error}; finished runs stay: make room, then "
            "resume"
        ) from error
