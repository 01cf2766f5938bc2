"""Pages about runs: a report of one, a comparison of several, and the charts they are made of."""

from rgcn.pages.comparison import Comparison, compare_runs
from rgcn.pages.comparison_page import comparison_page
from rgcn.pages.page import Section, Tile, page
from rgcn.pages.writing import Report, make_report, save_page, write_report

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
