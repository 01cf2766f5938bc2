"""Processes are heard and stopped, and take one training after another, whatever becomes of them."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from multiprocessing.connection import Connection

import pytest

from rgcn import plugins as axes
from rgcn.errors import DataError
from rgcn.plugins import allowed
from rgcn.runs import load_configuration
from rgcn.runs.series import SeedTraining, SeriesRow, _trainer
from rgcn.runs.worker_pool import Crew, Died, Done, WorkerProcess, hear_from, stop
from rgcn.system import memory
from rgcn.system.memory import memory_limit
from rgcn.system.threads import NUMBERS, WAITING
from threads_as_processes import Workshop, dies_after_hearing_something, dies_after_saying, dies_at_once, dies_at_work


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
        variables = {name: os.environ[name] for name in (*NUMBERS, WAITING)}
        line.send({**variables, "memory": memory_limit(), "allowed": allowed()})


def test_a_process_answers_dies_once_and_none_outlives_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker process has this one's settings as arguments, and its own variables; this one's stay as they are."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.delenv(axes.ALLOWED, raising=False)
    monkeypatch.delenv(WAITING, raising=False)
    monkeypatch.setattr(memory, "_limit", 5 << 30)
    monkeypatch.setattr(axes, "_allowed", ["mine"])
    before = dict(os.environ)
    processes = [WorkerProcess(obey, threads=7) for _ in range(3)]
    raising, dying, sleeping = processes
    try:
        raising.send("hello")
        expected = {**dict.fromkeys(NUMBERS, "2"), WAITING: "PASSIVE", "memory": 5 << 30, "allowed": ("mine",)}
        assert list(hear_from(processes)) == [(raising, expected)]
        for process, word in ((raising, "raise"), (dying, "die"), (sleeping, "sleep")):
            process.send(word)
        deaths = dict[WorkerProcess, Died]()
        while len(deaths) < 2:
            deaths |= dict(hear_from([process for process in processes if process not in deaths]))
        assert deaths == {
            raising: Died("ValueError: told to"),
            dying: Died("its process ended without a word (exit code 3)"),
        }
        dying.send("are you there")
        assert dying.hear() == deaths[dying]
    finally:
        stop(processes)
    assert not any(each.process.is_alive() for each in processes)
    assert dict(os.environ) == before


def ask(line: Connection) -> None:
    """In the other process: a training that has heard the signal, and waits for the answer to its report."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    line.send("a report")
    line.recv()


def test_a_process_that_waits_for_an_answer_is_stopped_without_being_killed() -> None:
    process = WorkerProcess(ask, threads=1)
    assert process.hear() == "a report"
    stop([process])
    assert process.process.exitcode == 0


@pytest.fixture
def training() -> SeedTraining:
    return SeedTraining(load_configuration("rgcn/nc-world", ["training.epochs=2", "training.device=cpu"]))


def crew(training: SeedTraining) -> Crew[SeedTraining]:
    return Crew(2, partial(_trainer, training.config, None, True))


def errors(crew: Crew[SeedTraining], *trainings: SeedTraining) -> list[str | None]:
    """What became of trainings: None of one that is finished, else why it is not."""
    found = []
    for _, end in crew.run(iter(trainings), lambda *_: None):
        assert isinstance(end, Died) or isinstance(end.value, SeriesRow)
        found.append(end.words if isinstance(end, Died) else end.value.error)
    return found


def test_a_process_that_died_while_idle_is_replaced(training: SeedTraining, monkeypatch: pytest.MonkeyPatch) -> None:
    workshop = Workshop(monkeypatch, [dies_after_saying(Done)])
    with crew(training) as one:
        first = errors(one, training)
        workshop.started[0].process.join()
        assert [first, errors(one, training), errors(one, training)] == [[None], [None], [None]]
    assert len(workshop.started) == 2  # the second one took the third training too
    assert not any(worker.process.is_alive() for worker in workshop.started)


def test_a_process_that_dies_at_work_costs_its_training(
    training: SeedTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    Workshop(monkeypatch, [dies_at_work])
    with crew(training) as one:
        found = errors(one, *[training] * 3)
    assert sorted(found, key=str) == [None, None, "its process ended without a word (exit code -9)"]


def test_every_training_may_lose_its_process_but_not_before_it_began(
    training: SeedTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    Workshop(monkeypatch, [dies_at_work] * 5)
    with crew(training) as one:
        assert None not in errors(one, *[training] * 5)
    Workshop(monkeypatch, [dies_at_once, dies_after_hearing_something])
    with crew(training) as one:
        assert errors(one, *[training] * 2) == [None, None]
    Workshop(monkeypatch, [dies_at_once] * 9)
    with crew(training) as one, pytest.raises(DataError, match="3 processes in a row died"):
        errors(one, *[training] * 2)
