"""Numbers become names: what a method found, as people read it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rgcn.explain.attribution import Attribution
from rgcn.explain.explanation import ExplainedEdge, ExplainedNeighbor, ExplainedPath, Step
from rgcn.explain.paths import Path
from rgcn.explain.phrases import Named
from rgcn.predict import OpenModel


class Naming:
    """Edges, neighbors and paths of an attribution by name; `itself` is the place of the triple asked about."""

    def __init__(self, opened: OpenModel, found: Attribution, itself: int | None = None) -> None:
        self.opened, self.found, self.itself = opened, found, itself
        self.total = float(np.abs(found.triples).sum()) or 1.0

    def edges(self, places: NDArray[np.int64]) -> tuple[ExplainedEdge, ...]:
        reach, importance = self.found.reach, self.found.triples
        return tuple(
            ExplainedEdge(
                *self._triple(place),
                importance=float(importance[place]),
                share=abs(float(importance[place])) / self.total,
                hop=int(reach.hop[place]),
                itself=place == self.itself,
            )
            for place in places.tolist()
        )

    def neighbors(self, most: int) -> tuple[ExplainedNeighbor, ...]:
        every = self.found.neighbors()
        total = sum(abs(importance) for _, importance in every) or 1.0
        return tuple(
            ExplainedNeighbor(self.opened.describe(node), importance, abs(importance) / total)
            for node, importance in every[:most]
            if importance
        )

    def path(self, path: Path) -> ExplainedPath:
        steps, here = [], path.start
        for place in path.triples:
            subject, _, object_ = self.found.reach.triples[place].tolist()
            forward = subject == here
            steps.append(Step(*self._triple(place), forward=forward))
            here = object_ if forward else subject
        return ExplainedPath(tuple(steps), path.importance)

    def _triple(self, place: int) -> tuple[Named, Named, Named]:
        subject, relation, object_ = self.found.reach.triples[place].tolist()
        return self.opened.describe(subject), self.opened.describe_relation(relation), self.opened.describe(object_)
