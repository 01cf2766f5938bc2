"""A sparse matrix as the kernels like it: rows sorted once, everything that follows from them remembered."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cached_property, wraps
from itertools import count
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

import torch
from torch import Tensor

# Entries a piece of a row may have on a GPU. Longer rows are cut, so that one hub cannot stall the rest.
PIECE = 64
ROLES = ("target", "relation", "source")


Thing = TypeVar("Thing")
Result = TypeVar("Result")
Others = ParamSpec("Others")
Function = TypeVar("Function", bound=Callable[..., Any])
_named: WeakValueDictionary[str, Any] = WeakValueDictionary()
_numbers, _process = count(), uuid.uuid4().hex[:12]


class Named:
    """A dataclass of tensors with a `word` that stands for it, in this process, as long as it lives.

    By the word an operator of PyTorch, which takes no objects, finds it and what it remembers: its transpose, its cut
    into pieces. Not a number, which a compiler may take for variable; not the same in two processes, so that a compiled
    graph kept on disk is not taken for another graph's.
    """

    word: str

    def __post_init__(self) -> None:
        if torch.compiler.is_dynamo_compiling():
            raise RuntimeError(f"a {type(self).__name__} cannot be made in a compiled function: make it outside")
        object.__setattr__(self, "word", f"{type(self).__name__}-{_process}-{next(_numbers)}")
        _named[self.word] = self

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy is another object, with a word of its own."""
        return type(self), tuple(getattr(self, each.name) for each in fields(self) if each.init)  # type: ignore[arg-type]


def named(kind: type[Thing], word: str) -> Thing:
    """The object that the word stands for."""
    found = _named.get(word)
    if not isinstance(found, kind):
        raise RuntimeError(
            f"{word} is gone: a compiled graph needs the adjacency it was compiled for. Keep the adjacency at least "
            "until the backward pass is done, and compile in the process that runs"
        )
    return found


def computed_once(
    function: Callable[Concatenate[Thing, Others], Result],
) -> Callable[Concatenate[Thing, Others], Result]:
    """Remember what a function gave for its first argument, which never changes, until that is garbage.

    For what one module computes from a structure or a pattern of another; the result must not refer to it.
    """
    known: WeakKeyDictionary[Thing, Result] = WeakKeyDictionary()

    @wraps(function)
    def remembered(of: Thing, /, *others: Others.args, **named: Others.kwargs) -> Result:
        found = known.get(of)
        if found is None:
            found = known[of] = function(of, *others, **named)
        return found

    return remembered


def constant_when_compiled(function: Function) -> Function:
    """`torch.compiler.assume_constant_result`, which loads the compiler, as long to wait for as PyTorch itself."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


class RowPieces(NamedTuple):
    """The rows of a pattern cut into pieces of at most `PIECE` entries: the unit of work on a GPU.

    parts  int32 [4, pieces]: row, begin, end, slot: the entries begin .. end of a row, which is num_rows where there is
           no piece; slot is -1 where the piece is its whole row, else where its partial sum is kept
    longs  int32 [3, longs]: row, first slot, count: the rows of several pieces, num_rows where there is none; their
           partial sums are in so many slots from the first, to be added in this order

    Where nothing may wait for the device, sizes are bounds that follow from the numbers of rows and entries alone.
    """

    parts: Tensor
    longs: Tensor
    num_slots: int

    @classmethod
    def of(cls, pointer: Tensor, piece: int = PIECE) -> RowPieces:
        """From the rows' pointer [rows + 1]; longest pieces first, so that neighbors have about the same to do.

        Exact sizes are asked of the device, which is waited for: this is for patterns that last.
        """
        pointer = pointer.long()
        rows = torch.arange(pointer.numel() - 1, device=pointer.device)
        count = ((pointer[1:] - pointer[:-1] + piece - 1) // piece).clamp_(min=1)
        slots = torch.where(count > 1, count, 0)
        first_slot = torch.cumsum(slots, 0) - slots
        row = torch.repeat_interleave(rows, count)
        within = torch.arange(len(row), device=row.device) - (torch.cumsum(count, 0) - count)[row]
        begin = pointer[row] + within * piece
        end = torch.minimum(begin + piece, pointer[row + 1])
        slot = torch.where(count[row] > 1, first_slot[row] + within, -1)
        order = torch.argsort(end - begin, descending=True, stable=True)
        long_row = torch.nonzero(count > 1).squeeze(1)
        parts = torch.stack([row, begin, end, slot]).index_select(1, order).int()
        longs = torch.stack([long_row, first_slot[long_row], slots[long_row]]).int()
        return cls(parts, longs, int(slots.sum()))


@dataclass(frozen=True, eq=False)
class SparsePattern(Named):
    """Where the entries of a sparse matrix [rows, columns] are; their values travel apart.

    pointer [rows + 1]  the entries of row i are pointer[i] .. pointer[i + 1]
    column  [entries]   column of each entry
    entry   [entries]   which of the given values each entry takes; None: value k belongs to entry k

    The same pattern serves every set of values, so that dropping edges (values of zero) sorts nothing again. Indices
    are int32 where they fit (those given may be int64): half the bytes to hold and to read.
    """

    pointer: Tensor
    column: Tensor
    num_columns: int
    entry: Tensor | None = None
    transient: bool = False
    """Whether the pattern serves one step only: then nothing is prepared that only pays over many."""
    _arranged: tuple[Tensor, int, Tensor] | None = field(default=None, init=False)
    """The last values that were arranged, their version and what they became."""

    @property
    def num_rows(self) -> int:
        return self.pointer.numel() - 1

    @property
    def num_entries(self) -> int:
        return self.column.numel()

    @cached_property
    def row(self) -> Tensor:
        """[entries]: row of each entry."""
        counts = self.pointer[1:] - self.pointer[:-1]
        ids = torch.arange(self.num_rows, device=counts.device, dtype=self.column.dtype)
        return torch.repeat_interleave(ids, counts, output_size=self.num_entries)

    @cached_property
    def transpose(self) -> SparsePattern:
        """The transposed matrix's pattern, which takes the same values."""
        order = torch.argsort(self.column, stable=True)
        pointer = pointer_from_sorted(self.column[order], self.num_columns)
        entry = order if self.entry is None else self.entry.index_select(0, order)
        row = self.row.index_select(0, order)
        return SparsePattern(pointer, row, self.num_rows, narrow(entry, max(self.num_entries, 1)), self.transient)

    @cached_property
    def pieces(self) -> RowPieces:
        """The rows cut for a GPU."""
        return RowPieces.of(self.pointer)

    @constant_when_compiled
    def make_ready(self) -> None:
        """Make what a GPU's kernels keep with the pattern, while a graph is traced: what would first be made while it
        is recorded as a CUDA graph (`mode="reduce-overhead"`) would lie in the recording's memory, and be written over.
        """
        if self.column.is_cuda:
            _ = self.row, self.pieces, self.transpose.row, self.transpose.pieces

    def arranged(self, value: Tensor) -> Tensor:
        """The values in the order of the entries. Those of the last call are kept: most weights never change."""
        if self.entry is None:
            return value
        known = self._arranged
        if known is not None and known[0] is value and known[1] == value._version:
            return known[2]
        moved = value.index_select(0, self.entry)
        if not value.requires_grad:
            object.__setattr__(self, "_arranged", (value, value._version, moved))
        return moved

    def given_back(self, arranged: Tensor, size: int) -> Tensor:
        """The inverse of `arranged`: numbers of entries [entries] to their values' places [size]."""
        if self.entry is None:
            return arranged
        return arranged.new_zeros(size).index_copy_(0, self.entry.long(), arranged)

    @classmethod
    def picking(cls, index: Tensor, num_columns: int, transient: bool = False) -> SparsePattern:
        """[entries, columns] with a single entry a row: row k picks index[k]."""
        rows = torch.arange(index.numel() + 1, device=index.device, dtype=torch.int32)
        return cls(rows, narrow(index, num_columns), num_columns, None, transient)

    @classmethod
    def from_sorted_rows(
        cls, row: Tensor, column: Tensor, shape: tuple[int, int], entry: Tensor | None = None, transient: bool = False
    ) -> SparsePattern:
        """A pattern from entries already sorted by row."""
        bound = max(*shape, row.numel(), 1)
        entry = None if entry is None else narrow(entry, bound)
        return cls(pointer_from_sorted(row, shape[0]), narrow(column, shape[1]), shape[1], entry, transient)


def expanded_ranges(begin: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """(number of the range, place) of every place in ranges, int64 [a] each."""
    counts = end - begin
    row = torch.repeat_interleave(counts)
    first = torch.cumsum(counts, 0) - counts
    return row, torch.arange(row.numel(), device=row.device) - first[row] + begin[row]


def distinct(ids: Tensor) -> tuple[Tensor, Tensor]:
    """(the ids that occur, sorted; the place of each given one among them), as many as were given, so that nobody waits
    to hear how many there are: the last stands again until the end.

    >>> distinct(torch.tensor([7, 3, 7]))
    (tensor([3, 7, 7]), tensor([1, 0, 1]))
    """
    ordered, order = torch.sort(ids)
    number = torch.cumsum(torch.cat([ordered[:1] == ordered[:1], ordered[1:] != ordered[:-1]]), 0) - 1
    found = ordered[-1:].repeat(len(ordered)).index_copy_(0, number, ordered)
    return found, torch.empty_like(number).index_copy_(0, order, number)


def narrow(ids: Tensor, bound: int) -> Tensor:
    """The ids, all below `bound`, as int32 if they fit."""
    return ids.to(torch.int32) if bound < 2**31 else ids


def pointer_from_sorted(ids: Tensor, size: int) -> Tensor:
    """[size + 1]: where each id's run begins in a sorted list of ids; int32 if that fits.

    >>> pointer_from_sorted(torch.tensor([0, 0, 2]), 4)
    tensor([0, 2, 2, 3, 3], dtype=torch.int32)
    """
    if ids.device.type == "cpu":  # counting takes a fifth of the time that searching does
        kind = torch.int32 if ids.numel() < 2**31 else torch.int64
        return torch.nn.functional.pad(torch.cumsum(torch.bincount(ids, minlength=size), 0, dtype=kind), (1, 0))
    bounds = torch.arange(size + 1, device=ids.device, dtype=ids.dtype)
    return torch.searchsorted(ids, bounds, out_int32=ids.numel() < 2**31)


@dataclass(frozen=True, eq=False)
class TripleIndex(Named):
    """Entries that each name a target, a relation and a source, seen from each of the three.

    target, relation, source [E], sorted by target; sizes: how many there are of each.
    """

    target: Tensor
    relation: Tensor
    source: Tensor
    sizes: tuple[int, int, int]
    _views: dict[str, tuple[SparsePattern, Tensor]] = field(default_factory=dict, init=False)

    @property
    def ends(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.target, self.relation, self.source

    def size_of(self, role: str) -> int:
        return self.sizes[ROLES.index(role)]

    def seen_from(self, role: str) -> tuple[SparsePattern, Tensor]:
        """A pattern whose rows are the one role and whose columns are another; the third's ids beside it. Kept."""
        if role not in self._views:
            other, third = {"target": (2, 1), "relation": (0, 2), "source": (0, 1)}[role]
            row, column, beside = self.ends[ROLES.index(role)], self.ends[other], self.ends[third]
            order, shape = None, (self.size_of(role), self.sizes[other])
            if role != "target":
                order = torch.argsort(row, stable=True)
                row, column, beside = row[order], column[order], beside[order]
            self._views[role] = SparsePattern.from_sorted_rows(row, column, shape, order), beside
        return self._views[role]

    @constant_when_compiled
    def make_ready(self) -> None:
        """As `SparsePattern.make_ready`."""
        if self.target.is_cuda:
            _ = [self.seen_from(role)[0].pieces for role in ROLES]


@dataclass(frozen=True, eq=False)
class Pairs(Named):
    """The (relation, node) pairs that occur among some edges, and how the edges use them: few, where relations × nodes
    would be hundreds of times more.

    relation, node [P]; `pointer` says which pairs belong to each relation (relation-major order, [relations + 1]) or to
    each node (node-major order, [nodes + 1]). `edge_pair` [E] is an edge's pair. Ids are int32 where they fit.
    """

    relation: Tensor
    node: Tensor
    pointer: Tensor
    edge_pair: Tensor
    num_nodes: int
    num_relations: int

    def __len__(self) -> int:
        return self.relation.numel()

    @classmethod
    def of(
        cls, relation: Tensor, node: Tensor, edge_pair: Tensor, num_nodes: int, num_relations: int, node_major: bool
    ) -> Pairs:
        """From pairs already sorted by node (node_major) or by relation."""
        pointer = pointer_from_sorted(node, num_nodes) if node_major else pointer_from_sorted(relation, num_relations)
        ids = (narrow(relation, num_relations), narrow(node, num_nodes))
        return cls(*ids, pointer, narrow(edge_pair, relation.numel() + 1), num_nodes, num_relations)

    @cached_property
    def bounds(self) -> list[int]:
        """`pointer` on the host: asked of the device once, not in every step."""
        return self.pointer.tolist()

    @cached_property
    def tiles(self) -> RowPieces:
        """The groups of `pointer` cut for a GPU."""
        return RowPieces.of(self.pointer)

    @cached_property
    def select(self) -> SparsePattern:
        """[P, nodes]: picks each pair's node."""
        return SparsePattern.picking(self.node, self.num_nodes)

    @cached_property
    def by_relation(self) -> SparsePattern:
        """[relations, P]: the pairs of each relation, whatever order the pairs are in."""
        order = torch.argsort(self.relation, stable=True)
        return SparsePattern.from_sorted_rows(self.relation[order], order, (self.num_relations, len(self)))

    @constant_when_compiled
    def make_ready(self) -> None:
        """As `SparsePattern.make_ready`."""
        if self.relation.is_cuda:
            _ = self.bounds, self.tiles, self.by_relation.pieces
