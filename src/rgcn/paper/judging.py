"""A published figure beside ours, and how the two are judged."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from rgcn.data import load
from rgcn.data.registry import NoSourceError
from rgcn.errors import RgcnError
from rgcn.graph import KnowledgeGraph
from rgcn.paper.published import Figure
from rgcn.runs.folder import environment
from rgcn.system.formatting import times

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

    def as_dict(self) -> dict[str, Any]:
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

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

    def as_dict(self) -> dict[str, Any]:
        tables = [table.as_dict() for table in self.tables]
        return {"format": "rgcn-reproduction", "version": 1, **self.about, "tables": tables}


def load_or_reason(name: str, mirror: Path | None) -> KnowledgeGraph | str:
    try:
        return load(name, mirror=mirror)
    except RgcnError as error:
        return reason(error)


def reason(error: RgcnError) -> str:
    if isinstance(error, NoSourceError):
        return "the data are neither on this machine nor could they be fetched (`rgcn data get` tells why)"
    return str(error).splitlines()[0]


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
