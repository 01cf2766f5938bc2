"""How much each edge in reach mattered."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rgcn.explain.reach import Reach

Numbers = NDArray[np.float64]
LOUD_ENOUGH = 0.05


@dataclass(frozen=True, eq=False)
class Attribution:
    """What a method found.

    edges  for each layer [E]: the importance of its edges, signed; zero for self-loops
    own    what the asked nodes bring themselves, or None where the method does not say
    """

    reach: Reach
    edges: tuple[Numbers, ...]
    own: float | None

    @cached_property
    def triples(self) -> Numbers:
        """[T]: the importance of each triple, its edges in all layers and both directions added up."""
        total = np.zeros(len(self.reach) + 1)
        for importance, place in zip(self.edges, self.reach.place, strict=True):
            np.add.at(total, place.cpu().numpy(), importance)
        return total[:-1]

    def supporting(self, most: int) -> NDArray[np.int64]:
        """Places of the triples that speak for the answer, most important first."""
        order = np.argsort(-self.triples, kind="stable")[:most]
        return order[self.triples[order] > 0]

    def opposing(self, most: int) -> NDArray[np.int64]:
        """Places of the triples that speak against it, likewise.

        Far below the loudest triple, what seems to speak against an answer is noise of the method.
        """
        order = np.argsort(self.triples, kind="stable")[:most]
        loud = LOUD_ENOUGH * float(np.abs(self.triples).max(initial=0.0))
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
