"""The paper's tables of results: node classification and link prediction."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from rgcn.data.registry import get
from rgcn.errors import DataError, RgcnError
from rgcn.paper.availability import reason
from rgcn.paper.comparison import RULE, Row, Table, judge, without_figure
from rgcn.paper.published import ACCURACY, LINK, METRICS, NODE, RANKING, TITLES, Figure
from rgcn.runs.configuration import load_configuration
from rgcn.runs.folder import RunFolder
from rgcn.runs.run_record import Spread, summarize
from rgcn.runs.series import SeriesListener, TrainingTeam, run_series, training_team

CONFIGURATIONS: Mapping[str, Sequence[str]] = {NODE: tuple(ACCURACY), LINK: tuple(RANKING)}
DEFAULT_RUNS, LONG_RUNS = 10, {"rgcn/lp-wn18": 1, "c-rgcn/lp-wn18": 1}
METRIC_TITLES = {"mrr": "MRR", "hits@1": "Hits@1", "hits@3": "Hits@3", "hits@10": "Hits@10"}


@dataclass(frozen=True)
class Trained:
    """What the runs of a configuration gave on the test split; `note` where something is to be said of them."""

    metrics: Mapping[str, Spread]
    seconds: float
    note: str = ""

    @classmethod
    def of(cls, results: Sequence[Mapping[str, Any]], note: str = "") -> Trained:
        """From results as `RunResult.as_dict` gives them."""
        metrics = summarize([result["metrics"] for result in results])["test"]
        return cls(metrics, statistics.median(result["seconds"] for result in results), note)


@dataclass(frozen=True)
class Plan:
    """How to run the trainings.

    runs     None: ten, and one of the long ones on WN18
    folder   where the series are kept, so that an interrupted reproduction goes on
    fresh    refuse to use runs that are there already
    changes  settings that differ from the shipped configurations, for trials
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
        return self.runs if self.runs is not None else LONG_RUNS.get(name, DEFAULT_RUNS)

    def folder_of(self, name: str) -> Path:
        """Runs with other settings are kept apart, so that no trial is taken for a reproduction.

        >>> Plan(Path("runs")).folder_of("rgcn/nc-aifb").name
        'rgcn-nc-aifb'
        >>> Plan(Path("runs"), changes=["training.epochs=2"]).folder_of("rgcn/nc-aifb").name
        'rgcn-nc-aifb+training.epochs=2'
        """
        others = [*self.changes, *([] if self.device is None else [f"device={self.device}"])]
        tail = "".join(f"+{re.sub(r'[^A-Za-z0-9=._-]', '_', change)}" for change in others)
        if len(tail) > 80:
            tail = f"+{sha256(tail.encode()).hexdigest()[:12]}"
        return self.folder / (name.replace("/", "-") + tail)


@dataclass
class Trainings:
    """What the trainings of some configurations gave: figures or, where the data are not to be had, a reason."""

    outcomes: dict[str, Trained | str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


def run_trainings(names: Iterable[str], plan: Plan, listener: SeriesListener | None = None) -> Trainings:
    """Train every configuration with its seeds; each test split is read once a run, at the end."""
    trainings, hears = Trainings(), listener or SeriesListener()
    chosen = list(names)
    if plan.fresh:
        _refuse_old(chosen, plan)
    with training_team(plan.jobs) as team:
        for name in chosen:
            _train(name, plan, team, hears, trainings)
    return trainings


def _train(name: str, plan: Plan, team: TrainingTeam, listener: SeriesListener, trainings: Trainings) -> None:
    overrides: dict[str, Any] = {"seed": plan.seed}
    if plan.device is not None:
        overrides["training.device"] = plan.device
    config = load_configuration(name, plan.changes, overrides)
    assert config.data.dataset is not None
    try:
        get(config.data.dataset, mirror=plan.mirror)
    except RgcnError as error:
        trainings.outcomes[name] = reason(error)
        listener.absent(name, str(trainings.outcomes[name]))
        return
    runs = plan.runs_of(name)
    listener.begin(name, runs, config.training.epochs)
    series = run_series(
        config,
        runs,
        folder=plan.folder_of(name),
        mirror=plan.mirror,
        team=team,
        on_run=listener.ran,
        on_epoch=listener.epoch,
    )
    failed = [f"{name}, seed {row.seed}: {row.error}" for row in series.failures]
    trainings.failures += failed
    note = f"{len(failed)} of {runs} runs failed" if failed else ""
    trainings.outcomes[name] = Trained.of(series.results, note) if series.results else note


def _refuse_old(names: Sequence[str], plan: Plan) -> None:
    old = [
        plan.folder_of(name)
        for name in names
        if any(RunFolder(p).exists() for p in plan.folder_of(name).glob("seed-*"))
    ]
    if old:
        raise DataError(
            f"--fresh, but there are runs in {', '.join(map(str, old))}: choose another --out, or remove them"
        )


# -- tables ------------------------------------------------------------------------------------------------


def node_table(outcomes: Mapping[str, Trained | str], changed: Sequence[str] = ()) -> Table:
    """Accuracies beside those of the paper's Table 2."""
    rows = []
    for name in CONFIGURATIONS[NODE]:
        if name in outcomes:
            row = Row(subject(name), "test accuracy, %", kind="percent", digits=2)
            rows.append(_filled(row, outcomes[name], "accuracy", ACCURACY[name], scale=100.0))
    return Table(
        NODE,
        "Node classification",
        rows,
        rule=RULE,
        notes=() if changed else ("The configurations are those of the paper. ± is the standard error over the runs.",),
        changed=tuple(changed),
    )


def link_table(outcomes: Mapping[str, Trained | str], changed: Sequence[str] = ()) -> Table:
    """MRR and hits beside those of the paper's Tables 5 and 6."""
    rows = []
    for name in CONFIGURATIONS[LINK]:
        for metric in METRICS if name in outcomes else ():
            figures = [published[metric] for published in RANKING[name]]
            row = _filled(Row(subject(name), METRIC_TITLES[metric]), outcomes[name], metric, figures)
            rows.append(row if metric == METRICS[0] else replace(row, runs=None, seconds=None))
    return Table(
        LINK,
        "Link prediction, filtered, test split",
        rows,
        rule=RULE,
        notes=() if changed else ("The configurations differ from the paper's description (docs/reproduction.md).",),
        changed=tuple(changed),
    )


def training_table(task: str, outcomes: Mapping[str, Trained | str], changed: Sequence[str] = ()) -> Table:
    """The table of a task."""
    return (node_table if task == NODE else link_table)(outcomes, changed)


def subject(name: str) -> str:
    """What a row about a configuration is called.

    >>> subject("e-rgcn/nc-aifb"), subject("rgcn/lp-fb-toy")
    ('AIFB, e-RGCN', 'FB-Toy, RGCN')
    """
    model, _, rest = name.partition("/")
    return f"{TITLES[rest[3:]]}, {TITLES[model]}"


def _filled(row: Row, outcome: Trained | str, metric: str, figures: Sequence[Figure], scale: float = 1.0) -> Row:
    if isinstance(outcome, str):
        return without_figure(row, figures, outcome)
    spread = outcome.metrics[metric]
    ours = scale * spread.mean
    error = None if spread.standard_error is None else scale * spread.standard_error
    return replace(
        row,
        published=tuple(judge(figure, ours, error) for figure in figures),
        ours=ours,
        error=error,
        runs=spread.runs,
        seconds=outcome.seconds,
        note=outcome.note,
    )
