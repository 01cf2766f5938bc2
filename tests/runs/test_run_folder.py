"""The folder of a run: complete, locked while it is written, and never overwritten."""

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rgcn.config import CheckpointConfig
from rgcn.errors import ConfigError, DataError, StoppedError
from rgcn.runs import RunFolder, load_configuration, load_data, resume, train
from rgcn.runs.assembly import evaluate
from rgcn.runs.run_record import list_runs


@pytest.fixture(scope="module")
def world():
    return load_data(load_configuration("rgcn/nc-world").data)


@pytest.fixture
def config():
    return load_configuration("rgcn/nc-world", ["training.epochs=3", "training.device=cpu", "model.hidden=4"])


@pytest.fixture
def finished(config, world, tmp_path):
    train(config, world, tmp_path / "run")
    return RunFolder(tmp_path / "run")


def test_all_files_of_the_layout_exist(finished, config, world):
    names = {path.name for path in finished.path.iterdir()}
    promised = {"run.json", "config.yaml", "environment.json", "metrics.jsonl", "metrics.csv", "log.txt", "model"}
    assert promised | {"result.json"} <= names
    assert finished.config() == config
    assert finished.status() == "finished"
    assert [row["number"] for row in finished.metrics()] == [1, 2, 3]
    about = finished.about()
    assert about["data"]["fingerprint"] == world.fingerprint
    (session,) = about["sessions"]
    assert (session["outcome"], session["from_step"], session["to_step"]) == ("finished", 0, 3)
    (environment,) = finished.environment()
    assert environment["versions"]["python"]
    assert environment["hardware"]["cores"] == os.cpu_count()
    assert "began" in (finished.path / "log.txt").read_text()


def test_a_finished_run_is_not_repeated_but_can_be_loaded(finished, config, world):
    with pytest.raises(DataError, match="already holds a finished run"):
        train(config, world, finished.path)
    again = resume(finished.path)
    assert again.as_dict() == finished.result()


def test_a_run_that_is_not_finished_is_resumed_not_begun_again(finished, config, world):
    (finished.path / "result.json").unlink()
    with pytest.raises(DataError, match="rgcn resume"):
        train(config, world, finished.path)


def test_two_processes_never_write_the_same_run(finished, config, world, tmp_path):
    (finished.path / "result.json").unlink()
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time\nfrom pathlib import Path\nfrom rgcn.runs import RunFolder\n"
            "with RunFolder(Path(sys.argv[1])).writing():\n    print('held', flush=True)\n    time.sleep(60)",
            str(finished.path),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout.readline() == "held\n"
        assert finished.status() == "running"
        with pytest.raises(DataError, match=r"is being written by process \d+"):
            resume(finished.path, graph=world)
    finally:
        holder.kill()
        holder.wait()
    assert finished.status() == "incomplete"
    assert resume(finished.path, graph=world).length == 3  # the killed process holds no lock


def test_changed_data_are_refused(finished, config, world):
    (finished.path / "result.json").unlink()
    other = replace(world, triples=world.triples[:, [2, 1, 0]])
    with pytest.raises(DataError, match="data have changed"):
        resume(finished.path, graph=other)


def test_a_run_of_a_newer_version_is_refused_and_unchanged(finished):
    path = finished.path / "run.json"
    text = json.dumps({**json.loads(path.read_text()), "version": 99})
    path.write_text(text)
    with pytest.raises(DataError, match="newer rgcn"):
        resume(finished.path)
    lines, complaints = list_runs(finished.path.parent)
    assert lines == []
    assert "newer rgcn" in complaints[0]
    assert path.read_text() == text


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"\xff\xfe", b'{"format": "other"}', b'{"format": "rgcn-run", "version": 1}']
)
def test_a_damaged_description_is_refused(finished, content):
    (finished.path / "run.json").write_bytes(content)
    with pytest.raises(DataError, match=r"run\.json"):
        finished.check()


def test_a_run_killed_before_it_began_can_be_trained(config, world, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "lock").touch()
    (folder / ".writing-run.json.abc").write_text("{")
    train(config, world, folder)
    for name in ("result.json", "config.yaml", "environment.json", "metrics.jsonl"):
        (folder / name).unlink()  # as if killed right after run.json
    assert resume(folder, graph=world).length == 3
    assert RunFolder(folder).config() == config


def test_a_folder_that_is_no_run_is_unchanged(config, world, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(DataError, match="holds no run"):
        train(config, world, tmp_path / "mine")
    with pytest.raises(DataError, match="is a file"):
        train(config, world, tmp_path / "mine" / "thesis.txt")
    with pytest.raises(DataError, match="not a run"):
        resume(tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_a_folder_that_cannot_be_written_is_reported(config, world, tmp_path, monkeypatch):
    def refuse(self, *arguments, **more):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)  # a read-only folder does not stop root, whom tests may run as
    with pytest.raises(DataError, match="Permission denied"):
        train(config, world, tmp_path / "run")


def test_a_truncated_metrics_file_is_repaired_and_copied(finished, world):
    (finished.path / "result.json").unlink()
    path = finished.path / "metrics.jsonl"
    content = path.read_bytes()
    path.write_bytes(content[:-20])
    with pytest.warns(UserWarning, match="metrics"):
        result = resume(finished.path, graph=world)
    assert result.length == 3
    assert (finished.path / "metrics.damaged-1.jsonl").read_bytes() == content[:-20]
    assert [row["number"] for row in finished.metrics()] == [1, 2, 3]


def test_paths_in_the_stored_configuration_do_not_depend_on_the_working_folder(tmp_path, monkeypatch):
    (tmp_path / "g.tsv").write_text("".join(f"p{i}\treads\tb{i % 2}\n" for i in range(8)))
    (tmp_path / "l.tsv").write_text("".join(f"p{i}\tc{i % 2}\n" for i in range(8)))
    (tmp_path / "mine.yaml").write_text("data: {path: g.tsv, labels: l.tsv}\ntraining: {epochs: 2, device: cpu}\n")
    monkeypatch.chdir(tmp_path)
    config = load_configuration("mine.yaml")
    train(config, load_data(config.data), Path("run"))
    Path("run/result.json").unlink()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert resume(Path("../run")).length == 2


def test_a_failure_is_recorded_in_the_run(config, world, tmp_path):
    def fail(epoch):
        raise RuntimeError("out of luck")

    with pytest.raises(RuntimeError, match="out of luck"):
        train(config, world, tmp_path / "run", fail)
    run = RunFolder(tmp_path / "run")
    assert run.status() == "failed"
    assert "out of luck" in (run.path / "log.txt").read_text()
    assert resume(run.path, graph=world).length == 3


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_measuring_stops_the_run_without_loss(config, world, tmp_path, monkeypatch, number):
    expected = train(config, world).metrics

    def measure(model):
        signal.raise_signal(number)
        raise AssertionError("the signal was ignored")

    with monkeypatch.context() as patched:
        patched.setattr("rgcn.models.estimator.Estimator.measure", measure)
        with pytest.raises(StoppedError, match="at step 3 of 3, and saved") as caught:
            train(config, world, tmp_path / "run")
    assert caught.value.exit_code == 128 + number
    run = RunFolder(tmp_path / "run")
    assert run.about()["sessions"][-1]["from_step"] == 0
    assert resume(run.path, graph=world).metrics == expected
    assert run.about()["sessions"][-1]["from_step"] == 3


def test_temporary_files_of_killed_processes_are_removed(finished, world):
    left = [finished.path / place / ".writing-x.abc" for place in ("", "checkpoints", "model", "model/graph")]
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"half")
    with finished.writing():
        assert not any(path.exists() for path in left)


def test_an_unfinished_run_can_be_opened_on_another_device(config, world, tmp_path):
    every = config.model_copy(update={"checkpoints": CheckpointConfig(every_steps=1)})

    def stop(epoch):
        if epoch.number == 2:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        train(every, world, tmp_path / "run", stop)
    path = tmp_path / "run" / "checkpoints" / "step-000000001.json"
    about = json.loads(path.read_text())
    about["values"]["device"] = "cuda"
    about.pop("check")
    about["check"] = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps(about))
    assert 0 <= evaluate(RunFolder(tmp_path / "run"), "valid")["metrics"]["accuracy"] <= 1
    with pytest.raises(DataError, match="taken on cuda"):
        resume(tmp_path / "run", graph=world)


def test_runs_are_listed_without_pytorch(finished, tmp_path):
    code = (
        "import sys\nfrom pathlib import Path\nfrom rgcn.runs.run_record import list_runs\n"
        "lines, complaints = list_runs(Path(sys.argv[1]))\n"
        "print(lines[0].status, lines[0].metric, len(complaints), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["finished", "test", "accuracy", "0", "False"]


def test_the_best_metric_so_far_of_an_unfinished_run_is_listed(finished):
    (finished.path / "result.json").unlink()
    rows = [
        {"number": 1, "loss": 1.0, "valid_accuracy": 0.2, "seconds": 1.0},
        {"number": 2, "loss": 0.9, "valid_accuracy": 0.4, "seconds": 2.0},
        {"number": 3, "loss": 0.8, "valid_accuracy": None, "seconds": 3.0},
    ]
    half = '{"number": 4, "lo'
    (finished.path / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n" + half)
    (line,), complaints = list_runs(finished.path)
    assert complaints == []
    assert (line.metric, line.value, line.reached, line.seconds) == ("valid accuracy", 0.4, 3, 3.0)


@pytest.mark.parametrize("edit", [("\nseed: 0", "\nseed: 5"), ("epochs: 3", "epochs: 9"), ("hidden: 4", "hidden: 5")])
def test_a_configuration_that_was_edited_is_refused(finished, world, edit):
    (finished.path / "result.json").unlink()
    path = finished.path / "config.yaml"
    path.write_text(path.read_text().replace(*edit))
    with pytest.raises(DataError, match=r"changed since the run began \(\S+ was \d, now \d\)"):
        resume(finished.path, graph=world)


def test_checkpoints_and_trackers_of_a_run_may_be_edited(finished, world):
    (finished.path / "result.json").unlink()
    path = finished.path / "config.yaml"
    path.write_text(path.read_text().replace("keep_last: 2", "keep_last: 5"))
    assert resume(finished.path, graph=world).config.checkpoints.keep_last == 5


def test_a_missing_tracker_can_be_left_out(finished, world, monkeypatch):
    (finished.path / "result.json").unlink()
    path = finished.path / "config.yaml"
    path.write_text(path.read_text().replace("trackers: []", "trackers: [mlflow]"))
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ConfigError, match="mlflow"):
        resume(finished.path, graph=world)
    assert resume(finished.path, graph=world, track=False).length == 3


@pytest.mark.parametrize("name", ["config.yaml", "environment.json"])
@pytest.mark.parametrize("content", ["", "]["])
def test_damaged_files_that_are_not_needed_give_a_warning(finished, world, name, content):
    (finished.path / "result.json").unlink()
    (finished.path / name).write_text(content)
    with pytest.warns(UserWarning, match=name):
        assert resume(finished.path, graph=world).length == 3


@pytest.mark.parametrize("content", ["{}", "[]", '"x"', ""])
def test_a_damaged_result_is_reported(finished, content):
    (finished.path / "result.json").write_text(content)
    with pytest.raises(DataError, match=r"result\.json: damaged"):
        resume(finished.path)


def test_a_table_is_copied_if_metrics_jsonl_is_lost(config, world, tmp_path):
    every = config.model_copy(update={"checkpoints": CheckpointConfig(every_steps=2)})
    train(every, world, tmp_path / "run")
    for name in ("result.json", "metrics.jsonl"):
        (tmp_path / "run" / name).unlink()
    table = (tmp_path / "run" / "metrics.csv").read_text()
    with pytest.warns(UserWarning, match=r"metrics\.damaged-1\.csv"):
        resume(tmp_path / "run", graph=world)
    assert (tmp_path / "run" / "metrics.damaged-1.csv").read_text() == table


def test_a_full_disk_at_the_start_is_reported(config, world, tmp_path, monkeypatch):
    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("rgcn.runs.folder.write_atomically", full)
    with pytest.raises(DataError, match=r"run\.json: No space left on device"):
        train(config, world, tmp_path / "run")


def test_an_unreadable_folder_is_skipped(finished, monkeypatch):
    (finished.path.parent / "closed").mkdir()
    look = Path.iterdir

    def refuse(self):
        if self.name == "closed":
            raise PermissionError(13, "Permission denied")
        return look(self)

    monkeypatch.setattr(Path, "iterdir", refuse)
    lines, complaints = list_runs(finished.path.parent)
    assert (len(lines), complaints) == (1, [])


def test_a_model_too_large_for_the_memory_is_reported(config, world, tmp_path):
    huge = config.model_copy(update={"model": config.model.model_copy(update={"hidden": 10**11})})
    for folder in (None, tmp_path / "run"):
        with pytest.raises(DataError, match=r"not enough memory.*model\.hidden"):
            train(huge, world, folder)
    assert RunFolder(tmp_path / "run").status() == "failed"
