"""Pages about runs: a report of one, a comparison of several, and the charts they are made of."""

from typing import TYPE_CHECKING

from rgcn.pages.layout import PageParts, PageSection, Tile, page, save_page
from rgcn.pages.run_comparison import Comparison, compare_runs, comparison_page
from rgcn.pages.run_report import make_report, model_card
from rgcn.system.lazy import lazy_names

__all__ = ["Comparison", "PageParts", "PageSection", "Tile", "compare_runs", "comparison_page", "make_report", "page"]
__all__ += ["model_card", "save_page"]

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__)
