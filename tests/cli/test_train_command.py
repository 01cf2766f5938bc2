"""`rgcn train` as a user calls it."""

import json
import subprocess
import sys

import pytest
import yaml
from in_process import rgcn


def a_process(*arguments):
    """Run `rgcn ARGUMENTS` in its own process, to capture also the output of libraries."""
    command = [sys.executable, "-c", "from rgcn.cli import main; main()", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.fixture
def graph_files(tmp_path):
    """A graph whose classes follow from what its people read."""
    people = [f"p{i}" for i in range(20)]
    (tmp_path / "graph.tsv").write_text("".join(f"{p}\treads\tbook{i % 2}\n" for i, p in enumerate(people)))
    (tmp_path / "people.tsv").write_text("".join(f"{p}\tclass{i % 2}\n" for i, p in enumerate(people)))
    config = {
        "data": {"path": str(tmp_path / "graph.tsv"), "labels": str(tmp_path / "people.tsv")},
        "training": {"epochs": 5},
    }
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(config))
    return tmp_path


def test_json_is_one_object_on_standard_output_and_nothing_else(graph_files):
    out = graph_files / "run"
    changes = ("--seed", 3, "--set", "training.epochs=4")
    done = a_process("train", graph_files / "mine.yaml", *changes, "--out", out, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert done.stdout.count("\n") == 1
    assert (result["task"], result["model"], result["seed"], result["epochs"]) == ("node-classification", "rgcn", 3, 4)
    assert {"dataset", "parameters", "seconds", "metrics"} <= result.keys()
    assert 0 <= result["metrics"]["train"]["accuracy"] <= 1
    assert "epoch" in done.stderr
    assert json.loads((out / "result.json").read_text()) == result
    assert yaml.safe_load((out / "config.yaml").read_text())["training"]["epochs"] == 4
    assert len((out / "metrics.jsonl").read_text().splitlines()) == 4
    assert (out / "model" / "weights.safetensors").exists()


def test_the_embedded_graph_gives_readable_predictions():
    done = a_process("train", "rgcn/nc-world", "--set", "training.epochs=5", "--quiet")
    assert done.returncode == 0, done.stderr
    assert "Algeria" in done.stdout
    assert "accuracy" in done.stdout
    assert done.stderr == ""


def test_a_finished_run_is_not_overwritten(graph_files):
    out = graph_files / "run"
    assert rgcn("train", graph_files / "mine.yaml", "--out", out).returncode == 0
    again = rgcn("train", graph_files / "mine.yaml", "--out", out)
    assert again.returncode == 1
    assert "already holds a finished run" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "rgcn/nc-wrld"], "rgcn/nc-world"),
        (["train", "missing.yaml"], "no such file"),
        (["train", "rgcn/nc-world", "--set", "model.hiddn=3"], "hidden"),
        (["train", "rgcn/nc-world", "--device", "cuda:99"], "GPU"),
    ],
)
def test_mistakes_are_reported_without_a_traceback(arguments, words):
    done = rgcn(*arguments)
    assert done.returncode == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_configurations_are_listed():
    assert "e-rgcn/nc-am" in rgcn("configs").stdout


@pytest.mark.parametrize(("number", "more"), [(1, ()), (3, ("--runs", 2, "--jobs", 2))])
def test_threads_are_as_many_as_asked_for_in_the_command_and_in_its_processes(number, more, graph_files):
    out = graph_files / "run"
    done = a_process("train", graph_files / "mine.yaml", "--out", out, "--threads", number, *more)
    assert done.returncode == 0, done.stderr
    records = [json.loads(path.read_text()) for path in out.rglob("environment.json")]
    used = [session["hardware"]["threads"] for record in records for session in record]
    assert used == [number] * (2 if more else 1)


def test_steps_and_epochs_are_options():
    def described(*options: str) -> str:
        done = rgcn("train", "distmult/lp-world", "--dry-run", "--json", *options)
        return json.loads(done.stdout)["steps"]

    assert described("--steps", "3").startswith("3 steps")
    assert described("--epochs", "2", "--set", "training.batch_edges=10000").startswith(
        "12 steps"
    )  # in both directions
    done = rgcn("train", "distmult/lp-world", "--steps", "3", "--epochs", "2")
    assert "leave one out" in done.stderr
