"""An explanation as a drawing as narrow as a phone: what was asked on top, what mattered as branches down from it.

Branches are triples, or the paths of a network that walks; those that begin alike share their beginning, as folders do
in a listing. Every node carries its full name in `data-node`, for pages that follow it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from markupsafe import Markup

from rgcn.explain.explanation import ExplainedEdge, Explanation, Named, Step, arrow
from rgcn.pages.layout import LONGEST_TITLE, render
from rgcn.system.formatting import percent, shortened

MOST_EDGES, MOST_AGAINST, MOST_PATHS = 12, 3, 5
WIDTH, MARGIN, INDENT = 284, 2, 16  # what a page of 360 pixels has for its content
BOX, LABEL, GAP, LEGEND = 30, 20, 4, 18
PLAIN_LETTER, BOLD_LETTER = 8.0, 9.0
THINNEST, THICKEST = 1.5, 6.0

FOR, AGAINST, JOINING = "for", "against", "joining"
LEGENDS = {FOR: "speaks for the answer", AGAINST: "speaks against it", JOINING: "only joins them"}


@dataclass
class _Stop:
    """A node, with the triple that leads there and those that go on from it."""

    node: Named
    step: Step | None = None
    x: float = MARGIN
    thick: float = THICKEST
    asked: bool = False
    kind: str = FOR
    share: float | None = None  # of the importance
    y: float = MARGIN
    from_y: float = 0.0  # where the line to it begins: at its parent, or where it leaves the line to the one before
    onward: dict[tuple[str, str, bool], _Stop] = field(default_factory=dict)

    @property
    def width(self) -> float:
        return WIDTH - MARGIN - self.x

    @property
    def letters(self) -> int:
        return int((self.width - 8) / (BOLD_LETTER if self.asked else PLAIN_LETTER))

    @property
    def words(self) -> str:
        assert self.step is not None
        share = "" if self.share is None else f" {percent(self.share)}"
        return arrow({"title": shortened(self.step.relation["title"], self.letters - 8)}, self.step.forward) + share

    def to(self, step: Step, **more: Any) -> _Stop:
        """The stop that a triple leads to from here. Best ones come first: who shares it finds it drawn as theirs."""
        there = step.object if step.forward else step.subject
        key = there["name"], step.relation["name"], step.forward
        return self.onward.setdefault(key, _Stop(there, step, self.x + INDENT, **more))

    def listed(self) -> Iterator[_Stop]:
        yield self
        for stop in self.onward.values():
            yield from stop.listed()


def drawing(explanation: Explanation, alone: bool = False) -> Markup:
    """An inline <svg> whose colors follow the page; `alone`: colors of its own, on white."""
    if explanation.walked and explanation.paths:
        roots, told = _paths(explanation), [path.text for path in explanation.paths[:MOST_PATHS]]
        kinds: list[str] = []
    else:
        roots, edges = _triples(explanation)
        kinds = [kind for kind in LEGENDS if any(kind == of for _, of in edges)]
        told = [f"{edge.text} {LEGENDS[kind]}" for edge, kind in edges] or ["No triple had a say"]
    stops = [stop for root in roots for stop in root.listed()]
    for before, stop in pairwise(stops):
        stop.y = before.y + BOX + GAP + LABEL
    for parent in stops:
        from_y = parent.y + BOX
        for stop in parent.onward.values():
            stop.from_y, from_y = from_y, stop.y + BOX / 2
    height = stops[-1].y + BOX + MARGIN
    return render(
        "drawn.svg",
        title=explanation.title,
        told="; ".join(told),
        boxes=stops,
        box_height=BOX,
        indent=INDENT,
        legends=[(kind, LEGENDS[kind], height + LEGEND * (place + 0.7)) for place, kind in enumerate(kinds)],
        width=WIDTH,
        height=height + LEGEND * (len(kinds) + 0.5 * bool(kinds)),
        most_letters=LONGEST_TITLE,
        shortened=shortened,
        alone=alone,
    ).strip()


def _paths(explanation: Explanation) -> list[_Stop]:
    paths = explanation.paths[:MOST_PATHS]
    root = _Stop(explanation.asked[0], asked=True)
    for path in paths:
        here, thick = root, THINNEST + (THICKEST - THINNEST) * path.importance / paths[0].importance
        for step in path.steps:
            here = here.to(step, thick=thick)
        here.asked = True
    return [root]


def _triples(explanation: Explanation) -> tuple[list[_Stop], list[tuple[ExplainedEdge, str]]]:
    """What was asked, each with its branches; the triples and what they do."""
    edges = _chosen(explanation)
    roots = {node["name"]: _Stop(node, asked=True) for node in explanation.asked}
    stops, widest = dict(roots), max((edge.share for edge, kind in edges if kind != JOINING), default=0.0) or 1.0
    for edge, kind in edges:  # each touches a node that is known by then
        share = None if kind == JOINING else edge.share
        forward = edge.subject["name"] in stops
        step = Step(edge.subject, edge.relation, edge.object, forward)
        thick = THINNEST + (THICKEST - THINNEST) * min((share or 0.0) / widest, 1.0)
        here = stops[(edge.subject if forward else edge.object)["name"]]
        stop = here.to(step, thick=thick, kind=kind, share=share)
        stops.setdefault(stop.node["name"], stop)
    return list(roots.values()), edges


def _chosen(explanation: Explanation) -> list[tuple[ExplainedEdge, str]]:
    """The edges to draw with what they do: the strongest, each with its way back to what was asked."""
    strongest = [(edge, FOR) for edge in explanation.edges]
    against = [(edge, AGAINST) for edge in explanation.against[:MOST_AGAINST]]
    first = MOST_EDGES - MOST_AGAINST
    chosen: dict[tuple[str, str, str], tuple[ExplainedEdge, str]] = {}
    known = {node["name"] for node in explanation.asked}
    for edge, kind in [*strongest[:first], *against, *strongest[first:]]:
        needed = {_key(edge): (edge, kind)}
        if not known & _ends(edge):
            every = (*explanation.edges, *explanation.connections)
            joining = [one for one in every if _ends(one) & _ends(edge) and _ends(one) & known]
            if not joining:
                continue
            kind_of = FOR if joining[0] in explanation.edges else JOINING
            needed = {_key(joining[0]): (joining[0], kind_of), **needed}
        if len({**chosen, **needed}) <= MOST_EDGES:
            chosen.update(needed)
            known |= {name for one, _ in needed.values() for name in _ends(one)}
    return list(chosen.values())


def _key(edge: ExplainedEdge) -> tuple[str, str, str]:
    return edge.subject["name"], edge.relation["name"], edge.object["name"]


def _ends(edge: ExplainedEdge) -> set[str]:
    return {edge.subject["name"], edge.object["name"]}
