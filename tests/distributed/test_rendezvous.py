"""Test that several real processes join, compare settings, print once, and end together."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import rgcn
from rgcn.distributed import rendezvous
from rgcn.distributed.placements import DataParallel
from rgcn.distributed.rendezvous import LEFT, Heartbeat, RankProcess
from rgcn.errors import ConfigError, DataError
from rgcn.runs.folder import RunFolder

SCRIPT = Path(__file__).parent / "joined_together.py"
LONG = ["--set", "training.epochs=1000000", "--set", "checkpoints.every_steps=5"]
SECONDS = 200  # seconds; enough on a busy machine


def free_port() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join([str(Path(rgcn.__file__).parents[1])])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **more}


def one_of_two(rank: int, port: str) -> dict[str, str]:
    """Return the environment variables that torchrun sets."""
    return environment(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)


def started(arguments: list[str], env: dict[str, str], cwd: Path) -> subprocess.Popen[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, *arguments], env=env, cwd=cwd, text=True, **pipes)


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, words = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    return process.returncode, out, words


def until(ready, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + SECONDS
    while not ready():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_two_processes_join_and_compare_settings(tmp_path):
    ports = f"{free_port()},{free_port()}"
    both = [started([str(SCRIPT), str(tmp_path), ports], one_of_two(rank, "0"), tmp_path) for rank in (0, 1)]
    for process in both:
        code, _, words = ended(process)
        assert code == 0, words
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert first["said"] == second["said"] == [{"rank": 0}, {"rank": 1}]
    assert first["chosen"] == second["chosen"] == ["by", 0]
    assert first["any"] == second["any"] == [True, False]
    assert first["same"] is first["seen"] is None
    assert not list((tmp_path / "run").iterdir())
    expected = "ConfigError: process 1 of 2 has other settings than process 0: epochs 4 instead of 3"
    assert first["other settings"] == second["other settings"] == expected
    assert first["other data"].endswith("has other data than process 0: fingerprint 'b' instead of 'a'")
    assert "process 1 of 2 does not see" in first["unseen"]
    assert "storage that they share" in second["unseen"]
    assert first["other version"] == second["other version"]
    assert "rgcn '0.9' instead of '1.0'" in first["other version"]
    assert first["left"] == first["threads"] - 2


def test_a_missing_process_is_reported(tmp_path):
    command = ["-m", "rgcn", "train", "rgcn/nc-world", "--no-keep"]
    port = free_port()
    alone = [
        started(command, {**one_of_two(rank, port if rank else "0"), "RGCN_JOIN_SECONDS": "1"}, tmp_path)
        for rank in (0, 1)
    ]
    expected = ["rgcn: 1 of 2 processes joined in 1 s", "rgcn: process 0 of 2 did not join in 1 s"]
    for process, beginning in zip(alone, expected, strict=True):
        code, out, words = ended(process)
        assert (code, out) == (1, "")
        assert words.startswith(beginning), words
        assert "RGCN_JOIN_SECONDS" in words
        assert "Traceback" not in words


ADDRESS = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29400"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"WORLD_SIZE": "2", "RANK": "5", **ADDRESS}, "RANK is 5 and WORLD_SIZE is 2 .*ranks go from 0 to 1"),
        ({"WORLD_SIZE": "2", "RANK": "2", **ADDRESS}, "RANK is 2 and WORLD_SIZE is 2 .*ranks go from 0 to 1"),
        ({"WORLD_SIZE": "2", "RANK": "-1", **ADDRESS}, "RANK is '-1' in the environment.*at least 0"),
        ({"RANK": "1"}, "RANK is 1 and WORLD_SIZE is not set .*ranks go from 0 to 0"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE is '0' in the environment.*at least 1"),
        ({"WORLD_SIZE": "-2", "RANK": "0", **ADDRESS}, "WORLD_SIZE is '-2' in the environment.*at least 1"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE is 'two' in the environment.*whole number"),
        ({"WORLD_SIZE": "2"}, "environment, and RANK, MASTER_ADDR, MASTER_PORT are not set"),
        ({"WORLD_SIZE": "2", "RANK": "0"}, "environment, and MASTER_ADDR, MASTER_PORT are not set"),
        ({"WORLD_SIZE": "2", "RANK": "0", **ADDRESS, "MASTER_ADDR": ""}, "and MASTER_ADDR is not set"),
        ({"WORLD_SIZE": "2", "RANK": "0", **ADDRESS, "MASTER_PORT": "99999"}, "MASTER_PORT is '99999'.*at most 65535"),
    ],
)
def test_inconsistent_variables_raise_an_error(given, words, monkeypatch):
    for name in rendezvous.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    for ask in (rendezvous.is_rank, rendezvous.join):
        with pytest.raises(ConfigError, match=words):
            ask()


@pytest.mark.parametrize(
    ("given", "several"),
    [({}, False), ({"WORLD_SIZE": "1", "RANK": "0"}, False), ({"WORLD_SIZE": "2", "RANK": "1", **ADDRESS}, True)],
)
def test_several_processes_are_detected_from_the_environment(given, several, monkeypatch):
    for name in rendezvous.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert rendezvous.is_rank() is several


@pytest.mark.parametrize("given", [{"RANK": "5", "WORLD_SIZE": "2", **ADDRESS}, {"WORLD_SIZE": "2"}])
def test_a_command_reports_inconsistent_variables_before_joining(given, tmp_path):
    command = ["-m", "rgcn", "train", "rgcn/nc-world", "--no-keep", "--set", "training.epochs=1"]
    code, out, words = ended(started(command, environment(RGCN_JOIN_SECONDS="1", **given), tmp_path))
    assert (code, out) == (1, "")
    assert len(words.splitlines()) == 1
    assert ("RANK is 5" if "RANK" in given else "RANK, MASTER_ADDR, MASTER_PORT are not set") in words
    assert "to work in one process" in words


def test_different_settings_end_all_processes_with_one_message(tmp_path):
    command = ["-m", "rgcn", "train", "rgcn/nc-world", "--quiet", "--out", "run", "--set", "training.epochs=2", "--set"]
    port = free_port()
    both = [started([*command, f"model.hidden={8 + rank}"], one_of_two(rank, port), tmp_path) for rank in (0, 1)]
    (code, out, words), second = map(ended, both)
    assert (code, out) == (1, "")
    assert words == "rgcn: process 1 of 2 has other settings than process 0: model.hidden 9 instead of 8\n"
    assert second == (1, "", "")
    assert not (tmp_path / "run" / "run.json").exists()


def children_of(process: subprocess.Popen[str]) -> dict[str, int]:
    """Stand-ins for the processes of a launcher, by rank."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            variables = stat.with_name("environ").read_bytes().split(b"\0") if parent == process.pid else []
        except OSError:
            continue
        found |= {one.decode()[5:]: int(stat.parent.name) for one in variables if one.startswith(b"RANK=")}
    return found


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found in /proc")
def test_a_killed_process_stops_all_ranks_and_a_signal_saves_the_state(tmp_path):
    folder = tmp_path / "runs" / "rgcn-nc-world"
    command = ["-m", "rgcn", "train", "rgcn/nc-world", "--processes", "2", *LONG]
    launcher = started(command, environment(), tmp_path)
    until(lambda: list((folder / "checkpoints").glob("step-*.json")), launcher)
    assert RunFolder(folder).is_being_written()
    os.kill(children_of(launcher)["1"], signal.SIGKILL)
    killed = time.monotonic()
    code, out, words = ended(launcher)
    assert time.monotonic() - killed < 30
    assert (code, out) == (128 + signal.SIGKILL, "")
    *_, last = words.splitlines()
    assert last == (
        "rgcn: process 1 of 2 is gone (killed by signal 9): the others stop; `rgcn resume runs/rgcn-nc-world` resumes "
        "from the last checkpoint"
    )
    assert sum(line.startswith("KnowledgeGraph") for line in words.splitlines()) == 1
    assert "Traceback" not in words
    assert "gloo" not in words
    assert RunFolder(folder).status() in ("failed", "killed")

    launcher = started(["-m", "rgcn", "resume", str(folder), "--processes", "2", "--quiet"], environment(), tmp_path)
    until(lambda: len(RunFolder(folder).about()["sessions"]) == 2, launcher)
    before = len(RunFolder(folder).metrics())
    until(lambda: len(RunFolder(folder).metrics()) > before, launcher)
    launcher.send_signal(signal.SIGINT)
    code, out, words = ended(launcher)
    assert (code, out) == (128 + signal.SIGINT, "")
    assert len(words.splitlines()) == 1
    assert words.startswith("rgcn: stopped by Ctrl-C at step ")
    assert RunFolder(folder).status() == "interrupted"
    log = (folder / "log.txt").read_text()
    assert log.count("resumed at step") == log.count("interrupted at step") == 1


def test_only_rank_0_prints_and_writes_the_run(tmp_path):
    command = ["-m", "rgcn", "train", "rgcn/nc-world", "--processes", "2", "--json", "--set", "training.epochs=3"]
    code, out, words = ended(started([*command, "--out", "run"], environment(), tmp_path))
    assert code == 0, words
    assert json.loads(out)["epochs"] == 3
    assert words.count("epoch 3/3") == 1
    sessions = RunFolder(tmp_path / "run").about()["sessions"]
    assert [session["outcome"] for session in sessions] == ["finished"]
    assert len(RunFolder(tmp_path / "run").metrics()) == 3
    assert (tmp_path / "run" / "model").is_dir()


class _Line(dict):
    """A store as the heartbeat uses it."""

    def __init__(self, beat: bytes) -> None:
        super().__init__({"heartbeat/1": beat})

    def set(self, key, value):
        self[key] = value

    def get(self, key):
        return self[key]

    def check(self, keys):
        return all(key in self for key in keys)

    def compare_set(self, key, expected, value):
        return self.setdefault(key, value).encode()


@pytest.mark.parametrize(
    ("beat", "alive", "word"),
    [
        (LEFT, "gone", None),
        (b"1", "gone", "process 1 of 2 is gone"),
        (b"1", "here", None),  # the process holds Python's lock, but the system reports it as alive
        (b"1", "elsewhere", "process 1 of 2 has given no sign of life"),
    ],
)
def test_only_silent_processes_are_reported_as_lost(beat, alive, word, monkeypatch, capfd):
    monkeypatch.setattr(rendezvous, "HEARTBEAT_S", 0.02)
    monkeypatch.setattr(rendezvous, "SILENCE_S", 0.2)
    monkeypatch.setattr(rendezvous, "GRACE_S", 1000)
    line = _Line(beat)
    child = subprocess.Popen(["true"])
    child.wait()
    pid = os.getpid() if alive == "here" else child.pid
    own = RankProcess.current()
    other = RankProcess("another machine" if alive == "elsewhere" else own.machine, pid)
    beats = Heartbeat(rendezvous.Session(0, 2, line, advice="; resume"), lambda: line, [own, other])
    time.sleep(1.0)
    beats.stop()
    output = capfd.readouterr().err
    assert ("failure" in line) == bool(word)
    if word:
        assert word in json.loads(line["failure"])["sentence"]
        assert output.startswith(f"rgcn: {word}")
        assert output.endswith("; resume\n")
    else:
        assert output == ""
    assert not [thread for thread in threading.enumerate() if thread in beats._threads]


def test_invalid_combinations_of_options_with_processes(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from rgcn.cli import commands
    from rgcn.placement import Placement

    def problem(*arguments):
        done = CliRunner().invoke(commands.app, arguments)
        assert isinstance(done.exception, ConfigError), done.output
        return str(done.exception)

    monkeypatch.chdir(tmp_path)
    (tmp_path / "graph.tsv").write_text("a\tknows\tb\n")
    for more in (("--runs", "3"), ("--minutes", "1")):
        words = problem("train", "rgcn/nc-world", "--processes", "2", *more)
        assert "several processes train one model for a given number of steps" in words
    assert "name it" in problem("train", "graph.tsv", "--processes", "2")
    monkeypatch.setattr("rgcn.cli.commands.current", lambda: Placement(0, 4))
    assert "one process" in problem("predict", "world")
    assert "leave out --processes 2" in problem("train", "rgcn/nc-world", "--processes", "2")


def test_too_little_shared_memory_and_too_few_gpus(monkeypatch):
    torch = pytest.importorskip("torch")
    from collections import namedtuple

    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert not rendezvous.has_gpu_per_process()
    with pytest.raises(ConfigError, match="a GPU for each process, but this machine has 4 processes and 1 GPU:"):
        DataParallel(0, 4).check_device("auto")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    with pytest.raises(ConfigError, match="use --device cuda instead of cuda:1"):
        DataParallel(0, 4).check_device("cuda:1")
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda *_: False)
    monkeypatch.setattr("shutil.disk_usage", lambda _: namedtuple("Usage", "free")(64 << 20))
    with pytest.raises(DataError, match=r"64 MiB free.*--shm-size"):
        rendezvous.has_gpu_per_process()
    monkeypatch.setenv("NCCL_SHM_DISABLE", "1")
    assert rendezvous.has_gpu_per_process()
