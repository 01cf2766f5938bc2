"""An explanation as one HTML page."""

from __future__ import annotations

from collections.abc import Sequence

from rgcn.explain.explanation import ExplainedEdge, ExplainedPath, Explanation
from rgcn.explain.phrases import percent
from rgcn.explain.text import METHOD_WORDS, remarks
from rgcn.pages.charts.bars import Bar, bar_chart
from rgcn.pages.markup import Html, breakable, join, paragraph, scrolling, table, tag
from rgcn.pages.page import Section, Tile, page


def explanation_page(explanation: Explanation) -> str:
    """The picture, the triples, neighbors and paths, and what happens without them."""
    return page(
        explanation.title,
        [
            Section(
                "The triples that decided",
                "What was asked is framed. The thicker a line, the more its triple counts.",
                scrolling(explanation.as_svg()),
            ),
            Section(
                "As a list",
                f"Of {explanation.considered:,} triples that could have a say, found by "
                f"{METHOD_WORDS[explanation.method]}. Shares are of the importance of all of them.",
                _edges(explanation),
            ),
            Section("Neighbors", "The nodes whose messages counted most.", _neighbors(explanation)),
            Section("Paths", "How messages came, from what was asked outward.", _paths(explanation.paths)),
            Section("Does it hold?", explanation.fidelity.words, _fidelity(explanation)),
        ],
        introduction=paragraph(_introduction(explanation)),
        tiles=_tiles(explanation),
        footer=f"Explained by rgcn from the run {explanation.model}.",
    )


def _introduction(explanation: Explanation) -> str:
    words = f"{explanation.sure.capitalize()}."
    asked = explanation.question
    if asked["kind"] == "class" and asked["predicted"] != asked["class"]:
        words += f" Its own answer is {asked['predicted']['title']}."
    return " ".join([words, *remarks(explanation)])


def _tiles(explanation: Explanation) -> list[Tile]:
    measured, shown = explanation.fidelity, explanation.fidelity.shown
    named, drawn = (f"without {which} triples" for which in (f"the {measured.edges} named", f"{measured.edges} random"))
    tiles = [Tile("score", f"{explanation.score:.3g}", "not calibrated")]
    if explanation.probability is not None:
        tiles = [Tile("probability", percent(explanation.probability))]
    if measured.edges:
        tiles += [
            Tile(
                named,
                shown.words(shown.left(shown.without.named)),
                f"{shown.words(shown.full)} by its score alone" if measured.by_score else "",
            ),
            Tile(drawn, shown.words(shown.left(shown.without.random)), f"mean of {measured.draws} draws"),
        ]
    if explanation.own_share is not None:
        tiles.append(Tile("from itself", percent(explanation.own_share), "not through triples"))
    return tiles


def _edges(explanation: Explanation) -> Html:
    if not explanation.edges and not explanation.against:
        return paragraph("No triple had a say.", class_="empty")
    both = [*explanation.edges, *explanation.against]
    most = max(edge.share for edge in both)
    bars = [Bar(_triple(edge), [edge.share], [_role(edge)]) for edge in both]
    return bar_chart(bars, ["share"], label="triple", notes=["speaks"], maximum=most, value_format=percent)


def _role(edge: ExplainedEdge) -> Html:
    if edge.importance < 0:
        return tag("span", "against", class_="wrong")
    return tag("span", "for, itself" if edge.itself else "for", class_="right")


def _triple(edge: ExplainedEdge) -> Html:
    subject, object_ = (_name(node) for node in (edge.subject, edge.object))
    return join([subject, " ", tag("span", breakable(edge.relation["title"]), class_="relation"), " ", object_])


def _name(node: dict[str, object]) -> Html:
    """Its title, with the whole name on hovering; its writing direction stays inside it."""
    return tag("bdi", breakable(str(node["title"])), title=node["name"] if node["name"] != node["title"] else None)


def _neighbors(explanation: Explanation) -> Html:
    if not explanation.neighbors:
        return paragraph("No neighbor had a say.", class_="empty")
    bars = [
        Bar(_name(one.node), [one.share], [tag("span", "against", class_="wrong") if one.importance < 0 else
                                           tag("span", "for", class_="right")])
        for one in explanation.neighbors
    ]  # fmt: skip
    return bar_chart(bars, ["share"], label="neighbor", notes=["speaks"], value_format=percent)


def _paths(paths: Sequence[ExplainedPath]) -> Html:
    if not paths:
        return paragraph("No path of two triples speaks for the answer.", class_="empty")
    return tag("ul", *(tag("li", path.text) for path in paths), class_="care")


def _fidelity(explanation: Explanation) -> Html:
    measured, shown = explanation.fidelity, explanation.fidelity.shown

    def left(change: float) -> str:
        return shown.words(shown.left(change))

    rows = [
        [name, left(getattr(shown.without, column)), left(getattr(shown.only, column))]
        for name, column in (
            (f"the {measured.edges} named triples", "named"),
            (f"{measured.edges} triples at random", "random"),
            (f"{measured.edges} at random among those that touch what was asked", "random_near"),
        )
    ]
    first = f"{shown.name.removeprefix('the ')} {'by the score alone' if measured.by_score else 'of the answer'}"
    head = [first, "without them", "with only them"]
    return table(head, rows, numeric=(1, 2))
