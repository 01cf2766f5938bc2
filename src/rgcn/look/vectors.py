"""The vectors a model has learned: of nodes, a part of them at a time, and of relations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rgcn.predict import OpenModel

# A part is small beside a graph's weights, and large beside the cost of looking up what its nodes hear.
NODES_AT_ONCE = 1 << 15

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class NodeVectors:
    """The vectors of a model's nodes.

    layer  of a model with states layer by layer, the layer after which they are taken: -2 the last hidden one, -1 the
           last
    """

    opened: OpenModel
    layer: int | None = None

    @classmethod
    def of(cls, opened: OpenModel, layer: int | None = None) -> NodeVectors:
        """layer None: what tells most, the last hidden one of a classifier."""
        return cls(opened, opened.model.vector_layer(layer))

    @property
    def width(self) -> int:
        """Numbers a node."""
        return int(self.take(np.zeros(1, dtype=np.int64)).shape[1])

    @property
    def words(self) -> str:
        """What the vectors are, in a few words."""
        return self.opened.model.vector_words(self.layer)

    def take(self, nodes: Integers) -> Floats:
        """[n, width]: the vectors of some nodes, at once."""
        return self.opened.model.vectors(nodes, self.layer)

    def gather(self, nodes: Integers, on_nodes: Callable[[int], None] | None = None) -> Floats:
        """The same for any number of nodes, computed a part at a time."""
        parts = []
        for part in in_parts(nodes):
            parts.append(self.take(part))
            if on_nodes is not None:
                on_nodes(len(part))
        return np.concatenate(parts)


def in_parts(nodes: Integers) -> Iterator[Integers]:
    """Node ids, `NODES_AT_ONCE` at a time."""
    for first in range(0, len(nodes), NODES_AT_ONCE):
        yield nodes[first : first + NODES_AT_ONCE]


@dataclass(frozen=True, eq=False)
class RelationVectors:
    """What a model has learned of each relation.

    forward  float32 [R, width]
    inverse  float32 [R, width] where the inverse has weights of its own, as in a classifier's layers; else None
    words    what the numbers are
    """

    forward: Floats
    inverse: Floats | None
    words: str

    @property
    def whole(self) -> Floats:
        """[R, width or twice that]: both directions of a relation, one behind the other."""
        return self.forward if self.inverse is None else np.concatenate([self.forward, self.inverse], axis=1)


def relation_vectors(opened: OpenModel) -> RelationVectors:
    """What a model holds of its relations; DataError where that is nothing to be compared."""
    forward, inverse, words = opened.model.relation_vectors()
    return RelationVectors(forward.numpy(), None if inverse is None else inverse.numpy(), words)
