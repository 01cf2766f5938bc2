"""What a study found: the best configuration as plain YAML, every trial as a table, all of it as a page."""

import csv
import io
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from rgcn.config import RunConfig
from rgcn.models.task import task_of
from rgcn.pages.charts import Bar, Mark, Point, Series, line_chart
from rgcn.pages.layout import page, parts
from rgcn.runs.configuration import changed, dump_configuration
from rgcn.system.atomic_files import write_atomically
from rgcn.system.formatting import count
from rgcn.tuning.spaces import Spaces, described
from rgcn.tuning.study import StudyPlan, TrialRecord, optuna
from rgcn.version import __version__

SHOWN = 10  # of the best trials, on the page


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
        finished = [trial for trial in self.trials if trial.state == "finished" and trial.value is not None]
        sign = -1 if self.plan.objective.metric.higher else 1

        def place(trial: TrialRecord) -> tuple[float, bool, float, int]:
            assert trial.value is not None
            return round(sign * trial.value, 6), not trial.own, trial.deviation or 0.0, trial.number

        return sorted(finished, key=place)

    @property
    def own(self) -> TrialRecord | None:
        return next((trial for trial in self.trials if trial.own and trial.state == "finished"), None)

    def count(self, state: str) -> int:
        return sum(trial.state == state for trial in self.trials)

    @property
    def metric(self) -> str:
        return f"validation {self.plan.objective.metric.title}"

    def as_dict(self) -> dict[str, Any]:
        best, own = self.best, self.own
        return {
            "configuration": self.plan.name,
            "folder": str(self.plan.folder),
            "metric": self.plan.objective.metric.name,
            "folds": self.plan.objective.folds,
            "seed": self.plan.objective.seed,
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
    evaluator = package.importance.PedAnovaImportanceEvaluator()
    try:
        with warnings.catch_warnings():  # that there are few trials is said on the page
            warnings.simplefilter("ignore")
            found = package.importance.get_param_importances(copy, evaluator=evaluator)
    except (ValueError, RuntimeError):  # all values alike, or no setting that all trials have
        return {}
    return {key: float(value) for key, value in sorted(found.items(), key=lambda item: -item[1])}


def keep(result: TuneResult) -> None:
    folder = result.plan.folder
    write_atomically(folder / "trials.csv", _table(result.trials, list(result.plan.spaces)))
    if result.best is not None:
        config = configuration_of(result.plan.config, result.plan.spaces, result.best)
        write_atomically(folder / "best.yaml", _head(result) + dump_configuration(config))
    write_atomically(folder / "tune.html", tune_page(result))


def _head(result: TuneResult) -> str:
    best, own, objective = result.best, result.own, result.plan.objective
    assert best is not None
    spread = f" ± {best.deviation:.4f}" if objective.folds > 1 else ""
    folds = f", mean and standard deviation of {objective.folds} trainings" if objective.folds > 1 else ""
    versions = f"rgcn {__version__}, optuna {optuna().__version__}"
    lines = [
        f"Found by `rgcn tune` from {result.plan.name}, {time.strftime('%Y-%m-%d')} ({versions}).",
        f"Trial {best.number}, the best of {summary(result)}; seed {objective.seed}.",
        f"V{result.metric[1:]}: {best.value:.4f}{spread}{folds}; best at epoch {best.epoch}.",
    ]
    if own is not None:
        lines.append(f"The configuration as it was: {own.value:.4f}.")
    lines.append("The test split was not read. The best of many trials looks better than it is: measure it anew.")
    lines += task_of(result.plan.config.task).words_on_trials(result.plan.config, best.epoch)
    return "".join(f"# {' '.join(line.split())}\n" for line in lines)


def summary(result: TuneResult) -> str:
    words = {"finished": "finished", "stopped": "stopped early", "failed": "failed"}
    parts = [f"{n} {words[state]}" for state in words if (n := result.count(state)) or state != "failed"]
    return f"{count(len(result.trials), 'trial')}: {', '.join(parts)}"


def _table(trials: Sequence[TrialRecord], keys: Sequence[str]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["trial", "state", "own", "value", "deviation", "epoch", "seconds", *keys, "error"])
    for trial in trials:
        seconds = None if trial.seconds is None else round(trial.seconds, 3)
        measured = [trial.value, trial.deviation, trial.epoch, seconds, *map(trial.values.get, keys), trial.error]
        writer.writerow([trial.number, trial.state, "yes" if trial.own else "no", *measured])
    return text.getvalue()


def tune_page(result: TuneResult) -> str:
    """The course of a study, what mattered in it, and the best ten trials, in one file."""
    plan, finished = result.plan, result.ranking
    content = parts(
        "tuning.html",
        result=result,
        summary=summary(result).partition(": ")[2],
        file=plan.folder / "best.yaml",
        history=_history(result),
        importance=[Bar(Markup("<code>{}</code>").format(key), [share]) for key, share in result.importance.items()],
        finished=finished,
        most=SHOWN,
        keys=[key for key in plan.spaces if any(key in trial.values for trial in finished)],
        value_words=_value,
        spaces={key: described(space) for key, space in plan.spaces.items()},
        failed=[trial for trial in result.trials if trial.state == "failed"],
    )
    return page(f"Tuning {plan.name}", content, footer=f"rgcn {__version__}, {time.strftime('%Y-%m-%d %H:%M')}")


def _history(result: TuneResult) -> Markup:
    """Every trial a dot, the best so far a line, the configuration's own ringed."""
    metric, own = result.plan.objective.metric, result.own
    values: dict[str, list[Point]] = {"finished": [], "stopped": []}
    for trial in result.trials:
        if trial.state in values and trial.value is not None:
            values[trial.state].append((trial.number, trial.value))
    stairs: list[Point] = []
    for number, value in values["finished"]:
        if not stairs or metric.better(value, stairs[-1][1]):
            stairs += [(number, stairs[-1][1] if stairs else value), (number, value)]
    stairs += [(trial.number, stairs[-1][1]) for trial in result.trials[-1:] if stairs]
    series = [
        Series("finished", values["finished"], color=0, joined=False),
        Series("best so far", stairs, color=1),
        Series("stopped early, so far", values["stopped"], color=2, joined=False),
    ]
    every = [value for some in values.values() for _, value in some] or [0.0]
    return line_chart(
        series,
        title=f"{result.metric} of each trial",
        x_label="trial",
        y_label=result.metric,
        marks=[] if own is None else [Mark("the configuration as it was", own.number, own.value)],
        y_range=(min(every), max(every)),
    )


def _value(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.3g}" if isinstance(value, float) else str(value)
