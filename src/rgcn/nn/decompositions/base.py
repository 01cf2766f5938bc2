"""What every decomposition of the relations' weight matrices offers to the layer."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import torch
from torch import Tensor, nn

from rgcn.adjacency import EdgeStructure, RelationalAdjacency
from rgcn.nn.initialization import Initializer

Order = Literal["horizontal", "vertical", "edgewise"]

PAIRED: tuple[Order, Order] = ("horizontal", "vertical")
# Numbers that an edgewise evaluation may hold: 1 GiB of float32.
LARGEST_EDGEWISE = 2**28


@dataclass(frozen=True)
class WeightShape:
    """Sizes of a stack of weight matrices W_r: [relations, in, out]."""

    relations: int
    in_features: int
    out_features: int


@dataclass(frozen=True)
class Cost:
    """What one forward pass does: multiplications with additions, and numbers moved through memory."""

    operations: float
    numbers: float

    # Measured on two cores: about 190 GFLOP/s in large products and 36 GB/s, so that moving a number costs what 20
    # multiply-adds do. Small grouped products reach less; only the order of the two costs matters here.
    OPERATIONS_PER_NUMBER = 20.0

    @property
    def total(self) -> float:
        return self.operations / self.OPERATIONS_PER_NUMBER + self.numbers


class RelationWeights(nn.Module, ABC):
    """The matrices W_r of one layer, in whatever form they are held.

    Both orders compute the same Σ_r A_r X W_r:
      horizontal  project each (relation, source) pair that occurs, then mix:  [A_1 … A_R] · [X W_1; …; X W_R]
      vertical    mix into each (relation, target) pair that occurs, then project:  Σ_r (A_r X) W_r
      edgewise    treat each edge as a pair of its own: nothing to sort or count first, for edges used only once
    None ever holds relations × nodes × width.
    """

    @abstractmethod
    def horizontal(self, x: Tensor, adjacency: RelationalAdjacency) -> Tensor:
        """x [sources, in] → [targets, out]."""

    @abstractmethod
    def vertical(self, x: Tensor, adjacency: RelationalAdjacency) -> Tensor:
        """x [sources, in] → [targets, out]."""

    @abstractmethod
    def edgewise(self, x: Tensor, adjacency: RelationalAdjacency) -> Tensor:
        """x [sources, in] → [targets, out]."""

    @abstractmethod
    def cost(self, order: Order, adjacency: RelationalAdjacency) -> Cost:
        """What the order costs on this adjacency."""

    @abstractmethod
    def dense(self) -> Tensor:
        """[relations, in, out]: for looking and testing."""

    def forward(self, x: Tensor, adjacency: RelationalAdjacency, order: Order | Literal["auto"] = "auto") -> Tensor:
        chosen = self.cheapest(adjacency) if order == "auto" else order
        evaluate = {"horizontal": self.horizontal, "vertical": self.vertical, "edgewise": self.edgewise}
        return evaluate[chosen](x, adjacency)

    def cheapest(self, adjacency: RelationalAdjacency) -> Order:
        """The order that costs less; horizontal when equal.

        Where edges serve one step, counting their pairs would cost as much as it saves, and on a GPU it would have to
        be waited for.
        """
        if adjacency.structure.transient and self.cost("edgewise", adjacency).numbers < LARGEST_EDGEWISE:
            return "edgewise"
        horizontal, vertical = (self.cost(order, adjacency).total for order in PAIRED)
        return "horizontal" if horizontal <= vertical else "vertical"


Prepared = TypeVar("Prepared")


class OneHotWeights(nn.Module, ABC, Generic[Prepared]):
    """The matrices W_r of a layer without input features: X = I, and row j of W_r belongs to node j.

    H[i] = Σ over edges (i ← j, r) of A_r[i, j] · W_r[j]: a lookup. Only rows whose (relation, node) occurs are held.
    Where the edges' rows are is found once for each structure and kept as long as the structure lives.
    """

    def __init__(self) -> None:
        super().__init__()
        self._prepared: weakref.WeakKeyDictionary[EdgeStructure, tuple[Tensor, Prepared]] = weakref.WeakKeyDictionary()

    def prepared(self, structure: EdgeStructure, nodes: Tensor) -> Prepared:
        """What `prepare` found for these edges and nodes."""
        known = self._prepared.get(structure)
        if known is not None and (known[0] is nodes or torch.equal(known[0], nodes)):
            return known[1]
        found = self.prepare(structure, nodes)
        self._prepared[structure] = (nodes, found)
        return found

    @abstractmethod
    def prepare(self, structure: EdgeStructure, nodes: Tensor) -> Prepared:
        """Where the rows of these edges stand, given which node each source is."""

    @abstractmethod
    def forward(self, adjacency: RelationalAdjacency, nodes: Tensor) -> Tensor:
        """nodes int64 [sources]: which node each source of the adjacency is → [targets, out]."""

    @abstractmethod
    def dense(self) -> Tensor:
        """[relations, nodes, out] with zero where a pair never occurs: for looking and testing."""


@dataclass(frozen=True)
class OneHotSpace:
    """What a one-hot layer is built for: the pairs (relation, node) of a graph, and which of them training reaches.

    relation, node int64 [P]: the pairs that occur, sorted by relation, then node; reached bool [P].
    """

    relation: Tensor
    node: Tensor
    reached: Tensor
    num_relations: int
    num_nodes: int

    @classmethod
    def of(cls, adjacency: RelationalAdjacency, training: tuple[RelationalAdjacency, Tensor] | None) -> OneHotSpace:
        """The pairs of a whole graph; `training` is the first layer of a receptive field and its input nodes."""
        pairs = adjacency.structure.source_pairs
        relation, node = pairs.relation.cpu(), pairs.node.cpu()
        reached = torch.ones(len(pairs), dtype=torch.bool)
        if training is not None:
            first, inputs = training
            seen = first.structure.source_pairs
            keys = relation * adjacency.num_sources + node
            reached = torch.isin(keys, seen.relation.cpu() * adjacency.num_sources + inputs.cpu()[seen.node.cpu()])
        return cls(relation, node, reached, adjacency.num_relations, adjacency.num_sources)

    def without_relation(self, relation: int) -> OneHotSpace:
        """The pairs of the other relations; relations above shift down."""
        keep = self.relation != relation
        shifted = self.relation[keep] - (self.relation[keep] > relation).long()
        return OneHotSpace(shifted, self.node[keep], self.reached[keep], self.num_relations - 1, self.num_nodes)

    def reached_nodes(self) -> Tensor:
        """bool [nodes]: those with a pair that training reaches."""
        out = torch.zeros(self.num_nodes, dtype=torch.bool)
        out[self.node[self.reached]] = True
        return out


class Decomposition(ABC):
    """A way of writing the W_r with fewer numbers; makes the modules that hold them."""

    self_loop_apart: bool = False
    """Whether the self-loop has a full matrix of its own, outside the decomposition."""

    @abstractmethod
    def weights(self, shape: WeightShape, init: Initializer, generator: torch.Generator) -> RelationWeights:
        """Weights for inputs of `shape.in_features` numbers a node."""

    @abstractmethod
    def one_hot_weights(
        self, space: OneHotSpace, out_features: int, init: Initializer, generator: torch.Generator
    ) -> OneHotWeights[Any]:
        """Weights for one-hot inputs."""
