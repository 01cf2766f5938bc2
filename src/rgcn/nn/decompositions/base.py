"""`Decomposition`, the interface of ways to write the matrices W_r, and the cost model that orders their evaluation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import ClassVar, Literal, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from rgcn.adjacency import EdgeStructure, RelationalAdjacency
from rgcn.config import LinkModelConfig, NodeModelConfig
from rgcn.config.fields import HasOptions, component_title
from rgcn.errors import ConfigError
from rgcn.kernels import gather_sum
from rgcn.kernels.sparse import Pairs, SparsePattern, constant_when_compiled, narrow, structure_for
from rgcn.nn.initialization import Initializer, WeightShape
from rgcn.nn.row_tables import RowTable
from rgcn.plugins import DECOMPOSITIONS

Order = Literal["horizontal", "vertical", "edgewise"]
Evaluation = Literal["auto", "horizontal", "vertical", "edgewise"]

# Bytes that an edgewise evaluation may move. It moves a matrix for each edge about six times, so it may hold 1 GiB.
MAX_EDGEWISE_BYTES = 6 << 30
NUMBER_BYTES = 4  # of a number, and of an index


@dataclass(frozen=True)
class Cost:
    """The cost of an order of evaluation, computed from shapes, so that a layer can choose before it computes.

    A layer is a chain of stages, each a primitive of `rgcn.kernels` or a product of matrices: the methods below. Each
    counts one forward and one backward pass, since training does both. Gradients of edge weights and structures that
    are cached are not counted. The gradient of the input is, although a first layer over constant features does not
    need it.

    Attributes:
        operations: Multiply-adds, two floating-point operations each.
        bytes: Every operand read once and every result written once, with two exceptions. Rows gathered through an
            index are read once for each entry, because they are scattered over memory. Pairs sorted by node read their
            node's rows once, because these stay in the cache.
    """

    operations: int
    bytes: int

    # Multiply-adds done in the time it takes to move a byte. Two cores reach 95 billion a second (190 GFLOP/s) and
    # 36 GB/s: 2.6. An H200 reaches about 25 trillion a second (50 TFLOP/s in float32) and 4 TB/s: 6. Only the order of
    # two costs matters, so one constant between them serves both.
    OPERATIONS_PER_BYTE = 4.0

    @property
    def total(self) -> float:
        """The time in units of moving one byte, if computing and moving never overlap: at most twice the truth."""
        return self.operations / self.OPERATIONS_PER_BYTE + self.bytes

    def __add__(self, other: Cost) -> Cost:
        """Add the costs of two stages."""
        return Cost(self.operations + other.operations, self.bytes + other.bytes)

    def __rmul__(self, times: int) -> Cost:
        """Return the cost of repeating a stage."""
        return Cost(times * self.operations, times * self.bytes)

    @classmethod
    def gather_sum(cls, rows: int, columns: int, entries: int, dim: int, weighted: bool = True) -> Cost:
        """Return the cost of a sparse matrix `[rows, columns]` times `[columns, dim]`, and its transpose backward.

        In each direction an entry reads a row, its column and its value; a row reads its pointer and writes its sum.
        """
        numbers = 2 * entries * (dim + 1 + weighted) + (rows + columns) * (1 + dim)
        return cls(2 * entries * dim, numbers * NUMBER_BYTES)

    @classmethod
    def entry_dot(cls, entries: int, dim: int) -> Cost:
        """Return the cost of ⟨left[i], right[j]⟩ for each entry: the gradient of learned values of `gather_sum`."""
        return cls(entries * dim, entries * (2 * dim + 3) * NUMBER_BYTES)

    @classmethod
    def take_rows(cls, picks: int, rows: int, dim: int) -> Cost:
        """Return the cost of copying rows, and of summing their gradients."""
        return cls(picks * dim, (picks * (3 * dim + 2) + rows * (1 + dim)) * NUMBER_BYTES)

    @classmethod
    def grouped_product(cls, pairs: int, relations: int, num_blocks: int, rows: int, columns: int) -> Cost:
        """Return the cost of multiplying each pair with its relation's blocks `[num_blocks, rows, columns]`.

        Forward, backward for the rows and backward for the blocks each touch the inputs, the outputs and the blocks.
        One relation and one block make it a dense product.
        """
        block = num_blocks * rows * columns
        numbers = pairs * num_blocks * (rows + columns) + relations * (block + 1)
        return cls(3 * pairs * block, 3 * numbers * NUMBER_BYTES)

    @classmethod
    def combined_bases(cls, pairs: int, nodes: int, relations: int, num_bases: int, dim: int) -> Cost:
        """Return the cost of combining bases `[nodes, num_bases, dim]` into pairs, or spreading pairs over bases.

        Forward, backward for that operand and backward for the coefficients each touch the bases, the pairs' rows, the
        coefficients, the pairs' relations and the pointers of the nodes.
        """
        numbers = nodes * (num_bases * dim + 1) + pairs * (dim + 1) + relations * num_bases
        return cls(3 * pairs * num_bases * dim, 3 * numbers * NUMBER_BYTES)

    @classmethod
    def scaled_sum(cls, targets: int, sources: int, relations: int, edges: int, dim: int) -> Cost:
        """Return the cost of Σ value · scale[relation] ⊙ x[source]; backward one pass for x and one for the scales.

        An edge multiplies twice for each number. It reads one row in a sum over targets or sources (the few scales stay
        in the cache), two in the sum over relations; and two indices and its value.
        """
        numbers = edges * (4 * dim + 9) + 2 * relations * dim + (targets + sources + relations) * (1 + dim)
        return cls(3 * 2 * edges * dim, numbers * NUMBER_BYTES)


class RelationWeights(nn.Module, ABC):
    """The matrices W_r of one layer, in whatever form they are stored.

    All orders of evaluation compute the same Σ_r A_r X W_r, from x `[num_sources, in]` to `[num_targets, out]`:

    - horizontal: project each (relation, source) pair that occurs, then sum:  [A_1 … A_R] · [X W_1; …; X W_R]
    - vertical: sum into each (relation, target) pair that occurs, then project:  Σ_r (A_r X) W_r
    - edgewise: treat each edge as a pair of its own, for edges that are used once and not worth sorting

    None ever holds num_relations × num_nodes × dim numbers.

    Attributes:
        structure_fields: What each order reads from an `EdgeStructure`. It is computed and cached there before a graph
            is compiled, because a compiler cannot.
    """

    structure_fields: ClassVar[Mapping[Order, tuple[str, ...]]]

    @abstractmethod
    def horizontal(self, x: Tensor, adjacency: RelationalAdjacency) -> Tensor:
        """Project, then sum."""

    @abstractmethod
    def vertical(self, x: Tensor, adjacency: RelationalAdjacency) -> Tensor:
        """Sum, then project."""

    @abstractmethod
    def edgewise(self, x: Tensor, adjacency: RelationalAdjacency) -> Tensor:
        """Compute the message of each edge, then sum."""

    @abstractmethod
    def cost(self, order: Order, structure: EdgeStructure) -> Cost:
        """Return the cost of a forward and a backward pass in this order over these edges."""

    @abstractmethod
    def dense(self) -> Tensor:
        """Return all matrices `[num_relations, in, out]`, for inspection and tests."""

    def forward(self, x: Tensor, adjacency: RelationalAdjacency, order: Evaluation = "auto") -> Tensor:
        """Compute Σ_r A_r X W_r: x `[num_sources, in]` → `[num_targets, out]`."""
        if torch.compiler.is_compiling():
            order = self.compiled_order(adjacency.structure.handle, order)
        elif order == "auto":
            # The id of a freed module may occur again; its order is slower at worst.
            chosen = adjacency.structure.derived.setdefault(RelationWeights, {})
            order = chosen.get(id(self)) or chosen.setdefault(id(self), self.cheapest(adjacency.structure))
        out: Tensor = getattr(self, order)(x, adjacency)
        return out

    @constant_when_compiled
    def compiled_order(self, structure_word: str, order: Evaluation) -> Order:
        """Choose the order to compile, and compute what it reads. Runs uncompiled while a graph is traced."""
        structure = structure_for(EdgeStructure, structure_word)
        chosen = self.cheapest(structure) if order == "auto" else order
        for name in self.structure_fields[chosen]:
            attrgetter(name)(structure)
        return chosen

    def cheapest(self, structure: EdgeStructure) -> Order:
        """Return the order with the lowest cost; horizontal if equal.

        Edges that are used for one step are evaluated edgewise unless that takes too much memory, because counting
        their pairs would cost as much as it saves and a GPU would have to be waited for. The edges of a batch are
        sorted as the vertical order needs them, so that counting other pairs would cost more than it saves.
        """
        if structure.is_batch:
            return "vertical"
        if structure.transient and self.cost("edgewise", structure).bytes < MAX_EDGEWISE_BYTES:
            return "edgewise"
        is_vertical = self.cost("vertical", structure).total < self.cost("horizontal", structure).total
        return "vertical" if is_vertical else "horizontal"


class Lookup(NamedTuple):
    """Where the rows that a structure's edges read are in a table.

    While a graph is compiled, `pattern` and `pairs` are the names of the objects.

    Attributes:
        in_trained: True if the trained part of the table has all of them.
        pattern: `[num_targets, num_rows]` or `[num_targets, num_pairs]`, with one entry for each edge.
        pairs: The (relation, row) pairs, if rows are computed for them.
        batch_rows: The rows that a batch reads, ascending, int64 `[num_rows]`: the pattern refers to these only. None
            for the whole table.
    """

    in_trained: bool
    pattern: SparsePattern | str
    pairs: Pairs | str | None = None
    batch_rows: Tensor | None = None

    def table(self, rows: RowTable) -> Tensor:
        """Return the rows that the pattern or the pairs refer to."""
        if self.batch_rows is not None:
            return rows.take_trained(self.batch_rows)
        return rows.trained if self.in_trained else rows.whole()

    @staticmethod
    def locate(rows: RowTable, position: Tensor, structure: EdgeStructure) -> tuple[Tensor, int, Tensor | None]:
        """Return the index of each position in the table that is read, the table's length, and its `batch_rows`."""
        if structure.is_batch and rows.all_trained:
            batch_rows, index = torch.unique(position, return_inverse=True)
            return index, len(batch_rows), batch_rows
        return position, rows.table_for(position).shape[0], None


class LookupModule(nn.Module, ABC):
    """A module that reads rows of a table, which follow from the edges and the ids of their source nodes."""

    @abstractmethod
    def locate_rows(self, structure: EdgeStructure, nodes: Tensor) -> Lookup:
        """Find the rows of these edges; nodes has the id of each source node, int64 `[num_sources]`."""

    def lookup(self, structure: EdgeStructure, nodes: Tensor | None) -> Lookup:
        """Return the cached result of `locate_rows`; nodes None means that source i is node i."""
        if not torch.compiler.is_compiling():
            return self._cached_lookup(structure, nodes)
        # The id makes the compiler trace again for other nodes, whose rows differ.
        number = 0 if nodes is None else id(nodes)
        in_trained, pattern, pairs = self.compiled_lookup(structure.handle, nodes, number).split(",")
        return Lookup(in_trained == "True", pattern, pairs or None)

    @constant_when_compiled
    def compiled_lookup(self, structure_word: str, nodes: Tensor | None, number: int) -> str:
        """Return a lookup as text. Runs uncompiled while a graph is traced."""
        found = self._cached_lookup(structure_for(EdgeStructure, structure_word), nodes)
        assert isinstance(found.pattern, SparsePattern)
        pairs = found.pairs.handle if isinstance(found.pairs, Pairs) else ""
        return f"{found.in_trained},{found.pattern.handle},{pairs}"

    def _cached_lookup(self, structure: EdgeStructure, nodes: Tensor | None) -> Lookup:
        cache = structure.derived.setdefault(LookupModule, WeakKeyDictionary())
        found: Lookup
        if (cached := cache.get(self)) is not None:
            previous, found = cached  # a structure nearly always comes with the same nodes
            if previous is nodes or (previous is not None and nodes is not None and torch.equal(previous, nodes)):
                return found
        ids = torch.arange(structure.num_sources, device=structure.source.device) if nodes is None else nodes
        found = self.locate_rows(structure, ids)
        cache[self] = nodes, found
        return found


class OneHotWeights(LookupModule):
    """The matrices W_r of a layer for one-hot nodes: X = I, and row j of W_r belongs to node j.

    H[i] = Σ over edges (i ← j, r) of A_r[i, j] · W_r[j] is a lookup. Only rows whose (relation, node) occurs are held.
    """

    @abstractmethod
    def forward(self, adjacency: RelationalAdjacency, nodes: Tensor | None = None) -> Tensor:
        """Compute Σ_r A_r W_r, `[num_targets, out]`.

        Args:
            adjacency: The edges.
            nodes: The id of each source node, int64 `[num_sources]`; None for all nodes in order.
        """

    @abstractmethod
    def dense(self) -> Tensor:
        """Return all matrices `[num_relations, num_nodes, out]`, zero where a pair never occurs."""


class SelfLoopRows(RowTable, LookupModule):
    """The self-loop's own matrix for one-hot nodes: a row for each node."""

    def locate_rows(self, structure: EdgeStructure, nodes: Tensor) -> Lookup:
        """Find the rows of the nodes with a self-loop."""
        loops = structure.self_loop_split.loops
        position, size, batch_rows = Lookup.locate(self, self.position[nodes[loops.column.long()]], structure)
        pattern = SparsePattern(loops.pointer, narrow(position, size), size)
        return Lookup(size == len(self.trained), pattern, batch_rows=batch_rows)

    def forward(self, adjacency: RelationalAdjacency, nodes: Tensor | None = None) -> Tensor:
        """Return each target's own row times the weight of its self-loop, `[num_targets, out]`."""
        found = self.lookup(adjacency.structure, nodes)
        return gather_sum(found.pattern, adjacency.split_self_loops()[2], found.table(self))


@dataclass(frozen=True)
class OneHotPairs:
    """The (relation, node) pairs that occur in a graph, for which a one-hot layer has rows.

    Attributes:
        relation: Relation of each pair, ascending, int64 `[num_pairs]`.
        node: Node of each pair, ascending within a relation, int64 `[num_pairs]`.
        is_trained: Whether training reaches the pair, bool `[num_pairs]`.
        num_relations: Number of relations, with inverses and the self-loop.
        num_nodes: Number of nodes.
    """

    relation: Tensor
    node: Tensor
    is_trained: Tensor
    num_relations: int
    num_nodes: int

    @classmethod
    def of(cls, adjacency: RelationalAdjacency, training: tuple[RelationalAdjacency, Tensor] | None) -> OneHotPairs:
        """Find the pairs of a whole graph; `training` is the first layer of a receptive field and its input nodes."""
        pairs = adjacency.structure.source_pairs
        relation, node = pairs.relation.cpu().long(), pairs.node.cpu().long()
        is_trained = torch.ones(len(pairs), dtype=torch.bool)
        if training is not None:
            first, inputs = training
            reached = first.structure.source_pairs
            keys = relation * adjacency.num_sources + node  # int64: the product may be large
            nodes = inputs.cpu()[reached.node.cpu().long()]
            is_trained = torch.isin(keys, reached.relation.cpu().long() * adjacency.num_sources + nodes)
        return cls(relation, node, is_trained, adjacency.num_relations, adjacency.num_sources)

    def without_last_relation(self) -> OneHotPairs:
        """Return the pairs of all relations but the last."""
        last = self.num_relations - 1
        keep = self.relation != last
        return OneHotPairs(self.relation[keep], self.node[keep], self.is_trained[keep], last, self.num_nodes)

    def trained_nodes(self, relation: int | None = None) -> Tensor:
        """Return which nodes have a trained pair, of one relation if not None, bool `[num_nodes]`."""
        mask = torch.zeros(self.num_nodes, dtype=torch.bool)
        mask[self.node[self.is_trained if relation is None else self.is_trained & (self.relation == relation)]] = True
        return mask


class Decomposition(HasOptions, ABC):
    """A way to write the matrices W_r with fewer parameters; creates the modules that hold them.

    Register a decomposition in `rgcn.plugins.DECOMPOSITIONS`, or pass the class or its dotted name as
    `model.decomposition`. It defines `num_parameters` and `weights`: a `MatrixWeights` that computes the matrices, or a
    `RelationWeights` that evaluates Σ_r A_r X W_r in its own way. `tests/strangers/test_stranger_decomposition.py` is a
    complete example.

    Attributes:
        kernels: Names of the kernels to compile before training.
        self_loop_apart: Whether the self-loop has a full matrix of its own, outside the decomposition.
    """

    kernels: ClassVar[tuple[str, ...]] = ("grouped_product", "grouped_outer")
    self_loop_apart: bool = False

    @classmethod
    def build(cls, model: NodeModelConfig | LinkModelConfig, out: int, is_output: bool = False) -> Decomposition:
        """Create the decomposition that a configuration describes.

        Args:
            model: The model's configuration.
            out: Output dimension of the convolution.
            is_output: Whether the convolution computes the logits of the classes.
        """
        return cls(**cls.read_options(model.convolution_options).model_dump())

    @classmethod
    def describe(cls, model: NodeModelConfig | LinkModelConfig) -> str:
        """Describe the matrices for reports."""
        return component_title(cls)

    @abstractmethod
    def num_parameters(self, num_relations: int, in_features: int, out_features: int) -> int:
        """Count the parameters of all matrices `[num_relations, in_features, out_features]`."""

    @abstractmethod
    def weights(self, shape: WeightShape, init: Initializer, generator: torch.Generator) -> RelationWeights:
        """Create the matrices (num_relations, in_features, out_features) with initial weights."""

    def one_hot_weights(
        self, pairs: OneHotPairs, out_features: int, init: Initializer, generator: torch.Generator
    ) -> OneHotWeights:
        """Create the matrices of a one-hot layer.

        Raises:
            ConfigError: If the decomposition has none.
        """
        name = component_title(DECOMPOSITIONS.name_of(type(self)))
        raise ConfigError(
            f"the decomposition {name} needs node vectors: use embeddings or features instead of one-hot nodes"
        )
