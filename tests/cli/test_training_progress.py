"""The expected time of a training is printed once, after its first steps, if it is long."""

import itertools

import pytest

from rgcn.cli.output import TrainingProgress
from rgcn.config import LinkTrainingConfig
from rgcn.models.task import task_of

ESTIMATE = "Estimated time: 3 min, measured in the first steps"


@pytest.mark.parametrize(("seconds", "messages"), [(2.0, [ESTIMATE]), (0.5, [])])
def test_the_time_is_estimated_from_the_first_steps(monkeypatch, capsys, seconds, messages):
    clock = itertools.count(step=seconds)
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
    progress = TrainingProgress(LinkTrainingConfig(steps=100), task_of("link-prediction").headline)
    for number in range(1, 9):
        progress.step(number)
    assert [line for line in capsys.readouterr().err.splitlines() if line.startswith("Estimated time")] == messages
