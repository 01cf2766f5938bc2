"""All measurements in turns, and the figures side by side."""

from __future__ import annotations

import re
import shlex
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rgcn.bench.child import Job
from rgcn.bench.floor import Speeds, Work, floor_seconds
from rgcn.bench.graphs import find_graph, graph_to_npz
from rgcn.bench.machine import describe_machine
from rgcn.bench.measuring import measure_apart, speeds_apart
from rgcn.bench.memory import available_bytes
from rgcn.bench.sides import NO_PEERS, PEERS, peers_installed
from rgcn.bench.workloads import MODELS, Workload, workload_for
from rgcn.errors import ConfigError
from rgcn.graph import KnowledgeGraph

FIGURES = ("seconds", "peak_bytes", "step_peak_bytes", "prepare_seconds", "first_step_seconds", "steps", "threads")
SHARE_OF_MEMORY = 0.9

Measure = Callable[[Job], dict[str, Any]]


@dataclass(frozen=True)
class Plan:
    """What to measure. devices None: the CPU, and a GPU if there is one."""

    graphs: tuple[str, ...]
    models: tuple[str, ...] = MODELS
    devices: tuple[str, ...] | None = None
    peers: tuple[str, ...] = tuple(PEERS)
    steps: int = 20
    rounds: int = 3
    budget: float = 20.0
    hidden: int | None = None
    bases: int | None = None

    def __post_init__(self) -> None:
        for kind, given, known in (("model", self.models, MODELS), ("peer", self.peers, tuple(PEERS))):
            for name in given:
                if name not in known:
                    raise ConfigError(f"unknown {kind} {name!r}; there are {', '.join(known)}")
        for name, number in (("steps", self.steps), ("rounds", self.rounds), ("budget", self.budget)):
            if not 0 < number < float("inf"):
                raise ConfigError(f"{name} must be positive and finite, not {number}")


class Listener:
    """Told how a comparison goes on; this one keeps silent."""

    def begin(self, total: int) -> None:
        """So many measurements will be made at most."""

    def measuring(self, what: str) -> None:
        """One of them begins."""

    def measured(self, skipped: int = 0) -> None:
        """It is done; `skipped` others need not be made."""

    def note(self, words: str) -> None:
        """Something a reader of the figures should know."""


def compare(
    plan: Plan,
    listener: Listener | None = None,
    command: Iterable[str] = (),
    measure: Measure = measure_apart,
    speeds_of: Callable[[str], Speeds] = speeds_apart,
) -> dict[str, Any]:
    """Measure everything in the plan; see `report` for how to show what comes back.

    command, date, machine
    speeds  {device: {bandwidth, rate}}: bytes and multiply-adds a second, measured here
    notes   words about what is missing
    rows    one for each graph, model, device and side; `side` is the model's name for ours, the layer's for a peer

    Every measurement has a process of its own (`measure`); sides take turns, and the best round counts.
    """
    listener = listener or Listener()
    devices = resolve_devices(plan.devices)
    notes: list[str] = []
    peers = plan.peers
    if peers and not peers_installed():
        peers = ()
        notes.append(NO_PEERS)
        listener.note(NO_PEERS)
    graphs = {name: find_graph(name) for name in plan.graphs}  # a misspelled last name should not cost the first's run
    per_round = sum(1 + len(peers) * (model == "rgcn") for model in plan.models)
    listener.begin(len(graphs) * len(devices) * plan.rounds * per_round)
    speeds = {}
    rows: list[dict[str, Any]] = []
    for device in devices:
        listener.measuring(f"what {device} can do")
        speeds[device] = speeds_of(device)
    with tempfile.TemporaryDirectory(prefix="rgcn-bench-") as folder:
        for number, name in enumerate(plan.graphs):
            graph = graphs[name]
            path = Path(folder) / f"{number}.npz"
            graph_to_npz(graph, path)
            for device in devices:
                for model in plan.models:
                    title = short_name(name)
                    workload = workload_for(title, model, graph.num_nodes, graph.num_relations, plan.hidden, plan.bases)
                    sides = ("ours", *(peers if model == "rgcn" else ()))
                    jobs = [
                        Job(str(path), side, workload, device, plan.steps, plan.budget, max_bytes=_allowed(device))
                        for side in sides
                    ]
                    rounds = take_turns(jobs, plan.rounds, measure, listener, f"{title} {model} {device}")
                    rows += side_by_side(about(title, graph, workload, device), rounds, speeds[device])
    return {
        "command": shlex.join(command),
        "date": time.strftime("%Y-%m-%d"),
        "machine": describe_machine(),
        "speeds": {device: found.as_dict() for device, found in speeds.items()},
        "notes": notes,
        "rows": rows,
    }


def resolve_devices(given: tuple[str, ...] | None) -> tuple[str, ...]:
    """Devices that are there, or an error that says which is not."""
    import torch

    from rgcn.tasks.estimator import choose_device

    if given is None:
        return ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
    for name in given:
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", name):
            raise ConfigError(f"unknown device {name!r}; there are cpu, cuda, cuda:N and auto")
    return tuple(dict.fromkeys(str(choose_device(name)) for name in given))


def short_name(name: str) -> str:
    """What to call a graph: a name as it is, a path by its last part.

    >>> short_name("/tmp/am-shaped.npz")
    'am-shaped'
    """
    return Path(name).name.removesuffix(".npz")


def _allowed(device: str) -> int | None:
    """Bytes a measurement on the CPU may take, so that it fails before the machine does."""
    available = available_bytes() if device == "cpu" else None
    return None if available is None else int(SHARE_OF_MEMORY * available)


def take_turns(
    jobs: list[Job], rounds: int, measure: Measure, listener: Listener, title: str
) -> dict[str, list[dict[str, Any]]]:
    """{side: what each round found}; a side that failed is not tried again."""
    found: dict[str, list[dict[str, Any]]] = {job.side: [] for job in jobs}
    for turn in range(rounds):
        for job in jobs:
            earlier = found[job.side]
            if earlier and "failed" in earlier[-1]:
                continue
            listener.measuring(f"{title}: {side_name(job.side, job.workload)}, round {turn + 1}")
            figures = measure(replace(job, floor=turn == 0 and job.side == "ours"))
            earlier.append(figures)
            listener.measured(skipped=rounds - turn - 1 if "failed" in figures else 0)
    return found


def about(title: str, graph: KnowledgeGraph, workload: Workload, device: str) -> dict[str, Any]:
    """What every row says about its graph and network."""
    assert graph.labels is not None
    return {
        "graph": title,
        "nodes": graph.num_nodes,
        "relations": graph.num_relations,
        "edges": graph.num_triples,
        "train": len(graph.labels.of("train")[0]),
        "model": workload.model,
        "device": device,
        "settings": workload.settings(),
        "workload": workload,
    }


def side_name(side: str, workload: Workload) -> str:
    return PEERS.get(side, workload.model)


def side_by_side(
    description: dict[str, Any], rounds: dict[str, list[dict[str, Any]]], speeds: Speeds
) -> list[dict[str, Any]]:
    """A row for each side: its best round, all rounds, and how it compares with ours and with the floor."""
    workload: Workload = description["workload"]
    common = {key: value for key, value in description.items() if key != "workload"}
    best = {side: _best(turns) for side, turns in rounds.items()}
    ours = best.get("ours")
    rows = []
    for side, turns in rounds.items():
        row: dict[str, Any] = {**common, "side": side_name(side, workload), "rounds": turns}
        chosen = best[side]
        if chosen is None:
            row["failed"] = turns[-1]["failed"]
        else:
            row |= {key: chosen.get(key) for key in FIGURES}
            if ours is not None:
                row["times_slower"] = chosen["seconds"] / ours["seconds"]
                row["times_memory"] = chosen["peak_bytes"] / max(ours["peak_bytes"], 1)
            if side == "ours":
                row |= {key: turns[0][key] for key in ("trained_parameters", "no_floor") if key in turns[0]}
            if side == "ours" and "work" in turns[0]:
                work = Work(**turns[0]["work"])
                seconds, bound = floor_seconds(work, speeds)
                row["floor"] = {
                    "bytes": work.bytes,
                    "operations": work.operations,
                    "seconds": seconds,
                    "bound_by": bound,
                    "reached": seconds / chosen["seconds"],
                }
        rows.append(row)
    return rows


def _best(turns: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The fastest round, None where a round failed before any was measured."""
    measured = [figures for figures in turns if "seconds" in figures]
    return min(measured, key=lambda figures: float(figures["seconds"]), default=None)
