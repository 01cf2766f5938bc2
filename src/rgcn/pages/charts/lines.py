"""Curves over epochs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rgcn.pages.charts.grid import grid_lines
from rgcn.pages.charts.scales import Point, Scale, nice_ticks, thinned
from rgcn.pages.figures import compact, decimal
from rgcn.pages.markup import Html, paragraph, table, tag

COLORS = 8
DASHES = ("none", "6 3", "2 3", "8 3 2 3")
DOTTED_BELOW = 25


@dataclass(frozen=True)
class Series:
    """One curve.

    points  (x, y), x ascending; a y that is not finite is left out
    band    (x, low, high): what lies around the curve, such as a standard error
    color   which color of the page, from 0; None takes the series' own number
    joined  whether a line joins the points; else each is a dot
    """

    name: str
    points: Sequence[Point]
    band: Sequence[tuple[float, float, float]] = ()
    color: int | None = None
    joined: bool = True

    @property
    def color_number(self) -> int:
        return (self.color or 0) % COLORS + 1

    @property
    def dash(self) -> str:
        """Curves differ in their dashes too: not everyone sees every color."""
        return DASHES[(self.color or 0) % len(DASHES)]


@dataclass(frozen=True)
class Mark:
    """Something that happened: a line across at x, or a ring around the point (x, y)."""

    label: str
    x: float
    y: float | None = None


def line_chart(
    series: Sequence[Series],
    *,
    title: str,
    x_label: str,
    y_label: str,
    marks: Sequence[Mark] = (),
    y_range: tuple[float | None, float | None] = (None, None),
    y_format: Callable[[float], str] = compact,
    value_format: Callable[[float], str] = decimal,
    height: int = 220,
) -> Html:
    """Curves with thin grid lines, a legend, marks, and the numbers in a table below.

    title     what a screen reader says
    y_range   fixed ends of the y axis; None: from the data
    y_format  how numbers of the y axis are written; value_format: how those of the curves are

    >>> chart = line_chart([Series("loss", [(1, 2.0), (2, 1.0)])], title="Loss", x_label="epoch", y_label="loss")
    >>> "<svg" in chart and "http" not in chart
    True
    """
    drawn = [one for number, series_ in enumerate(series) if (one := _finite(series_, number)).points]
    if not drawn:
        return paragraph(f"Nothing has been measured yet for “{title}”.", class_="empty")
    frame = _frame(drawn, y_range)
    picture = tag(
        "svg",
        tag("title", title),
        *_grid(frame, y_format),
        *_shapes(drawn, marks, frame),
        role="img",
        aria_label=_spoken(title, drawn, value_format),
        width="100%",
        height=height,
        style="overflow:visible",
    )
    return tag(
        "figure",
        tag("div", y_label, class_="axis"),
        tag("div", picture, class_="plot", data_chart=_pointed_at(drawn, frame, x_label, value_format)),
        tag("div", x_label, class_="axis across"),
        _legend(drawn, marks),
        _numbers(drawn, x_label, value_format),
        class_="chart",
    )


@dataclass(frozen=True)
class _Frame:
    """Where things are: scales from numbers to percent, and the numbers that stand at the axes."""

    across: Scale
    up: Scale
    x_ticks: Sequence[float]
    y_ticks: Sequence[float]


def _frame(series: Sequence[Series], y_range: tuple[float | None, float | None]) -> _Frame:
    xs = [x for one in series for x, _ in one.points]
    ys = [y for one in series for _, y in one.points] + [y for one in series for _, *ends in one.band for y in ends]
    y_ticks = _ticks(ys, y_range)
    x_ticks = [x for x in nice_ticks(min(xs), max(xs), 5) if x == round(x)] or [min(xs)]
    across = Scale.around(xs)
    return _Frame(
        across, Scale(y_ticks[0], y_ticks[-1]), [x for x in x_ticks if across.low <= x <= across.high], y_ticks
    )


def _shapes(series: Sequence[Series], marks: Sequence[Mark], frame: _Frame) -> list[Html]:
    """Lines across, then curves, then what lies on them."""
    across, up = frame.across, frame.up
    dotted = max(len(one.points) for one in series) <= DOTTED_BELOW
    return [
        *(_mark_line(mark, across) for mark in marks if mark.y is None),
        _curves(series, across, up),
        *(dot for one in series if dotted or not one.joined for dot in _dots(one, across, up)),
        *(_ring(mark, across, up) for mark in marks if mark.y is not None),
    ]


def _pointed_at(series: Sequence[Series], frame: _Frame, x_label: str, words: Callable[[float], str]) -> str:
    """What the page's script says of the place a reader points at, as JSON."""
    across = frame.across
    data = {
        "x": [across.low, across.high],
        "label": x_label,
        "series": [
            {"name": one.name, "points": [[x, across.place(x), words(y)] for x, y in one.points]} for one in series
        ],
    }
    return json.dumps(data, separators=(",", ":"))


def _finite(series: Series, number: int) -> Series:
    points = [(float(x), float(y)) for x, y in series.points if math.isfinite(x) and math.isfinite(y)]
    return replace(series, points=thinned(points), color=number if series.color is None else series.color)


def _ticks(ys: Sequence[float], fixed: tuple[float | None, float | None]) -> list[float]:
    """The y axis: fixed ends where asked for, else from zero where the data is not far from it."""
    low = min(ys) if fixed[0] is None else fixed[0]
    high = max(ys) if fixed[1] is None else fixed[1]
    if fixed[0] is None and 0 <= low < high:
        low = 0.0
    return nice_ticks(low, high, 5)


def _grid(frame: _Frame, y_format: Callable[[float], str]) -> list[Html]:
    lines = grid_lines(frame.up, frame.y_ticks, y_format)
    for tick in frame.x_ticks:
        x = frame.across.place(tick)
        anchor = "start" if x < 2 else "end" if x > 98 else "middle"
        lines.append(tag("text", compact(tick), x=f"{x}%", y="100%", dy="1.5em", text_anchor=anchor))
    return lines


def _curves(series: Sequence[Series], across: Scale, up: Scale) -> Html:
    """Only this part is stretched to the width there is; strokes keep their width."""
    shapes = []
    for one in series:
        color = f"var(--series-{one.color_number})"
        if one.band:
            there = [f"{across.place(x)},{100 - up.place(high)}" for x, _, high in one.band]
            back = [f"{across.place(x)},{100 - up.place(low)}" for x, low, _ in reversed(one.band)]
            shapes.append(tag("polygon", points=" ".join(there + back), fill=color, opacity="0.18"))
        if not one.joined:
            continue
        line = " ".join(f"{across.place(x)},{100 - up.place(y)}" for x, y in one.points)
        dash = f"stroke:{color};stroke-dasharray:{one.dash}"
        shapes.append(tag("polyline", points=line, class_="curve", vector_effect="non-scaling-stroke", style=dash))
    return tag(
        "svg",
        *shapes,
        width="100%",
        height="100%",
        viewBox="0 0 100 100",
        preserveAspectRatio="none",
        overflow="visible",
    )


def _dots(series: Series, across: Scale, up: Scale) -> list[Html]:
    """Where something was measured: worth showing while there are few enough to see."""
    style = f"fill:var(--series-{series.color_number})"
    return [
        tag("circle", cx=f"{across.place(x)}%", cy=f"{100 - up.place(y)}%", r="3", style=style)
        for x, y in series.points
    ]


def _mark_line(mark: Mark, across: Scale) -> Html:
    x = f"{across.place(mark.x)}%"
    return tag(
        "line", tag("title", f"{mark.label} at {compact(mark.x)}"), x1=x, x2=x, y1="0", y2="100%", class_="event"
    )


def _ring(mark: Mark, across: Scale, up: Scale) -> Html:
    assert mark.y is not None
    place = {"cx": f"{across.place(mark.x)}%", "cy": f"{100 - up.place(mark.y)}%"}
    return tag("circle", tag("title", mark.label), r="6.5", class_="ring", **place)


def _legend(series: Sequence[Series], marks: Sequence[Mark]) -> Html:
    items = [tag("li", _swatch(one), tag("bdi", one.name)) for one in series]
    lines: dict[str, list[float]] = {}
    for mark in marks:
        if mark.y is None:
            lines.setdefault(mark.label, []).append(mark.x)
        else:
            ring = tag("svg", tag("circle", cx="8", cy="8", r="5.5", class_="ring"), width="16", height="16")
            items.append(tag("li", ring, mark.label))
    for label, places in lines.items():
        line = tag("svg", tag("line", x1="8", x2="8", y1="0", y2="16", class_="event"), width="16", height="16")
        where = ", ".join(f"{x:,.0f}" for x in places[:4]) + (f" and {len(places) - 4} more" if len(places) > 4 else "")
        items.append(tag("li", line, f"{label} at {where}"))
    return tag("ul", *items, class_="legend")


def _swatch(series: Series) -> Html:
    if not series.joined:
        dot = tag("circle", cx="12", cy="8", r="3", style=f"fill:var(--series-{series.color_number})")
        return tag("svg", dot, width="24", height="16")
    style = f"stroke:var(--series-{series.color_number});stroke-dasharray:{series.dash}"
    return tag(
        "svg", tag("line", x1="0", x2="24", y1="8", y2="8", class_="curve", style=style), width="24", height="16"
    )


def _spoken(title: str, series: Sequence[Series], words: Callable[[float], str]) -> str:
    """The picture in a sentence: where each curve begins and ends."""
    parts = [f"{one.name} from {words(one.points[0][1])} to {words(one.points[-1][1])}" for one in series if one.points]
    return f"{title}: {'; '.join(parts)}"


def _numbers(series: Sequence[Series], x_label: str, words: Callable[[float], str], most: int = 12) -> Html:
    """The same as a table, for those who cannot see the picture or want the numbers."""
    xs = sorted({x for one in series for x, _ in one.points})
    chosen = [xs[round(i * (len(xs) - 1) / max(1, min(most, len(xs)) - 1))] for i in range(min(most, len(xs)))]
    by_x = [dict(one.points) for one in series]
    rows = [[f"{x:,.0f}", *(words(points[x]) if x in points else "" for points in by_x)] for x in chosen]
    head = [x_label, *(one.name for one in series)]
    summary = tag("summary", "The numbers" if len(chosen) == len(xs) else f"The numbers at {len(chosen)} places")
    return tag("details", summary, table(head, rows, numeric=range(len(head))), class_="numbers")
