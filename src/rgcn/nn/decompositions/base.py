"""What every decomposition of the relations' weight matrices offers to the layer."""

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
from rgcn.config.fields import HasOptions, introduced
from rgcn.errors import ConfigError
from rgcn.kernels import gather_sum
from rgcn.kernels.sparse import Pairs, SparsePattern, computed_once, constant_when_compiled, named, narrow
from rgcn.nn.initialization import Initializer, WeightShape
from rgcn.nn.row_tables import RowTable
from rgcn.plugins import DECOMPOSITIONS

Order = Literal["horizontal", "vertical", "edgewise"]
Evaluation = Literal["auto", "horizontal", "vertical", "edgewise"]

# Bytes that an edgewise evaluation may move. It moves a matrix for each edge about six times: it may hold 1 GiB.
LARGEST_EDGEWISE = 6 << 30
NUMBER = INDEX = 4  # bytes that one takes


@dataclass(frozen=True)
class Cost:
    """What an order of evaluation costs: counted from shapes, so that the layer can choose before it computes anything.

    A layer is a chain of stages, each a primitive of `rgcn.kernels` or a product of matrices: the methods below. One
    forward and one backward pass are counted together, since training does both. For each stage, in each direction:

    operations  multiplications with an addition, two floating-point operations each
    bytes       every operand read once and every result written once, with these two exceptions. Rows gathered through
                an index are read once for each entry that asks for them, for they are scattered over memory. Pairs
                sorted by node read their node's rows once, for they stay in the cache

    Not counted: the gradients of edge weights, which are given and not learned, and arrangements made once and kept.
    The input's gradient is counted, although a first layer over fixed features does not need it.
    """

    operations: int
    bytes: int

    # Multiply-adds done in the time it takes to move a byte. Two cores reach 95 billion a second (190 GFLOP/s) and
    # 36 GB/s: 2.6. An H200 reaches about 25 trillion a second (50 TFLOP/s in float32) and 4 TB/s: 6. The two are near
    # enough for one constant between them to serve both: only the order of two costs matters, and where they are so
    # close that 2.6 and 6 disagree, either choice is a good one.
    OPERATIONS_PER_BYTE = 4.0

    @property
    def total(self) -> float:
        """In the time of moving a byte, as if computing and moving never overlapped: at most twice the truth."""
        return self.operations / self.OPERATIONS_PER_BYTE + self.bytes

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.operations + other.operations, self.bytes + other.bytes)

    def __rmul__(self, times: int) -> Cost:
        return Cost(times * self.operations, times * self.bytes)

    @classmethod
    def gather_sum(cls, rows: int, columns: int, entries: int, width: int, valued: bool = True) -> Cost:
        """A sparse matrix [rows, columns] times [columns, width]; backward its transpose times the gradient.

        In each direction an entry reads a row, its column and its value; a row reads its pointer and writes its sum.
        """
        of_entry = width * NUMBER + INDEX + valued * NUMBER
        of_row = INDEX + width * NUMBER
        return cls(2 * entries * width, 2 * entries * of_entry + (rows + columns) * of_row)

    @classmethod
    def entry_dot(cls, entries: int, width: int) -> Cost:
        """⟨left[i], right[j]⟩ of each entry: the gradient of the values of `gather_sum`, where these are learned."""
        return cls(entries * width, entries * (2 * width * NUMBER + 2 * INDEX + NUMBER))

    @classmethod
    def take_rows(cls, picks: int, rows: int, width: int) -> Cost:
        """Rows copied; backward they are summed where they came from."""
        forward = picks * (2 * width * NUMBER + INDEX)
        backward = picks * (width * NUMBER + INDEX) + rows * (INDEX + width * NUMBER)
        return cls(picks * width, forward + backward)

    @classmethod
    def grouped_product(cls, pairs: int, relations: int, num_blocks: int, rows: int, columns: int) -> Cost:
        """A product of each pair with its relation's blocks [K, in, out]; backward one for the rows, one for these.

        A single relation and block: [pairs, in] · [in, out].

        Each of the three touches the pairs' inputs, the pairs' outputs and the blocks.
        """
        block = num_blocks * rows * columns
        numbers = pairs * num_blocks * (rows + columns) + relations * block
        return cls(3 * pairs * block, 3 * (numbers * NUMBER + relations * INDEX))

    @classmethod
    def combined_bases(cls, pairs: int, nodes: int, relations: int, num_bases: int, width: int) -> Cost:
        """Bases [nodes, B, width] combined into pairs, or pairs spread over them: each is the other's gradient.

        Forward, backward for the operand of that width, and backward for the coefficients each touch the bases, the
        pairs' rows, the coefficients, the pairs' relations and where each node's pairs begin.
        """
        numbers = nodes * num_bases * width + pairs * width + relations * num_bases
        return cls(3 * pairs * num_bases * width, 3 * (numbers * NUMBER + (pairs + nodes) * INDEX))

    @classmethod
    def scaled_sum(cls, targets: int, sources: int, relations: int, edges: int, width: int) -> Cost:
        """Σ value · scale[relation] ⊙ x[source] in one pass; backward one for x and one for the scales.

        An edge multiplies twice for each number. It reads one row where the sum runs over targets or sources (the few
        scales stay in the cache and are read once), two where it runs over relations; two indices, and its value.
        """
        of_edge = width * NUMBER + 2 * INDEX + NUMBER
        forward = edges * of_edge + relations * width * NUMBER + targets * (INDEX + width * NUMBER)
        for_x = edges * of_edge + relations * width * NUMBER + sources * (INDEX + width * NUMBER)
        for_scale = edges * (of_edge + width * NUMBER) + relations * (INDEX + width * NUMBER)
        return cls(3 * 2 * edges * width, forward + for_x + for_scale)


class RelationWeights(nn.Module, ABC):
    """The matrices W_r of one layer, in whatever form they are held.

    All orders compute the same Σ_r A_r X W_r, x [sources, in] → [targets, out]:
      horizontal  project each (relation, source) pair that occurs, then mix:  [A_1 … A_R] · [X W_1; …; X W_R]
      vertical    mix into each (relation, target) pair that occurs, then project:  Σ_r (A_r X) W_r
      edgewise    treat each edge as a pair of its own: nothing to sort or count first, for edges used only once
    None ever holds relations × nodes × width.

    reads  what each order reads from a structure, which makes and keeps it: a compiler cannot
    """

    reads: ClassVar[Mapping[Order, tuple[str, ...]]]

    @abstractmethod
    def horizontal(self, x: Tensor, adjacency: RelationalAdjacency) -> Tensor: ...

    @abstractmethod
    def vertical(self, x: Tensor, adjacency: RelationalAdjacency) -> Tensor: ...

    @abstractmethod
    def edgewise(self, x: Tensor, adjacency: RelationalAdjacency) -> Tensor: ...

    @abstractmethod
    def cost(self, order: Order, structure: EdgeStructure) -> Cost:
        """What a forward and a backward pass in this order cost on these edges."""

    @abstractmethod
    def dense(self) -> Tensor:
        """[relations, in, out]: for looking and testing."""

    def forward(self, x: Tensor, adjacency: RelationalAdjacency, order: Evaluation = "auto") -> Tensor:
        if torch.compiler.is_compiling():
            order = self.planned(adjacency.structure.word, order)
        elif order == "auto":
            # Were the id of a module met again, another order would be as right.
            chosen = _orders(adjacency.structure)
            order = chosen.get(id(self)) or chosen.setdefault(id(self), self.cheapest(adjacency.structure))
        out: Tensor = getattr(self, order)(x, adjacency)
        return out

    @constant_when_compiled
    def planned(self, structure_word: str, order: Evaluation) -> Order:
        """The order to compile. Called when a graph is traced, for real: makes what the order will read."""
        structure = named(EdgeStructure, structure_word)
        chosen = self.cheapest(structure) if order == "auto" else order
        for name in self.reads[chosen]:
            attrgetter(name)(structure)
        return chosen

    def cheapest(self, structure: EdgeStructure) -> Order:
        """The order that costs less; horizontal when equal.

        Where edges serve one step, counting their pairs would cost as much as it saves, and on a GPU it would have to
        be waited for: they are evaluated one by one, unless that would hold too much. Edges that last are not, for a
        pair then stands for several edges and its part of the work is done once. A batch's edges stand in the order
        that mixing first wants; to count the other pairs would cost more than either order.
        """
        if structure.batch:
            return "vertical"
        if structure.transient and self.cost("edgewise", structure).bytes < LARGEST_EDGEWISE:
            return "edgewise"
        mixing_first = self.cost("vertical", structure).total < self.cost("horizontal", structure).total
        return "vertical" if mixing_first else "horizontal"


class Lookup(NamedTuple):
    """Where the rows of a structure's edges stand in a table.

    trained  whether the table's trained part holds them all
    pattern  [targets, rows of the table] or [targets, pairs], one entry an edge
    pairs    the (relation, row) pairs, where rows are made from them
    picked   int64, ascending: the rows that a batch reads, which then are all the table there is; None: the whole table

    While a graph is compiled, the words that stand for pattern and pairs.
    """

    trained: bool
    pattern: SparsePattern | str
    pairs: Pairs | str | None = None
    picked: Tensor | None = None

    def table(self, rows: RowTable) -> Tensor:
        if self.picked is not None:
            return rows.picked(self.picked)
        return rows.trained if self.trained else rows.whole()

    @staticmethod
    def among(rows: RowTable, position: Tensor, structure: EdgeStructure) -> tuple[Tensor, int, Tensor | None]:
        """(where each of these rows stands in the table that is read, how long that is, its rows if a batch picks)."""
        if structure.batch and rows.all_trained:
            picked, where = torch.unique(position, return_inverse=True)
            return where, len(picked), picked
        return position, rows.table_for(position).shape[0], None


class LooksUp(nn.Module, ABC):
    """A module that reads rows of a table which follow from a structure and which node each source is."""

    @abstractmethod
    def look(self, structure: EdgeStructure, nodes: Tensor) -> Lookup:
        """Where the rows of these edges stand; nodes int64 [sources]: which node each source is."""

    def lookup(self, structure: EdgeStructure, nodes: Tensor | None) -> Lookup:
        """What `look` found for these edges and nodes (None: source i is node i), once."""
        if not torch.compiler.is_compiling():
            return self._found(structure, nodes)
        # The id of the nodes, so that the graph is compiled again for others: the rows follow from which they are.
        number = 0 if nodes is None else id(nodes)
        trained, pattern, pairs = self.looked_up(structure.word, nodes, number).split(",")
        return Lookup(trained == "True", pattern, pairs or None)

    @constant_when_compiled
    def looked_up(self, structure_word: str, nodes: Tensor | None, number: int) -> str:
        """A lookup in words, found while a graph is traced."""
        found = self._found(named(EdgeStructure, structure_word), nodes)
        assert isinstance(found.pattern, SparsePattern)
        return f"{found.trained},{found.pattern.word},{found.pairs.word if isinstance(found.pairs, Pairs) else ''}"

    def _found(self, structure: EdgeStructure, nodes: Tensor | None) -> Lookup:
        # A structure belongs to one list of nodes nearly always: the last list is remembered.
        kept = _lookups(structure)
        if (known := kept.get(self)) is not None:
            before, found = known
            if before is nodes or (before is not None and nodes is not None and torch.equal(before, nodes)):
                return found
        every = torch.arange(structure.num_sources, device=structure.source.device) if nodes is None else nodes
        found = self.look(structure, every)
        kept[self] = nodes, found
        return found


@computed_once
def _orders(_: EdgeStructure) -> dict[int, Order]:
    """The order that each module chose for these edges, by the module's id."""
    return {}


@computed_once
def _lookups(_: EdgeStructure) -> WeakKeyDictionary[LooksUp, tuple[Tensor | None, Lookup]]:
    """What each module looked up for these edges last, and for which nodes."""
    return WeakKeyDictionary()


class OneHotWeights(LooksUp):
    """The matrices W_r of a layer without input features: X = I, and row j of W_r belongs to node j.

    H[i] = Σ over edges (i ← j, r) of A_r[i, j] · W_r[j]: a lookup. Only rows whose (relation, node) occurs are held.
    Where the edges' rows are is found once for each structure and kept as long as the structure lives.
    """

    @abstractmethod
    def forward(self, adjacency: RelationalAdjacency, nodes: Tensor | None = None) -> Tensor:
        """nodes int64 [sources]: which node each source of the adjacency is; None: all, in order → [targets, out]."""

    @abstractmethod
    def dense(self) -> Tensor:
        """[relations, nodes, out] with zero where a pair never occurs: for looking and testing."""


class SelfLoopRows(RowTable, LooksUp):
    """The self-loop's own matrix where X = I: a row for each node."""

    def look(self, structure: EdgeStructure, nodes: Tensor) -> Lookup:
        loops = structure.self_loops_apart.loops
        position = self.position[nodes[loops.column.long()]]
        position, size, picked = Lookup.among(self, position, structure)
        pattern = SparsePattern(loops.pointer, narrow(position, size), size)
        return Lookup(size == len(self.trained), pattern, picked=picked)

    def forward(self, adjacency: RelationalAdjacency, nodes: Tensor | None = None) -> Tensor:
        """[targets, out]: each target's own row, times the weight of its self-loop."""
        found = self.lookup(adjacency.structure, nodes)
        return gather_sum(found.pattern, adjacency.split_self_loops()[2], found.table(self))


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
        relation, node = pairs.relation.cpu().long(), pairs.node.cpu().long()
        reached = torch.ones(len(pairs), dtype=torch.bool)
        if training is not None:
            first, inputs = training
            seen = first.structure.source_pairs
            keys = relation * adjacency.num_sources + node  # int64: the product may be large
            nodes = inputs.cpu()[seen.node.cpu().long()]
            reached = torch.isin(keys, seen.relation.cpu().long() * adjacency.num_sources + nodes)
        return cls(relation, node, reached, adjacency.num_relations, adjacency.num_sources)

    def without_last_relation(self) -> OneHotSpace:
        """The pairs of the other relations."""
        last = self.num_relations - 1
        keep = self.relation != last
        return OneHotSpace(self.relation[keep], self.node[keep], self.reached[keep], last, self.num_nodes)

    def reached_nodes(self, relation: int | None = None) -> Tensor:
        """bool [nodes]: those with a pair, of this relation if given, that training reaches."""
        out = torch.zeros(self.num_nodes, dtype=torch.bool)
        out[self.node[self.reached if relation is None else self.reached & (self.relation == relation)]] = True
        return out


class Decomposition(HasOptions, ABC):
    """A way of writing the W_r with fewer numbers; makes the modules that hold them. A registered component.

    One from outside says how many `numbers` it takes and makes `weights`: a `MatrixWeights` that computes the matrices,
    or a `RelationWeights` that evaluates Σ_r A_r X W_r in a way of its own.

    kernels          the kernels that training calls first, to be compiled ahead
    self_loop_apart  whether the self-loop has a full matrix of its own, outside the decomposition
    """

    kernels: ClassVar[tuple[str, ...]] = ("grouped_product", "grouped_outer")
    self_loop_apart: bool = False

    @classmethod
    def build(cls, model: NodeModelConfig | LinkModelConfig, out: int, is_output: bool = False) -> Decomposition:
        """What the settings of a model ask for, for a convolution of width `out`.

        is_output: The convolution gives a number for each class.
        """
        return cls(**cls.read_options(model.convolution_options).model_dump())

    @classmethod
    def words(cls, model: NodeModelConfig | LinkModelConfig) -> str:
        """How a report describes the weight matrices."""
        return introduced(cls)

    @abstractmethod
    def numbers(self, relations: int, width_in: int, width_out: int) -> int:
        """How many numbers stand for `relations` matrices [in, out]."""

    @abstractmethod
    def weights(self, shape: WeightShape, init: Initializer, generator: torch.Generator) -> RelationWeights: ...

    def one_hot_weights(
        self, space: OneHotSpace, out_features: int, init: Initializer, generator: torch.Generator
    ) -> OneHotWeights:
        """Weights for one-hot inputs; a ConfigError where it has none."""
        name = introduced(DECOMPOSITIONS.name_of(type(self)))
        raise ConfigError(
            f"the decomposition {name} needs vectors to multiply: give embeddings or features, not one-hot nodes"
        )
