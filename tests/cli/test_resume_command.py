"""Test `rgcn resume`, `evaluate` and `runs`, with processes that are really stopped and resumed."""

import hashlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from in_process import rgcn

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-c", "from rgcn.cli import main; main()"]
# Enough steps for a signal to arrive during the training.
TRAINING = [
    *("train", "c-rgcn/lp-world", "--set", "training.device=cpu", "--set", "model.embedding=16"),
    *("--set", "training.steps=60", "--set", "training.evaluate_every=20", "--quiet"),
]


def a_process(*arguments):
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=300)


def weights(folder):
    return hashlib.sha256((folder / "model" / "weights.safetensors").read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "undisturbed"
    done = a_process(*TRAINING, "--out", folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
@pytest.mark.parametrize(("number", "outcome"), [(signal.SIGTERM, "terminated"), (signal.SIGINT, "interrupted")])
def test_a_signal_saves_the_state_and_the_resumed_run_has_the_same_result(undisturbed, tmp_path, number, outcome):
    folder = tmp_path / "run"
    process = subprocess.Popen(
        [*COMMAND, *TRAINING, "--out", str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    metrics = folder / "metrics.jsonl"
    deadline = time.monotonic() + 300
    while not (metrics.exists() and metrics.read_text().count("\n") >= 3) and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(number)
    _, words = process.communicate(timeout=300)
    assert process.returncode == 128 + number, words
    assert "rgcn resume" in words
    assert "Traceback" not in words
    (line,) = json.loads(rgcn("runs", tmp_path, "--json").stdout)
    assert line["status"] == outcome
    assert 3 <= line["reached"] < 60
    looked = rgcn("evaluate", folder, "--split", "valid", "--json")
    assert "newest checkpoint" in looked.stderr
    assert 0 < json.loads(looked.stdout)["metrics"]["mrr"] < 1
    done = a_process("resume", folder, "--json")
    assert done.returncode == 0, done.stderr
    assert weights(folder) == weights(undisturbed)
    ours, theirs = json.loads(done.stdout), json.loads((undisturbed / "result.json").read_text())
    assert ours["metrics"] == theirs["metrics"]
    steps = [json.loads(row)["number"] for row in metrics.read_text().splitlines()]
    assert steps == list(range(1, 61))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_runs_killed_at_random_moments_have_the_same_result():
    command = [sys.executable, ROOT / "benchmarks" / "kill_stress.py", "--kills", "3", "--cases", "1"]
    done = subprocess.run([*command, "--longest-life", "6"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 of 3 kills survived" in done.stdout


def test_a_finished_run_is_shown_and_measured(undisturbed):
    again = rgcn("resume", undisturbed)
    assert again.returncode == 0
    assert "nothing to resume" in again.stderr
    assert "test" in again.stdout
    measured = json.loads(rgcn("evaluate", undisturbed, "--json").stdout)
    assert measured["split"] == "test"
    result = json.loads((undisturbed / "result.json").read_text())
    assert measured["metrics"]["mrr"] == pytest.approx(result["metrics"]["test"]["mrr"])


def test_metrics_are_shown_by_direction_and_relation(undisturbed):
    some = json.loads(rgcn("evaluate", undisturbed, "--at-most", "20", "--json").stdout)["metrics"]
    assert some["count"] == 40
    assert some["mrr_error"] > 0
    output = rgcn("evaluate", undisturbed, "--at-most", "20").stdout
    assert f"± {some['mrr_error']:.3f}" in output
    assert "drawn at random" in output
    table = rgcn("evaluate", undisturbed, "--split", "valid").stdout
    assert "predicting subjects" in table
    assert "borders" in table


def test_each_run_has_a_new_folder(tmp_path):
    for _ in range(2):
        done = rgcn("train", "rgcn/nc-world", "--set", "training.epochs=1", "--quiet", "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        json.loads(done.stdout)
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["rgcn-nc-world", "rgcn-nc-world-2"]
    table = rgcn("runs", cwd=tmp_path).stdout
    assert table.count("finished") == 2
    assert "rgcn on world" in table


def test_no_keep_removes_the_run(tmp_path):
    done = rgcn("train", "rgcn/nc-world", "--set", "training.epochs=1", "--quiet", "--no-keep", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_several_seeds_are_summarized_and_resumed(tmp_path):
    command = "train", "rgcn/nc-world", "--set", "training.epochs=2", "--runs", "3", "--out", tmp_path / "s", "--quiet"
    done = rgcn(*command, "--json")
    assert done.returncode == 0, done.stderr
    series = json.loads(done.stdout)
    accuracies = [run["result"]["metrics"]["test"]["accuracy"] for run in series["runs"]]
    assert len(accuracies) == 3
    assert series["summary"]["test"]["accuracy"]["mean"] == pytest.approx(sum(accuracies) / 3)
    before = weights(tmp_path / "s" / "seed-1")
    for name in ("result.json", "model/weights.safetensors"):
        (tmp_path / "s" / "seed-1" / name).unlink()
    again = rgcn("resume", tmp_path / "s")
    assert again.returncode == 0, again.stderr
    assert "standard error" in again.stdout
    assert weights(tmp_path / "s" / "seed-1") == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["resume", "nowhere"], "no such folder"),
        (["evaluate", "nowhere"], "no such file or folder"),
        (["runs", "nowhere"], "no such folder"),
    ],
)
def test_mistakes_are_reported_as_one_message(arguments, words, tmp_path):
    done = rgcn(*arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_split_is_refused(undisturbed):
    done = rgcn("evaluate", undisturbed, "--split", "tset")
    assert done.returncode == 1
    assert "train, valid, test" in done.stderr
