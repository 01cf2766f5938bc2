"""The times the paper gives, beside ours on this machine.

Node classification is trained whole. Link prediction takes hours on a CPU: there some steps are measured and the rest
is computed, and every row says which.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from rgcn.config import RunConfig
from rgcn.paper.availability import load_or_reason
from rgcn.paper.comparison import Row, Table, judge_time, without_figure
from rgcn.paper.published import (
    CPU,
    DISTMULT_TIME,
    FREEBASE_TIME,
    GPU,
    LINK_EPOCHS_TIMED,
    LINK_TIMES,
    NODE_TIME_ON_GPU,
    NODE_TIMES,
    Figure,
)
from rgcn.paper.trainings import subject
from rgcn.runs.assembly import make_model
from rgcn.runs.configuration import load_configuration
from rgcn.tasks.estimator import Estimator, choose_device
from rgcn.words import count, duration

if TYPE_CHECKING:
    from rgcn.graph import KnowledgeGraph

NAMES = ("aifb", "am", "wn18")
STEPS, WARM_STEPS = 20, 3
OnMeasure = Callable[[str], None]


def timings_table(
    names: Sequence[str] | None = None,
    *,
    mirror: Path | None = None,
    device: str | None = None,
    steps: int = STEPS,
    on_measure: OnMeasure | None = None,
) -> Table:
    """Every time the paper states; `names`: data sets to measure on, None for all."""
    clock = _Clock(names, mirror, choose_device(device or "auto").type, steps, on_measure)
    rows = [clock.node(name, figure, "cpu") for name, figure in NODE_TIMES.items()]
    rows += [clock.node("rgcn/nc-aifb", NODE_TIME_ON_GPU, "cuda"), clock.node("rgcn/nc-am", NODE_TIME_ON_GPU, "cuda")]
    rows += [clock.link(name, figure, LINK_EPOCHS_TIMED) for name, figure in LINK_TIMES.items()]
    rows.append(clock.link("distmult/lp-wn18", DISTMULT_TIME, None))
    freebase = Row("FB15k and FB15k-237, RGCN", "a whole run, GPU", kind="time")
    why = "not measured: the paper does not say how many epochs these runs had"
    found = [row for row in rows if row is not None]
    return Table(
        "timings",
        "Times",
        [*found, *([without_figure(freebase, [FREEBASE_TIME], why)] if names is None else [])],
        rule=f"Times on different machines: the paper's are from {CPU} (CPU) and {GPU} (GPU), ours from this one. "
        "≈ marks a time computed from fewer steps than the paper took; the note says how many were measured.",
    )


class _Clock:
    """Measures one row after another; a data set is read once for rows that follow each other."""

    def __init__(
        self,
        names: Sequence[str] | None,
        mirror: Path | None,
        device: str,
        steps: int,
        on_measure: OnMeasure | None,
    ) -> None:
        self.names, self.mirror, self.device, self.steps, self.on_measure = names, mirror, device, steps, on_measure
        self._loaded: tuple[str, KnowledgeGraph | str] | None = None

    def node(self, configuration: str, figure: Figure, device: str) -> Row | None:
        """A whole training of node classification, after one epoch to warm up."""
        config = load_configuration(configuration, (), {"training.device": device})
        row = Row(
            subject(configuration), f"training, {device.replace('cuda', 'GPU').replace('cpu', 'CPU')}", kind="time"
        )
        if not self._wanted(config):
            return None
        if device == "cuda" and not torch.cuda.is_available():
            return without_figure(row, [figure], "there is no GPU here")
        graph = self._graph(config)
        if isinstance(graph, str):
            return without_figure(row, [figure], graph)
        self._say(configuration)
        make_model(load_configuration(configuration, ["training.epochs=1"], {"training.device": device})).fit(graph)
        seconds = _seconds(lambda: make_model(config).fit(graph), device)
        note = f"measured: a whole training, {config.training.epochs} epochs, once"
        return replace(row, published=(judge_time(figure, seconds),), ours=seconds, note=note)

    def link(self, configuration: str, figure: Figure, epochs: int | None) -> Row | None:
        """Some steps and one filtered ranking (of the validation triples, which are as many as the test triples)."""
        config = load_configuration(configuration, ["training.evaluate_every=null"], {"training.device": self.device})
        row = Row(subject(configuration), "training and inference", kind="time")
        if not self._wanted(config):
            return None
        graph = self._graph(config)
        if isinstance(graph, str):
            return without_figure(row, [figure], graph)
        self._say(configuration)
        predictor = make_model(config)
        step = self._step_seconds(predictor, graph)
        ranking = _seconds(lambda: predictor.evaluate(split="valid"), self.device)
        total = epochs or config.training.epochs
        seconds = total * step + ranking
        note = (
            f"computed: {duration(step)} a step (mean of {self.steps} measured) × {total:,} + {duration(ranking)} "
            f"for one filtered ranking (measured), {self._place()}"
        )
        return replace(row, published=(judge_time(figure, seconds),), ours=seconds, extrapolated=True, note=note)

    def _step_seconds(self, predictor: Estimator, graph: KnowledgeGraph) -> float:
        with predictor.fitting(graph) as fitting:

            def take(steps: int) -> None:
                for _ in range(steps):
                    fitting.trainer.step()

            take(WARM_STEPS)
            return _seconds(lambda: take(self.steps), self.device) / self.steps

    def _wanted(self, config: RunConfig) -> bool:
        return self.names is None or config.data.dataset in self.names

    def _graph(self, config: RunConfig) -> KnowledgeGraph | str:
        name = config.data.dataset
        assert name is not None
        if self._loaded is None or self._loaded[0] != name:
            self._loaded = name, load_or_reason(name, self.mirror)
        return self._loaded[1]

    def _say(self, what: str) -> None:
        if self.on_measure is not None:
            self.on_measure(what)

    def _place(self) -> str:
        return "on the GPU" if self.device == "cuda" else f"on {count(torch.get_num_threads(), 'CPU thread')}"


def _seconds(work: Callable[[], object], device: str) -> float:
    start = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start
