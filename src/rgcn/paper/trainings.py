"""The paper's tables of results, node classification and link prediction: which are asked for, trained, and shown."""

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
from rgcn.paper import LINK, NODE
from rgcn.paper.published import ACCURACY, METRICS, RANKING, RULE, TITLES, Figure, PaperRow, PaperTable, judge, reason
from rgcn.runs.configuration import load_configuration
from rgcn.runs.folder import RunFolder
from rgcn.runs.run_record import Spread, summarize
from rgcn.runs.series import SeriesListener, run_series

CONFIGURATIONS: Mapping[str, Sequence[str]] = {NODE: tuple(ACCURACY), LINK: tuple(RANKING)}
DEFAULT_RUNS, LONG_RUNS = 10, {"rgcn/lp-wn18": 1, "c-rgcn/lp-wn18": 1}
METRIC_TITLES = dict(zip(METRICS, ("MRR", "Hits@1", "Hits@3", "Hits@10"), strict=True))
TABLES = {  # their titles, and what is to be said of them
    NODE: ("Node classification", "The configurations are those of the paper. ± is the standard error over the runs."),
    LINK: (
        "Link prediction, filtered, test split",
        "The configurations differ from the paper's description (docs/reproduction.md).",
    ),
}


def configurations(
    task: str,
    names: Iterable[str] | None = None,
    datasets: Iterable[str] | None = None,
    models: Iterable[str] | None = None,
) -> list[str]:
    """The shipped configurations of a task that belong to the named data sets and models; all where none is named.

    An option takes one value, so that of `--datasets aifb mutag` the second arrives as a bare name, and what it names
    tells where it belongs.

    >>> configurations(next(iter(CONFIGURATIONS)), ["e-rgcn"], ["aifb"])
    ['e-rgcn/nc-aifb']
    """
    pairs = {name: _dataset_and_model(name) for name in CONFIGURATIONS[task]}
    known = [list(dict.fromkeys(part)) for part in zip(*pairs.values(), strict=True)]
    named = chosen("name", names, [*known[0], *known[1]])
    wanted = [
        [*chosen(kind, asked, there), *(name for name in named if name in there)]
        for kind, asked, there in zip(("data set", "model"), (datasets, models), known, strict=True)
    ]
    found = [name for name, pair in pairs.items() if all(not w or p in w for p, w in zip(pair, wanted, strict=True))]
    if not found:
        raise ConfigError(f"the paper has no figure of {' on '.join(' and '.join(w) for w in reversed(wanted) if w)}")
    return found


def chosen(kind: str, asked: Iterable[str] | None, known: Sequence[str]) -> list[str]:
    """Names that were asked for, each by itself or several with commas between them.

    >>> chosen("data set", ["AIFB,mutag"], ["aifb", "mutag", "am"])
    ['aifb', 'mutag']
    """
    names = [part.strip().lower() for text in asked or () for part in text.split(",")]
    for name in names:
        if not name:
            raise ConfigError(f"a {kind} without a name; there are {', '.join(known)}")
        if name not in known:
            raise UnknownNameError(kind, name, known)
    return names


def _dataset_and_model(name: str) -> tuple[str, str]:
    model, _, rest = name.partition("/")
    return rest[3:], model  # without nc- or lp-


def subject(name: str) -> str:
    """What a row about a configuration is called.

    >>> subject("e-rgcn/nc-aifb"), subject("rgcn/lp-fb-toy")
    ('AIFB, e-RGCN', 'FB-Toy, RGCN')
    """
    return ", ".join(TITLES[part] for part in _dataset_and_model(name))


class Trained(NamedTuple):
    """What the runs of a configuration gave on the test split; `note` where something is to be said of them."""

    metrics: Mapping[str, Spread]
    seconds: float
    note: str = ""

    @classmethod
    def of(cls, results: Sequence[Mapping[str, Any]], note: str = "") -> Trained:
        """From results as `RunResult.as_dict` gives them."""
        metrics = summarize([result["metrics"] for result in results])["test"]
        return cls(metrics, statistics.median(result["seconds"] for result in results), note)


class ReproductionPlan(NamedTuple):
    """How to run the trainings."""

    folder: Path  # where the series are kept, so that an interrupted reproduction goes on
    runs: int | None = None  # None: ten, and one of the long ones on WN18
    jobs: int = 1
    mirror: Path | None = None
    device: str | None = None
    seed: int = 0
    changes: Sequence[str] = ()  # settings that differ from the shipped configurations, for trials
    fresh: bool = False  # refuse to use runs that are there already

    def runs_of(self, name: str) -> int:
        return self.runs if self.runs is not None else LONG_RUNS.get(name, DEFAULT_RUNS)

    def folder_of(self, name: str) -> Path:
        """Runs with other settings are kept apart, so that no trial is taken for a reproduction.

        >>> ReproductionPlan(Path("runs"), changes=["training.epochs=2"]).folder_of("rgcn/nc-aifb").name
        'rgcn-nc-aifb+training.epochs=2'
        """
        others = [*self.changes, *([] if self.device is None else [f"device={self.device}"])]
        tail = "".join(f"+{re.sub(r'[^A-Za-z0-9=._-]', '_', change)}" for change in others)
        if len(tail) > 80:
            tail = f"+{sha256(tail.encode()).hexdigest()[:12]}"
        return self.folder / (name.replace("/", "-") + tail)


class Trainings(NamedTuple):
    """What the trainings of some configurations gave: figures or, where the data are not to be had, a reason."""

    outcomes: dict[str, Trained | str]
    failures: list[str]


def run_trainings(names: Iterable[str], plan: ReproductionPlan, listener: SeriesListener | None = None) -> Trainings:
    """Train every configuration with its seeds; each test split is read once a run, at the end."""
    trainings, chosen = Trainings({}, []), list(names)
    folders = [plan.folder_of(name) for name in chosen]
    old = [str(path) for path in folders if any(RunFolder(seed).exists() for seed in path.glob("seed-*"))]
    if plan.fresh and old:
        raise DataError(f"--fresh, but there are runs in {', '.join(old)}: choose another --out, or remove them")
    hears = listener or SeriesListener()
    overrides = {"seed": plan.seed} | ({} if plan.device is None else {"training.device": plan.device})
    for name, folder in zip(chosen, folders, strict=True):
        config = load_configuration(name, plan.changes, overrides)
        try:
            get(config.data.title, mirror=plan.mirror)
        except RgcnError as error:
            trainings.outcomes[name] = why = reason(error)
            hears.absent(name, why)
            continue
        runs = plan.runs_of(name)
        hears.begin(name, runs, config.training.epochs)
        series = run_series(config, runs, folder=folder, jobs=plan.jobs, mirror=plan.mirror, listener=hears)
        failed = [f"{name}, seed {row.seed}: {row.error}" for row in series.failures]
        trainings.failures.extend(failed)
        note = f"{len(failed)} of {runs} runs failed" if failed else ""
        trainings.outcomes[name] = Trained.of(series.results, note) if series.results else note
    return trainings


def training_table(task: str, outcomes: Mapping[str, Trained | str], changed: Sequence[str] = ()) -> PaperTable:
    """Accuracies beside those of the paper's Table 2, or MRR and hits beside those of its Tables 5 and 6."""
    title, note = TABLES[task]
    rows = [row for name in CONFIGURATIONS[task] if name in outcomes for row in _rows(name, outcomes[name])]
    return PaperTable(task, title, rows, rule=RULE, notes=() if changed else (note,), changed=tuple(changed))


def _rows(name: str, outcome: Trained | str) -> list[PaperRow]:
    if name in ACCURACY:
        accuracy = PaperRow(subject(name), "test accuracy, %", kind="percent", digits=2)
        return [_filled(accuracy, outcome, "accuracy", ACCURACY[name], scale=100.0)]
    rows = []
    for metric, title in METRIC_TITLES.items():
        figures = [published[metric] for published in RANKING[name]]
        rows.append(_filled(PaperRow(subject(name), title), outcome, metric, figures))
    return [rows[0], *(replace(row, runs=None, seconds=None) for row in rows[1:])]


def _filled(
    row: PaperRow, outcome: Trained | str, metric: str, figures: Sequence[Figure], scale: float = 1.0
) -> PaperRow:
    if isinstance(outcome, str):
        return row.without_figure(figures, outcome)
    spread = outcome.metrics[metric]
    ours, error = scale * spread.mean, None if spread.standard_error is None else scale * spread.standard_error
    judged = tuple(judge(figure, ours, error) for figure in figures)
    row = replace(row, published=judged, ours=ours, error=error)
    return replace(row, runs=spread.runs, seconds=outcome.seconds, note=outcome.note)
