"""Link prediction from the command line: `rgcn train` and `rgcn reproduce tensor-statistics`."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

import pytest
import yaml

from rgcn.cli import main
from rgcn.links.ranking import summarize
from rgcn.models import LinkPredictor


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def rgcn(monkeypatch, capsys):
    """Return a function that runs a command line in this process and returns its output and exit code."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["rgcn", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        printed = capsys.readouterr()
        return Done(code, printed.out, printed.err)

    return run


@pytest.fixture
def split_files(tmp_path):
    """Write three splits, with names that contain markup of the terminal library."""
    rows = [f"[p{i}]\tr[/]\t[/q{i % 3}]\n" for i in range(12)]
    folder = tmp_path / "graph"
    folder.mkdir()
    (folder / "train.txt").write_text("".join(rows[:8]))
    (folder / "valid.txt").write_text("".join(rows[8:10]))
    (folder / "test.txt").write_text("".join(rows[10:]))
    config = {
        "task": "link-prediction",
        "data": {"path": str(folder)},
        "model": {"name": "distmult", "embedding": 4},
        "training": {"steps": 4, "device": "cpu"},
    }
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(config))
    return tmp_path


@pytest.mark.parametrize("model", ["rgcn", "c-rgcn", "distmult"])
def test_json_of_a_link_predictor(rgcn, model):
    changes = ("--set", "training.steps=3", "--set", "model.embedding=16", "--set", "training.evaluate_every=2")
    done = rgcn("train", f"{model}/lp-world", *changes, "--seed", 1, "--json", "--quiet")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    result = json.loads(done.stdout)
    assert (result["task"], result["model"], result["dataset"]) == ("link-prediction", model, "world")
    assert (result["seed"], result["steps"]) == (1, 3)
    assert result["parameters"] == result["stored_parameters"] > 2363 * 16
    assert set(result["metrics"]) == {"valid", "test"}
    for metrics in result["metrics"].values():
        assert set(metrics) == {"mrr", "hits@1", "hits@3", "hits@10", "mean_rank", "count"}
        assert 0 < metrics["mrr"] <= 1


def test_metrics_and_answers_are_printed_with_any_names(rgcn, split_files):
    out = split_files / "run"
    done = rgcn("train", split_files / "mine.yaml", "--out", out)
    assert done.returncode == 0, done.stderr
    assert "MRR" in done.stdout
    assert "4 filtered questions" in done.stdout
    assert "[p10] —r[/]→ ?" in done.stdout
    assert "[/q1]" in done.stdout
    assert "step 4/4  loss" in done.stderr
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [line["number"] for line in lines] == [1, 2, 3, 4]
    kept = json.loads((out / "result.json").read_text())
    loaded = LinkPredictor.load(out / "model")
    assert summarize(loaded.ranks(split="test")).both.as_dict() == kept["metrics"]["test"]


def test_a_graph_without_splits_trains_and_shows_training_triples(rgcn, tmp_path):
    (tmp_path / "graph.tsv").write_text("".join(f"n{i}\tr\tn{i + 1}\n" for i in range(5)))
    config = {
        "task": "link-prediction",
        "data": {"path": str(tmp_path / "graph.tsv"), "split": None},
        "training": {"steps": 2},
    }
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(config))
    done = rgcn("train", tmp_path / "mine.yaml", "--quiet", "--set", "model.embedding=4")
    assert done.returncode == 0, done.stderr
    assert "5 of 5 train triples" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "rgcn/lp-wrld"], "rgcn/lp-world"),
        (["train", "c-rgcn/lp-world", "--set", "model.bottelneck=3"], "bottleneck"),
        (["train", "c-rgcn/lp-world", "--set", "training.evaluate_every=null", "--set", "training.patience=2"], "eval"),
    ],
)
def test_mistakes_are_reported_as_one_message(rgcn, arguments, words):
    done = rgcn(*arguments)
    assert done.returncode == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
