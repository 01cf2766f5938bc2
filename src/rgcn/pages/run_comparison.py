"""Compare several runs, and show the comparison as a page: settings that differ, metrics, and learning curves."""

from __future__ import annotations

import bisect
import itertools
import math
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rgcn.errors import ConfigError
from rgcn.graph import SPLITS
from rgcn.models.task import Task
from rgcn.pages.charts import Series
from rgcn.pages.layout import page, parts
from rgcn.pages.reporting import Panel, Reporting
from rgcn.runs.configuration import SETTINGS_WITHOUT_EFFECT, flat_settings, with_short_paths
from rgcn.runs.run_record import RunRecord, Spread, read_run
from rgcn.training.history import Metric
from rgcn.version import __version__

T_BINS = 20_000  # of the integral of Student's t distribution
MAX_CURVE_POINTS = 400  # of the mean curve of a series


class Entry(NamedTuple):
    """One column of a comparison: a run, or a series of runs that differ only in their seeds."""

    letter: str
    name: str
    runs: Sequence[RunRecord]
    is_series: bool = False

    @property
    def first(self) -> RunRecord:
        """The first run."""
        return self.runs[0]

    @property
    def num_finished(self) -> int:
        """The number of finished runs."""
        return sum(run.result is not None for run in self.runs)

    @property
    def state(self) -> str:
        """The state of the run or series as text."""
        return f"{self.num_finished} of {len(self.runs)} finished" if self.is_series else self.first.status

    def settings(self) -> dict[str, Any]:
        """Return every setting by its dotted key; a series has a list of seeds."""
        settings = flat_settings(with_short_paths(self.first.config), SETTINGS_WITHOUT_EFFECT)
        if self.is_series:
            settings["seed"] = ", ".join(str(run.config.seed) for run in self.runs)
        return settings

    def has_setting(self, setting: str) -> bool:
        """Return True if there is such a setting; different tasks have different ones."""
        return setting in self.settings()

    def values(self, split: str, metric: str) -> dict[int, float]:
        """Return a metric of the finished runs by seed; without a series only one run of each seed is kept."""
        results = {run.config.seed: (run.result or {}).get("metrics", {}).get(split, {}) for run in self.runs}
        return {seed: float(found[metric]) for seed, found in results.items() if found.get(metric) is not None}

    def spread(self, split: str, metric: str) -> Spread | None:
        """Return mean and spread of a metric over the finished runs, or None."""
        values = self.values(split, metric)
        return Spread.of(list(values.values())) if values else None

    def as_dict(self) -> dict[str, Any]:
        """Return the entry as plain values."""
        folders, about = [str(run.folder) for run in self.runs], self.first.config.about
        head = {"name": self.name, "folders": folders, **{key: about[key] for key in ("task", "dataset", "model")}}
        of_runs = {name: [getattr(run, name) for run in self.runs] for name in ("status", "length", "seconds")}
        return {**head, "fingerprint": self.first.fingerprint, **of_runs}

    def curve(self, column: str, color: int) -> Series:
        """Return the curve of one column; of a series the mean, with a band of one standard error."""
        curves = [dict(curve) for run in self.runs if (curve := run.curve(column))]
        if len(curves) < 2:
            return Series(self.name, sorted(curves[0].items()) if curves else [], color=color)
        shared = sorted(set.intersection(*map(set, curves)))
        places = shared[:: max(1, math.ceil(len(shared) / MAX_CURVE_POINTS))]
        spreads = [(x, Spread.of([curve[x] for curve in curves])) for x in places]
        band = [(x, one.mean - (error := one.standard_error or 0.0), one.mean + error) for x, one in spreads]
        return Series(f"{self.name} (mean of {len(curves)})", [(x, one.mean) for x, one in spreads], band, color)


class MetricRow(NamedTuple):
    """One metric on one split for every entry.

    Attributes:
        split: The split.
        metric: The metric.
        spreads: Mean and spread of each entry, None if there is none.
        best: The numbers of the best entries; empty if they cannot be compared.
    """

    split: str
    metric: Metric
    spreads: list[Spread | None]
    best: frozenset[int]

    def text(self, column: int) -> str:
        """Return the metric of an entry as text: the mean, with its standard error if there are several runs.

        Examples:
            >>> MetricRow("test", Metric("mrr", "MRR"), [Spread.of([0.9, 0.8])], frozenset()).text(0)
            '0.850 ± 0.050'
        """
        spread = self.spreads[column]
        return "" if spread is None else self.metric.format(spread.mean, spread.standard_error)


class PairedDifference(NamedTuple):
    """The difference of two entries in one metric, run by run of the same seed.

    Attributes:
        first: Letter of the entry that is subtracted.
        second: Letter of the other entry.
        split: The split.
        metric: The metric.
        mean: Mean of second - first.
        half_width: Half of the 95 % confidence interval of the mean, by Student's t.
        seeds: The seeds that both have.
    """

    first: str
    second: str
    split: str
    metric: Metric
    mean: float
    half_width: float
    seeds: list[int]

    @classmethod
    def of(cls, first: Entry, second: Entry, split: str, metric: Metric) -> PairedDifference | None:
        """Return the difference, or None if there are not two seeds that both have."""
        a, b = first.values(split, metric.name), second.values(split, metric.name)
        seeds = sorted(a.keys() & b.keys())
        if len(seeds) < 2:
            return None
        spread = Spread.of([b[seed] - a[seed] for seed in seeds])
        half_width = student_t(len(seeds) - 1) * (spread.standard_error or 0.0)
        return cls(first.letter, second.letter, split, metric, spread.mean, half_width, seeds)

    @property
    def text(self) -> str:
        """The difference as text, with its interval."""
        scale = 100 if self.metric.is_share else 1
        low, high = self.mean - self.half_width, self.mean + self.half_width
        numbers = [f"{scale * number:+.{1 if scale == 100 else 3}f}" for number in (self.mean, low, high)]
        return f"{numbers[0]} (95 % between {numbers[1]} and {numbers[2]}, {len(self.seeds)} seeds)"


def student_t(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's t distribution, by summing its density.

    >>> [round(student_t(freedom), 3) for freedom in (1, 2, 4, 99)]
    [12.706, 4.303, 2.776, 1.984]
    """
    # With t = sqrt(n) tan(angle) the density is proportional to cos(angle)^(n - 1) between 0 and a right angle.
    width = math.pi / 2 / T_BINS
    weights = [math.cos(width * (i + 0.5)) ** (freedom - 1) for i in range(T_BINS)]
    wanted = 0.95 * sum(weights)  # of the positive half
    below = list(itertools.accumulate(weights))
    last = bisect.bisect_left(below, wanted)
    return math.sqrt(freedom) * math.tan(width * (last + 1 - (below[last] - wanted) / weights[last]))


class ComparisonChart(NamedTuple):
    """The curves of one column of the reports, by the letters of the entries."""

    title: str
    panel: Panel
    curves: dict[str, Series]


@dataclass(frozen=True)
class Comparison:
    """Several runs or series, and their differences."""

    entries: list[Entry]

    @property
    def tasks(self) -> list[Task]:
        """The tasks of the entries, each once."""
        return list(dict.fromkeys(entry.first.task for entry in self.entries))

    def settings(self) -> dict[str, list[Any]]:
        """Return the settings that differ: `{key: one value per entry, None if it has no such setting}`."""
        settings = [entry.settings() for entry in self.entries]
        different: dict[str, list[Any]] = {}
        for name in dict.fromkeys(itertools.chain(*settings)):
            values = [each[name] for each in settings if name in each]
            if values.count(values[0]) < len(values):
                different[name] = [each.get(name) for each in settings]
        return different

    def metric_rows(self) -> list[MetricRow]:
        """Return every metric that a finished run has, split by split."""
        rows, metrics = [], dict.fromkeys(one for task in self.tasks for one in task.metrics)
        for split, metric in itertools.product(SPLITS, metrics):
            spreads = [entry.spread(split, metric.name) for entry in self.entries]
            if means := {i: spread.mean for i, spread in enumerate(spreads) if spread is not None}:
                data = {self.entries[i].first.fingerprint for i in means}
                optimum = (max if metric.higher_is_better else min)(means.values())
                best = frozenset(i for i, mean in means.items() if mean == optimum)
                is_comparable = len(data) == 1 and None not in data and split != "train" and len(best) < len(means)
                rows.append(MetricRow(split, metric, spreads, best if is_comparable else frozenset()))
        return rows

    def differences(self) -> list[PairedDifference]:
        """Return the paired differences of each entry to the first one, in the headline metric of each split."""
        if len(self.tasks) > 1 or len({entry.first.fingerprint for entry in self.entries} - {None}) != 1:
            return []
        splits = (split for split in SPLITS if split != "train")
        pairs = itertools.product(splits, self.entries[1:])
        found = (PairedDifference.of(self.entries[0], entry, split, self.tasks[0].headline) for split, entry in pairs)
        return [difference for difference in found if difference is not None]

    def warnings(self) -> list[str]:
        """Return what cannot be compared, and which differences mean little."""
        warnings = []
        same_metrics = len({task.metrics for task in self.tasks}) == 1
        if not same_metrics:
            tasks = " and ".join(task.title for task in self.tasks)
            warnings.append(f"These runs have different tasks ({tasks}), so their metrics cannot be compared.")
        by_data: dict[str | None, list[Entry]] = {}
        for entry in self.entries:
            by_data.setdefault(entry.first.fingerprint, []).append(entry)
        letters = {data: ", ".join(entry.letter for entry in entries) for data, entries in by_data.items()}
        if None in by_data:
            warnings.append(f"The data of {letters[None]} are not known, so no best value is marked.")
        elif len(by_data) > 1:
            sides = "; ".join(
                f"{letters[data]}: {entries[0].first.config.data.title} ({str(data)[:8]})"
                for data, entries in by_data.items()
            )
            warnings.append(f"These runs have different data ({sides}), so their metrics cannot be compared.")
        for entry in (one for one in self.entries if one.num_finished < len(one.runs)):
            of_series = f"{entry.num_finished} of {len(entry.runs)} runs are finished; only their metrics are shown."
            of_run = f"this run is not finished ({entry.first.status}); it has curves, but no metrics."
            warnings.append(f"{entry.letter}: {of_series if entry.is_series else of_run}")
        metric = self.tasks[0].headline
        rows = [row for row in self.metric_rows() if row.metric == metric and row.best]
        if not (rows and same_metrics and len(by_data) == 1):  # nothing is marked as best
            return warnings
        spreads = [spread for spread in rows[-1].spreads if spread is not None]
        first, second, *_ = sorted(spreads, key=lambda one: one.mean, reverse=metric.higher_is_better)
        if any(spread.standard_error is None for spread in spreads):
            warnings.append(
                "A single run says little about which settings are better, because metrics vary with the seed. Several "
                "seeds of each (a folder with seed-0/, seed-1/, ...) are compared as mean ± standard error."
            )
        elif abs(first.mean - second.mean) < 2 * math.hypot(first.standard_error or 0.0, second.standard_error or 0.0):
            what = f"in {rows[-1].split} {metric.title}"
            warnings.append(f"The two best differ by less than two standard errors {what}: by these runs, it is a tie.")
        return warnings

    def charts(self, task: Task) -> list[ComparisonChart]:
        """Return the charts for the entries of one task, validation metrics first."""
        entries = [(number, entry) for number, entry in enumerate(self.entries) if entry.first.task is task]
        reported = {column for _, entry in entries for run in entry.runs for column in run.reported}
        trainings = [entry.first.config.training for _, entry in entries]
        watched = dict.fromkeys((task.watch(training), training.unit) for training in trainings)
        panels = dict.fromkeys(panel for each in watched for panel in task.make_part(Reporting).panels(reported, *each))
        charts = []
        for panel, (column, column_title) in ((each, column) for each in panels for column in each.columns):
            curves = {entry.letter: entry.curve(column, number) for number, entry in entries}
            if any(curve.points for curve in curves.values()):
                title = panel.title if len(panel.columns) == 1 else f"{panel.title}, {column_title}"
                charts.append((not column.startswith("valid_"), ComparisonChart(title, panel, curves)))
        return [chart for _, chart in sorted(charts, key=lambda one: one[0])]

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison as plain values: the output of `rgcn compare --json`."""
        rows = self.metric_rows()

        def by_split(values_of: Callable[[MetricRow], list[Any]]) -> dict[str, dict[str, list[Any]]]:
            splits = dict.fromkeys(row.split for row in rows)
            return {split: {row.metric.name: values_of(row) for row in rows if row.split == split} for split in splits}

        return {
            "runs": [entry.as_dict() for entry in self.entries],
            "settings": self.settings(),
            "metrics": by_split(lambda row: [None if spread is None else vars(spread) for spread in row.spreads]),
            "differences": [
                {**each._asdict(), "metric": each.metric.name, "interval": [each.mean - w, each.mean + w]}
                for each in self.differences()
                for w in [each.half_width]
            ],
            "best": by_split(lambda row: [self.entries[i].name for i in sorted(row.best)]),
            "warnings": self.warnings(),
        }


def compare_runs(folders: Sequence[Path]) -> Comparison:
    """Read runs, or folders of series with seed-0/, seed-1/, ..., to compare them.

    Raises:
        ConfigError: There are fewer than two, or too many.
        DataError: A folder is not a run.
    """
    letters = string.ascii_lowercase
    if not 2 <= len(folders) <= len(letters):
        raise ConfigError(f"a comparison needs at least two runs, and at most {len(letters)} can be compared at once")
    names = [folder.absolute().name for folder in folders]
    entries = []
    for letter, folder, name in zip(letters, folders, names, strict=False):
        seeds = [] if (folder / "run.json").exists() else [one.parent for one in folder.glob("seed-*/run.json")]
        runs = [read_run(one) for one in sorted(seeds, key=lambda path: (len(path.name), path.name)) or [folder]]
        entries.append(Entry(letter, name if names.count(name) == 1 else str(folder), runs, bool(seeds)))
    return Comparison(entries)


def comparison_page(comparison: Comparison) -> str:
    """Return the page of a comparison."""
    names = [entry.name for entry in comparison.entries]
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    charts = [chart for task in comparison.tasks for chart in comparison.charts(task)]
    content = parts("comparison.html", comparison=comparison, charts=charts)
    footer = f"Written by rgcn {__version__} from the files of the runs. This page loads nothing from anywhere."
    return page(f"Comparison of {', '.join(names[:4])}{more}", content, footer=footer)
