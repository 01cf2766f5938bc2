"""All measurements in turns, and the figures side by side."""

import re
import shlex
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import torch

from rgcn.bench import measuring
from rgcn.bench.floor import Speeds, Work, floor_seconds
from rgcn.bench.graphs import default_graphs, find_graph, graph_to_npz
from rgcn.bench.measuring import MODELS, PEERS, StepJob, Workload, peers_installed, workload_for
from rgcn.bench.showing import check_plottable, plot_steps
from rgcn.errors import ConfigError
from rgcn.graph import KnowledgeGraph
from rgcn.runs.folder import environment
from rgcn.system.memory import available_bytes
from rgcn.training.plan import choose_device
from rgcn.version import __version__

FIGURES = ("seconds", "peak_bytes", "step_peak_bytes", "prepare_seconds", "first_step_seconds", "steps", "threads")
PACKAGES = ("python", "rgcn", "torch", "numba", "numpy", "triton", "torch-geometric")
SHARE_OF_MEMORY = 0.9  # that a measurement on the CPU may take, so that it fails before the machine does

Measure = Callable[[StepJob], dict[str, Any]]
Say = Callable[[str], None]
Rounds = dict[str, list[dict[str, Any]]]  # by side, what each round found


@dataclass(frozen=True)
class BenchPlan:
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


def compare(
    plan: BenchPlan,
    say: Say = lambda words: None,
    command: Iterable[str] = (),
    measure: Measure = measuring.measure_apart,
    speeds_of: Callable[[str], Speeds] = measuring.speeds_apart,
) -> dict[str, Any]:
    """Measure everything in the plan, each in a process of its own (`measure`), sides in turns: the best round counts.

    speeds  {device: {bandwidth, rate}}: bytes and multiply-adds a second, measured here
    notes   words about what is missing
    rows    one for each graph, model, device and side; `side` is the model's name for ours, the layer's for a peer
    """
    devices = resolve_devices(plan.devices)
    notes = [measuring.NO_PEERS] if plan.peers and not peers_installed() else []
    peers = () if notes else plan.peers
    for note in notes:
        say(note)
    graphs = {name: find_graph(name) for name in plan.graphs}  # a misspelled last name should not cost the first's run
    speeds = {}
    for device in devices:
        say(f"what {device} can do")
        speeds[device] = speeds_of(device)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="rgcn-bench-") as folder:
        path = Path(folder) / "graph.npz"
        for name, graph in graphs.items():
            graph_to_npz(graph, path)
            title = Path(name).name.removesuffix(".npz")
            for device, model in product(devices, plan.models):
                workload = workload_for(title, model, graph.num_nodes, graph.num_relations, plan.hidden, plan.bases)
                available = available_bytes() if device == "cpu" else None
                allowed = None if available is None else int(SHARE_OF_MEMORY * available)
                jobs = [
                    StepJob(str(path), side, workload, device, plan.steps, plan.budget, max_bytes=allowed)
                    for side in ("ours", *(peers if model == "rgcn" else ()))
                ]
                rounds = take_turns(jobs, plan.rounds, measure, say, f"{title} {model} {device}")
                rows += side_by_side(about(title, graph, workload, device), rounds, speeds[device])
    return {
        "command": shlex.join(command),
        "date": time.strftime("%Y-%m-%d"),
        "machine": describe_machine(),
        "speeds": {device: found._asdict() for device, found in speeds.items()},
        "notes": notes,
        "rows": rows,
    }


def measured(asked: Any, say: Say, command: list[str], *how: Any) -> dict[str, Any]:
    """What the options ask for, all where they name nothing and no peer where the word is "none"; drawn if wished."""
    if asked.plot:
        check_plottable(asked.plot)
    plan = BenchPlan(
        graphs=tuple(asked.graphs or default_graphs()),
        models=tuple(asked.model or MODELS),
        devices=tuple(asked.device) if asked.device else None,
        peers=tuple(peer for peer in asked.peer or PEERS if peer != "none"),
        **{name: getattr(asked, name) for name in ("steps", "rounds", "budget", "hidden", "bases")},
    )
    result = compare(plan, say, command, *how)
    if asked.plot:
        plot_steps(result, asked.plot)
    return result


def resolve_devices(given: tuple[str, ...] | None) -> tuple[str, ...]:
    """Devices that are there, or an error that says which is not."""
    if given is None:
        return ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
    for name in given:
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", name):
            raise ConfigError(f"unknown device {name!r}; there are cpu, cuda, cuda:N and auto")
    return tuple(dict.fromkeys(str(choose_device(name)) for name in given))


def take_turns(jobs: list[StepJob], rounds: int, measure: Measure, say: Say, title: str) -> Rounds:
    """{side: what each round found}; a side that failed is not tried again."""
    found: Rounds = {job.side: [] for job in jobs}
    for turn, job in product(range(rounds), jobs):
        earlier = found[job.side]
        if not earlier or "failed" not in earlier[-1]:
            say(f"{title}: {PEERS.get(job.side, job.workload.model)}, round {turn + 1} of {rounds}")
            earlier.append(measure(replace(job, floor=turn == 0 and job.side == "ours")))
    return found


def about(title: str, graph: KnowledgeGraph, workload: Workload, device: str) -> dict[str, Any]:
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
    }


def side_by_side(description: dict[str, Any], rounds: Rounds, speeds: Speeds) -> list[dict[str, Any]]:
    """A row for each side: its best round, all rounds, and how it compares with ours and with the floor."""
    measured = {side: [turn for turn in turns if "seconds" in turn] for side, turns in rounds.items()}
    best = {side: min(turns, key=lambda turn: float(turn["seconds"]), default=None) for side, turns in measured.items()}
    ours = best.get("ours")
    rows = []
    for side, turns in rounds.items():
        row: dict[str, Any] = {**description, "side": PEERS.get(side, description["model"]), "rounds": turns}
        rows.append(row)
        chosen, first = best[side], turns[0]
        if chosen is None:
            row["failed"] = turns[-1]["failed"]
            continue
        row |= {key: chosen.get(key) for key in FIGURES}
        if ours is not None:
            row["times_slower"] = chosen["seconds"] / ours["seconds"]
            row["times_memory"] = chosen["peak_bytes"] / max(ours["peak_bytes"], 1)
        if side == "ours":
            row |= {key: first[key] for key in ("trained_parameters", "no_floor") if key in first}
        if side == "ours" and "work" in first:
            seconds, bound = floor_seconds(Work(**first["work"]), speeds)
            reached = seconds / chosen["seconds"]
            row["floor"] = {**first["work"], "seconds": seconds, "bound_by": bound, "reached": reached}
    return rows


def describe_machine() -> dict[str, Any]:
    """cpu, cores, gpu (None where there is none), python, system, and a version for each package (None: absent)."""
    here = environment()
    hardware, versions = here["hardware"], {**here["versions"], "rgcn": __version__}
    if peers_installed():
        versions["torch-geometric"] = version("torch-geometric")
    return {
        **{key: hardware[key] for key in ("cpu", "cores", "gpu", "system")},
        **{name: versions.get(name) for name in PACKAGES},
    }
