"""An explanation as one HTML page: the picture, the triples, neighbors and paths, and what happens without them."""

from __future__ import annotations

from markupsafe import Markup

from rgcn.explain.explanation import ExplainedEdge, Explanation
from rgcn.explain.phrases import Named, percent
from rgcn.explain.text import METHOD_WORDS, remarks
from rgcn.pages.charts import Bar, bar_chart
from rgcn.pages.escaping import breakable, named
from rgcn.pages.layout import page, parts


def explanation_page(explanation: Explanation) -> str:
    edges = [*explanation.edges, *explanation.against]
    edge_bars = [Bar(_triple(one), [one.share], [_speaks(one.importance, one.itself)]) for one in edges]
    neighbor_bars = [Bar(_name(one.node), [one.share], [_speaks(one.importance)]) for one in explanation.neighbors]
    content = parts(
        "explanation.html",
        why=explanation,
        remarks=remarks(explanation),
        percent=percent,
        found_by=METHOD_WORDS[explanation.method],
        edges=_chart(edge_bars, "triple"),
        neighbors=_chart(neighbor_bars, "neighbor"),
    )
    return page(explanation.title, content, footer=f"Explained by rgcn from the run {explanation.model}.")


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
