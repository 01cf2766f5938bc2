"""How much each edge in reach mattered, by integrated gradients or a learned edge mask, and by which paths it came."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rgcn.explain.question import Question, Reach

Numbers = NDArray[np.float64]
LOUD_ENOUGH = 0.05
GRADIENT_STEPS = 32
MASK_STEPS, MASK_RATE = 60, 0.1
FIRST_PRICE, LAST_PRICE = 1e-3, 1.0
OnStep = Callable[[], object]  # called after each step
MOST_PARTS = 200  # edges that are looked at on each side: a path is no more important than its parts


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


def integrated_gradients(
    question: Question, steps: int = GRADIENT_STEPS, on_step: OnStep = lambda: None
) -> Attribution:
    """What each edge adds to the answer on the way from no triples to all of them.

        importance(e) = w_e ∫₀¹ ∂f(α w) / ∂w_e dα

    w are the operator's entries, already normalized, and f is the answer's strength. (Over weights *before*
    normalization nothing would happen on the way: a common factor α is divided out again.) Self-loops stay as they are,
    so that a neighbor's message counts for the triple that brings it. The importances add up to f(w) - f(0), the
    difference that all triples together make; `own` is f(0) less the answer for nodes that bring nothing either
    (`Question.unheard`): no vectors, no self-loops, no biases of their own.

    Sundararajan, Taly, Yan, "Axiomatic attribution for deep networks", 2017.
    """
    # Gauss-Legendre points in [-1, 1] and their weights: exact for smooth pieces, dense near both ends.
    points, parts = np.polynomial.legendre.leggauss(steps)
    means = [torch.zeros_like(layer.weight) for layer in question.reach.field.layers]
    for alpha, share in zip(((points + 1) / 2).tolist(), (parts / 2).tolist(), strict=True):
        for mean, slope in zip(means, slopes_at(question, alpha), strict=True):
            mean += share * slope
        on_step()
    with torch.no_grad():
        alone = question.strength_with(question.reach.silent())
        unheard = question.strength(question.unheard())
    return by_slopes(question.reach, means, float(alone - unheard))


def slopes_at(question: Question, alpha: float) -> tuple[Tensor, ...]:
    """For each layer ∂f / ∂w_e [E], the entries of all triples' edges times alpha."""
    reach = question.reach
    weights = [
        torch.where(place == len(reach), layer.weight, layer.weight * alpha).detach().requires_grad_()
        for layer, place in zip(reach.field.layers, reach.place, strict=True)
    ]
    scaled = (replace(layer, weight=weight) for layer, weight in zip(reach.field.layers, weights, strict=True))
    return torch.autograd.grad(question.strength_with(replace(reach.field, layers=tuple(scaled))), weights)


def by_slopes(reach: Reach, slopes: Iterable[Tensor], own: float | None = None) -> Attribution:
    """importance(e) = w_e · slope_e, and 0 of self-loops."""
    each = zip(reach.field.layers, reach.place, slopes, strict=True)
    found = (torch.where(place == len(reach), 0.0, layer.weight * slope) for layer, place, slope in each)
    return Attribution(reach, tuple(one.detach().double().cpu().numpy() for one in found), own)


def edge_mask(question: Question, steps: int = MASK_STEPS, on_step: OnStep = lambda: None) -> Attribution:
    """How long each triple was kept while keeping became dearer.

    Every triple's messages are multiplied by a mask σ(m) in 0 .. 1, one for the triple in all layers, and Adam
    looks for the mask that keeps the answer cheaply:

        loss = - log p(answer | mask) + price · Σ σ(m)

    One price suits no two questions: too low, and all masks end at one; too high, and all at nothing. So the price
    grows from step to step, and the importance of a triple is its mean mask on the way, less that of a triple which
    nothing reads and which only pays. Negative is what was given up faster than that: it speaks against the answer.

    After Ying et al., "GNNExplainer", 2019, whose mask has one price and begins at random; here nothing is random.
    """
    reach = question.reach
    # The last mask belongs to no triple: it shows what the price alone does.
    logits = reach.field.layers[0].weight.new_zeros(len(reach) + 1).requires_grad_()
    optimizer = torch.optim.Adam([logits], lr=MASK_RATE * MASK_STEPS / steps)  # fewer steps go as far
    kept = torch.zeros_like(logits)
    for price in np.geomspace(FIRST_PRICE, LAST_PRICE, steps).tolist():
        mask = torch.sigmoid(logits)
        kept += mask.detach() / steps
        answer = question.log_probability(question.output(reach.weighted(mask[:-1])))
        (logits.grad,) = torch.autograd.grad(price * mask.sum() - answer, [logits])
        optimizer.step()
        on_step()
    # A triple has one mask for all its edges: each gets an equal part of its importance, a self-loop none.
    every = np.append((kept[:-1] - kept[-1]).double().cpu().numpy(), 0.0)
    places = [place.cpu().numpy() for place in reach.place]
    count = np.bincount(np.concatenate(places), minlength=len(every))
    return Attribution(reach, tuple(every[place] / count[place] for place in places), None)


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
