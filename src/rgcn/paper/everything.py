"""The tables that need no training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rgcn.paper.availability import load_or_reason
from rgcn.paper.comparison import Table
from rgcn.paper.datasets import datasets_table
from rgcn.paper.parameters import parameters_table
from rgcn.paper.tensor_statistics import tensor_statistics, tensors_table
from rgcn.paper.timings import timings_table

SEEDS = 10


def quick_tables(mirror: Path | None, device: str | None, say: Callable[[str], None]) -> list[Table]:
    """Data sets, parameters, intermediate tensors and times; `say` hears what comes next."""
    say("data sets")
    tables = [datasets_table(mirror=mirror)]
    say("parameters")
    tables.append(parameters_table(mirror=mirror))
    say("intermediate tensors")
    graph = load_or_reason("fb-toy", mirror)
    if not isinstance(graph, str):
        tables.append(tensors_table(tensor_statistics(graph, SEEDS), SEEDS))
    say("times")
    tables.append(timings_table(mirror=mirror, device=device, on_measure=say))
    return tables
