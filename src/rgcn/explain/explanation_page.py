"""An explanation as one HTML page: the picture, the triples, neighbors and paths, and what happens without them."""

from __future__ import annotations

from markupsafe import Markup

from rgcn.explain.explanation import ExplainedEdge, Explanation
from rgcn.explain.phrases import Named, percent
from rgcn.explain.text import METHOD_WORDS, remarks
from rgcn.pages.charts import Bar
from rgcn.pages.escaping import breakable, named
from rgcn.pages.layout import page, parts


def explanation_page(explanation: Explanation) -> str:
    content = parts(
        "explanation.html",
        why=explanation,
        remarks=remarks(explanation),
        percent=percent,
        found_by=METHOD_WORDS[explanation.method],
        edges=[
            Bar(_triple(one), [one.share], [_speaks(one.importance, one.itself)])
            for one in (*explanation.edges, *explanation.against)
        ],
        neighbors=[Bar(_name(one.node), [one.share], [_speaks(one.importance)]) for one in explanation.neighbors],
    )
    return page(explanation.title, content, footer=f"Explained by rgcn from the run {explanation.model}.")


def _speaks(importance: float, itself: bool = False) -> Markup:
    if importance < 0:
        return Markup('<span class="wrong">against</span>')
    return Markup('<span class="right">{}</span>').format("for, itself" if itself else "for")


def _triple(edge: ExplainedEdge) -> Markup:
    relation = breakable(edge.relation["title"])
    return Markup('{} <span class="relation">{}</span> {}').format(_name(edge.subject), relation, _name(edge.object))


def _name(node: Named) -> Markup:
    return named(node["name"], node["title"])
