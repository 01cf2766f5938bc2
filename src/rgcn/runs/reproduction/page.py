"""The report as one HTML file: no scripts, nothing to load; light and dark, on a phone a card for each line."""

from __future__ import annotations

from html import escape

from rgcn.runs.reproduction.comparison import Report, Table
from rgcn.runs.reproduction.rendering import NUMBERS, Laid, Line, about_text, below, groups, lay_out, title

STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --good: #18794e; --bad: #b3261e; --quiet: #767676; }
@media (prefers-color-scheme: dark) { :root { --good: #4cc38a; --bad: #ff9592; --quiet: #9a9a9a; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.5rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; text-align: left; vertical-align: top; }
th { border-bottom: 2px solid var(--line); font-weight: 600; }
tbody { border-bottom: 1px solid var(--line); }
.number { text-align: right; white-space: nowrap; }
.good { color: var(--good); } .bad { color: var(--bad); } .quiet, small { color: var(--quiet); }
p.note { margin: .3rem 0; font-size: .875rem; color: var(--quiet); overflow-wrap: anywhere; }
p.changed { border-left: 4px solid var(--bad); padding-left: .6rem; }
@media (max-width: 40rem) {
  thead { display: none; }
  table, tbody, tr { display: block; }
  tbody { padding: .6rem 0; }
  td { display: inline-block; padding: 0 .9rem 0 0; } td:first-child { display: block; } td:empty { display: none; }
  td[data-name]::before { content: attr(data-name) ": "; color: var(--quiet); }
  td:first-child { font-weight: 600; }
}
"""
GOOD = ("agrees", "equal", "within")


def html_page(report: Report) -> str:
    """The whole report."""
    tables = "\n".join(_section(table) for table in report.tables)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>The paper's figures beside ours</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>The paper's figures beside ours</h1>\n<p><small>{escape(about_text(report.about))}</small></p>\n"
        f"{tables}\n</body>\n</html>\n"
    )


def _section(table: Table) -> str:
    laid = lay_out(table)
    head = "".join(f"<th{_number(column)}>{_heading(column)}</th>" for column in laid.columns)
    body = "\n".join(
        "<tbody>\n" + "\n".join(_line(line, laid) for line in group) + "\n</tbody>" for group in groups(laid)
    )
    changed = '<p class="changed">Settings were changed: a trial, not a reproduction.</p>\n' if table.changed else ""
    notes = "\n".join(f'<p class="note">{escape(text)}</p>' for text in below(table, laid) if text)
    return (
        f"<h2>{escape(title(table))}</h2>\n{changed}<table>\n<thead><tr>{head}</tr></thead>\n{body}\n</table>\n{notes}"
    )


def _line(line: Line, laid: Laid) -> str:
    cells = []
    for column in laid.columns:
        name = f' data-name="{column}"' if _heading(column) and line.cells[column] else ""
        text = escape(line.cells[column])
        if column == "verdict" and text:
            text = f'<span class="{mood(line.verdict)}">{text}</span>'
        cells.append(f"<td{_number(column)}{name}>{text}</td>")
    return f"<tr>{''.join(cells)}</tr>"


def mood(verdict: str) -> str:
    """How a verdict is colored: good, bad, or quiet where nothing is judged.

    >>> mood("agrees"), mood("+0.1%, within 2%"), mood("below"), mood("none"), mood("90 × faster")
    ('good', 'good', 'bad', 'quiet', 'quiet')
    """
    if any(word in verdict for word in GOOD):
        return "good"
    return "bad" if verdict in ("above", "below", "differs") or "outside" in verdict else "quiet"


def _heading(column: str) -> str:
    return "" if column in ("what", "of") else column


def _number(column: str) -> str:
    return ' class="number"' if column in NUMBERS else ""
