"""Pages about runs: a report of one, a comparison of several, and the charts they are made of."""

from typing import TYPE_CHECKING

from rgcn.pages.layout import PageParts as PageParts
from rgcn.pages.layout import PageSection as PageSection
from rgcn.pages.layout import Tile as Tile
from rgcn.pages.layout import page as page
from rgcn.pages.layout import save_page as save_page
from rgcn.pages.run_comparison import Comparison as Comparison
from rgcn.pages.run_comparison import compare_runs as compare_runs
from rgcn.pages.run_comparison import comparison_page as comparison_page
from rgcn.pages.run_report import RunReport as RunReport
from rgcn.pages.run_report import make_report as make_report
from rgcn.system.lazy import lazy_names

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__)
