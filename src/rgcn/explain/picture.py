"""The triples of an explanation as a drawing: what was asked on the left, each hop a column further to the right.

Where a triple was asked about, its object stands on the right and the neighbors between the two. Colors are those of
the page around it (CSS variables, each with a color to fall back on); what speaks against the answer is dashed as well,
so that nothing hangs on color alone. Every node carries its full name in `data-node`, for pages that follow it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from rgcn.explain.explanation import ExplainedEdge, Explanation, Named
from rgcn.pages.escaping import LONGEST_TITLE
from rgcn.pages.layout import render
from rgcn.words import percent, shortened

MOST_EDGES, MOST_AGAINST = 12, 3
BOX, GAP, PORT, SPACE, MARGIN = 186, 164, 26, 14, 10
LETTERS_IN_BOX, LETTERS_ON_EDGE = 24, 18
THINNEST, THICKEST = 1.5, 7.0
NARROWEST, LEGEND = 520, 30  # what the legend needs

FOR, AGAINST, JOINING = "for", "against", "joining"
LEGENDS = {FOR: "speaks for the answer", AGAINST: "speaks against it", JOINING: "only joins them"}
Place = tuple[float, float]


@dataclass
class _Box:
    """A node: where it stands, and the edges that end on each of its sides."""

    node: Named
    column: int
    asked: bool = False
    left: list[_Line] = field(default_factory=list)
    right: list[_Line] = field(default_factory=list)
    x: float = 0.0
    y: float = 0.0

    width, letters = BOX, LETTERS_IN_BOX

    @property
    def height(self) -> float:
        return PORT * max(1, len(self.left), len(self.right)) + 8

    def port(self, side: Sequence[_Line], line: _Line) -> float:
        """How far down an edge meets a side."""
        first = self.y + (self.height - PORT * len(side)) / 2
        return first + PORT * (side.index(line) + 0.5)


@dataclass(eq=False)
class _Line:
    """An edge between two boxes, the one further left first.

    lane   how far down it runs above whatever stands between subject and object of the question, where it joins these
    thick  by its share of the importance
    """

    edge: ExplainedEdge
    kind: str
    near: _Box
    far: _Box
    lane: float | None = None
    thick: float = THINNEST

    @property
    def bow(self) -> bool:
        """Whether both ends are in one column: joined on their right sides."""
        return self.near.column == self.far.column

    @property
    def direct(self) -> bool:
        """Whether it joins subject and object of the question: led above whatever stands between them."""
        return self.near.asked and self.far.asked and not self.bow

    @property
    def start(self) -> Place:
        return self.near.x + BOX, self.near.port(self.near.right, self)

    @property
    def end(self) -> Place:
        side = self.far.right if self.bow else self.far.left
        return self.far.x + (BOX if self.bow else 0), self.far.port(side, self)

    @property
    def path_and_head(self) -> tuple[str, str]:
        """A curve that leaves and arrives level, by way of its lane where it has one; the points of its arrowhead."""
        (x, y), (to_x, to_y), bend, size = self.start, self.end, GAP / 2, 5 + self.thick
        outgoing = self.edge.subject["name"] == self.near.node["name"]
        tip_x, tip_y = (to_x, to_y) if outgoing else (x, y)
        back = tip_x - size if outgoing and not self.bow else tip_x + size
        head = f"{tip_x:g},{tip_y:g} {back:g},{tip_y - size / 2 - 1:g} {back:g},{tip_y + size / 2 + 1:g}"
        # The line ends where the arrowhead begins, so that a thick line does not show around its tip.
        x, to_x = (x, back) if outgoing else (back, to_x)
        if self.lane is None:
            second = to_x + bend if self.bow else to_x - bend
            return f"M{x:g} {y:g}C{x + bend:g} {y:g} {second:g} {to_y:g} {to_x:g} {to_y:g}", head
        up, down, lane = x + GAP - 20, to_x - GAP + 20, self.lane
        path = (
            f"M{x:g} {y:g}C{x + bend:g} {y:g} {up - bend:g} {lane:g} {up:g} {lane:g}"
            f"L{down:g} {lane:g}C{down + bend:g} {lane:g} {to_x - bend:g} {to_y:g} {to_x:g} {to_y:g}"
        )
        return path, head

    @property
    def words_at(self) -> tuple[float, float, str]:
        """Beside the end that has a row of its own, the box in between or the further one: (x, y, anchor)."""
        if self.lane is not None:
            return (self.near.x + BOX + self.far.x) / 2, self.lane, "middle"
        if self.bow or (self.far.asked and not self.near.asked):
            return self.start[0] + 16, self.start[1], "start"
        return self.end[0] - 16, self.end[1], "end"


def drawing(explanation: Explanation, alone: bool = False) -> Markup:
    """An inline <svg> whose colors follow the page; `alone`: colors of its own, on white."""
    boxes, lines = _arranged(explanation)
    direct = [line for line in lines if line.direct]
    width, height = _placed(boxes, PORT * len(direct))
    for place, line in enumerate(direct):
        line.lane = MARGIN + PORT * (place + 0.5)
    weighed = [line for line in lines if line.kind != JOINING]
    widest = max((line.edge.share for line in weighed), default=1.0) or 1.0
    for line in weighed:
        line.thick += (THICKEST - THINNEST) * min(line.edge.share / widest, 1.0)
    return render(
        "drawing.svg",
        title=explanation.title,
        boxes=boxes,
        lines=lines,
        kinds=[kind for kind in LEGENDS if any(line.kind == kind for line in lines)],
        legends=LEGENDS,
        width=width,
        height=height + LEGEND,
        margin=MARGIN,
        edge_letters=LETTERS_ON_EDGE,
        most_letters=LONGEST_TITLE,
        percent=percent,
        shortened=shortened,
        alone=alone,
    ).strip()


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


def _arranged(explanation: Explanation) -> tuple[list[_Box], list[_Line]]:
    """Boxes in columns by their distance from what was asked; the object of a link in the last column."""
    edges = _chosen(explanation)
    asked = list({node["name"]: node for node in explanation.asked}.values())
    boxes = {node["name"]: _Box(node, 0, asked=True) for node in asked}
    waiting = list(edges)
    while waiting:  # every edge touches a known box, once those before it are known
        edge, _ = waiting.pop(0)
        for here, there in ((edge.subject, edge.object), (edge.object, edge.subject)):
            if here["name"] in boxes and there["name"] not in boxes:
                boxes[there["name"]] = _Box(there, boxes[here["name"]].column + 1)
    if len(asked) == 2:
        boxes[asked[1]["name"]].column = 1 + max((box.column for box in boxes.values()), default=0)
    lines = []
    for edge, kind in edges:
        near, far = sorted((boxes[edge.subject["name"]], boxes[edge.object["name"]]), key=lambda box: box.column)
        line = _Line(edge, kind, near, far)
        near.right.append(line)
        if near is not far:
            (far.right if line.bow else far.left).append(line)
        lines.append(line)
    return list(boxes.values()), lines


def _placed(boxes: list[_Box], lanes: float) -> tuple[float, float]:
    """Gives every box its place: columns from left to right, each centered; returns (width, height).

    lanes: the height above the boxes in between that lines from subject to object need.
    """
    columns: dict[int, list[_Box]] = {}
    for box in boxes:
        columns.setdefault(box.column, []).append(box)
    heights = {c: sum(box.height for box in column) + SPACE * (len(column) - 1) for c, column in columns.items()}
    between = {c: lanes if 0 < c < max(columns) else 0.0 for c in columns}
    height = max(heights[c] + between[c] for c in columns) + 2 * MARGIN
    for place, number in enumerate(sorted(columns)):
        top = between[number] + (height - between[number] - heights[number]) / 2
        for box in columns[number]:
            box.x, box.y = MARGIN + place * (BOX + GAP), top
            top += box.height + SPACE
    for box in boxes:  # lines that meet a side in the order in which they come to it do not cross there
        box.left.sort(key=lambda line: (not line.direct, line.near.y))
        box.right.sort(key=lambda line: (not line.direct, line.far.y))
    bows = GAP if any(box.right for box in columns[max(columns)]) else 0
    return max(2 * MARGIN + len(columns) * BOX + (len(columns) - 1) * GAP + bows, NARROWEST), height
