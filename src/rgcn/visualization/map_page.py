"""A page about a trained model: a map of its nodes, the similarity of its relations, and its confusion matrix.

Relations are similar if the cosine between their vectors is large.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rgcn.errors import DataError
from rgcn.pages.layout import name_markup, page, parts
from rgcn.pages.node_report import confusion_chart, evaluate_nodes
from rgcn.predict import OpenModel
from rgcn.system.formatting import shorten
from rgcn.version import __version__
from rgcn.visualization.node_map import Coloring, NodeMap, shorten_path
from rgcn.visualization.projection import METHOD_NAMES, Floats, Integers
from rgcn.visualization.vectors import relation_counts, relation_vectors

GRID = 20_000  # positions are integers up to this: a tenth of a pixel on any screen
MAX_NAME_LENGTH = 200
NUM_EXAMPLES, NUM_PAIRS = 5, 20
MAX_DRAWN, MAX_COMPARED = 40, 2000  # relations
# Bounds of the shades: most relations have little in common, and differences near 0 should be visible.
SHADE_STEPS = (0.1, 0.2, 0.4, 0.6)


def map_page(node_map: NodeMap, split: str | None = None) -> str:
    """Return a self-contained HTML page.

    Args:
        node_map: The map.
        split: Split of the confusion matrix of a classifier (`evaluation_split`).
    """
    opened, coloring = node_map.opened, node_map.colorings[0]
    measured = confusion = None
    if opened.classes:
        measured = evaluate_nodes(opened.model, evaluation_split(opened, split))
        classes = [opened.titles.class_(number) for number in range(len(measured["classes"]))]
        confusion = confusion_chart(measured["confusion"], classes)
    try:
        likeness: dict[str, Any] | str = relation_similarity(opened)
    except DataError as error:
        likeness = str(error)
    groups = [_in_words(node_map, coloring, number) for number in range(len(coloring.groups))]
    values = {"map": node_map, "opened": opened, "data": _data(node_map), "coloring": coloring, "groups": groups}
    values |= {"method": METHOD_NAMES[node_map.method], "measured": measured, "confusion": confusion}
    content = parts("map_page.html", likeness=likeness, most_drawn=MAX_DRAWN, steps=SHADE_STEPS, **values)
    footer = f"Written by rgcn {__version__} (seed {node_map.seed}). This page loads nothing from anywhere."
    return page(f"{opened.name}: a look inside", content, footer=footer, extras=["map"])


def evaluation_split(opened: OpenModel, requested: str | None) -> str:
    """Return the given split or, by default, validation if there is one, else training; test only if given.

    Raises:
        DataError: If the graph has no labels in the split.
    """
    labels = opened.graph.labels
    counts = {} if labels is None else labels.counts()
    if requested is None:
        return "valid" if "valid" in counts else "train"
    if requested not in counts:
        raise DataError(f"the graph has no labels in split {requested!r}; it has {', '.join(counts)}")
    return requested


def _in_words(node_map: NodeMap, coloring: Coloring, number: int) -> dict[str, Any]:
    """Describe a group in words: its nodes and the neighboring group."""
    inside = np.flatnonzero(coloring.group_of == number)
    neighbor_counts = np.bincount(coloring.group_of[node_map.near[inside]].ravel(), minlength=len(coloring.groups))
    same, total = int(neighbor_counts[number]), int(neighbor_counts.sum())
    # Muted groups are near every group.
    neighbor_counts[[i for i, group in enumerate(coloring.groups) if group.is_muted or i == number]] = 0
    connected = inside[np.argsort(-node_map.degree[inside], kind="stable")[:NUM_EXAMPLES]]
    return {
        "title": coloring.groups[number].title,
        "nodes": len(inside),
        "same": f"{100 * same / total:.0f} %" if total else "",
        "beside": coloring.groups[int(neighbor_counts.argmax())].title if neighbor_counts.any() else None,
        "examples": [node_map.opened.titles.of(node) for node in node_map.nodes[connected].tolist()],
    }


def _data(node_map: NodeMap) -> dict[str, Any]:
    """Return the data of the drawing: positions as integers of one scale, y pointing down."""
    low, high = node_map.places.min(axis=0), node_map.places.max(axis=0)
    scale = GRID / max(float((high - low).max()), 1e-12)
    x, y = np.rint((node_map.places - low) * scale).astype(np.int64).T
    titles = [node_map.opened.titles.of(node) for node in node_map.nodes.tolist()]
    names = [shorten(node_map.opened.graph.nodes[node], MAX_NAME_LENGTH) for node in node_map.nodes.tolist()]
    shares = None if node_map.answers is None else node_map.answers.probability
    colorings = []
    for key, title, about, groups, group_of in node_map.colorings:
        rows = [(shorten(group.title, MAX_NAME_LENGTH), group.count, int(group.is_muted)) for group in groups]
        colorings.append({"key": key, "title": title, "about": about, "groups": rows, "of": group_of.tolist()})
    return {
        "x": x.tolist(),
        "y": (y.max() - y).tolist(),
        "title": [shorten(title, MAX_NAME_LENGTH) for title in titles],
        "name": [0 if name == title else name for name, title in zip(names, titles, strict=True)],
        "degree": node_map.degree.tolist(),
        "near": node_map.near.tolist(),
        "percent": None if shares is None else [round(100 * share) for share in shares.tolist()],
        "colorings": colorings,
    }


# -- relations ---------------------------------------------------------------------------------------------


def relation_similarity(opened: OpenModel) -> dict[str, Any]:
    """Compare the most frequent relations of a model.

    Returns:
        words: what is compared; total: number of relations; titles, counts (training triples) and pairs (the most
        similar ones) of the compared relations; order of those that are drawn; rows: (shade, cosine) of each pair.

    Raises:
        DataError: If the model has nothing to compare relations by.
    """
    (directions, words), counts = relation_vectors(opened), relation_counts(opened)
    compared = np.argsort(-counts, kind="stable")[:MAX_COMPARED]
    similarity, names = cosines(np.concatenate(directions, axis=1)[compared]), opened.graph.relations
    order = clustered_order(similarity[:MAX_DRAWN, :MAX_DRAWN]).tolist()
    return {
        "words": words + (", in both directions" if len(directions) > 1 else ""),
        "total": len(counts),
        "titles": [name_markup(names[i], shorten_path(opened.titles.relation(i))) for i in compared.tolist()],
        "counts": counts[compared].tolist(),
        "pairs": most_similar_pairs(similarity, NUM_PAIRS),
        "order": order,
        "rows": [[(_shade(similarity[i, j], i == j), similarity[i, j]) for j in order] for i in order],
    }


def _shade(cosine: float, is_own: bool) -> str:
    shade = sum(abs(cosine) >= step for step in SHADE_STEPS)
    return "own" if is_own else f"{'warm' if cosine >= 0 else 'cold'}-{shade}"


def cosines(vectors: Floats) -> NDArray[np.float64]:
    """Return the cosines a·b / |a||b|, [n, n]; 0 if a vector is zero.

    >>> cosines(np.array([[1, 0], [2, 0], [0, 3]], np.float32)).round(2).tolist()
    [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    wide = vectors.astype(np.float64)
    size = np.linalg.norm(wide, axis=1, keepdims=True)
    unit = wide / np.where(size > 0, size, 1.0)
    return np.asarray(np.clip(unit @ unit.T, -1.0, 1.0))


def clustered_order(similarity: NDArray[np.float64]) -> Integers:
    """Return an order in which similar rows are adjacent: average linkage, clusters joined at similar ends.

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


def most_similar_pairs(similarity: NDArray[np.float64], most: int) -> list[tuple[int, int, float]]:
    """Return the most similar pairs: (relation, relation, cosine), most similar first."""
    one, other = np.triu_indices(len(similarity), k=1)
    best = np.argsort(-similarity[one, other], kind="stable")[:most]
    return [(i, j, float(similarity[i, j])) for i, j in zip(one[best].tolist(), other[best].tolist(), strict=True)]
