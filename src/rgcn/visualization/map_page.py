"""A trained model as a page to look at: map of its nodes, likeness of its relations, what it takes for what."""

from typing import Any

import numpy as np

from rgcn.errors import DataError
from rgcn.pages.layout import page, parts
from rgcn.pages.node_report import confusion_chart, evaluate_nodes
from rgcn.predict import OpenModel
from rgcn.system.formatting import shortened
from rgcn.version import __version__
from rgcn.visualization.coloring import Coloring
from rgcn.visualization.mapping import METHOD_NAMES
from rgcn.visualization.node_map import NodeMap
from rgcn.visualization.relation_similarity import MOST_DRAWN, SHADE_STEPS, relation_likeness

# Places are sent as whole numbers up to this, a tenth of a pixel at any size a screen has.
GRID = 20_000
LONGEST_NAME = 200
EXAMPLES = 5
# Among fewer everybody is a neighbor, and nothing can go wrong.
FEWEST_JUDGED = 50


def map_page(made: NodeMap, split: str | None = None) -> str:
    """One HTML file that opens anywhere and loads nothing; `split`: what a classifier's mistakes are shown on."""
    opened = made.opened
    measured = confusion = None
    if opened.classes:
        measured = evaluate_nodes(opened.model, split_looked_at(opened, split))
        confusion = confusion_chart(measured, [opened.titles.class_(i) for i in range(len(measured.classes))])
    likeness: dict[str, Any] | str
    try:
        likeness = relation_likeness(opened)
    except DataError as error:
        likeness = str(error)
    coloring = made.colorings[0]
    content = parts(
        "map_page.html",
        map=made,
        opened=opened,
        graph=opened.graph,
        method=METHOD_NAMES[made.method],
        is_judged=len(made.nodes) >= FEWEST_JUDGED,
        coloring=coloring,
        groups=[_in_words(made, coloring, number) for number in range(len(coloring.groups))],
        data=_data(made),
        measured=measured,
        confusion=confusion,
        likeness=likeness,
        most_drawn=MOST_DRAWN,
        steps=SHADE_STEPS,
    )
    footer = f"Written by rgcn {__version__} (seed {made.seed}). This page loads nothing from anywhere."
    return page(f"{opened.name}: a look inside", content, footer=footer, extras=["map"])


def split_looked_at(opened: OpenModel, wanted: str | None) -> str:
    """The split a page may show: the one asked for, else validation where there is some, else training; never test."""
    labels = opened.graph.labels
    counts = {} if labels is None else labels.counts()
    if wanted is None:
        return "valid" if "valid" in counts else "train"
    if wanted not in counts:
        raise DataError(f"the graph has no labels in split {wanted!r}; it has {', '.join(counts)}")
    return wanted


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
        "beside": coloring.groups[int(met.argmax())].title if met.any() else None,
        "examples": [made.opened.titles.of(node) for node in made.nodes[connected].tolist()],
    }


def _data(made: NodeMap) -> dict[str, Any]:
    """What the script draws: places in whole numbers of one scale, y downwards as screens count."""
    low, high = made.places.min(axis=0), made.places.max(axis=0)
    scale = GRID / max(float((high - low).max()), 1e-12)
    x, y = np.rint((made.places - low) * scale).astype(np.int64).T
    titles = [made.opened.titles.of(node) for node in made.nodes.tolist()]
    names = [shortened(made.opened.graph.nodes[node], LONGEST_NAME) for node in made.nodes.tolist()]
    shares = None if made.answers is None else made.answers.probability
    return {
        "x": x.tolist(),
        "y": (y.max() - y).tolist(),
        "title": [shortened(title, LONGEST_NAME) for title in titles],
        "name": [0 if name == title else name for name, title in zip(names, titles, strict=True)],
        "degree": made.degree.tolist(),
        "near": made.near.tolist(),
        "percent": None if shares is None else [round(100 * share) for share in shares.tolist()],
        "colorings": [
            {
                "key": one.key,
                "title": one.title,
                "about": one.explanation,
                "groups": [
                    [shortened(group.title, LONGEST_NAME), group.count, int(group.muted)] for group in one.groups
                ],
                "of": one.of.tolist(),
            }
            for one in made.colorings
        ],
    }
