"""The small graph of the chapters, and what draws its figures.

The chapters import this file from their own folder. Downloaded notebooks write it beside themselves.

>>> import small_graph
>>> small_graph.kg()
KnowledgeGraph(9 nodes, 3 relations, 13 triples, 8 labels in 2 classes)
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

import rgcn

TRIPLES = [
    ("Amsterdam", "located_in", "The_Netherlands"),
    ("Rotterdam", "located_in", "The_Netherlands"),
    ("Brussels", "located_in", "Belgium"),
    ("Antwerp", "located_in", "Belgium"),
    ("The_Netherlands", "located_in", "Europe"),
    ("Belgium", "located_in", "Europe"),
    ("Germany", "located_in", "Europe"),
    ("Amsterdam", "capital_of", "The_Netherlands"),
    ("Brussels", "capital_of", "Belgium"),
    ("Berlin", "capital_of", "Germany"),
    ("The_Netherlands", "borders", "Belgium"),
    ("The_Netherlands", "borders", "Germany"),
    ("Belgium", "borders", "Germany"),
]
MISSING = ("Berlin", "located_in", "Germany")  # true, and not in the graph: chapters 6 and 8 ask for it

POSITIONS = {
    "Europe": (2.0, 3.0),
    "The_Netherlands": (0.75, 2.0),
    "Germany": (3.25, 2.0),
    "Belgium": (2.0, 1.35),
    "Amsterdam": (0.35, 3.0),
    "Rotterdam": (0.0, 1.0),
    "Antwerp": (1.15, 0.35),
    "Brussels": (2.85, 0.35),
    "Berlin": (3.65, 3.0),
}
LABEL_SIDES = {  # in points from the node, where the place above or below it is taken by arrows
    "The_Netherlands": (-9, 0, "right", "center"),
    "Germany": (9, 0, "left", "center"),
    "Belgium": (9, 1, "left", "center"),
}
# Middle tones: they stand out from white and from black.
COLORS = {"located_in": "#3b8edb", "capital_of": "#e07b2a", "borders": "#35a267", "self-loop": "#8a8a8a"}
NEGATIVE, POSITIVE = "#e07b2a", "#3b8edb"  # of matrix entries
CLASS_COLORS = {"city": "#9a6fd0", "country": "#c8a415"}

# A figure is 4.2 inches wide, about 400 pixels, so that its text can be read on a phone. `show` replaces the color INK
# by the color of the text around the figure and PAPER by the color behind it, so that a figure follows light and dark
# mode.
WIDTH = 4.2
INK, PAPER = "#0b0c0d", "#f0f1f2"
BEHIND = "var(--color-background-primary, var(--jp-layout-color0, #fff))"  # in Furo and in Jupyter
STYLE = {
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 9,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "font.size": 9,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "svg.hashsalt": "rgcn",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
}
plt.rcParams.update(STYLE)


def kg() -> rgcn.KnowledgeGraph:
    """Return the small graph, with the classes of eight nodes: four to train on, four to test."""
    return rgcn.KnowledgeGraph.from_triples(
        TRIPLES,
        labels={"Amsterdam": "city", "Antwerp": "city", "The_Netherlands": "country", "Belgium": "country"},
        test_labels={"Rotterdam": "city", "Brussels": "city", "Berlin": "city", "Germany": "country"},
    )


def relation_names(graph: rgcn.KnowledgeGraph, self_loops: bool = True) -> list[str]:
    """Name all relations of message passing: those of the graph, their inverses, and the self-loop.

    >>> relation_names(kg())[3:]
    ["located_in'", "capital_of'", "borders'", 'self-loop']
    """
    names = list(graph.relations)
    return [*names, *(f"{name}'" for name in names), *(["self-loop"] if self_loops else [])]


def color_of(relation: str) -> str:
    """Return the color of a relation; an inverse has that of its relation."""
    return COLORS.get(relation.rstrip("'"), COLORS["self-loop"])


def short(name: str) -> str:
    """Return a name for the axes of a matrix.

    >>> short("The_Netherlands")
    'Netherlands'
    """
    return name.removeprefix("The_").replace("_", " ")


# -- figures -------------------------------------------------------------------------------------------


class Picture:
    """A figure as SVG inside the page, with a text for readers who do not see it."""

    def __init__(self, svg: str, alt: str) -> None:
        self.svg, self.alt = svg, alt

    def _repr_html_(self) -> str:
        return f'<div class="figure" style="max-width: 36rem; margin: 1rem auto">{self.svg}</div>'

    def __repr__(self) -> str:
        return f"[Figure: {self.alt}]"


def show(figure: Figure, alt: str) -> Picture:
    """Turn a figure into SVG that fits the width of the page and follows light and dark mode.

    Args:
        figure: The figure. It is closed.
        alt: What the figure shows, for readers who do not see it.
    """
    text = io.StringIO()
    figure.savefig(text, format="svg", bbox_inches="tight", pad_inches=0.05, metadata={"Date": None})
    plt.close(figure)
    svg = re.sub(r"<\?xml.*?<svg ", "<svg ", text.getvalue(), flags=re.DOTALL)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->\s*|\n\s*", "", svg, flags=re.DOTALL)
    halo = f'<g style="paint-order: stroke; stroke: {BEHIND}; stroke-width: 2000; stroke-linejoin: round"'
    svg = re.sub(r'<g id="halo"', halo, svg).replace(INK, "currentColor").replace(PAPER, BEHIND)
    name = html.escape(alt, quote=True)
    head, body = svg.split(">", 1)
    head = re.sub(r' (width|height)="[\d.]+pt"', "", head)
    return Picture(f'{head} role="img" aria-label="{name}" style="width: 100%; height: auto">{body}', alt)


def axes(count: int, columns: int = 1, height: float = 2.6, **options: Any) -> tuple[Figure, list[Axes]]:
    """Create a figure with this many panels.

    Args:
        count: The number of panels.
        columns: How many are side by side.
        height: Height of a row of panels, in inches.
        options: Further options of `matplotlib.pyplot.subplots`.
    """
    rows = -(-count // columns)
    options = {"layout": "constrained", "squeeze": False, "figsize": (WIDTH, rows * height)} | options
    figure, grid = plt.subplots(rows, columns, **options)
    panels = list(grid.flat)
    for unused in panels[count:]:
        unused.remove()
    return figure, panels[:count]


def draw(
    graph: rgcn.KnowledgeGraph,
    ax: Axes,
    *,
    edges: Iterable[tuple[str, str, str]] | None = None,
    dashed: Iterable[tuple[str, str, str]] = (),
    inverse: bool = False,
    self_loops: bool = False,
    nodes: Mapping[str, str] | None = None,
    values: Mapping[str, str] | None = None,
    faded: Iterable[tuple[str, str, str]] = (),
    legend: bool = True,
) -> Axes:
    """Draw the small graph, or a part of it.

    Args:
        graph: The graph.
        ax: The panel.
        edges: Triples to draw; None for all.
        dashed: Further triples to draw as dashed arrows, for example missing ones.
        inverse: Whether to draw a thinner, dashed arrow back for each triple.
        self_loops: Whether to draw a ring around each node.
        nodes: Color of nodes, for example a class's; others are gray.
        values: Text under the names of nodes.
        faded: Those of the triples that are drawn pale.
        legend: Whether to explain the colors.
    """
    edges, dashed, faded = graph.named() if edges is None else list(edges), list(dashed), set(faded)
    nodes, values = nodes or {}, values or {}
    pairs: dict[frozenset[str], int] = {}
    for s, r, o in [*edges, *dashed]:
        nth = pairs[frozenset((s, o))] = pairs.get(frozenset((s, o)), -1) + 1
        bend = (0.0, -0.28, 0.28)[nth % 3] if not inverse else (0.1, -0.3, 0.3)[nth % 3]
        missing, weak = (s, r, o) in dashed and (s, r, o) not in edges, (s, r, o) in faded
        _arrow(ax, s, o, color_of(r), bend, dashed=missing, alpha=0.25 if weak else 1.0)
        if inverse and not missing:
            _arrow(ax, o, s, color_of(r), bend if nth else 0.16, dashed=True, width=1.0)
    for name in graph.nodes:
        if name not in POSITIONS:
            continue
        x, y = POSITIONS[name]
        if self_loops:
            ax.plot(x, y, "o", ms=19, mfc="none", mec=COLORS["self-loop"], ls="none", mew=1.2)
        ax.plot(x, y, "o", ms=12, mfc=nodes.get(name, "#8a8a8a"), mec=INK, mew=0.8, zorder=3)
        label = short(name) + (f"\n{values[name]}" if name in values else "")
        dx, dy, ha, va = LABEL_SIDES.get(name, (0, 9, "center", "bottom") if y >= 3.0 else (0, -9, "center", "top"))
        options = {"ha": ha, "va": va, "fontsize": 8, "zorder": 4, "gid": "halo"}
        ax.annotate(label, (x, y), (dx, dy), textcoords="offset points", **options)
    ax.set_xlim(-0.45, 4.2)
    ax.set_ylim(-0.05, 3.45)
    ax.axis("off")
    used = [r for r in graph.relations if any(r == edge[1] for edge in [*edges, *dashed])]
    if legend and used:
        lines = [mpl.lines.Line2D([], [], color=color_of(r), label=r) for r in used]
        if inverse:
            lines.append(mpl.lines.Line2D([], [], color=INK, ls="--", lw=1.0, label="inverse"))
        if self_loops:
            ring = {"marker": "o", "mfc": "none", "mec": COLORS["self-loop"], "ls": "none", "ms": 8}
            lines.append(mpl.lines.Line2D([], [], label="self-loop", **ring))
        columns = min(len(lines), 3)
        ax.legend(handles=lines, loc="upper center", bbox_to_anchor=(0.5, 0.02), ncols=columns, handlelength=1.6)
    return ax


def _arrow(
    ax: Axes, s: str, o: str, color: str, bend: float, dashed: bool = False, width: float = 1.6, alpha: float = 1.0
) -> None:
    """Draw an arrow between two nodes."""
    shape = {"arrowstyle": "-|>,head_length=4.5,head_width=2.4", "connectionstyle": f"arc3,rad={bend}"}
    line = {"linestyle": (0, (3, 2)) if dashed else "-", "linewidth": width, "color": color, "alpha": alpha}
    ax.add_patch(FancyArrowPatch(POSITIONS[s], POSITIONS[o], shrinkA=7, shrinkB=8, zorder=1, **shape, **line))


def matrix(
    values: Any,
    ax: Axes,
    *,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    title: str = "",
    numbers: str | None = None,
    color: str | Sequence[str] | None = None,
    row_color: Sequence[str] | None = None,
    scale: float | None = None,
    lines: Sequence[int] = (),
    row_lines: Sequence[int] = (),
) -> Axes:
    """Draw a matrix as colored cells; a zero is an empty cell.

    Args:
        values: The matrix, a tensor or an array [num_rows, num_columns].
        ax: The panel.
        rows: Names of the rows.
        columns: Names of the columns.
        title: Text above.
        numbers: A format for the entries, for example ".2f"; None to write no numbers.
        color: Color of the entries, or of each column; None for blue where positive and orange where negative.
        row_color: Color of each row.
        scale: The value that gets the full color; None for the largest.
        lines: Columns before which to draw a line, between stacked matrices.
        row_lines: Rows before which to draw a line.
    """
    array = np.atleast_2d(np.asarray(values.detach() if hasattr(values, "detach") else values, dtype=float))
    height, width = array.shape
    scale = scale or float(np.abs(array).max()) or 1.0
    ax.add_patch(Rectangle((0, 0), width, height, fill=False, ec=INK, lw=0.8))
    for i, j in zip(*np.nonzero(array), strict=True):
        fill = color if isinstance(color, str) else None if color is None else color[j]
        fill = row_color[i] if row_color else fill or (POSITIVE if array[i, j] > 0 else NEGATIVE)
        strength = 0.12 + 0.78 * min(1.0, abs(array[i, j]) / scale)
        ax.add_patch(Rectangle((j, i), 1, 1, fc=fill, alpha=strength, lw=0))
    if max(height, width) <= 16:
        grid = {"color": "#8a8a8a", "lw": 0.3, "alpha": 0.6}
        ax.vlines(range(1, width), 0, height, **grid)
        ax.hlines(range(1, height), 0, width, **grid)
    ax.vlines(list(lines), 0, height, color=INK, lw=0.6)
    ax.hlines(list(row_lines), 0, width, color=INK, lw=0.6)
    if numbers is not None:
        for (i, j), value in np.ndenumerate(array):
            if value:
                ax.text(j + 0.5, i + 0.54, format(value, numbers), ha="center", va="center", fontsize=7)
    ax.set_xlim(-0.02 * width, width * 1.02)
    ax.set_ylim(height * 1.02, -0.02 * height)
    ax.set_aspect("equal")
    ax.set_xticks(np.arange(len(columns)) + 0.5, [short(c) for c in columns], rotation=90, fontsize=7)
    ax.set_yticks(np.arange(len(rows)) + 0.5, [short(r) for r in rows], fontsize=7)
    ax.tick_params(length=0, pad=2)
    ax.spines[:].set_visible(False)
    if title:
        ax.set_title(title)
    return ax
