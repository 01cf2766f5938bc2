"""Test that all ranks end with one message if one is lost, and that none ends because another one is busy."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from test_rendezvous import SECONDS, ended, environment, free_port, started, until

from rgcn.distributed import launch
from rgcn.distributed.rendezvous import RankProcess

SCRIPT = Path(__file__).parent / "ranks_that_fail.py"
LOST = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
RESUME = "; `rgcn resume run` resumes from the last checkpoint\n"
pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the state of processes is in /proc")


def ranks(size: int, folder: Path) -> list[subprocess.Popen[str]]:
    """Start ranks on one machine without torchrun's agent, and wait until all have joined."""
    variables = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    variables["TORCH_CPP_LOG_LEVEL"] = "FATAL"  # the value that commands set
    every = [
        started([str(SCRIPT), "."], environment(RANK=str(rank), LOCAL_RANK=str(rank), **variables), folder)
        for rank in range(size)
    ]
    until(lambda: len(list(folder.glob("*.joined"))) == size, every[0])
    return every


@pytest.mark.parametrize(
    ("lost", "rank", "size", "sentence"),
    [
        ("kill", 0, 3, "process 0 of 3, or what started it, is out of reach: the others stop"),
        ("kill", 1, 2, "process 1 of 2 is gone: the others stop"),
        ("stop", 0, 2, "process 0 of 2, or what started it, is out of reach: the others stop"),
        ("stop", 1, 3, "process 1 of 3 has given no sign of life for "),
    ],
)
def test_a_lost_rank_is_reported_once_and_all_end(lost, rank, size, sentence, tmp_path):
    every = ranks(size, tmp_path)
    os.kill(every[rank].pid, LOST[lost])
    ends = [ended(process) for process in every]
    assert ends.pop(rank) == (-signal.SIGKILL, "", "")  # another rank kills a stopped one
    assert {code for code, _, _ in ends} == {1}
    words = "".join(words for _, _, words in ends)
    assert words.count("\n") == 1
    assert words.startswith(f"rgcn: {sentence}")
    assert words.endswith(RESUME)


def test_ranks_wait_for_a_busy_rank_and_stop_after_an_error(tmp_path):
    every = ranks(3, tmp_path)
    (tmp_path / "0.busy").touch()
    until(lambda: not (tmp_path / "0.busy").exists(), every[0])
    assert [process.poll() for process in every] == [None, None, None]
    (tmp_path / "2.error").touch()
    expected = [(1, "", ""), (1, "", ""), (1, "", "rgcn: process 2 of 3: no such luck\n")]
    assert [ended(process) for process in every] == expected


def test_the_state_of_a_process():
    sleeping = subprocess.Popen(["sleep", str(SECONDS)])
    process = RankProcess(RankProcess.current().machine, sleeping.pid)
    assert process.state() == "running"
    assert RankProcess("another machine", sleeping.pid).state() == "unknown"
    sleeping.send_signal(signal.SIGSTOP)
    deadline = time.monotonic() + SECONDS
    while process.state() != "stopped":
        assert time.monotonic() < deadline
    sleeping.kill()
    sleeping.wait()
    assert process.state() == "exited"


@pytest.mark.parametrize(
    ("failures", "reported", "code", "words"),
    [
        ({1: -9, 0: 1}, [], 137, "rgcn: process 1 of 2 is gone (killed by signal 9): the others stop" + RESUME),
        ({0: 3, 1: -15}, [], 3, "rgcn: process 0 of 2 ended with exit code 3: the others stop" + RESUME),
        ({1: -9, 0: 1}, [0], 1, ""),  # rank 0 has reported that rank 1 was stopped, and ended it
        ({0: 130, 1: 130}, [0], 130, ""),
    ],
)
def test_the_launcher_reports_failures_that_no_rank_reported(
    failures, reported, code, words, tmp_path, monkeypatch, capsys
):
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

    def fail(*command):
        found = {}
        for rank, exitcode in failures.items():
            file = tmp_path / f"{rank}.json"
            if rank in reported:
                file.write_text(json.dumps({"message": {"message": "why", "extraInfo": {"timestamp": "1"}}}))
            found[rank] = ProcessFailure(rank, 1, exitcode, str(file))
        raise ChildFailedError("rgcn", found)

    monkeypatch.chdir(tmp_path)
    Path("run").mkdir()
    Path("run/run.json").touch()
    monkeypatch.setattr("torch.distributed.launcher.api.elastic_launch", lambda *_: fail)
    monkeypatch.setattr(launch, "limit_threads", lambda number: None)
    monkeypatch.setattr(launch, "silence_distributed_logs", lambda: None)
    monkeypatch.setattr("logging.disable", lambda level: None)
    with pytest.raises(SystemExit) as end:
        launch.launch(2, Path("run"))
    assert end.value.code == code
    assert capsys.readouterr().err == words
