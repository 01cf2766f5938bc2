"""The times the paper gives, beside ours on this machine.

Node classification is trained whole. Link prediction takes hours on a CPU: there some steps are measured and the rest
is computed, and every row says which.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from rgcn.config import RunConfig
from rgcn.paper.judging import PaperRow, PaperTable, judge_time, load_or_reason
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
from rgcn.paper.quick_tables import SEEDS, datasets_table, parameters_table, tensor_statistics, tensors_table
from rgcn.paper.trainings import subject
from rgcn.runs.assembly import make_model
from rgcn.runs.configuration import load_configuration
from rgcn.tasks.devices import choose_device
from rgcn.tasks.estimator import Estimator, choose_device
from rgcn.words import count, duration

if TYPE_CHECKING:
    from rgcn.graph import KnowledgeGraph

TIMED = ("aifb", "am", "wn18")
STEPS, WARM_STEPS = 20, 3
Say = Callable[[str], None]


def quick_tables(mirror: Path | None, device: str | None, say: Say) -> list[PaperTable]:
    """All but the tables of trainings: data sets, parameters, intermediate tensors, times; `say` hears what is next."""
    say("data sets")
    tables = [datasets_table(mirror=mirror)]
    say("parameters")
    tables.append(parameters_table(mirror=mirror))
    say("intermediate tensors")
    graph = load_or_reason("fb-toy", mirror)
    if not isinstance(graph, str):
        tables.append(tensors_table(tensor_statistics(graph), SEEDS))
    say("times")
    return [*tables, timings_table(mirror=mirror, device=device, on_measure=say)]


def timings_table(
    names: Sequence[str] | None = None,
    *,
    mirror: Path | None = None,
    device: str | None = None,
    steps: int = STEPS,
    on_measure: Say | None = None,
) -> PaperTable:
    """Every time the paper states; `names`: data sets to measure on, None for all."""
    here = choose_device(device or "auto").type
    wanted: list[tuple[str, Figure, str, int | None]] = [  # configuration, published, device, epochs of the paper
        *((name, figure, "cpu", None) for name, figure in NODE_TIMES.items()),
        *((name, NODE_TIME_ON_GPU, "cuda", None) for name in NODE_TIMES),
        *((name, figure, here, LINK_EPOCHS_TIMED) for name, figure in LINK_TIMES.items()),
        ("distmult/lp-wn18", DISTMULT_TIME, here, None),
    ]
    graph_of = lru_cache(maxsize=1)(partial(load_or_reason, mirror=mirror))  # rows on the same data follow each other
    rows = []
    for name, figure, place, epochs in wanted:
        whole = name in NODE_TIMES
        config = load_configuration(name, [] if whole else ["training.evaluate_every=null"], {"training.device": place})
        if names is not None and config.data.dataset not in names:
            continue
        quantity = f"training, {'GPU' if place == 'cuda' else 'CPU'}" if whole else "training and inference"
        row = PaperRow(subject(name), quantity, kind="time")
        no_gpu = place == "cuda" and not torch.cuda.is_available()
        graph = "there is no GPU here" if no_gpu else graph_of(config.data.dataset)
        if isinstance(graph, str):
            rows.append(row.without_figure([figure], graph))
            continue
        if on_measure is not None:
            on_measure(name)
        seconds, note = _whole_training(config, graph) if whole else _steps_and_ranking(config, graph, steps, epochs)
        judged = (judge_time(figure, seconds),)
        rows.append(replace(row, published=judged, ours=seconds, extrapolated=not whole, note=note))
    if names is None:
        freebase = PaperRow("FB15k and FB15k-237, RGCN", "a whole run, GPU", kind="time")
        why = "not measured: the paper does not say how many epochs these runs had"
        rows.append(freebase.without_figure([FREEBASE_TIME], why))
    return PaperTable(
        "timings",
        "Times",
        rows,
        rule=f"Times on different machines: the paper's are from {CPU} (CPU) and {GPU} (GPU), ours from this one. "
        "≈ marks a time computed from fewer steps than the paper took; the note says how many were measured.",
    )


def _whole_training(config: RunConfig, graph: KnowledgeGraph) -> tuple[float, str]:
    """Seconds of training a node classifier, after one epoch to warm up, and what was measured."""
    warm = config.model_copy(update={"training": config.training.model_copy(update={"epochs": 1})})
    make_model(warm).fit(graph)
    seconds = _seconds(lambda: make_model(config).fit(graph), config.training.device)
    return seconds, f"measured: a whole training, {config.training.epochs} epochs, once"


def _steps_and_ranking(config: RunConfig, graph: KnowledgeGraph, steps: int, epochs: int | None) -> tuple[float, str]:
    """Seconds computed of some steps and one filtered ranking (of the validation triples, as many as test triples)."""
    predictor, device = make_model(config), config.training.device
    with predictor.fitting(graph) as fitting:

        def take(number: int) -> None:
            for _ in range(number):
                fitting.trainer.step()

        take(WARM_STEPS)
        step = _seconds(lambda: take(steps), device) / steps
    ranking = _seconds(lambda: predictor.evaluate(split="valid"), device)
    total = epochs or config.training.epochs
    place = "on the GPU" if device == "cuda" else f"on {count(torch.get_num_threads(), 'CPU thread')}"
    note = (
        f"computed: {duration(step)} a step (mean of {steps} measured) × {total:,} + {duration(ranking)} for one "
        f"filtered ranking (measured), {place}"
    )
    return total * step + ranking, note


def _seconds(work: Callable[[], object], device: str) -> float:
    start = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start
