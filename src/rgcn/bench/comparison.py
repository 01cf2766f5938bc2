"""Take all measurements, in rounds over the sides, and compare the results."""

import re
import shlex
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import torch

from rgcn.bench import MODELS, PEERS, BenchPlan, measurement
from rgcn.bench.bench_report import check_plot_path, plot_steps
from rgcn.bench.floor import Speeds, Work, floor_seconds
from rgcn.bench.graphs import default_graphs, find_graph, graph_to_npz
from rgcn.bench.measurement import StepJob, Workload, default_workload, has_peers
from rgcn.errors import ConfigError
from rgcn.graph import KnowledgeGraph
from rgcn.runs.folder import environment
from rgcn.system.memory import available_bytes
from rgcn.training.plan import choose_device
from rgcn.version import __version__

METRICS = ("seconds", "peak_bytes", "step_peak_bytes", "prepare_seconds", "first_step_seconds", "steps", "threads")
PACKAGES = ("python", "rgcn", "torch", "numba", "numpy", "triton", "torch-geometric")
MEMORY_SHARE = 0.9  # of the available memory, for a measurement on the CPU, so that it fails before the machine does

Measure = Callable[[StepJob], dict[str, Any]]
Report = Callable[[str], None]  # shows progress
Rounds = dict[str, list[dict[str, Any]]]  # the results of each round, by side


def compare(
    plan: BenchPlan,
    report: Report = lambda text: None,
    command: Iterable[str] = (),
    measure: Measure = measurement.measure_in_subprocess,
    speeds_of: Callable[[str], Speeds] = measurement.measure_speeds_in_subprocess,
) -> dict[str, Any]:
    """Measure everything in the plan. The best round of each side counts.

    Args:
        plan: What to measure.
        report: Shows progress.
        command: The command line, for the result.
        measure: Does a job, by default in a process of its own.
        speeds_of: Measures a device.

    Returns:
        Under "speeds", bytes and multiply-adds per second of each device; under "notes", what is missing; under "rows",
        the results of each graph, model, device and side, where `side` is the model's name for ours and the layer's
        for a peer; also the command, the date and the machine.
    """
    devices = resolve_devices(plan.device)
    peers = [peer for peer in plan.peer or PEERS if peer != "none"]
    notes = [measurement.NO_PEERS] if peers and not has_peers() else []
    for note in notes:
        report(note)
    graphs = {
        name: find_graph(name) for name in plan.graphs or default_graphs()
    }  # find wrong names before anything is measured
    speeds = {}
    for device in devices:
        report(f"measuring the speed of {device}")
        speeds[device] = speeds_of(device)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="rgcn-bench-") as folder:
        path = Path(folder) / "graph.npz"
        for name, graph in graphs.items():
            graph_to_npz(graph, path)
            title = Path(name).name.removesuffix(".npz")
            for device, model in product(devices, plan.model or MODELS):
                workload = default_workload(title, model, graph.num_nodes, graph.num_relations, plan.hidden, plan.bases)
                available = available_bytes() if device == "cpu" else None
                allowed = None if available is None else int(MEMORY_SHARE * available)
                jobs = [
                    StepJob(str(path), side, workload, device, plan.steps, plan.budget, max_bytes=allowed)
                    for side in ("ours", *(peers if model == "rgcn" and not notes else ()))
                ]
                rounds = measure_in_rounds(jobs, plan.rounds, measure, report, f"{title} {model} {device}")
                rows += comparison_rows(workload_description(title, graph, workload, device), rounds, speeds[device])
    return {
        "command": shlex.join(command),
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine_description(),
        "speeds": {device: each._asdict() for device, each in speeds.items()},
        "notes": notes,
        "rows": rows,
    }


def run_bench(plan: BenchPlan, report: Report, command: list[str], *functions: Any) -> dict[str, Any]:
    """Run `compare` with these arguments, and plot the result if the plan asks for it."""
    if plan.plot:
        check_plot_path(plan.plot)
    result = compare(plan, report, command, *functions)
    if plan.plot:
        plot_steps(result, plan.plot)
    return result


def resolve_devices(names: Sequence[str] | None) -> tuple[str, ...]:
    """Return the devices with these names, by default all; raise ConfigError for one that is missing."""
    if names is None:
        return ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
    for name in names:
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", name):
            raise ConfigError(f"unknown device {name!r}: choose cpu, cuda, cuda:N or auto")
    return tuple(dict.fromkeys(str(choose_device(name)) for name in names))


def measure_in_rounds(jobs: list[StepJob], rounds: int, measure: Measure, report: Report, title: str) -> Rounds:
    """Measure each side once per round; a side that failed is not measured again. Returns results by side."""
    results: Rounds = {job.side: [] for job in jobs}
    for turn, job in product(range(rounds), jobs):
        earlier = results[job.side]
        if not earlier or "failed" not in earlier[-1]:
            report(f"{title}: {PEERS.get(job.side, job.workload.model)}, round {turn + 1} of {rounds}")
            earlier.append(measure(replace(job, floor=turn == 0 and job.side == "ours")))
    return results


def workload_description(title: str, graph: KnowledgeGraph, workload: Workload, device: str) -> dict[str, Any]:
    """Return the columns that the results of a graph, workload and device have in common."""
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


def comparison_rows(description: dict[str, Any], rounds: Rounds, speeds: Speeds) -> list[dict[str, Any]]:
    """Return a row for each side: its best round, all rounds, and how it compares with ours and with the floor."""
    succeeded = {side: [turn for turn in turns if "seconds" in turn] for side, turns in rounds.items()}
    best = {
        side: min(turns, key=lambda turn: float(turn["seconds"]), default=None) for side, turns in succeeded.items()
    }
    ours = best.get("ours")
    rows = []
    for side, turns in rounds.items():
        row: dict[str, Any] = {**description, "side": PEERS.get(side, description["model"]), "rounds": turns}
        rows.append(row)
        chosen, first = best[side], turns[0]
        if chosen is None:
            row["failed"] = turns[-1]["failed"]
            continue
        row |= {key: chosen.get(key) for key in METRICS}
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


def machine_description() -> dict[str, Any]:
    """Return the CPU, cores, GPU (or None), Python, system, and the version of each package (None if missing)."""
    here = environment()
    hardware, versions = here["hardware"], {**here["versions"], "rgcn": __version__}
    if has_peers():
        versions["torch-geometric"] = version("torch-geometric")
    return {
        **{key: hardware[key] for key in ("cpu", "cores", "gpu", "system")},
        **{name: versions.get(name) for name in PACKAGES},
    }
