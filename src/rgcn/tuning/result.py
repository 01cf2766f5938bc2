"""What a study found: the best configuration as plain YAML, every trial as a table, all of it as a page."""

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
from rgcn.runs.configuration import changed, dump_configuration
from rgcn.system.atomic_files import write_atomically
from rgcn.system.formatting import count
from rgcn.tuning.spaces import Spaces, described
from rgcn.tuning.study import StudyPlan, TrialRecord, optuna
from rgcn.version import __version__


@dataclass(frozen=True)
class TuneResult:
    """A study as it stands."""

    plan: StudyPlan
    trials: list[TrialRecord]
    importance: dict[str, float]  # share of each setting in the differences between trials; empty where they are few
    interrupted: bool = False

    @property
    def best(self) -> TrialRecord | None:
        return next(iter(self.ranking), None)

    @property
    def ranking(self) -> list[TrialRecord]:
        """Finished trials, best first; of equals the configuration's own, then the one whose folds differ least."""
        sign = -1 if self.plan.objective.metric.higher else 1
        finished = [one for one in self.trials if one.state == "finished" and one.value is not None]
        values = {one.number: round(sign * (one.value or 0.0), 6) for one in finished}
        return sorted(finished, key=lambda one: (values[one.number], not one.own, one.deviation or 0.0, one.number))

    @property
    def own(self) -> TrialRecord | None:
        return next((trial for trial in self.trials if trial.own and trial.state == "finished"), None)

    def count(self, state: str) -> int:
        return sum(trial.state == state for trial in self.trials)

    @property
    def metric(self) -> str:
        return f"validation {self.plan.objective.metric.title}"

    def as_dict(self) -> dict[str, Any]:
        best, own, objective = self.best, self.own, self.plan.objective
        return {
            "configuration": self.plan.name,
            "folder": str(self.plan.folder),
            "metric": objective.metric.name,
            "folds": objective.folds,
            "seed": objective.seed,
            "trials": len(self.trials),
            **{state: self.count(state) for state in ("finished", "stopped", "failed")},
            "interrupted": self.interrupted,
            "best": None if best is None else {"trial": best.number, **best.figures(), "settings": best.values},
            "own": None if own is None else own.figures(),
            "importance": self.importance,
        }


def configuration_of(config: RunConfig, spaces: Spaces, trial: TrialRecord) -> RunConfig:
    """The configuration to train with: a trial's settings, and its best epoch."""
    reset = {key: space.default for key, space in spaces.items() if space.when and not trial.own}
    return changed(config, {**reset, **trial.values, **task_of(config.task).after_trials(config, trial.epoch)})


def importance(study: Any) -> dict[str, float]:
    """How much each setting matters among the trials that were drawn (PED-ANOVA), largest first.

    The configuration's own trial is left out, since it may lie outside the spaces.
    """
    package = optuna()
    finished = study.get_trials(deepcopy=False, states=(package.trial.TrialState.COMPLETE,))
    drawn = [trial for trial in finished if not trial.user_attrs.get("own")]
    if len(drawn) < 4:
        return {}
    copy = package.create_study(direction=study.direction)
    copy.add_trials(drawn)
    try:
        with warnings.catch_warnings():  # that there are few trials is said on the page
            warnings.simplefilter("ignore")
            evaluator = package.importance.PedAnovaImportanceEvaluator()
            found = package.importance.get_param_importances(copy, evaluator=evaluator)
    except (ValueError, RuntimeError):  # all values alike, or no setting that all trials have
        return {}
    return {key: float(value) for key, value in sorted(found.items(), key=lambda item: -item[1])}


def keep(result: TuneResult) -> None:
    plan, best = result.plan, result.best
    write_atomically(plan.folder / "trials.csv", _table(result))
    if best is not None:
        config = configuration_of(plan.config, plan.spaces, best)
        write_atomically(plan.folder / "best.yaml", _head(result, best) + dump_configuration(config))
    write_atomically(plan.folder / "tune.html", tune_page(result))


def _head(result: TuneResult, best: TrialRecord) -> str:
    own, plan, objective = result.own, result.plan, result.plan.objective
    spread = f" ± {best.deviation:.4f}" if objective.folds > 1 else ""
    folds = f", mean and standard deviation of {objective.folds} trainings" if objective.folds > 1 else ""
    versions = f"rgcn {__version__}, optuna {optuna().__version__}"
    lines = [
        f"Found by `rgcn tune` from {plan.name}, {time.strftime('%Y-%m-%d')} ({versions}).",
        f"Trial {best.number}, the best of {summary(result)}; seed {objective.seed}.",
        f"V{result.metric[1:]}: {best.value:.4f}{spread}{folds}; best at epoch {best.epoch}.",
        *([] if own is None else [f"The configuration as it was: {own.value:.4f}."]),
        "The test split was not read. The best of many trials looks better than it is: measure it anew.",
        *task_of(plan.config.task).words_on_trials(plan.config, best.epoch),
    ]
    return "".join(f"# {' '.join(line.split())}\n" for line in lines)


def summary(result: TuneResult) -> str:
    words = {"finished": "finished", "stopped": "stopped early", "failed": "failed"}
    parts = [f"{n} {words[state]}" for state in words if (n := result.count(state)) or state != "failed"]
    return f"{count(len(result.trials), 'trial')}: {', '.join(parts)}"


def _table(result: TuneResult) -> str:
    text, keys = io.StringIO(), list(result.plan.spaces)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["trial", "state", "own", "value", "deviation", "epoch", "seconds", *keys, "error"])
    for trial in result.trials:
        seconds = None if trial.seconds is None else round(trial.seconds, 3)
        measured = [trial.value, trial.deviation, trial.epoch, seconds, *map(trial.values.get, keys), trial.error]
        writer.writerow([trial.number, trial.state, "yes" if trial.own else "no", *measured])
    return text.getvalue()


def tune_page(result: TuneResult) -> str:
    """The course of a study, what mattered in it, and the best ten trials, in one file."""
    content = parts(
        "tuning.html",
        result=result,
        summary=summary(result).partition(": ")[2],
        history=_history(result),
        spaces={key: described(space) for key, space in result.plan.spaces.items()},
    )
    footer = f"rgcn {__version__}, {time.strftime('%Y-%m-%d %H:%M')}"
    return page(f"Tuning {result.plan.name}", content, footer=footer)


def _history(result: TuneResult) -> Markup:
    """Every trial a dot, the best so far a line, the configuration's own ringed."""
    metric, own = result.plan.objective.metric, result.own
    finished, stopped = (
        [(trial.number, trial.value) for trial in result.trials if trial.state == state and trial.value is not None]
        for state in ("finished", "stopped")
    )
    stairs: list[Point] = []
    for number, value in finished:
        if not stairs or metric.better(value, stairs[-1][1]):
            stairs += [(number, stairs[-1][1] if stairs else value), (number, value)]
    stairs += [(trial.number, stairs[-1][1]) for trial in result.trials[-1:] if stairs]
    series = [
        Series("finished", finished, color=0, joined=False),
        Series("best so far", stairs, color=1),
        Series("stopped early, so far", stopped, color=2, joined=False),
    ]
    every = [value for _, value in (*finished, *stopped)] or [0.0]
    return line_chart(
        series,
        title=f"{result.metric} of each trial",
        x_label="trial",
        y_label=result.metric,
        marks=[] if own is None else [Mark("the configuration as it was", own.number, own.value)],
        y_range=(min(every), max(every)),
    )
