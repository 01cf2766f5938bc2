"""Which relations a model treats alike: the cosine between what it has learned of them."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rgcn.pages.text import named
from rgcn.predict import OpenModel
from rgcn.visualization.coloring import path_end
from rgcn.visualization.neighborhoods import Floats, Integers
from rgcn.visualization.vectors import relation_counts, relation_vectors

# More rows than these are no picture any more; more relations than these are not all compared.
MOST_DRAWN, MOST_COMPARED = 40, 2000
PAIRS = 20
# Where the shades change: relations have little in common as a rule, and differences near 0 should be seen.
SHADE_STEPS = (0.1, 0.2, 0.4, 0.6)


class AlikePair(NamedTuple):
    """Two relations by number, and the cosine of the angle between their vectors."""

    one: int
    other: int
    cosine: float


def relation_likeness(opened: OpenModel) -> dict[str, Any]:
    """The most frequent relations of a model beside each other; DataError where it has nothing to compare them by.

    words   what is compared; total: how many relations there are
    titles  of those that are compared; counts: their training triples; pairs: the likest of them
    order   of those that are drawn, what is alike side by side; rows: (shade, cosine) of each beside each
    """
    vectors, counts = relation_vectors(opened), relation_counts(opened)
    compared = np.argsort(-counts, kind="stable")[:MOST_COMPARED]
    similarity, names = cosines(vectors.whole[compared]), opened.graph.relations
    order = clustered_order(similarity[:MOST_DRAWN, :MOST_DRAWN]).tolist()
    return {
        "words": vectors.words + ("" if vectors.inverse is None else ", in both directions"),
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
        sizes = len(clusters[a]), len(clusters[b])
        joined = (sizes[0] * between[a] + sizes[1] * between[b]) / sum(sizes)
        between[a], between[:, a] = joined, joined
        between[a, a] = -np.inf
        between = np.delete(np.delete(between, b, axis=0), b, axis=1)
        clusters[a] = _joined(clusters[a], clusters.pop(b), similarity)
    return np.array(clusters[0] if clusters else [], dtype=np.int64)


def _joined(left: list[int], right: list[int], similarity: NDArray[np.float64]) -> list[int]:
    """Two rows end to end, either turned around if its other end fits better."""
    ways = [(one, other) for one in (left, left[::-1]) for other in (right, right[::-1])]
    one, other = max(ways, key=lambda way: similarity[way[0][-1], way[1][0]])
    return one + other


def likest_pairs(similarity: NDArray[np.float64], most: int) -> list[AlikePair]:
    one, other = np.triu_indices(len(similarity), k=1)
    value = similarity[one, other]
    best = np.argsort(-value, kind="stable")[:most]
    return [AlikePair(int(one[i]), int(other[i]), float(value[i])) for i in best.tolist()]
