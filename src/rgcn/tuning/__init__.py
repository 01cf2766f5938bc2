"""Hyperparameter tuning: trials of other settings, judged on validation data only, with Optuna.

FOLDER/
  study.db     every trial, in Optuna's storage; the same command continues the study
  best.yaml    the best configuration, for `rgcn train`
  trials.csv   one row per trial
  tune.html    history, importance of each setting, the best ten trials
"""

from collections.abc import Callable
from contextlib import closing

from rgcn.errors import ConfigError, DataError
from rgcn.runs.folder import exclusive_lock
from rgcn.tuning import study as studies
from rgcn.tuning.result import TuneResult, importance, save
from rgcn.tuning.spaces import choose_spaces
from rgcn.tuning.study import StudyObjective, StudyPlan, TrialRecord, check_objective

__all__ = ["StudyObjective", "StudyPlan", "TrialRecord", "TuneResult", "check_objective", "choose_spaces", "tune"]

OnTrial = Callable[[TrialRecord, TuneResult], None]


def tune(
    plan: StudyPlan, trials: int, *, jobs: int = 1, minutes: float | None = None, on_trial: OnTrial | None = None
) -> TuneResult:
    """Run trials until the study has `trials` of them, and write the results to its folder.

    Ctrl-C stops the running trials, and writes the results of the finished ones. With one job, the same seed gives the
    same trials.

    Args:
        plan: The study.
        trials: Number of trials that the study should have.
        jobs: Number of trials at a time. Each of several runs in its own process with its share of the cores.
        minutes: Start no more trials after this time. Running ones finish, and at least one is run.
        on_trial: Called after each trial with its record and the results so far.

    Returns:
        The results.

    Raises:
        ConfigError: The folder holds another study.
        DataError: No trial finished, or the study cannot be read.
    """
    if trials < 1 or jobs < 1:
        raise ConfigError(f"a study needs at least one trial and one job; got trials = {trials}, jobs = {jobs}")
    studies.optuna()
    file = plan.folder / "study.db"
    # Exclusive, because a second process would mark our running trials as failed.
    with exclusive_lock(plan.folder, "study", "`rgcn tune`", ".tune.lock", file.exists()), studies.storage_errors(file):
        graph = studies.graph_of_trials(plan)
        study = studies.open_study(plan)
        studies.begin(study, plan, graph.fingerprint)
        left, interrupted = trials - len(studies.records(study)), False
        try:
            with closing(studies.run_trials(plan, study, graph, left=left, jobs=jobs, minutes=minutes)) as numbers:
                for number in numbers:
                    if on_trial is not None:
                        records = studies.records(study)
                        ended = next(record for record in records if record.number == number)
                        on_trial(ended, TuneResult(plan, records, {}))
        except KeyboardInterrupt:
            interrupted = True
        finally:
            studies.fail_running(study)
        result = TuneResult(plan, studies.records(study), importance(study), interrupted)
        if result.trials and result.best is None and not interrupted:
            error = next((trial.error for trial in result.trials if trial.error), "all were stopped early")
            raise DataError(f"none of {len(result.trials)} trials finished; the first failed with: {error}")
        if result.trials:
            save(result)
        return result
