"""The report as one HTML file, in the frame all our pages share."""

from __future__ import annotations

from rgcn.pages.markup import Html, join, paragraph, prose, tag
from rgcn.pages.markup import table as html_table
from rgcn.pages.page import Section, page
from rgcn.paper.judging import PaperReport, PaperTable
from rgcn.paper.rendering import NUMBERS, Line, about_text, below, headings, lay_out, title

GOOD = ("agrees", "equal", "within")
BAD = ("below", "differs", "outside")
CLASSES = {"good": "right", "bad": "wrong", "quiet": None}


def html_page(report: PaperReport) -> str:
    """The whole report."""
    return page(
        "The paper's figures beside ours",
        [_section(table) for table in report.tables],
        introduction=paragraph(
            "Every figure of Relational Graph Convolutional Networks: A Closer Look that is asked for here, beside "
            "what this machine gave."
        ),
        footer=about_text(report.about),
    )


def _section(table: PaperTable) -> Section:
    laid = lay_out(table)
    numeric = [number for number, column in enumerate(laid.columns) if column in NUMBERS]
    rows = [[_cell(line, column) for column in laid.columns] for line in laid.lines]
    notes = (tag("p", tag("small", prose(text))) for text in below(table, laid) if text)
    return Section(title(table), "", join([html_table(headings(laid), rows, numeric=numeric), *notes]))


def _cell(line: Line, column: str) -> Html | str:
    text = line.cells[column]
    if column != "verdict" or not text:
        return text
    return tag("span", text, class_=CLASSES[mood(line.verdict)])


def mood(verdict: str) -> str:
    """How a verdict is colored: good, bad, or quiet where nothing is wrong and nothing is the same.

    >>> mood("agrees"), mood("+0.1%, within 2%"), mood("below"), mood("above"), mood("90 × faster")
    ('good', 'good', 'bad', 'quiet', 'quiet')
    """
    if any(word in verdict for word in GOOD):
        return "good"
    return "bad" if any(word in verdict for word in BAD) else "quiet"
