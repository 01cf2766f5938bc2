"""The paper's figures beside ours: what is published (published.yaml), how the two are judged, and how they are shown.

A table is laid out as cells of text, and a report of several written as Markdown, as HTML and as JSON.
"""

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
from rgcn.system.formatting import count, duration, times

Kind = Literal["number", "count", "percent", "time"]

PAPER = "Torch-RGCN"  # the paper's own code
METRICS = ("mrr", "hits@1", "hits@3", "hits@10")
STATISTICS = ("min", "max", "mean", "std")
LINK_EPOCHS_TIMED = 7_000
GPU, CPU = "one GTX 1080 Ti", "12 cores"

NO_FIGURE = "none"
STANDARD_ERRORS = 2.0
RULE = (
    "agrees: the difference is at most 2 standard errors, √(ours² + the paper's²), the paper's taken as 0 where it "
    "gives none; else ours is above or below. One run has no error: it is only said whether it is higher or lower."
)
COLUMNS = ("what", "of", "published", "ours", "runs", "time", "verdict")
NUMBERS = ("ours", "runs", "time")  # set to the right
GOOD = ("agrees", "equal", "within")
BAD = ("below", "differs", "outside")


# -- what is published -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Figure:
    """A published figure."""

    value: float | None = None  # None where the paper gives words only
    by: str = ""  # whose figure it is: TF-RGCN, Torch-RGCN, e-RGCN or c-RGCN; empty where it is of no model
    where: str = ""  # in the paper
    error: float | None = None  # standard error, where one is given
    words: str | None = None  # what the paper says instead of a number, or with another unit than we would


class PublishedTensor(NamedTuple):
    """A row of Table 4: `STATISTICS` by whose they are; TF-RGCN holds the blocks of inverses apart."""

    name: str
    shape: str
    figures: Mapping[str, Sequence[float]]

    @property
    def allowed(self) -> float:
        """How far our standard deviation may be off: outputs follow from more random numbers than initial values."""
        return 0.10 if self.name.endswith("output") else 0.02


def _figures(given: Mapping[str, Any]) -> dict[str, Figure]:
    return {name: Figure(**figure) for name, figure in given.items()}


def _ranking(by: str, where: str, values: list[float], errors: Sequence[Any] = (None,) * 4) -> dict[str, Figure]:
    rows = zip(METRICS, values, errors, strict=True)
    return {metric: Figure(value, by, where, error) for metric, value, error in rows}


_READ = yaml.safe_load((resources.files("rgcn.paper") / "published.yaml").read_text(encoding="utf-8"))

TITLES: Mapping[str, str] = _READ["titles"]
NODE_DATASETS: Mapping[str, Mapping[str, int]] = _READ["node datasets"]
LINK_DATASETS: Mapping[str, Mapping[str, int]] = _READ["link datasets"]
PRUNED: list[str] = _READ["pruned"]
ACCURACY = {name: tuple(Figure(**one, where="Table 2") for one in given) for name, given in _READ["accuracy"].items()}
# {configuration: a dictionary {metric: figure} for each published row}
RANKING = {name: tuple(_ranking(**row) for row in rows) for name, rows in _READ["ranking"].items()}
DESCRIBED: Mapping[str, Mapping[str, Any]] = _READ["described"]
SHARES = _figures(_READ["parameters"])
NODE_TIMES, LINK_TIMES = _figures(_READ["times"]["cpu"]), _figures(_READ["times"]["link"])
NODE_TIME_ON_GPU, FREEBASE_TIME, DISTMULT_TIME = (Figure(**_READ["times"][k]) for k in ("gpu", "freebase", "distmult"))
TENSORS = tuple(PublishedTensor(**tensor) for tensor in _READ["tensors"])


# -- how it is judged --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Judged:
    """A published figure, and what ours is to it."""

    figure: Figure
    verdict: str


def judge(figure: Figure, ours: float, error: float | None) -> Judged:
    """Whether a figure lies within two standard errors of ours (see RULE).

    >>> judge(Figure(95.56, "Torch-RGCN", "Table 2", error=0.61), 96.67, 0.37).verdict
    'agrees'
    >>> judge(Figure(0.749, "Torch-RGCN", "Table 5"), 0.808, None).verdict
    'higher'
    """
    assert figure.value is not None
    difference = ours - figure.value
    if error is None:
        return Judged(figure, "higher" if difference > 0 else "lower" if difference < 0 else "equal")
    allowed = STANDARD_ERRORS * math.hypot(error, figure.error or 0.0)
    return Judged(figure, "agrees" if abs(difference) <= allowed else "above" if difference > 0 else "below")


def judge_time(figure: Figure, seconds: float) -> Judged:
    """How many times faster or slower ours is.

    >>> judge_time(Figure(45.0, "Torch-RGCN", "Section 5.3"), 0.5).verdict
    '90 × faster'
    """
    if figure.value is None:
        return Judged(figure, "")
    ratio = times(max(seconds / figure.value, figure.value / seconds))
    return Judged(figure, "equal" if ratio == "1" else f"{ratio} × {'faster' if seconds < figure.value else 'slower'}")


@dataclass(frozen=True)
class PaperRow:
    """Something the paper states figures of."""

    subject: str  # what it is about: "AIFB, RGCN"
    quantity: str  # what was measured: "MRR"
    published: tuple[Judged, ...] = ()  # the figures it is held against
    ours: float | None = None  # None: we have no figure, and `note` says why
    error: float | None = None  # standard error of ours
    runs: int | None = None
    seconds: float | None = None  # a run took (the median)
    extrapolated: bool = False  # ours was computed from a shorter measurement, which `note` describes
    note: str = ""  # what a reader must know of this row
    detail: str = ""  # what else to say of the subject, where it has more than one row
    kind: Kind = "number"
    digits: int = 3

    def without_figure(self, figures: Sequence[Figure], reason: str) -> PaperRow:
        """The row of something we could not measure: it stays, with the reason."""
        return replace(self, published=tuple(Judged(figure, NO_FIGURE) for figure in figures), note=reason)


@dataclass(frozen=True)
class PaperTable:
    """Rows judged by one rule."""

    name: str
    title: str
    rows: Sequence[PaperRow]
    rule: str
    notes: Sequence[str] = ()
    changed: Sequence[str] = ()  # settings unlike the shipped configurations, for a trial that reproduces nothing

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> PaperTable:
        return TypeAdapter(cls).validate_python(values)


@dataclass(frozen=True)
class PaperReport:
    """Tables, and what they were made with: the command, the day, the machine."""

    tables: Sequence[PaperTable]
    about: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def made_here(cls, tables: Sequence[PaperTable]) -> PaperReport:
        here = environment()
        machine = {key: here["hardware"][key] for key in ("cpu", "cores", "gpu", "system")}
        about = {"command": here["command"], "date": time.strftime("%Y-%m-%d")}
        return cls(tables, {**about, "machine": {**machine, **here["versions"]}})


def load_or_reason(name: str, mirror: Path | None) -> KnowledgeGraph | str:
    try:
        return load(name, mirror=mirror)
    except RgcnError as error:
        return reason(error)


def reason(error: RgcnError) -> str:
    if isinstance(error, NoSourceError):
        return "the data are neither on this machine nor could they be fetched (`rgcn data get` tells why)"
    return str(error).splitlines()[0]


# -- how it is shown ---------------------------------------------------------------------------------------


class Laid(NamedTuple):
    """A table ready to be drawn: its title, the columns that hold anything, lines as {column: text}, and notes."""

    title: str
    columns: tuple[str, ...]
    lines: list[dict[str, str]]
    footnotes: list[str]  # numbered, as the lines refer to them
    notes: list[str]  # on the whole table

    @property
    def headings(self) -> list[str]:
        """The columns' names; `of` has none, since what stands in it explains itself."""
        return ["" if column in ("what", "of") else column for column in self.columns]


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
    quantities = {row.quantity for row in table.rows}
    title, warnings = table.title, []
    if len(quantities) == 1:
        filled.discard("of")
        title += f": {quantities.pop()}"
    if table.changed:
        title += f" (CHANGED by --set {' '.join(table.changed)})"
        warnings = ["Settings were changed: this is a trial, not a reproduction."]
    footnotes = [f"[{number}] {note}" for number, note in enumerate(notes, 1)]
    columns = tuple(column for column in COLUMNS if column in filled)
    return Laid(title, columns, lines, footnotes, [*warnings, table.rule, *table.notes])


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


def markdown_table(table: PaperTable) -> str:
    return _markdown(lay_out(table))


def _markdown(laid: Laid) -> str:
    align = ["---:" if column in NUMBERS else "---" for column in laid.columns]
    lines = [f"| {' | '.join(laid.headings)} |", f"|{'|'.join(align)}|"]
    lines += [f"| {' | '.join(_escaped(line[column]) for column in laid.columns)} |" for line in laid.lines]
    return "\n".join([*lines, *(f"\n{_escaped(note)}" for note in laid.footnotes)]) + "\n"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def markdown(report: PaperReport) -> str:
    text = ["# The paper's figures beside ours\n", about_text(report.about) + "\n"]
    for laid in map(lay_out, report.tables):
        text += [f"## {laid.title}\n", _markdown(laid), "\n".join(f"{line}\n" for line in laid.notes)]
    return "\n".join(text)


def html_page(report: PaperReport) -> str:
    content = parts("reproduction.html", tables=[*map(lay_out, report.tables)], numbers=NUMBERS, mood=mood)
    return page("The paper's figures beside ours", content, footer=about_text(report.about))


def json_text(report: PaperReport) -> str:
    tables = [asdict(table) for table in report.tables]
    told = {"format": "rgcn-reproduction", "version": 1, **report.about, "tables": tables}
    return json.dumps(told, indent=1, ensure_ascii=False) + "\n"


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
