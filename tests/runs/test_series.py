"""Several seeds of one configuration: metrics, folders, processes, interruptions."""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rgcn.errors import ConfigError, DataError
from rgcn.runs import load_configuration
from rgcn.runs.configuration import differences
from rgcn.runs.run_record import Spread, summarize
from rgcn.runs.series import SeriesCallback, read_series, run_series

QUICK = ["training.epochs=3", "training.device=cpu"]


@pytest.fixture
def config():
    return load_configuration("rgcn/nc-world", QUICK)


def metrics_of(result):
    return [row.result["metrics"] for row in result.rows]


def test_mean_deviation_and_error():
    spread = Spread.of([0.5, 0.6, 0.8])
    assert spread.mean == pytest.approx(statistics.mean([0.5, 0.6, 0.8]))
    assert spread.standard_deviation == pytest.approx(statistics.stdev([0.5, 0.6, 0.8]))
    assert spread.standard_error == pytest.approx(statistics.stdev([0.5, 0.6, 0.8]) / 3**0.5)
    assert (Spread.of([0.5]).standard_deviation, Spread.of([0.5]).standard_error) == (None, None)
    assert summarize([]) == {}


def test_every_seed_has_a_folder_and_the_series_a_summary(config, tmp_path):
    seeds = []
    folder = tmp_path / "deep" / "series"

    class Recorder(SeriesCallback):
        def run_ended(self, row):
            seeds.append(row.seed)

    result = run_series(config.model_copy(update={"seed": 4}), 3, folder=folder, callback=Recorder())
    assert seeds == [row.seed for row in result.rows] == [4, 5, 6]
    assert {row.outcome for row in result.rows} == {"finished"}
    kept = json.loads((folder / "series.json").read_text())
    assert (kept["format"], kept["version"], kept["planned"], len(kept["runs"])) == ("rgcn-series", 1, 3, 3)
    values = [row.result["metrics"]["test"]["accuracy"] for row in result.rows]
    assert kept["summary"]["test"]["accuracy"]["mean"] == pytest.approx(statistics.mean(values))
    assert kept["summary"]["test"]["accuracy"]["standard_error"] == pytest.approx(statistics.stdev(values) / 3**0.5)
    for row in result.rows:
        on_disk = json.loads((folder / f"seed-{row.seed}" / "result.json").read_text())
        assert on_disk == row.result
        assert on_disk["seed"] == row.seed
    read, runs, jobs = read_series(folder)
    assert (read.seed, runs, jobs, differences(read, config, ["seed"])) == (4, 3, 1, [])


def test_finished_seeds_are_not_run_again_and_more_can_be_added(config, tmp_path):
    first = run_series(config, 2, folder=tmp_path)
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.glob("seed-*/result.json")}
    again = run_series(config, 3, folder=tmp_path)
    assert [row.outcome for row in again.rows] == ["reused", "reused", "finished"]
    assert metrics_of(again)[:2] == metrics_of(first)
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())


def test_other_settings_are_not_mixed_in(config, tmp_path):
    run_series(config, 1, folder=tmp_path)
    other = load_configuration("rgcn/nc-world", ["training.epochs=4", "training.device=cpu"])
    with pytest.raises(DataError, match=r"training\.epochs was 3, now 4"):
        run_series(other, 1, folder=tmp_path)
    harmless = config.model_copy(update={"checkpoints": config.checkpoints.model_copy(update={"keep_last": 7})})
    assert run_series(harmless, 1, folder=tmp_path).rows[0].outcome == "reused"


def test_a_folder_with_other_files_is_not_changed(config, tmp_path):
    (tmp_path / "letters.txt").write_text("dear diary")
    with pytest.raises(DataError, match="holds no series"):
        run_series(config, 1, folder=tmp_path)
    with pytest.raises(DataError, match="is a file"):
        run_series(config, 1, folder=tmp_path / "letters.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["letters.txt"]


def test_nothing_is_stored_without_a_folder(config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run_series(config, 2, folder=None)
    assert len(result.results) == 2
    assert list(tmp_path.iterdir()) == []


def test_no_runs_and_no_jobs_are_refused(config):
    with pytest.raises(ConfigError, match="at least one"):
        run_series(config, 0, folder=None)
    with pytest.raises(ConfigError, match="at least one"):
        run_series(config, 1, folder=None, jobs=0)


def test_one_failing_seed_does_not_lose_the_others(config, tmp_path):
    folder = tmp_path / "series"
    run_series(config, 1, folder=folder)
    (folder / "seed-1").mkdir()
    (folder / "seed-1" / "diary.txt").write_text("dear diary")
    result = run_series(config, 3, folder=folder)
    assert [row.outcome for row in result.rows] == ["reused", "failed", "finished"]
    assert "seed-1" in (result.failures[0].error or "")
    assert len(result.results) == 2
    kept = json.loads((folder / "series.json").read_text())
    assert [run["error"] is None for run in kept["runs"]] == [True, False, True]


def test_missing_data_stop_the_series_at_once(config, tmp_path, monkeypatch):
    monkeypatch.setattr("rgcn.runs.assembly.load_data", lambda *_: (_ for _ in ()).throw(DataError("no data")))
    with pytest.raises(DataError, match="no data"):
        run_series(config, 3, folder=None)


def test_processes_give_the_same_metrics(config, tmp_path):
    alone = run_series(config, 2, folder=tmp_path / "alone")
    together = run_series(config, 2, folder=tmp_path / "together", jobs=2)
    assert metrics_of(together) == metrics_of(alone)
    assert [row.seed for row in together.rows] == [0, 1]


LONG = """
from pathlib import Path
from rgcn.runs import load_configuration
from rgcn.runs.series import run_series
if __name__ == "__main__":
    config = load_configuration("c-rgcn/lp-world", ["training.steps=200000", "training.evaluate_every=null"])
    run_series(config, 3, folder=Path("series"), jobs=2)
"""


def pids_in(folder: Path) -> list[int]:
    found = []
    for path in folder.glob("seed-*/run.json"):
        found += [session["pid"] for session in json.loads(path.read_text())["sessions"]]
    return found


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"


def wait_for(condition, seconds=90):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert condition(), "timeout"


@pytest.mark.skipif(os.name == "nt", reason="signals of Unix")
def test_a_killed_process_costs_one_seed_and_none_outlives_a_stopped_series(tmp_path):
    (tmp_path / "long.py").write_text(LONG)
    folder = tmp_path / "series"
    series = subprocess.Popen([sys.executable, "long.py"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: len(pids_in(folder)) == 2)
        os.kill(json.loads((folder / "seed-0" / "run.json").read_text())["sessions"][0]["pid"], signal.SIGKILL)
        wait_for(lambda: len(pids_in(folder)) == 3)  # the third seed runs in a new process
        rows = json.loads((folder / "series.json").read_text())["runs"]
        assert [(row["seed"], row["outcome"]) for row in rows] == [(0, "failed")]
        assert "exit code -9" in rows[0]["error"]
        for number in (1, 2):  # before that a process does not yet listen to signals
            wait_for((folder / f"seed-{number}" / "metrics.jsonl").exists)
        series.send_signal(signal.SIGINT)
        _, errors = series.communicate(timeout=60)
    finally:
        series.kill()
    assert not any(map(is_alive, pids_in(folder)))
    assert errors.count("Traceback") == 1  # raised by the parent; the command prints it as a message
    sessions = [json.loads((folder / f"seed-{i}" / "run.json").read_text())["sessions"][-1] for i in (1, 2)]
    assert {session["outcome"] for session in sessions} == {"terminated"}


def test_an_interrupted_seed_is_resumed(tmp_path):
    config = load_configuration("rgcn/nc-world", ["training.epochs=6", "checkpoints.every_steps=2"])
    whole = run_series(config, 1, folder=tmp_path / "whole")
    cut = tmp_path / "cut" / "seed-0"
    cut.parent.mkdir()

    def stop(epoch):
        if epoch.number == 4:
            raise KeyboardInterrupt

    from rgcn.runs import load_data, train

    with pytest.raises(KeyboardInterrupt):
        train(config, load_data(config.data), cut, stop)
    assert not (cut / "result.json").exists()
    result = run_series(config, 1, folder=cut.parent)
    assert [row.outcome for row in result.rows] == ["continued"]
    assert metrics_of(result) == metrics_of(whole)
    assert len(json.loads((cut / "run.json").read_text())["sessions"]) == 2


def test_a_series_on_own_relative_paths_can_be_resumed_from_any_folder(tmp_path, monkeypatch):
    (tmp_path / "g.tsv").write_text("".join(f"p{i}\treads\tb{i % 2}\n" for i in range(8)))
    (tmp_path / "l.tsv").write_text("".join(f"p{i}\tc{i % 2}\n" for i in range(8)))
    (tmp_path / "mine.yaml").write_text("data: {path: g.tsv, labels: l.tsv}\ntraining: {epochs: 2, device: cpu}\n")
    monkeypatch.chdir(tmp_path)
    run_series(load_configuration("mine.yaml"), 2, folder=Path("series"))
    monkeypatch.chdir(tmp_path / "series")
    config, runs, jobs = read_series(tmp_path / "series")
    again = run_series(config, runs + 1, folder=tmp_path / "series", jobs=jobs)
    assert [row.outcome for row in again.rows] == ["reused", "reused", "finished"]


def test_a_series_killed_before_its_first_run_began_can_be_resumed(tmp_path):
    config = load_configuration("rgcn/nc-world", ["training.epochs=1", "training.device=cpu"])
    run_series(config, 1, folder=tmp_path / "series")
    shutil.rmtree(tmp_path / "series" / "seed-0")
    (tmp_path / "series" / "seed-0").mkdir()
    (tmp_path / "series" / "seed-0" / "lock").touch()
    assert run_series(config, 1, folder=tmp_path / "series").failures == []


def test_a_series_with_other_settings_is_refused_and_left_as_it_was(tmp_path):
    config = load_configuration("rgcn/nc-world", ["training.epochs=1", "training.device=cpu"])
    run_series(config, 1, folder=tmp_path / "series")
    before = (tmp_path / "series" / "series.json").read_text()
    with pytest.raises(DataError, match="other settings"):
        run_series(load_configuration("rgcn/nc-world", ["training.epochs=2"]), 2, folder=tmp_path / "series")
    assert (tmp_path / "series" / "series.json").read_text() == before
