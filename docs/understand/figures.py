"""Data and drawings of chapters 5 to 8. Downloaded notebooks write this file beside themselves."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from numpy.typing import NDArray

import rgcn

HERE = Path(__file__).parent
# Middle tones, as in small_graph: they can be read on white and on black.
PALETTE = ["#3b8edb", "#e07b2a", "#9a6fd0", "#35a267", "#d35f8d", "#c8a415"]
GRAY = "#8a8a8a"


def result(name: str) -> Any:
    """Read a committed file of measured results, from beside the notebook or from the repository."""
    for path in (HERE / Path(name).name, HERE.parent.parent / "results" / name):
        if path.exists():
            return json.loads(path.read_text(encoding="utf-8"))
    raise FileNotFoundError(f"{name}: download it from this page, and put it into the folder of the notebook")


def fb_toy() -> rgcn.KnowledgeGraph | None:
    """Load FB-Toy without the network: from RGCN_MIRROR, the cache, or shared/data beside the repository; else None."""
    beside = HERE.parent.parent.parent / "shared" / "data"
    for mirror in (None, beside):
        with suppress(rgcn.RgcnError):
            return rgcn.load("fb-toy", mirror=mirror, offline=True)
    return None


def class_colors(labels: rgcn.NodeLabels) -> dict[str, str]:
    """Give the six largest classes a color each; the others share gray."""
    sizes = np.bincount(labels.classes, minlength=labels.num_classes)
    largest = np.argsort(-sizes, kind="stable")[: len(PALETTE)].tolist()
    return {name: PALETTE[largest.index(c)] if c in largest else GRAY for c, name in enumerate(labels.names)}


def scatter(ax: Axes, points: NDArray[Any], colors: Sequence[str], title: str) -> None:
    """Draw points in the plane, gray ones below the others."""
    order = sorted(range(len(points)), key=lambda i: colors[i] != GRAY)
    ax.scatter(*points[order].T, c=[colors[i] for i in order], s=9, linewidths=0, alpha=0.9)
    ax.set(xticks=[], yticks=[], title=title)
    ax.spines[:].set_visible(True)


def spring_layout(edges: NDArray[np.int64], count: int, steps: int = 300, seed: int = 0) -> NDArray[Any]:
    """Place nodes in the plane: all push each other away, edges pull their ends together (Fruchterman and Reingold)."""
    place = np.random.default_rng(seed).normal(size=(count, 2))
    ideal = 1.0 / np.sqrt(count)
    for step in range(steps):
        apart = place[:, None] - place[None]
        distance = np.maximum(np.sqrt((apart**2).sum(-1)), 1e-3)
        force = (apart * (ideal**2 / distance**2)[..., None]).sum(1) - 0.08 * place
        pull = place[edges[:, 0]] - place[edges[:, 1]]
        pull *= (np.sqrt((pull**2).sum(1)) / ideal)[:, None] * 0.05
        np.add.at(force, edges[:, 0], -pull)
        np.add.at(force, edges[:, 1], pull)
        length = np.maximum(np.sqrt((force**2).sum(1, keepdims=True)), 1e-9)
        place = place + force / length * np.minimum(length, 0.1 * (1 - step / steps))
    return place


def network(ax: Axes, place: NDArray[Any], edges: NDArray[np.int64], picked: NDArray[np.bool_], title: str) -> None:
    """Draw a graph with some edges, and the nodes that they touch, in color."""
    ax.add_collection(LineCollection(place[edges[~picked]], colors=GRAY, linewidths=0.5, alpha=0.45))
    ax.add_collection(LineCollection(place[edges[picked]], colors=PALETTE[1], linewidths=1.6))
    touched = np.unique(edges[picked])
    others = np.setdiff1d(np.unique(edges), touched)
    ax.plot(*place[others].T, "o", ms=2, mfc=GRAY, mec="none")
    ax.plot(*place[touched].T, "o", ms=3.2, mfc=PALETTE[0], mec="none")
    ax.set_title(title)
    ax.set_aspect("equal")
    ax.axis("off")


def bars(ax: Axes, values: Mapping[str, float], colors: str | Sequence[str], text: str = "{:.2f}") -> None:
    """Draw one horizontal bar for each entry, the first on top, with its value at its end."""
    names = list(values)
    ax.barh(names, list(values.values()), color=colors, height=0.6)
    for row, value in enumerate(values.values()):
        ax.annotate(text.format(value), (value, row), (4, 0), textcoords="offset points", va="center", fontsize=8)
    ax.invert_yaxis()
    ax.tick_params(axis="y", length=0)
    ax.margins(x=0.15)


def dots(ax: Axes, values: Mapping[str, float], colors: str | Sequence[str], text: str = "{:.2f}") -> None:
    """Draw one dot for each entry, the first on top, with its value beside it: for numbers that may be negative."""
    names, numbers = list(values), list(values.values())
    ax.hlines(range(len(names)), min(numbers), numbers, color=GRAY, lw=0.6, alpha=0.6)
    ax.scatter(numbers, range(len(names)), c=colors, s=26, zorder=3, linewidths=0)
    for row, value in enumerate(numbers):
        at = (value, row), (7, 0)
        ax.annotate(text.format(value), *at, textcoords="offset points", va="center", fontsize=8)
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.tick_params(axis="y", length=0)
    ax.margins(x=0.15)


def guide(ax: Axes, value: float, text: str) -> None:
    """Draw a dashed vertical line at a value, with a text above it."""
    ax.axvline(value, color=GRAY, lw=0.9, ls=(0, (4, 3)), zorder=0)
    at = {"xycoords": ax.get_xaxis_transform(), "textcoords": "offset points", "ha": "center", "fontsize": 8}
    ax.annotate(text, (value, 1.0), (0, 3), **at)
