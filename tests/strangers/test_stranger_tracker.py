"""Test that a tracker of another package gets the same calls as a built-in one, also after a resume."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from outside import command, forgotten, installed, written_package

import rgcn
from rgcn.config import NodeClassificationRun
from rgcn.errors import ConfigError
from rgcn.plugins import TRACKERS
from rgcn.runs import load_configuration, resume, train
from rgcn.runs.configuration import run_schema

PACKAGE = "stranger_tracking"
MINE = f"{PACKAGE}:Mine"
CODE = """
    import json, os, signal
    from rgcn.runs.tracking import RunTracker

    class Mine(RunTracker):
        '''A line of FOLDER/heard.jsonl for everything heard.'''

        def report(self, step, values):
            self._write("report", step, values["loss"])
            if os.environ.get("STOP_AT") == str(step):
                os.kill(os.getpid(), signal.SIGINT)

        def finish(self, metrics):
            self._write("finish", sorted(metrics))

        def close(self, outcome):
            self._write("close", outcome)

        def _write(self, *what):
            with open(self.folder / "heard.jsonl", "a") as file:
                print(json.dumps([self.from_step, *what]), file=file)

    class Particular(Mine):
        @classmethod
        def check(cls):
            from rgcn.errors import ConfigError
            raise ConfigError("not today")

    class NoTracker:
        pass
"""
SHORT = ["training.epochs=2", "checkpoints.every_steps=1"]


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written_package(tmp_path, PACKAGE, CODE, monkeypatch)


def read_events(folder: Path) -> list[list[Any]]:
    return [json.loads(line) for line in (folder / "heard.jsonl").read_text().splitlines()]


def event_kinds(folder: Path) -> list[Any]:
    return [line[:3] for line in read_events(folder)]


WHOLE = [[0, "report", 1], [0, "report", 2], [0, "finish", ["test", "train", "valid"]], [0, "close", "finished"]]


def _train(tmp_path: Path, *arguments: str, configuration: str = "rgcn/nc-world") -> Any:
    changes = [word for change in SHORT for word in ("--set", change)]
    return command("train", configuration, "--out", "a", "-q", *changes, *arguments, cwd=tmp_path)


def test_named_on_the_command_line_it_gets_every_report(tmp_path: Path) -> None:
    done = _train(tmp_path, "--track", MINE)
    assert done.returncode == 0, done.stderr
    assert event_kinds(tmp_path / "a") == WHOLE
    losses = [json.loads(line)["loss"] for line in (tmp_path / "a" / "metrics.jsonl").read_text().splitlines()]
    assert [line[3] for line in read_events(tmp_path / "a")[:2]] == losses
    assert f"- {MINE}" in (tmp_path / "a" / "config.yaml").read_text()


def test_named_in_yaml_it_is_imported_when_the_file_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(f"data: {{dataset: world}}\ntrackers:\n  - {MINE}\n")
    assert _train(tmp_path, configuration="mine.yaml").returncode == 0
    assert event_kinds(tmp_path / "a") == WHOLE


def test_a_class_is_accepted_in_python(tmp_path: Path) -> None:
    import stranger_tracking

    config = NodeClassificationRun(
        data={"dataset": "world"}, training={"epochs": 2}, trackers=[stranger_tracking.Mine, "tensorboard"]
    )
    assert config.trackers == [MINE, "tensorboard"]
    config = config.model_copy(update={"trackers": [MINE]})
    train(config, rgcn.load("world"), tmp_path / "a")
    assert event_kinds(tmp_path / "a") == WHOLE


def test_an_installed_package_gives_it_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with installed(tmp_path, "rgcn.trackers", f"mine = {MINE}"):
        assert _train(tmp_path, "--track", "mine").returncode == 0
        assert event_kinds(tmp_path / "a") == WHOLE
        assert "mine" in json.dumps(run_schema())
        with pytest.raises(ConfigError, match="did you mean 'mine'"):
            load_configuration("rgcn/nc-world", ["trackers=[mime]"])
    # On a machine without the package, the run can still be read.
    with pytest.warns(UserWarning, match="tracker 'mine' is not installed here"):
        assert rgcn.open_model(tmp_path / "a")
    with pytest.raises(ConfigError, match="unknown tracker 'mine'"):
        load_configuration("rgcn/nc-world", ["trackers=[mine]"])


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a run that was stopped after its first step, as a new process finds it."""
    monkeypatch.setenv("STOP_AT", "1")
    assert _train(tmp_path, "--track", MINE).returncode == 130
    monkeypatch.delenv("STOP_AT")
    forgotten(PACKAGE, monkeypatch)
    TRACKERS._classes.clear()
    assert event_kinds(tmp_path / "a") == [[0, "report", 1], [0, "close", "interrupted"]]
    return tmp_path / "a"


RESUMED = [[1, "report", 2], [1, "finish", ["test", "train", "valid"]], [1, "close", "finished"]]


@pytest.mark.parametrize("place", ["before", "after"])
def test_it_is_resumed_if_its_package_is_allowed(stopped: Path, place: str) -> None:
    allowed = ["--allow", PACKAGE]
    words = ["resume", stopped, "-q"]
    done = command(*allowed, *words) if place == "before" else command(*words, *allowed)
    assert done.returncode == 0, done.stderr
    assert event_kinds(stopped)[2:] == RESUMED


def test_a_class_named_by_a_run_is_not_imported(stopped: Path) -> None:
    done = command("resume", stopped, "-q")
    assert done.returncode == 1
    assert f"--allow {PACKAGE}" in done.stderr
    assert "--no-track" in done.stderr
    assert PACKAGE not in sys.modules
    assert len(read_events(stopped)) == 2
    for again in (str(stopped), str(stopped / "config.yaml")):  # training again from a run behaves the same
        done = command("train", again, "--out", stopped.parent / "anew", "-q")
        assert (done.returncode, f"--allow {PACKAGE}" in done.stderr) == (1, True)
    assert PACKAGE not in sys.modules
    done = command("resume", stopped, "-q", "--no-track")
    assert done.returncode == 0, done.stderr
    assert len(read_events(stopped)) == 2


def test_an_entry_point_is_trusted(stopped: Path) -> None:
    for file in ("config.yaml", "run.json"):
        (stopped / file).write_text((stopped / file).read_text().replace(MINE, "mine"))
    with installed(stopped.parent, "rgcn.trackers", f"mine = {MINE}"):
        assert resume(stopped).metrics
    assert event_kinds(stopped)[2:] == RESUMED


def test_allowing_from_python_is_enough(stopped: Path) -> None:
    rgcn.allow(PACKAGE)
    resume(stopped)
    assert event_kinds(stopped)[2:] == RESUMED


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        (f"{PACKAGE}:NoTracker", "NoTracker is no tracker"),
        (f"{PACKAGE}:Missing", "there is no Missing"),
        ("not_there_at_all:Mine", "'not_there_at_all', which is not installed"),
        ("tensorbord", "did you mean 'tensorboard'"),
        (f"{PACKAGE}:Particular", "not today"),
    ],
)
def test_mistakes_are_reported_before_training(tmp_path: Path, choice: str, words: str) -> None:
    done = _train(tmp_path, "--track", choice)
    assert done.returncode == 1
    assert words in done.stderr
    assert not (tmp_path / "a").exists()


def test_a_wrong_name_in_a_file_is_shown_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("data: {dataset: world}\ntrackers:\n  - mlflow\n  - not_there_at_all:Mine\n")
    with pytest.raises(ConfigError, match=r"mine.yaml, line 4: trackers"):
        load_configuration(str(tmp_path / "mine.yaml"))
