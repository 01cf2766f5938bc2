"""Worker processes answer, stop, and run one training after another, even if some of them die."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from multiprocessing.connection import Connection

import pytest

from rgcn import plugins
from rgcn.errors import DataError
from rgcn.plugins import allowed_packages
from rgcn.runs import load_configuration
from rgcn.runs.series import SeedTraining, SeriesRow, _start_training
from rgcn.runs.worker_pool import TaskResult, WorkerDeath, WorkerPool, WorkerProcess, receive_from, stop
from rgcn.system import memory
from rgcn.system.memory import memory_limit
from rgcn.system.threads import THREAD_VARIABLES, WAIT_POLICY_VARIABLE
from threads_as_processes import ThreadWorkers, dies_after_receiving, dies_after_sending, dies_at_once, dies_at_work


def obey(connection: Connection) -> None:
    """Run in the worker: follow the instruction of the parent."""
    while True:
        command = connection.recv()
        if command == "raise":
            raise ValueError("told to")
        if command == "die":
            os._exit(3)
        if command == "sleep":
            time.sleep(600)
        variables = {name: os.environ[name] for name in (*THREAD_VARIABLES, WAIT_POLICY_VARIABLE)}
        connection.send({**variables, "memory": memory_limit(), "allowed": allowed_packages()})


def test_a_crashed_worker_is_replaced_and_stop_ends_all_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker takes over settings as arguments and sets its own environment variables; ours do not change."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.delenv(plugins.ALLOW_VARIABLE, raising=False)
    monkeypatch.delenv(WAIT_POLICY_VARIABLE, raising=False)
    monkeypatch.setattr(memory, "_limit_bytes", 5 << 30)
    monkeypatch.setattr(plugins, "_allowed", ["mine"])
    before = dict(os.environ)
    processes = [WorkerProcess(obey, threads=7) for _ in range(3)]
    raising, dying, sleeping = processes
    try:
        raising.send("hello")
        expected = {
            **dict.fromkeys(THREAD_VARIABLES, "2"),
            WAIT_POLICY_VARIABLE: "PASSIVE",
            "memory": 5 << 30,
            "allowed": ("mine",),
        }
        assert list(receive_from(processes)) == [(raising, expected)]
        for process, word in ((raising, "raise"), (dying, "die"), (sleeping, "sleep")):
            process.send(word)
        deaths = dict[WorkerProcess, WorkerDeath]()
        while len(deaths) < 2:
            deaths |= dict(receive_from([process for process in processes if process not in deaths]))
        assert deaths == {
            raising: WorkerDeath("ValueError: told to"),
            dying: WorkerDeath("its process ended without an error message (exit code 3)"),
        }
        dying.send("are you there")
        assert dying.receive() == deaths[dying]
    finally:
        stop(processes)
    assert not any(each.process.is_alive() for each in processes)
    assert dict(os.environ) == before


def ask(connection: Connection) -> None:
    """Run in the worker: a training that ignores the signal and waits for the answer to its report."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    connection.send("a report")
    connection.recv()


def test_a_process_that_waits_for_an_answer_is_stopped_without_being_killed() -> None:
    process = WorkerProcess(ask, threads=1)
    assert process.receive() == "a report"
    stop([process])
    assert process.process.exitcode == 0


@pytest.fixture
def training() -> SeedTraining:
    return SeedTraining(load_configuration("rgcn/nc-world", ["training.epochs=2", "training.device=cpu"]))


def make_pool(training: SeedTraining) -> WorkerPool[SeedTraining]:
    return WorkerPool(2, partial(_start_training, training.config, None, 0.2))


def errors(pool: WorkerPool[SeedTraining], *trainings: SeedTraining) -> list[str | None]:
    """Return the error of each training, None for a finished one."""
    found = []
    for _, end in pool.run(iter(trainings), lambda *_: None):
        assert isinstance(end, WorkerDeath) or isinstance(end.value, SeriesRow)
        found.append(end.reason if isinstance(end, WorkerDeath) else end.value.error)
    return found


def test_a_process_that_died_while_idle_is_replaced(training: SeedTraining, monkeypatch: pytest.MonkeyPatch) -> None:
    workers = ThreadWorkers(monkeypatch, [dies_after_sending(TaskResult)])
    with make_pool(training) as pool:
        first = errors(pool, training)
        workers.started[0].process.join()
        assert [first, errors(pool, training), errors(pool, training)] == [[None], [None], [None]]
    assert len(workers.started) == 2  # the second worker also ran the third training
    assert not any(worker.process.is_alive() for worker in workers.started)


def test_a_process_that_crashes_while_training_fails_that_training(
    training: SeedTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    ThreadWorkers(monkeypatch, [dies_at_work])
    with make_pool(training) as pool:
        found = errors(pool, *[training] * 3)
    assert sorted(found, key=str) == [None, None, "its process ended without an error message (exit code -9)"]


def test_a_crash_fails_its_training_and_repeated_crashes_before_one_are_an_error(
    training: SeedTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    ThreadWorkers(monkeypatch, [dies_at_work] * 5)
    with make_pool(training) as pool:
        assert None not in errors(pool, *[training] * 5)
    ThreadWorkers(monkeypatch, [dies_at_once, dies_after_receiving])
    with make_pool(training) as pool:
        assert errors(pool, *[training] * 2) == [None, None]
    ThreadWorkers(monkeypatch, [dies_at_once] * 9)
    with make_pool(training) as pool, pytest.raises(DataError, match="3 processes in a row died"):
        errors(pool, *[training] * 2)
