"""Tables as cells of text, and a report of them as Markdown, as HTML and as JSON."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rgcn.pages.layout import page, parts
from rgcn.paper.judging import Kind, PaperReport, PaperRow, PaperTable
from rgcn.paper.published import Figure
from rgcn.system.formatting import count, duration

COLUMNS = ("what", "of", "published", "ours", "runs", "time", "verdict")
NUMBERS = ("ours", "runs", "time")  # set to the right
GOOD = ("agrees", "equal", "within")
BAD = ("below", "differs", "outside")


@dataclass(frozen=True)
class Laid:
    """A table ready to be drawn: the columns that hold anything, lines as {column: text}, and numbered notes."""

    columns: tuple[str, ...]
    lines: list[dict[str, str]]
    footnotes: list[str]


def lay_out(table: PaperTable) -> Laid:
    """Lines with cells as text; a row with several published figures takes as many lines, ours on the first."""
    notes = list(dict.fromkeys(row.note for row in table.rows if row.note))
    lines: list[dict[str, str]] = []
    before, shown_detail = None, ""
    for row in table.rows:
        subject = row.subject
        if subject == before:
            subject = row.detail if row.detail != shown_detail else ""
            shown_detail = row.detail
        before = row.subject
        lines += _lines(row, subject, f"[{notes.index(row.note) + 1}]" if row.note else "")
    filled = {column for line in lines for column, text in line.items() if text}
    if len({row.quantity for row in table.rows}) == 1:
        filled.discard("of")
    return Laid(tuple(c for c in COLUMNS if c in filled), lines, [f"[{i}] {n}" for i, n in enumerate(notes, 1)])


def _lines(row: PaperRow, subject: str, mark: str) -> Iterator[dict[str, str]]:
    ours = "" if row.ours is None else figure_text(row.ours, row.error, row.kind, row.digits)
    first = dict.fromkeys(COLUMNS, "") | {"what": subject, "of": row.quantity, "verdict": mark}
    first["ours"] = f"≈ {ours}" if row.extrapolated else ours
    first["runs"] = "" if row.runs is None else str(row.runs)
    first["time"] = "" if row.seconds is None else duration(row.seconds)
    if not row.published:
        yield first
    for number, judged in enumerate(row.published):
        line = dict.fromkeys(COLUMNS, "") if number else first
        published = f"{judged.figure.by} {published_text(judged.figure, row.kind, row.digits)}".strip()
        yield {**line, "published": published, "verdict": f"{judged.verdict} {line['verdict']}".strip()}


def published_text(figure: Figure, kind: Kind, digits: int) -> str:
    """A published figure as the paper writes it.

    >>> published_text(Figure(95.56, "Torch-RGCN", "Table 2", error=0.61), "percent", 2)
    '95.56 ± 0.61'
    """
    return figure.words or figure_text(figure.value, figure.error, kind, digits)


def figure_text(value: float | None, error: float | None, kind: Kind, digits: int) -> str:
    """12,068,804 or 0.486 ± 0.009 or 40 h 7 min."""
    if value is None:
        return ""
    if kind == "time":
        return duration(value)
    return f"{value:,.{digits}f}" + ("" if error is None else f" ± {error:.{digits}f}")


def headings(laid: Laid) -> list[str]:
    """The columns' names; `of` has none, since what stands in it explains itself."""
    return ["" if column in ("what", "of") else column for column in laid.columns]


def title(table: PaperTable) -> str:
    """The table's title, with the quantity where all rows share it and a warning where settings were changed."""
    quantities = {row.quantity for row in table.rows}
    words = table.title + (f": {quantities.pop()}" if len(quantities) == 1 else "")
    return words + (f" (CHANGED by --set {' '.join(table.changed)})" if table.changed else "")


def below(table: PaperTable) -> list[str]:
    changed = ["Settings were changed: this is a trial, not a reproduction."] if table.changed else []
    return [*changed, table.rule, *table.notes]


def markdown_table(table: PaperTable) -> str:
    laid = lay_out(table)
    align = ["---:" if column in NUMBERS else "---" for column in laid.columns]
    lines = [f"| {' | '.join(headings(laid))} |", f"|{'|'.join(align)}|"]
    cells = ([_escaped(line[column]) for column in laid.columns] for line in laid.lines)
    lines += [f"| {' | '.join(row)} |" for row in cells]
    notes = "".join(f"\n{_escaped(note)}\n" for note in laid.footnotes)
    return "\n".join(lines) + "\n" + notes


def markdown(report: PaperReport) -> str:
    text = ["# The paper's figures beside ours\n", about_text(report.about) + "\n"]
    for table in report.tables:
        text += [f"## {title(table)}\n", markdown_table(table), "\n".join(f"{line}\n" for line in below(table))]
    return "\n".join(text)


def html_page(report: PaperReport) -> str:
    laid = [(table, lay_out(table)) for table in report.tables]
    tables = [(title(table), headings(made), made, [*below(table), *made.footnotes]) for table, made in laid]
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


def about_text(about: dict[str, Any]) -> str:
    machine = about.get("machine", {})
    cores = machine.get("cores")
    parts = machine.get("gpu"), machine.get("cpu"), None if cores is None else count(cores, "core")
    hardware = ", ".join(str(part) for part in parts if part)
    return "; ".join(part for part in (about.get("command"), about.get("date"), hardware) if part)


def json_text(report: PaperReport) -> str:
    return json.dumps(report.as_dict(), indent=1, ensure_ascii=False) + "\n"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
