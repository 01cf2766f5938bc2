"""The report as one HTML file, in the frame all our pages share."""

from __future__ import annotations

from rgcn.pages.layout import page, parts
from rgcn.paper.judging import PaperReport
from rgcn.paper.rendering import NUMBERS, about_text, below, headings, lay_out, title

GOOD = ("agrees", "equal", "within")
BAD = ("below", "differs", "outside")


def html_page(report: PaperReport) -> str:
    """The whole report."""
    laid = [(table, lay_out(table)) for table in report.tables]
    tables = [(title(table), headings(made), made, below(table, made)) for table, made in laid]
    content = parts("reproduction.html", tables=tables, numbers=NUMBERS, mood=mood)
    return page("The paper's figures beside ours", content, footer=about_text(report.about))


def mood(verdict: str) -> str:
    """How a verdict is colored: good, bad, or quiet where nothing is wrong and nothing is the same.

    >>> mood("agrees"), mood("+0.1%, within 2%"), mood("below"), mood("above"), mood("90 × faster")
    ('good', 'good', 'bad', 'quiet', 'quiet')
    """
    if any(word in verdict for word in GOOD):
        return "good"
    return "bad" if any(word in verdict for word in BAD) else "quiet"
