"""The results of a study: the best configuration as YAML, every trial as a table, and a page."""

import csv
import io
import time
import warnings
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from rgcn.config import RunConfig
from rgcn.models.task import task_of
from rgcn.pages.charts import Mark, Point, Series, line_chart
from rgcn.pages.layout import page, parts
from rgcn.runs.configuration import dump_configuration, replace_settings
from rgcn.system.atomic_files import write_atomically
from rgcn.system.formatting import format_count
from rgcn.tuning.spaces import Spaces, describe_space
from rgcn.tuning.study import UNCHANGED, StudyPlan, TrialRecord, optuna
from rgcn.version import __version__


@dataclass(frozen=True)
class TuneResult:
    """The results of a study so far.

    Attributes:
        plan: The study.
        trials: Its trials, in order.
        importance: The share of each setting in the differences between trials; empty if there are too few trials.
        interrupted: True if Ctrl-C ended the study.
    """

    plan: StudyPlan
    trials: list[TrialRecord]
    importance: dict[str, float]
    interrupted: bool = False

    @property
    def best(self) -> TrialRecord | None:
        """The best finished trial."""
        return next(iter(self.ranking), None)

    @property
    def ranking(self) -> list[TrialRecord]:
        """Finished trials, best first; of equal ones the unchanged configuration, then the smallest deviation."""
        sign = -1 if self.plan.objective.metric.higher_is_better else 1

        def key(trial: TrialRecord) -> tuple[float, bool, float, int]:
            return round(sign * (trial.value or 0.0), 6), not trial.is_unchanged, trial.deviation or 0.0, trial.number

        return sorted((one for one in self.trials if one.state == "finished" and one.value is not None), key=key)

    @property
    def unchanged(self) -> TrialRecord | None:
        """The trial with the unchanged configuration, if it finished."""
        return next((trial for trial in self.trials if trial.is_unchanged and trial.state == "finished"), None)

    def count(self, state: str) -> int:
        """Return the number of trials in a state."""
        return sum(trial.state == state for trial in self.trials)

    @property
    def metric(self) -> str:
        """The name of the metric, as "validation accuracy"."""
        return f"validation {self.plan.objective.metric.title}"

    @property
    def summary(self) -> str:
        """The number of trials in each state, as "3 trials: 2 finished, 1 stopped early"."""
        titles = {"finished": "finished", "stopped": "stopped early", "failed": "failed"}
        states = [f"{n} {title}" for state, title in titles.items() if (n := self.count(state)) or state != "failed"]
        return f"{format_count(len(self.trials), 'trial')}: {', '.join(states)}"

    def as_dict(self) -> dict[str, Any]:
        """Return the results as plain values: the output of `rgcn tune --json`."""

        def measured(trial: TrialRecord) -> dict[str, Any]:
            return {"value": trial.value, "deviation": trial.deviation, "epoch": trial.epoch}

        best, unchanged, objective = self.best, self.unchanged, self.plan.objective
        return {
            "configuration": self.plan.name,
            "folder": str(self.plan.folder),
            "metric": objective.metric.name,
            "folds": objective.folds,
            "seed": objective.seed,
            "trials": len(self.trials),
            **{state: self.count(state) for state in ("finished", "stopped", "failed")},
            "interrupted": self.interrupted,
            "best": None if best is None else {"trial": best.number, **measured(best), "settings": best.settings},
            "unchanged": None if unchanged is None else measured(unchanged),
            "importance": self.importance,
        }


def configuration_of(config: RunConfig, spaces: Spaces, trial: TrialRecord) -> RunConfig:
    """Return the configuration to train with: the settings of a trial, and its best epoch."""
    reset = {key: space.default for key, space in spaces.items() if space.when and not trial.is_unchanged}
    final = task_of(config.task).settings_after_trials(config, trial.epoch)
    return replace_settings(config, {**reset, **trial.settings, **final})


def importance(study: Any) -> dict[str, float]:
    """Return how much each setting matters (PED-ANOVA), largest first; empty if there are too few trials.

    The trial with the unchanged configuration does not count, because it may lie outside the spaces.
    """
    package = optuna()
    finished = study.get_trials(deepcopy=False, states=(package.trial.TrialState.COMPLETE,))
    drawn = [trial for trial in finished if not trial.user_attrs.get(UNCHANGED)]
    if len(drawn) < 4:
        return {}
    copy = package.create_study(direction=study.direction)
    copy.add_trials(drawn)
    try:
        with warnings.catch_warnings():  # the page says that there are few trials
            warnings.simplefilter("ignore")
            evaluator = package.importance.PedAnovaImportanceEvaluator()
            shares = package.importance.get_param_importances(copy, evaluator=evaluator)
    except (ValueError, RuntimeError):  # all values are equal, or no setting was drawn in every trial
        return {}
    return {key: float(value) for key, value in sorted(shares.items(), key=lambda item: -item[1])}


def save(result: TuneResult) -> None:
    """Write trials.csv, best.yaml and tune.html to the folder of the study."""
    plan, best = result.plan, result.best
    write_atomically(plan.folder / "trials.csv", _table(result))
    if best is not None:
        config = configuration_of(plan.config, plan.spaces, best)
        write_atomically(plan.folder / "best.yaml", _head(result, best) + dump_configuration(config))
    write_atomically(plan.folder / "tune.html", tune_page(result))


def _head(result: TuneResult, best: TrialRecord) -> str:
    """Return the comment at the top of best.yaml."""
    unchanged, plan, objective = result.unchanged, result.plan, result.plan.objective
    spread = f" ± {best.deviation:.4f}" if objective.folds > 1 else ""
    folds = f", mean and standard deviation of {objective.folds} trainings" if objective.folds > 1 else ""
    versions = f"rgcn {__version__}, optuna {optuna().__version__}"
    lines = [
        f"Found by `rgcn tune` from {plan.name}, {time.strftime('%Y-%m-%d')} ({versions}).",
        f"Trial {best.number}, the best of {result.summary}; seed {objective.seed}.",
        f"V{result.metric[1:]}: {best.value:.4f}{spread}{folds}; best at epoch {best.epoch}.",
        *([] if unchanged is None else [f"The unchanged configuration: {unchanged.value:.4f}."]),
        "The test split was not read. The best of many trials looks better than it is: train and measure it again.",
        *task_of(plan.config.task).trial_notes(plan.config, best.epoch),
    ]
    return "".join(f"# {' '.join(line.split())}\n" for line in lines)


def _table(result: TuneResult) -> str:
    text, keys = io.StringIO(), list(result.plan.spaces)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["trial", "state", "unchanged", "value", "deviation", "epoch", "seconds", *keys, "error"])
    for trial in result.trials:
        seconds = None if trial.seconds is None else round(trial.seconds, 3)
        values = [trial.value, trial.deviation, trial.epoch, seconds, *map(trial.settings.get, keys), trial.error]
        writer.writerow([trial.number, trial.state, "yes" if trial.is_unchanged else "no", *values])
    return text.getvalue()


def tune_page(result: TuneResult) -> str:
    """Return the page about a study: its history, the importance of the settings, and the best ten trials."""
    content = parts(
        "tuning.html",
        result=result,
        summary=result.summary.partition(": ")[2],
        history=_history(result),
        spaces={key: describe_space(space) for key, space in result.plan.spaces.items()},
    )
    footer = f"rgcn {__version__}, {time.strftime('%Y-%m-%d %H:%M')}"
    return page(f"Tuning {result.plan.name}", content, footer=footer)


def _history(result: TuneResult) -> Markup:
    """Draw every trial as a dot, the best value so far as a line, and a ring around the unchanged configuration."""
    metric, unchanged = result.plan.objective.metric, result.unchanged
    finished, stopped = (
        [(trial.number, trial.value) for trial in result.trials if trial.state == state and trial.value is not None]
        for state in ("finished", "stopped")
    )
    stairs: list[Point] = []
    for number, value in finished:
        if not stairs or metric.better(value, stairs[-1][1]):
            stairs += [(number, stairs[-1][1] if stairs else value), (number, value)]
    stairs += [(trial.number, stairs[-1][1]) for trial in result.trials[-1:] if stairs]
    values = [value for _, value in (*finished, *stopped)] or [0.0]
    return line_chart(
        [
            Series("finished", finished, color=0, joined=False),
            Series("best so far", stairs, color=1),
            Series("stopped early, so far", stopped, color=2, joined=False),
        ],
        title=f"{result.metric} of each trial",
        x_label="trial",
        y_label=result.metric,
        marks=[] if unchanged is None else [Mark("the unchanged configuration", unchanged.number, unchanged.value)],
        y_range=(min(values), max(values)),
    )
