"""A published figure beside ours, and how the two are judged."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from rgcn.paper.published import Figure
from rgcn.runs.environment import environment
from rgcn.words import times

Kind = Literal["number", "count", "percent", "time"]

NO_FIGURE = "none"
STANDARD_ERRORS = 2.0
RULE = (
    "agrees: the difference is at most 2 standard errors, √(ours² + the paper's²), the paper's taken as 0 where it "
    "gives none; else ours is above or below. One run has no error: it is only said whether it is higher or lower."
)


@dataclass(frozen=True)
class Judged:
    """A published figure, and what ours is to it."""

    figure: Figure
    verdict: str


@dataclass(frozen=True)
class Row:
    """Something the paper states figures of.

    subject       what it is about: "AIFB, RGCN"
    quantity      what was measured: "MRR"
    published     the figures it is held against
    ours          None: we have no figure, and `note` says why
    error         standard error of ours
    seconds       a run took (the median)
    extrapolated  ours was computed from a shorter measurement, which `note` describes
    note          what a reader must know of this row
    detail        what else to say of the subject, where it has more than one row
    """

    subject: str
    quantity: str
    published: tuple[Judged, ...] = ()
    ours: float | None = None
    error: float | None = None
    runs: int | None = None
    seconds: float | None = None
    extrapolated: bool = False
    note: str = ""
    detail: str = ""
    kind: Kind = "number"
    digits: int = 3


@dataclass(frozen=True)
class Table:
    """Rows judged by one rule.

    changed: settings that differ from the shipped configurations, for a trial; such a table reproduces nothing.
    """

    name: str
    title: str
    rows: Sequence[Row]
    rule: str
    notes: Sequence[str] = ()
    changed: Sequence[str] = ()

    def as_dict(self) -> dict[str, Any]:
        values = asdict(self)
        return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Table:
        """What `as_dict` gave."""
        rows = [
            Row(**{**row, "published": tuple(Judged(Figure(**j["figure"]), j["verdict"]) for j in row["published"])})
            for row in values["rows"]
        ]
        return replace(cls(**values), rows=rows)


@dataclass(frozen=True)
class Report:
    """Tables, and what they were made with: the command, the day, the machine."""

    tables: Sequence[Table]
    about: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def made_here(cls, tables: Sequence[Table]) -> Report:
        """Tables of today, of this command and this machine."""
        here = environment()
        machine = {key: here["hardware"][key] for key in ("cpu", "cores", "gpu", "system")}
        about = {"command": here["command"], "date": time.strftime("%Y-%m-%d")}
        return cls(tables, {**about, "machine": {**machine, **here["versions"]}})

    def as_dict(self) -> dict[str, Any]:
        return {
            "format": "rgcn-reproduction",
            "version": 1,
            **self.about,
            "tables": [table.as_dict() for table in self.tables],
        }


def judge(figure: Figure, ours: float, error: float | None) -> Judged:
    """Whether a figure lies within two standard errors of ours (see RULE).

    >>> judge(Figure(95.56, "Torch-RGCN", "Table 2", error=0.61), 96.67, 0.37).verdict
    'agrees'
    >>> judge(Figure(0.814, "TF-RGCN", "Table 5"), 0.809, 0.001).verdict
    'below'
    >>> judge(Figure(0.749, "Torch-RGCN", "Table 5"), 0.808, None).verdict
    'higher'
    """
    assert figure.value is not None
    difference = ours - figure.value
    if error is None:
        return Judged(figure, "higher" if difference > 0 else "lower" if difference < 0 else "equal")
    allowed = STANDARD_ERRORS * math.hypot(error, figure.error or 0.0)
    if abs(difference) <= allowed:
        return Judged(figure, "agrees")
    return Judged(figure, "above" if difference > 0 else "below")


def judge_count(figure: Figure, ours: float) -> Judged:
    """Counts are the same or they are not.

    >>> judge_count(Figure(176, "Torch-RGCN", "Table 1"), 176).verdict
    'equal'
    """
    return Judged(figure, "equal" if ours == figure.value else "differs")


def judge_time(figure: Figure, seconds: float) -> Judged:
    """How many times faster or slower ours is.

    >>> judge_time(Figure(45.0, "Torch-RGCN", "Section 5.3"), 0.5).verdict
    '90 × faster'
    >>> judge_time(Figure(45.0, "Torch-RGCN", "Section 5.3"), 60.0).verdict
    '1.33 × slower'
    """
    if figure.value is None:
        return Judged(figure, "")
    ratio = max(seconds / figure.value, figure.value / seconds)
    if times(ratio) == "1":
        return Judged(figure, "equal")
    return Judged(figure, f"{times(ratio)} × {'faster' if seconds < figure.value else 'slower'}")


def without_figure(row: Row, figures: Sequence[Figure], reason: str) -> Row:
    """The row of something we could not measure: it stays, with the reason."""
    return replace(row, published=tuple(Judged(figure, NO_FIGURE) for figure in figures), note=reason)
