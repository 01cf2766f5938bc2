"""Step time and peak memory as graphs grow, ours and PyG's FastRGCNConv, until a side runs out of time or memory.

    python benchmarks/scaling.py --json results/scaling.json --plot docs/scaling.svg
    python benchmarks/scaling.py --device cuda --sizes 1e4 1e5 1e6 1e7 --json out.json      # no picture needed there
    python benchmarks/scaling.py --from-json out.json --plot out.svg                        # drawn later, elsewhere

Graphs are drawn (see rgcn.bench.graphs): four edges a node, fifty relations. rgcn has 40 bases and a hidden width of
16, e-rgcn embeddings of 32. Each measurement has a process of its own. A side that ran out is not tried
on larger graphs.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from rgcn.bench.floor import measure_speeds
from rgcn.bench.graphs import graph_to_npz, random_shape, shaped
from rgcn.bench.measuring import StepJob, measure_apart, measure_here, speeds_apart
from rgcn.bench.showing import COLORS, check_plottable, empty_figure, save_figure, tidy, write_json
from rgcn.bench.sides import EMBEDDED, NO_PEERS, PEERS, Workload, peers_installed
from rgcn.bench.turns import about, describe_machine, resolve_devices, side_by_side
from rgcn.errors import RgcnError
from rgcn.memory import available_bytes
from rgcn.words import duration, memory

SIZES = (1e4, 3e4, 1e5, 3e5, 1e6, 3e6, 1e7)
BASES = Workload("rgcn", hidden=16, bases=40)
SERIES = {
    "rgcn": ("ours", BASES),
    "e-rgcn": ("ours", EMBEDDED),
    **{name: (side, BASES) for side, name in PEERS.items()},
}

COLORS_OF_SERIES = {**COLORS, "rgcn": COLORS["ours"], "e-rgcn": "#009E73"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=float, default=SIZES, metavar="EDGES")
    parser.add_argument("--series", nargs="+", choices=SERIES, default=["rgcn", "e-rgcn", "FastRGCNConv"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=1, help="the best one counts")
    parser.add_argument("--budget", type=float, default=20.0, help="seconds for the timed steps of one measurement")
    parser.add_argument("--max-seconds", type=float, default=60.0, help="a side with a slower step is out")
    parser.add_argument("--max-gib", type=float, help="memory a side may take (default: nine tenths of what is free)")
    parser.add_argument("--same-process", action="store_true", help="no new process for each measurement (GPU only)")
    parser.add_argument("--json", type=Path, help="write the figures to this file, after each size")
    parser.add_argument("--plot", type=Path, help="draw them (needs matplotlib)")
    parser.add_argument("--from-json", type=Path, help="measure nothing; draw the figures in this file")
    given = parser.parse_args()
    try:
        if given.plot:
            check_plottable(given.plot)
        if given.from_json:
            result = json.loads(given.from_json.read_text(encoding="utf-8"))
        else:
            result = measure_growth(given)
        if given.plot:
            plot_scaling(result, given.plot)
    except (RgcnError, OSError) as error:
        print(f"scaling.py: {error}", file=sys.stderr)
        return 1
    return 0


def measure_growth(given: argparse.Namespace) -> dict[str, Any]:
    """Every series on every size, the smallest first; written down after each size, as the last ones take long."""
    (device,) = resolve_devices((given.device,))
    running = {name: SERIES[name] for name in given.series}
    if not peers_installed():
        print(NO_PEERS, file=sys.stderr)
        running = {name: series for name, series in running.items() if series[0] == "ours"}
    speeds = measure_speeds(device) if given.same_process else speeds_apart(device)
    result: dict[str, Any] = {
        "command": shlex.join(["python", *sys.argv]),
        "date": time.strftime("%Y-%m-%d"),
        "machine": describe_machine(),
        "speeds": {device: speeds._asdict()},
        "limits": {"max_seconds": given.max_seconds, "max_gib": given.max_gib},
        "points": [],
    }
    for size in sorted(map(int, given.sizes)):
        with tempfile.TemporaryDirectory(prefix="rgcn-scaling-") as folder:
            graph = shaped(random_shape(size))
            path = Path(folder) / "graph.npz"
            graph_to_npz(graph, path)
            rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in running}
            for turn in range(given.rounds):
                for name, (side, workload) in running.items():
                    if rounds[name] and "failed" in rounds[name][-1]:
                        continue
                    job = StepJob(str(path), side, workload, device, given.steps, given.budget, given.max_seconds)
                    job = replace(job, max_bytes=_limit(given.max_gib, device), floor=turn == 0 and side == "ours")
                    rounds[name].append(measure_here(job) if given.same_process else measure_apart(job))
        for name, (side, workload) in list(running.items()):
            (point,) = side_by_side(about(graph.name, graph, workload, device), {side: rounds[name]}, speeds)
            point = {key: value for key, value in point.items() if not key.startswith("times_")}
            result["points"].append(point)
            _say(point)
            if "failed" in point:
                del running[name]
        if given.json:
            write_json(result, given.json)
        if not running:
            break
    return result


def plot_scaling(result: dict[str, Any], path: Path) -> None:
    """Two panels over the number of edges, both scales logarithmic: step time, and peak memory.

    result["points"]: {edges, side, device, seconds, peak_bytes}, or `failed` where a side ran out, which a cross marks
    at the last size it managed.
    """
    lines: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for point in result["points"]:
        lines.setdefault((point["side"], point["device"]), []).append(point)
    figure = empty_figure(9.0, 3.8)
    devices = {device for _, device in lines}
    panels = (("seconds", "seconds of a training step", 1.0), ("peak_bytes", "peak memory, MiB", 2.0**20))
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
        tidy(axes)
        if number == 1:
            axes.legend(frameon=False, fontsize=8)
    save_figure(figure, path)


def _limit(gib: float | None, device: str) -> int | None:
    if gib is not None:
        return int(gib * 2**30)
    free = available_bytes() if device == "cpu" else None
    return None if free is None else int(0.9 * free)


def _say(point: dict[str, Any]) -> None:
    words = point.get("failed") or f"{duration(point['seconds']):>10}{memory(point['peak_bytes']):>12}"
    print(f"{point['edges']:>12,} edges  {point['side']:<14}{words}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
