"""Pages about runs: a report of one run, a comparison of several, model cards, and the charts they contain."""

from typing import TYPE_CHECKING

from rgcn.pages.layout import PageParts, PageSection, Tile, page, save_page
from rgcn.pages.run_comparison import Comparison, compare_runs, comparison_page
from rgcn.pages.run_report import make_report, model_card
from rgcn.system.lazy import lazy_attributes

__all__ = ["Comparison", "PageParts", "PageSection", "Tile", "compare_runs", "comparison_page", "make_report", "page"]
__all__ += ["model_card", "save_page"]

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__)
