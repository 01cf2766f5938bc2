"""An explanation as one HTML page: the picture, the triples, neighbors and paths, and what happens without them."""

from __future__ import annotations

from markupsafe import Markup

from rgcn.explain.explanation import ExplainedEdge, Explanation
from rgcn.explain.phrases import Named, percent
from rgcn.explain.text import METHOD_WORDS, remarks
from rgcn.pages.charts import Bar, bar_chart
from rgcn.pages.escaping import breakable, named
from rgcn.pages.layout import Tile, page, sections


def explanation_page(explanation: Explanation) -> str:
    edges = [*explanation.edges, *explanation.against]
    edge_bars = [Bar(_triple(one), [one.share], [_speaks(one.importance, one.itself)]) for one in edges]
    neighbor_bars = [Bar(_name(one.node), [one.share], [_speaks(one.importance)]) for one in explanation.neighbors]
    shown = sections(
        "explanation.html",
        why=explanation,
        found_by=METHOD_WORDS[explanation.method],
        edges=_chart(edge_bars, "triple"),
        neighbors=_chart(neighbor_bars, "neighbor"),
    )
    words, asked = [f"{explanation.sure.capitalize()}."], explanation.question
    if asked["kind"] == "class" and asked["predicted"] != asked["class"]:
        words.append(f"Its own answer is {asked['predicted']['title']}.")
    return page(
        explanation.title,
        shown,
        introduction=Markup("<p>{}</p>").format(" ".join([*words, *remarks(explanation)])),
        tiles=_tiles(explanation),
        footer=f"Explained by rgcn from the run {explanation.model}.",
    )


def _tiles(explanation: Explanation) -> list[Tile]:
    measured, shown = explanation.fidelity, explanation.fidelity.shown
    tiles = [Tile("score", f"{explanation.score:.3g}", "not calibrated")]
    if explanation.probability is not None:
        tiles = [Tile("probability", percent(explanation.probability))]
    if measured.edges:
        named, drawn = (shown.words(shown.left(lost)) for lost in (shown.without.named, shown.without.random))
        alone = f"{shown.words(shown.full)} by its score alone" if measured.by_score else ""
        tiles.append(Tile(f"without the {measured.edges} named triples", named, alone))
        tiles.append(Tile(f"without {measured.edges} random triples", drawn, f"mean of {measured.draws} draws"))
    if explanation.own_share is not None:
        tiles.append(Tile("from itself", percent(explanation.own_share), "not through triples"))
    return tiles


def _chart(bars: list[Bar], label: str) -> Markup | None:
    return bar_chart(bars, ["share"], label=label, notes=["speaks"], value_format=percent) if bars else None


def _speaks(importance: float, itself: bool = False) -> Markup:
    if importance < 0:
        return Markup('<span class="wrong">against</span>')
    return Markup('<span class="right">{}</span>').format("for, itself" if itself else "for")


def _triple(edge: ExplainedEdge) -> Markup:
    relation = breakable(edge.relation["title"])
    return Markup('{} <span class="relation">{}</span> {}').format(_name(edge.subject), relation, _name(edge.object))


def _name(node: Named) -> Markup:
    return named(node["name"], node["title"])
