"""Workers take one training after another, whatever becomes of their processes."""

from __future__ import annotations

import pytest
from threads_as_processes import Workshop, dies_after_hearing_something, dies_after_saying

from rgcn.runs import load_configuration
from rgcn.runs.workers import Outcome, Task, workers

MODULE = "rgcn.runs.workers"


@pytest.fixture
def task() -> Task:
    return Task(load_configuration("rgcn/nc-world", ["training.epochs=2", "training.device=cpu"]))


def test_a_process_that_died_while_idle_is_replaced(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    workshop = Workshop(monkeypatch, MODULE, [dies_after_saying(Outcome)])
    with workers(2) as pool:
        (first,) = pool.run([task])
        workshop.started[0].process.join()
        (second,) = pool.run([task])
        (third,) = pool.run([task])
    assert (first.error, second.error, third.error) == (None, None, None)
    assert len(workshop.started) == 2  # the second one took the third task too
    assert not any(worker.process.is_alive() for worker in workshop.started)


def test_a_process_that_dies_at_work_costs_its_task(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    Workshop(monkeypatch, MODULE, [dies_after_hearing_something])
    with workers(2) as pool:
        outcomes = list(pool.run([task, task, task]))
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    assert errors == ["its process ended without a word (exit code -9)"]
    assert len(outcomes) == 3
