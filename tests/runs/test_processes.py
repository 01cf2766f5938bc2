"""Processes are heard, heard no more once they died, and stopped."""

from __future__ import annotations

import os
import time
from multiprocessing.connection import Connection

import pytest

from rgcn.runs.processes import Died, WorkerProcess, hear_from, stop
from rgcn.threads import NUMBERS, WAITING


def obey(line: Connection) -> None:
    """In the other process."""
    while True:
        word = line.recv()
        if word == "raise":
            raise ValueError("told to")
        if word == "die":
            os._exit(3)
        if word == "sleep":
            time.sleep(600)
        line.send({name: os.environ[name] for name in (*NUMBERS, WAITING)})


def test_a_process_answers_dies_once_and_none_outlives_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv(WAITING, "PASSIVE")
    processes = [WorkerProcess(obey, threads=7) for _ in range(3)]
    raising, dying, sleeping = processes
    try:
        assert raising.send("hello")
        assert list(hear_from(processes)) == [(raising, {**dict.fromkeys(NUMBERS, "2"), WAITING: "PASSIVE"})]
        for process, word in ((raising, "raise"), (dying, "die"), (sleeping, "sleep")):
            process.send(word)
        deaths = dict[WorkerProcess, Died]()
        while len(deaths) < 2:
            for process, message in hear_from(processes):
                assert process not in deaths
                deaths[process] = message
        assert deaths == {
            raising: Died("ValueError: told to"),
            dying: Died("its process ended without a word (exit code 3)"),
        }
        assert not dying.send("are you there")
    finally:
        stop(processes)
    assert not any(each.process.is_alive() for each in processes)
    assert os.environ["OMP_NUM_THREADS"] == "2"
