"""Bars that are also a table: every bar has its number beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rgcn.pages.figures import decimal
from rgcn.pages.markup import Html, table, tag


@dataclass(frozen=True)
class Bar:
    """A row: its label, a value for each column of bars (None: there is none), and further cells."""

    label: Html | str
    values: Sequence[float | None]
    notes: Sequence[Html | str] = ()


def bar_chart(
    bars: Sequence[Bar],
    columns: Sequence[str],
    *,
    label: str,
    notes: Sequence[str] = (),
    maximum: float | None = None,
    value_format: Callable[[float], str] = decimal,
    sortable: bool = False,
) -> Html:
    """A row for each bar; columns of bars drawn to one scale from 0 to `maximum` (None: the largest value).

    >>> "0.5" in bar_chart([Bar("borders", [0.5], ["12"])], ["MRR"], label="relation", notes=["triples"], maximum=1)
    True
    """
    values = [value for bar in bars for value in bar.values if value is not None]
    full = maximum if maximum is not None else max(values, default=1.0)
    rows = [
        [
            tag("th", bar.label, scope="row"),
            *(_cell(value, full, number, value_format) for number, value in enumerate(bar.values)),
            *(tag("td", note, class_="number") for note in bar.notes),
        ]
        for bar in bars
    ]
    last = range(1 + len(columns), 1 + len(columns) + len(notes))
    return tag("div", table([label, *columns, *notes], rows, numeric=last, sortable=sortable), class_="bars")


def _cell(value: float | None, full: float, number: int, value_format: Callable[[float], str]) -> Html:
    if value is None:
        return tag("td", tag("span", "none", class_="muted"), class_="bar", data_value="-1")
    share = 100 * min(max(value / full, 0.0), 1.0) if full > 0 else 0.0
    bar = tag("rect", width=f"{share:.2f}%", height="100%", rx="2", style=f"fill:var(--series-{number % 8 + 1})")
    track = tag("rect", width="100%", height="100%", rx="2", class_="track")
    drawing = tag("svg", track, bar, aria_hidden="true")
    return tag("td", tag("div", drawing, tag("span", value_format(value))), class_="bar", data_value=f"{value:.6g}")
