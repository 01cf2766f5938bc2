"""The triples that can have a say in an answer, and the graph with some of them gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rgcn.adjacency import ReceptiveField, RelationalAdjacency

Flags = NDArray[np.bool_]
SELF_LOOP = 2  # as `EdgeStructure.direction` has it


@dataclass(frozen=True, eq=False)
class Reach:
    """Everything L layers read to answer for some nodes, seen as triples.

    asked    the nodes the answer is about
    field    the edges of each layer, in the layer's own numbering
    triples  int64 [T, 3]: the triples in reach (subject, relation, object)
    numbers  int64 [T]: their numbers in the operator
    place    for each layer int64 [E]: which of the T an edge comes from; T for a self-loop

    A triple and its inverse are one thing to keep or to drop, in all layers alike.
    """

    asked: tuple[int, ...]
    field: ReceptiveField
    triples: NDArray[np.int64]
    numbers: NDArray[np.int64]
    place: tuple[Tensor, ...]

    @classmethod
    def of(
        cls, adjacency: RelationalAdjacency, triples: NDArray[np.int64], asked: Sequence[int], num_layers: int
    ) -> Reach:
        """triples int64 [all, 3]: those the operator was made of, in its order."""
        distinct = tuple(dict.fromkeys(asked))
        field = ReceptiveField.of(adjacency, torch.tensor(distinct, device=adjacency.device), num_layers)
        origin = torch.cat([layer.structure.origin for layer in field.layers])
        numbers = torch.unique(origin[origin < adjacency.structure.num_triples])
        # A self-loop's number is beyond all triples': it finds its place behind them.
        place = tuple(torch.searchsorted(numbers, layer.structure.origin) for layer in field.layers)
        chosen = numbers.cpu().numpy()
        return cls(distinct, field, triples[chosen], chosen, place)

    def __len__(self) -> int:
        return len(self.triples)

    def weighted(self, factor: Tensor, loops: float = 1.0) -> ReceptiveField:
        """Each triple's messages times its factor [T], nothing normalized again. Differentiable in `factor`."""
        every = torch.cat([factor, factor.new_full((1,), loops)])
        layers = (
            replace(layer, weight=layer.weight * every[place])
            for layer, place in zip(self.field.layers, self.place, strict=True)
        )
        return replace(self.field, layers=tuple(layers))

    def silent(self, loops: float = 1.0) -> ReceptiveField:
        """No triple's message at all."""
        return self.weighted(self.field.layers[0].weight.new_zeros(len(self)), loops)

    def keeping(self, keep: Flags) -> ReceptiveField:
        """The graph with only the triples that are kept, normalized as if the others had never been; loops stay."""
        device = self.field.inputs.device
        every = torch.from_numpy(np.append(keep, True)).to(device)
        layers = (
            layer.reweighted(layer.raw * every[place].to(layer.raw.dtype))
            for layer, place in zip(self.field.layers, self.place, strict=True)
        )
        return replace(self.field, layers=tuple(layers))

    @cached_property
    def ends(self) -> tuple[tuple[NDArray[np.int64], NDArray[np.int64]], ...]:
        """For each layer (source, target) [E]: the nodes that each edge comes from and leads to."""
        triples, ends = np.concatenate([self.triples, np.zeros((1, 3), dtype=np.int64)]), []
        for layer, place in zip(self.field.layers, self.place, strict=True):
            direction, origin = (of.cpu().numpy() for of in (layer.structure.direction, layer.structure.origin))
            subject, _, object_ = triples[place.cpu().numpy()].T
            node, kinds = origin - layer.structure.num_triples, [direction == SELF_LOOP, direction == 0]
            ends.append((np.select(kinds, [node, subject], object_), np.select(kinds, [node, object_], subject)))
        return tuple(ends)

    @cached_property
    def hop(self) -> NDArray[np.int64]:
        """[T]: 1 for a triple that touches an asked node, 2 for one that touches its neighbor, and so on."""
        subject, object_ = self.triples[:, 0], self.triples[:, 2]
        hop = np.zeros(len(self), dtype=np.int64)
        near = np.array(self.asked, dtype=np.int64)
        for distance in range(1, len(self.field.layers) + 1):
            touching = (hop == 0) & (np.isin(subject, near) | np.isin(object_, near))
            hop[touching] = distance
            near = np.unique(np.concatenate([near, subject[touching], object_[touching]]))
        return hop
