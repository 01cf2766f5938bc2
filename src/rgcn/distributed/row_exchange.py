"""Rows of nodes that travel from the processes that hold them to those that asked for them, with gradients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rgcn.kernels import take_rows
from rgcn.kernels.sparse import SparsePattern
from rgcn.placement import RowExchange

if TYPE_CHECKING:
    from rgcn.distributed.placements import Sharded


@dataclass(frozen=True, eq=False)
class PeerExchange(RowExchange):
    """A row exchange between processes.

    give             which rows of `needed` go out, those for rank 0 first
    order            where each row that comes in belongs
    given, received  how many rows go to each process, and come from it
    """

    placement: Sharded
    give: SparsePattern
    order: SparsePattern
    given: list[int]
    received: list[int]

    @classmethod
    def of(cls, placement: Sharded, nodes: Tensor, all_local: bool) -> PeerExchange:
        """Ask for the rows of nodes int64 [n], distinct; arguments as for `Placement.exchange`."""
        partition, device = placement.partition, nodes.device
        owner = partition.owner(nodes)
        order = torch.argsort(owner, stable=True)
        received = torch.bincount(owner, minlength=placement.size).tolist()
        given = placement.exchange_counts(received)
        requests = nodes[order].to(placement.device)
        asked = placement.all_to_all(requests, received, given, necessary=False).to(device)
        if all_local:
            needed, give = partition.nodes.to(device), partition.row(asked)
        else:
            needed, give = torch.unique(asked, return_inverse=True)
        picks = SparsePattern.picking(give, len(needed)), SparsePattern.picking(torch.argsort(order), len(order))
        return cls(needed, placement, *picks, given, received)

    def to(self, device: torch.device) -> PeerExchange:
        give, order = (
            SparsePattern.picking(each.column.to(device), each.num_columns) for each in (self.give, self.order)
        )
        return replace(self, needed=self.needed.to(device), give=give, order=order)

    def __call__(self, rows: Tensor) -> Tensor:
        flat = rows.flatten(1) if rows.ndim > 1 else rows[:, None]
        swapped: Tensor = _Swap.apply(take_rows(flat, self.give), self)  # type: ignore[no-untyped-call]
        found = take_rows(swapped, self.order)
        return found.view(len(found), *rows.shape[1:])


class _Swap(torch.autograd.Function):
    """Rows go to the processes that asked for them; their gradients come back."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, exchange: PeerExchange) -> Tensor:
        ctx.exchange = exchange
        return exchange.placement.all_to_all(rows, exchange.given, exchange.received)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        exchange = ctx.exchange
        return exchange.placement.all_to_all(gradient, exchange.received, exchange.given), None
