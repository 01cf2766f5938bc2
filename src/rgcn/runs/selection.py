"""Which model suits a graph: several are tried, each a run of its own, and the best on validation data is kept.

FOLDER/
  selection.json      what is tried, for how many steps, and how it went
  candidates/NAME/    a run each, while they are tried
  run.json, ...       in the end the run of the best, as if it had been trained here

How long each may train follows from minutes, by timing some steps, and is then written down as a number of steps: what
follows depends on no clock. All train for a short time first; the one that is best then trains once more, for longer.
Test data are read once, for the one that is chosen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rgcn.config import RunConfig
from rgcn.data.graph_store import read_json
from rgcn.errors import DataError
from rgcn.models.task import task_of
from rgcn.runs.configuration import kept_configuration
from rgcn.runs.folder import RunFolder
from rgcn.system.formatting import duration
from rgcn.training.history import Metric
from rgcn.version import __version__

FILE, FORMAT, VERSION = "selection.json", "rgcn-selection", 1


@dataclass
class Candidate:
    name: str
    config: RunConfig
    plain: bool = False  # it hears no neighbor: what others must beat
    more: int = 0  # steps that it may have if it is the best of those that train; 0: no more than it has
    at_most: int | None = None  # triples (or labels) of a split that its final figures are of; None: all
    planned: float = 0.0  # seconds
    skipped: str = ""  # why it was not tried
    figure: float | None = None  # on validation data
    steps: int | None = None
    seconds: float | None = None

    def as_dict(self) -> dict[str, Any]:
        return {
            **{key: value for key, value in vars(self).items() if key != "config"},
            "task": self.config.task,
            "model": self.config.model.title,
            "configuration": self.config.model_dump(mode="json"),
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any], source: str) -> Candidate:
        config = kept_configuration(values["task"], values["configuration"], source)
        return cls(config=config, **{key: values[key] for key in cls.__dataclass_fields__ if key != "config"})

    def folder(self, selection: Path) -> Path:
        return selection / "candidates" / self.name.replace(", ", "-").replace(" ", "-")


@dataclass
class Selection:
    """What is tried on a graph, and how it went; `chosen` and its `metrics` once that is known."""

    minutes: float
    fingerprint: str
    candidates: list[Candidate]
    chosen: str | None = None
    metrics: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def metric(self) -> Metric:
        return task_of(self.candidates[0].config.task).headline

    @property
    def best(self) -> Candidate:
        return next(one for one in self.candidates if one.name == self.chosen)

    def ranked(self) -> list[Candidate]:
        """Those that were tried, best first; of equals the one that was tried first."""
        tried = [one for one in self.candidates if one.figure is not None]
        return sorted(tried, key=lambda one: (one.figure or 0.0) * (-1 if self.metric.higher else 1))

    def verdict(self) -> str:
        """Who won, in words, plainly where it was no graph network."""
        best, ranked = self.best, self.ranked()
        if best.plain:
            words = f"Best on validation data: {best.name}, which hears no neighbors; no graph network did better"
            return f"{words} in {self.minutes:g} min. More time (--minutes) or more triples may change that."
        plain = next((one for one in ranked if one.plain), None)
        than = "" if plain is None else f" The best without a graph, {plain.name}, has {self.words(plain)}."
        return f"Best on validation data: {best.name} ({self.words(best)}).{than}"

    def words(self, candidate: Candidate) -> str:
        return "" if candidate.figure is None else self.metric.words(candidate.figure)

    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """(model, steps, time, validation, test) of each, best first, those that were skipped last."""
        test = self.metrics.get("test", {}).get(self.metric.name)
        tested = {self.chosen: "" if test is None else self.metric.words(test)}
        rows = []
        for one in self.ranked():
            time = duration(one.seconds or 0.0)
            rows.append((one.name, f"{one.steps or 0:,}", time, self.words(one), tested.get(one.name, "")))
        return [*rows, *((one.name, "", "", f"skipped: {one.skipped}", "") for one in self.candidates if one.skipped)]

    def told(self) -> list[dict[str, Any]]:
        keys, skipped = ("name", "steps", "seconds", "figure", "skipped"), [c for c in self.candidates if c.skipped]
        return [{key: getattr(one, key) for key in keys} for one in (*self.ranked(), *skipped)]

    def as_dict(self) -> dict[str, Any]:
        head = {"format": FORMAT, "version": VERSION, "rgcn": __version__}
        return {**head, **vars(self), "candidates": [one.as_dict() for one in self.candidates]}

    def keep(self, folder: Path) -> None:
        RunFolder(folder).write(FILE, self.as_dict())


def read_selection(folder: Path) -> Selection | None:
    """What a folder's model was chosen from; None where nothing was chosen there."""
    path = folder / FILE
    if not path.exists():
        return None
    kept = read_json(path, FORMAT, VERSION)
    try:
        candidates = [Candidate.from_dict(one, str(path)) for one in kept["candidates"]]
        return Selection(kept["minutes"], kept["fingerprint"], candidates, kept["chosen"], kept["metrics"])
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: damaged ({error}); train anew") from error
