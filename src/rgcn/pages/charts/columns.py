"""Histograms."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rgcn.pages.charts.grid import grid_lines
from rgcn.pages.charts.scales import Scale, nice_ticks
from rgcn.pages.figures import compact
from rgcn.pages.markup import Html, details, join, paragraph, table, tag

Columns = Sequence[tuple[str, Sequence[float]]]  # (name, a value for each label)


def column_chart(
    labels: Sequence[str],
    series: Columns,
    *,
    title: str,
    x_label: str,
    y_label: str,
    height: int = 200,
) -> Html:
    """Columns over labels; several series stand side by side.

    >>> "<svg" in column_chart(["1", "2-3"], [("rank", [4, 2])], title="Ranks", x_label="rank", y_label="queries")
    True
    """
    if not labels or not series:
        return paragraph(f"Nothing has been measured yet for “{title}”.", class_="empty")
    ticks = nice_ticks(0, max(max(values) for _, values in series) or 1, 4)
    up = Scale(ticks[0], ticks[-1])
    drawing = tag(
        "svg",
        tag("title", title),
        *grid_lines(up, ticks, compact),
        *_columns(labels, series, up),
        role="img",
        aria_label=_spoken(title, labels, series),
        width="100%",
        height=height,
    )
    return tag(
        "figure",
        _legend([name for name, _ in series]),
        tag("div", y_label, class_="axis"),
        tag("div", drawing, _labels_below(labels), class_="plot columns"),
        tag("div", x_label, class_="axis across"),
        details("The numbers", _numbers(labels, series, x_label)),
        class_="chart",
    )


def _columns(labels: Sequence[str], series: Columns, up: Scale) -> list[Html]:
    """A place of equal width for each label, shared by the series."""
    slot = 100 / len(labels)
    width = slot * 0.76 / len(series)
    shapes = []
    for number, (name, values) in enumerate(series):
        for position, value in enumerate(values):
            left, tall = slot * (position + 0.12) + width * number, up.place(value)
            place = {"x": f"{left:.2f}%", "width": f"{width * 0.94:.2f}%", "y": f"{100 - tall}%", "height": f"{tall}%"}
            said = tag("title", f"{name}, {labels[position]}: {value:,.0f}")
            shapes.append(tag("rect", said, style=f"fill:var(--series-{number + 1})", **place))
    return shapes


def _spoken(title: str, labels: Sequence[str], series: Columns) -> str:
    """What a screen reader says: every number."""
    parts = (
        f"{name}: " + ", ".join(f"{label} {value:,.0f}" for label, value in zip(labels, values, strict=True))
        for name, values in series
    )
    return f"{title}: {'; '.join(parts)}"


def _numbers(labels: Sequence[str], series: Columns, x_label: str) -> Html:
    rows = [[label, *(f"{values[i]:,.0f}" for _, values in series)] for i, label in enumerate(labels)]
    return table([x_label, *(name for name, _ in series)], rows, numeric=range(1, 1 + len(series)))


def _labels_below(labels: Sequence[str]) -> Html:
    """Labels as text, not as part of the drawing: where columns are narrow they break into lines."""
    broken = (join(re.split("(?<=–)", label), tag("wbr")) for label in labels)
    return tag("div", *(tag("span", label) for label in broken), class_="below", aria_hidden="true")


def _legend(names: Sequence[str]) -> Html:
    if len(names) < 2:
        return Html("")
    swatches = [
        tag(
            "svg",
            tag("rect", width="12", height="12", y="2", style=f"fill:var(--series-{number + 1})"),
            width="16",
            height="16",
        )
        for number in range(len(names))
    ]
    return tag("ul", *(tag("li", swatch, name) for swatch, name in zip(swatches, names, strict=True)), class_="legend")
