"""Small charts for pages that open anywhere: inline SVG and tables, no scripts needed, no outside files.

Each chart of a page computes scales and hands them to a template of its name. Colors are CSS variables of the page
(`--series-1` ..., `--heat-0` ...), so that a chart follows light and dark; text keeps its size on a narrow screen,
because only the drawing is stretched. `text_plot` draws curves on a terminal, in Braille dots: two across and four down
in each character.
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

DOTTED_BELOW, LISTED = 25, 12
# Which bit of a Braille character is the dot at [row, column].
_DOTS = np.array([(0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80)])
_BRAILLE = 0x2800
MOST_TOGETHER = 3

Point = tuple[float, float]


def nice_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from at most `low` to at least `high`, in steps of 1, 2 or 5 times a power of ten.

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
    """A range of numbers laid out from 0 to 100 percent."""

    low: float
    high: float

    def place(self, value: float) -> float:
        """Percent along the axis.

        >>> Scale(10, 30).place(15)
        25.0
        """
        return round(100 * (value - self.low) / (self.high - self.low), 3)

    def from_top(self, value: float) -> float:
        """The same for an axis that goes up, counted downwards as screens count."""
        return round(100 - self.place(value), 3)

    @classmethod
    def around(cls, values: Sequence[float]) -> Scale:
        """From the least to the greatest; a single value stands in the middle."""
        low, high = min(values), max(values)
        return cls(low, high) if high > low else cls(low - 1, high + 1)


def thinned(points: Sequence[Point], most: int = 600) -> list[Point]:
    """At most about `most` points whose picture is the same: of each stretch its ends, its lowest and its highest.

    >>> dense = [(float(i), 1.0 if i == 70_001 else 0.0) for i in range(100_000)]
    >>> len(thinned(dense)) <= 600, (70_001.0, 1.0) in thinned(dense)
    (True, True)
    """
    if len(points) <= most:
        return list(points)
    stretches = max(1, most // 4)
    kept: list[Point] = []
    for number in range(stretches):
        part = range(number * len(points) // stretches, (number + 1) * len(points) // stretches)
        lowest, highest = min(part, key=lambda i: points[i][1]), max(part, key=lambda i: points[i][1])
        kept += [points[i] for i in sorted({part[0], lowest, highest, part[-1]})]
    return kept


@dataclass(frozen=True)
class Series:
    """One curve."""

    name: str
    points: Sequence[Point]  # (x, y), x ascending; a y that is not finite is left out
    band: Sequence[tuple[float, float, float]] = ()  # (x, low, high) around the curve, such as a standard error
    color: int | None = None  # which color of the page, from 0; None takes the series' own number
    joined: bool = True  # whether a line joins the points; else each is a dot

    def drawn(self, number: int) -> Series:
        """The same as number so and so of a chart: finite points, not too many, and a color."""
        points = [(float(x), float(y)) for x, y in self.points if math.isfinite(x) and math.isfinite(y)]
        return replace(self, points=thinned(points), color=number if self.color is None else self.color)


class Mark(NamedTuple):
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
) -> Markup:
    """Curves with thin grid lines, a legend, marks, and the numbers in a table below.

    y_range  fixed ends of the y axis; None: from the data, from zero where that is not far

    >>> chart = line_chart([Series("loss", [(1, 2.0), (2, 1.0)])], title="Loss", x_label="epoch", y_label="loss")
    >>> "<svg" in chart and "http" not in chart
    True
    """
    drawn = [one for number, given in enumerate(series) if (one := given.drawn(number)).points]
    if not drawn:
        return _nothing(title)
    xs = sorted({x for one in drawn for x, _ in one.points})
    ys = [y for one in drawn for y in (*(y for _, y in one.points), *(y for _, *ends in one.band for y in ends))]
    low, high = (end if given is None else given for end, given in zip((min(ys), max(ys)), y_range, strict=True))
    y_ticks = nice_ticks(0.0 if y_range[0] is None and 0 <= low < high else low, high)
    x_ticks = [x for x in nice_ticks(xs[0], xs[-1]) if x == round(x) and xs[0] <= x <= xs[-1]]
    places = min(LISTED, len(xs))
    return render(
        "line_chart.html",
        series=drawn,
        across=Scale.around(xs),
        up=Scale(y_ticks[0], y_ticks[-1]),
        x_ticks=x_ticks or xs[:1],
        y_ticks=y_ticks,
        y_format=y_format,
        words=value_format,
        dotted=max(len(one.points) for one in drawn) <= DOTTED_BELOW,
        listed=[xs[round(i * (len(xs) - 1) / max(1, places - 1))] for i in range(places)],
        is_all=places == len(xs),
        marks=marks,
        title=title,
        x_label=x_label,
        y_label=y_label,
    )


def column_chart(
    labels: Sequence[str], series: Sequence[tuple[str, Sequence[float]]], *, title: str, x_label: str, y_label: str
) -> Markup:
    """Columns over labels; several series, each (name, a value for each label), stand side by side."""
    if not labels or not series:
        return _nothing(title)
    ticks = nice_ticks(0, max(max(values) for _, values in series) or 1, 4)
    up, shown = Scale(ticks[0], ticks[-1]), {"title": title, "x_label": x_label, "y_label": y_label}
    return render("column_chart.html", labels=labels, series=series, up=up, ticks=ticks, **shown)


def _nothing(title: str) -> Markup:
    return render("empty.html", words=f"Nothing has been measured yet for “{title}”.")


class Bar(NamedTuple):
    """A row: its label, a value for each column of bars (None: there is none), and further cells."""

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
    """A row for each bar; columns of bars drawn to one scale from 0 to `maximum` (None: the largest value)."""
    full = maximum or max((value for bar in bars for value in bar.values if value is not None), default=1.0)
    shown = {"label": label, "columns": columns, "notes": notes, "words": value_format, "sortable": sortable}
    return render("bar_chart.html", bars=bars, full=full if full > 0 else 1.0, **shown)


def heat_map(
    row_names: Sequence[str],
    column_names: Sequence[str],
    counts: Sequence[Sequence[int]],
    *,
    corner: str,
    said: str = "{count} of {total} of {row} in {column}",
) -> Markup:
    """Counts [rows][columns], each shaded by its share of its row; many columns are numbered, and the rows say which.

    said  what hovering over a cell says: a format of row, column, count and total

    >>> "2 of 3 of a in b" in heat_map(["a"], ["a", "b"], [[1, 2]], corner="truly")
    True
    """
    rows = list(zip(row_names, counts, strict=True))
    return render("heat_map.html", rows=rows, columns=column_names, corner=corner, said=said)


class Cell(NamedTuple):
    """A character and the series it belongs to; None: an axis."""

    text: str
    series: int | None = None


def text_plot(
    series: Sequence[tuple[str, Series]],
    *,
    width: int = 78,
    height: int = 12,
    y_format: Callable[[float], str] = compact,
) -> list[list[Cell]]:
    """Rows of cells: an axis at the left, the curves, and at the right the letter of each curve where it ends.

    series  (letter, curve); a curve without points is left out

    >>> rows = text_plot([("a", Series("a", [(0.0, 0.0), (10.0, 1.0)]))], width=20, height=3)
    >>> print("\\n".join("".join(cell.text for cell in row).rstrip() for row in rows))
       1 ┤      ⢀⡠⠔⠊ a
     0.5 ┤   ⢀⠤⠒⠁
       0 ┤⡠⠔⠊⠁
         └──────────
          0       10
    """
    drawn = [(number, letter, one.points) for number, (letter, one) in enumerate(series) if one.points]
    if not drawn:
        return []
    xs, ys = zip(*(point for _, _, points in drawn for point in points), strict=True)
    ticks = nice_ticks(min(ys), max(ys), 4)
    across, up = Scale.around(xs), Scale(ticks[0], ticks[-1])
    margin = max(len(y_format(tick)) for tick in ticks) + 1
    columns = max(10, width - margin - 3 - MOST_TOGETHER)

    def dot(x: float, y: float) -> tuple[int, int]:
        return round(across.place(x) / 100 * (columns * 2 - 1)), round(up.from_top(y) / 100 * (height * 4 - 1))

    bits, owner = np.zeros((height, columns), dtype=np.int64), np.full((height, columns), -1)
    for number, _, points in drawn:
        dots = [dot(*point) for point in points]
        for one, other in pairwise([dots[0], *dots]):
            steps = max(abs(one[0] - other[0]), abs(one[1] - other[1]), 1)
            x, y = np.linspace(one, other, steps + 1).round().astype(np.int64).T
            np.bitwise_or.at(bits, (y // 4, x // 2), _DOTS[y % 4, x % 2])
            owner[y // 4, x // 2] = number  # a character has the color of the curve drawn last
    letters: list[list[Cell]] = [[] for _ in range(height)]
    for row, number, letter in sorted((dot(*points[-1])[1] // 4, number, letter) for number, letter, points in drawn):
        while len(letters[row]) >= MOST_TOGETHER and row + 1 < height:  # curves that end together share a row
            row += 1
        letters[row].append(Cell(letter, number))
    numbers = {dot(xs[0], tick)[1] // 4: y_format(tick) for tick in ticks}
    rows = []
    for row in range(height):
        axis = f"{numbers.get(row, ''):>{margin}} {'┤' if row in numbers else '│'}"
        filled = zip(bits[row].tolist(), owner[row].tolist(), strict=True)
        curves = [Cell(chr(_BRAILLE | dots), number) if dots else Cell(" ") for dots, number in filled]
        rows.append([Cell(axis), *curves, Cell(" "), *letters[row]])
    first, last = compact(across.low), compact(across.high)
    below = f"{'':>{margin}} └{'─' * columns}", f"{'':>{margin + 2}}{first}{last:>{columns - len(first)}}"
    return [*rows, *([Cell(line)] for line in below)]
