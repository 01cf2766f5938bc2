"""`rgcn tune` as a user calls it."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from rgcn.cli import main
from rgcn.models import NodeClassifier

pytest.importorskip("optuna")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    people = [f"p{i}" for i in range(20)]
    (tmp_path / "graph.tsv").write_text("".join(f"{p}\treads\tbook{i % 2}\n" for i, p in enumerate(people)))
    (tmp_path / "people.tsv").write_text("".join(f"{p}\tclass{i % 2}\n" for i, p in enumerate(people)))
    data = {"path": str(tmp_path / "graph.tsv"), "labels": str(tmp_path / "people.tsv")}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({"data": data, "training": {"epochs": 5}}))
    return tmp_path / "mine.yaml"


def _here(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """The command in this process: loading PyTorch again would take longer than the trials."""
    monkeypatch.setattr(sys, "argv", ["rgcn", "tune", *arguments])
    with pytest.raises(SystemExit) as leaving:
        main()
    return int(leaving.value.code or 0)


def test_two_jobs_make_the_trials_asked_for_and_json_is_alone_on_standard_output(
    config: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(config.parent)
    assert _here(monkeypatch, str(config), "--jobs", "2", "--folds", "1", "--trials", "3", "--json") == 0
    out, err = capfd.readouterr()
    result = json.loads(out)
    assert out.count("\n") == 1
    assert (result["trials"], result["failed"], result["folder"]) == (3, 0, str(Path("tune") / "mine"))
    assert err.count("best") == 3
    folder = config.parent / "tune" / "mine"
    assert {"best.yaml", "trials.csv", "tune.html", "study.db"} <= {path.name for path in folder.iterdir()}


def test_ctrl_c_keeps_what_is_finished_and_the_same_command_goes_on(
    config: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(config.parent)
    settings = [str(config), "--out", "study", "--folds", "1"]
    trainings: list[NodeClassifier] = []
    fit = NodeClassifier.fit

    def interrupted(self: NodeClassifier, *arguments: Any) -> NodeClassifier:
        trainings.append(self)
        if len(trainings) == 2:
            signal.raise_signal(signal.SIGINT)
        return fit(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(NodeClassifier, "fit", interrupted)
        assert _here(monkeypatch, *settings, "--trials", "5") == 128 + signal.SIGINT
    out, err = capfd.readouterr()
    assert "the same command continues" in err
    assert "1 trial: 1 finished" in out
    assert _here(monkeypatch, *settings, "--trials", "2", "--quiet") == 0
    out, err = capfd.readouterr()
    assert "2 trials: 2 finished" in out
    assert err == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rgcn/nc-aifbb"], "Did you mean 'rgcn/nc-aifb'"),
        (["rgcn/nc-world", "--timeout", "0"], "more than 0 minutes"),
        (["rgcn/nc-world", "--search", "model.hiden=1:2"], "unknown setting"),
    ],
)
def test_mistakes_are_reported_as_one_message(
    tmp_path: Path,
    arguments: list[str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert _here(monkeypatch, *arguments) == 1
    out, err = capsys.readouterr()
    assert err.startswith("rgcn: ")
    assert words in err
    assert out == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", ["--jobs", "--trials"])
@pytest.mark.parametrize("number", ["0", "-1", "1000000", "many", ""])
def test_numbers_that_cannot_be_meant_are_refused_with_their_range(
    tmp_path: Path, option: str, number: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert _here(monkeypatch, "rgcn/nc-world", option, number) == 2
    out, err = capsys.readouterr()
    assert option in err
    assert out == ""
    assert not list(tmp_path.iterdir())
