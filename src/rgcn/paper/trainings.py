"""The paper's tables of node classification and link prediction: choose configurations, train them, make the tables."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from rgcn.data.registry import get
from rgcn.errors import ConfigError, DataError, RgcnError, UnknownNameError
from rgcn.paper import LINK, NODE, published
from rgcn.paper.published import ACCURACY, RANKING, TITLES, PaperResult, PaperRow, PaperTable, judge
from rgcn.runs.configuration import load_configuration
from rgcn.runs.folder import RunFolder
from rgcn.runs.run_record import Spread, summarize
from rgcn.runs.series import SeriesCallback, run_series

CONFIGURATIONS: Mapping[str, Sequence[str]] = {NODE: tuple(ACCURACY), LINK: tuple(RANKING)}
DEFAULT_RUNS, LONG_RUNS = 10, {"rgcn/lp-wn18": 1, "c-rgcn/lp-wn18": 1}
METRIC_TITLES = {"mrr": "MRR", "hits@1": "Hits@1", "hits@3": "Hits@3", "hits@10": "Hits@10"}
TABLES = {  # title and note
    NODE: ("Node classification", "The configurations are those of the paper. ± is the standard error over the runs."),
    LINK: (
        "Link prediction, filtered, test split",
        "The configurations differ from the paper's description (docs/reference/reproduction.md).",
    ),
}


def configurations(
    task: str,
    names: Iterable[str] | None = None,
    datasets: Iterable[str] | None = None,
    models: Iterable[str] | None = None,
) -> list[str]:
    """Select the configurations of a task.

    Args:
        task: The task.
        names: Names of data sets or models: of `--datasets aifb mutag` the second arrives as such a bare name.
        datasets: Names of data sets; None or empty for all.
        models: Names of models; None or empty for all.

    >>> configurations(next(iter(CONFIGURATIONS)), ["e-rgcn"], ["aifb"])
    ['e-rgcn/nc-aifb']
    """
    pairs = {name: _dataset_and_model(name) for name in CONFIGURATIONS[task]}
    known = [list(dict.fromkeys(part)) for part in zip(*pairs.values(), strict=True)]
    named = select_names("name", names, [*known[0], *known[1]])
    wanted = [
        [*select_names(kind, names_of_kind, available), *(name for name in named if name in available)]
        for kind, names_of_kind, available in zip(("data set", "model"), (datasets, models), known, strict=True)
    ]
    found = [name for name, pair in pairs.items() if all(not w or p in w for p, w in zip(pair, wanted, strict=True))]
    if not found:
        raise ConfigError(f"the paper has no result of {' on '.join(' and '.join(w) for w in reversed(wanted) if w)}")
    return found


def select_names(kind: str, texts: Iterable[str] | None, known: Sequence[str]) -> list[str]:
    """Split names at commas, and check that they are known.

    >>> select_names("data set", ["AIFB,mutag"], ["aifb", "mutag", "am"])
    ['aifb', 'mutag']
    """
    names = [part.strip().lower() for text in texts or () for part in text.split(",")]
    if "" in names:
        raise ConfigError(f"a {kind} without a name; there are {', '.join(known)}")
    if unknown := [name for name in names if name not in known]:
        raise UnknownNameError(kind, unknown[0], known)
    return names


def _dataset_and_model(name: str) -> tuple[str, str]:
    model, _, rest = name.partition("/")
    return rest[3:], model  # without nc- or lp-


def subject(name: str) -> str:
    """Return the subject of the rows of a configuration.

    >>> subject("e-rgcn/nc-aifb"), subject("rgcn/lp-fb-toy")
    ('AIFB, e-RGCN', 'FB-Toy, RGCN')
    """
    return ", ".join(TITLES[part] for part in _dataset_and_model(name))


class TrainingResult(NamedTuple):
    """The test metrics and the median time of the runs of a configuration; `note` becomes a footnote."""

    metrics: Mapping[str, Spread]
    seconds: float
    note: str = ""

    @classmethod
    def of(cls, results: Sequence[Mapping[str, Any]], note: str = "") -> TrainingResult:
        """Summarize results as `RunResult.as_dict` returns them."""
        metrics = summarize([result["metrics"] for result in results])["test"]
        return cls(metrics, statistics.median(result["seconds"] for result in results), note)


class ReproductionPlan(NamedTuple):
    """How to run the trainings.

    Args:
        folder: The folder of the series, from which an interrupted reproduction is resumed.
        runs: The number of runs; None for ten, or one on WN18.
        jobs: The number of runs at the same time.
        mirror: A folder or address with the data sets.
        device: The device.
        seed: The first seed.
        changes: Settings that differ from the built-in configurations, for trials.
        fresh: True to refuse to use existing runs.
    """

    folder: Path
    runs: int | None = None
    jobs: int = 1
    mirror: Path | None = None
    device: str | None = None
    seed: int = 0
    changes: Sequence[str] = ()
    fresh: bool = False

    def runs_of(self, name: str) -> int:
        """Return the number of runs of a configuration."""
        return self.runs if self.runs is not None else LONG_RUNS.get(name, DEFAULT_RUNS)

    def folder_of(self, name: str) -> Path:
        """Return the folder of a configuration's runs. Trials with other settings have other folders.

        >>> ReproductionPlan(Path("runs"), changes=["training.epochs=2"]).folder_of("rgcn/nc-aifb").name
        'rgcn-nc-aifb+training.epochs=2'
        """
        others = [*self.changes, *([] if self.device is None else [f"device={self.device}"])]
        tail = "".join(f"+{re.sub(r'[^A-Za-z0-9=._-]', '_', change)}" for change in others)
        tail = tail if len(tail) <= 80 else f"+{sha256(tail.encode()).hexdigest()[:12]}"
        return self.folder / (name.replace("/", "-") + tail)


class Trainings(NamedTuple):
    """The results of the trainings of configurations, or the reason why there is none; and the failures."""

    outcomes: dict[str, TrainingResult | str]
    failures: list[str]


def run_trainings(names: Iterable[str], plan: ReproductionPlan, listener: SeriesCallback | None = None) -> Trainings:
    """Train each configuration with all its seeds. A test split is used once in each run, at the end."""
    trainings, selected = Trainings({}, []), list(names)
    folders = [plan.folder_of(name) for name in selected]
    old = [str(path) for path in folders if any(RunFolder(seed).exists() for seed in path.glob("seed-*"))]
    if plan.fresh and old:
        raise DataError(f"--fresh, but there are runs in {', '.join(old)}: choose another --out, or remove them")
    callback = listener or SeriesCallback()
    overrides = {"seed": plan.seed} | ({} if plan.device is None else {"training.device": plan.device})
    for name, folder in zip(selected, folders, strict=True):
        config = load_configuration(name, plan.changes, overrides)
        try:
            get(config.data.title, mirror=plan.mirror)
        except RgcnError as error:
            trainings.outcomes[name] = why = published.failure_reason(error)
            callback.unavailable(name, why)
            continue
        runs = plan.runs_of(name)
        callback.begin(name, runs, config.training.length)
        series = run_series(config, runs, folder=folder, jobs=plan.jobs, mirror=plan.mirror, callback=callback)
        failed = [f"{name}, seed {row.seed}: {row.error}" for row in series.failures]
        trainings.failures.extend(failed)
        note = f"{len(failed)} of {runs} runs failed" if failed else ""
        trainings.outcomes[name] = TrainingResult.of(series.results, note) if series.results else note
    return trainings


def training_table(task: str, outcomes: Mapping[str, TrainingResult | str], changed: Sequence[str] = ()) -> PaperTable:
    """Compare accuracies with the paper's Table 2, or MRR and hits with its Tables 5 and 6."""
    title, note = TABLES[task]
    rows = [row for name in CONFIGURATIONS[task] if name in outcomes for row in _rows(name, outcomes[name])]
    return PaperTable(task, title, rows, rule=published.RULE, notes=() if changed else (note,), changed=tuple(changed))


def _rows(name: str, outcome: TrainingResult | str) -> list[PaperRow]:
    if name in ACCURACY:
        accuracy = PaperRow(subject(name), "test accuracy, %", kind="percent", digits=2)
        return [_filled(accuracy, outcome, "accuracy", ACCURACY[name], scale=100.0)]
    first, *others = (
        _filled(PaperRow(subject(name), title), outcome, metric, [results[metric] for results in RANKING[name]])
        for metric, title in METRIC_TITLES.items()
    )
    return [first, *(replace(row, runs=None, seconds=None) for row in others)]


def _filled(
    row: PaperRow, outcome: TrainingResult | str, metric: str, expected: Sequence[PaperResult], scale: float = 1.0
) -> PaperRow:
    if isinstance(outcome, str):
        return row.without_result(expected, outcome)
    spread = outcome.metrics[metric]
    ours, error = scale * spread.mean, None if spread.standard_error is None else scale * spread.standard_error
    judged = tuple(judge(result, ours, error) for result in expected)
    row = replace(row, published=judged, ours=ours, error=error)
    return replace(row, runs=spread.runs, seconds=outcome.seconds, note=outcome.note)
