"""Test a task of another package, by dotted name or entry point: training, lists, reports, comparison and tuning."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import yaml
from outside import command, forgotten, installed, written_package

import rgcn
from rgcn.models import task_of
from rgcn.runs import load_configuration

# Its parts for pages and the command line come last, and are optional.
CODE = """
from markupsafe import Markup
from pydantic import Field

from rgcn.cli.output import Outcome
from rgcn.config import NodeModelConfig, NodeTrainingConfig, RunConfig
from rgcn.pages import PageSection
from rgcn.pages.reporting import SplitEvaluation, Reporting
from rgcn.models import NodeClassifier, Task
from rgcn.training.history import Metric


class Run(RunConfig):
    task: str = "NAME"
    model: NodeModelConfig = Field(default_factory=NodeModelConfig)
    training: NodeTrainingConfig = Field(default_factory=NodeTrainingConfig)


class Estimator(NodeClassifier):
    task = "NAME"

    def evaluate(self, kg=None, split="test"):
        found = super().evaluate(kg, split)
        return {"mistakes": 1.0 - found["accuracy"], "count": found["count"]}


class Mistakes(Task):
    name = "counting-mistakes"
    noun = "mistakes"
    description = "Counting mistakes: how often is it wrong?"
    metrics = (Metric("mistakes", "share of mistakes", higher_is_better=False, is_share=True),)
    validation_metrics = (Metric("loss", "loss", higher_is_better=False), Metric("accuracy", "accuracy", is_share=True))
    answers = ("classes",)
    run = "MODULE:Run"
    estimator = "MODULE:Estimator"
    parts = BRINGS

    def without_test_split(self, graph):
        return graph.without_test_labels()

    def trial_settings(self, config):
        return {"training.validation": 0.3}

    def settings_after_trials(self, config, epoch):
        return {"training.epochs": epoch}


class Pages(Reporting):
    def measure(self, model, split, on_progress=None):
        found = super().measure(model, split, on_progress)
        section = PageSection("Who is mistaken", "", Markup("<p>{:.0%} of all</p>").format(found.values["mistakes"]))
        return SplitEvaluation(split, found.values, found.tiles, [section], ["To err is human."])

    def limits(self):
        return ["It cannot do better."]


class Said(Outcome):
    def baseline(self, model, split, metrics):
        return "as people do"
"""
BRINGS = {"Reporting": "MODULE:Pages", "Outcome": "MODULE:Said"}


@pytest.fixture(params=["dotted name", "entry point", "with nothing brought"])
def stranger(request, tmp_path, monkeypatch):
    """Write a package with a task; return (configuration, name of the task in it, whether the task has parts)."""
    module = f"stranger_task_{request.param.replace(' ', '_')}"
    name = "counting" if request.param == "entry point" else f"{module}:Mistakes"
    parts = {} if "nothing" in request.param else BRINGS
    code = CODE.replace("BRINGS", repr(parts)).replace("NAME", name).replace("MODULE", module)
    written_package(tmp_path, module, code, monkeypatch)
    people = [f"p{i}" for i in range(40)]
    (tmp_path / "graph.tsv").write_text("".join(f"{p}\treads\tbook{i % 5 % 2}\n" for i, p in enumerate(people)))
    for split, some in (("train", people[:24]), ("test", people[24:])):
        (tmp_path / f"{split}.tsv").write_text("".join(f"{p}\tclass{int(p[1:]) % 2}\n" for p in some))
    data = {"path": str(tmp_path / "graph.tsv"), "labels": {s: str(tmp_path / f"{s}.tsv") for s in ("train", "test")}}
    training = {"epochs": 4, "device": "cpu"}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({"task": name, "data": data, "training": training}))
    task_of.cache_clear()
    if request.param == "entry point":
        with installed(tmp_path, "rgcn.tasks", f"counting = {module}:Mistakes"):
            yield tmp_path / "mine.yaml", name, bool(parts)
    else:
        yield tmp_path / "mine.yaml", name, bool(parts)
    task_of.cache_clear()


def done(*arguments, cwd):
    found = command(*arguments, cwd=cwd)
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_it_trains_and_is_listed_reported_compared_and_tuned(stranger):
    configuration, name, parts = stranger
    folder = configuration.parent
    output = done("train", configuration, "--out", "runs/one", "-q", cwd=folder)
    assert "test   share of mistakes" in output
    assert ("(as people do)" in output) == parts
    done("train", configuration, "--out", "runs/two", "--set", "training.learning_rate=0.5", "-q", cwd=folder)
    measured = [json.loads((folder / "runs" / run / "result.json").read_text()) for run in ("one", "two")]
    assert [result["task"] for result in measured] == [name, name]
    mistakes = [result["metrics"]["test"]["mistakes"] for result in measured]

    listed = done("runs", cwd=folder)
    assert listed.count("mistakes ") >= 2
    assert f"test share of mistakes {100 * mistakes[0]:.1f} %" in " ".join(listed.split())
    assert "share of mistakes" in done("evaluate", "runs/one", cwd=folder)

    report = json.loads(done("report", "runs/one", "--json", cwd=folder))
    assert (report["task"], report["measured"]["mistakes"], report["measured"]["count"]) == (name, mistakes[0], 16)
    page = (folder / "runs" / "one" / "report.html").read_text()
    for expected in ("how often is it wrong", "test share of mistakes", "2 relational convolutions", "Loss"):
        assert expected in page, expected
    assert ("Who is mistaken" in page, "To err is human" in page) == (parts, parts)

    card = done("card", "runs/one", cwd=folder)
    assert "share of mistakes" in card
    assert "rgcn predict RUN --nodes" in card
    assert ("It cannot do better" in card) == parts

    compared = json.loads(done("compare", "runs/one", "runs/two", "--out", "both.html", "--json", cwd=folder))
    best = [run for run, figure in zip(("one", "two"), mistakes, strict=True) if figure == min(mistakes)]
    assert compared["best"]["test"]["mistakes"] == (best if len(best) == 1 else [])
    assert "share of mistakes (lower is better)" in (folder / "both.html").read_text()

    tuned = ("tune", configuration, "--search", "model.hidden=4,8", "--fix", "all", "--trials", 2, "--out", "study")
    found = json.loads(done(*tuned, "--metric", "accuracy", "--json", "-q", cwd=folder))
    assert (found["trials"], found["metric"]) == (2, "accuracy")
    assert load_configuration(str(folder / "study" / "best.yaml")).task == name
    assert "must be loss or accuracy, not 'mistakes'" in command(*tuned, "--metric", "mistakes", cwd=folder).stderr


def test_several_seeds_are_resumed_and_the_run_can_be_opened(stranger):
    configuration, name, _ = stranger
    folder = configuration.parent
    lines = command("train", configuration, "--runs", 2, "--out", "many", cwd=folder)
    assert lines.returncode == 0, lines.stderr
    assert "seed 1: train share of mistakes" in lines.stderr
    (folder / "many" / "seed-1" / "result.json").unlink()
    assert "share of mistakes" in command("resume", "many", cwd=folder).stderr
    model = rgcn.load_model(folder / "many" / "seed-0")
    assert model.task == name
    assert set(model.measure()["test"]) == {"mistakes", "count"}


def test_a_run_of_a_task_that_is_not_allowed_is_named_with_what_to_do(stranger, monkeypatch):
    configuration, name, _ = stranger
    folder = configuration.parent
    done("train", configuration, "--out", "runs/one", "-q", cwd=folder)
    forgotten(name.partition(":")[0], monkeypatch)
    code = "from rgcn.cli import main; main()"
    place = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
    listed = subprocess.run([sys.executable, "-c", code, "runs"], cwd=folder, env=place, capture_output=True, text=True)
    if ":" in name:
        assert f"--allow {name.partition(':')[0]}" in listed.stderr
        assert "runs/one" not in listed.stdout
    else:
        assert "mistakes" in listed.stdout  # an installed package is trusted
