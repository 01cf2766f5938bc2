"""A trained model as a page to look at: map of its nodes, likeness of its relations, what it takes for what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from rgcn.errors import DataError
from rgcn.look.coloring import Coloring
from rgcn.look.mapping import METHOD_NAMES
from rgcn.look.node_map import NodeMap
from rgcn.look.relation_likeness import MOST_DRAWN, SHADE_STEPS, RelationLikeness, relation_likeness
from rgcn.pages.escaping import named
from rgcn.pages.layout import Tile, page, render, save_page, sections
from rgcn.pages.node_report import confusion_chart, evaluate_nodes
from rgcn.predict import OpenModel
from rgcn.version import __version__
from rgcn.words import count

# Places are sent as whole numbers up to this, a tenth of a pixel at any size a screen has.
GRID = 20_000
LONGEST_NAME = 200
EXAMPLES = 5
# Among fewer everybody is a neighbor, and nothing can go wrong.
FEWEST_JUDGED = 50


def map_page(made: NodeMap, split: str | None = None) -> str:
    """One HTML file that opens anywhere and loads nothing.

    split  what a classifier's mistakes are shown on; None: validation where there is some, else training
    """
    opened = made.opened
    measured = evaluate_nodes(opened.model, split_looked_at(opened, split)) if opened.answers("classes") else None
    likeness: RelationLikeness | str
    try:
        likeness = relation_likeness(opened)
    except DataError as error:
        likeness = str(error)
    coloring = made.colorings[0]
    shown = sections(
        "map_page.html",
        map=made,
        which=_which(made),
        method=METHOD_NAMES[made.method],
        coloring=coloring,
        groups=[_in_words(made, coloring, number) for number in range(len(coloring.groups))],
        data=_data(made),
        measured=measured,
        confusion=measured
        and confusion_chart(measured, [opened.titles.class_(i) for i in range(len(measured.classes))]),
        likeness=likeness,
        most_drawn=MOST_DRAWN,
        steps=SHADE_STEPS,
    )
    return page(
        f"{opened.name}: a look inside",
        shown,
        introduction=render("map_introduction.html", opened=opened, graph=opened.graph),
        tiles=_tiles(made),
        footer=f"Written by rgcn {__version__} (seed {made.seed}). This page loads nothing from anywhere.",
        extras=["map"],
    )


def write_map_page(path: Path, made: NodeMap, split: str | None = None) -> None:
    """Write the page, whole or not at all."""
    save_page(path, map_page(made, split))


def split_looked_at(opened: OpenModel, wanted: str | None) -> str:
    """The split a page may show: the one asked for, else validation where there is some, else training; never test."""
    labels = opened.graph.labels
    counts = {} if labels is None else labels.counts()
    if wanted is None:
        return "valid" if "valid" in counts else "train"
    if wanted not in counts:
        raise DataError(f"the graph has no labels in split {wanted!r}; it has {', '.join(counts)}")
    return wanted


def _which(made: NodeMap) -> str:
    """Which nodes are shown, where not all are."""
    shown = len(made.nodes)
    if shown == made.candidates:
        return count(shown, "node")
    words = "the labelled ones, then those in the most triples" if made.labelled else "those in the most triples"
    if made.labelled > shown:
        words = (
            f"drawn evenly by class from the {made.labelled:,} labelled ones (test nodes, whose classes are not looked "
            f"at, count as a class of their own; seed {made.seed})"
        )
    return f"{shown:,} of {made.candidates:,} nodes: {words}"


def _tiles(made: NodeMap) -> list[Tile]:
    quality = made.quality
    tiles = [Tile("nodes on the map", f"{len(made.nodes):,}", f"of {made.candidates:,}")]
    if len(made.nodes) >= FEWEST_JUDGED:
        trust = f"{quality.trustworthiness:.2f}"
        tiles.append(Tile("trustworthiness", trust, "of neighbors on the map: 1 perfect, 0.5 chance"))
    if quality.same_class is not None and quality.same_class_whole is not None:
        by_vectors = f"on the map; {100 * quality.same_class_whole:.0f} % by vectors (no test nodes)"
        tiles.append(Tile("neighbors of the same class", f"{100 * quality.same_class:.0f} %", by_vectors))
    return tiles


def _in_words(made: NodeMap, coloring: Coloring, number: int) -> dict[str, Any]:
    """A group as a reader of the drawing sees it: who is in it, and whom it stands beside."""
    inside = np.flatnonzero(coloring.of == number)
    met = np.bincount(coloring.of[made.near[inside]].ravel(), minlength=len(coloring.groups))
    same, total = int(met[number]), int(met.sum())
    # The background is met everywhere, and says nothing.
    met[[i for i, group in enumerate(coloring.groups) if group.muted or i == number]] = 0
    connected = inside[np.argsort(-made.degree[inside], kind="stable")[:EXAMPLES]]
    return {
        "title": coloring.groups[number].title,
        "nodes": len(inside),
        "same": f"{100 * same / total:.0f} %" if total else "",
        "beside": named(coloring.groups[int(met.argmax())].title) if met.any() else "",
        "examples": Markup(", ").join(named(made.opened.titles.of(node)) for node in made.nodes[connected].tolist()),
    }


def _data(made: NodeMap) -> dict[str, Any]:
    """What the script draws: places in whole numbers of one scale, y downwards as screens count."""
    low, high = made.places.min(axis=0), made.places.max(axis=0)
    scale = GRID / max(float((high - low).max()), 1e-12)
    x, y = np.rint((made.places - low) * scale).astype(np.int64).T
    titles = [made.opened.titles.of(node) for node in made.nodes.tolist()]
    names = [_shortened(made.opened.graph.nodes[node]) for node in made.nodes.tolist()]
    return {
        "x": x.tolist(),
        "y": (y.max() - y).tolist(),
        "title": [_shortened(title) for title in titles],
        "name": [0 if name == title else name for name, title in zip(names, titles, strict=True)],
        "degree": made.degree.tolist(),
        "near": made.near.tolist(),
        "percent": None if made.probability is None else [round(100 * p) for p in made.probability.tolist()],
        "colorings": [
            {
                "key": one.key,
                "title": one.title,
                "about": one.explanation,
                "groups": [[_shortened(group.title), group.count, int(group.muted)] for group in one.groups],
                "of": one.of.tolist(),
            }
            for one in made.colorings
        ],
    }


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 1] + "…"
