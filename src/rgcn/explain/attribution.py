"""How much each edge in reach mattered, and the paths by which messages came."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from rgcn.explain.question import Reach

Numbers = NDArray[np.float64]
Ids = NDArray[np.int64]
LOUD_ENOUGH = 0.05
MOST_PARTS = 200  # edges that are looked at on each side: a path is no more important than its parts
MOST_LOOKED_AT = 20_000  # beginnings of paths, for each length: a search that finds too few among these gives those


@dataclass(frozen=True, eq=False)
class Attribution:
    """What a method found."""

    reach: Reach
    edges: tuple[Numbers, ...]  # for each layer [E]: the importance of its edges, signed; zero for self-loops
    own: float | None  # what the asked nodes bring themselves; None where the method does not say

    @cached_property
    def triples(self) -> Numbers:
        """[T]: the importance of each triple, its edges in all layers and both directions added up."""
        total = np.zeros(len(self.reach) + 1)
        for importance, place in zip(self.edges, self.reach.place, strict=True):
            np.add.at(total, place.cpu().numpy(), importance)
        return total[:-1]

    def supporting(self, most: int, along: Sequence[Path] = ()) -> NDArray[np.int64]:
        """Places of the triples that speak for the answer, most important first; chosen along paths, then elsewhere."""
        order = np.argsort(-self.triples, kind="stable")
        on_paths = [place for path in along for place in path.triples]
        chosen = list(dict.fromkeys([*on_paths, *order[: most + len(on_paths)].tolist()]))
        first = [place for place in chosen if self.triples[place] > 0][:most]
        return order[np.isin(order, first)]

    def opposing(self, most: int) -> NDArray[np.int64]:
        """Places of the triples that speak against it, likewise."""
        order = np.argsort(self.triples, kind="stable")[:most]
        loud = LOUD_ENOUGH * float(np.abs(self.triples).max(initial=0.0))  # below, it is noise of the method
        return order[self.triples[order] < -loud]

    def connections(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """For each triple away from the asked nodes the most important way back to them, less the triples given."""
        reach, way = self.reach, []
        for start in places.tolist():
            here = start
            while reach.hop[here] > 1:
                nearer = reach.hop == reach.hop[here] - 1
                touching = nearer & np.isin(reach.triples[:, [0, 2]], reach.triples[here, [0, 2]]).any(axis=1)
                candidates = np.flatnonzero(touching)
                here = int(candidates[np.argmax(np.abs(self.triples[candidates]))])
                way.append(here)
        given = set(places.tolist())
        return np.array([place for place in dict.fromkeys(way) if place not in given], dtype=np.int64)

    @property
    def own_share(self) -> float | None:
        """What the asked nodes bring themselves, as a share of all that is brought, for and against."""
        if self.own is None:
            return None
        total = abs(self.own) + float(np.abs(self.triples).sum())
        return abs(self.own) / total if total else 0.0

    def neighbors(self) -> list[tuple[int, float]]:
        """(node, importance), most important first: of the messages each sends, or hands back to an asked node."""
        asked = np.array(self.reach.asked)
        nodes, importances = [], []
        for importance, place, (source, target) in zip(self.edges, self.reach.place, self.reach.ends, strict=True):
            other = np.where(np.isin(source, asked), target, source)
            counted = (place.cpu().numpy() < len(self.reach)) & ~np.isin(other, asked)
            nodes.append(other[counted])
            importances.append(importance[counted])
        distinct, which = np.unique(np.concatenate(nodes), return_inverse=True)
        total = np.bincount(which, np.concatenate(importances), minlength=len(distinct))
        order = np.argsort(-np.abs(total), kind="stable")
        return [(int(distinct[i]), float(total[i])) for i in order]


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
    found: dict[tuple[int, tuple[int, int]], Path] = {}
    for edge in _strongest(np.where(outer_place < len(reach), outer, 0.0)):
        onward = np.flatnonzero(inner_source == outer_target[edge])
        total = np.abs(inner[onward]).sum()
        for second in onward.tolist():
            first_triple, second_triple = int(inner_place[second]), int(outer_place[edge])
            if first_triple == len(reach) or outer_source[edge] == inner_target[second] or not total:
                continue  # a self-loop, or out and back again
            start, way = int(inner_target[second]), (first_triple, second_triple)
            before = found[start, way].importance if (start, way) in found else 0.0
            found[start, way] = Path(start, way, before + float(outer[edge] * abs(inner[second]) / total))
    return _best(found.values(), limit)


def paths_between(attribution: Attribution, subject: int, object: int, asked: int | None, limit: int) -> list[Path]:
    """The most important walks of one or two triples from subject to object, as strong as their weakest triple.

    asked: the place of the triple that is asked about, which proves nothing about itself.
    """
    reach, importance = attribution.reach, attribution.triples
    near: dict[int, list[tuple[int, int]]] = {subject: [], object: []}
    found: list[Path] = []
    if subject == object:
        return found
    for place in _strongest(np.where(importance > 0, importance, 0.0), 2 * MOST_PARTS):
        ends = set(reach.triples[place, [0, 2]].tolist())
        if ends == {subject, object} and place != asked:
            found.append(Path(subject, (place,), float(importance[place])))
        elif len(ends) == 2 and place != asked:
            for end in ends & {subject, object}:
                near[end].append((place, *(ends - {end})))
    for first, middle in near[subject]:
        for second, shared in near[object]:
            if shared == middle:
                found.append(Path(subject, (first, second), float(min(importance[first], importance[second]))))
    return _best(found, limit)


def _strongest(importance: Numbers, most: int = MOST_PARTS) -> list[int]:
    order = np.argsort(-np.abs(importance), kind="stable")[:most]
    return [int(place) for place in order if importance[place]]


def _best(paths: Iterable[Path], limit: int) -> list[Path]:
    """Those that speak for the answer, strongest first."""
    return sorted((path for path in paths if path.importance > 0), key=lambda path: -path.importance)[:limit]


class _Edges(NamedTuple):
    """Edges of all layers that a path may take, sorted by source: first[v] .. first[v + 1] leave node v."""

    first: Ids
    target: Ids
    layer: Ids
    triple: Ids
    importance: Numbers


def best_paths(attribution: Attribution, start: int, end: int, limit: int) -> list[Path]:
    """The paths of the highest mean importance of their edges, each edge in a later layer than the one before.

    Between two of its edges a path may stay where it is, so that it can be shorter than the network is deep. Its edges
    speak for the answer, and it passes no node twice. A sequence of triples that fits into the layers in several ways
    counts once, as the best of them. Exact: of each length the `limit` best are found, best first (`_of_length`).
    """
    nodes, edges = _passable(attribution, start, end)
    if not len(edges.target) or start == end:
        return []
    depth = len(attribution.edges)
    begin, goal = (int(np.searchsorted(nodes, node)) for node in (start, end))
    rest = _rest(edges, len(nodes), goal, depth)
    found = [
        Path(start, triples, total / length)
        for length in range(1, depth + 1)
        for triples, total in _of_length(edges, rest, begin, length, limit)
    ]
    return sorted(found, key=lambda path: -path.importance)[:limit]


def best_paths_both_ways(attribution: Attribution, start: int, end: int, limit: int) -> list[Path]:
    """The best of the paths from start to end and, read backwards, of those from end to start.

    Of a network that is asked from both ends. A sequence of triples that leads both ways counts once, as the better.
    """
    there, back = (best_paths(attribution, *ends, limit) for ends in ((start, end), (end, start)))
    best: dict[tuple[int, ...], Path] = {}
    for path in [*there, *(Path(start, path.triples[::-1], path.importance) for path in back)]:
        if path.triples not in best or best[path.triples].importance < path.importance:
            best[path.triples] = path
    return sorted(best.values(), key=lambda path: -path.importance)[:limit]


def _passable(attribution: Attribution, start: int, end: int) -> tuple[Ids, _Edges]:
    """(nodes ascending, the edges that speak for the answer and neither return to its start nor go on from its end)."""
    reach = attribution.reach
    source, target = (np.concatenate([ends[side] for ends in reach.ends]) for side in (0, 1))
    importance, triple = np.concatenate(attribution.edges), torch.cat(reach.place).cpu().numpy()
    layer = np.repeat(np.arange(len(attribution.edges)), [len(part) for part in attribution.edges])
    kept = np.flatnonzero((importance > 0) & (source != target) & (target != start) & (source != end))
    kept = kept[np.argsort(source[kept], kind="stable")]
    source, target = source[kept], target[kept]
    nodes = np.unique(np.concatenate([source, target, [start, end]]))
    first = np.searchsorted(source, np.append(nodes, nodes[-1] + 1))
    return nodes, _Edges(first, np.searchsorted(nodes, target), layer[kept], triple[kept], importance[kept])


def _rest(edges: _Edges, num_nodes: int, goal: int, depth: int) -> list[Numbers]:
    """For each n [layers + 1, nodes]: the most that n edges from a node to the goal add up to, from a layer on.

    rest_n[l, v] = max over edges v → u in a layer m ≥ l of importance + rest_{n-1}[m + 1, u]
    """
    source = np.repeat(np.arange(num_nodes), np.diff(edges.first))
    none = np.full((depth + 1, num_nodes), -np.inf)
    none[:, goal] = 0.0
    rest = [none]
    for _ in range(depth):
        best = np.full((depth + 1, num_nodes), -np.inf)
        np.maximum.at(best, (edges.layer, source), edges.importance + rest[-1][edges.layer + 1, edges.target])
        rest.append(np.maximum.accumulate(best[::-1], axis=0)[::-1])
    return rest


def _of_length(
    edges: _Edges, rest: list[Numbers], start: int, length: int, limit: int
) -> list[tuple[tuple[int, ...], float]]:
    """The `limit` best paths of so many edges: (triples, the sum of their importances).

    What is waiting is a beginning, known by the most it can still add up to. The best is taken first; it gives way to
    itself with the next best last edge, and to itself with one more edge. So no path is met before a better one.
    """

    @cache
    def onward(layer: int, node: int, left: int) -> tuple[Ids, Numbers]:
        """The edges from a node in this layer or a later one after which `left` more reach the end, best first."""
        mine = np.arange(edges.first[node], edges.first[node + 1])
        mine = mine[edges.layer[mine] >= layer]
        most = edges.importance[mine] + rest[left][edges.layer[mine] + 1, edges.target[mine]]
        order = np.argsort(-most, kind="stable")
        order = order[most[order] > -np.inf]
        return mine[order], most[order]

    waiting: list[tuple[float, int, int, float, tuple[int, ...], tuple[int, ...], int]] = []

    def wait(layer: int, node: int, total: float, passed: tuple[int, ...], triples: tuple[int, ...], rank: int) -> None:
        choices, most = onward(layer, node, length - len(triples) - 1)
        if rank < len(choices):
            heapq.heappush(waiting, (-total - most[rank], layer, node, total, passed, triples, rank))

    found: dict[tuple[int, ...], float] = {}
    wait(0, start, 0.0, (start,), (), 0)
    for _ in range(MOST_LOOKED_AT):
        if not waiting or len(found) == limit:
            break
        _, layer, node, total, passed, triples, rank = heapq.heappop(waiting)
        wait(layer, node, total, passed, triples, rank + 1)
        edge = int(onward(layer, node, length - len(triples) - 1)[0][rank])
        there, way = int(edges.target[edge]), (*triples, int(edges.triple[edge]))
        total += float(edges.importance[edge])
        if len(way) == length:
            found.setdefault(way, total)
        elif there not in passed:
            wait(int(edges.layer[edge]) + 1, there, total, (*passed, there), way, 0)
    return list(found.items())
