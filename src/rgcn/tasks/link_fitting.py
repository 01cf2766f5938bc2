"""A training of a link predictor in progress."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

import torch
from torch import Tensor

from rgcn.errors import DataError
from rgcn.tasks.fitting import Fitting, TrainingState
from rgcn.tasks.link_training import LinkTrainer

# How many reports a training makes, besides those that come with a measurement on validation triples.
REPORTS = 100


@dataclass(frozen=True)
class LinkEpoch:
    """What training did up to a step; the loss is the mean since the report before."""

    number: int
    loss: float
    valid_mrr: float | None
    seconds: float


class LinkFitting(Fitting[LinkEpoch]):
    """Steps on batches of positive edges; about a hundred reports, and one after each measurement.

    validation_mrr: called where `evaluate_every` says so. It leaves the network in evaluation mode; the next step puts
    it back.
    """

    def __init__(
        self, trainer: LinkTrainer, seed: int, history: list[LinkEpoch], validation_mrr: Callable[[], float] | None
    ) -> None:
        super().__init__(trainer, seed)
        self.trainer, self.history, self.validation_mrr = trainer, history, validation_mrr
        self.report_every = max(1, self.steps // REPORTS)
        self.since_report: list[Tensor] = []
        self.seconds_before = 0.0

    def __enter__(self) -> LinkFitting:
        super().__enter__()
        self.batches = self._open.enter_context(closing(self.trainer.batches()))
        self.start = time.perf_counter()
        self.network.train()
        return self

    def step(self) -> LinkEpoch | None:
        self.since_report.append(self.trainer.step(next(self.batches)))
        number = self.steps_taken = self.trainer.steps_taken
        every, last = self.trainer.training.evaluate_every, number == self.steps
        measures = self.validation_mrr is not None and every is not None and (number % every == 0 or last)
        if not (measures or last or number % self.report_every == 0):
            return None
        mean = float(torch.stack(self.since_report).mean())
        self.since_report.clear()
        if not math.isfinite(mean):
            raise DataError(f"the loss is not finite by epoch {number}: lower the learning rate, or set clip to 1")
        mrr = None
        if measures:
            assert self.validation_mrr is not None
            mrr = self.validation_mrr()
            self.best.offer(mrr, number)
        self.history.append(LinkEpoch(number, mean, mrr, self.seconds))
        return self.history[-1]

    @property
    def seconds(self) -> float:
        """Spent training so far, in every session."""
        return self.seconds_before + time.perf_counter() - self.start

    def state(self) -> TrainingState:
        state = super().state()
        tensors = {"losses": torch.stack(self.since_report)} if self.since_report else {}
        values = {"sampler": self.trainer.sampler_state, "seconds": self.seconds}
        return TrainingState(state.tensors | tensors, state.values | values)

    def restore(self, state: TrainingState) -> None:
        super().restore(state)
        self.trainer.go_on(self.steps_taken, state.values["sampler"])
        losses = state.tensors.get("losses")
        self.since_report = [] if losses is None else list(losses.to(self.device).unbind())
        self.seconds_before = state.values["seconds"]
