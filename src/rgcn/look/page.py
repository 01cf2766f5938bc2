"""A trained model as a page to look at: map of its nodes, likeness of its relations, what it takes for what."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from rgcn.errors import DataError
from rgcn.look.confusion_section import confusion_section
from rgcn.look.map_section import map_section, map_tiles
from rgcn.look.node_map import NodeMap
from rgcn.look.relation_section import relation_section
from rgcn.pages.markup import Html, join, paragraph, tag
from rgcn.pages.page import Section, page
from rgcn.pages.writing import save_page
from rgcn.predict import OpenModel
from rgcn.version import __version__


def map_page(made: NodeMap, split: str | None = None) -> str:
    """One HTML file that opens anywhere and loads nothing.

    split  what a classifier's mistakes are shown on; None: validation where there is some, else training
    """
    opened = made.opened
    sections = [map_section(made)]
    if opened.answers("classes"):
        sections.append(confusion_section(opened, split))
    sections.append(_relations(opened))
    return page(
        f"{opened.name}: a look inside",
        sections,
        introduction=_introduction(opened),
        tiles=map_tiles(made),
        footer=f"Written by rgcn {__version__} (seed {made.seed}). This page loads nothing from anywhere.",
        styles=[_own("map.css")],
        scripts=[_own("map.js")],
    )


def write_map_page(path: Path, made: NodeMap, split: str | None = None) -> None:
    """Write the page, whole or not at all."""
    save_page(path, map_page(made, split))


def _relations(opened: OpenModel) -> Section:
    try:
        return relation_section(opened)
    except DataError as error:
        return Section("Relations that are alike", "", paragraph(str(error), class_="empty"))


def _introduction(opened: OpenModel) -> Html:
    graph = opened.graph
    model, data = opened.model.model.title, graph.name or "a graph"
    learned = "the classes of nodes" if opened.answers("classes") else "which triples are likely"
    sizes = f"{graph.num_nodes:,} nodes, {graph.num_relations:,} relations, {graph.num_triples:,} triples"
    return join(
        [
            paragraph(
                "What the model ",
                tag("code", model),
                f" has learned about {data} ({sizes}). To tell {learned}, it gives "
                "each node a vector of numbers and each relation a way to change them. Nodes that mean the same to it "
                "have like vectors.",
            )
        ]
    )


def _own(name: str) -> str:
    return (resources.files("rgcn.look") / name).read_text(encoding="utf-8")
