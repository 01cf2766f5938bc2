"""Curves on a terminal, in Braille dots: two across and four down in each character."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rgcn.pages.charts import Scale, Series, nice_ticks
from rgcn.pages.charts.scales import Point
from rgcn.pages.figures import compact

# Which bit of a Braille character is the dot at [row][column].
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_BRAILLE = 0x2800
MOST_TOGETHER = 3


@dataclass(frozen=True)
class Cell:
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
    frame = _frame([point for _, _, points in drawn for point in points], width, height, y_format)
    canvas = _Canvas(frame.columns, height)
    for number, _, points in drawn:
        canvas.curve(number, [frame.dot(x, y) for x, y in points])
    ends = _ends([(number, letter, frame.dot(*points[-1])[1] // 4) for number, letter, points in drawn], height)
    rows = [[Cell(frame.left_of(row)), *canvas.row(row), Cell(" "), *ends.get(row, [])] for row in range(height)]
    return [*rows, *([Cell(line)] for line in frame.below())]


@dataclass(frozen=True)
class _Frame:
    """Where dots are, and what stands at the axes: {row: number} at the left."""

    across: Scale
    up: Scale
    columns: int
    height: int
    margin: int
    labels: dict[int, str]

    def dot(self, x: float, y: float) -> tuple[int, int]:
        return _dot(self.across.place(x), self.columns * 2), _dot(100 - self.up.place(y), self.height * 4)

    def left_of(self, row: int) -> str:
        return f"{self.labels.get(row, ''):>{self.margin}} {'┤' if row in self.labels else '│'}"

    def below(self) -> tuple[str, str]:
        first, last = compact(self.across.low), compact(self.across.high)
        return (
            f"{'':>{self.margin}} └{'─' * self.columns}",
            f"{'':>{self.margin + 2}}{first}{last:>{self.columns - len(first)}}",
        )


def _frame(points: Sequence[Point], width: int, height: int, y_format: Callable[[float], str]) -> _Frame:
    ys = [y for _, y in points]
    ticks = nice_ticks(min(ys), max(ys), 4)
    up = Scale(ticks[0], ticks[-1])
    margin = max(len(y_format(tick)) for tick in ticks) + 1
    labels = {_dot(100 - up.place(tick), height * 4) // 4: y_format(tick) for tick in ticks}
    columns = max(10, width - margin - 3 - MOST_TOGETHER)
    return _Frame(Scale.around([x for x, _ in points]), up, columns, height, margin, labels)


def _dot(percent: float, dots: int) -> int:
    return round(percent / 100 * (dots - 1))


class _Canvas:
    """Dots of several curves; a character takes the color of the curve drawn last."""

    def __init__(self, columns: int, height: int) -> None:
        self.bits = [[0] * columns for _ in range(height)]
        self.owner: list[list[int | None]] = [[None] * columns for _ in range(height)]

    def curve(self, number: int, dots: Sequence[tuple[int, int]]) -> None:
        if len(dots) == 1:
            self._dot(number, *dots[0])
        for (x0, y0), (x1, y1) in pairwise(dots):
            steps = max(abs(x1 - x0), abs(y1 - y0), 1)
            for step in range(steps + 1):
                self._dot(number, round(x0 + (x1 - x0) * step / steps), round(y0 + (y1 - y0) * step / steps))

    def _dot(self, number: int, x: int, y: int) -> None:
        row, column = y // 4, x // 2
        if 0 <= row < len(self.bits) and 0 <= column < len(self.bits[0]):
            self.bits[row][column] |= _DOTS[y % 4][x % 2]
            self.owner[row][column] = number

    def row(self, number: int) -> list[Cell]:
        return [
            Cell(chr(_BRAILLE | bits) if bits else " ", owner)
            for bits, owner in zip(self.bits[number], self.owner[number], strict=True)
        ]


def _ends(ends: Sequence[tuple[int, str, int]], height: int) -> dict[int, list[Cell]]:
    """Letters beside the rows where the curves end; curves that end together share a row, as far as there is room."""
    rows: dict[int, list[Cell]] = {}
    for number, letter, wanted in sorted(ends, key=lambda end: end[2]):
        row = min(max(wanted, 0), height - 1)
        while len(rows.get(row, [])) >= MOST_TOGETHER and row + 1 < height:
            row += 1
        rows.setdefault(row, []).append(Cell(letter, number))
    return rows
