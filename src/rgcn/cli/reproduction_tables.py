"""The paper's figures beside ours, as a person sees them on a terminal."""

from __future__ import annotations

from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Drawn

from rgcn.paper.judging import PaperReport
from rgcn.paper.rendering import NUMBERS, Laid, below, groups, headings, lay_out, title
from rgcn.paper.reproduction_page import mood

COLORS = {"good": "green", "bad": "red", "quiet": "dim"}
NARROWEST = 100  # characters of a file or pipe, which has no edge to keep to


def print_tables(report: PaperReport) -> None:
    """Every table with its title above and its notes below."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=max(console.width, NARROWEST))
    for table in report.tables:
        laid = lay_out(table)
        console.print(f"[bold]{escape(title(table))}[/]\n", soft_wrap=not console.is_terminal)
        console.print(_drawn(laid))
        for words in below(table, laid):
            console.print(escape(words))
        console.print()


def _drawn(laid: Laid) -> Drawn:
    drawn = Drawn(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for column, heading in zip(laid.columns, headings(laid), strict=True):
        justify: Literal["right", "left"] = "right" if column in NUMBERS else "left"
        drawn.add_column(heading, justify=justify, no_wrap=column not in ("what", "of"), overflow="fold")
    for group in groups(laid):
        for line in group:
            cells = [escape(line.cells[column]) for column in laid.columns]
            if laid.columns[-1] == "verdict" and cells[-1]:
                cells[-1] = f"[{COLORS[mood(line.verdict)]}]{cells[-1]}[/]"
            drawn.add_row(*cells)
        if len(group) > 1:
            drawn.add_section()
    return drawn
