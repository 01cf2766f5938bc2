"""Test that a study does not read the test split, and that it can be resumed after a kill."""

from __future__ import annotations

import csv
import itertools
import json
import math
import sqlite3
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from filelock import FileLock

from rgcn.config import RunConfig
from rgcn.config.fields import SearchSpace
from rgcn.errors import ConfigError, DataError, UnknownNameError
from rgcn.graph import KnowledgeGraph, NodeLabels
from rgcn.graph.vocabulary import Vocabulary
from rgcn.models.task import ACCURACY, LOSS, task_of
from rgcn.runs import load_configuration
from rgcn.runs.worker_pool import TaskResult
from rgcn.training.history import Metric, TrainingReport
from rgcn.tuning import StudyPlan, TuneResult, check_objective, choose_spaces, tune
from rgcn.tuning import study as studies
from rgcn.tuning.result import configuration_of
from rgcn.tuning.spaces import draw, values_in_spaces
from rgcn.tuning.study import StudyObjective, evaluate, trial_settings
from threads_as_processes import (
    Behavior,
    ThreadWorkers,
    dies_after_receiving,
    dies_after_sending,
    dies_at_once,
    dies_at_work,
    stays_alive,
)

pytest.importorskip("optuna")
SEARCH = ["training.learning_rate=0.001:0.1:log", "model.hidden=4,8"]


@pytest.fixture
def people(tmp_path: Path) -> Path:
    """Write a configuration: people whose class mostly follows from what they read; a third are in test."""
    (tmp_path / "graph.tsv").write_text(
        "".join(
            f"p{i}\treads\tbook{i % 2 if i % 5 else (i + 1) % 2}\np{i}\tlikes\tp{(i * 7) % 30}\n" for i in range(30)
        )
    )
    for split, chosen in (("train", range(20)), ("test", range(20, 30))):
        (tmp_path / f"{split}.tsv").write_text("".join(f"p{i}\tclass{i % 2}\n" for i in chosen))
    data = {
        "path": str(tmp_path / "graph.tsv"),
        "labels": {split: str(tmp_path / f"{split}.tsv") for split in ("train", "test")},
    }
    (tmp_path / "people.yaml").write_text(yaml.safe_dump({"data": data, "training": {"epochs": 5}}))
    return tmp_path / "people.yaml"


def _plan(file: Path, folder: str = "study", search: list[str] = SEARCH, folds: int = 1, **changes: Any) -> StudyPlan:
    config = load_configuration(str(file), [f"{key}={value}" for key, value in changes.items()])
    objective = check_objective(config, None, folds, config.seed)
    return StudyPlan(str(file), config, choose_spaces(config, search, ["all"]), objective, file.parent / folder)


def _trials(result: TuneResult) -> list[tuple[Any, ...]]:
    return [(t.state, t.value, t.epoch, t.settings) for t in result.trials]


# -- the study ---------------------------------------------------------------------------------------------


def test_a_study_killed_and_continued_ends_as_an_uninterrupted_one(people: Path, monkeypatch: Any) -> None:
    whole = tune(_plan(people, folds=2), 5)
    plan = _plan(people, "again", folds=2)

    def killed(trial: Any, result: TuneResult) -> None:
        if len(result.trials) == 3:
            raise KeyboardInterrupt

    assert tune(plan, 5, on_trial=killed).interrupted
    studies.ask(studies.open_study(plan))  # a process that dies in the middle of a trial leaves it running
    result = tune(plan, 5)
    assert _trials(result) == _trials(whole)
    assert len(result.trials) == 5
    assert tune(plan, 5).best == result.best  # all trials are finished

    folder = plan.folder
    best, unchanged = result.best, result.unchanged
    assert best is not None
    assert unchanged is not None
    assert unchanged.number == 0
    assert best.value is not None
    assert best.value == max(t.value for t in result.trials if t.state == "finished" and t.value is not None)
    found = load_configuration(str(folder / "best.yaml"))
    assert found.training.epochs == best.epoch
    assert found.training.learning_rate == best.settings["training.learning_rate"]
    assert (folder / "best.yaml").read_text().startswith("# Found by `rgcn tune`")
    rows = list(csv.DictReader((folder / "trials.csv").open(newline="")))
    assert [row["unchanged"] for row in rows] == ["yes"] + ["no"] * 4
    page = (folder / "tune.html").read_text(encoding="utf-8")
    assert "training.learning_rate" in page
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_failed_trials_give_their_draws_to_the_next(people: Path) -> None:
    plan = _plan(people)
    plan.folder.mkdir()
    study = studies.open_study(plan)

    def drawn() -> float:
        return studies.ask(study).suggest_float("x", 0, 1)

    failed, ended = drawn(), drawn()
    study.tell(1, 0.5)
    studies.fail_running(study)
    after = [drawn() for _ in range(3)]
    assert after[0] == failed
    assert len({ended, *after}) == 4


def test_other_test_labels_give_the_same_study(people: Path) -> None:
    before = tune(_plan(people, folds=2), 3)
    (people.parent / "test.tsv").write_text("".join(f"p{i}\tnonsense{i % 3}\n" for i in range(29, 19, -1)))
    after = tune(_plan(people, "other", folds=2), 3)
    assert _trials(after) == _trials(before)
    assert len(tune(_plan(people, folds=2), 3).trials) == 3  # the study has the same identity


def test_a_folder_of_another_study_is_refused_and_says_what_differs(people: Path) -> None:
    tune(_plan(people), 1)
    with pytest.raises(ConfigError, match=r"another study(.|\n)*training\.epochs: 5 there, 6 here"):
        tune(_plan(people, **{"training.epochs": 6}), 1)
    with pytest.raises(ConfigError, match=r"search model\.hidden: 4, 8 there, 4, 16 here"):
        tune(_plan(people, search=[SEARCH[0], "model.hidden=4,16"]), 1)
    (people.parent / "train.tsv").write_text("".join(f"p{i}\tclass{i % 2}\n" for i in range(18)))
    with pytest.raises(ConfigError, match=r"data: .* there"):
        tune(_plan(people), 1)


def test_a_folder_with_something_else_and_a_damaged_study_are_refused(people: Path) -> None:
    with pytest.raises(DataError, match="holds no study"):
        tune(replace(_plan(people), folder=people.parent), 1)
    with pytest.raises(DataError, match="is a file"):
        tune(replace(_plan(people), folder=people), 1)
    folder = people.parent / "study"
    folder.mkdir()
    (folder / "study.db").write_bytes(b"not a database, but long enough to be looked at" * 50)
    with pytest.raises(DataError, match="damaged"):
        tune(_plan(people), 1)
    (folder / "study.db").unlink()
    sqlite3.connect(folder / "study.db").execute("create table version_info (x)")
    with pytest.raises(DataError, match="cannot be used"):
        tune(_plan(people), 1)


def test_two_at_once_in_one_folder_are_refused(people: Path) -> None:
    plan = _plan(people)
    plan.folder.mkdir()
    with FileLock(plan.folder / ".tune.lock"), pytest.raises(DataError, match="another `rgcn tune` is at work"):
        tune(plan, 1)


def test_settings_that_cannot_be_trained_are_failed_trials(people: Path) -> None:
    plan = _plan(people, search=["training.learning_rate=1.0e+30,0.01"])
    result = tune(plan, 4)
    states = {t.settings["training.learning_rate"]: t.state for t in result.trials}
    assert states == {0.01: "finished", 1e30: "failed"}
    assert "not finite" in next(t.error for t in result.trials if t.error)  # type: ignore[operator]
    assert result.best is not None
    assert result.best.is_unchanged


def test_incompatible_settings_are_drawn_again(people: Path) -> None:
    plan = _plan(people, search=["model.hidden=6,8", "model.decomposition=none,block", "model.blocks=4"])
    result = tune(plan, 5)
    assert len(result.trials) == 5
    assert {t.state for t in result.trials} <= {"finished", "stopped"}
    drawn = [t.settings for t in result.trials if not t.is_unchanged]
    assert all("model.blocks" in v for v in drawn if v["model.decomposition"] == "block")
    assert all("model.blocks" not in v for v in drawn if v["model.decomposition"] == "none")
    assert not any(v["model.hidden"] == 6 and v["model.decomposition"] == "block" for v in drawn)


def test_a_crashed_process_fails_one_trial(people: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ThreadWorkers(monkeypatch, [dies_at_work])
    result = tune(_plan(people), 4, jobs=2)
    assert len(result.trials) == 4
    assert [t.error for t in result.trials if t.error] == ["its process ended without an error message (exit code -9)"]


def test_processes_that_crash_without_a_trial_fail_none(people: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ThreadWorkers(monkeypatch, [dies_at_once, dies_after_sending(TaskResult)])
    numbers: list[int] = []
    result = tune(_plan(people), 4, jobs=2, on_trial=lambda trial, _: numbers.append(trial.number))
    assert sorted(numbers) == [t.number for t in result.trials] == [0, 1, 2, 3]
    assert {t.state for t in result.trials} <= {"finished", "stopped"}


def test_a_trial_whose_process_dies_before_taking_it_goes_to_another(
    people: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ThreadWorkers(monkeypatch, [dies_after_receiving])
    result = tune(_plan(people), 2, jobs=2)
    assert [(t.number, t.is_unchanged, t.error) for t in result.trials] == [(0, True, None), (1, False, None)]


@pytest.mark.parametrize(("behavior", "failed"), [(dies_at_once, 0), (dies_at_work, 3)])
def test_processes_that_keep_dying_end_the_study(
    people: Path, monkeypatch: pytest.MonkeyPatch, behavior: Behavior, failed: int
) -> None:
    workers = ThreadWorkers(monkeypatch, [behavior] * 9)
    with pytest.raises(DataError, match=r"3 processes in a row died, the last with: .*exit code -9"):
        tune(_plan(people), 9, jobs=2)
    assert len(workers.started) <= 5
    assert not any(worker.process.is_alive() for worker in workers.started)
    states = [t.state for t in tune(_plan(people), 5).trials]
    assert (len(states), states.count("failed")) == (5, failed)


def test_no_more_processes_are_started_than_there_are_trials(people: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workers = ThreadWorkers(monkeypatch, [stays_alive, dies_at_work])
    tune(_plan(people), 2, jobs=4)
    assert len(workers.started) == 2
    assert not any(worker.process.is_alive() for worker in workers.started)


def test_a_timeout_begins_no_more_trials(people: Path) -> None:
    assert len(tune(_plan(people), 50, minutes=1e-6).trials) == 1


def test_a_timeout_lets_trials_under_way_end(people: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    both_under_way = threading.Barrier(2, action=lambda: now.append(61.0), timeout=60)
    monkeypatch.setattr("rgcn.tuning.study.monotonic", lambda: now[-1])
    _script(monkeypatch, [(0.5, 1.0)], before=both_under_way.wait)
    ThreadWorkers(monkeypatch)
    result = tune(_plan(people), 50, jobs=2, minutes=1)
    assert [t.state for t in result.trials] == ["finished", "finished"]


def test_without_optuna_the_extra_is_named(people: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigError, match=r"pip install 'rgcn\[tune\]'"):
        tune(_plan(people), 1)


# -- the objective -----------------------------------------------------------------------------------------


def _labeled() -> KnowledgeGraph:
    kg = KnowledgeGraph.from_triples([(f"n{i}", "r", f"n{(i + 1) % 12}") for i in range(12)])
    return kg.with_labels(
        {"train": {f"n{i}": f"c{i % 2}" for i in range(8)}, "test": {f"n{i}": f"c{i % 3}" for i in range(8, 12)}}
    )


def test_test_labels_are_removed_completely() -> None:
    seen = _labeled().without_test_labels().labels
    assert seen is not None
    assert seen.counts() == {"train": 8}
    assert list(seen.names) == ["c0", "c1"]  # c2 is a class of test nodes only


def test_trials_fail_if_a_test_label_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test split of the graph that trials get is empty in every attribute."""
    config = load_configuration("rgcn/nc-world", ["training.epochs=2"])
    seen: list[KnowledgeGraph] = []
    from rgcn.models import NodeClassifier

    fit = NodeClassifier.fit

    def watched(self: NodeClassifier, kg: KnowledgeGraph, on_report: Any = None) -> NodeClassifier:
        seen.append(kg)
        return fit(self, kg, on_report)

    monkeypatch.setattr(NodeClassifier, "fit", watched)
    import rgcn

    graph = task_of(config.task).without_test_split(rgcn.load("world"))
    evaluate(trial_settings(config), graph, StudyObjective(ACCURACY, 2, 0), lambda p, v: None)
    assert len(seen) == 2
    assert all(kg.labels is not None and "test" not in kg.labels.counts() for kg in seen)


def test_test_triples_and_their_nodes_are_removed() -> None:
    splits = np.array([0, 0, 1, 2], dtype=np.int8)
    kg = KnowledgeGraph.from_triples(
        [("a", "r", "b"), ("b", "r", "c"), ("a", "r", "c"), ("a", "secret", "d")], triple_splits=splits
    )
    seen = kg.without_test_triples()
    assert (list(seen.nodes), list(seen.relations), len(seen)) == (["a", "b", "c"], ["r"], 3)


@pytest.mark.parametrize(("metric", "title"), [(None, "MRR"), ("hits@10", "hits@10"), ("mean_rank", "mean rank")])
def test_link_prediction_is_judged_by_any_metric_it_reports(metric: str | None, title: str, tmp_path: Path) -> None:
    config = load_configuration("distmult/lp-world", ["training.steps=20", "training.evaluate_every=null"])
    spaces = choose_spaces(config, ["training.learning_rate=0.01:0.1:log"], ["all"])
    plan = StudyPlan("distmult/lp-world", config, spaces, check_objective(config, metric, None, 0), tmp_path / "study")
    result = tune(plan, 2)
    assert result.metric == f"validation {title}"
    assert result.best is not None
    values = [trial.value for trial in result.trials if trial.state == "finished" and trial.value is not None]
    assert result.best.value == (min if metric == "mean_rank" else max)(values)
    assert result.best.epoch in range(2, 21, 2)
    found = load_configuration(str(tmp_path / "study" / "best.yaml"))
    assert (found.training.steps, found.training.evaluate_every) == (20, 2)


def test_a_graph_without_validation_triples_is_refused() -> None:
    config = load_configuration("distmult/lp-world")
    kg = KnowledgeGraph.from_triples([("a", "r", "b")])
    with pytest.raises(DataError, match="needs validation triples"):
        task_of(config.task).without_test_split(kg)


Course = list[tuple[float, float]]  # validation accuracy and loss of each epoch


def _script(monkeypatch: pytest.MonkeyPatch, *courses: Course, before: Any = None) -> None:
    """Simulate trainings with these metrics, in turn and repeatedly."""
    turns = itertools.cycle(courses)

    class Scripted:
        def fit(self, graph: KnowledgeGraph, on_report: Any) -> None:
            if before is not None:
                before()
            for number, (accuracy, loss) in enumerate(next(turns), 1):
                on_report(TrainingReport(number, 1.0, 0.1, {"valid_loss": loss, "valid_accuracy": accuracy}))

    monkeypatch.setattr("rgcn.tuning.study.make_model", lambda config: Scripted())


def _best(monkeypatch: pytest.MonkeyPatch, metric: Metric, *courses: Course) -> tuple[int, list[float]]:
    _script(monkeypatch, *courses)
    config = load_configuration("rgcn/nc-world", ["training.epochs=4"])
    found = evaluate(config, _labeled(), StudyObjective(metric, len(courses), 0), lambda point, value: None)
    return found.epoch, found.folds


def test_the_best_epoch_is_where_the_mean_is_best_then_where_the_loss_is_lowest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    short = [(0.5, 3.0), (0.8, 2.0), (0.9, 1.0)]  # lost patience after three epochs
    long = [(0.5, 3.0), (0.9, 2.0), (0.8, 1.0), (0.9, 1.0)]
    assert _best(monkeypatch, ACCURACY, long, short) == (4, [0.9, 0.9])
    long[3] = (0.8, 1.0)
    assert _best(monkeypatch, ACCURACY, long, short) == (3, [0.8, 0.9])  # as good as 2, with a lower loss
    assert _best(monkeypatch, LOSS, [(0.5, 0.4), (0.4, 0.3)]) == (2, [0.3])


@pytest.mark.parametrize("metric", [ACCURACY, LOSS], ids=["accuracy", "loss"])
def test_a_validation_metric_that_is_not_finite_is_a_failed_trial(
    metric: Metric, people: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _script(monkeypatch, [(0.5, 1.0)], [(0.9, 1.0), (0.9, math.nan)], [(0.9, math.inf)])
    plan = replace(_plan(people), objective=StudyObjective(metric, 1, 0))
    result = tune(plan, 3)
    assert [t.state for t in result.trials] == ["finished", "failed", "failed"]
    assert [t.error for t in result.trials[1:]] == [
        f"DataError: the validation loss is not finite in epoch {epoch}" for epoch in (2, 1)
    ]


def test_own_validation_labels_are_used_where_there_are_some() -> None:
    labels = _labeled().labels
    assert labels is not None
    splits = labels.splits.copy()
    splits[:4] = 1
    kg = replace(_labeled(), labels=NodeLabels(labels.nodes, labels.classes, Vocabulary(list(labels.names)), splits))
    assert kg.without_test_labels().labels.counts() == {"train": 4, "valid": 4}  # type: ignore[union-attr]


@pytest.mark.parametrize(("metric", "folds"), [("mrr", 1), ("accuracy", 0)])
def test_an_impossible_objective_is_refused(metric: str, folds: int) -> None:
    with pytest.raises(ConfigError, match=r"--metric|--folds"):
        check_objective(load_configuration("rgcn/nc-aifb"), metric, folds, 0)


# -- the spaces --------------------------------------------------------------------------------------------


def _aifb() -> RunConfig:
    return load_configuration("rgcn/nc-aifb")


def test_declared_spaces_follow_the_configuration() -> None:
    ours, theirs = choose_spaces(_aifb()), choose_spaces(load_configuration("e-rgcn/nc-aifb"))
    assert "model.hidden" in ours
    assert "model.embedding" not in ours
    assert "model.embedding" in theirs
    assert "training.epochs" not in ours  # the best epoch is found by validation
    assert list(ours).index("model.decomposition") < list(ours).index("model.bases")
    assert "model.decomposition" not in choose_spaces(_aifb(), fixed=["model.decomposition"])
    assert "model.bases" not in choose_spaces(_aifb(), fixed=["model.decomposition"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("training.learning_rate", "key=low:high"),
        ("training.learning_rate=", "key=low:high"),
        ("training.learning_rate=a:b", "two numbers"),
        ("training.learning_rate=0.1:0.01", "below high"),
        ("training.learning_rate=0:0.1:log", "above 0 with log"),
        ("training.learning_rate=0.1:1:linear", "only log"),
        ("training.learning_rate=-1:1", "must be greater than 0"),
        ("model.hidden=1.5:3", "whole numbers"),
        ("model.hidden=0:4", "greater than or equal to 1"),
        ("model.decomposition=none:basis", "two numbers"),
        ("model.decomposition=none,bases", "did you mean 'basis'"),
        ("model.normalization=1:2", "is not a number"),
        ("seed=1,2", "cannot be searched"),
        ("data.dataset=aifb,mutag", "cannot be searched"),
    ],
)
def test_an_invalid_space_is_explained(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        choose_spaces(_aifb(), [text])


def test_unknown_settings_are_named_with_the_closest() -> None:
    with pytest.raises(UnknownNameError, match=r"training\.learning_rate"):
        choose_spaces(_aifb(), ["training.learning_rat=1:2"])
    with pytest.raises(UnknownNameError, match=r"model\.hidden"):
        choose_spaces(_aifb(), fixed=["model.hiden"])
    with pytest.raises(ConfigError, match="no setting is left"):
        choose_spaces(_aifb(), fixed=["all"])


class _Fixed:
    """A trial with given values, like Optuna's FixedTrial."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    def suggest_categorical(self, key: str, choices: list[Any]) -> Any:
        return self.values.get(key, choices[0])

    def suggest_int(self, key: str, low: int, high: int, log: bool) -> int:
        return int(self.values.get(key, low))

    def suggest_float(self, key: str, low: float, high: float, log: bool) -> float:
        return float(self.values.get(key, low))


def test_what_depends_on_another_choice_is_drawn_or_reset() -> None:
    config = load_configuration("rgcn/nc-mutag")  # decomposition: basis, bases: 30
    spaces = choose_spaces(config)
    assert draw(_Fixed({"model.decomposition": "none"}), config, spaces).model.bases is None  # type: ignore[arg-type]
    drawn = draw(_Fixed({"model.decomposition": "basis", "model.bases": 12}), config, spaces)  # type: ignore[arg-type]
    assert drawn.model.bases == 12
    trial = studies.TrialRecord(1.0, None, 0.5, 7, number=3, state="finished", settings={"model.decomposition": "none"})
    found = configuration_of(config, spaces, trial)
    assert (found.model.bases, found.training.epochs) == (None, 7)


def test_values_in_spaces_outside_a_space_are_not_forced_into_it() -> None:
    spaces = {
        "training.weight_decay": SearchSpace(low=1e-6, high=1e-2, log=True),
        "training.learning_rate": SearchSpace(low=1e-3, high=0.1, log=True),
    }
    assert values_in_spaces(_aifb(), spaces) == {"training.learning_rate": 0.01}


def test_a_plan_can_be_written_as_json() -> None:
    plan = StudyPlan("x", _aifb(), choose_spaces(_aifb()), StudyObjective(ACCURACY, 3, 0), Path("x"))
    assert json.loads(json.dumps(plan.identity("data"))) == plan.identity("data")
