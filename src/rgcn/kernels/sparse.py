"""Sparse matrices in the form that the kernels read: row-sorted patterns, (relation, node) pairs and edge indices.

Each class computes what follows from its indices (a transpose, pieces of rows for a GPU) once, on first use.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cached_property, wraps
from itertools import count
from typing import Any, NamedTuple, TypeVar, cast
from weakref import WeakValueDictionary

import torch
from torch import Tensor

# The most entries of a row that one GPU program sums. Longer rows are split, so that one hub does not delay the rest.
MAX_PIECE = 64
ROLES = ("target", "relation", "source")

Structure = TypeVar("Structure")
Function = TypeVar("Function", bound=Callable[..., Any])
_structures: WeakValueDictionary[str, Any] = WeakValueDictionary()
_numbers, _process = count(), uuid.uuid4().hex[:12]


class KernelStructure:
    """A dataclass of index tensors with a `handle`, a string by which operators of PyTorch find it.

    Operators of PyTorch take tensors, numbers and strings, but no other objects. The handle is not a number, because
    a compiler may treat numbers as variables. It differs between processes, so that a compiled graph that was kept on
    disk is not used for another structure.

    Attributes:
        handle: The string.
        derived: What other modules computed from the structure, by function; see `cached_per_object`.
    """

    handle: str
    derived: dict[Any, Any]

    def __post_init__(self) -> None:
        """Create the handle and an empty cache."""
        if torch.compiler.is_dynamo_compiling():
            raise RuntimeError(
                f"a {type(self).__name__} cannot be created inside a compiled function: create it outside, and pass it"
            )
        object.__setattr__(self, "handle", f"{type(self).__name__}-{_process}-{next(_numbers)}")
        object.__setattr__(self, "derived", {})
        _structures[self.handle] = self

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle without the handle: a copy gets its own."""
        return type(self), tuple(getattr(self, each.name) for each in fields(self) if each.init)  # type: ignore[arg-type]


def structure_for(kind: type[Structure], handle: str) -> Structure:
    """Return the structure with this handle.

    Raises:
        RuntimeError: The structure no longer exists, or is of another kind.
    """
    structure = _structures.get(handle)
    if not isinstance(structure, kind):
        raise RuntimeError(
            f"{handle} is gone: a compiled graph needs the adjacency it was compiled for. Keep the adjacency at least "
            "until the backward pass is done, and compile in the process that runs"
        )
    return structure


def cached_per_object(function: Function) -> Function:
    """Cache a function's result in its first argument, a `KernelStructure`; other arguments are ignored.

    It stores what one module computes from another module's immutable object.
    """

    @wraps(function)
    def cached(structure: KernelStructure, /, *args: Any) -> Any:
        if function not in structure.derived:
            structure.derived[function] = function(structure, *args)
        return structure.derived[function]

    return cast(Function, cached)


def constant_when_compiled(function: Function) -> Function:
    """Mark a function like `torch.compiler.assume_constant_result`, which is slow to import."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


class RowPieces(NamedTuple):
    """The rows of a pattern split into pieces of at most `MAX_PIECE` entries: the unit of work on a GPU.

    For a GPU that must not wait, sizes are upper bounds; unused places have the row num_rows, which does not exist.

    Attributes:
        parts: int32 [4, num_pieces]: row, first entry, end, slot. The slot is where the partial sum goes, -1 for a
            piece that is its whole row.
        long_rows: int32 [3, num_long_rows]: row, first slot, number of slots of each row that has several pieces.
            Partial sums are added in the order of the slots.
        num_slots: How many partial sums there are.
    """

    parts: Tensor
    long_rows: Tensor
    num_slots: int

    @classmethod
    def of(cls, pointer: Tensor, max_piece: int = MAX_PIECE) -> RowPieces:
        """Split the rows given by pointer [num_rows + 1]. Longest pieces come first: neighbors have similar work.

        The sizes are read back from the device, so this suits patterns that are used many times.
        """
        pointer = pointer.long()
        rows = torch.arange(pointer.numel() - 1, device=pointer.device)
        count = ((pointer[1:] - pointer[:-1] + max_piece - 1) // max_piece).clamp_(min=1)
        slots = torch.where(count > 1, count, 0)
        first_slot = torch.cumsum(slots, 0) - slots
        row = torch.repeat_interleave(rows, count)
        within = torch.arange(len(row), device=row.device) - (torch.cumsum(count, 0) - count)[row]
        begin = pointer[row] + within * max_piece
        end = torch.minimum(begin + max_piece, pointer[row + 1])
        slot = torch.where(count[row] > 1, first_slot[row] + within, -1)
        order = torch.argsort(end - begin, descending=True, stable=True)
        long_row = torch.nonzero(count > 1).squeeze(1)
        parts = torch.stack([row, begin, end, slot]).index_select(1, order).int()
        long_rows = torch.stack([long_row, first_slot[long_row], slots[long_row]]).int()
        return cls(parts, long_rows, int(slots.sum()))


@dataclass(frozen=True, eq=False)
class SparsePattern(KernelStructure):
    """The positions of the entries of a sparse matrix [num_rows, num_columns], sorted by row; values are separate.

    One pattern serves all sets of values, so dropping edges (values of zero) needs no sorting. Indices are int32 where
    they fit, which halves the bytes to read; int64 is accepted.

    Attributes:
        pointer: [num_rows + 1]: the entries of row i are pointer[i] .. pointer[i + 1].
        column: [num_entries]: the column of each entry.
        num_columns: How many columns the matrix has.
        value_id: [num_entries]: which of the values belongs to each entry. None: value k belongs to entry k.
        transient: True if the pattern is used for one step only, so that nothing is prepared that pays off later.
    """

    pointer: Tensor
    column: Tensor
    num_columns: int
    value_id: Tensor | None = None
    transient: bool = False
    _ordered: tuple[Tensor, int, Tensor] | None = field(default=None, init=False)
    """The last argument of `in_entry_order`, its version, and the result."""

    @property
    def num_rows(self) -> int:
        """How many rows the matrix has."""
        return self.pointer.numel() - 1

    @property
    def num_entries(self) -> int:
        """How many entries the matrix has."""
        return self.column.numel()

    @cached_property
    def row(self) -> Tensor:
        """The row of each entry, [num_entries]."""
        counts = self.pointer[1:] - self.pointer[:-1]
        ids = torch.arange(self.num_rows, device=counts.device, dtype=self.column.dtype)
        return torch.repeat_interleave(ids, counts, output_size=self.num_entries)

    @cached_property
    def transpose(self) -> SparsePattern:
        """The pattern of the transposed matrix, for the same values."""
        order = torch.argsort(self.column, stable=True)
        pointer = pointer_from_sorted(self.column[order], self.num_columns)
        value_id = order if self.value_id is None else self.value_id.index_select(0, order)
        row = self.row.index_select(0, order)
        return SparsePattern(pointer, row, self.num_rows, narrow(value_id, max(self.num_entries, 1)), self.transient)

    @cached_property
    def pieces(self) -> RowPieces:
        """The rows split for a GPU."""
        return RowPieces.of(self.pointer)

    @constant_when_compiled
    def prepare_for_tracing(self) -> None:
        """Compute what the GPU kernels need, while a graph is traced.

        Tensors that are first created while a CUDA graph is recorded (`mode="reduce-overhead"`) lie in the recording's
        memory and are overwritten.
        """
        if self.column.is_cuda:
            _ = self.row, self.pieces, self.transpose.row, self.transpose.pieces

    def in_entry_order(self, value: Tensor) -> Tensor:
        """Return the values in the order of the entries. The last result is cached: most weights never change."""
        if self.value_id is None:
            return value
        last = self._ordered
        if last is not None and last[0] is value and last[1] == value._version:
            return last[2]
        ordered = value.index_select(0, self.value_id)
        if not value.requires_grad:
            object.__setattr__(self, "_ordered", (value, value._version, ordered))
        return ordered

    def in_value_order(self, per_entry: Tensor, num_values: int) -> Tensor:
        """Invert `in_entry_order`: put numbers per entry [num_entries] in the order of the values, [num_values]."""
        if self.value_id is None:
            return per_entry
        return per_entry.new_zeros(num_values).index_copy_(0, self.value_id.long(), per_entry)

    @classmethod
    def selection(cls, index: Tensor, num_columns: int, transient: bool = False) -> SparsePattern:
        """The pattern of a selection matrix [len(index), num_columns]: row k has one entry, in column index[k]."""
        rows = torch.arange(index.numel() + 1, device=index.device, dtype=torch.int32)
        return cls(rows, narrow(index, num_columns), num_columns, None, transient)

    @classmethod
    def from_sorted_rows(
        cls,
        row: Tensor,
        column: Tensor,
        shape: tuple[int, int],
        value_id: Tensor | None = None,
        transient: bool = False,
    ) -> SparsePattern:
        """The pattern of entries that are sorted by row already.

        >>> SparsePattern.from_sorted_rows(torch.tensor([0, 0, 2]), torch.tensor([1, 3, 0]), (3, 4)).pointer
        tensor([0, 2, 2, 3], dtype=torch.int32)
        """
        if value_id is not None:
            value_id = narrow(value_id, max(*shape, row.numel(), 1))
        return cls(pointer_from_sorted(row, shape[0]), narrow(column, shape[1]), shape[1], value_id, transient)


def expanded_ranges(begin: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """List the integers of all ranges begin[i] .. end[i] - 1, each after the number i of its range.

    >>> expanded_ranges(torch.tensor([5, 0]), torch.tensor([7, 1]))
    (tensor([0, 0, 1]), tensor([5, 6, 0]))

    Returns:
        The number i of each integer's range, and the integers; int64 [total] each.
    """
    counts = end - begin
    row = torch.repeat_interleave(counts)
    first = torch.cumsum(counts, 0) - counts
    return row, torch.arange(row.numel(), device=row.device) - first[row] + begin[row]


def padded_unique(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Like `torch.unique(ids, return_inverse=True)`, but of a length that does not depend on the data.

    The sorted distinct ids are padded with the last one to the length of `ids`: the CPU need not wait for a GPU.

    >>> padded_unique(torch.tensor([7, 3, 7]))
    (tensor([3, 7, 7]), tensor([1, 0, 1]))
    """
    ordered, order = torch.sort(ids)
    number = torch.cumsum(torch.cat([ordered[:1] == ordered[:1], ordered[1:] != ordered[:-1]]), 0) - 1
    unique = ordered[-1:].repeat(len(ordered)).index_copy_(0, number, ordered)
    return unique, torch.empty_like(number).index_copy_(0, order, number)


def narrow(ids: Tensor, bound: int) -> Tensor:
    """Return the ids, all below `bound`, as int32 if they fit."""
    return ids.to(torch.int32) if bound < 2**31 else ids


def pointer_from_sorted(ids: Tensor, size: int) -> Tensor:
    """Return where each id's run begins in a sorted list of ids, [size + 1]; int32 if that fits.

    >>> pointer_from_sorted(torch.tensor([0, 0, 2]), 4)
    tensor([0, 2, 2, 3, 3], dtype=torch.int32)
    """
    if ids.device.type == "cpu":  # counting takes a fifth of the time that searching does
        dtype = torch.int32 if ids.numel() < 2**31 else torch.int64
        return torch.nn.functional.pad(torch.cumsum(torch.bincount(ids, minlength=size), 0, dtype=dtype), (1, 0))
    bounds = torch.arange(size + 1, device=ids.device, dtype=ids.dtype)
    return torch.searchsorted(ids, bounds, out_int32=ids.numel() < 2**31)


@dataclass(frozen=True, eq=False)
class TripleIndex(KernelStructure):
    """Edges (target, relation, source), and views of them from each of the three roles.

    Attributes:
        target: [num_edges], sorted.
        relation: [num_edges].
        source: [num_edges].
        sizes: How many targets, relations and sources there are.
    """

    target: Tensor
    relation: Tensor
    source: Tensor
    sizes: tuple[int, int, int]
    _views: dict[str, tuple[SparsePattern, Tensor]] = field(default_factory=dict, init=False)

    def size_of(self, role: str) -> int:
        """How many nodes or relations have this role."""
        return self.sizes[ROLES.index(role)]

    def view_from(self, role: str) -> tuple[SparsePattern, Tensor]:
        """Return a pattern with a row for each id of one role, and the ids that its rows and columns leave out. Cached.

        Args:
            role: That of the rows. "target": the columns are sources, the ids relations. "relation": the columns are
                targets, the ids sources. "source": the columns are targets, the ids relations.

        Returns:
            The pattern with one entry per edge, and the remaining id of each entry, [num_edges].
        """
        if role not in self._views:
            column_role, other_role = {"target": (2, 1), "relation": (0, 2), "source": (0, 1)}[role]
            ids = self.target, self.relation, self.source
            row, column, other = ids[ROLES.index(role)], ids[column_role], ids[other_role]
            order, shape = None, (self.size_of(role), self.sizes[column_role])
            if role != "target":
                order = torch.argsort(row, stable=True)
                row, column, other = row[order], column[order], other[order]
            self._views[role] = SparsePattern.from_sorted_rows(row, column, shape, order), other
        return self._views[role]

    @constant_when_compiled
    def prepare_for_tracing(self) -> None:
        """See `SparsePattern.prepare_for_tracing`."""
        if self.target.is_cuda:
            _ = [self.view_from(role)[0].pieces for role in ROLES]


@dataclass(frozen=True, eq=False)
class Pairs(KernelStructure):
    """The (relation, node) pairs that occur among some edges: far fewer than relations × nodes.

    Attributes:
        relation: [num_pairs].
        node: [num_pairs].
        pointer: Which pairs belong to each relation, [num_relations + 1] (pairs sorted by relation), or to each node,
            [num_nodes + 1] (pairs sorted by node).
        edge_pair: [num_edges]: the pair of each edge.
        num_nodes: How many nodes there are.
        num_relations: How many relations there are.
    """

    relation: Tensor
    node: Tensor
    pointer: Tensor
    edge_pair: Tensor
    num_nodes: int
    num_relations: int
    _pieces: dict[int, RowPieces] = field(default_factory=dict, init=False)

    def __len__(self) -> int:
        """How many pairs there are."""
        return self.relation.numel()

    @classmethod
    def of(
        cls, relation: Tensor, node: Tensor, edge_pair: Tensor, num_nodes: int, num_relations: int, node_major: bool
    ) -> Pairs:
        """Make pairs that are sorted already, by node if `node_major`, else by relation."""
        pointer = pointer_from_sorted(node, num_nodes) if node_major else pointer_from_sorted(relation, num_relations)
        ids = (narrow(relation, num_relations), narrow(node, num_nodes))
        return cls(*ids, pointer, narrow(edge_pair, relation.numel() + 1), num_nodes, num_relations)

    @cached_property
    def bounds(self) -> list[int]:
        """The numbers of `pointer`, read from the device once instead of in every step."""
        return self.pointer.tolist()

    def pieces(self, length: int = MAX_PIECE) -> RowPieces:
        """Return the groups of `pointer` split for a GPU, into pieces of at most this length. Cached."""
        if length not in self._pieces:
            self._pieces[length] = RowPieces.of(self.pointer, length)
        return self._pieces[length]

    @cached_property
    def select(self) -> SparsePattern:
        """The pattern [num_pairs, num_nodes] that selects each pair's node."""
        return SparsePattern.selection(self.node, self.num_nodes)

    @cached_property
    def by_relation(self) -> SparsePattern:
        """The pattern [num_relations, num_pairs] of the pairs of each relation, whatever order the pairs are in."""
        order = torch.argsort(self.relation, stable=True)
        return SparsePattern.from_sorted_rows(self.relation[order], order, (self.num_relations, len(self)))

    @constant_when_compiled
    def prepare_for_tracing(self) -> None:
        """See `SparsePattern.prepare_for_tracing`."""
        if self.relation.is_cuda:
            _ = self.bounds, self.pieces(), self.by_relation.pieces
