"""A map of nodes on a page: the drawing, its tools, and the same in words."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rgcn.look.coloring import Coloring
from rgcn.look.mapping import METHOD_NAMES
from rgcn.look.node_map import NodeMap
from rgcn.pages.markup import Html, details, join, named, paragraph, table, tag
from rgcn.pages.page import Section, Tile, embedded
from rgcn.words import count

# Places are sent as whole numbers up to this, a tenth of a pixel at any size a screen has.
GRID = 20_000
LONGEST_NAME = 200
EXAMPLES = 5
# Among fewer everybody is a neighbor, and nothing can go wrong.
FEWEST_JUDGED = 50
FIND = tag("input", type="search", id="map-find", placeholder="part of a name", autocomplete="off", spellcheck="false")
KEYS = (
    "The wheel or two fingers zoom, dragging moves. On the keyboard: arrows walk from node to node, + and − zoom, 0 "
    "goes back to the beginning, Escape lets go."
)


def map_section(made: NodeMap) -> Section:
    shown = len(made.nodes)
    which = count(shown, "node")
    if shown < made.candidates:
        which = f"{shown:,} of {made.candidates:,} nodes: {_which(made)}"
    words = (
        f"{which}. Nodes stand near each other where the model's vectors of them are alike "
        f"({METHOD_NAMES[made.method]} of {made.vectors.words}). Neighborhoods can be trusted, distances between far "
        "groups and the axes mean little."
    )
    if made.method == "pca":
        words = (
            f"{which}, seen from where the model's vectors of them differ most (PCA of {made.vectors.words}): large "
            "distances can be trusted, neighbors may in truth be far apart."
        )
    parts = [_tools(made), _view(), _in_words(made), embedded("map-data", _data(made))]
    return Section("Map of the nodes", words, join(parts))


def _which(made: NodeMap) -> str:
    """Which nodes are shown, where not all are."""
    if made.labelled > len(made.nodes):
        return (
            f"drawn evenly by class from the {made.labelled:,} labelled ones (test nodes, whose classes are not looked "
            f"at, count as a class of their own; seed {made.seed})"
        )
    return "the labelled ones, then those in the most triples" if made.labelled else "those in the most triples"


def map_tiles(made: NodeMap) -> list[Tile]:
    quality = made.quality
    trust = Tile("trustworthiness", f"{quality.trustworthiness:.2f}", "of neighbors on the map: 1 perfect, 0.5 chance")
    tiles = [Tile("nodes on the map", f"{len(made.nodes):,}", f"of {made.candidates:,}")]
    if len(made.nodes) >= FEWEST_JUDGED:
        tiles.append(trust)
    if quality.same_class is not None and quality.same_class_whole is not None:
        tiles.append(
            Tile(
                "neighbors of the same class",
                f"{100 * quality.same_class:.0f} %",
                f"on the map; {100 * quality.same_class_whole:.0f} % by vectors (no test nodes)",
            )
        )
    return tiles


def _tools(made: NodeMap) -> Html:
    options = [tag("option", one.title, value=number) for number, one in enumerate(made.colorings)]
    buttons = [
        tag("button", "−", type="button", id="map-out", aria_label="Zoom out"),
        tag("button", "+", type="button", id="map-in", aria_label="Zoom in"),
        tag("button", "Groups", type="button", id="map-fit", title="Go to the nodes that have a color"),
        tag("button", "All", type="button", id="map-all", title="Go back to all nodes"),
    ]
    return tag(
        "div",
        tag("label", "Find ", FIND),
        tag("label", "Color by ", tag("select", *options, id="map-color")),
        tag("span", *buttons, class_="zoom"),
        class_="map-tools",
    )


def _view() -> Html:
    return join(
        [
            tag(
                "div",
                tag("canvas", aria_hidden="true"),
                tag("div", class_="readout", id="map-readout", hidden=""),
                id="map-view",
                tabindex="0",
                role="application",
                aria_label="Map of the nodes",
                aria_describedby="map-keys",
            ),
            tag("p", id="map-status", role="status"),
            tag("div", id="map-legend", role="group", aria_label="Groups of nodes; each can be hidden"),
            tag("p", id="map-about", class_="muted"),
            tag("p", KEYS, id="map-keys", class_="muted"),
            tag("noscript", paragraph("The drawing needs scripts; the same in words is below.", class_="empty")),
        ]
    )


def _in_words(made: NodeMap) -> Html:
    """What a reader of the drawing sees, in words: groups, who is in them, whom they stand beside."""
    coloring = made.colorings[0]
    head = [coloring.title, "nodes", "nearest of the same", "else mostly", "in the most triples"]
    rows = [_row(made, coloring, number) for number in range(len(coloring.groups))]
    explanation = paragraph(
        f"Of each node's {made.near.shape[1]} nearest by vector: the mean share in its own group, and the group most "
        "often met besides.",
        class_="muted",
    )
    return details("The map in words", explanation, table(head, rows, numeric=[1, 2]))


def _row(made: NodeMap, coloring: Coloring, number: int) -> list[object]:
    inside = np.flatnonzero(coloring.of == number)
    met = np.bincount(coloring.of[made.near[inside]].ravel(), minlength=len(coloring.groups))
    same, total = int(met[number]), int(met.sum())
    # The background is met everywhere, and says nothing.
    met[[i for i, group in enumerate(coloring.groups) if group.muted or i == number]] = 0
    titles = made.opened.titles
    connected = inside[np.argsort(-made.degree[inside], kind="stable")[:EXAMPLES]]
    examples = [named(titles.of(int(made.nodes[at]))) for at in connected]
    return [
        named(coloring.groups[number].title),
        f"{len(inside):,}",
        f"{100 * same / total:.0f} %" if total else "",
        named(coloring.groups[int(met.argmax())].title) if met.any() else "",
        join(examples, ", "),
    ]


def _data(made: NodeMap) -> dict[str, Any]:
    """What the script draws."""
    x, y = _on_grid(made.places)
    graph, titles = made.opened.graph, made.opened.titles
    shown = [titles.of(node) for node in made.nodes.tolist()]
    names = [_shortened(graph.nodes[node]) for node in made.nodes.tolist()]
    return {
        "x": x,
        "y": y,
        "title": [_shortened(title) for title in shown],
        "name": [0 if name == title else name for name, title in zip(names, shown, strict=True)],
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


def _on_grid(places: NDArray[np.float32]) -> tuple[list[int], list[int]]:
    """x and y in whole numbers of one scale, y downwards as screens count."""
    low, high = places.min(axis=0), places.max(axis=0)
    scale = GRID / max(float((high - low).max()), 1e-12)
    x, y = np.rint((places - low) * scale).astype(np.int64).T
    return x.tolist(), (y.max() - y).tolist()


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 1] + "…"
