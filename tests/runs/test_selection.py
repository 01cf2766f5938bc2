"""A model is selected by validation: the same plan gives the same run, however often it is interrupted."""

import shutil
import signal
from pathlib import Path

import pytest

import rgcn
from rgcn.errors import DataError, StoppedError
from rgcn.pages.run_report import make_report
from rgcn.runs import selection as choosing
from rgcn.runs.configuration import candidate_configurations, load_configuration
from rgcn.runs.folder import RunFolder
from rgcn.runs.selection import (
    Candidate,
    ModelCost,
    Selection,
    choose,
    describe_estimate,
    plan_selection,
    read_selection,
    with_validation,
)
from rgcn.runs.training import train
from rgcn.system.progress import ProgressMeter
from rgcn.training import plan as plans

SMALL = ("model.embedding=4", "training.batch_edges=20", "checkpoints.every_minutes=null")


@pytest.fixture
def table(tmp_path: Path) -> str:
    """All people like pizza: only popularity can be learned."""
    rows = [f"p{i},likes,{'pizza' if i % 5 else f'dish{i % 3}'}\n" for i in range(60)]
    rows += [f"p{i},knows,p{(7 * i + 3) % 60}\n" for i in range(60)]
    (tmp_path / "mine.csv").write_text("".join(rows))
    return str(tmp_path / "mine.csv")


def planned(table: str, **models: tuple[int, int]) -> tuple[Selection, rgcn.KnowledgeGraph]:
    """Return a plan: models with their steps, and the steps of the second training of the best."""
    found = []
    for name, (steps, more) in models.items():
        named = [f"model.name={name}", f"training.steps={steps}", *SMALL]
        named += ["training.edge_dropout=0", "training.batch_edges=null"] if name == "popularity" else []
        config = with_validation(load_configuration(table, named))
        found.append(Candidate(name, config, is_baseline=name in ("popularity", "distmult"), longer_steps=more))
    graph = rgcn.runs.load_run_data(found[0].config)
    return Selection(1.0, graph.fingerprint, found), graph


def test_the_same_plan_gives_the_same_run_and_the_best_one_stays(table, tmp_path):
    made = []
    for name in ("one", "two"):
        selection, graph = planned(table, popularity=(0, 0), distmult=(3, 6))
        result = choose(selection, tmp_path / name, graph)
        made.append((selection.as_rows(), result.metrics, result.model.fingerprint_))
        made[-1][0][0].pop("seconds")
    assert [one["value"] for one in made[0][0]] == [one["value"] for one in made[1][0]]
    assert made[0][1:] == made[1][1:]
    kept = read_selection(tmp_path / "one")
    assert [one.name for one in kept.candidates] == ["popularity", "distmult", "distmult, longer"]
    assert [one.steps for one in kept.candidates] == [0, 3, 6]
    assert kept.chosen == kept.ranked()[0].name == "popularity"  # here a baseline should win
    assert "no graph network did better" in kept.verdict()
    # Test data are read for the selected model only.
    assert [bool(row[4]) for row in kept.rows()] == [True, False, False]
    run = RunFolder(tmp_path / "one")
    assert run.status() == "finished"
    assert not (run.path / "candidates").exists()
    assert run.result()["metrics"] == made[0][1]
    assert rgcn.load_model(run.path).evaluate(split="test")["mrr"] == made[0][1]["test"]["mrr"]
    again = train(run.config(), graph)  # the stored configuration gives the same model
    assert again.model.fingerprint_ == made[0][2]
    page = make_report(run.path).html
    assert "Model selection" in page
    assert "no graph network did better" in page


def test_a_stopped_selection_resumes_to_the_same_result(table, tmp_path):
    class StopsAtStep5(ProgressMeter):
        steps = 0

        def advance(self, amount: float = 1.0) -> None:
            self.steps += 1
            if self.steps == 5:
                signal.raise_signal(signal.SIGINT)

    whole, graph = planned(table, distmult=(8, 0))
    wanted = choose(whole, tmp_path / "whole", graph)
    selection, _ = planned(table, distmult=(8, 0))
    with pytest.raises(StoppedError, match=f"rgcn resume {tmp_path / 'cut'}"):
        choose(selection, tmp_path / "cut", graph, StopsAtStep5())
    with pytest.raises(DataError, match="model selection is not finished"):
        RunFolder(tmp_path / "cut").check()
    with pytest.raises(DataError, match="rgcn resume"):
        RunFolder(tmp_path / "cut").refuse_unless_free()
    found = choose(read_selection(tmp_path / "cut"), tmp_path / "cut", graph)
    assert found.model.fingerprint_ == wanted.model.fingerprint_
    assert found.metrics == wanted.metrics


def test_a_selection_killed_while_files_are_moved_is_finished(table, tmp_path, monkeypatch):
    selection, graph = planned(table, popularity=(0, 0))
    moved, replace = [], Path.replace

    def cut(self, target):
        if len(moved) == 2 and Path(target).parent == tmp_path / "run":
            raise KeyboardInterrupt
        moved.extend([target] if Path(target).parent == tmp_path / "run" and "candidates" in str(self) else [])
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", cut)
    with pytest.raises(KeyboardInterrupt):
        choose(selection, tmp_path / "run", graph)
    monkeypatch.undo()
    assert choose(read_selection(tmp_path / "run"), tmp_path / "run", graph).metrics["test"]["count"] > 0


def test_minutes_become_steps(table, tmp_path, monkeypatch):
    """A step takes 0.01 s, a triple a hundredth of that. A model that is too slow or fails is skipped."""
    configs = {name: with_validation(config) for name, config in candidate_configurations(table).items()}
    graph = rgcn.runs.load_run_data(configs["path"])

    def cost(plan, patience):
        if plan.config.model.title == "rgcn":
            raise DataError("it does not fit")
        return ModelCost(0.1, 10.0 if plan.config.model.title == "path" else 0.01, 1e-4, 12, 12, 1 << 20)

    monkeypatch.setattr(choosing, "cost_of", cost)
    selection, size = plan_selection(configs, graph, 1.0)
    found = {one.name: one for one in selection.candidates}
    assert found["rgcn"].skipped == "it does not fit"
    assert "--minutes" in found["path"].skipped
    assert found["popularity"].config.training.length == found["universal as it is"].config.training.length == 0
    short, more = found["universal fine-tuned"].config.training.length, found["universal fine-tuned"].longer_steps
    assert 680 < short < 730  # three models share 0.4 of 54 s, less 0.1 s before the first step
    assert 2500 < more < 3300
    assert found["distmult"].longer_steps == more  # the same cost
    assert f"{60} s" in describe_estimate(selection, size)
    assert "1 MiB" in describe_estimate(selection, size)


def test_models_are_selected_only_if_none_is_named(table, tmp_path):
    assert {"popularity", "distmult", "path", "rgcn", "c-rgcn"} < set(candidate_configurations(table))
    assert candidate_configurations(table, ["model.name=rgcn"]) == {}
    assert candidate_configurations("rgcn/lp-world") == {}
    with pytest.raises(rgcn.errors.ConfigError, match="tries several"):
        load_configuration(table)
    with pytest.raises(rgcn.errors.ConfigError, match="--minutes"):
        candidate_configurations(table, ["training.steps=3"])
    (tmp_path / "people.csv").write_text("".join(f"p{i},{'a' if i % 3 else 'b'}\n" for i in range(40)))
    classes = candidate_configurations(table, overrides={"data.labels": str(tmp_path / "people.csv")})
    assert {config.task for config in classes.values()} == {"node-classification", "classification-by-links"}
    shutil.rmtree(tmp_path, ignore_errors=True)


def test_the_most_frequent_class_is_a_candidate(table, tmp_path):
    (tmp_path / "people.csv").write_text("".join(f"p{i},{'a' if i % 3 else 'b'}\n" for i in range(40)))
    configs = candidate_configurations(table, overrides={"data.labels": str(tmp_path / "people.csv")})
    config = with_validation(configs["most frequent class"])
    result = train(config, rgcn.runs.load_run_data(config), tmp_path / "run")
    assert set(rgcn.load_model(tmp_path / "run").predict(["p0", "p1", "p2"])) == {"a"}
    assert result.metrics["test"]["accuracy"] > 0.5


def test_a_step_takes_a_part_of_a_large_graph_and_the_run_stores_its_size(table, tmp_path, monkeypatch):
    config = load_configuration(table, ["model.name=rgcn", "model.embedding=4", "training.steps=1"])
    graph = rgcn.runs.load_run_data(config)
    assert train(config, graph).config.training.batch_edges is None  # all of it
    monkeypatch.setattr(plans, "MAX_WHOLE_TRIPLES", 50)
    monkeypatch.setattr(plans, "DEFAULT_BATCH_EDGES", 30)
    train(config, graph, tmp_path / "run")
    assert RunFolder(tmp_path / "run").config().training.batch_edges == 30
    monkeypatch.setattr(plans, "available_bytes", lambda device: 2 * 46 * 4 * 7)
    assert train(config, graph).config.training.batch_edges == 7  # half of the memory
