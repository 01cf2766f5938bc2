"""Results of `rgcn bench` as a table in plain text, a JSON file, and plots (SVG, PDF, PNG; these need matplotlib)."""

from __future__ import annotations

import io
import json
import textwrap
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rgcn.errors import ConfigError
from rgcn.system.atomic_files import write_atomically
from rgcn.system.formatting import format_bytes, format_count, format_duration, format_number
from rgcn.system.lazy import import_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 120
OURS = ("graph", "model", "device", "ours", "memory", "floor", "reached")
COLUMNS = (*OURS, "peer", "theirs", "times", "memory", "times")
LEFT = {"graph", "model", "device", "peer"}
LEGEND = (
    "ours, theirs: seconds of a training step, the median of the best round; times: theirs over ours. "
    "memory: peak over the process at rest, preparation included. "
    "floor: bytes that must move over measured bandwidth, or operations over measured rate, whichever takes longer."
)
FORMATS = (".svg", ".pdf", ".png")
# Colors that stay apart for color-blind readers (Okabe and Ito), one for each side.
COLORS = {"ours": "#0072B2", "FastRGCNConv": "#E69F00", "RGCNConv": "#CC79A7", "floor": "#999999"}


def table_rows(result: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return a row for each graph, model and device, and one for each further peer; columns as in COLUMNS."""
    lines: list[tuple[str, ...]] = []
    for key, (ours, *peers) in _groups(result).items():
        floor = ours.get("floor")
        least = (format_duration(floor["seconds"]), f"{floor['reached']:.0%}") if floor else ("", "")
        start: tuple[str, ...] = (*key, _time(ours), _size(ours), *least)
        for peer in peers or [{}]:
            ratios = (peer.get(name) for name in ("times_slower", "times_memory"))
            slower, larger = (f"{format_number(ratio)}×" if ratio else "" for ratio in ratios)
            lines.append((*start, peer.get("side", ""), _time(peer), slower, _size(peer), larger))
            start = ("",) * len(start)
    return lines


def _groups(result: dict[str, Any]) -> dict[tuple[str, str, str], list[dict[str, Any]]]:
    """Group the rows by graph, model and device; rows of a group are consecutive."""
    return {key: list(rows) for key, rows in groupby(result["rows"], itemgetter("graph", "model", "device"))}


def _time(row: dict[str, Any]) -> str:
    """Format the time, or name the failure.

    >>> _time({"seconds": 0.00123}), _time({"failed": "ran out of memory: ..."}), _time({})
    ('1.23 ms', 'out of memory', '')
    """
    if row.get("seconds") is not None:
        return format_duration(row["seconds"])
    reason = str(row.get("failed", ""))
    return reason.split(":")[0].removeprefix("ran ") if reason.startswith("ran out of ") else "failed" if reason else ""


def _size(row: dict[str, Any]) -> str:
    return "" if row.get("peak_bytes") is None else format_bytes(row["peak_bytes"])


def _machine_lines(result: dict[str, Any]) -> list[str]:
    """Describe the machine, its speeds, notes and failures, a line each."""
    machine = result["machine"]
    versions = ", ".join(f"{name} {machine[name]}" for name in ("torch", "numba", "torch-geometric") if machine[name])
    gpu = f", {machine['gpu']}" if machine["gpu"] else ""
    lines = [f"{machine['cpu']}, {format_count(machine['cores'], 'core')}{gpu}; Python {machine['python']}, {versions}"]
    for device, speeds in result["speeds"].items():
        lines.append(
            f"{device}: copies {speeds['bandwidth'] / 1e9:.3g} GB/s, "
            f"{speeds['rate'] / 1e9:,.3g} billion multiply-adds a second in a float32 product"
        )
    failed = [row for row in result["rows"] if "failed" in row]
    failures = [f"{row['graph']}, {row['side']}, {row['device']}: {row['failed']}" for row in failed]
    return [*lines, *result["notes"], *failures]


def plain_table(result: dict[str, Any]) -> str:
    """Return the machine, the table and the legend as plain text, without the help of a library."""
    lines = [COLUMNS, *table_rows(result)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    shown = [
        "  ".join(
            text.ljust(width) if name in LEFT else text.rjust(width)
            for text, width, name in zip(line, widths, COLUMNS, strict=True)
        ).rstrip()
        for line in lines
    ]
    return "\n".join([*_machine_lines(result), "", *shown, "", textwrap.fill(LEGEND, WIDTH)])


def write_json(result: dict[str, Any], path: Path) -> None:
    """Write the results to a file."""
    write_atomically(path, json.dumps(result, indent=2, ensure_ascii=False) + "\n")


def check_plot_path(path: Path) -> None:
    """Raise an error before anything is measured if a plot cannot be written to this file."""
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"{path}: a plot's file name must end in {', '.join(FORMATS)}")
    new_figure(1, 1)


def plot_steps(result: dict[str, Any], path: Path) -> None:
    """Plot bars of the step time for each graph, model and device: ours, the peers', and the floor; on a log scale."""
    groups: dict[tuple[str, str, str], dict[str, float]] = {}
    for key, rows in _groups(result).items():
        sides = {"ours" if row["side"] == row["model"] else row["side"]: row for row in rows}
        sides["floor"] = rows[0].get("floor", {})
        groups[key] = {side: row["seconds"] for side, row in sides.items() if "seconds" in row}
    if not any(groups.values()):
        raise ConfigError("there is nothing to plot: no measurement succeeded")
    figure = new_figure(max(6.0, 1.2 + 1.5 * len(groups)), 4.2)
    axes = figure.add_subplot()
    width, named = 0.84 / len(COLORS), set()
    for place, bars in enumerate(groups.values()):
        shown = [side for side in COLORS if side in bars]
        for number, side in enumerate(shown):
            x = place + (number - (len(shown) - 1) / 2) * width
            axes.bar(x, bars[side], width * 0.92, color=COLORS[side], label=None if side in named else side)
            axes.text(x, bars[side], f"{format_duration(bars[side])}\n", ha="center", va="center", fontsize=6)
            named.add(side)
    axes.set_yscale("log")
    axes.set_ylim(bottom=min(value for bars in groups.values() for value in bars.values()) / 3)
    axes.set_xticks(range(len(groups)), ["\n".join(key) for key in groups], fontsize=8)
    axes.set_ylabel("seconds of a training step")
    above: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0)}
    axes.legend(frameon=False, fontsize=8, ncols=len(named), **above)
    style_axes(axes)
    save_figure(figure, path)


def new_figure(width: float, height: float) -> Figure:
    """Create a figure, sizes in inches."""
    matplotlib = import_extra("matplotlib", "bench", "matplotlib.figure")
    figure: Figure = matplotlib.Figure(figsize=(width, height), layout="constrained", facecolor="white")
    return figure


def style_axes(axes: Axes) -> None:
    """Remove the frame, and add horizontal grid lines."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)


def save_figure(figure: Figure, path: Path) -> None:
    """Write a plot without a date and random ids: the same results always give the same file."""
    content = io.BytesIO()
    kind = path.suffix.lower().removeprefix(".")
    with import_extra("matplotlib", "bench").rc_context({"svg.hashsalt": "rgcn", "svg.fonttype": "none"}):
        figure.savefig(content, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
    write_atomically(path, content.getvalue())
