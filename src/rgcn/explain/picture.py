"""The triples of an explanation as a drawing: what was asked on the left, each hop a column further to the right.

Where a triple was asked about, its object stands on the right and the neighbors between the two. Colors are those of
the page around it (CSS variables, each with a color to fall back on); what speaks against the answer is dashed as well,
so that nothing hangs on color alone. Every node carries its full name in `data-node`, for pages that follow it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from rgcn.explain.explanation import ExplainedEdge, Explanation
from rgcn.explain.phrases import Named, percent
from rgcn.pages.markup import LONGEST_TITLE, Html, tag

MOST_EDGES, MOST_AGAINST = 12, 3
BOX, GAP, PORT, SPACE, MARGIN = 186, 164, 26, 14, 10
LEGEND = 30
LETTERS_IN_BOX, LETTERS_ON_EDGE = 24, 18
THINNEST, THICKEST = 1.5, 7.0
NARROWEST = 520  # what the legend needs
DASHES = "7 5"

FOR, AGAINST, JOINING = "for", "against", "joining"
COLORS = {
    FOR: "var(--series-1, #0067a5)",
    AGAINST: "var(--series-2, #c24e00)",
    JOINING: "var(--series-5, #4d5763)",
}
LEGENDS = {FOR: "speaks for the answer", AGAINST: "speaks against it", JOINING: "only joins them"}
TEXT, MUTED = "var(--text, #1b2026)", "var(--muted, #545d68)"
CARD, LINE, ACCENT = "var(--card, #ffffff)", "var(--line, #d9dee4)", "var(--accent, #0b5cad)"


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

    @property
    def height(self) -> float:
        return PORT * max(1, len(self.left), len(self.right)) + 8

    def port(self, side: Sequence[_Line], line: _Line) -> float:
        """How far down an edge meets a side."""
        first = self.y + (self.height - PORT * len(side)) / 2
        return first + PORT * (side.index(line) + 0.5)


@dataclass(eq=False)
class _Line:
    """An edge between two boxes, the one further left first."""

    edge: ExplainedEdge
    kind: str
    near: _Box
    far: _Box

    @property
    def bow(self) -> bool:
        """Whether both ends are in one column: joined on their right sides."""
        return self.near.column == self.far.column

    @property
    def direct(self) -> bool:
        """Whether it joins subject and object of the question: led above whatever stands between them."""
        return self.near.asked and self.far.asked and not self.bow

    @property
    def start(self) -> tuple[float, float]:
        return self.near.x + BOX, self.near.port(self.near.right, self)

    @property
    def end(self) -> tuple[float, float]:
        side = self.far.right if self.bow else self.far.left
        return self.far.x + (BOX if self.bow else 0), self.far.port(side, self)


def drawing(explanation: Explanation) -> Html:
    """An inline <svg> whose colors follow the page."""
    boxes, lines = _arranged(explanation)
    direct = [line for line in lines if line.direct]
    width, height = _placed(boxes, PORT * len(direct))
    lanes = {id(line): MARGIN + PORT * (place + 0.5) for place, line in enumerate(direct)}
    widest = max((line.edge.share for line in lines if line.kind != JOINING), default=1.0) or 1.0
    shapes = [
        *(_line_drawn(line, widest, lanes.get(id(line))) for line in lines),
        *(_words_on(line, lanes.get(id(line))) for line in lines),
        *(_box_drawn(box) for box in boxes),
        _legend(sorted({line.kind for line in lines}, key=list(LEGENDS).index), height),
    ]
    return tag(
        "svg",
        tag("title", explanation.title),
        tag("desc", _spoken(explanation, lines)),
        *shapes,
        class_="why",
        role="group",
        aria_label=f"{explanation.title} The triples as a picture; the list of triples says the same.",
        viewBox=f"0 0 {width:g} {height + LEGEND:g}",
        width=f"{width:g}",
        height=f"{height + LEGEND:g}",
        font_size="13",
        font_family="system-ui, sans-serif",
    )


def drawing_file(explanation: Explanation) -> str:
    """A whole SVG file: colors of its own, on white, since it knows no page."""
    plain = re.sub(r"var\(--[\w-]+, (#[0-9a-f]{6})\)", r"\1", drawing(explanation))
    ground = tag("rect", width="100%", height="100%", fill="#ffffff")
    named = plain.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + named.replace("</desc>", f"</desc>{ground}", 1) + "\n"


# -- what is drawn, and where --------------------------------------------------------------------------------


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
            joining = [one for one in (*explanation.edges, *explanation.connections) if _joins(one, edge, known)]
            if not joining:
                continue
            kind_of = FOR if joining[0] in explanation.edges else JOINING
            needed = {_key(joining[0]): (joining[0], kind_of), **needed}
        if len({**chosen, **needed}) <= MOST_EDGES:
            chosen.update(needed)
            known |= {name for one, _ in needed.values() for name in _ends(one)}
    return list(chosen.values())


def _joins(one: ExplainedEdge, edge: ExplainedEdge, known: set[str]) -> bool:
    return bool(_ends(one) & _ends(edge)) and bool(_ends(one) & known)


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


# -- shapes --------------------------------------------------------------------------------------------------


def _box_drawn(box: _Box) -> Html:
    name = box.node["name"]
    outline = tag(
        "rect",
        x=f"{box.x:g}",
        y=f"{box.y:g}",
        width=BOX,
        height=f"{box.height:g}",
        rx="8",
        fill=CARD,
        stroke=ACCENT if box.asked else LINE,
        stroke_width="2.5" if box.asked else "1.5",
    )
    words = tag(
        "text",
        _cut(box.node["title"], LETTERS_IN_BOX),
        x=f"{box.x + BOX / 2:g}",
        y=f"{box.y + box.height / 2:g}",
        text_anchor="middle",
        dominant_baseline="central",
        fill=TEXT,
        font_weight="650" if box.asked else None,
    )
    whole = " · ".join(dict.fromkeys([box.node["title"], name]))
    return tag(
        "g",
        tag("title", whole[:LONGEST_TITLE]),
        outline,
        words,
        class_="node asked" if box.asked else "node",
        data_node=name,
        tabindex="0",
        role="button",
        aria_label=box.node["title"],
    )


def _line_drawn(line: _Line, widest: float, lane: float | None) -> Html:
    color = COLORS[line.kind]
    thick = THINNEST
    if line.kind != JOINING:
        thick += (THICKEST - THINNEST) * min(line.edge.share / widest, 1.0)
    start, end, size = line.start, line.end, 5 + thick
    outgoing = line.edge.subject["name"] == line.near.node["name"]
    tip, toward = (end, -1 if line.bow else 1) if outgoing else (start, -1)
    back = tip[0] - toward * size
    # The line ends where the arrowhead begins, so that a thick line does not show around its tip.
    if outgoing:
        end = (back, end[1])
    else:
        start = (back, start[1])
    head = f"{tip[0]:g},{tip[1]:g} {back:g},{tip[1] - size / 2 - 1:g} {back:g},{tip[1] + size / 2 + 1:g}"
    said = f"{line.edge.text}: {_share(line)}{', the triple itself' if line.edge.itself else ''}"
    stroke = tag(
        "path",
        d=_curve(start, end, line.bow, lane),
        fill="none",
        stroke=color,
        stroke_width=f"{thick:.2f}",
        stroke_dasharray=DASHES if line.kind == AGAINST else None,
    )
    arrowhead = tag("polygon", points=head, fill=color)
    return tag("g", tag("title", said[:LONGEST_TITLE]), stroke, arrowhead, class_=f"edge {line.kind}")


def _curve(start: tuple[float, float], end: tuple[float, float], bow: bool, lane: float | None) -> str:
    """A line that leaves and arrives level; by way of a lane above the boxes where it has one."""
    (x, y), (to_x, to_y), bend = start, end, GAP / 2
    if lane is None:
        second = to_x + bend if bow else to_x - bend
        return f"M{x:g} {y:g}C{x + bend:g} {y:g} {second:g} {to_y:g} {to_x:g} {to_y:g}"
    up, down = x + GAP - 20, to_x - GAP + 20
    return (
        f"M{x:g} {y:g}C{x + bend:g} {y:g} {up - bend:g} {lane:g} {up:g} {lane:g}"
        f"L{down:g} {lane:g}C{down + bend:g} {lane:g} {to_x - bend:g} {to_y:g} {to_x:g} {to_y:g}"
    )


def _words_on(line: _Line, lane: float | None) -> Html:
    """The relation, beside the end that has a row of its own: the box in between, or the further one."""
    share = "" if line.kind == JOINING else f" {percent(line.edge.share)}"
    if lane is not None:
        x, y, anchor = (line.near.x + BOX + line.far.x) / 2, lane, "middle"
    elif line.bow or (line.far.asked and not line.near.asked):
        x, y, anchor = line.start[0] + 16, line.start[1], "start"
    else:
        x, y, anchor = line.end[0] - 16, line.end[1], "end"
    return tag(
        "text",
        _cut(line.edge.relation["title"], LETTERS_ON_EDGE) + share,
        x=f"{x:g}",
        y=f"{y - 7:g}",
        text_anchor=anchor,
        font_size="11.5",
        fill=MUTED,
        stroke=CARD,
        stroke_width="4",
        stroke_linejoin="round",
        paint_order="stroke",
    )


def _legend(kinds: Sequence[str], height: float) -> Html:
    items: list[Html] = []
    x = float(MARGIN)
    for kind in kinds:
        dashes = DASHES if kind == AGAINST else None
        thick = THINNEST if kind == JOINING else 4
        y = height + LEGEND / 2
        items.append(
            tag(
                "line", x1=f"{x:g}", x2=f"{x + 28:g}", y1=f"{y:g}", y2=f"{y:g}",
                stroke=COLORS[kind], stroke_width=thick, stroke_dasharray=dashes,
            )
        )  # fmt: skip
        items.append(tag("text", LEGENDS[kind], x=f"{x + 34:g}", y=f"{y:g}", dominant_baseline="central", fill=MUTED))
        x += 48 + 7 * len(LEGENDS[kind])
    return tag("g", *items, class_="legend-marks", font_size="12")


def _spoken(explanation: Explanation, lines: Sequence[_Line]) -> str:
    """What the picture shows, for who hears it."""
    if not lines:
        return "No triple had a say."
    return "; ".join(f"{line.edge.text} {LEGENDS[line.kind]}" for line in lines) + "."


def _share(line: _Line) -> str:
    return LEGENDS[JOINING] if line.kind == JOINING else f"{LEGENDS[line.kind]}, {percent(line.edge.share)}"


def _cut(text: str, letters: int) -> str:
    return text if len(text) <= letters else text[: letters - 1].rstrip() + "…"
