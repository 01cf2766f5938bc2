"""Pages about runs: a report of one, a comparison of several, and the charts they are made of."""

from rgcn.pages.layout import PageParts, PageSection, Tile, page, save_page
from rgcn.pages.run_comparison import Comparison, compare_runs, comparison_page
from rgcn.pages.run_report import RunReport, make_report

__all__ = [
    "Comparison",
    "PageParts",
    "PageSection",
    "RunReport",
    "Tile",
    "compare_runs",
    "comparison_page",
    "make_report",
    "page",
    "save_page",
]
