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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from rgcn.config import RUNS, RunConfig, validated
from rgcn.data.atomic import write_atomically
from rgcn.data.graph_store import read_json
from rgcn.errors import ConfigError, DataError, StoppedError
from rgcn.runs.configuration import load_configuration
from rgcn.runs.workers import Outcome, Task, Workers, workers

FORMAT, VERSION = "rgcn-series", 1
# What a run's figures do not depend on.
BESIDES = {"seed", "checkpoints", "trackers"}


@dataclass(frozen=True)
class Spread:
    """A figure over several runs; with one run there is nothing to tell deviation or error from."""

    mean: float
    standard_deviation: float | None
    standard_error: float | None
    runs: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Mean, deviation (n - 1) and error of some values.

        >>> Spread.of([1.0, 2.0, 3.0])
        Spread(mean=2.0, standard_deviation=1.0, standard_error=0.577..., runs=3)
        >>> Spread.of([1.0]).standard_error is None
        True
        """
        mean = statistics.fmean(values)
        if len(values) < 2:
            return cls(mean, None, None, len(values))
        deviation = statistics.stdev(values)
        return cls(mean, deviation, deviation / len(values) ** 0.5, len(values))


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
            "model": self.config.model.name,
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


def summarize(metrics: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Spread]]:
    """{split: {metric: Spread}} over the metrics of several runs; what merely counts queries is left out.

    >>> summarize([{"test": {"mrr": 0.5, "count": 10}}, {"test": {"mrr": 0.7, "count": 10}}])["test"]["mrr"].mean
    0.6
    """
    splits = metrics[0] if metrics else {}
    return {
        split: {name: Spread.of([run[split][name] for run in metrics]) for name in figures if name != "count"}
        for split, figures in splits.items()
    }


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
    seeds = range(config.seed, config.seed + runs)
    with _claimed(folder):
        tasks, rows = {}, {}
        for seed in seeds:
            place = None if folder is None else folder / f"seed-{seed}"
            task = Task(config.model_copy(update={"seed": seed}), place, mirror, _is_interrupted(place))
            found = _found(task)
            if found is None:
                tasks[seed] = task
            else:
                rows[seed] = found
                _tell(on_run, found)

        def keep() -> None:
            done = [rows[seed] for seed in seeds if seed in rows]
            _keep(SeriesResult(config, done, runs, jobs), folder)

        keep()  # so that `read_series` knows what to do, however soon this ends
        if tasks and (pool.jobs if pool is not None else jobs) > 1:
            _fetch(config, mirror)
        if pool is None:
            with _saying_how_to_go_on(folder), workers(min(jobs, max(1, len(tasks)))) as pool:
                _run(pool, tasks, rows, keep, on_run, on_epoch)
        else:
            _run(pool, tasks, rows, keep, on_run, on_epoch)
    return SeriesResult(config, [rows[seed] for seed in seeds], runs, pool.jobs)


@contextmanager
def _saying_how_to_go_on(folder: Path | None) -> Iterator[None]:
    """A training that is stopped names its own folder; of a series it is the whole that goes on."""
    try:
        yield
    except StoppedError as error:
        how = "" if folder is None else f"; finished runs stay, and `rgcn resume {folder}` goes on with the others"
        raise StoppedError(str(error).split(";")[0] + how, error.exit_code - 128) from None


def read_series(folder: Path) -> tuple[RunConfig, int, int]:
    """What a series' folder says it is: configuration, runs, and how many at a time; enough to go on with it."""
    kept = read_json(folder / "series.json", FORMAT, VERSION)
    config: RunConfig = validated(RUNS[kept["task"]], kept["configuration"], str(folder / "series.json"))
    return config, kept["planned"], kept["jobs"]


def _run(
    pool: Workers,
    tasks: Mapping[int, Task],
    rows: dict[int, SeriesRow],
    keep: Callable[[], None],
    on_run: Callable[[SeriesRow], None] | None,
    on_epoch: Callable[[int, Any], None] | None,
) -> None:
    """Do the tasks, add a row for each, and write all rows down after each."""
    tell = None if on_epoch is None else lambda task, epoch: on_epoch(task.config.seed, epoch)
    for outcome in pool.run(list(tasks.values()), tell):
        row = _row(outcome)
        rows[row.seed] = row
        keep()
        _tell(on_run, row)


def _row(outcome: Outcome) -> SeriesRow:
    seed = outcome.task.config.seed
    if outcome.error is not None:
        return SeriesRow(seed, "failed", error=outcome.error)
    return SeriesRow(seed, "continued" if outcome.task.goes_on else "finished", outcome.result)


def _tell(on_run: Callable[[SeriesRow], None] | None, row: SeriesRow) -> None:
    if on_run is not None:
        on_run(row)


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
    known = folder.is_dir() and any(is_run(path) for path in folder.glob("seed-*"))
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


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run, finished or not."""
    return (folder / "config.yaml").is_file()


def _is_interrupted(folder: Path | None) -> bool:
    return folder is not None and (folder / "run.json").is_file() and not (folder / "result.json").is_file()


def _found(task: Task) -> SeriesRow | None:
    """The row of a seed that is finished in its folder; None where there is still something to do."""
    if task.folder is None or not is_run(task.folder):
        return None
    before = load_configuration(str(task.folder / "config.yaml"))
    different = differences(before, task.config)
    if different:
        raise DataError(
            f"{task.folder} holds a run with other settings ({'; '.join(different[:3])}"
            f"{'; ...' if len(different) > 3 else ''}): choose another folder"
        )
    path = task.folder / "result.json"
    if not path.is_file():
        return None
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path} is damaged ({error}); remove {task.folder} to run this seed again") from error
    return SeriesRow(task.config.seed, "reused", result)


def differences(before: RunConfig, now: RunConfig) -> list[str]:
    """Settings that differ and that a run's figures depend on, in words.

    >>> one = load_configuration("rgcn/nc-aifb")
    >>> differences(one, load_configuration("rgcn/nc-aifb", ["training.epochs=2", "seed=4"]))
    ['training.epochs was 50, now 2']
    """
    old, new = (
        _flat(before.model_dump(mode="json", exclude=BESIDES)),
        _flat(now.model_dump(mode="json", exclude=BESIDES)),
    )
    return [
        f"{key} was {old.get(key)}, now {new.get(key)}"
        for key in dict.fromkeys([*old, *new])
        if old.get(key) != new.get(key)
    ]


def _settings(config: RunConfig) -> dict[str, Any]:
    """Every setting a figure depends on; files by their whole paths, as run folders write them."""
    flat = _flat(config.model_dump(mode="json", exclude=BESIDES))
    for key, value in flat.items():
        if (
            isinstance(value, str)
            and key.startswith(("data.path", "data.labels", "data.features"))
            and "_from" not in key
        ):
            flat[key] = str(Path(value).absolute())
    return flat


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _fetch(config: RunConfig, mirror: Path | None) -> None:
    """Have the data on this machine before several processes ask for them at once."""
    if config.data.dataset is not None:
        from rgcn.data.registry import get

        get(config.data.dataset, mirror=mirror)


def _keep(result: SeriesResult, folder: Path | None) -> None:
    if folder is None:
        return
    import rgcn

    content = {
        "format": FORMAT,
        "version": VERSION,
        "rgcn": rgcn.__version__,
        "updated": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        **result.as_dict(),
        "configuration": result.config.model_dump(mode="json"),
    }
    write_atomically(folder / "series.json", json.dumps(content, indent=1) + "\n")
