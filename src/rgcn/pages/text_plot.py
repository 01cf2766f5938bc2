"""Curves on a terminal, in Braille dots: two across and four down in each character."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from rgcn.pages.charts import Scale, Series, nice_ticks
from rgcn.pages.text import compact

# Which bit of a Braille character is the dot at [row, column].
_DOTS = np.array([(0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80)])
_BRAILLE = 0x2800
MOST_TOGETHER = 3


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

    def dot_up(y: float) -> int:
        return round(up.from_top(y) / 100 * (height * 4 - 1))

    bits, owner = np.zeros((height, columns), dtype=np.int64), np.full((height, columns), -1)
    for number, _, points in drawn:
        dots = [(round(across.place(x) / 100 * (columns * 2 - 1)), dot_up(y)) for x, y in points]
        for one, other in pairwise([dots[0], *dots]):
            steps = max(abs(one[0] - other[0]), abs(one[1] - other[1]), 1)
            x, y = np.linspace(one, other, steps + 1).round().astype(np.int64).T
            np.bitwise_or.at(bits, (y // 4, x // 2), _DOTS[y % 4, x % 2])
            owner[y // 4, x // 2] = number  # a character has the color of the curve drawn last
    numbers = {dot_up(tick) // 4: y_format(tick) for tick in ticks}
    letters = _letters([(number, letter, dot_up(points[-1][1]) // 4) for number, letter, points in drawn], height)
    rows = []
    for row in range(height):
        axis = f"{numbers.get(row, ''):>{margin}} {'┤' if row in numbers else '│'}"
        filled = zip(bits[row].tolist(), owner[row].tolist(), strict=True)
        curves = [Cell(chr(_BRAILLE | dots), number) if dots else Cell(" ") for dots, number in filled]
        rows.append([Cell(axis), *curves, Cell(" "), *letters.get(row, [])])
    first, last = compact(across.low), compact(across.high)
    below = f"{'':>{margin}} └{'─' * columns}", f"{'':>{margin + 2}}{first}{last:>{columns - len(first)}}"
    return [*rows, *([Cell(line)] for line in below)]


def _letters(ends: Sequence[tuple[int, str, int]], height: int) -> dict[int, list[Cell]]:
    """Letters beside the rows where the curves end; curves that end together share a row, as far as there is room."""
    rows: dict[int, list[Cell]] = {}
    for number, letter, row in sorted(ends, key=lambda end: end[2]):
        while len(rows.get(row, [])) >= MOST_TOGETHER and row + 1 < height:
            row += 1
        rows.setdefault(row, []).append(Cell(letter, number))
    return rows
