"""A sparse matrix as the kernels like it: rows sorted once, the transpose remembered."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class SparsePattern:
    """Where the entries of a sparse matrix [rows, columns] are; their values travel apart.

    pointer int64 [rows + 1]  the entries of row i are pointer[i] .. pointer[i + 1]
    column  int64 [entries]   column of each entry

    The same pattern serves every set of values, so that dropping edges (values of zero) sorts nothing again.
    """

    pointer: Tensor
    column: Tensor
    num_columns: int

    @property
    def num_rows(self) -> int:
        return self.pointer.numel() - 1

    @property
    def num_entries(self) -> int:
        return self.column.numel()

    @cached_property
    def row(self) -> Tensor:
        """int64 [entries]: row of each entry."""
        counts = self.pointer[1:] - self.pointer[:-1]
        ids = torch.arange(self.num_rows, device=counts.device)
        return torch.repeat_interleave(ids, counts, output_size=self.num_entries)

    @cached_property
    def transpose(self) -> TransposedPattern:
        """The transposed pattern, and where each of its entries stands in this one."""
        order = torch.argsort(self.column, stable=True)
        pointer = pointer_from_sorted(self.column[order], self.num_columns)
        return TransposedPattern(SparsePattern(pointer, self.row[order], self.num_rows), order)

    @classmethod
    def from_sorted_rows(cls, row: Tensor, column: Tensor, shape: tuple[int, int]) -> SparsePattern:
        """A pattern from entries already sorted by row."""
        return cls(pointer_from_sorted(row, shape[0]), column, shape[1])


@dataclass(frozen=True, eq=False)
class TransposedPattern:
    """pattern: the transposed matrix; order [entries]: entry k of it is entry order[k] of the original."""

    pattern: SparsePattern
    order: Tensor


def pointer_from_sorted(ids: Tensor, size: int) -> Tensor:
    """int64 [size + 1]: where each id's run begins in a sorted list of ids.

    >>> pointer_from_sorted(torch.tensor([0, 0, 2]), 4)
    tensor([0, 2, 2, 3, 3])
    """
    bounds = torch.arange(size + 1, device=ids.device, dtype=ids.dtype)
    return torch.searchsorted(ids, bounds)
