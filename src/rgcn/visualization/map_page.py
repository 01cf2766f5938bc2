"""A trained model as a page to look at: map of its nodes, likeness of its relations, what it takes for what.

Relations are alike to a model if the cosine between what it has learned of them is large.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rgcn.errors import DataError
from rgcn.pages.layout import named, page, parts
from rgcn.pages.node_report import confusion_chart, evaluate_nodes
from rgcn.predict import OpenModel
from rgcn.system.formatting import shortened
from rgcn.version import __version__
from rgcn.visualization.node_map import Coloring, Group, NodeMap, path_end
from rgcn.visualization.projection import METHOD_NAMES, Floats, Integers
from rgcn.visualization.vectors import relation_counts, relation_vectors

# Places are sent as whole numbers up to this, a tenth of a pixel at any size a screen has.
GRID = 20_000
LONGEST_NAME = 200
EXAMPLES = 5
# More rows than these are no picture any more; more relations than these are not all compared.
MOST_DRAWN, MOST_COMPARED = 40, 2000
PAIRS = 20
# Where the shades change: relations have little in common as a rule, and differences near 0 should be seen.
SHADE_STEPS = (0.1, 0.2, 0.4, 0.6)


def map_page(made: NodeMap, split: str | None = None) -> str:
    """One HTML file that opens anywhere and loads nothing; `split`: what a classifier's mistakes are shown on."""
    opened, coloring = made.opened, made.colorings[0]
    measured = confusion = None
    if opened.classes:
        measured = evaluate_nodes(opened.model, split_looked_at(opened, split))
        classes = [opened.titles.class_(number) for number in range(len(measured["classes"]))]
        confusion = confusion_chart(measured["confusion"], classes)
    likeness: dict[str, Any] | str
    try:
        likeness = relation_likeness(opened)
    except DataError as error:
        likeness = str(error)
    content = parts(
        "map_page.html",
        map=made,
        opened=opened,
        method=METHOD_NAMES[made.method],
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
    colorings = [
        {"key": key, "title": title, "about": about, "groups": [*map(_group, groups)], "of": of.tolist()}
        for key, title, about, groups, of in made.colorings
    ]
    return {
        "x": x.tolist(),
        "y": (y.max() - y).tolist(),
        "title": [shortened(title, LONGEST_NAME) for title in titles],
        "name": [0 if name == title else name for name, title in zip(names, titles, strict=True)],
        "degree": made.degree.tolist(),
        "near": made.near.tolist(),
        "percent": None if shares is None else [round(100 * share) for share in shares.tolist()],
        "colorings": colorings,
    }


def _group(group: Group) -> tuple[str, int, int]:
    return shortened(group.title, LONGEST_NAME), group.count, int(group.muted)


# -- relations ---------------------------------------------------------------------------------------------


def relation_likeness(opened: OpenModel) -> dict[str, Any]:
    """The most frequent relations of a model beside each other; DataError where it has nothing to compare them by.

    words   what is compared; total: how many relations there are
    titles  of those that are compared; counts: their training triples; pairs: the likest of them
    order   of those that are drawn, what is alike side by side; rows: (shade, cosine) of each beside each
    """
    (directions, words), counts = relation_vectors(opened), relation_counts(opened)
    compared = np.argsort(-counts, kind="stable")[:MOST_COMPARED]
    similarity, names = cosines(np.concatenate(directions, axis=1)[compared]), opened.graph.relations
    order = clustered_order(similarity[:MOST_DRAWN, :MOST_DRAWN]).tolist()
    return {
        "words": words + (", in both directions" if len(directions) > 1 else ""),
        "total": len(counts),
        "titles": [named(names[number], path_end(opened.titles.relation(number))) for number in compared.tolist()],
        "counts": counts[compared].tolist(),
        "pairs": likest_pairs(similarity, PAIRS),
        "order": order,
        "rows": [[(_shade(similarity[i, j], i == j), similarity[i, j]) for j in order] for i in order],
    }


def _shade(cosine: float, is_own: bool) -> str:
    if is_own:
        return "own"
    return f"{'warm' if cosine >= 0 else 'cold'}-{sum(abs(cosine) >= step for step in SHADE_STEPS)}"


def cosines(vectors: Floats) -> NDArray[np.float64]:
    """[n, n]: a·b / |a||b|; 0 where a vector is zero.

    >>> cosines(np.array([[1, 0], [2, 0], [0, 3]], np.float32)).round(2).tolist()
    [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    wide = vectors.astype(np.float64)
    size = np.linalg.norm(wide, axis=1, keepdims=True)
    unit = wide / np.where(size > 0, size, 1.0)
    return np.asarray(np.clip(unit @ unit.T, -1.0, 1.0))


def clustered_order(similarity: NDArray[np.float64]) -> Integers:
    """An order in which what is alike stands together: average linkage, each two clusters joined at their likest ends.

    >>> s = np.array([[1.0, 0.1, 0.9], [0.1, 1.0, 0.2], [0.9, 0.2, 1.0]])
    >>> clustered_order(s).tolist()
    [0, 2, 1]
    """
    clusters = [[i] for i in range(len(similarity))]
    between = similarity.astype(np.float64).copy()
    np.fill_diagonal(between, -np.inf)
    while len(clusters) > 1:
        a, b = sorted(divmod(int(between.argmax()), len(clusters)))
        left, right = clusters[a], clusters.pop(b)
        joined = (len(left) * between[a] + len(right) * between[b]) / (len(left) + len(right))
        between[a], between[:, a] = joined, joined
        between[a, a] = -np.inf
        between = np.delete(np.delete(between, b, axis=0), b, axis=1)
        ways = [(one, other) for one in (left, left[::-1]) for other in (right, right[::-1])]
        left, right = max(ways, key=lambda way: similarity[way[0][-1], way[1][0]])
        clusters[a] = left + right
    return np.array(clusters[0] if clusters else [], dtype=np.int64)


def likest_pairs(similarity: NDArray[np.float64], most: int) -> list[tuple[int, int, float]]:
    """The two relations and their cosine of the pairs that are most alike, likest first."""
    one, other = np.triu_indices(len(similarity), k=1)
    best = np.argsort(-similarity[one, other], kind="stable")[:most]
    return [(i, j, float(similarity[i, j])) for i, j in zip(one[best].tolist(), other[best].tolist(), strict=True)]
