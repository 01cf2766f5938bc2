"""Small charts for pages that open anywhere: inline SVG and tables, no scripts needed, no outside files.

Each function returns markup. Colors are CSS variables of the page (`--series-1` ..., `--heat-0` ...), so that a chart
follows light and dark; text keeps its size on a narrow screen, because only the drawing is stretched.

    line_chart(series, x_label=..., y_label=...)      curves over epochs, with bands and marks
    column_chart(labels, series, ...)                 a histogram: columns side by side
    bar_chart(bars, columns, ...)                     a table whose numbers are also bars
    heat_map(row_names, column_names, counts, ...)    a matrix of counts, shaded
"""

from rgcn.pages.charts.bars import Bar, bar_chart
from rgcn.pages.charts.columns import column_chart
from rgcn.pages.charts.heat import heat_map
from rgcn.pages.charts.lines import Mark, Series, line_chart
from rgcn.pages.charts.scales import Scale, nice_ticks, thinned

__all__ = [
    "Bar",
    "Mark",
    "Scale",
    "Series",
    "bar_chart",
    "column_chart",
    "heat_map",
    "line_chart",
    "nice_ticks",
    "thinned",
]
