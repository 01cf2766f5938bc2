"""Which ways through the graph an answer came."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rgcn.explain.attribution import Attribution, Numbers

# Edges that are looked at on each side: a path is no more important than its parts.
MOST_PARTS = 200


class Path(NamedTuple):
    """A walk of one or two triples, by their places in reach, beginning at a node."""

    start: int
    triples: tuple[int, ...]
    importance: float


def paths_from(attribution: Attribution, limit: int) -> list[Path]:
    """The most important walks of two triples from an asked node, outward.

    A message of the last layer but one, u → m, goes on to the asked node v by the edges m → v of the last. Its
    importance is shared among these as they are important themselves:

        importance(v, m, u) = importance(u → m) · |importance(m → v)| / Σ |importance of m's edges|

    Over all of m's edges these add up to the importance of u → m; walks out and back again have a part in it, but are
    not listed. Self-loops have no importance of their own: where m is asked about itself, what it hands on to itself is
    counted with its other edges, or, where it has none, in no walk. Networks of one layer have no such walks.
    """
    reach = attribution.reach
    if len(reach.field.layers) < 2:
        return []
    outer, inner = attribution.edges[-2], attribution.edges[-1]
    (outer_source, outer_target), (inner_source, inner_target) = reach.ends[-2], reach.ends[-1]
    outer_place, inner_place = (reach.place[depth].cpu().numpy() for depth in (-2, -1))
    leaving = _by_node(inner_source)
    found: dict[tuple[int, ...], Path] = {}
    for edge in _strongest(np.where(outer_place < len(reach), outer, 0.0)):
        onward = leaving.get(int(outer_target[edge]), np.empty(0, dtype=np.int64))
        total = np.abs(inner[onward]).sum()
        for second in onward.tolist():
            first_triple, second_triple = int(inner_place[second]), int(outer_place[edge])
            if first_triple == len(reach) or outer_source[edge] == inner_target[second] or not total:
                continue  # a self-loop, or out and back again
            importance = float(outer[edge] * abs(inner[second]) / total)
            key = (int(inner_target[second]), first_triple, second_triple)
            before = found[key].importance if key in found else 0.0
            found[key] = Path(key[0], key[1:], before + importance)
    return _best(list(found.values()), limit)


def paths_between(attribution: Attribution, subject: int, object: int, asked: int | None, limit: int) -> list[Path]:
    """The most important walks of one or two triples from subject to object, as strong as their weakest triple.

    asked: the place of the triple that is asked about, which proves nothing about itself.
    """
    reach, importance = attribution.reach, attribution.triples
    near: dict[int, list[tuple[int, int]]] = {subject: [], object: []}
    found = []
    if subject == object:
        return []
    for place in _strongest(np.where(importance > 0, importance, 0.0), 2 * MOST_PARTS):
        ends = {int(reach.triples[place, 0]), int(reach.triples[place, 2])}
        if place == asked or len(ends) == 1:
            continue
        if ends == {subject, object}:
            found.append(Path(subject, (place,), float(importance[place])))
            continue
        for end in ends & {subject, object}:
            (other,) = ends - {end}
            near[end].append((place, other))
    for first, middle in near[subject]:
        for second, shared in near[object]:
            if shared == middle:
                weakest = float(min(importance[first], importance[second]))
                found.append(Path(subject, (first, second), weakest))
    return _best(found, limit)


def _strongest(importance: Numbers, most: int = MOST_PARTS) -> list[int]:
    order = np.argsort(-np.abs(importance), kind="stable")[:most]
    return [int(place) for place in order if importance[place]]


def _best(paths: list[Path], limit: int) -> list[Path]:
    """Those that speak for the answer, strongest first."""
    return sorted((path for path in paths if path.importance > 0), key=lambda path: -path.importance)[:limit]


def _by_node(nodes: NDArray[np.int64]) -> dict[int, NDArray[np.int64]]:
    """The places of each node in a list of nodes."""
    order = np.argsort(nodes, kind="stable")
    distinct, first = np.unique(nodes[order], return_index=True)
    return dict(zip(distinct.tolist(), np.split(order, first)[1:], strict=True))
