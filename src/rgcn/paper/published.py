"""The published results (published.yaml), their comparison with ours, and tables of both as Markdown, HTML and JSON."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml
from pydantic import TypeAdapter

from rgcn.data import load
from rgcn.data.registry import NoSourceError
from rgcn.errors import RgcnError
from rgcn.graph import KnowledgeGraph
from rgcn.pages.layout import page, parts
from rgcn.runs.folder import environment
from rgcn.system.formatting import format_count, format_duration, format_number

Kind = Literal["number", "count", "percent", "time"]

PAPER = "Torch-RGCN"  # the paper's own code
METRICS = ("mrr", "hits@1", "hits@3", "hits@10")
STATISTICS = ("min", "max", "mean", "std")
LINK_TIMED_STEPS = 7_000
GPU, CPU = "one GTX 1080 Ti", "12 cores"

NO_RESULT = "none"
STANDARD_ERRORS = 2.0
RULE = (
    "agrees: the difference is at most 2 standard errors, √(ours² + the paper's²), where a missing one of the paper "
    "counts as 0; else ours is above or below. A single run has no standard error: it is only higher or lower."
)
COLUMNS = ("what", "of", "published", "ours", "runs", "time", "verdict")
NUMBERS = ("ours", "runs", "time")  # aligned right
GOOD_VERDICTS = ("agrees", "equal", "within")
BAD_VERDICTS = ("below", "differs", "outside")


# -- published results --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PaperResult:
    """A result in the paper.

    Args:
        value: The number; None if the paper only describes the result.
        by: The model: TF-RGCN, Torch-RGCN, e-RGCN or c-RGCN; empty if there is none.
        where: The table or section of the paper.
        error: The standard error, if the paper states one.
        words: The paper's text, if it is no number or has another unit.
    """

    value: float | None = None
    by: str = ""
    where: str = ""
    error: float | None = None
    words: str | None = None


class PublishedTensor(NamedTuple):
    """A row of Table 4: for each implementation the `STATISTICS` of a tensor."""

    name: str
    shape: str
    statistics: Mapping[str, Sequence[float]]

    @property
    def allowed(self) -> float:
        """The allowed relative deviation of our standard deviation; outputs depend on more random numbers."""
        return 0.10 if self.name.endswith("output") else 0.02


def _results(values: Mapping[str, Any]) -> dict[str, PaperResult]:
    return {name: PaperResult(**result) for name, result in values.items()}


def _ranking(by: str, where: str, values: list[float], errors: Sequence[Any] = (None,) * 4) -> dict[str, PaperResult]:
    rows = zip(METRICS, values, errors, strict=True)
    return {metric: PaperResult(value, by, where, error) for metric, value, error in rows}


_READ = yaml.safe_load((resources.files("rgcn.paper") / "published.yaml").read_text(encoding="utf-8"))

TITLES: Mapping[str, str] = _READ["titles"]
NODE_DATASETS: Mapping[str, Mapping[str, int]] = _READ["node datasets"]
LINK_DATASETS: Mapping[str, Mapping[str, int]] = _READ["link datasets"]
PRUNED: list[str] = _READ["pruned"]
ACCURACY = {
    name: tuple(PaperResult(**row, where="Table 2") for row in rows) for name, rows in _READ["accuracy"].items()
}
# configuration -> for each published row: metric -> result
RANKING = {name: tuple(_ranking(**row) for row in rows) for name, rows in _READ["ranking"].items()}
DESCRIBED: Mapping[str, Mapping[str, Any]] = _READ["described"]
PARAMETER_SHARES = _results(_READ["parameters"])
NODE_TIMES, LINK_TIMES = _results(_READ["times"]["cpu"]), _results(_READ["times"]["link"])
GPU_TIME, FREEBASE_TIME, DISTMULT_TIME = (PaperResult(**_READ["times"][k]) for k in ("gpu", "freebase", "distmult"))
TENSORS = tuple(PublishedTensor(**tensor) for tensor in _READ["tensors"])


# -- comparison with ours -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Judgment:
    """A published result, and how ours compares with it."""

    figure: PaperResult
    verdict: str


def judge(published: PaperResult, ours: float, error: float | None) -> Judgment:
    """Compare our result, with its standard error, with a published one (see RULE).

    >>> judge(PaperResult(95.56, "Torch-RGCN", "Table 2", error=0.61), 96.67, 0.37).verdict
    'agrees'
    >>> judge(PaperResult(0.749, "Torch-RGCN", "Table 5"), 0.808, None).verdict
    'higher'
    """
    assert published.value is not None
    difference = ours - published.value
    if error is None:
        return Judgment(published, "higher" if difference > 0 else "lower" if difference < 0 else "equal")
    allowed = STANDARD_ERRORS * math.hypot(error, published.error or 0.0)
    return Judgment(published, "agrees" if abs(difference) <= allowed else "above" if difference > 0 else "below")


def judge_time(published: PaperResult, seconds: float) -> Judgment:
    """Compare our time with a published one.

    >>> judge_time(PaperResult(45.0, "Torch-RGCN", "Section 5.3"), 0.5).verdict
    '90 × faster'
    """
    if published.value is None:
        return Judgment(published, "")
    ratio = format_number(max(seconds / published.value, published.value / seconds))
    verdict = f"{ratio} × {'faster' if seconds < published.value else 'slower'}"
    return Judgment(published, "equal" if ratio == "1" else verdict)


@dataclass(frozen=True)
class PaperRow:
    """A quantity with published results and ours.

    Args:
        subject: The data set and the model: "AIFB, RGCN".
        quantity: What is measured: "MRR".
        published: The published results, compared with ours.
        ours: Our result; if it is None, `note` says why.
        error: The standard error of ours.
        runs: The number of our runs.
        seconds: The median time of a run.
        extrapolated: True if ours was computed from a shorter measurement, which `note` describes.
        note: A footnote.
        detail: Shown instead of the subject in its second row.
        kind: The kind of number.
        digits: The number of decimal places.
    """

    subject: str
    quantity: str
    published: tuple[Judgment, ...] = ()
    ours: float | None = None
    error: float | None = None
    runs: int | None = None
    seconds: float | None = None
    extrapolated: bool = False
    note: str = ""
    detail: str = ""
    kind: Kind = "number"
    digits: int = 3

    def without_result(self, results: Sequence[PaperResult], reason: str) -> PaperRow:
        """Return the row of something that we could not measure, with the reason as its note."""
        return replace(self, published=tuple(Judgment(result, NO_RESULT) for result in results), note=reason)


@dataclass(frozen=True)
class PaperTable:
    """A table of rows that are judged by one rule.

    Args:
        name: Its name in JSON.
        title: Its title.
        rows: Its rows.
        rule: The rule in words.
        notes: Notes on the whole table.
        changed: Settings that differ from the built-in configurations: then it is a trial, not a reproduction.
    """

    name: str
    title: str
    rows: Sequence[PaperRow]
    rule: str
    notes: Sequence[str] = ()
    changed: Sequence[str] = ()

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> PaperTable:
        """Make a table from its JSON form."""
        return TypeAdapter(cls).validate_python(values)


@dataclass(frozen=True)
class PaperReport:
    """Tables, and how they were made: the command, the date, the machine."""

    tables: Sequence[PaperTable]
    about: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def made_here(cls, tables: Sequence[PaperTable]) -> PaperReport:
        """Make a report of tables that this process computed."""
        here = environment()
        machine = {key: here["hardware"][key] for key in ("cpu", "cores", "gpu", "system")}
        about = {"command": here["command"], "date": time.strftime("%Y-%m-%d")}
        return cls(tables, {**about, "machine": {**machine, **here["versions"]}})


def load_or_reason(name: str, mirror: Path | None) -> KnowledgeGraph | str:
    """Load a data set, or return why that is not possible."""
    try:
        return load(name, mirror=mirror)
    except RgcnError as error:
        return failure_reason(error)


def failure_reason(error: RgcnError) -> str:
    """Return the first line of an error, or a short text if the data cannot be downloaded."""
    if isinstance(error, NoSourceError):
        return "the data are neither on this machine nor could they be fetched (`rgcn data get` tells why)"
    return str(error).splitlines()[0]


# -- output -------------------------------------------------------------------------------------------------


class TableLayout(NamedTuple):
    """A table as cells of text.

    Args:
        title: Its title.
        columns: The columns that are not empty.
        lines: Column -> text, for each line.
        footnotes: Numbered footnotes, to which the lines refer.
        notes: Notes on the whole table.
    """

    title: str
    columns: tuple[str, ...]
    lines: list[dict[str, str]]
    footnotes: list[str]
    notes: list[str]

    @property
    def headings(self) -> list[str]:
        """The headings of the columns; the first two have none."""
        return ["" if column in ("what", "of") else column for column in self.columns]


def layout_table(table: PaperTable) -> TableLayout:
    """Convert a table to cells of text. A row has one line for each published result, and ours on the first."""
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
    quantities, title, texts = {row.quantity for row in table.rows}, table.title, [table.rule, *table.notes]
    if len(quantities) == 1:
        filled.discard("of")
        title += f": {quantities.pop()}"
    if table.changed:
        title += f" (CHANGED by --set {' '.join(table.changed)})"
        texts.insert(0, "Settings were changed: this is a trial, not a reproduction.")
    footnotes = [f"[{number}] {note}" for number, note in enumerate(notes, 1)]
    return TableLayout(title, tuple(column for column in COLUMNS if column in filled), lines, footnotes, texts)


def _lines(row: PaperRow, subject: str, mark: str) -> Iterator[dict[str, str]]:
    empty = dict.fromkeys(COLUMNS, "")
    line = {**empty, "what": subject, "of": row.quantity, "verdict": mark}
    line["ours"] = "≈ " * row.extrapolated + format_result(row.ours, row.error, row.kind, row.digits)
    line["runs"] = "" if row.runs is None else str(row.runs)
    line["time"] = "" if row.seconds is None else format_duration(row.seconds)
    for figure, verdict in [(one.figure, one.verdict) for one in row.published] or [(PaperResult(), "")]:
        published = f"{figure.by} {format_published(figure, row.kind, row.digits)}".strip()
        yield {**line, "published": published, "verdict": f"{verdict} {line['verdict']}".strip()}
        line = empty


def format_published(published: PaperResult, kind: Kind, digits: int) -> str:
    """Format a published result as in the paper.

    >>> format_published(PaperResult(95.56, "Torch-RGCN", "Table 2", error=0.61), "percent", 2)
    '95.56 ± 0.61'
    """
    return published.words or format_result(published.value, published.error, kind, digits)


def format_result(value: float | None, error: float | None, kind: Kind, digits: int) -> str:
    """Format a number: 12,068,804 or 0.486 ± 0.009 or 40 h 7 min."""
    if value is None or kind == "time":
        return "" if value is None else format_duration(value)
    return f"{value:,.{digits}f}" + ("" if error is None else f" ± {error:.{digits}f}")


def markdown_table(table: PaperTable) -> str:
    """Return a table as Markdown."""
    laid = layout_table(table)
    cells = [[line[column].replace("|", "\\|") for column in laid.columns] for line in laid.lines]
    align = "|".join("---:" if column in NUMBERS else "---" for column in laid.columns)
    lines = [f"| {' | '.join(row)} |" for row in (laid.headings, *cells)]
    footnotes = ["\n" + note.replace("|", "\\|") for note in laid.footnotes]
    return "\n".join([lines[0], f"|{align}|", *lines[1:], *footnotes]) + "\n"


def markdown(report: PaperReport) -> str:
    """Return a report as Markdown."""
    text = ["# The paper's results and ours\n", about_text(report.about) + "\n"]
    for table, laid in zip(report.tables, map(layout_table, report.tables), strict=True):
        text += [f"## {laid.title}\n", markdown_table(table), "\n".join(f"{line}\n" for line in laid.notes)]
    return "\n".join(text)


def html_page(report: PaperReport) -> str:
    """Return a report as an HTML page."""
    tables = [*map(layout_table, report.tables)]
    content = parts("reproduction.html", tables=tables, numbers=NUMBERS, mood=verdict_color)
    return page("The paper's results and ours", content, footer=about_text(report.about))


def json_text(report: PaperReport) -> str:
    """Return a report as JSON."""
    content = {"format": "rgcn-reproduction", "version": 1, **report.about}
    return json.dumps(content | {"tables": [*map(asdict, report.tables)]}, indent=1, ensure_ascii=False) + "\n"


def verdict_color(verdict: str) -> str:
    """Return the color of a verdict: "good", "bad" or "quiet".

    >>> (
    ...     verdict_color("agrees"),
    ...     verdict_color("+0.1%, within 2%"),
    ...     verdict_color("below"),
    ...     verdict_color("above"),
    ...     verdict_color("90 × faster"),
    ... )
    ('good', 'good', 'bad', 'quiet', 'quiet')
    """
    moods = {"good": GOOD_VERDICTS, "bad": BAD_VERDICTS}
    return next((mood for mood, words in moods.items() if any(word in verdict for word in words)), "quiet")


def about_text(about: dict[str, Any]) -> str:
    """Return the command, the date and the machine in one line."""
    machine = about.get("machine", {})
    cores = format_count(machine["cores"], "core") if machine.get("cores") else None
    hardware = ", ".join(str(part) for part in (machine.get("gpu"), machine.get("cpu"), cores) if part)
    return "; ".join(part for part in (about.get("command"), about.get("date"), hardware) if part)
