"""A matrix of counts whose shades show where they lie."""

from __future__ import annotations

from collections.abc import Sequence

from rgcn.pages.markup import Html, named, scrolling, short_name, tag

SHADES = 10
NAMED_COLUMNS = 8
TALL = 16


def heat_map(
    row_names: Sequence[str],
    column_names: Sequence[str],
    counts: Sequence[Sequence[int]],
    *,
    corner: str,
    said: str = "{count} of {total} of {row} in {column}",
) -> Html:
    """Counts [rows][columns], each shaded by its share of its row; zero is left blank.

    Where there are many columns they are numbered, and the rows say which number is which.

    corner  what stands in the corner, above the row names
    said    what hovering over a cell says: a format of row, column, count and total

    >>> "2 of 3 of a in b" in heat_map(["a"], ["a", "b"], [[1, 2]], corner="truly")
    True
    """
    numbered = len(column_names) > NAMED_COLUMNS
    head = [tag("th", corner, scope="col")] + [
        tag("th", str(number) if numbered else named(name), scope="col", title=name if numbered else None)
        for number, name in enumerate(column_names, start=1)
    ]
    rows = []
    for number, (name, row) in enumerate(zip(row_names, counts, strict=True), start=1):
        total = sum(row)
        prefix = f"{number} · " if numbered else ""
        cells = [tag("th", prefix, named(name), scope="row")]
        for column, value in enumerate(row):
            words = said.format(row=short_name(name), column=short_name(column_names[column]), count=value, total=total)
            shade = f"heat-{_shade(value / total)}" if value else "blank"
            own = " own" if name == column_names[column] else ""
            cells.append(tag("td", f"{value:,}" if value else "", class_=shade + own, title=words))
        rows.append(tag("tr", *cells))
    return scrolling(
        tag("table", tag("thead", tag("tr", *head)), tag("tbody", *rows), class_="heat"), tall=len(rows) > TALL
    )


def _shade(share: float) -> int:
    return min(SHADES - 1, int(share * SHADES))
