"""Measure time and peak memory on growing graphs, until one runs out, and the slope of each curve.

    python benchmarks/scaling.py --json results/scaling-cpu.json --plot docs/reference/scaling-cpu.svg
    python benchmarks/scaling.py --sizes 1e8 --json results/scaling-cpu.json     # adds to what the file has
    python benchmarks/scaling.py --device cuda --series rgcn e-rgcn --sizes 1e4 1e5 1e6 1e7 --json out.json
    python benchmarks/scaling.py --from-json out.json --plot out.svg             # only the table and the plot

build         a table of triples becomes a graph on disk with its search index (as `rgcn data build` does)
open          that graph, and the name of a node
prepare       an e-RGCN over a graph in memory, before its first step
rgcn, e-rgcn  a step of training over the whole graph, and FastRGCNConv's
first answer  `rgcn predict` over DistMult of width 32, from the start of Python to the answer

Graphs are drawn: of a table as in building.py, else as rgcn.bench.graphs does, four edges a node, fifty relations. rgcn
has 40 bases and a hidden width of 16, e-rgcn embeddings of 32. Each measurement has a process of its own; memory is the
most that it held, of a step less what it held at rest. A side that ran out is not tried on larger graphs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import building

from rgcn.bench import PEERS
from rgcn.bench.bench_report import COLORS, check_plot_path, new_figure, save_figure, style_axes, write_json
from rgcn.bench.comparison import comparison_rows, machine_description, resolve_devices, workload_description
from rgcn.bench.floor import Speeds, measure_speeds
from rgcn.bench.graphs import graph_to_npz, random_graph, random_shape
from rgcn.bench.measurement import (
    EMBEDDED,
    NO_PEERS,
    StepJob,
    Workload,
    has_peers,
    measure_in_process,
    measure_in_subprocess,
    measure_speeds_in_subprocess,
)
from rgcn.errors import RgcnError
from rgcn.system.formatting import format_bytes, format_duration
from rgcn.system.memory import available_bytes

SIZES = (1e4, 1e5, 1e6, 1e7, 1e8)
BASES = Workload("rgcn", hidden=16, bases=40)
SERIES = {
    "rgcn": ("ours", BASES),
    "e-rgcn": ("ours", EMBEDDED),
    **{name: (side, BASES) for side, name in PEERS.items()},
}

STAGES = ("build", "open", "first answer")  # over a graph on disk
# The start of a process hides what smaller graphs cost.
SLOPE_FROM = 1e5
COLORS_OF_SERIES = {
    **COLORS,
    **{"rgcn": COLORS["ours"], "e-rgcn": "#009E73", "prepare": "#56B4E9", "build": "#D55E00", "open": "#999999"},
    "first answer": "#000000",
}
building.WORK |= {
    "make": """
import rgcn
graph = rgcn.read(out)
model = rgcn.LinkPredictor("distmult", embedding=32)
model.prepare(graph).network_.eval()
model.save(out + ".model")
result = graph
""",
    "first answer": """
import rgcn.data.graph_store
import sys
graph = rgcn.data.graph_store.load_graph(pathlib.Path(out))
sys.argv = ["rgcn", "predict", out + ".model", "--subject", graph.nodes[len(graph.nodes) // 2],
            "--relation", graph.relations[0], "--json"]
from rgcn.cli import main
try:
    main()
except SystemExit as end:
    if end.code:
        raise
result = "answered"
""",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=float, default=SIZES, metavar="EDGES")
    parser.add_argument("--series", nargs="+", choices=SERIES, default=["rgcn", "e-rgcn", "FastRGCNConv"])
    parser.add_argument("--stages", nargs="*", choices=STAGES, help="default: all on a CPU, none on a GPU")
    parser.add_argument(
        "--folder", type=Path, help="for drawn graphs, 100 bytes of disk an edge; default: a temporary one"
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=1, help="the best one counts")
    parser.add_argument("--budget", type=float, default=20.0, help="seconds for the timed steps of one measurement")
    parser.add_argument("--max-seconds", type=float, default=60.0, help="a side with a slower step is out")
    parser.add_argument("--max-gib", type=float, help="memory a side may take (default: nine tenths of what is free)")
    parser.add_argument("--same-process", action="store_true", help="no new process for each measurement (GPU only)")
    parser.add_argument("--json", type=Path, help="write the figures to this file; what it has is kept")
    parser.add_argument("--plot", type=Path, help="draw them (needs matplotlib)")
    parser.add_argument("--from-json", type=Path, help="measure nothing; draw the figures in this file")
    options = parser.parse_args()
    try:
        if options.plot:
            check_plot_path(options.plot)
        if options.from_json:
            result = json.loads(options.from_json.read_text(encoding="utf-8"))
        else:
            result = measure_growth(options)
        print("\n".join(table(result)))
        if options.plot:
            plot_scaling(result, options.plot)
    except (RgcnError, OSError) as error:
        print(f"scaling.py: {error}", file=sys.stderr)
        return 1
    return 0


def measure_growth(options: argparse.Namespace) -> dict[str, Any]:
    """Measure every series on every size, the smallest first; store the results after each size."""
    (device,) = resolve_devices((options.device,))
    running = {name: SERIES[name] for name in options.series}
    if not has_peers():
        print(NO_PEERS, file=sys.stderr)
        running = {name: series for name, series in running.items() if series[0] == "ours"}
    speeds = measure_speeds(device) if options.same_process else measure_speeds_in_subprocess(device)
    result: dict[str, Any] = {
        "command": shlex.join(["python", *sys.argv]),
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine_description(),
        "speeds": {device: speeds._asdict()},
        "limits": {"max_seconds": options.max_seconds, "max_gib": options.max_gib},
        "points": [],
    }
    if options.json and options.json.exists():
        result["points"] = json.loads(options.json.read_text(encoding="utf-8"))["points"]
    out = {(point["side"], point["device"]) for point in result["points"] if "failed" in point}
    stages = options.stages if options.stages is not None else (STAGES if device == "cpu" else ())
    for size in sorted(map(int, options.sizes)):
        known = {(point["side"], point["device"]) for point in result["points"] if point["edges"] == size} | out
        missing = [name for name in (*running, *stages) if (name, device) not in known]
        with tempfile.TemporaryDirectory(prefix="rgcn-scaling-", dir=options.folder) as folder:
            points = _stages([stage for stage in stages if stage in missing], size, Path(folder), options.max_gib)
            points += _steps(
                {name: running[name] for name in running if name in missing}, size, folder, options, speeds
            )
        for point in points:
            _say(point)
        result["points"] += points
        out |= {(point["side"], device) for point in points if "failed" in point}
        if options.json and points:
            write_json(result, options.json)
    return result


def _stages(stages: list[str], size: int, folder: Path, max_gib: float | None) -> list[dict[str, Any]]:
    """Measure building a graph from a table; other series need the graph even if its time is known."""
    points = list[dict[str, Any]]()
    path, graph = building.drawn(folder / "drawn", "tsv", size, "usual") if stages else None, folder / "graph"
    for stage in ("build", "open", "make", "first answer"):
        if path is None or (stage == "make" and "first answer" not in stages):
            continue
        try:
            with _limited(_limit(max_gib, "cpu")):
                found = building.measured(stage, path, graph)
            point = {"seconds": found["seconds"], "peak_bytes": int(float(str(found["peak_gib"])) * 2**30)}
        except SystemExit as error:
            words = str(error).splitlines()
            point, path = {"failed": words[-1] if len(words) > 1 else "ran out of memory"}, None
        if stage in stages or ("failed" in point and stage == "make"):
            named = stage if stage in stages else "first answer"
            points.append({"edges": size, "side": named, "device": "cpu", **point})
    return points


@contextlib.contextmanager
def _limited(most: int | None) -> Iterator[None]:
    """Limit the memory of processes that are started within this context."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (before[0] if most is None else most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _steps(
    running: dict[str, tuple[str, Workload]], size: int, folder: str, options: argparse.Namespace, speeds: Speeds
) -> list[dict[str, Any]]:
    """Measure a step of each side, in turn."""
    if not running:
        return []
    (device,) = resolve_devices((options.device,))
    graph = random_graph(random_shape(size))
    path = Path(folder) / "graph.npz"
    graph_to_npz(graph, path)
    descriptions = {
        name: workload_description(graph.name, graph, workload, device) for name, (_, workload) in running.items()
    }
    del graph  # release its memory before the next measurements
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in running}
    for turn in range(options.rounds):
        for name, (side, workload) in running.items():
            if rounds[name] and "failed" in rounds[name][-1]:
                continue
            job = StepJob(str(path), side, workload, device, options.steps, options.budget, options.max_seconds)
            job = replace(job, max_bytes=_limit(options.max_gib, device), floor=turn == 0 and side == "ours")
            rounds[name].append(measure_in_process(job) if options.same_process else measure_in_subprocess(job))
    points = list[dict[str, Any]]()
    for name, (side, _) in running.items():
        (point,) = comparison_rows(descriptions[name], {side: rounds[name]}, speeds)
        points.append({key: value for key, value in point.items() if not key.startswith("times_")} | {"side": name})
        prepared = [one["prepare_seconds"] for one in rounds[name] if "prepare_seconds" in one]
        if name == "e-rgcn" and prepared:
            points.append({"edges": point["edges"], "side": "prepare", "device": device, "seconds": min(prepared)})
    return points


def table(result: dict[str, Any]) -> list[str]:
    """Format one line per side: time and memory at each size, and their slopes; 1 means proportional to edges."""
    sizes = sorted({point["edges"] for point in result["points"]})
    lines = [
        f"| edges | {' | '.join(f'{size:.0e}' for size in sizes)} | slope of time | of memory |",
        "|---" * (len(sizes) + 3) + "|",
    ]
    for side, device in dict.fromkeys((point["side"], point["device"]) for point in result["points"]):
        points = {p["edges"]: p for p in result["points"] if (p["side"], p["device"]) == (side, device)}
        table_rows = [_cell(points.get(size, {})) for size in sizes]
        slopes = [
            slope({edges: p[key] for edges, p in points.items() if p.get(key)}) for key in ("seconds", "peak_bytes")
        ]
        words = ["" if found is None else f"{found:.2f}" for found in slopes]
        lines.append(f"| {side}{'' if device == 'cpu' else ', ' + device} | {' | '.join([*table_rows, *words])} |")
    return lines


def _cell(point: dict[str, Any]) -> str:
    parts = [format_duration(point["seconds"])] if point.get("seconds") else []
    parts += [format_bytes(point["peak_bytes"])] if point.get("peak_bytes") else []
    return ", ".join(parts) or str(point.get("failed", "")).split(":")[0]


def slope(values: dict[int, float]) -> float | None:
    """Return the least-squares slope of the logarithms; None for fewer than two points.

    >>> slope({100_000: 1.0, 1_000_000: 10.0, 10_000_000: 100.0})
    1.0
    """
    points = [(math.log(edges), math.log(value)) for edges, value in values.items() if edges >= SLOPE_FROM]
    if len(points) < 2:
        return None
    x, y = (sum(column) / len(points) for column in zip(*points, strict=True))
    found = sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)
    return round(found, 6)


def plot_scaling(result: dict[str, Any], path: Path) -> None:
    """Two panels over the number of edges, both scales logarithmic: time, and peak memory.

    result["points"]: {edges, side, device, seconds, peak_bytes}, or `failed` where a side ran out, which a cross marks
    at the last size it managed.
    """
    lines: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for point in result["points"]:
        lines.setdefault((point["side"], point["device"]), []).append(point)
    figure = new_figure(9.0, 3.8)
    devices = {device for _, device in lines}
    panels = (("seconds", "seconds", 1.0), ("peak_bytes", "peak memory, MiB", 2.0**20))
    for number, (name, title, unit) in enumerate(panels, start=1):
        axes = figure.add_subplot(1, 2, number)
        for (side, device), points in lines.items():
            known = sorted((p for p in points if p.get(name)), key=lambda p: int(p["edges"]))
            x, y = [p["edges"] for p in known], [p[name] / unit for p in known]
            color = COLORS_OF_SERIES.get(side, "#555555")
            label = side if len(devices) == 1 else f"{side}, {device}"
            axes.plot(x, y, "o-" if device == "cpu" else "s--", color=color, markersize=3.5, label=label)
            if any("failed" in p for p in points):
                axes.plot(x[-1:], y[-1:], "x", color=color, markersize=10)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("edges")
        axes.set_title(title, fontsize=10)
        style_axes(axes)
        if number == 1:
            axes.legend(frameon=False, fontsize=8)
    save_figure(figure, path)


def _limit(gib: float | None, device: str) -> int | None:
    if gib is not None:
        return int(gib * 2**30)
    free = available_bytes() if device == "cpu" else None
    return None if free is None else int(0.9 * free)


def _say(point: dict[str, Any]) -> None:
    words = point.get("failed") or _cell(point)
    print(f"{point['edges']:>12,} edges  {point['side']:<14}{words}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
