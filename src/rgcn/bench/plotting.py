"""Pictures of the figures, as SVG, PDF or PNG by the file's name. Needs matplotlib, which nothing else here does."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rgcn.errors import ConfigError
from rgcn.words import duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".svg", ".pdf", ".png")
# Colors that stay apart for color-blind readers (Okabe and Ito), one for each side.
COLORS = {"ours": "#0072B2", "FastRGCNConv": "#E69F00", "RGCNConv": "#CC79A7", "floor": "#999999"}
SCALING_COLORS = {"rgcn": "#0072B2", "e-rgcn": "#009E73", "FastRGCNConv": "#E69F00", "RGCNConv": "#CC79A7"}


def check_plottable(path: Path) -> None:
    """Say what is missing before anything is measured, rather than after."""
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"{path}: a picture's name ends in {', '.join(FORMATS)}")
    _figure(1, 1)


def plot_steps(result: dict[str, Any], path: Path) -> None:
    """Bars of the step time for each graph, model and device: ours, the peers', and the floor; a logarithmic scale."""
    groups: dict[tuple[str, str, str], dict[str, float]] = {}
    for row in result["rows"]:
        bars = groups.setdefault((row["graph"], row["model"], row["device"]), {})
        if "seconds" in row:
            bars["ours" if row["side"] == row["model"] else row["side"]] = row["seconds"]
        if "floor" in row:
            bars["floor"] = row["floor"]["seconds"]
    if not any(groups.values()):
        raise ConfigError("there is nothing to draw: no measurement succeeded")
    figure = _figure(max(6.0, 1.2 + 1.5 * len(groups)), 4.2)
    axes = figure.add_subplot()
    smallest = min(value for bars in groups.values() for value in bars.values())
    for place, bars in enumerate(groups.values()):
        shown = [side for side in COLORS if side in bars]
        width = 0.84 / len(COLORS)
        for number, side in enumerate(shown):
            x = place + (number - (len(shown) - 1) / 2) * width
            axes.bar(x, bars[side], width * 0.92, color=COLORS[side], label=side if place == 0 else None)
            axes.text(x, bars[side], f"{duration(bars[side])}\n", ha="center", va="center", fontsize=6)
    axes.set_yscale("log")
    axes.set_ylim(bottom=smallest / 3)
    axes.set_xticks(range(len(groups)), ["\n".join(key) for key in groups], fontsize=8)
    axes.set_ylabel("seconds of a training step")
    _legend(axes, {side: COLORS[side] for side in COLORS if any(side in bars for bars in groups.values())})
    _tidy(axes)
    _save(figure, path)


def plot_scaling(result: dict[str, Any], path: Path) -> None:
    """Two panels over the number of edges, both scales logarithmic: step time, and peak memory.

    result["points"]: {edges, side, device, seconds, peak_bytes}, or `failed` where a side ran out, which a cross marks
    at the last size it managed.
    """
    lines: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for point in result["points"]:
        lines.setdefault((point["side"], point["device"]), []).append(point)
    figure = _figure(9.0, 3.8)
    devices = {device for _, device in lines}
    for number, (figure_name, title, unit) in enumerate(
        (("seconds", "seconds of a training step", 1.0), ("peak_bytes", "peak memory, MiB", 2.0**20))
    ):
        axes = figure.add_subplot(1, 2, number + 1)
        for (side, device), points in lines.items():
            known = sorted((p for p in points if p.get(figure_name)), key=lambda p: int(p["edges"]))
            if not known:
                continue
            x, y = [p["edges"] for p in known], [p[figure_name] / unit for p in known]
            color = SCALING_COLORS.get(side, "#555555")
            label = side if len(devices) == 1 else f"{side}, {device}"
            axes.plot(x, y, "o-" if device == "cpu" else "s--", color=color, markersize=3.5, label=label)
            if any("failed" in p for p in points):
                axes.plot(x[-1:], y[-1:], "x", color=color, markersize=10)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("edges")
        axes.set_title(title, fontsize=10)
        _tidy(axes)
        if number == 0:
            axes.legend(frameon=False, fontsize=8)
    _save(figure, path)


def _figure(width: float, height: float) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError("drawing needs matplotlib: pip install 'rgcn[bench]', or leave out --plot") from None
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def _legend(axes: Axes, colors: dict[str, str]) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(color=color, label=side) for side, color in colors.items()]
    above: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0)}
    axes.legend(handles=handles, frameon=False, fontsize=8, ncols=len(colors), **above)


def _tidy(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)


def _save(figure: Figure, path: Path) -> None:
    from matplotlib import rc_context

    from rgcn.atomic import write_atomically

    content = io.BytesIO()
    kind = path.suffix.lower().removeprefix(".")
    # Neither a date nor random ids, so that the same figures always give the same file.
    with rc_context({"svg.hashsalt": "rgcn", "svg.fonttype": "none"}):
        figure.savefig(content, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
    write_atomically(path, content.getvalue())
