"""Charts for pages and for the terminal.

A chart on a page is inline SVG with a table of its numbers. It needs no script and loads nothing. The functions compute
scales and pass them to a template of the same name. Colors are CSS variables of the page (`--series-1` ...,
`--heat-0` ...), so charts follow light and dark mode. Only the drawing is stretched to the width of the screen: text
keeps its size. `text_plot` draws curves on a terminal in Braille characters, each with two by four dots.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from rgcn.pages.layout import compact, decimal, render

MAX_DOTTED_POINTS = 25  # curves with at most so many points show each of them
MAX_TABLE_ROWS = 12
MAX_LETTERS_PER_ROW = 3
# The bit of a Braille character that is the dot at [row, column].
_DOTS = np.array([(0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80)])
_BRAILLE = 0x2800

Point = tuple[float, float]


def nice_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return round numbers from at most `low` to at least `high`, in steps of 1, 2 or 5 times a power of ten.

    Args:
        low: The smallest value to cover.
        high: The largest value to cover.
        about: The approximate number of steps.

    Examples:
        >>> nice_ticks(0, 0.87), nice_ticks(1, 50)
        ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0, 10.0, 20.0, 30.0, 40.0, 50.0])
    """
    if high <= low:
        low, high = (low - 0.5, high + 0.5) if low else (0.0, 1.0)
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


class Scale(NamedTuple):
    """Maps the numbers from `low` to `high` to 0 to 100 percent."""

    low: float
    high: float

    def place(self, value: float) -> float:
        """Return the position along the axis in percent.

        Examples:
            >>> Scale(10, 30).place(15)
            25.0
        """
        return round(100 * (value - self.low) / (self.high - self.low), 3)

    def from_top(self, value: float) -> float:
        """Return the position on an axis that points upward, counted from the top of the screen."""
        return round(100 - self.place(value), 3)

    @classmethod
    def around(cls, values: Sequence[float]) -> Scale:
        """Return the scale from the smallest to the largest value; a single value is in the middle."""
        low, high = min(values), max(values)
        return cls(low, high) if high > low else cls(low - 1, high + 1)


def thin_out(points: Sequence[Point], limit: int = 600) -> list[Point]:
    """Return about `limit` points whose curve looks the same: of each section the first, last, lowest and highest.

    Examples:
        >>> dense = [(float(i), 1.0 if i == 70_001 else 0.0) for i in range(100_000)]
        >>> len(thin_out(dense)) <= 600, (70_001.0, 1.0) in thin_out(dense)
        (True, True)
    """
    if len(points) <= limit:
        return list(points)
    num_sections = max(1, limit // 4)
    result: list[Point] = []
    for number in range(num_sections):
        part = range(number * len(points) // num_sections, (number + 1) * len(points) // num_sections)
        lowest, highest = min(part, key=lambda i: points[i][1]), max(part, key=lambda i: points[i][1])
        result += [points[i] for i in sorted({part[0], lowest, highest, part[-1]})]
    return result


@dataclass(frozen=True)
class Series:
    """One curve.

    Attributes:
        name: Its name in the legend.
        points: (x, y) with ascending x. Points with an infinite or undefined y are left out.
        band: (x, low, high) around the curve, such as a standard error.
        color: The number of its color on the page, from 0; None for its number in the chart.
        joined: True if a line joins the points; otherwise each one is a dot.
    """

    name: str
    points: Sequence[Point]
    band: Sequence[tuple[float, float, float]] = ()
    color: int | None = None
    joined: bool = True

    def prepared(self, number: int) -> Series:
        """Return the curve with finite points, not too many, and a color by its `number` in the chart."""
        points = [(float(x), float(y)) for x, y in self.points if math.isfinite(x) and math.isfinite(y)]
        return replace(self, points=thin_out(points), color=number if self.color is None else self.color)


class Mark(NamedTuple):
    """An event: a vertical line at x, or a ring around the point (x, y)."""

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
) -> Markup:
    """Draw curves with grid lines, a legend, marks, and a table of the numbers.

    Args:
        series: The curves.
        title: What the chart shows, for screen readers.
        x_label: What the x axis shows.
        y_label: What the y axis shows.
        marks: Events to mark.
        y_range: Fixed ends of the y axis. None takes the end from the data, or zero if the data are above it.
        y_format: Formats the numbers on the y axis.
        value_format: Formats the numbers in the table.

    Examples:
        >>> chart = line_chart([Series("loss", [(1, 2.0), (2, 1.0)])], title="Loss", x_label="epoch", y_label="loss")
        >>> "<svg" in chart and "http" not in chart
        True
    """
    curves = [curve for number, each in enumerate(series) if (curve := each.prepared(number)).points]
    if not curves:
        return _empty(title)
    xs = sorted({x for curve in curves for x, _ in curve.points})
    ys = [y for curve in curves for y in (*(y for _, y in curve.points), *(y for _, *ends in curve.band for y in ends))]
    low, high = (end if fixed is None else fixed for end, fixed in zip((min(ys), max(ys)), y_range, strict=True))
    y_ticks = nice_ticks(0.0 if y_range[0] is None and 0 <= low < high else low, high)
    x_ticks = [x for x in nice_ticks(xs[0], xs[-1]) if x == round(x) and xs[0] <= x <= xs[-1]]
    num_rows = min(MAX_TABLE_ROWS, len(xs))
    return render(
        "line_chart.html",
        series=curves,
        across=Scale.around(xs),
        up=Scale(y_ticks[0], y_ticks[-1]),
        x_ticks=x_ticks or xs[:1],
        y_ticks=y_ticks,
        y_format=y_format,
        value_format=value_format,
        dotted=max(len(curve.points) for curve in curves) <= MAX_DOTTED_POINTS,
        listed=[xs[round(i * (len(xs) - 1) / max(1, num_rows - 1))] for i in range(num_rows)],
        is_all=num_rows == len(xs),
        marks=marks,
        title=title,
        x_label=x_label,
        y_label=y_label,
    )


def column_chart(
    labels: Sequence[str], series: Sequence[tuple[str, Sequence[float]]], *, title: str, x_label: str, y_label: str
) -> Markup:
    """Draw columns over labels. Several series, each (name, one value per label), stand side by side."""
    if not labels or not series:
        return _empty(title)
    ticks = nice_ticks(0, max(max(values) for _, values in series) or 1, 4)
    up, texts = Scale(ticks[0], ticks[-1]), {"title": title, "x_label": x_label, "y_label": y_label}
    return render("column_chart.html", labels=labels, series=series, up=up, ticks=ticks, **texts)


def _empty(title: str) -> Markup:
    return render("empty.html", message=f"Nothing has been measured yet for “{title}”.")


class Bar(NamedTuple):
    """A row of a bar chart: its label, one value per column of bars (None if there is none), and further cells."""

    label: str
    values: Sequence[float | None]
    notes: Sequence[str] = ()


def bar_chart(
    bars: Sequence[Bar],
    columns: Sequence[str],
    *,
    label: str,
    notes: Sequence[str] = (),
    maximum: float | None = None,
    value_format: Callable[[float], str] = decimal,
    sortable: bool = False,
) -> Markup:
    """Draw a table with a row of horizontal bars for each `Bar`.

    Args:
        bars: The rows.
        columns: Headings of the columns of bars.
        label: Heading of the labels.
        notes: Headings of the further cells.
        maximum: The value of a full bar; None for the largest value.
        value_format: Formats the values.
        sortable: Sort the rows when a heading is clicked.
    """
    full = maximum or max((value for bar in bars for value in bar.values if value is not None), default=1.0)
    options = {"label": label, "columns": columns, "notes": notes, "value_format": value_format, "sortable": sortable}
    return render("bar_chart.html", bars=bars, full=full if full > 0 else 1.0, **options)


def heat_map(
    row_names: Sequence[str],
    column_names: Sequence[str],
    counts: Sequence[Sequence[int]],
    *,
    corner: str,
    hover: str = "{count} of {total} of {row} in {column}",
) -> Markup:
    """Draw counts as a table, each cell shaded by its share of its row. Many columns get numbers instead of names.

    Args:
        row_names: Headings of the rows.
        column_names: Headings of the columns.
        counts: The counts, [num_rows][num_columns].
        corner: Heading of the row names.
        hover: The text for hovering over a cell, a format of row, column, count and total.

    Examples:
        >>> "2 of 3 of a in b" in heat_map(["a"], ["a", "b"], [[1, 2]], corner="true class")
        True
    """
    rows = list(zip(row_names, counts, strict=True))
    return render("heat_map.html", rows=rows, columns=column_names, corner=corner, hover=hover)


class Cell(NamedTuple):
    """Characters of a text plot, and the number of the series they belong to; None for the axes."""

    text: str
    series: int | None = None


def text_plot(
    series: Sequence[tuple[str, Series]],
    *,
    width: int = 78,
    height: int = 12,
    y_format: Callable[[float], str] = compact,
) -> list[list[Cell]]:
    """Draw curves for a terminal.

    Args:
        series: (letter, curve). The letter stands where the curve ends. Curves without points are left out.
        width: Number of characters in a row.
        height: Number of rows without the x axis.
        y_format: Formats the numbers on the y axis.

    Returns:
        Rows of cells.

    Examples:
        >>> rows = text_plot([("a", Series("a", [(0.0, 0.0), (10.0, 1.0)]))], width=20, height=3)
        >>> for row in rows:
        ...     print("".join(cell.text for cell in row).rstrip())
           1 ┤      ⢀⡠⠔⠊ a
         0.5 ┤   ⢀⠤⠒⠁
           0 ┤⡠⠔⠊⠁
             └──────────
              0       10
    """
    curves = [(number, letter, one.points) for number, (letter, one) in enumerate(series) if one.points]
    if not curves:
        return []
    xs, ys = zip(*(point for _, _, points in curves for point in points), strict=True)
    ticks = nice_ticks(min(ys), max(ys), 4)
    across, up = Scale.around(xs), Scale(ticks[0], ticks[-1])
    margin = max(len(y_format(tick)) for tick in ticks) + 1
    columns = max(10, width - margin - 3 - MAX_LETTERS_PER_ROW)

    def dot(x: float, y: float) -> tuple[int, int]:
        return round(across.place(x) / 100 * (columns * 2 - 1)), round(up.from_top(y) / 100 * (height * 4 - 1))

    bits, owner = np.zeros((height, columns), dtype=np.int64), np.full((height, columns), -1)
    for number, _, points in curves:
        dots = [dot(*point) for point in points]
        for start, end in pairwise([dots[0], *dots]):
            num_dots = max(abs(start[0] - end[0]), abs(start[1] - end[1]), 1) + 1
            x, y = np.linspace(start, end, num_dots).round().astype(np.int64).T
            np.bitwise_or.at(bits, (y // 4, x // 2), _DOTS[y % 4, x % 2])
            owner[y // 4, x // 2] = number  # a character has the color of the last curve in it
    letters: list[list[Cell]] = [[] for _ in range(height)]
    for row, number, letter in sorted((dot(*points[-1])[1] // 4, number, letter) for number, letter, points in curves):
        while len(letters[row]) >= MAX_LETTERS_PER_ROW and row + 1 < height:
            row += 1
        letters[row].append(Cell(letter, number))
    numbers = {dot(xs[0], tick)[1] // 4: y_format(tick) for tick in ticks}
    rows = []
    for row in range(height):
        axis = f"{numbers.get(row, ''):>{margin}} {'┤' if row in numbers else '│'}"
        characters = zip(bits[row].tolist(), owner[row].tolist(), strict=True)
        cells = [Cell(chr(_BRAILLE | dots), number) if dots else Cell(" ") for dots, number in characters]
        rows.append([Cell(axis), *cells, Cell(" "), *letters[row]])
    first, last = compact(across.low), compact(across.high)
    below = f"{'':>{margin}} └{'─' * columns}", f"{'':>{margin + 2}}{first}{last:>{columns - len(first)}}"
    return [*rows, *([Cell(line)] for line in below)]
