"""The importance of each edge for an answer, and the paths by which messages arrived."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from rgcn.explain.question import ComputationGraph

Numbers = NDArray[np.float64]
Ids = NDArray[np.int64]
MIN_OPPOSING_SHARE = 0.05  # share of the largest importance; smaller importances are noise of the method
MAX_PATH_EDGES = 200  # most important edges that are combined into paths: a path is no more important than its edges
MAX_PREFIXES = 20_000  # prefixes of paths that are expanded for each length


@dataclass(frozen=True, eq=False)
class Attribution:
    """The result of an explanation method.

    Attributes:
        subgraph: The edges that the network reads.
        edges: For each layer, the signed importance of its edges, `[num_edges]`; zero for self-loops.
        own: The importance of the query nodes' own embeddings or features; None if the method has none.
    """

    subgraph: ComputationGraph
    edges: tuple[Numbers, ...]
    own: float | None

    @cached_property
    def triples(self) -> Numbers:
        """The importance of each triple, summed over its edges in all layers and directions, `[num_triples]`."""
        total = np.zeros(len(self.subgraph) + 1)
        for importance, triple in zip(self.edges, self.subgraph.edge_triples, strict=True):
            np.add.at(total, triple.cpu().numpy(), importance)
        return total[:-1]

    def supporting(self, limit: int, along: Sequence[Path] = ()) -> Ids:
        """Return the supporting triples, most important first; if over `limit`, those on the paths `along` are kept."""
        order = np.argsort(-self.triples, kind="stable")
        on_paths = [triple for path in along for triple in path.triples]
        preferred = dict.fromkeys([*on_paths, *order[: limit + len(on_paths)].tolist()])
        chosen = [triple for triple in preferred if self.triples[triple] > 0][:limit]
        return order[np.isin(order, chosen)]

    def opposing(self, limit: int) -> Ids:
        """Return the triples that oppose the answer, most important first."""
        order = np.argsort(self.triples, kind="stable")[:limit]
        threshold = MIN_OPPOSING_SHARE * float(np.abs(self.triples).max(initial=0.0))
        return order[self.triples[order] < -threshold]

    def connections(self, triples: Ids) -> Ids:
        """Return the most important triples on the way from each of these to the query nodes, without these."""
        hop, connecting = self.subgraph.hop, []
        ends = self.subgraph.triples[:, [0, 2]]
        for current in triples.tolist():
            while hop[current] > 1:
                is_touching = (hop == hop[current] - 1) & np.isin(ends, ends[current]).any(axis=1)
                candidates = np.flatnonzero(is_touching)
                current = int(candidates[np.argmax(np.abs(self.triples[candidates]))])
                connecting.append(current)
        given = set(triples.tolist())
        return np.array([triple for triple in dict.fromkeys(connecting) if triple not in given], dtype=np.int64)

    @property
    def own_share(self) -> float | None:
        """The share of `own`, the query nodes' embeddings or features, in the sum of absolute importances."""
        if self.own is None:
            return None
        total = abs(self.own) + float(np.abs(self.triples).sum())
        return abs(self.own) / total if total else 0.0

    def neighbors(self) -> list[tuple[int, float]]:
        """Return (node, importance), most important first: the importance of the messages from each node.

        A message from a query node counts for the node that returns it.
        """
        query_nodes = np.array(self.subgraph.query_nodes)
        nodes, importances = [], []
        layers = zip(self.edges, self.subgraph.edge_triples, self.subgraph.edge_ends, strict=True)
        for importance, triple, (source, target) in layers:
            other = np.where(np.isin(source, query_nodes), target, source)
            is_counted = (triple.cpu().numpy() < len(self.subgraph)) & ~np.isin(other, query_nodes)
            nodes.append(other[is_counted])
            importances.append(importance[is_counted])
        distinct, index = np.unique(np.concatenate(nodes), return_inverse=True)
        total = np.bincount(index, np.concatenate(importances), minlength=len(distinct))
        order = np.argsort(-np.abs(total), kind="stable")
        return [(int(distinct[i]), float(total[i])) for i in order if total[i]]


class Path(NamedTuple):
    """A path of triples, given by their indices in the subgraph, from a start node."""

    start: int
    triples: tuple[int, ...]
    importance: float


def paths_from(attribution: Attribution, limit: int) -> list[Path]:
    """Return the most important paths of two triples from a query node outward.

    A message of the last layer but one, u → m, is passed on to the query node v by the edges m → v of the last layer.
    Its importance is divided among these in proportion to their own:

        importance(v, m, u) = importance(u → m) · |importance(m → v)| / Σ |importance of m's edges|

    Summed over m's edges this is the importance of u → m. Paths out and back again have a share, but are not listed.
    Self-loops have no importance: if m is a query node, what it passes on to itself counts for its other edges, or for
    no path if it has none. Networks of one layer have no such paths.
    """
    subgraph = attribution.subgraph
    if len(subgraph.field.layers) < 2:
        return []
    outer, inner = attribution.edges[-2], attribution.edges[-1]
    (outer_source, outer_target), (inner_source, inner_target) = subgraph.edge_ends[-2], subgraph.edge_ends[-1]
    outer_triple, inner_triple = (subgraph.edge_triples[layer].cpu().numpy() for layer in (-2, -1))
    found = defaultdict[tuple[int, tuple[int, ...]], float](float)
    for edge in _most_important(np.where(outer_triple < len(subgraph), outer, 0.0)):
        onward = np.flatnonzero(inner_source == outer_target[edge])
        total = np.abs(inner[onward]).sum()
        for second in onward.tolist():
            triples = (int(inner_triple[second]), int(outer_triple[edge]))
            if triples[0] == len(subgraph) or outer_source[edge] == inner_target[second] or not total:
                continue  # a self-loop, or out and back again
            found[int(inner_target[second]), triples] += float(outer[edge] * abs(inner[second]) / total)
    return _best((Path(*ends, importance) for ends, importance in found.items()), limit)


def paths_between(attribution: Attribution, subject: int, object: int, own: int | None, limit: int) -> list[Path]:
    """Return the best paths of one or two triples from subject to object, as important as their weakest triple.

    Args:
        attribution: The importance of triples.
        subject: The start.
        object: The end.
        own: Index of the triple that is asked about, which is left out; None if it is not in the subgraph.
        limit: How many paths to return.
    """
    subgraph, importance = attribution.subgraph, attribution.triples
    near: dict[int, list[tuple[int, int]]] = {subject: [], object: []}
    found: list[Path] = []
    if subject == object:
        return found
    for triple in _most_important(np.where(importance > 0, importance, 0.0), 2 * MAX_PATH_EDGES):
        ends = set(subgraph.triples[triple, [0, 2]].tolist())
        if ends == {subject, object} and triple != own:
            found.append(Path(subject, (triple,), float(importance[triple])))
        elif len(ends) == 2 and triple != own:
            for end in ends & {subject, object}:
                near[end].append((triple, *(ends - {end})))
    for first, middle in near[subject]:
        for second, other in near[object]:
            if other == middle:
                found.append(Path(subject, (first, second), float(min(importance[first], importance[second]))))
    return _best(found, limit)


def _most_important(importance: Numbers, limit: int = MAX_PATH_EDGES) -> list[int]:
    order = np.argsort(-np.abs(importance), kind="stable")[:limit]
    return [int(edge) for edge in order if importance[edge]]


def _best(paths: Iterable[Path], limit: int) -> list[Path]:
    """Return the paths that support the answer, most important first."""
    return sorted((path for path in paths if path.importance > 0), key=lambda path: -path.importance)[:limit]


class _Edges(NamedTuple):
    """Edges of all layers that a path may use, sorted by source: those from node v are first[v] .. first[v + 1]."""

    first: Ids
    target: Ids
    layer: Ids
    triple: Ids
    importance: Numbers


def best_paths(attribution: Attribution, start: int, end: int, limit: int) -> list[Path]:
    """Return the paths with the highest mean importance of their edges, each edge in a later layer than the previous.

    A path may skip layers, so that it can have fewer edges than the network has layers. Its edges support the answer,
    and it visits no node twice. A sequence of triples that fits the layers in several ways counts once, as the best of
    these. The result is exact: `limit` best paths of each length are found, best first (`_paths_of_length`).
    """
    nodes, edges = _usable_edges(attribution, start, end)
    if not len(edges.target) or start == end:
        return []
    depth = len(attribution.edges)
    begin, goal = (int(np.searchsorted(nodes, node)) for node in (start, end))
    bounds = _bounds(edges, len(nodes), goal, depth)
    found = [
        Path(start, triples, total / length)
        for length in range(1, depth + 1)
        for triples, total in _paths_of_length(edges, bounds, begin, length, limit)
    ]
    return _best(found, limit)


def best_paths_both_ways(attribution: Attribution, start: int, end: int, limit: int) -> list[Path]:
    """Return the best paths from start to end and, reversed, from end to start, for a network asked in both directions.

    A sequence of triples that is a path in both directions counts once, as the better one.
    """
    forward, backward = (best_paths(attribution, *ends, limit) for ends in ((start, end), (end, start)))
    best: dict[tuple[int, ...], Path] = {}
    for path in [*forward, *(Path(start, path.triples[::-1], path.importance) for path in backward)]:
        if path.triples not in best or best[path.triples].importance < path.importance:
            best[path.triples] = path
    return _best(best.values(), limit)


def _usable_edges(attribution: Attribution, start: int, end: int) -> tuple[Ids, _Edges]:
    """Return the nodes, ascending, and the supporting edges that do not return to the start or leave the end."""
    subgraph = attribution.subgraph
    source, target = (np.concatenate([ends[side] for ends in subgraph.edge_ends]) for side in (0, 1))
    importance, triple = np.concatenate(attribution.edges), torch.cat(subgraph.edge_triples).cpu().numpy()
    layer = np.repeat(np.arange(len(attribution.edges)), [len(part) for part in attribution.edges])
    usable = np.flatnonzero((importance > 0) & (source != target) & (target != start) & (source != end))
    usable = usable[np.argsort(source[usable], kind="stable")]
    source, target = source[usable], target[usable]
    nodes = np.unique(np.concatenate([source, target, [start, end]]))
    first = np.searchsorted(source, np.append(nodes, nodes[-1] + 1))
    return nodes, _Edges(first, np.searchsorted(nodes, target), layer[usable], triple[usable], importance[usable])


def _bounds(edges: _Edges, num_nodes: int, goal: int, depth: int) -> list[Numbers]:
    """Return for each n the largest sum of n edges from a node to the goal, from a layer on, `[depth + 1, num_nodes]`.

    bound_n[l, v] = max over edges v → u in a layer m ≥ l of importance + bound_{n-1}[m + 1, u]
    """
    source = np.repeat(np.arange(num_nodes), np.diff(edges.first))
    bounds = [np.full((depth + 1, num_nodes), -np.inf)]
    bounds[0][:, goal] = 0.0
    for _ in range(depth):
        best = np.full((depth + 1, num_nodes), -np.inf)
        np.maximum.at(best, (edges.layer, source), edges.importance + bounds[-1][edges.layer + 1, edges.target])
        bounds.append(np.maximum.accumulate(best[::-1], axis=0)[::-1])
    return bounds


def _paths_of_length(
    edges: _Edges, bounds: list[Numbers], start: int, length: int, limit: int
) -> list[tuple[tuple[int, ...], float]]:
    """Return the `limit` best paths of a length: their triples, and the sum of their importances.

    Best-first search: a queue holds prefixes of paths, ordered by the largest sum they can reach. The best prefix is
    replaced by itself with the next best last edge, and by itself with one more edge. So no path is found before a
    better one. The search stops after `MAX_PREFIXES` prefixes.
    """

    @cache
    def edges_from(layer: int, node: int, num_left: int) -> tuple[Ids, Numbers]:
        """Return the edges from a node, from a layer on, after which `num_left` more reach the end; best first."""
        ids = np.arange(edges.first[node], edges.first[node + 1])
        ids = ids[edges.layer[ids] >= layer]
        bound = edges.importance[ids] + bounds[num_left][edges.layer[ids] + 1, edges.target[ids]]
        order = np.argsort(-bound, kind="stable")
        order = order[bound[order] > -np.inf]
        return ids[order], bound[order]

    queue: list[tuple[float, int, int, float, tuple[int, ...], tuple[int, ...], int]] = []

    def push(
        layer: int, node: int, total: float, visited: tuple[int, ...], triples: tuple[int, ...], rank: int
    ) -> None:
        choices, bound = edges_from(layer, node, length - len(triples) - 1)
        if rank < len(choices):
            heapq.heappush(queue, (-total - bound[rank], layer, node, total, visited, triples, rank))

    found: dict[tuple[int, ...], float] = {}
    push(0, start, 0.0, (start,), (), 0)
    for _ in range(MAX_PREFIXES):
        if not queue or len(found) == limit:
            break
        _, layer, node, total, visited, triples, rank = heapq.heappop(queue)
        push(layer, node, total, visited, triples, rank + 1)
        edge = int(edges_from(layer, node, length - len(triples) - 1)[0][rank])
        target, extended = int(edges.target[edge]), (*triples, int(edges.triple[edge]))
        total += float(edges.importance[edge])
        if len(extended) == length:
            found.setdefault(extended, total)
        elif target not in visited:
            push(int(edges.layer[edge]) + 1, target, total, (*visited, target), extended, 0)
    return list(found.items())
