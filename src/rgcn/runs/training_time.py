"""How long a model may train: some of its steps and questions are timed, and minutes become a number of steps."""

import math
from time import perf_counter
from typing import NamedTuple

from rgcn.config import RunConfig
from rgcn.errors import ConfigError
from rgcn.models.estimator import Estimator
from rgcn.runs.assembly import make_model
from rgcn.runs.configuration import changed_training
from rgcn.runs.planning import RunPlan
from rgcn.runs.training import saying_what_memory_lacks
from rgcn.system.formatting import duration

MEASUREMENTS, LEAST_STEPS = 3, 20  # of a training
TIMED_STEPS, TIMED_QUESTIONS = 12, (1, 8, 64)


class ModelCost(NamedTuple):
    start: float  # seconds before the first step
    step: float  # seconds each
    asked: float  # seconds for a triple (or label) that is measured
    validated: int  # how many of these there are for validation
    measured: int  # likewise in the larger split
    memory: int  # bytes of its weights, what moves them, and a step

    def steps(self, seconds: float, at_most: int) -> tuple[int, int]:
        """How many steps so much time is enough for, and how often to measure on so many triples meanwhile."""
        for times in (MEASUREMENTS, 1):
            left = seconds - self.start - times * self.validating(at_most)
            if left >= LEAST_STEPS * self.step:
                return int(left / self.step), times
        return 0, 1

    def validating(self, at_most: int) -> float:
        return self.asked * min(at_most, self.validated)


def cost_of(plan: RunPlan, patience: float) -> ModelCost:
    """Some steps and some questions, timed; ConfigError where one step takes longer than `patience` seconds."""
    began, config, model = perf_counter(), plan.config, make_model(plan.config, plan.mirror)
    marks: list[float] = []
    with saying_what_memory_lacks(), model.fitting(plan.training) as fitting:
        start = perf_counter() - began
        size = 16 * model.num_parameters_ + fitting.trainer.step_bytes  # weights, gradients, and what Adam remembers
        most = TIMED_STEPS if config.training.epochs else 0
        while len(marks) < min(most, 3) or (len(marks) < most and marks[-1] - marks[0] < patience):
            float(fitting.trainer.step())  # waits for it
            marks.append(perf_counter() - began - start)
            if marks[1:] and marks[-1] - marks[-2] > patience:  # the first one may compile something
                raise ConfigError(f"a step takes {duration(marks[-1] - marks[-2])}: give it more --minutes")
        step = fitting.trainer.steps_an_epoch * (marks[-1] - marks[0]) / (len(marks) - 1) if marks else 0.0
        fitting.finish()
        there = {split: _held_out(model, split) for split in model.measured_splits() if split != "train"}
        validated, asked = there.get("valid", 0), 0.0
        for number, few in enumerate(TIMED_QUESTIONS if validated else ()):
            if number < 2 or asked * few < patience:
                before = perf_counter()
                model.evaluate(split="valid", at_most=few)
                asked = (perf_counter() - before) / min(few, validated)
    return ModelCost(start, step, asked, validated, max(there.values(), default=0), size)


def _held_out(model: Estimator, split: str) -> int:
    return model.task_().kind.split_sizes(model.graph_).get(split, 0)


def with_steps_for(plan: RunPlan, minutes: float) -> RunPlan:
    """The run with as many steps as so many minutes are enough for."""
    began, cost = perf_counter(), cost_of(plan, 60.0 * minutes)
    left = 60.0 * minutes - (perf_counter() - began) - cost.asked * cost.measured
    least = max(1, getattr(plan.config.training, "warmup", 0))
    return plan.with_training(epochs=max(least, cost.steps(left, cost.validated)[0])) if cost.step else plan


def for_steps(config: RunConfig, steps: int, times: int) -> RunConfig:
    """The configuration with so many steps, measured so often meanwhile."""
    return changed_training(config, epochs=steps, evaluate_every=math.ceil(steps / times))
