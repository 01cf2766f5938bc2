"""The same configuration with several seeds: a figure that says how sure it is.

    FOLDER/
      seed-0/ seed-1/ ...   a run each
      series.json           every run's result; mean, standard deviation and standard error for each split and metric

A series that was interrupted goes on where it was: finished seeds are kept, unfinished ones are continued.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from rgcn.config import RunConfig
from rgcn.data.graph_store import read_json
from rgcn.data.registry import get
from rgcn.errors import ConfigError, DataError, RgcnError, StoppedError
from rgcn.graph import KnowledgeGraph
from rgcn.plugins import TASKS
from rgcn.runs.configuration import WITHOUT_EFFECT, differences, kept_configuration, with_whole_paths
from rgcn.runs.folder import RunFolder, sole_use
from rgcn.runs.run_record import Spread, summarize
from rgcn.runs.worker_pool import Crew, Done, Interruption, Work
from rgcn.version import __version__

FORMAT, VERSION = "rgcn-series", 1
SECONDS_BETWEEN_REPORTS = 0.2


@dataclass(frozen=True)
class SeriesRow:
    """One seed: its result, or why there is none."""

    seed: int
    outcome: Literal["finished", "reused", "continued", "failed"]  # now, before, now after a stop, not at all
    result: dict[str, Any] | None = None
    error: str | None = None


@dataclass(frozen=True)
class SeriesResult:
    """Every run of a series, by seed, and what they say together."""

    config: RunConfig
    planned: int
    jobs: int
    rows: list[SeriesRow] = field(default_factory=list)

    @property
    def results(self) -> list[dict[str, Any]]:
        return [row.result for row in self.rows if row.result is not None]

    @property
    def failures(self) -> list[SeriesRow]:
        return [row for row in self.rows if row.outcome == "failed"]

    @property
    def seconds(self) -> float | None:
        """Of a run, the median."""
        return statistics.median(result["seconds"] for result in self.results) if self.results else None

    def summary(self) -> dict[str, dict[str, Spread]]:
        return summarize([result["metrics"] for result in self.results])

    def as_dict(self) -> dict[str, Any]:
        return {
            **self.config.about,
            "planned": self.planned,
            "jobs": self.jobs,
            "runs": [asdict(row) for row in self.rows],
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
    listener: SeriesListener | None = None,
) -> SeriesResult:
    """Train with seeds config.seed, config.seed + 1, ... and keep each run in a folder of its own.

    folder  None keeps nothing; else finished seeds found there are not run again, and unfinished ones go on
    jobs    trainings at a time; with more than one, each in a process of its own with its share of the cores

    A seed that fails is a row with its error. Ctrl-C stops whatever runs; what is finished stays.
    """
    if runs < 1 or jobs < 1:
        raise ConfigError(f"a series has at least one run and one job; got runs = {runs}, jobs = {jobs}")
    hears, result = listener or SeriesListener(), SeriesResult(with_whole_paths(config), runs, jobs)
    wanted = [
        SeedTraining(result.config.model_copy(update={"seed": seed}), folder and folder / f"seed-{seed}", mirror)
        for seed in range(config.seed, config.seed + runs)
    ]

    def add(row: SeriesRow) -> None:
        result.rows.append(row)
        result.rows.sort(key=lambda row: row.seed)
        _keep(result, folder)
        hears.ran(row)

    interruption = Interruption(at_once=True)
    how = "" if folder is None else f"finished runs stay, and `rgcn resume {folder}` goes on with the others"
    try:
        with nullcontext() if folder is None else _claimed(folder):
            found = [training.found() for training in wanted]  # or refused, before anything is written
            _keep(result, folder)  # so that `read_series` knows what to do, however soon this ends
            for row in filter(None, found):
                add(row)
            left = [training for training, row in zip(wanted, found, strict=True) if row is None]
            if left and jobs > 1 and config.data.dataset is not None:
                get(config.data.dataset, mirror=mirror)  # before several processes ask for it at once
            crew = Crew(min(jobs, max(1, len(left))), partial(_trainer, result.config, mirror, jobs > 1))
            # One training in this process hears signals itself; several are stopped by us, SIGTERM or Ctrl-C.
            with crew, interruption if crew.jobs > 1 else nullcontext():
                for one, end in crew.run(iter(left), lambda one, epoch: hears.epoch(one.config.seed, epoch)):
                    add(end.value if isinstance(end, Done) else SeriesRow(one.config.seed, "failed", error=end.words))
    except StoppedError as error:  # of one training, which names its own folder; here it is the whole that goes on
        raise error.advising(how) from None
    except KeyboardInterrupt:
        raise interruption.error(advice=how) from None
    return result


def read_series(folder: Path) -> tuple[RunConfig, int, int]:
    """What a series' folder says it is: configuration, runs, and how many at a time; enough to go on with it."""
    kept = read_json(folder / "series.json", FORMAT, VERSION)
    if not {"task", "configuration", "planned", "jobs"} <= kept.keys() or TASKS.problem(kept["task"]) is not None:
        raise DataError(f"{folder / 'series.json'}: damaged; the command that began the series goes on with it")
    config = kept_configuration(kept["task"], kept["configuration"], str(folder / "series.json"))
    return config, kept["planned"], kept["jobs"]


@dataclass(frozen=True)
class SeedTraining:
    """One training of a series: what to do, and the folder to keep it in (None: keep nothing)."""

    config: RunConfig
    folder: Path | None = None
    mirror: Path | None = None

    def found(self) -> SeriesRow | None:
        """The row of a seed that is finished in its folder; None where there is still something to do."""
        run = None if self.folder is None else RunFolder(self.folder)
        if run is None or not run.exists():
            return None
        other = differences(run.config(), self.config, ("seed", *WITHOUT_EFFECT))
        if other:
            words = "; ".join([*map(str, other[:3]), *(["..."] if len(other) > 3 else [])])
            raise DataError(f"{run.path} holds a run with other settings ({words}): choose another folder")
        result = run.result()
        return None if result is None else SeriesRow(self.config.seed, "reused", result)

    def do(self, graph: KnowledgeGraph, on_epoch: Callable[[Any], None]) -> SeriesRow:
        from rgcn.runs.training import resume, train

        seed = self.config.seed
        try:
            if self.folder is not None and RunFolder(self.folder).exists():
                result = resume(self.folder, self.mirror, on_epoch=on_epoch, graph=graph)
                return SeriesRow(seed, "continued", result.as_dict())
            result = train(self.config, graph, self.folder, on_epoch, mirror=self.mirror)
            return SeriesRow(seed, "finished", result.as_dict())
        except StoppedError:
            raise
        except Exception as error:  # whatever it was, the other trainings go on and this one is named
            words = str(error) if isinstance(error, RgcnError) else f"{type(error).__name__}: {error}"
            return SeriesRow(seed, "failed", error=words)


def _trainer(config: RunConfig, mirror: Path | None, seldom: bool) -> Work[SeedTraining]:
    """Does trainings on data that are read once; `seldom`: passes on epochs only now and then."""
    from rgcn.runs.assembly import load_data

    graph, last = load_data(config.data, mirror), 0.0

    def do(training: SeedTraining, tell: Callable[[Any], None]) -> SeriesRow:
        def pass_on(epoch: Any) -> None:
            nonlocal last
            if not seldom or time.monotonic() - last >= SECONDS_BETWEEN_REPORTS:
                last = time.monotonic()
                with suppress(OSError, EOFError):  # a parent that is gone: its end is what stops us, in an orderly way
                    tell(epoch)

        return training.do(graph, pass_on)

    return do


def _claimed(folder: Path) -> AbstractContextManager[None]:
    known = (folder / "series.json").is_file() or any(RunFolder(path).exists() for path in folder.glob("seed-*"))
    return sole_use(folder, "series", "process", ".series.lock", known)


def _keep(result: SeriesResult, folder: Path | None) -> None:
    if folder is not None:
        head = {"format": FORMAT, "version": VERSION, "rgcn": __version__}
        told = {"updated": time.strftime("%Y-%m-%dT%H:%M:%S%z"), **result.as_dict()}
        configuration = result.config.model_dump(mode="json")
        RunFolder(folder).write("series.json", {**head, **told, "configuration": configuration})
