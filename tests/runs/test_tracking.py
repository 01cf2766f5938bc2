"""Test that records of a run survive kills, full disks and lost servers, with the real TensorBoard and MLflow."""

from __future__ import annotations

import csv
import errno
import json
import sys
import types
import warnings
from pathlib import Path
from typing import Any

import pytest

from rgcn.errors import ConfigError, DataError
from rgcn.runs.tracking import MetricFiles, SurvivingTracker, check_trackers, open_tracker, read_metrics

COLUMNS = ["number", "loss", "valid_accuracy", "seconds"]
CONFIG = {"task": "node-classification", "seed": 3, "training": {"epochs": 4, "learning_rate": 0.01}, "trackers": []}


def _values(step: int) -> dict[str, float | None]:
    return {"loss": 1 / step, "valid_accuracy": None if step % 2 else 0.5, "seconds": 0.1}


def _report(tracker: Any, *steps: int) -> None:
    for step in steps:
        tracker.report(step, _values(step))


def _numbers(folder: Path) -> list[int]:
    return [row["number"] for row in read_metrics(folder / "metrics.jsonl")]


# -- files -------------------------------------------------------------------------------------------------


def test_each_report_is_on_disk_at_once_in_both_files(tmp_path: Path) -> None:
    files = MetricFiles(tmp_path, COLUMNS)
    for step in (1, 2, 3):
        _report(files, step)
        rows = read_metrics(tmp_path / "metrics.jsonl")
        assert [row["number"] for row in rows] == list(range(1, step + 1))
        with (tmp_path / "metrics.csv").open(newline="") as table:
            assert len(list(csv.DictReader(table))) == step
    files.close("finished")
    assert rows[1] == {"number": 2, "loss": 0.5, "valid_accuracy": 0.5, "seconds": 0.1}
    assert (tmp_path / "metrics.csv").read_text().splitlines()[:2] == [
        "number,loss,valid_accuracy,seconds",
        "1,1.0,,0.1",
    ]


def test_nan_and_infinity_are_null(tmp_path: Path) -> None:
    files = MetricFiles(tmp_path, COLUMNS)
    files.report(1, {"loss": float("nan"), "valid_accuracy": float("inf"), "seconds": None})
    text = (tmp_path / "metrics.jsonl").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == {
        "number": 1,
        "loss": None,
        "valid_accuracy": None,
        "seconds": None,
    }
    assert (tmp_path / "metrics.csv").read_text().splitlines()[1] == "1,,,"


def test_resuming_removes_reports_that_are_repeated(tmp_path: Path) -> None:
    _report(MetricFiles(tmp_path, COLUMNS), 1, 2, 3, 4, 5)
    whole = (tmp_path / "metrics.jsonl").read_bytes(), (tmp_path / "metrics.csv").read_bytes()
    resumed = MetricFiles(tmp_path, COLUMNS, from_step=3)
    assert _numbers(tmp_path) == [1, 2, 3]
    _report(resumed, 4, 5)
    assert ((tmp_path / "metrics.jsonl").read_bytes(), (tmp_path / "metrics.csv").read_bytes()) == whole


def test_a_new_run_begins_with_empty_files(tmp_path: Path) -> None:
    _report(MetricFiles(tmp_path, COLUMNS), 1, 2)
    MetricFiles(tmp_path, COLUMNS)
    assert _numbers(tmp_path) == []
    assert (tmp_path / "metrics.csv").read_text() == "number,loss,valid_accuracy,seconds\n"


@pytest.mark.parametrize("damage", [b'{"number": 4, "lo', b"\xff\xfe\x00", b"[1, 2]", b'{"loss": 1.0}', b"\0" * 20])
def test_a_damaged_line_gives_a_warning_and_a_copy(tmp_path: Path, damage: bytes) -> None:
    _report(MetricFiles(tmp_path, COLUMNS), 1, 2, 3)
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(path.read_bytes() + damage)
    broken = path.read_bytes()
    with pytest.warns(UserWarning, match=r"line 4 cannot be read.*copy of the file is metrics\.damaged-1\.jsonl"):
        files = MetricFiles(tmp_path, COLUMNS, from_step=3)
    assert (tmp_path / "metrics.damaged-1.jsonl").read_bytes() == broken
    _report(files, 4)
    assert _numbers(tmp_path) == [1, 2, 3, 4]
    assert len((tmp_path / "metrics.csv").read_text().splitlines()) == 5


def test_damage_in_the_middle_loses_only_its_line_and_copies_are_numbered(tmp_path: Path) -> None:
    _report(MetricFiles(tmp_path, COLUMNS), 1, 2, 3)
    path = tmp_path / "metrics.jsonl"
    for copy in (1, 2):
        path.write_bytes(path.read_bytes().replace(b'"loss": 0.5', b"").replace(b"{", b"{{", copy == 2))
        with pytest.warns(UserWarning, match="cannot be read"):
            assert 3 in _numbers(tmp_path)
        with pytest.warns(UserWarning, match=rf"damaged-{copy}\.jsonl"):
            MetricFiles(tmp_path, COLUMNS, from_step=3)
        if copy == 1:
            assert _numbers(tmp_path) == [1, 3]


def test_a_last_line_that_only_lacks_its_end_of_line_counts(tmp_path: Path) -> None:
    _report(MetricFiles(tmp_path, COLUMNS), 1, 2)
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    _report(MetricFiles(tmp_path, COLUMNS, from_step=2), 3)
    assert _numbers(tmp_path) == [1, 2, 3]


def test_no_file_yet_reads_as_no_reports(tmp_path: Path) -> None:
    assert read_metrics(tmp_path / "metrics.jsonl") == []


class _FullDisk:
    """A file on a disk with few free bytes: a write is partial, as the system does, or it fails."""

    def __init__(self, file: Any, capacity: int) -> None:
        self._file, self._room = file, capacity

    def write(self, line: bytes) -> int:
        if not self._room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return int(self._file.write(line[: self._room]))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@pytest.mark.parametrize("capacity", [0, 5])
@pytest.mark.parametrize("full", [0, 1])
def test_a_full_disk_is_reported_and_leaves_what_was_there(tmp_path: Path, capacity: int, full: int) -> None:
    files = MetricFiles(tmp_path, COLUMNS)
    _report(files, 1, 2)
    before = [(tmp_path / name).read_bytes() for name in ("metrics.jsonl", "metrics.csv")]
    files._files[full] = _FullDisk(files._files[full], capacity)  # type: ignore[call-overload]
    with pytest.raises(DataError, match=r"the disk is full.*intact"):
        _report(files, 3)
    assert [(tmp_path / name).read_bytes() for name in ("metrics.jsonl", "metrics.csv")] == before


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        MetricFiles(tmp_path / "file" / "run", COLUMNS)


def test_a_value_outside_the_columns_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="mrr"):
        MetricFiles(tmp_path, COLUMNS).report(1, {"mrr": 0.5})


# -- services ----------------------------------------------------------------------------------------------


def _open(folder: Path, name: str, from_step: int = 0) -> Any:
    return open_tracker(name, folder, "a-run", CONFIG, from_step)


def test_tensorboard_reads_what_was_reported_and_a_resumed_step_once(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    first = _open(tmp_path, "tensorboard")
    _report(first, 1, 2, 3, 4)
    first.close("interrupted")
    second = _open(tmp_path, "tensorboard", from_step=2)
    _report(second, 3, 4)
    second.finish({"test": {"accuracy": 0.75}})
    second.close("finished")
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(event.step, round(event.value, 4)) for event in events.Scalars("loss")] == [
        (1, 1.0),
        (2, 0.5),
        (3, 0.3333),
        (4, 0.25),
    ]
    assert [event.step for event in events.Scalars("valid_accuracy")] == [2, 4]
    assert [(event.step, event.value) for event in events.Scalars("test/accuracy")] == [(4, 0.75)]
    assert b"learning_rate: 0.01" in events.Tensors("configuration/text_summary")[-1].tensor_proto.string_val[0]


def test_mlflow_keeps_one_run_over_two_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)  # the store is made in the working folder
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    folder = tmp_path / "runs" / "a"
    first = _open(folder, "mlflow")
    _report(first, 1, 2, 3)
    first.close("interrupted")

    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
    run_id = json.loads((folder / "tracking.json").read_text())["mlflow"]
    assert client.get_run(run_id).info.status == "KILLED"

    second = _open(folder, "mlflow", from_step=2)
    assert client.get_run(run_id).info.status == "RUNNING"
    _report(second, 3, 4)
    second.finish({"valid": {"hits@10": 0.5}, "test": {"accuracy": 0.75}})
    second.close("finished")
    assert json.loads((folder / "tracking.json").read_text())["mlflow"] == run_id
    run = client.get_run(run_id)
    assert (run.info.status, run.info.run_name) == ("FINISHED", "a-run")
    assert run.data.params["training.learning_rate"] == "0.01"
    assert run.data.metrics["test/accuracy"] == 0.75
    assert run.data.metrics["valid/hits_at_10"] == 0.5
    assert [metric.step for metric in client.get_metric_history(run_id, "loss")] == [1, 2, 3, 4]
    experiment = client.get_experiment_by_name("rgcn")
    assert len(client.search_runs([experiment.experiment_id])) == 1

    client.delete_run(run_id)
    with pytest.warns(UserWarning, match="no longer has the run"):
        third = _open(folder, "mlflow", from_step=4)
    third.close("failed")
    other = json.loads((folder / "tracking.json").read_text())["mlflow"]
    assert other != run_id
    assert client.get_run(other).info.status == "FAILED"


def test_mlflow_receives_what_a_killed_session_did_not_send(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    folder = tmp_path / "runs" / "a"
    killed = _open(folder, "mlflow")
    _report(killed, 1, 2, 3)  # still waiting to be sent, and never closed
    lines = [{"number": step, "loss": 1 / step, "valid_accuracy": None} for step in (1, 2, 3)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    second = _open(folder, "mlflow", from_step=2)
    _report(second, 3, 4)
    second.close("finished")

    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=store)
    run_id = json.loads((folder / "tracking.json").read_text())["mlflow"]
    assert [metric.step for metric in client.get_metric_history(run_id, "loss")] == [1, 2, 3, 4]


def test_an_mlflow_server_that_is_not_there_stops_the_run_before_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(ConfigError, match=r"mlflow cannot start.*MLFLOW_TRACKING_URI"):
        _open(tmp_path, "mlflow")


class _FakeWandb(types.ModuleType):
    """The part of wandb's interface that is used, recording calls. The real one was checked by hand, offline."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.calls: list[tuple[Any, ...]] = []

    def Settings(self, **settings: Any) -> dict[str, Any]:  # noqa: N802 - wandb's name
        return settings

    def init(self, **arguments: Any) -> _FakeWandb:
        self.calls.append(("init", arguments["id"], arguments["resume"], arguments["name"], arguments["config"]))
        return self

    def log(self, values: dict[str, Any], step: int) -> None:
        self.calls.append(("log", step, values))

    @property
    def summary(self) -> _FakeWandb:
        return self

    def update(self, values: dict[str, float]) -> None:
        self.calls.append(("summary", values))

    def finish(self, exit_code: int) -> None:
        self.calls.append(("finish", exit_code))


def test_wandb_receives_everything_and_keeps_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = _FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    first = _open(tmp_path, "wandb")
    _report(first, 1)
    first.close("interrupted")
    second = _open(tmp_path, "wandb", from_step=1)
    _report(second, 2)
    second.finish({"test": {"accuracy": 0.75}})
    second.close("finished")
    run_id = json.loads((tmp_path / "tracking.json").read_text())["wandb"]
    begun = ("init", run_id, "allow", "a-run", CONFIG)
    assert fake.calls == [
        begun,
        ("log", 1, {"loss": 1.0, "seconds": 0.1}),
        ("finish", 255),
        begun,
        ("log", 2, {"loss": 0.5, "valid_accuracy": 0.5, "seconds": 0.1}),
        ("summary", {"test/accuracy": 0.75}),
        ("finish", 0),
    ]


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb"])
def test_a_missing_package_says_which_extra_brings_it(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    for attempt in (lambda: _open(tmp_path, name), lambda: check_trackers([name])):
        with pytest.raises(ConfigError, match=rf"pip install 'rgcn\[{name}\]'"):
            attempt()


def test_an_unknown_tracker_is_named_with_the_closest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'tensorboard'"):
        open_tracker("tensorbord", tmp_path, "a", CONFIG, 0)


def test_a_tracker_that_fails_midway_is_disabled_with_one_warning() -> None:
    steps = []

    class Failing:
        def report(self, step: int, values: Any) -> None:
            steps.append(step)
            raise ConnectionError("the server is gone")

        def finish(self, metrics: Any) -> None:
            pytest.fail("was already disabled")

        def close(self, outcome: str) -> None:
            pytest.fail("was already disabled")

    tracker = SurvivingTracker("mlflow", Failing())
    with pytest.warns(UserWarning, match=r"mlflow stopped.*the server is gone.*continues"):
        tracker.report(1, {"loss": 1.0})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tracker.report(2, {"loss": 1.0})
        tracker.finish({})
        tracker.close("finished")
    assert steps == [1]
