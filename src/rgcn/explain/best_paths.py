"""The paths from an asked node to its answer that made it, of networks that walk along edges: gradients, best first."""

import heapq
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from rgcn.explain.attribution import Attribution, Numbers, OnStep, Path, by_slopes, slopes_at
from rgcn.explain.question import Question

Ids = NDArray[np.int64]
MOST_LOOKED_AT = 20_000  # beginnings of paths, for each length: a search that finds too few among these gives those


def gradients(question: Question, steps: int = 1, on_step: OnStep = lambda: None) -> Attribution:
    """What the answer would lose with each edge, were it linear in them: one backward pass.

        importance(e in layer l) = w_e · ∂f / ∂w_e

    w are the operator's entries, already normalized, and f is the answer's strength. After Zhu et al., "Neural
    Bellman-Ford Networks", 2021, whose paths have gradients alone for importances.
    """
    found = by_slopes(question.reach, slopes_at(question, 1.0))
    on_step()
    return found


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
