"""Thin lines across a chart, each with its number at the left."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rgcn.pages.charts.scales import Scale
from rgcn.pages.markup import Html, tag


def grid_lines(up: Scale, ticks: Sequence[float], words: Callable[[float], str]) -> list[Html]:
    """A line and a number for each tick of the y axis.

    >>> grid_lines(Scale(0, 1), [0.5], str)[0]
    '<line x1="0" x2="100%" y1="50.0%" y2="50.0%" class="grid"></line>'
    """
    lines = []
    for tick in ticks:
        y = f"{100 - up.place(tick)}%"
        lines += [
            tag("line", x1="0", x2="100%", y1=y, y2=y, class_="grid"),
            tag("text", words(tick), x="-8", y=y, dy="0.32em", text_anchor="end"),
        ]
    return lines
