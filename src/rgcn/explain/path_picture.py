"""The paths of an explanation as a drawing as narrow as a phone: the asked node on top, every path a way down from it.

Paths that begin alike share their beginning, as folders do in a listing, each step a little further to the right. The
thicker a line, the better the best path along it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from markupsafe import Markup

from rgcn.explain.explanation import Explanation, Named, Step, arrow
from rgcn.pages.escaping import LONGEST_TITLE
from rgcn.pages.layout import render
from rgcn.words import shortened

MOST_PATHS = 5
WIDTH, MARGIN, INDENT = 284, 2, 16  # what a page of 360 pixels has for its content
BOX, LABEL, GAP = 30, 20, 4
PLAIN_LETTER, BOLD_LETTER = 8.0, 9.0
THINNEST, THICKEST = 1.5, 6.0


@dataclass
class _Stop:
    """A node on the way, with the step that leads there and those that go on from it."""

    node: Named
    step: Step | None = None
    parent: _Stop | None = None
    x: float = MARGIN
    thick: float = THICKEST
    asked: bool = False
    y: float = MARGIN
    onward: dict[tuple[str, str, bool], _Stop] = field(default_factory=dict)

    height = BOX

    @property
    def width(self) -> float:
        return WIDTH - MARGIN - self.x

    @property
    def letters(self) -> int:
        return int((self.width - 8) / (BOLD_LETTER if self.asked else PLAIN_LETTER))

    @property
    def bottom(self) -> float:
        return self.y + BOX

    @property
    def rail(self) -> float:
        """Where the line to it runs down: under its parent's left end."""
        return self.x - INDENT / 2

    @property
    def words(self) -> str:
        assert self.step is not None
        title = shortened(self.step.relation["title"], self.letters - 2)
        return arrow({"title": title}, self.step.forward)

    def listed(self) -> Iterator[_Stop]:
        yield self
        for stop in self.onward.values():
            yield from stop.listed()


def path_drawing(explanation: Explanation, alone: bool = False) -> Markup:
    """An inline <svg> whose colors follow the page; `alone`: colors of its own, on white."""
    paths = explanation.paths[:MOST_PATHS]
    root = _Stop(explanation.asked[0], asked=True)
    for path in paths:
        here = root
        for step in path.steps:
            there = step.object if step.forward else step.subject
            thick = THINNEST + (THICKEST - THINNEST) * path.importance / paths[0].importance
            key = there["name"], step.relation["name"], step.forward
            # Best paths come first: who shares a beginning finds it drawn as thick as theirs.
            here = here.onward.setdefault(key, _Stop(there, step, here, here.x + INDENT, thick))
        here.asked = True
    stops = list(root.listed())
    for before, stop in pairwise(stops):
        stop.y = before.bottom + GAP + LABEL
    sizes = {"width": WIDTH, "height": stops[-1].bottom + MARGIN, "most_letters": LONGEST_TITLE}
    told = {"title": explanation.title, "boxes": stops, "paths": paths, "shortened": shortened, "alone": alone}
    return render("paths.svg", **sizes, **told).strip()
