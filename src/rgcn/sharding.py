"""Who of several processes holds what of each node, and rows that travel between them.

A shard is a run of positions in a fixed order that has nothing to do with ids: position = a · id mod N, with a near
N / golden ratio. Neighbors in id, which entered the graph together and are alike, land far apart, so that hubs are
spread; the order does not depend on the number of processes, nothing is stored for it, and a table in this order is cut
into blocks, as PyTorch's distributed tensors are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from rgcn.kernels import take_rows
from rgcn.processes import Processes
from rgcn.sparse import SparsePattern

GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


@dataclass(frozen=True, eq=False)
class Shards:
    """Nodes 0 .. count - 1, spread over processes.

    >>> shards = [Shards(10, Processes(rank, 3)) for rank in range(3)]
    >>> [shard.own.tolist() for shard in shards]
    [[0, 3, 6, 9], [2, 5, 8, 1], [4, 7]]
    >>> shards[0].owner(torch.tensor([0, 1, 2, 4])).tolist()
    [0, 1, 1, 2]
    """

    count: int
    group: Processes

    @cached_property
    def factor(self) -> int:
        """a: coprime to the number of nodes, so that every position is taken once."""
        near = max(1, round(self.count * GOLDEN))
        return next(a for a in range(near, 2 * near + 2) if math.gcd(a, self.count) == 1)

    @property
    def block(self) -> int:
        """Nodes of each process but the last ones."""
        return -(-self.count // self.group.size)

    @property
    def first(self) -> int:
        """The position of my first node."""
        return min(self.count, self.group.rank * self.block)

    def __len__(self) -> int:
        return min(self.count, self.first + self.block) - self.first

    def position(self, nodes: Tensor) -> Tensor:
        """Where nodes int64 stand in the order of all shards."""
        return nodes * self.factor % self.count

    def at(self, positions: Tensor) -> Tensor:
        """The nodes int64 at these positions."""
        return positions * pow(self.factor, -1, self.count) % self.count if self.count > 1 else positions

    def owner(self, nodes: Tensor) -> Tensor:
        """The process that holds each node."""
        return self.position(nodes) // self.block

    def place(self, nodes: Tensor) -> Tensor:
        """Where nodes that I hold stand in what I hold."""
        return self.position(nodes) - self.first

    def mine(self, nodes: Tensor) -> Tensor:
        """bool: which of the nodes I hold."""
        return self.owner(nodes) == self.group.rank

    @cached_property
    def own(self) -> Tensor:
        """int64: the nodes that I hold, by their places."""
        return self.at(torch.arange(self.first, self.first + len(self)))

    def gathered(self, rows: Tensor, out: Tensor | None = None, at_once: int = 1 << 20) -> Tensor | None:
        """All rows [count, ...] in the order of nodes, on the first process alone, from mine [own, ...]; in `out`, if
        it is given. So many travel at a time, and nobody else holds more than its own."""
        first = self.group.first
        if first and out is None:
            out = rows.new_empty(self.count, *rows.shape[1:])
        for begin in range(0, self.count, at_once):
            nodes = torch.arange(begin, min(begin + at_once, self.count) if first else begin, device=rows.device)
            exchange = RowExchange.ask(self, nodes)
            found = exchange(rows.detach()[self.place(exchange.needed)])
            if first and out is not None:
                out[begin : begin + len(found)] = found
        return out


@dataclass(frozen=True, eq=False)
class RowExchange:
    """Rows of nodes that this process asked for, from whoever holds them; and what it gives to those who asked it.

    needed       int64: my nodes of which rows are given, those that somebody asked for, I myself included, ascending
    give         which of these rows go out, those for process 0 first; order: where those that come in belong
    given, got   how many rows go to each process, and come from it

        exchange = RowExchange.ask(shards, nodes)
        rows = exchange(states_of(exchange.needed))       # [nodes, width], in the order of the nodes; with gradients
    """

    group: Processes
    needed: Tensor
    give: SparsePattern
    order: SparsePattern
    given: list[int]
    got: list[int]

    @classmethod
    def ask(cls, shards: Shards, nodes: Tensor, of_all: bool = False) -> RowExchange:
        """For nodes int64 [n], distinct, whoever holds them. All processes ask at the same time.

        of_all  rows will be given of all own nodes, by their places, not of those alone that are needed
        """
        group, device = shards.group, nodes.device
        owner = shards.owner(nodes)
        order = torch.argsort(owner, stable=True)
        got = torch.bincount(owner, minlength=group.size).tolist()
        given = group.counts(got)
        asked = group.swap(nodes[order].to(group.device), got, given, least=False).to(device)
        if of_all:
            needed, give = shards.own.to(device), shards.place(asked)
        else:
            needed, give = torch.unique(asked, return_inverse=True)
        picks = SparsePattern.picking(give, len(needed)), SparsePattern.picking(torch.argsort(order), len(order))
        return cls(group, needed, *picks, given, got)

    def to(self, device: torch.device) -> RowExchange:
        give, order = (
            SparsePattern.picking(each.column.to(device), each.num_columns) for each in (self.give, self.order)
        )
        return replace(self, needed=self.needed.to(device), give=give, order=order)

    def __call__(self, rows: Tensor) -> Tensor:
        """rows [needed, ...] of mine → those of the nodes asked for [n, ...], in their order."""
        flat = rows.flatten(1) if rows.ndim > 1 else rows[:, None]
        swapped: Tensor = _Swap.apply(take_rows(flat, self.give), self)  # type: ignore[no-untyped-call]
        found = take_rows(swapped, self.order)
        return found.view(len(found), *rows.shape[1:])


class _Swap(torch.autograd.Function):
    """Rows go to those who asked for them; their gradients come back."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, exchange: RowExchange) -> Tensor:
        ctx.exchange = exchange
        return exchange.group.swap(rows, exchange.given, exchange.got)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        exchange = ctx.exchange
        return exchange.group.swap(gradient, exchange.got, exchange.given), None
