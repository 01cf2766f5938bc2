"""Workers take one training after another, whatever becomes of their processes."""

from __future__ import annotations

import pytest

from rgcn.runs import load_configuration
from rgcn.runs.workers import Job, Outcome, workers
from threads_as_processes import Workshop, dies_after_hearing_something, dies_after_saying

MODULE = "rgcn.runs.workers"


@pytest.fixture
def job() -> Job:
    return Job(load_configuration("rgcn/nc-world", ["training.epochs=2", "training.device=cpu"]))


def test_a_process_that_died_while_idle_is_replaced(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    workshop = Workshop(monkeypatch, MODULE, [dies_after_saying(Outcome)])
    with workers(2) as pool:
        (first,) = pool.run([job])
        workshop.started[0].process.join()
        (second,) = pool.run([job])
        (third,) = pool.run([job])
    assert (first.error, second.error, third.error) == (None, None, None)
    assert len(workshop.started) == 2  # the second one took the third job too
    assert not any(worker.process.is_alive() for worker in workshop.started)


def test_a_process_that_dies_at_work_costs_its_job(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    Workshop(monkeypatch, MODULE, [dies_after_hearing_something])
    with workers(2) as pool:
        outcomes = list(pool.run([job, job, job]))
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    assert errors == ["its process ended without a word (exit code -9)"]
    assert len(outcomes) == 3
