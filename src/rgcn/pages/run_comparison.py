"""Several runs side by side, and as one page: what was set otherwise, what came out, and what cannot be compared."""

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
from rgcn.runs.configuration import WITHOUT_EFFECT, flat_settings, without_folders
from rgcn.runs.run_record import RunRecord, Spread, read_run
from rgcn.training.history import Metric
from rgcn.version import __version__

# Curves of a series are averaged where all its runs reported; so many places are enough for a picture.
CURVE_PLACES = 400


class Entry(NamedTuple):
    """What stands in one column: a run, or a series of runs that differ in their seeds alone."""

    letter: str
    name: str
    runs: Sequence[RunRecord]
    is_series: bool = False

    @property
    def first(self) -> RunRecord:
        return self.runs[0]

    @property
    def finished(self) -> int:
        return sum(run.result is not None for run in self.runs)

    @property
    def state(self) -> str:
        return f"{self.finished} of {len(self.runs)} finished" if self.is_series else self.first.status

    def settings(self) -> dict[str, Any]:
        """Every setting under its dotted name; a series has a list of seeds."""
        flat = flat_settings(without_folders(self.first.config), WITHOUT_EFFECT)
        if self.is_series:
            flat["seed"] = ", ".join(str(run.config.seed) for run in self.runs)
        return flat

    def knows(self, setting: str) -> bool:
        """Whether there is such a setting: another task has others."""
        return setting in self.settings()

    def spread(self, split: str, metric: str) -> Spread | None:
        results = [(run.result or {}).get("metrics", {}).get(split, {}) for run in self.runs]
        values = [float(figures[metric]) for figures in results if figures.get(metric) is not None]
        return Spread.of(values) if values else None

    def curve(self, column: str, color: int) -> Series:
        """A column of the metrics; of a series its mean, with a band of one standard error."""
        curves = [dict(curve) for run in self.runs if (curve := run.curve(column))]
        if len(curves) < 2:
            return Series(self.name, sorted(curves[0].items()) if curves else [], color=color)
        shared = sorted(set.intersection(*map(set, curves)))
        places = shared[:: max(1, math.ceil(len(shared) / CURVE_PLACES))]
        spreads = [(x, Spread.of([curve[x] for curve in curves])) for x in places]
        band = [(x, one.mean - (error := one.standard_error or 0.0), one.mean + error) for x, one in spreads]
        return Series(f"{self.name} (mean of {len(curves)})", [(x, one.mean) for x, one in spreads], band, color)


class FigureRow(NamedTuple):
    """One metric of one split for every entry; `best` are the columns that stand out, none where that means nothing."""

    split: str
    metric: Metric
    spreads: list[Spread | None]
    best: frozenset[int]

    def words(self, column: int) -> str:
        """A figure as it is shown: a mean, with its standard error where there are several runs.

        >>> FigureRow("test", Metric("mrr", "MRR"), [Spread.of([0.9, 0.8])], frozenset()).words(0)
        '0.850 ± 0.050'
        """
        spread = self.spreads[column]
        return "" if spread is None else self.metric.words(spread.mean, spread.standard_error)


class ComparedCurves(NamedTuple):
    """One column of the metrics of several entries: {letter: curve}."""

    title: str
    panel: Panel
    curves: dict[str, Series]


@dataclass(frozen=True)
class Comparison:
    """Entries, and what can be said of them together."""

    entries: list[Entry]

    @property
    def tasks(self) -> list[Task]:
        return list(dict.fromkeys(entry.first.task for entry in self.entries))

    def settings(self) -> dict[str, list[Any]]:
        """Settings that are not the same everywhere: {name: a value for each entry, None where it has no such}."""
        every = [entry.settings() for entry in self.entries]
        different: dict[str, list[Any]] = {}
        for name in dict.fromkeys(itertools.chain(*every)):
            there = [settings[name] for settings in every if name in settings]  # another task has other settings
            if there.count(there[0]) < len(there):
                different[name] = [settings.get(name) for settings in every]
        return different

    def figures(self) -> list[FigureRow]:
        """Every metric that a finished run has, split by split."""
        rows, metrics = [], dict.fromkeys(one for task in self.tasks for one in task.metrics)
        for split, metric in itertools.product(SPLITS, metrics):
            spreads = [entry.spread(split, metric.name) for entry in self.entries]
            if means := {i: spread.mean for i, spread in enumerate(spreads) if spread is not None}:
                prints = {self.entries[i].first.fingerprint for i in means}
                best = (max if metric.higher else min)(means.values())
                found = frozenset(i for i, mean in means.items() if mean == best)
                is_told = len(prints) == 1 and None not in prints and split != "train" and len(found) < len(means)
                rows.append(FigureRow(split, metric, spreads, found if is_told else frozenset()))
        return rows

    def warnings(self) -> list[str]:
        """What cannot be compared, and what should not be made too much of."""
        words = []
        same_metrics = len({task.metrics for task in self.tasks}) == 1
        if not same_metrics:
            tasks = " and ".join(task.title for task in self.tasks)
            what = f"These runs do different tasks ({tasks}): their figures measure different things"
            words.append(f"{what} and cannot be compared.")
        by_data: dict[str | None, list[Entry]] = {}
        for entry in self.entries:
            by_data.setdefault(entry.first.fingerprint, []).append(entry)
        letters = {print_: ", ".join(entry.letter for entry in some) for print_, some in by_data.items()}
        if None in by_data:
            words.append(f"It is not known which data {letters[None]} learned from: no best is marked.")
        elif len(by_data) > 1:
            titles = {print_: some[0].first.config.data.title for print_, some in by_data.items()}
            sides = "; ".join(f"{letters[one]}: {titles[one]} ({str(one)[:8]})" for one in by_data)
            what = f"These runs learned from different data ({sides})"
            words.append(f"{what}: figures on different data cannot be compared.")
        for entry in (one for one in self.entries if one.finished < len(one.runs)):
            of_series = f"{entry.finished} of {len(entry.runs)} runs are finished; figures are of these."
            of_run = f"this run is not finished ({entry.first.status}); it has curves, no figures."
            words.append(f"{entry.letter}: {of_series if entry.is_series else of_run}")
        comparable = same_metrics and len(by_data) == 1 and None not in by_data
        return [*words, *self._about_chance()] if comparable else words

    def _about_chance(self) -> list[str]:
        """Whether the difference of the two best is more than seeds make."""
        metric = self.tasks[0].headline
        rows = [row for row in self.figures() if row.metric == metric and row.best]
        if not rows:
            return []
        there = [spread for spread in rows[-1].spreads if spread is not None]
        if any(spread.standard_error is None for spread in there):
            return [
                "A single run says little about which setting is better: the seed alone moves the figures. "
                "Several seeds of each (a folder with seed-0/, seed-1/, ...) are compared as mean ± standard error."
            ]
        first, second, *_ = sorted(there, key=lambda one: one.mean, reverse=metric.higher)
        if abs(first.mean - second.mean) >= 2 * math.hypot(first.standard_error or 0.0, second.standard_error or 0.0):
            return []
        which = f"{rows[-1].split} {metric.title}"
        return [f"The two best differ by less than two standard errors in {which}: by these runs, a tie."]

    def pictures(self, task: Task) -> list[ComparedCurves]:
        """The pictures to draw for the entries of one task, the most telling first."""
        entries = [(number, entry) for number, entry in enumerate(self.entries) if entry.first.task is task]
        reported = {column for _, entry in entries for run in entry.runs for column in run.reported}
        watches = dict.fromkeys(task.watch(entry.first.config.training) for _, entry in entries)
        panels = dict.fromkeys(panel for one in watches for panel in task.to(Reporting).panels(reported, one))
        found = []
        for panel, (column, of) in ((each, of) for each in panels for of in each.columns):
            curves = {entry.letter: entry.curve(column, number) for number, entry in entries}
            if any(curve.points for curve in curves.values()):
                title = panel.title if len(panel.columns) == 1 else f"{panel.title}, {of}"
                found.append((not column.startswith("valid_"), ComparedCurves(title, panel, curves)))
        return [picture for _, picture in sorted(found, key=lambda one: one[0])]

    def as_dict(self) -> dict[str, Any]:
        rows = self.figures()

        def by_split(of_row: Callable[[FigureRow], list[Any]]) -> dict[str, dict[str, list[Any]]]:
            splits = dict.fromkeys(row.split for row in rows)
            return {split: {row.metric.name: of_row(row) for row in rows if row.split == split} for split in splits}

        return {
            "runs": [
                {
                    "name": entry.name,
                    "folders": [str(run.folder) for run in entry.runs],
                    "task": entry.first.config.task,
                    "dataset": entry.first.config.data.title,
                    "model": entry.first.config.model.title,
                    "fingerprint": entry.first.fingerprint,
                    **{name: [getattr(run, name) for run in entry.runs] for name in ("status", "epochs", "seconds")},
                }
                for entry in self.entries
            ],
            "settings": self.settings(),
            "metrics": by_split(lambda row: [None if spread is None else vars(spread) for spread in row.spreads]),
            "best": by_split(lambda row: [self.entries[i].name for i in sorted(row.best)]),
            "warnings": self.warnings(),
        }


def compare_runs(folders: Sequence[Path]) -> Comparison:
    """Read runs, or folders of series (FOLDER/seed-0/, FOLDER/seed-1/, ...), to compare them."""
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
    names = [entry.name for entry in comparison.entries]
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    pictures = [picture for task in comparison.tasks for picture in comparison.pictures(task)]
    content = parts("comparison.html", comparison=comparison, pictures=pictures)
    footer = f"Written by rgcn {__version__} from the runs' own files. This page loads nothing from anywhere."
    return page(f"Comparison of {', '.join(names[:4])}{more}", content, footer=footer)
