"""Pages about runs: a report of one, a comparison of several, and the charts they are made of."""

from rgcn.runs.report.comparison import Comparison, compare_runs
from rgcn.runs.report.comparison_page import comparison_page
from rgcn.runs.report.page import Section, Tile, page
from rgcn.runs.report.writing import Report, make_report, save_page, write_report

__all__ = [
    "Comparison",
    "Report",
    "Section",
    "Tile",
    "compare_runs",
    "comparison_page",
    "make_report",
    "page",
    "save_page",
    "write_report",
]
