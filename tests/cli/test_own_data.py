"""Test `rgcn train data.csv`: several models are trained, the best is kept, and all are listed."""

from __future__ import annotations

import json

import pytest
from in_process import rgcn

from rgcn.models import answer_kind as built_in_kinds
from rgcn.runs import selection
from rgcn.runs.selection import ModelCost

FEW_CANDIDATES = {
    "links": {
        "popularity": {"plain": True, "model": {"name": "popularity"}, "training": {"steps": 0, "edge_dropout": 0}},
        "distmult": {"plain": True, "model": {"encoder": "none", "embedding": 4}, "training": {"steps": 30}},
        "rgcn": {"model": {"name": "rgcn", "embedding": 4}, "training": {"steps": 30}},
    }
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    rows = [f"p{i},likes,{'pizza' if i % 5 else f'dish{i % 3}'}\np{i},knows,p{(7 * i + 3) % 60}\n" for i in range(60)]
    (tmp_path / "mine.csv").write_text("".join(rows))
    monkeypatch.setattr(built_in_kinds, "_candidates", lambda: FEW_CANDIDATES)
    # As if a step of RGCN took a minute.
    step = {"distmult": 0.5, "rgcn": 60.0}
    cost = lambda plan, _: ModelCost(0.0, step.get(plan.config.model.title, 0.0), 1e-4, 12, 12, 1 << 20)  # noqa: E731
    monkeypatch.setattr(selection, "cost_of", cost)
    return tmp_path


def test_one_command_on_a_table(here):
    done = rgcn("train", "mine.csv", cwd=here)
    assert done.returncode == 0, done.stderr
    assert "3 models are trained in about 3 min (change it with --minutes)" in done.stderr
    assert "2 of 3 models are tried, in about 3 min; memory: about 1 MiB at most" in done.stderr
    assert "popularity: validation MRR" in done.stderr
    assert "no graph network did better" in done.stdout
    assert "skipped: a step takes 1 min" in done.stdout
    assert "Stored in runs/mine" in done.stdout
    for command in (("predict", "runs/mine", "--subject", "p1", "--relation", "likes"), ("report", "runs/mine")):
        assert rgcn(*command, cwd=here).returncode == 0
    assert "finished" in rgcn("resume", "runs/mine", cwd=here).stderr
    done = rgcn("train", "mine.csv", "--minutes", "1", "--no-keep", "--json", "--quiet", cwd=here)
    found = json.loads(done.stdout)["selection"]
    assert found[0]["name"] == "popularity"
    assert done.stderr == ""


def test_a_named_model_is_trained_without_selection_for_the_given_minutes(here):
    named = ("train", "mine.csv", "--set", "model.name=distmult", "--set", "model.embedding=4", "--quiet", "--json")
    done = rgcn(*named, "--minutes", "0.5", cwd=here)
    assert 50 < json.loads(done.stdout)["steps"] <= 60  # 0.5 s each
    assert rgcn(*named, "--minutes", "0", cwd=here).returncode == 1
    assert "--runs repeats" in rgcn("train", "mine.csv", "--runs", "2", cwd=here).stderr
    assert "tries several" in rgcn("config", "show", "mine.csv", cwd=here).stderr
