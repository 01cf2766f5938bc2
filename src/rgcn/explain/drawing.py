"""An explanation as a drawing that fits a phone: the question's nodes on top, triples as branches below them.

Branches are triples, or the paths of a path network. Paths with the same beginning share it, like folders in a listing.
Every node has its full name in `data-node`, so that pages can link it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from markupsafe import Markup

from rgcn.explain.explanation import ExplainedEdge, Explanation, Named, Step, arrow
from rgcn.pages.layout import MAX_TITLE_LENGTH, render
from rgcn.system.formatting import format_percent, shorten

MAX_EDGES, MAX_OPPOSING, MAX_PATHS = 12, 3, 5
WIDTH, MARGIN, INDENT = 284, 2, 16  # pixels; a page of 360 pixels has this width for its content
BOX_HEIGHT, LABEL_HEIGHT, GAP, LEGEND_HEIGHT = 30, 20, 4, 18
LETTER_WIDTH, BOLD_LETTER_WIDTH = 8.0, 9.0
MIN_LINE_WIDTH, MAX_LINE_WIDTH = 1.5, 6.0

FOR, AGAINST, JOINING = "for", "against", "joining"
LEGENDS = {FOR: "supports the answer", AGAINST: "opposes it", JOINING: "only connects them"}


@dataclass
class _Stop:
    """A node in the drawing, with the triple that connects it to its parent and the nodes below it."""

    node: Named
    step: Step | None = None
    x: float = MARGIN
    thick: float = MAX_LINE_WIDTH
    is_query: bool = False
    kind: str = FOR
    share: float | None = None  # of the importance of all triples
    y: float = MARGIN
    from_y: float = 0.0  # start of the line to it: its parent, or the branch before it
    children: dict[tuple[str, str, bool], _Stop] = field(default_factory=dict)

    @property
    def width(self) -> float:
        return WIDTH - MARGIN - self.x

    @property
    def letters(self) -> int:
        return int((self.width - 8) / (BOLD_LETTER_WIDTH if self.is_query else LETTER_WIDTH))

    @property
    def words(self) -> str:
        assert self.step is not None
        share = "" if self.share is None else f" {format_percent(self.share)}"
        return arrow({"title": shorten(self.step.relation["title"], self.letters - 8)}, self.step.forward) + share

    def child(self, step: Step, **style: Any) -> _Stop:
        """Return the stop that a triple leads to. A path that shares it with a better one keeps its style."""
        node = step.object if step.forward else step.subject
        key = node["name"], step.relation["name"], step.forward
        return self.children.setdefault(key, _Stop(node, step, self.x + INDENT, **style))

    def listed(self) -> Iterator[_Stop]:
        yield self
        for stop in self.children.values():
            yield from stop.listed()


def drawing(explanation: Explanation, alone: bool = False) -> Markup:
    """Draw an explanation as an inline <svg>.

    Args:
        explanation: The explanation.
        alone: Whether to use own colors on white instead of the page's.
    """
    if explanation.walked and explanation.paths:
        roots, texts = _paths(explanation), [path.text for path in explanation.paths[:MAX_PATHS]]
        kinds: list[str] = []
    else:
        roots, edges = _triples(explanation)
        kinds = [kind for kind in LEGENDS if any(kind == other for _, other in edges)]
        texts = [f"{edge.text} {LEGENDS[kind]}" for edge, kind in edges] or ["The answer depends on no triple"]
    stops = [stop for root in roots for stop in root.listed()]
    for before, stop in pairwise(stops):
        stop.y = before.y + BOX_HEIGHT + GAP + LABEL_HEIGHT
    for parent in stops:
        from_y = parent.y + BOX_HEIGHT
        for stop in parent.children.values():
            stop.from_y, from_y = from_y, stop.y + BOX_HEIGHT / 2
    height = stops[-1].y + BOX_HEIGHT + MARGIN
    return render(
        "drawn.svg",
        title=explanation.title,
        description="; ".join(texts),
        boxes=stops,
        box_height=BOX_HEIGHT,
        indent=INDENT,
        legends=[(kind, LEGENDS[kind], height + LEGEND_HEIGHT * (place + 0.7)) for place, kind in enumerate(kinds)],
        width=WIDTH,
        height=height + LEGEND_HEIGHT * (len(kinds) + 0.5 * bool(kinds)),
        most_letters=MAX_TITLE_LENGTH,
        shortened=shorten,
        alone=alone,
    ).strip()


def _paths(explanation: Explanation) -> list[_Stop]:
    paths = explanation.paths[:MAX_PATHS]
    root = _Stop(explanation.query_nodes[0], is_query=True)
    for path in paths:
        here, thick = root, _line_width(path.importance / paths[0].importance)
        for step in path.steps:
            here = here.child(step, thick=thick)
        here.is_query = True
    return [root]


def _line_width(share: float) -> float:
    return MIN_LINE_WIDTH + (MAX_LINE_WIDTH - MIN_LINE_WIDTH) * share


def _triples(explanation: Explanation) -> tuple[list[_Stop], list[tuple[ExplainedEdge, str]]]:
    """Return the question's nodes with their branches, and the drawn triples with their kinds."""
    edges = _chosen(explanation)
    roots = {node["name"]: _Stop(node, is_query=True) for node in explanation.query_nodes}
    stops, widest = dict(roots), max((edge.share for edge, kind in edges if kind != JOINING), default=0.0) or 1.0
    for edge, kind in edges:  # each touches a node of a previous one
        share = None if kind == JOINING else edge.share
        forward = edge.subject["name"] in stops
        step = Step(edge.subject, edge.relation, edge.object, forward)
        here = stops[(edge.subject if forward else edge.object)["name"]]
        stop = here.child(step, thick=_line_width(min((share or 0.0) / widest, 1.0)), kind=kind, share=share)
        stops.setdefault(stop.node["name"], stop)
    return list(roots.values()), edges


def _chosen(explanation: Explanation) -> list[tuple[ExplainedEdge, str]]:
    """Return the triples to draw with their kinds: the most important, each with its connection to a query node."""
    strongest = [(edge, FOR) for edge in explanation.edges]
    against = [(edge, AGAINST) for edge in explanation.against[:MAX_OPPOSING]]
    first = MAX_EDGES - MAX_OPPOSING
    chosen: dict[tuple[str, str, str], tuple[ExplainedEdge, str]] = {}
    connected = {node["name"] for node in explanation.query_nodes}
    for edge, kind in [*strongest[:first], *against, *strongest[first:]]:
        needed = {_key(edge): (edge, kind)}
        if not connected & _ends(edge):
            candidates = (*explanation.edges, *explanation.connections)
            joining = [one for one in candidates if _ends(one) & _ends(edge) and _ends(one) & connected]
            if not joining:
                continue
            kind_of = FOR if joining[0] in explanation.edges else JOINING
            needed = {_key(joining[0]): (joining[0], kind_of), **needed}
        if len({**chosen, **needed}) <= MAX_EDGES:
            chosen.update(needed)
            connected |= {name for one, _ in needed.values() for name in _ends(one)}
    return list(chosen.values())


def _key(edge: ExplainedEdge) -> tuple[str, str, str]:
    return edge.subject["name"], edge.relation["name"], edge.object["name"]


def _ends(edge: ExplainedEdge) -> set[str]:
    return {edge.subject["name"], edge.object["name"]}
