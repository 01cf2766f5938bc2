"""Tuning: trials of other settings, judged on validation alone, until the best of them is written down.

FOLDER/
  study.db     every trial, as Optuna keeps it; the same command goes on from here
  best.yaml    the best configuration, for `rgcn train`
  trials.csv   a row for each trial
  tune.html    history, importance of each setting, the best ten
"""

from collections.abc import Callable
from contextlib import closing

from rgcn.errors import ConfigError, DataError
from rgcn.runs.folder import sole_use
from rgcn.tuning import study as studies
from rgcn.tuning.result import TuneResult, importance, keep
from rgcn.tuning.spaces import choose_spaces
from rgcn.tuning.study import StudyObjective, StudyPlan, TrialRecord, check_objective

__all__ = ["StudyObjective", "StudyPlan", "TrialRecord", "TuneResult", "check_objective", "choose_spaces", "tune"]

OnTrial = Callable[[TrialRecord, TuneResult], None]


def tune(
    plan: StudyPlan, trials: int, *, jobs: int = 1, minutes: float | None = None, on_trial: OnTrial | None = None
) -> TuneResult:
    """Run trials until the study has `trials` of them, and write down what was found.

    jobs      trials at a time; with more than one, each in a process of its own with its share of the cores
    minutes   begin no more trials after so many; those under way go on to their end, and one there always is
    on_trial  called with each trial that ended, and the study as it then stands

    Ctrl-C stops whatever runs and writes down what is finished. With one job, the same seed gives the same trials.
    """
    if trials < 1 or jobs < 1:
        raise ConfigError(f"a study has at least one trial and one job; got trials = {trials}, jobs = {jobs}")
    studies.optuna()
    file = plan.folder / "study.db"
    # Ours alone: a second one at work on the study would take our running trials for dead.
    with sole_use(plan.folder, "study", "`rgcn tune`", ".tune.lock", file.exists()), studies.storage_errors(file):
        graph = studies.blinded_graph(plan)
        study = studies.open_study(plan)
        studies.begin(study, plan, graph.fingerprint)
        left, interrupted = trials - len(studies.records(study)), False
        try:
            with closing(studies.run_trials(plan, study, graph, left=left, jobs=jobs, minutes=minutes)) as numbers:
                for number in numbers:
                    if on_trial is not None:
                        known = studies.records(study)
                        ended = next(record for record in known if record.number == number)
                        on_trial(ended, TuneResult(plan, known, {}))
        except KeyboardInterrupt:
            interrupted = True
        finally:
            studies.give_up_running(study)
        result = TuneResult(plan, studies.records(study), importance(study), interrupted)
        if result.trials and result.best is None and not interrupted:
            error = next((trial.error for trial in result.trials if trial.error), "all were stopped early")
            raise DataError(f"none of {len(result.trials)} trials finished; the first failed with: {error}")
        if result.trials:
            keep(result)
        return result
