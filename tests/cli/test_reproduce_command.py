"""`rgcn reproduce` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rgcn.cli import studies
from rgcn.cli.commands import app
from rgcn.errors import ConfigError


@pytest.fixture
def requested(monkeypatch):
    """Return the arguments of the reproduction, which is replaced by a function that trains nothing."""
    arguments = {}

    def trained(names, plan, quiet):
        arguments.update(names=names, plan=plan, quiet=quiet)
        return dict.fromkeys(names, "not trained here"), []

    monkeypatch.setattr(studies, "_train", trained)
    return arguments


def invoke(*arguments):
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)])


def test_several_names_can_be_given(requested):
    done = invoke("node-classification", "--datasets", "aifb", "mutag", "--runs", 10)
    assert done.exit_code == 0, done.output
    assert requested["names"] == ["rgcn/nc-aifb", "e-rgcn/nc-aifb", "rgcn/nc-mutag", "e-rgcn/nc-mutag"]
    assert requested["plan"].runs_of("rgcn/nc-aifb") == 10


@pytest.mark.parametrize(
    ("typed", "names"),
    [
        (["--datasets", "aifb", "--datasets", "mutag", "--models", "rgcn"], ["rgcn/nc-aifb", "rgcn/nc-mutag"]),
        (["--models", "e-rgcn", "rgcn", "--datasets", "AIFB"], ["rgcn/nc-aifb", "e-rgcn/nc-aifb"]),
        (["--datasets", "aifb,mutag", "e-rgcn"], ["e-rgcn/nc-aifb", "e-rgcn/nc-mutag"]),
        (["am"], ["rgcn/nc-am", "e-rgcn/nc-am"]),
    ],
)
def test_names_can_be_given_by_model_or_data_set(requested, typed, names):
    assert invoke("node-classification", *typed).exit_code == 0
    assert requested["names"] == names


def test_everything_by_default(requested):
    assert invoke("node-classification").exit_code == 0
    assert len(requested["names"]) == 8
    assert requested["plan"].runs_of("rgcn/nc-aifb") == 10
    assert invoke("link-prediction").exit_code == 0
    assert requested["names"] == ["rgcn/lp-wn18", "c-rgcn/lp-wn18", "rgcn/lp-fb-toy"]
    assert [requested["plan"].runs_of(name) for name in requested["names"]] == [1, 1, 10]
    assert requested["plan"].folder == Path("runs/reproduction")


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["node-classification", "--datasets", "mutagg"], "mutag"),
        (["node-classification", "wn18"], "wn18"),
        (["node-classification", "--models", "c-rgcn"], "model"),
        (["link-prediction", "--models", "c-rgcn", "--datasets", "fb-toy"], "no result of c-rgcn on fb-toy"),
    ],
)
def test_mistakes_are_reported(requested, typed, words):
    done = invoke(*typed)
    assert done.exit_code != 0
    assert words in str(done.exception)
    assert not requested


def test_a_failed_run_is_reported_at_the_end(monkeypatch):
    monkeypatch.setattr(studies, "_train", lambda *_: ({"rgcn/nc-aifb": "all failed"}, ["rgcn/nc-aifb, seed 3: x"]))
    done = invoke("node-classification", "aifb")
    assert done.exit_code == 1
    assert "seed 3: x" in done.stderr
    assert "AIFB, RGCN" in done.stdout


def test_json_is_one_document_and_files_are_written(requested, tmp_path):
    files = tmp_path / "deep" / "report.md", tmp_path / "report.html"
    done = invoke("node-classification", "aifb", "--json", "--quiet", "--markdown", files[0], "--html", files[1])
    assert done.exit_code == 0, done.output
    read = json.loads(done.stdout)
    assert read["tables"][0]["name"] == "node-classification"
    assert {"command", "date", "machine"} <= read.keys()
    assert "95.56 ± 0.61" in files[0].read_text(encoding="utf-8")
    assert "95.56 ± 0.61" in files[1].read_text(encoding="utf-8")


@pytest.mark.needs_data("aifb")
def test_a_trial_runs_and_is_resumed(tmp_path, monkeypatch, real_mirror):
    monkeypatch.chdir(tmp_path)
    typed = ["node-classification", "--datasets", "aifb", "rgcn", "--mirror", real_mirror]
    typed += ["--set", "training.epochs=1", "--runs"]
    done = invoke(*typed, 1)
    assert done.exit_code == 0, done.output
    assert "1/1  seed 0: " in done.stderr
    assert "CHANGED by --set training.epochs=1" in done.stdout
    again = invoke(*typed, 2, "--json")
    assert "1/2  seed 0: " in again.stderr
    assert "not run again" in again.stderr
    assert json.loads(again.stdout)["tables"][0]["rows"][0]["runs"] == 2
    assert "--fresh" in str(invoke(*typed, 1, "--fresh").exception)


@pytest.mark.needs_data("fb-toy")
def test_tensor_statistics_as_json_and_as_a_table(real_mirror):
    done = invoke("tensor-statistics", "--seeds", 1, "--mirror", real_mirror, "--json", "-q")
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)["tables"][0]["rows"]
    assert len(rows) == 28
    assert all("within" in row["published"][0]["verdict"] for row in rows if row["quantity"] == "std")
    done = invoke("tensor-statistics", "--seeds", 1, "--mirror", real_mirror, "-q")
    assert "0.27715" in done.stdout
    assert "DistMult, output" in done.stdout


def test_zero_seeds_are_refused():
    done = invoke("tensor-statistics", "--seeds", 0)
    assert done.exit_code != 0


@pytest.mark.parametrize("typed", [["--datasets", ""], ["--models", " "], [""], ["--datasets", "aifb,"]])
def test_an_empty_name_is_refused(requested, typed):
    done = invoke("node-classification", *typed)
    assert isinstance(done.exception, ConfigError)
    assert "without a name" in str(done.exception)
    assert requested == {}


def test_an_excessive_number_of_runs_or_jobs_is_refused(requested):
    for option in ("--runs", "--jobs"):
        assert invoke("node-classification", "aifb", option, 10**7).exit_code == 2
    assert requested == {}
